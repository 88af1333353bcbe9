//! Installs the system packages and Python packages that tests need.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{cargo, output, root, succeed};

/// Installs Debian packages. Needs root.
pub(crate) fn packages(names: &[&str]) -> Result<(), String> {
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err(format!("{} are needed, but apt-get is not available to install them", names.join(", ")));
    }
    let log = std::env::temp_dir().join("neurenix-apt.log");
    println!("installing Debian packages {} (needs root); log: {}", names.join(", "), log.display());
    let file = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    let apt = |arguments: &[&str]| {
        let output = || file.try_clone().map(Stdio::from).map_err(|e| e.to_string());
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        succeed(command.stdout(output()?).stderr(output()?))
    };
    apt(&["update", "-qq"])?;
    apt(&[&["install", "-y", "-qq", "--no-install-recommends"], names].concat())
}

/// Installs the Debian packages of which none of these files exists.
pub(crate) fn unless_found<'a>(
    wanted: impl IntoIterator<Item = (&'a [&'a str], &'a [&'a str])>,
) -> Result<(), String> {
    let missing = wanted.into_iter().filter(|(files, _)| !files.iter().any(|file| Path::new(file).exists()));
    let names: Vec<&str> = missing.flat_map(|(_, names)| names).copied().collect();
    if names.is_empty() { Ok(()) } else { packages(&names) }
}

/// Makes a folder, unless it is there.
pub(crate) fn once(path: &Path, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    println!("making {}", path.display());
    let unfinished = path.with_extension("unfinished");
    let failed = |error: std::io::Error| format!("{}: {error}", unfinished.display());
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(failed)?;
    }
    make(&unfinished)?;
    fs::rename(&unfinished, path).map_err(failed)
}

/// The version of this Rust.
pub(crate) fn rust_version() -> Result<String, String> {
    let version = output(cargo().arg("--version"))?;
    version.split(' ').nth(1).map(str::to_owned).ok_or_else(|| "cargo does not tell its version".to_owned())
}

/// A folder with packages of Debian 13, from the mirror of this Debian. The options are those of `mmdebstrap`.
pub(crate) fn debian(path: &Path, options: &[&str]) -> Result<(), String> {
    let format = ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"];
    let mirrors = output(Command::new("apt-get").args(format).arg("Label: Debian"))?;
    let mirror = mirrors.lines().next().ok_or("apt-get knows no mirror of Debian")?;
    let key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
    let source = |kind: &str, suite: &str| format!("{kind} {key} {mirror} {suite} main");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--aptopt=APT::Install-Recommends \"false\""]).args(options);
    command.arg("trixie").arg(path);
    succeed(command.args([
        source("deb", "trixie"),
        source("deb-src", "trixie"),
        source("deb", "trixie-backports"),
    ]))
}

/// The sources of this Rust's standard library, from Debian's package.
pub(crate) fn rust_sources() -> Result<PathBuf, String> {
    let (folder, version) = (root().join("target/rust-src"), rust_version()?);
    let sources = folder.join(&version);
    once(&sources, |path| {
        unless_found([(&["/usr/bin/mmdebstrap"][..], &["mmdebstrap"][..])])?;
        debian(path, &["--variant=extract", &format!("--include=rust-src={version}*")])
    })?;
    Ok(sources.join(format!("usr/src/rustc-{version}/library")))
}

/// Creates a Python virtual environment with these packages in the target folder. Recreates it if the list changes.
pub(crate) fn environment(name: &str, packages_of_python: &[&str]) -> Result<PathBuf, String> {
    let folder = root().join("target").join(name);
    let done = folder.join("installed");
    let wanted = packages_of_python.join("\n");
    if std::fs::read_to_string(&done).ok().as_deref() != Some(&wanted) {
        // Debian packages these modules separately.
        let modules =
            Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
        if !modules.is_ok_and(|status| status.success()) {
            packages(&["python3", "python3-venv"])?;
        }
        succeed(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        succeed(pip.args(["-m", "pip", "install", "--quiet"]).args(packages_of_python))?;
        std::fs::write(&done, &wanted).map_err(|e| format!("{}: {e}", done.display()))?;
    }
    Ok(folder)
}
