//! Runs networks on the runtimes of NPUs: Qualcomm's emulator, without the networks that are trained first; with
//! `--full`, all networks on all runtimes: also on OpenVINO, LiteRT and Arm NN, and through Vela.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{cargo, install, python, root, succeed};

/// An environment of Python packages that bring a runtime.
struct Runtime {
    folder: &'static str,
    packages: &'static [&'static str],
    /// The tests of `phynexus-npu` that need it.
    tests: &'static [&'static str],
    /// The test of `neurenix-cli` that needs it.
    command: Option<&'static str>,
    /// Whether only `--full` runs it.
    full: bool,
}

const RUNTIMES: [Runtime; 3] = [
    Runtime {
        folder: "npu-qnn",
        packages: &["onnxruntime==1.31.1", "onnxruntime-qnn==2.7.0"],
        tests: &["qnn"],
        command: None,
        full: false,
    },
    Runtime {
        folder: "npu-openvino",
        packages: &["openvino==2026.4.1"],
        tests: &["openvino"],
        command: None,
        full: true,
    },
    // OpenVINO of the version that LiteRT's plug-in for Intel was built with.
    Runtime {
        folder: "npu-litert",
        packages: &["ai-edge-litert==2.3.0", "openvino==2026.3.1", "ethos-u-vela==5.2.0"],
        tests: &["litert", "vela"],
        command: Some("quantize_writes_a_file_for_ethos_u"),
        full: true,
    },
];

/// Part of the names of tests that only `--full` runs: those of networks that are trained first.
const LONG: &str = "trained_networks";

/// Arm NN, with the Python module through which it is used.
const ARM_NN: [&str; 3] = ["python3-pyarmnn", "libarmnntfliteparser22", "libarmnn-cpuref-backend22"];

/// Runs the tests that need a runtime.
pub(crate) fn check(full: bool) -> Result<(), String> {
    for runtime in RUNTIMES.iter().filter(|runtime| full || !runtime.full) {
        println!("--- {}", runtime.folder);
        let folder = install::environment(runtime.folder, runtime.packages)?;
        let path = search_path(&folder)?;
        rust(runtime.tests, full, &path)?;
        if let Some(test) = runtime.command {
            let mut command = cargo();
            command.args(["test", "--quiet", "--workspace", "--test", "cli"]);
            succeed(command.args(["--", "--ignored", test]).env("RNN_NPU_PATH", &path))?;
        }
    }
    if full {
        println!("--- Arm NN");
        if !Path::new("/usr/lib/python3/dist-packages/pyarmnn").exists() {
            install::packages(&ARM_NN)?;
        }
        rust(&["armnn"], full, "")?;
    }
    let qnn = root().join("target").join(RUNTIMES[0].folder);
    python::npu(&search_path(&qnn)?)
}

fn rust(tests: &[&str], full: bool, path: &str) -> Result<(), String> {
    let mut command = cargo();
    // A package by itself enables fewer features than the workspace, so that its dependencies would be built again.
    command.args(["test", "--quiet", "--workspace"]);
    for test in tests {
        command.args(["--test", test]);
    }
    command.args(["--", "--include-ignored"]);
    if !full {
        command.args(["--skip", LONG]);
    }
    succeed(command.env("RNN_NPU_PATH", path))
}

/// The folders in which an environment's runtime is: its packages and its programs.
fn search_path(environment: &Path) -> Result<String, String> {
    let library = environment.join("lib");
    let entries = std::fs::read_dir(&library).map_err(|e| format!("{}: {e}", library.display()))?;
    let packages = entries.filter_map(|entry| Some(entry.ok()?.path().join("site-packages")));
    let folders: Vec<PathBuf> =
        packages.filter(|path| path.is_dir()).chain([environment.join("bin")]).collect();
    let joined = env::join_paths(folders).map_err(|e| e.to_string())?;
    joined.into_string().map_err(|path| format!("{path:?} is not UTF-8"))
}
