//! Tests of the command as users run it.

use std::{
    path::Path,
    process::{Command, Output},
};

pub(super) type Outcome = Result<(), Box<dyn std::error::Error>>;

pub(super) fn neurenix(arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_neurenix")).args(arguments).current_dir(folder).output()
}

pub(super) fn json(output: &Output) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub(super) fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_default_settings_learn_the_digits() -> Outcome {
    let folder = tempfile::tempdir()?;
    let outcome = json(&neurenix(&["train", "digits", "--json"], folder.path())?)?;
    let accuracy = outcome["test_accuracy"].as_f64().ok_or("no accuracy")?;
    assert!(accuracy >= 0.97, "accuracy {accuracy}");
    let run = folder.path().join("runs/digits-mlp");
    for name in
        ["config.json", "metrics.csv", "metrics.json", "model.safetensors", "curves.png", "report.html"]
    {
        assert!(run.join(name).metadata()?.len() > 0, "{name}");
    }
    let report = std::fs::read_to_string(run.join("report.html"))?;
    assert!(
        report.contains("Confusion matrix") && report.contains("dot (64, 64)"),
        "the report names what ran"
    );
    assert!(report.contains("<dt>Spilling</dt><dd>off</dd>"), "the report says so");
    assert!(outcome["device_nature"].is_string() && report.contains("<h1>digits with mlp on "), "{outcome}");

    // Predict images of the same kind as the test set.
    let digits = neurenix::data::digits()?;
    let images = digits.stored_inputs().take_rows(&[0, 1, 2, 3, 4])?;
    let file = folder.path().join("images.npy");
    neurenix::data::write_npy(&file, &images)?;
    let predictions =
        json(&neurenix(&["predict", "runs/digits-mlp", "images.npy", "--json"], folder.path())?)?;
    let truth = digits.stored_targets().to_vec::<i64>()?;
    let right = (0..5).filter(|&i| predictions[i]["class"].as_str() == Some(&truth[i].to_string())).count();
    assert!(right >= 4, "{predictions}");

    // The same network from an ONNX file gives the same classes.
    neurenix(&["export", "runs/digits-mlp", "digits.onnx"], folder.path())?;
    neurenix::register_cpu();
    let device = neurenix::phynexus::Device::find("cpu")?;
    let model = neurenix::onnx::Model::load(&folder.path().join("digits.onnx"), device)?;
    let rows = images.cast(neurenix::phynexus::DType::F32);
    let x = neurenix::phynexus::Tensor::from_slice(&rows.to_vec::<f32>()?, rows.shape(), device)?;
    let given = std::collections::HashMap::from([("input".to_owned(), x.into())]);
    let probabilities = model.run(given, &neurenix::phynexus::tensor::Generator::new(0))?;
    let classes = probabilities[0].tensor()?.argmax(Some(-1), false)?.to_vec::<i64>()?;
    for (row, class) in classes.iter().enumerate() {
        assert_eq!(predictions[row]["class"].as_str(), Some(class.to_string().as_str()), "row {row}");
    }

    // Predict the file that the documentation names.
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../neurenix/data/digits-images.idx3-ubyte.gz");
    let predictions = json(&neurenix(&["predict", "runs/digits-mlp", file, "--json"], folder.path())?)?;
    let classes = predictions.as_array().ok_or("no list")?.iter().map(|p| p["class"].as_str());
    let right = classes.zip(&truth).filter(|(class, truth)| *class == Some(&truth.to_string())).count();
    assert!(right > 1760, "{right} of {}", truth.len());
    Ok(())
}

