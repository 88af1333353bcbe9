//! Builds programs for Windows and runs them under Wine, with lavapipe and Microsoft's DirectML.
//!
//! Everything is kept in `target/windows`. Rust's distribution for Windows is not needed: the standard library is built
//! from Debian's package of its sources.

mod device;
mod python;

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    cargo,
    install::{self, once},
    output, root, succeed,
};

const TARGET: &str = "x86_64-pc-windows-gnu";

/// What builds programs for Windows, the chroot and Wine's library.
const HOST_PACKAGES: [&str; 7] = [
    "gcc-mingw-w64-x86-64",
    "mmdebstrap",
    "autoconf",
    "autotools-dev",
    "bison",
    "flex",
    "libxml-libxml-perl",
];

/// Wine, an X server, without which there is no Direct3D device, and lavapipe.
const CHROOT_PACKAGES: &str = "wine,wine64,xvfb,mesa-vulkan-drivers,libvulkan1,libegl1,libgl1,fonts-liberation,\
    libxrandr2,libxi6,libxcomposite1,libxcursor1,libxinerama1,libxrender1,libxfixes3";

/// Python packages for Windows that contain DirectML and Microsoft's two compilers of HLSL, and where.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("onnxruntime-directml==1.24.4", &["onnxruntime/capi/DirectML.dll"]),
    ("kivy-deps.angle==0.5.0", &["share/angle/bin/d3dcompiler_47.dll"]),
    ("compushady==0.17.5", &["compushady/backends/dxcompiler.dll", "compushady/backends/dxil.dll"]),
];

/// Runs a program and ends with its exit code. Wine's server kills a process that takes more than a second to end: on
/// a busy machine, only `start` learns the code.
const WINE: [&str; 5] = ["wine", "start", "/wait", "/b", "/unix"];

/// Crates whose tests need no device but the CPU.
const CRATES: [&str; 2] = ["neurenix-onnx", "neurenix-quantize"];

/// Crates whose unit tests run. Their other tests were not tried.
const UNITS: [&str; 5] = ["neurenix", "neurenix-cli", "phynexus", "phynexus-cpu", "phynexus-npu"];

/// A unit test that fails: MinGW's `fmaf`, which the test's build calls, rounds twice.
const SKIPPED: &str = "single_precision_stays_within_its_bounds";

/// Runs tests under Wine.
pub(crate) fn check() -> Result<(), String> {
    let windows = Windows::open()?;
    let mut test = windows.cargo("test");
    for name in CRATES {
        test.args(["--package", name]);
    }
    succeed(test.args(["--lib", "--tests", "--quiet"]))?;
    let mut test = windows.cargo("test");
    for name in UNITS {
        test.args(["--package", name]);
    }
    succeed(test.args(["--lib", "--quiet", "--", "--skip", SKIPPED]))?;
    device::check(&windows)?;
    python::check(&windows)
}

/// A running environment: Wine and its X server.
pub(crate) struct Windows {
    folder: PathBuf,
    screen: Child,
    /// The X server's name.
    display: String,
}

impl Windows {
    /// Installs what is missing and starts the X server.
    pub(crate) fn open() -> Result<Windows, String> {
        let folder = root().join("target/windows");
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        once(&folder.join("debian"), |path| {
            install::packages(&HOST_PACKAGES)?;
            debian(path)
        })?;
        once(&folder.join("wined3d"), |path| {
            let script = root().join("xtask/src/windows/wined3d.sh");
            succeed(Command::new(script).arg(folder.join("debian/sources")).arg(path))
        })?;
        made_of(&folder.join("libraries"), &packages(), |path| {
            install_packages(path, &LIBRARIES.map(|(package, _)| package))
        })?;
        let mut screen = enter(&folder);
        screen.args(["Xvfb", "-displayfd", "1", "-nolisten", "tcp"]);
        screen.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut screen = screen.spawn().map_err(|e| format!("Xvfb did not start: {e}"))?;
        let mut number = String::new();
        if let Some(output) = screen.stdout.as_mut() {
            BufReader::new(output).read_line(&mut number).map_err(|e| format!("Xvfb: {e}"))?;
        }
        let windows = Windows { folder, screen, display: format!(":{}", number.trim_end()) };
        if number.is_empty() {
            return Err("Xvfb ended at once".to_owned());
        }
        windows.make_prefix()?;
        Ok(windows)
    }

