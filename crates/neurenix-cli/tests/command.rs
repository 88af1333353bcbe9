//! The command as its users run it.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn neurenix(arguments: &[&str], folder: &Path) -> std::io::Result<Output> {
    Command::new(env!("CARGO_BIN_EXE_neurenix")).args(arguments).current_dir(folder).output()
}

fn json(output: &Output) -> Result<serde_json::Value, Box<dyn std::error::Error>> {
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn message(output: &Output) -> String {
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

    // The model is used on images of its own test set's kind.
    let digits = neurenix::data::digits()?;
    let images = digits.stored_inputs().take_rows(&[0, 1, 2, 3, 4])?;
    let file = folder.path().join("images.npy");
    neurenix::data::write_npy(&file, &images)?;
    let predictions =
        json(&neurenix(&["predict", "runs/digits-mlp", "images.npy", "--json"], folder.path())?)?;
    let truth = digits.stored_targets().to_vec::<i64>()?;
    let right = (0..5).filter(|&i| predictions[i]["class"].as_str() == Some(&truth[i].to_string())).count();
    assert!(right >= 4, "{predictions}");
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
        .args(["--out", "parts"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let checkpoint = folder.path().join("parts/checkpoint.safetensors");
    while !checkpoint.exists() && child.try_wait()?.is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status()?.success());
    let stopped = child.wait_with_output()?;
    assert_eq!(stopped.status.code(), Some(130), "{}", message(&stopped));
    assert!(message(&stopped).contains("--resume"), "{}", message(&stopped));

    let resumed = [&common[..], &["--json", "--resume", "parts"]].concat();
    let outcome = json(&neurenix(&resumed, folder.path())?)?;
    assert_eq!(outcome["test_loss"], whole["test_loss"]);
    let model = |run: &str| std::fs::read(folder.path().join(run).join("model.safetensors"));
    assert!(model("whole")? == model("parts")?, "the parameters are the same bit for bit");

    // Other settings are refused, and nothing is lost.
    let before = std::fs::read(&checkpoint)?;
    let other = ["train", "digits", "--epochs", "31", "--hidden", "24", "--resume", "parts"];
    let refused = neurenix(&other, folder.path())?;
    assert!(
        !refused.status.success() && message(&refused).contains("other settings"),
        "{}",
        message(&refused)
    );
    assert!(before == std::fs::read(&checkpoint)?);
    Ok(())
}

#[test]
fn tables_are_learned_and_predicted() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut table = String::from("x,y,side\n");
    for i in 0..200 {
        let (x, y) = (f64::from(i % 20) / 10.0 - 1.0, f64::from(i / 20) / 5.0 - 1.0);
        table.push_str(&format!("{x},{y},{}\n", if x + y > 0.0 { "above" } else { "below" }));
    }
    std::fs::write(folder.path().join("points.csv"), table)?;
    let arguments = ["train", "csv", "--path", "points.csv", "--label", "side", "--epochs", "60", "--json"];
    let outcome = json(&neurenix(&arguments, folder.path())?)?;
    assert!(outcome["test_accuracy"].as_f64().is_some_and(|a| a > 0.9), "{outcome}");
    std::fs::write(folder.path().join("new.csv"), "x,y\n0.9,0.9\n-0.9,-0.9\n")?;
    let predictions = json(&neurenix(&["predict", "runs/csv-mlp", "new.csv", "--json"], folder.path())?)?;
    assert_eq!((&predictions[0]["class"], &predictions[1]["class"]), (&"above".into(), &"below".into()));
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
    // Values are whole numbers, so the mean times the number of rows is one; float32 rounds the mean.
    for mean in config["normalization"]["mean"].as_array().ok_or("no means")? {
        let sum = mean.as_f64().ok_or("no number")? * rows;
        assert!((sum - sum.round()).abs() < 0.01, "{mean} is no mean of {rows} of the rows");
    }
    Ok(())
}

#[test]
fn patience_keeps_the_best_model() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut table = String::from("x,y,side\n");
    // Labels that cannot be learnt: the validation loss soon rises.
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
fn devices_and_explanations_are_readable_by_people_and_programs() -> Outcome {
    let folder = tempfile::tempdir()?;
    let devices = json(&neurenix(&["devices", "--json"], folder.path())?)?;
    assert_eq!(devices["devices"][0]["name"], "cpu");
    let missing: Vec<&str> =
        devices["missing"].as_array().ok_or("no list")?.iter().filter_map(|m| m["kind"].as_str()).collect();
    for kind in ["cuda", "rocm", "opencl", "metal", "vulkan", "dx12", "directml", "npu"] {
        assert!(missing.contains(&kind), "{kind} is neither found nor missing with a reason");
    }
    let steps = json(&neurenix(&["explain", "softmax", "--json"], folder.path())?)?;
    assert_eq!(steps.as_array().map(Vec::len), Some(1), "softmax is one kernel: {steps}");
    let completions = neurenix(&["completions", "bash"], folder.path())?;
    assert!(String::from_utf8_lossy(&completions.stdout).contains("neurenix"));
    Ok(())
}

#[test]
fn mistakes_get_plain_answers() -> Outcome {
    let folder = tempfile::tempdir()?;
    let cases: [(&[&str], &str); 8] = [
        (&["train", "digits", "--device", "cuda:7"], "no device \"cuda:7\""),
        (&["train", "mnist"], "--path"),
        (&["train", "mnist", "--path", "nowhere"], "nowhere"),
        (&["train", "digits", "--batch-size", "0"], "batch_size"),
        (&["train", "digits", "--dropout", "1.5"], "between 0 and 1"),
        (&["train", "digits", "--learning-rate=-1"], "learning rate"),
        (&["predict", "nowhere", "x.npy"], "nowhere"),
        (&["train", "digits", "--resume", "nowhere"], "nowhere"),
    ];
    for (arguments, expected) in cases {
        let output = neurenix(arguments, folder.path())?;
        let text = message(&output);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
    }
    // A learning rate that makes the loss infinite stops with the step and the tensor named.
    let wild = ["train", "digits", "--learning-rate", "1e30", "--optimizer", "sgd", "--schedule", "constant"];
    let output = neurenix(&wild, folder.path())?;
    assert!(!output.status.success() && message(&output).contains("step"), "{}", message(&output));
    Ok(())
}