#[test]
fn every_kind_of_network_trains_for_an_epoch() -> Outcome {
    let folder = tempfile::tempdir()?;
    for model in ["mlp", "cnn", "lstm", "transformer"] {
        let arguments = [
            "train",
            "digits",
            "--model",
            model,
            "--epochs",
            "1",
            "--hidden",
            "16",
            "--json",
            "--tensorboard",
        ];
        let outcome = json(&neurenix(&arguments, folder.path())?)?;
        assert!(outcome["test_loss"].as_f64().is_some_and(f64::is_finite), "{model}: {outcome}");
        let run = folder.path().join(format!("runs/digits-{model}"));
        let events = std::fs::read_dir(&run)?
            .filter_map(Result::ok)
            .filter(|e| e.file_name().to_string_lossy().contains("tfevents"));
        assert_eq!(events.count(), 1, "{model}");
    }
    Ok(())
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_goes_on_as_if_nothing_had_happened() -> Outcome {
    let folder = tempfile::tempdir()?;
    let common = ["train", "digits", "--epochs", "30", "--hidden", "24"];
    let whole = json(&neurenix(&[&common[..], &["--json", "--out", "whole"]].concat(), folder.path())?)?;

    let mut child = Command::new(env!("CARGO_BIN_EXE_neurenix"))
        .args(common)
        .args(["--out", "parts", "--profile=figures"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let checkpoint = folder.path().join("parts/checkpoint.safetensors");
    while !checkpoint.exists() && child.try_wait()?.is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status()?.success());
    let stopped = child.wait_with_output()?;
    assert_eq!(stopped.status.code(), Some(130), "{}", message(&stopped));
    assert!(message(&stopped).contains("--resume"), "{}", message(&stopped));
    for name in ["figures/profile.txt", "figures/trace.json"] {
        assert!(folder.path().join(name).metadata()?.len() > 0, "{name} of the interrupted run");
    }

    // Other settings are refused without losing anything.
    let before = std::fs::read(&checkpoint)?;
    let other = ["train", "digits", "--epochs", "31", "--hidden", "24", "--resume", "parts"];
    let refused = neurenix(&other, folder.path())?;
    let text = message(&refused);
    assert!(!refused.status.success() && text.contains("(epochs: 30 there, 31 here)"), "{text}");
    assert!(before == std::fs::read(&checkpoint)?);

    // The settings come from the folder, and a killed process's leftovers are removed.
    let orphan = folder.path().join("parts/.checkpoint.safetensors.1-0.tmp");
    std::fs::write(&orphan, "half")?;
    let outcome = json(&neurenix(&["train", "--json", "--resume", "parts"], folder.path())?)?;
    assert!(!orphan.exists());
    assert_eq!(outcome["test_loss"], whole["test_loss"]);
    let model = |run: &str| std::fs::read(folder.path().join(run).join("model.safetensors"));
    assert!(model("whole")? == model("parts")?, "the parameters are the same bit for bit");

    // The report covers the whole run.
    let metrics: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("parts/metrics.json"))?)?;
    let epochs = metrics["epochs"].as_array().ok_or("no epochs")?;
    assert_eq!(epochs.len(), 30);
    let seconds: f64 = epochs.iter().filter_map(|epoch| epoch["seconds"].as_f64()).sum();
    assert!((outcome["seconds"].as_f64().ok_or("no seconds")? - seconds).abs() < 1e-9);
    let page = folder.path().join("parts/report.html");
    let report = std::fs::read_to_string(&page)?;
    assert!(report.contains(", in which the run was resumed."));
    let again = neurenix(&["train", "--resume", "parts"], folder.path())?;
    assert!(
        !again.status.success() && message(&again).contains("is already finished"),
        "{}",
        message(&again)
    );
    assert_eq!(report, std::fs::read_to_string(&page)?);
    Ok(())
}

#[test]
fn normalization_is_measured_on_the_training_rows_alone() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut table = String::from("x,y,z,side\n");
    for i in 0..200 {
        table.push_str(&format!("{i},{},{},{}\n", i * 7 % 200, i * 13 % 200, i % 2));
    }
    std::fs::write(folder.path().join("numbers.csv"), table)?;
    let arguments = ["train", "csv", "--path", "numbers.csv", "--epochs", "1", "--out", "run"];
    let output = neurenix(&arguments, folder.path())?;
    assert!(output.status.success(), "{}", message(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (before, _) = text.split_once(" training, ").ok_or("no counts")?;
    let rows: f64 = before.rsplit(char::is_whitespace).next().ok_or("no count")?.parse()?;
    let config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("run/config.json"))?)?;
    // Values are integers, so the mean times the number of rows is an integer; float32 rounds the mean.
    for mean in config["normalization"]["mean"].as_array().ok_or("no means")? {
        let sum = mean.as_f64().ok_or("no number")? * rows;
        assert!((sum - sum.round()).abs() < 0.01, "{mean} is not the mean of {rows} rows");
    }
    Ok(())
}

