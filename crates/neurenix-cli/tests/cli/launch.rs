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
    assert!(refused(&["-n", "2", "-m", "module"]).contains("python -m MODULE"));
    assert!(refused(&["--restart", "3", "true"]).contains("--restart"));
}

#[test]
fn errors_that_would_occur_again_are_not_restarted() {
    let folder = tempfile::tempdir().unwrap();
    let own = env!("CARGO_BIN_EXE_neurenix");
    let told = |arguments: &[&str]| {
        let mut launch = neurenix();
        launch.args(["launch", "--nproc-per-node", "2", "--restarts", "2"]).args(arguments);
        let output = launch.current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!told.contains("starting again") && told.contains("would occur"), "{told}");
        told
    };
    assert!(told(&[own, "train", "digits"]).contains("error: --out: "));
    assert!(told(&[own, "train", "digits", "--no-such-option"]).contains("--no-such-option"));
    assert!(told(&[own, "train", "digits", "--device", "none:7", "--out", "new"]).contains("none:7"));
    assert!(!folder.path().join("new").exists());
    fs::create_dir(folder.path().join("full")).unwrap();
    fs::write(folder.path().join("full/other"), "").unwrap();
    assert!(told(&[own, "train", "digits", "--device", "cpu", "--out", "full"]).contains("holds other"));
    assert!(told(&["no such program"]).contains("no such program"));
}

#[cfg(unix)]
#[test]
fn lines_of_ranks_are_whole_and_begin_with_the_rank() {
    let pieces =
        "for i in 1 2 3; do printf a; sleep 0.01; printf b; sleep 0.01; echo c; done; printf end >&2";
    let output = neurenix().args(["launch", "-n", "2", "--tag", "sh", "-c", pieces]).output().unwrap();
    assert!(output.status.success());
    let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] abc", "[0] abc", "[0] abc", "[1] abc", "[1] abc", "[1] abc"]);
    let mut errors: Vec<_> = std::str::from_utf8(&output.stderr).unwrap().lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] end", "[1] end"]);
}

/// Starts a long run of two processes, and waits for its first checkpoint.
#[cfg(target_os = "linux")]
fn long_run(folder: &Path) -> std::process::Child {
    let mut train = neurenix();
    train.args(training(folder, "100000")).args(["--devices", "2"]);
    let child =
        train.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
    while !folder.join("checkpoint.safetensors").exists() {
        thread::sleep(Duration::from_millis(2));
    }
    child
}

#[cfg(target_os = "linux")]
fn send(signal: &str, process: &str) {
    assert!(Command::new("kill").args([signal, process]).status().unwrap().success());
}

#[cfg(target_os = "linux")]
#[test]
fn signals_end_two_processes_as_one() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        let child = long_run(&folder);
        send(signal, &child.id().to_string());
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains("train --resume") && told.contains("--devices 2"), "{told}");
        assert!((0..2).all(|rank| rank_of(&folder, rank).is_none()));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn processes_end_with_a_launcher_that_is_killed() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("run");
    let mut child = long_run(&folder);
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = std::time::Instant::now();
    while (0..2).any(|rank| rank_of(&folder, rank).is_some()) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program that ignores the first signal is killed by the second, and so is what it has started.
#[cfg(target_os = "linux")]
#[test]
fn a_second_signal_kills() {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let program = format!("trap '' TERM; touch {}; while true; do sleep 0.05; done", ready.display());
    let mut child = neurenix().args(["launch", "sh", "-c", &program]).spawn().unwrap();
    while !ready.exists() {
        thread::sleep(Duration::from_millis(2));
    }
    send("-TERM", &child.id().to_string());
    thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    send("-TERM", &child.id().to_string());
    assert_eq!(child.wait().unwrap().code(), Some(143));
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
        launch.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
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
    assert!(std::str::from_utf8(&output.stdout).unwrap().contains("continuing after epoch "));
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
