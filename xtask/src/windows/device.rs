//! Tests `directml:0` under Wine: the crate's tests, the conformance suite, and training.

use std::{fs, path::Path};

use serde_json::Value;

use super::{TARGET, Windows, output};
use crate::{devices::turn, succeed};

/// One case of so many is run.
const SHARE: usize = 16;

/// What fails under Wine: the operation (all if it is empty), part of the case and the message, and the reason.
const KNOWN: [(&str, &str, &str); 1] = [
    (
        "",
        "making a pipeline: Call failed. (0x80004005)",
        "Wine's vkd3d has no group-shared memory of 64-bit numbers, and only the kernel for operands at other addresses \
         needs it",
    ),
];

pub(super) fn check(windows: &Windows) -> Result<(), String> {
    succeed(windows.cargo("test").args(["--package", "phynexus-directml", "--quiet"]))?;
    succeed(windows.cargo("build").args(["--package", "neurenix-cli", "--quiet"]))?;
    let program = windows.folder.join("build").join(TARGET).join("debug/neurenix.exe");
    let devices = output(windows.wine(&program).arg("devices"))?;
    print!("{devices}");
    if !devices.contains("directml:0") {
        return Err("the command does not list directml:0".to_owned());
    }
    suite(windows, &program)?;
    ["mlp", "cnn"].into_iter().try_for_each(|model| train(windows, &program, model))
}

/// Runs a part of the suite. Other failures than the known ones are errors.
fn suite(windows: &Windows, program: &Path) -> Result<(), String> {
    let part = format!("{}/{SHARE}", turn(SHARE)?);
    println!("one case in {SHARE} of the suite: part {part}");
    let mut verify = windows.wine(program);
    verify.args(["verify", "--device", "directml:0", "--jobs", "1", "--json", "--part", &part]);
    // It ends with an error for the known failures too.
    let output = verify.output().map_err(|e| format!("the suite did not start: {e}"))?;
    let report: Value = serde_json::from_slice(&output.stdout).map_err(|e| {
        format!("the suite printed no report: {e}\n{}", String::from_utf8_lossy(&output.stderr))
    })?;
    let list = |name: &str| report[name].as_array().cloned().unwrap_or_default();
    let count = |name: &str| list("rows").iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    println!("{} cases passed, {} on the CPU", count("passed"), count("elsewhere"));
    let mut unknown = Vec::new();
    for failure in list("failures") {
        let words =
            ["operation", "dtype", "case", "message"].map(|name| failure[name].as_str().unwrap_or_default());
        let text = words.join(" ");
        let is_known = |known: &&(&str, &str, &str)| {
            (known.0.is_empty() || known.0 == words[0]) && text.contains(known.1)
        };
        match KNOWN.iter().find(is_known) {
            Some((_, _, reason)) => println!("known ({reason}): {text}"),
            None => unknown.push(text),
        }
    }
    if count("passed") == 0 {
        return Err("no case of the suite passed".to_owned());
    }
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("cases failed on directml:0:\n{}", unknown.join("\n"))),
    }
}

/// Trains on the CPU and on the device. Both must reach the same accuracy, but for three of the 360 test samples.
fn train(windows: &Windows, program: &Path, model: &str) -> Result<(), String> {
    const FEW: f64 = 100.0 * 3.0 / 360.0;
    let accuracy = |device: &str| -> Result<f64, String> {
        let folder = windows.folder.join(format!("runs/{model}-{}", device.replace(':', "-")));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let mut train = windows.wine(program);
        train.args(["train", "digits", "--epochs", "8", "--model", model, "--device", device]);
        let text = output(train.arg("--out").arg(folder))?;
        // "test loss 0.1234, accuracy 97.50 %"
        let line = text.lines().find(|line| line.starts_with("test loss")).unwrap_or_default();
        println!("{model} on {device}: {line}");
        let number = line.rsplit_once("accuracy ").and_then(|(_, number)| number.split(' ').next());
        number.and_then(|number| number.parse().ok()).ok_or(format!("{train:?} printed no accuracy:\n{text}"))
    };
    let (cpu, device) = (accuracy("cpu")?, accuracy("directml:0")?);
    match (cpu - device).abs() <= FEW && cpu > 90.0 {
        true => Ok(()),
        false => Err(format!("{model}: accuracy {device} % on directml:0, {cpu} % on the CPU")),
    }
}