#[test]
fn patience_keeps_the_best_model() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut table = String::from("x,y,side\n");
    // Random labels: the validation loss soon rises.
    for i in 0..200u32 {
        let noise = i.wrapping_mul(2_654_435_761) >> 16;
        table.push_str(&format!("{},{},{}\n", i % 20, i / 20, noise % 2));
    }
    std::fs::write(folder.path().join("noise.csv"), table)?;
    let arguments = [
        "train",
        "csv",
        "--path",
        "noise.csv",
        "--epochs",
        "200",
        "--patience",
        "3",
        "--learning-rate",
        "0.03",
        "--json",
        "--out",
        "run",
    ];
    let outcome = json(&neurenix(&arguments, folder.path())?)?;
    assert_eq!(outcome["ending"], "stopped early");
    let load = |name: &str| neurenix::io::safetensors::load(&folder.path().join("run").join(name));
    let (model, checkpoint) = (load("model.safetensors")?.arrays, load("checkpoint.safetensors")?.arrays);
    assert!(model.iter().all(|(name, array)| checkpoint[&format!("best.{name}")] == *array));
    assert!(model.iter().any(|(name, array)| checkpoint[&format!("model.{name}")] != *array));
    Ok(())
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() -> Outcome {
    let folder = tempfile::tempdir()?;
    let cases: [&[&str]; 5] = [
        &["explain", "mlp", "--kernels"],
        &["devices", "--json"],
        &["completions", "bash"],
        &["verify", "--filter", "add"],
        &["train", "digits", "--epochs", "2"],
    ];
    for arguments in cases {
        // This pipe has no reader from the start.
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_neurenix"))
            .args(arguments)
            .current_dir(folder.path())
            // Mesa's Vulkan loader looks for a display there and prints a warning if the variable is unset.
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdout(writer)
            .output()?;
        assert_eq!((output.status.code(), message(&output).as_str()), (Some(141), ""), "{arguments:?}");
    }
    Ok(())
}

