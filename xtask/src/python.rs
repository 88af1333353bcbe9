//! Builds and installs the Python packages with pip, then tests them.

use std::{process::Command, thread};

use crate::{install, root, succeed};

/// The packages that the tests need in addition to the packages' own dependencies.
const TOOLS: [&str; 14] = [
    "maturin>=1.16,<2",
    "numpy",
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "mypy",
    "pyright[nodejs]",
    "onnx==1.23.2",
    "onnxruntime==1.31.1",
    // Libraries that tensors are used with.
    "einops",
    "matplotlib",
    "pillow",
    "safetensors",
    "tqdm",
];

/// Runs `pip install ./python` with the profile and the dependencies' features of the other tests, so that little is
/// compiled twice. Then runs the tests and the docstring examples, and beside them checks the types and compares the
/// type stubs with the native module. The tests that take minutes run only if `full`.
pub(crate) fn check(full: bool) -> Result<(), String> {
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
        command
    };
    let build = "build-args=--profile dev --features development";
    let mut pip = python(&["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]);
    // Building a package imports from its folder.
    succeed(pip.args(["--force-reinstall", "--config-settings", build, "."]).env_remove("PYTHONSAFEPATH"))?;
    let interpreter = program.to_string_lossy();
    let sources = ["neurenix", "micrograd_rs", "tests/typing_example.py"];
    let tests = ["-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider"];
    let documentation = ["--doctest-modules", "--pyargs", "neurenix", "micrograd_rs"];
    let checks = [
        python(&[&["-m", "mypy"], &sources[..]].concat()),
        python(&[&["-m", "pyright", "--pythonpath", &interpreter], &sources[..]].concat()),
        python(&["make_stubs.py", "--check"]),
    ];
    let slow: &[&str] = if full { &["--slow"] } else { &[] };
    // Most tests use little more than one core: two processes share them, and the other checks run beside them. What
    // those say is shown at the end.
    let (tested, checked) = thread::scope(|scope| {
        let checks = scope.spawn(|| checks.map(|mut check| (format!("{check:?}"), check.output())));
        let tested = succeed(python(&tests).args(["-n", "2", "--dist", "worksteal"]).args(slow).arg("tests"));
        (tested.and_then(|()| succeed(python(&tests).args(documentation))), checks.join())
    });
    let mut results = vec![tested];
    for (shown, output) in checked.map_err(|_| "the checks of types panicked".to_owned())? {
        let output = output.map_err(|error| format!("{shown} did not start: {error}"))?;
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let failed = || format!("{shown} ended with {}", output.status);
        results.push(if output.status.success() { Ok(()) } else { Err(failed()) });
    }
    results.into_iter().collect()
}

/// Runs the tests that need an NPU's runtime, on the packages that [`check`] installed.
pub(crate) fn npu(search_path: &str) -> Result<(), String> {
    let program = root().join("target/python/bin/python");
    let tests = ["-m", "pytest", "--import-mode=importlib", "-p", "no:cacheprovider", "tests/test_npu.py"];
    let mut command = Command::new(program);
    command.args(tests).current_dir(root().join("python")).env("PYTHONSAFEPATH", "1");
    succeed(command.env("RNN_NPU_PATH", search_path).env("RNN_NPU_EMULATORS", "1"))
}