    /// Makes Wine's folder `C:`, with the libraries among those of the system.
    fn make_prefix(&self) -> Result<(), String> {
        let prefix = self.folder.join("prefix");
        let (done, wanted) = (prefix.join("installed"), packages());
        if fs::read_to_string(&done).ok().as_ref() == Some(&wanted) {
            return Ok(());
        }
        succeed(self.command().args(["wine", "wineboot", "--init"]))?;
        let found = LIBRARIES.iter().flat_map(|(_, paths)| *paths);
        let found = found.map(|path| self.folder.join("libraries").join(path));
        for library in found.chain([self.folder.join("wined3d/wined3d.dll")]) {
            let name = library.file_name().unwrap_or_default();
            let copied = fs::copy(&library, prefix.join("drive_c/windows/system32").join(name));
            copied.map_err(|e| format!("{}: {e}", library.display()))?;
        }
        fs::write(&done, wanted).map_err(|e| format!("{}: {e}", done.display()))
    }

    /// A program of the repository, run by Wine.
    pub(crate) fn wine(&self, program: &Path) -> Command {
        let mut command = self.command();
        command.args(WINE).arg(program);
        command
    }

    /// A task of cargo for Windows. The programs that it runs are run by Wine.
    pub(crate) fn cargo(&self, task: &str) -> Command {
        let entry = enter(&self.folder);
        let words: Vec<_> = [entry.get_program()].into_iter().chain(entry.get_args()).collect();
        let runner: Vec<_> =
            words.iter().map(|word| word.to_string_lossy()).chain(WINE.map(Into::into)).collect();
        let mut command = cargo();
        command.arg(task).arg("--config").arg(format!("target.{TARGET}.runner={runner:?}"));
        self.set_target(&mut command);
        self.set_environment(&mut command);
        command
    }

    /// Options of cargo and maturin that build for Windows.
    fn set_target(&self, command: &mut Command) {
        command.args(["--target", TARGET, "-Zbuild-std=std,panic_unwind,test,proc_macro"]);
        command.arg("--target-dir").arg(self.folder.join("build"));
        // Wine shows no lines of sources, and linking takes long.
        command.env("RUSTC_BOOTSTRAP", "1").env("CARGO_PROFILE_DEV_DEBUG", "false");
        command.env("__CARGO_TESTS_ONLY_SRC_ROOT", self.folder.join("debian/usr/src/rust/library"));
    }

    fn command(&self) -> Command {
        let mut command = enter(&self.folder);
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        command.env("DISPLAY", &self.display).env("WINEPREFIX", self.folder.join("prefix"));
        // Without its debugger, which would wait, a program that crashes ends.
        command.env("WINEDEBUG", "-all").env("WINEDLLOVERRIDES", "wined3d,d3dcompiler_47=n;winedbg.exe=d");
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        // What fails here has ended already.
        let _ = self.command().args(["wineserver", "--kill"]).status();
        let _ = self.screen.kill();
        let _ = self.screen.wait();
    }
}

/// A command in the chroot.
fn enter(folder: &Path) -> Command {
    let mut command = Command::new(root().join("xtask/src/windows/enter.sh"));
    command.arg(folder.join("debian")).arg(root());
    command
}

/// The packages of the libraries.
fn packages() -> String {
    LIBRARIES.map(|(package, _)| package).join("\n")
}

/// Makes a folder of these packages, unless it is there.
fn made_of(
    path: &Path,
    packages: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    let (list, failed) = (path.join("packages"), |e| format!("{}: {e}", path.display()));
    if path.exists() && fs::read_to_string(&list).ok().as_deref() != Some(packages) {
        fs::remove_dir_all(path).map_err(failed)?;
    }
    once(path, |path| {
        make(path)?;
        fs::write(path.join("packages"), packages).map_err(failed)
    })
}

/// A chroot with Debian 13. In `/usr/src/rust` it has the sources of this compiler's standard library, in `/sources`
/// those of Wine.
fn debian(path: &Path) -> Result<(), String> {
    let version = install::rust_version()?;
    let hook = format!(
        "chroot \"$1\" sh -ec 'apt-get install --yes rust-src={version}*; ln -s rustc-{version} /usr/src/rust; \
         mkdir /sources; cd /sources; apt-get source --download-only wine; \
         apt-get download libvulkan-dev khronos-api'"
    );
    let include = format!("--include={CHROOT_PACKAGES}");
    install::debian(path, &["--variant=apt", &include, &format!("--customize-hook={hook}")])
}

/// Installs Python packages for Windows, without their dependencies, into a folder.
fn install_packages(path: &Path, packages: &[&str]) -> Result<(), String> {
    let mut pip = Command::new(tools()?.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", "--platform=win_amd64"]);
    succeed(pip.args(["--python-version=3.11", "--target"]).arg(path).args(packages))
}

/// This system's Python environment with what downloads and builds Python packages.
fn tools() -> Result<PathBuf, String> {
    install::environment("windows-python", &["pip>=26", "maturin>=1.16,<2"])
}