#[test]
fn a_run_that_cannot_begin_leaves_no_folder_in_the_way() -> Outcome {
    let folder = tempfile::tempdir()?;
    let wrong: [&[&str]; 4] = [
        &["--batch-size", "0"],
        &["--dropout", "1.5"],
        &["--clip-norm", "0"],
        &["--optimizer", "sgd", "--learning-rate", "1e30", "--schedule", "constant"],
    ];
    for options in wrong {
        let arguments = [&["train", "digits", "--out", "run"], options].concat();
        assert!(!neurenix(&arguments, folder.path())?.status.success(), "{options:?}");
        assert!(!folder.path().join("run").exists(), "{options:?}");
    }
    // A folder without a checkpoint, as left by a killed process, may be reused.
    std::fs::create_dir(folder.path().join("run"))?;
    std::fs::write(folder.path().join("run/run.lock"), "4242\n")?;
    std::fs::write(folder.path().join("run/config.json"), "{}")?;
    let arguments = ["train", "digits", "--epochs", "1", "--hidden", "8", "--out", "run"];
    let output = neurenix(&arguments, folder.path())?;
    assert!(output.status.success(), "{}", message(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("writing to run\n"));
    let again = neurenix(&arguments, folder.path())?;
    assert!(message(&again).contains("already holds a run"), "{}", message(&again));
    Ok(())
}

#[test]
fn a_profile_is_a_table_a_timeline_and_a_section_of_the_report() -> Outcome {
    let folder = tempfile::tempdir()?;
    let arguments = ["train", "digits", "--epochs", "1", "--hidden", "8", "--out", "run", "--profile"];
    let output = neurenix(&arguments, folder.path())?;
    assert!(output.status.success(), "{}", message(&output));
    let run = folder.path().join("run");
    let table = std::fs::read_to_string(run.join("profile.txt"))?;
    for part in ["dot (64, 64)", "GFLOP/s", "host: planning", "host: compiling", "as measured by a copy"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let trace: serde_json::Value = serde_json::from_slice(&std::fs::read(run.join("trace.json"))?)?;
    let events = trace["traceEvents"].as_array().ok_or("no events")?;
    let has = |kind: &str, name: &str| events.iter().any(|e| e["ph"] == kind && e["name"] == name);
    assert!(has("X", "planning") && has("X", "recording") && has("C", "memory"));
    let report = std::fs::read_to_string(run.join("report.html"))?;
    assert!(report.contains("<section id=\"profile\"") && report.contains("Timeline of kernels"));

    // A folder other than the run's; without the option, no profile is written.
    let elsewhere = ["--profile=figures", "--out", "other"];
    let output = neurenix(&[&arguments[..6], &elsewhere].concat(), folder.path())?;
    assert!(output.status.success(), "{}", message(&output));
    assert!(
        folder.path().join("figures/trace.json").exists() && !folder.path().join("other/trace.json").exists()
    );
    Ok(())
}

#[test]
fn accumulated_batches_are_as_one_large_batch() -> Outcome {
    let folder = tempfile::tempdir()?;
    let common = ["train", "digits", "--epochs", "2", "--hidden", "16", "--dropout", "0", "--json"];
    let run = |options: &[&str]| json(&neurenix(&[&common[..], options].concat(), folder.path())?);
    let large = run(&["--batch-size", "64"])?;
    let small = run(&["--batch-size", "16", "--accumulate", "4"])?;
    let loss = |outcome: &serde_json::Value| outcome["test_loss"].as_f64().ok_or("no loss");
    let (large, small) = (loss(&large)?, loss(&small)?);
    assert!((large - small).abs() < 1e-3 * large, "{large} and {small}");
    Ok(())
}

#[test]
fn tables_may_have_another_delimiter() -> Outcome {
    let folder = tempfile::tempdir()?;
    let rows: String = (0..60).map(|i| format!("{};{};{}\n", i % 7, i % 5, i % 2)).collect();
    std::fs::write(folder.path().join("rows.csv"), format!("a;b;side\n{rows}"))?;
    let train = ["train", "csv", "--path", "rows.csv", "--epochs", "1", "--out", "run"];
    let refused = neurenix(&train, folder.path())?;
    assert!(message(&refused).contains("try another delimiter"), "{}", message(&refused));
    let trained = neurenix(&[&train[..], &["--delimiter", ";"]].concat(), folder.path())?;
    assert!(trained.status.success(), "{}", message(&trained));
    std::fs::write(folder.path().join("new.csv"), "a;b\n1;2\n")?;
    let predicted = json(&neurenix(&["predict", "run", "new.csv", "--json"], folder.path())?)?;
    assert_eq!(predicted.as_array().map(Vec::len), Some(1), "{predicted}");
    Ok(())
}

#[test]
fn mistakes_get_plain_answers() -> Outcome {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("one.csv"), "x,y\n1,p\n2,p\n3,p\n")?;
    std::fs::write(folder.path().join("few.csv"), "x,y\n1,p\n2,q\n")?;
    std::fs::write(folder.path().join("text.csv"), "x,y\n1,2\n2,q\n3,4\n")?;
    let cases: [(&[&str], &str); 33] = [
        (&["train"], "<DATA>"),
        (&["train", "digits", "--device", "cuda:7"], "no device \"cuda:7\""),
        (&["train", "digits", "--device", "CPU"], "did you mean \"cpu\"?"),
        (&["train", "mnist"], "--path"),
        (&["train", "mnist", "--path", "nowhere"], "nowhere"),
        (&["train", "digits", "--batch-size", "0"], "--batch-size"),
        (&["train", "digits", "--epochs", "0"], "--epochs"),
        (&["train", "digits", "--dropout", "1.5"], "--dropout: it must be at least 0 and below 1"),
        (&["train", "digits", "--dropout", "1"], "--dropout: it must be at least 0 and below 1"),
        (&["train", "digits", "--patience", "0"], "expected a whole number of at least 1"),
        (&["train", "digits", "--epochs", "-1"], "expected a whole number of at least 1"),
        (&["train", "digits", "--out", "one.csv"], "--out: one.csv is a file"),
        (&["bench", "--seconds", "-1"], "expected a finite number of at least 0"),
        (&["train", "digits", "--learning-rate", "-1"], "learning rate"),
        (&["train", "digits", "--device", "cpu", "--spill"], "--spill: cpu has no memory of its own"),
        (&["train", "digits", "--accumulate", "0"], "--accumulate"),
        (&["train", "digits", "--delimiter", ";"], "--delimiter"),
        (&["train", "csv", "--path", "few.csv", "--delimiter", "ab"], "or tab"),
        (&["train", "digits", "--path", "x"], "--path: the digits are bundled"),
        (&["train", "digits", "--label", "3"], "--label"),
        (&["train", "digits", "--regression"], "--regression"),
        (&["train", "digits", "--model", "lstm", "--hidden", "8,4"], "takes one size"),
        (&["train", "csv", "--path", "one.csv"], "same class, p"),
        (&["train", "csv", "--path", "few.csv"], "at least 3 are needed"),
        (&["train", "csv", "--path", "few.csv", "--label", "9"], "no column 9: the file has 2"),
        (&["train", "csv", "--path", "text.csv", "--regression"], "a regression predicts numbers"),
        (&["verify", "--filter", "nosuch"], "available:"),
        (&["verify", "--dtype", "complex64"], "unknown dtype; expected one of bool, uint8"),
        (
            &["verify", "--filter", "exp2", "--dtype", "i32"],
            "no operation whose name contains \"exp2\" has a case of int32",
        ),
        (&["verify", "--consistency", "0"], "0 is not in 1..=10000000"),
        (&["bench", "--filter", "nosuch"], "available: matmul"),
        (&["predict", "nowhere", "x.npy"], "nowhere"),
        (&["train", "--resume", "nowhere"], "nowhere"),
    ];
    for (arguments, expected) in cases {
        let output = neurenix(arguments, folder.path())?;
        let text = message(&output);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
    }
    // A learning rate that makes the loss infinite: training stops and names the step and the tensor.
    let wild = ["train", "digits", "--learning-rate", "1e30", "--optimizer", "sgd", "--schedule", "constant"];
    let output = neurenix(&wild, folder.path())?;
    let text = message(&output);
    assert!(!output.status.success() && text.contains("step") && !text.contains("checkpoint"), "{text}");
    Ok(())
}
