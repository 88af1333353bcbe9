//! Installs the system packages and Python packages that tests need.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{root, succeed};

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
