//! Training by several processes, and processes that end.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use serde_json::Value;

fn neurenix() -> Command {
    Command::new(env!("CARGO_BIN_EXE_neurenix"))
}

/// What a command prints that must succeed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The training losses of a run's epochs, and the validation losses.
fn losses(folder: &Path) -> Vec<f64> {
    let text = fs::read_to_string(folder.join("metrics.json")).unwrap();
    let metrics: Value = serde_json::from_str(&text).unwrap();
    let epochs = metrics["epochs"].as_array().expect("epochs");
    let of = |epoch: &Value| ["train_loss", "validation_loss"].map(|name| epoch[name].as_f64().unwrap());
    epochs.iter().flat_map(of).collect()
}

/// The arguments of a short training run into this folder. Dropout would drop other inputs if a batch is divided.
fn training(folder: &Path, epochs: &str) -> Vec<String> {
    let words = ["train", "digits", "--device", "cpu", "--dropout", "0", "--epochs", epochs, "--out"];
    words.into_iter().chain(folder.to_str()).map(str::to_owned).collect()
}

#[test]
fn two_processes_train_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two, three) =
        (folder.path().join("one"), folder.path().join("two"), folder.path().join("three"));
    run(neurenix().args(training(&one, "2")));
    let output = run(neurenix().args(training(&two, "2")).args(["--devices", "2"]));
    assert_eq!(output.matches("test loss").count(), 1, "{output}");
    // 64 rows are not divisible by 3.
    run(neurenix().args(training(&three, "2")).args(["--devices", "3"]));
    let expected = losses(&one);
    for other in [two, three] {
        let found = losses(&other);
        let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(near && found.len() == 4, "{found:?} is not {expected:?}");
        assert!(other.join("report.html").exists());
    }
}

/// The checks install Open MPI; without it there is nothing to test.
#[test]
fn processes_of_mpirun_train_as_one() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("skipped: there is no mpirun");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    run(neurenix().args(training(&one, "2")));
    let mut mpirun = Command::new("mpirun");
    // Open MPI refuses to run as root, and more processes than cores, unless it is told to.
    mpirun.envs(["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"].map(|name| (name, "1")));
    mpirun.env("OMPI_MCA_rmaps_base_oversubscribe", "1").args(["-n", "2", env!("CARGO_BIN_EXE_neurenix")]);
    run(mpirun.args(training(&two, "2")));
    let (found, expected) = (losses(&two), losses(&one));
    let near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
    assert!(near && found.len() == 4, "{found:?} is not {expected:?}");
}

#[test]
fn arguments_that_contradict_are_refused() {
    let refused = |arguments: &[&str]| {
        let output = neurenix().arg("launch").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--node-rank", "1", "true"]).contains("--node-rank"));
    assert!(refused(&["--nodes", "2", "true"]).contains("--master-addr"));
    assert!(refused(&["--nodes", "2", "--master-addr", "host", "true"]).contains("--master-port"));
    assert!(refused(&["no such program"]).contains("no such program"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_killed_process_costs_the_steps_since_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    run(neurenix().args(training(&whole, "5")).args(["--devices", "2"]));
    let program = env!("CARGO_BIN_EXE_neurenix");
    let mut launch = neurenix();
    launch.args(["launch", "--processes", "2", "--restarts", "1", program]).args(training(&killed, "5"));
    let child =
        launch.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    while !killed.join("checkpoint.safetensors").exists() {
        thread::sleep(Duration::from_millis(2));
    }
    let rank = rank_of(&killed, 1).expect("rank 1 runs");
    assert!(Command::new("kill").args(["-9", &rank]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{told}");
    // The other rank names the one that ended, and the launcher says what it does.
    assert!(told.contains("rank 1") && told.contains("has ended"), "{told}");
    assert!(told.contains("starting again, restart 1 of 1"), "{told}");
    assert_eq!(losses(&killed), losses(&whole));
}

/// The process of this rank whose arguments name the folder.
#[cfg(target_os = "linux")]
fn rank_of(folder: &Path, rank: usize) -> Option<String> {
    let has = |file: std::path::PathBuf, word: &str| {
        let text = fs::read(file).unwrap_or_default();
        text.split(|&byte| byte == 0).any(|part| part == word.as_bytes())
    };
    let processes = fs::read_dir("/proc").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut found = processes.filter(|process| {
        has(process.join("cmdline"), folder.to_str().unwrap_or_default())
            && has(process.join("environ"), &format!("RANK={rank}"))
    });
    found.next()?.file_name()?.to_str().map(str::to_owned)
}
