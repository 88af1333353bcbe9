//! Builds and installs the Python packages as a user would, then tests them.

use std::process::Command;

use crate::{install, root, succeed};

/// The packages that the tests need in addition to the packages' own dependencies.
const TOOLS: [&str; 6] = ["maturin>=1.16,<2", "numpy", "pytest", "hypothesis", "mypy", "pyright[nodejs]"];

/// Runs `pip install ./python` with the same profile as the other tests, so that nothing is compiled twice. Then runs
/// the tests and the docstring examples, checks the types, and compares the type stubs with the native module.
pub(crate) fn check() -> Result<(), String> {
    let folder = install::environment("python", &TOOLS)?;
    let program = folder.join("bin/python");
    // Maturin is one of the tools.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.join("bin")).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(folders).map_err(|error| error.to_string())?;
    let python = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        // `PYTHONSAFEPATH` keeps the sources off the import path, so that the installed package is tested.
        command
            .args(arguments)
            .current_dir(root().join("python"))
            .env("PYTHONSAFEPATH", "1")
            .env("PATH", &path);
        succeed(&mut command)
    };
    let mut pip = Command::new(&program);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--force-reinstall"])
        .args(["--config-settings", "build-args=--profile dev --features development", "."])
        .current_dir(root().join("python"))
        .env("PATH", &path);
    succeed(&mut pip)?;
    python(&["-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider", "tests"])?;
    python(&[
        "-m",
        "pytest",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "--doctest-modules",
        "--pyargs",
        "neurenix",
        "micrograd_rs",
    ])?;
    python(&["-m", "mypy", "neurenix", "micrograd_rs", "tests/typing_example.py"])?;
    let interpreter = program.to_string_lossy();
    python(&[
        "-m",
        "pyright",
        "--pythonpath",
        &interpreter,
        "neurenix",
        "micrograd_rs",
        "tests/typing_example.py",
    ])?;
    python(&["make_stubs.py", "--check"])
}
