//! Run folders: what is refused, what is kept, and that no user file is lost.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A run that takes a second.
const SHORT: [&str; 6] = ["train", "digits", "--epochs", "1", "--hidden", "8"];
/// Options that make it fail in its first epoch.
const WILD: [&str; 6] = ["--optimizer", "sgd", "--learning-rate", "1e30", "--schedule", "constant"];

fn neurenix(arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_neurenix")).args(arguments).current_dir(folder).output()
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = entries.collect::<std::io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Simulates an interrupted run: a checkpoint but no report.
fn interrupted_run(folder: &Path) -> Outcome {
    let output = neurenix(&[&SHORT[..], &["--out", "run"]].concat(), folder)?;
    assert!(output.status.success(), "{}", message(&output));
    let run = folder.join("run");
    assert!(!run.join("run.lock").exists(), "a finished run has no lock");
    fs::remove_file(run.join("report.html"))?;
    fs::write(run.join("run.lock"), "4242\n")?;
    Ok(())
}

#[test]
fn a_folder_with_files_of_the_users_is_refused_and_stays() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mine = folder.path().join("mine");
    fs::create_dir(&mine)?;
    for name in ["config.json", "metrics.csv", "report.html"] {
        fs::write(mine.join(name), "mine")?;
        for options in [&[][..], &WILD] {
            let output = neurenix(&[&SHORT[..], &["--out", "mine"], options].concat(), folder.path())?;
            let text = message(&output);
            let refused = text.contains(&format!("mine holds {name}, which no run wrote"));
            assert!(output.status.code() == Some(1) && refused, "{text}");
            assert_eq!(
                (names(&mine)?, fs::read(mine.join(name))?),
                (vec![name.to_owned()], b"mine".to_vec())
            );
        }
        fs::remove_file(mine.join(name))?;
    }
    // The lock of a killed run covers that run's files, but no others.
    fs::write(mine.join("run.lock"), "4242\n")?;
    fs::write(mine.join("notes.txt"), "mine")?;
    let output = neurenix(&[&SHORT[..], &["--out", "mine"]].concat(), folder.path())?;
    assert!(message(&output).contains("mine holds notes.txt"), "{}", message(&output));
    // An empty folder is accepted, and stays if the run fails because it existed before.
    fs::remove_file(mine.join("notes.txt"))?;
    fs::remove_file(mine.join("run.lock"))?;
    let output = neurenix(&[&SHORT[..], &["--out", "mine"], &WILD].concat(), folder.path())?;
    assert!(!output.status.success() && names(&mine)?.is_empty(), "{}", message(&output));
    Ok(())
}

#[test]
fn a_run_that_lives_is_left_alone() -> Outcome {
    let folder = tempfile::tempdir()?;
    interrupted_run(folder.path())?;
    let run = folder.path().join("run");
    let unfinished = run.join(".checkpoint.safetensors.4242-0.tmp");
    fs::write(&unfinished, "half")?;
    // This test plays the other run.
    let lock = fs::File::open(run.join("run.lock"))?;
    lock.lock()?;
    let before = names(&run)?;
    let resumed = neurenix(&["train", "--resume", "run"], folder.path())?;
    let text = message(&resumed);
    assert!(!resumed.status.success() && text.contains("--resume: the run in run is still active"), "{text}");
    assert!(cfg!(windows) || text.contains("(process 4242)"), "{text}");
    assert_eq!(names(&run)?, before);
    // Nor can another run begin there before the first checkpoint.
    for name in ["checkpoint.safetensors", "model.safetensors"] {
        fs::rename(run.join(name), folder.path().join(name))?;
    }
    let begun = neurenix(&[&SHORT[..], &["--out", "run"]].concat(), folder.path())?;
    assert!(message(&begun).contains("--out: the run in run is still active"), "{}", message(&begun));
    for name in ["checkpoint.safetensors", "model.safetensors"] {
        fs::rename(folder.path().join(name), run.join(name))?;
    }
    lock.unlock()?;
    let resumed = neurenix(&["train", "--resume", "run"], folder.path())?;
    assert!(resumed.status.success(), "{}", message(&resumed));
    assert!(!unfinished.exists() && !run.join("run.lock").exists());
    Ok(())
}

#[cfg(unix)]
#[test]
fn links_in_a_run_folder_are_not_followed() -> Outcome {
    let folder = tempfile::tempdir()?;
    interrupted_run(folder.path())?;
    let precious = folder.path().join("precious");
    fs::write(&precious, "mine")?;
    let run = folder.path().join("run");
    for name in ["metrics.csv", "trace.json", "run.lock", "config.json"] {
        let (place, aside) = (run.join(name), folder.path().join("aside"));
        let was_there = fs::rename(&place, &aside).is_ok();
        let target = if name == "config.json" { &aside } else { &precious };
        std::os::unix::fs::symlink(target, &place)?;
        let output = neurenix(&["train", "--resume", "run"], folder.path())?;
        let text = message(&output);
        assert!(
            !output.status.success() && text.contains(&format!("{name} in run is a symbolic link")),
            "{text}"
        );
        assert_eq!(fs::read(&precious)?, b"mine");
        fs::remove_file(&place)?;
        if was_there {
            fs::rename(&aside, &place)?;
        }
    }
    let output = neurenix(&["train", "--resume", "run"], folder.path())?;
    assert!(output.status.success(), "{}", message(&output));
    Ok(())
}

/// Python programs call the command this way.
#[test]
fn a_process_trains_twice() -> Outcome {
    let folder = tempfile::tempdir()?;
    for name in ["first", "second"] {
        let out = folder.path().join(name);
        let arguments = ["neurenix"].iter().chain(&SHORT).chain(&["--json", "--out"]).map(Into::into);
        assert_eq!(neurenix_cli::commands::run(&[], arguments.chain([out.clone().into_os_string()])), 0);
        assert!(out.join("report.html").exists());
    }
    assert!(!neurenix_cli::commands::stop_training(neurenix_cli::commands::INTERRUPT), "no run is active");
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_limit_on_the_size_of_files_is_an_error() -> Outcome {
    let folder = tempfile::tempdir()?;
    // In blocks of 512 or 1024 bytes: the configuration fits, the checkpoint does not.
    let script = r#"ulimit -f 16; exec "$0" train digits --epochs 1 --hidden 256 --device cpu --out run"#;
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_neurenix")])
        .current_dir(folder.path())
        .output()?;
    let text = message(&output);
    assert_eq!(output.status.code(), Some(1), "{}: {text}", output.status);
    assert!(text.contains("checkpoint.safetensors") && text.contains("ulimit -f"), "{text}");
    assert!(names(folder.path())?.is_empty(), "the run removed its files");
    Ok(())
}
