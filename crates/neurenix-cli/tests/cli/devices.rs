//! What the command says of devices, and how it uses them.

use std::process::Command;

use super::command::{Outcome, json, message, neurenix};

#[test]
fn devices_and_explanations_are_readable_by_people_and_programs() -> Outcome {
    let folder = tempfile::tempdir()?;
    let devices = json(&neurenix(&["devices", "--json"], folder.path())?)?;
    assert_eq!(devices["devices"][0]["name"], "cpu");
    let missing: Vec<&str> =
        devices["missing"].as_array().ok_or("no list")?.iter().filter_map(|m| m["kind"].as_str()).collect();
    let names = devices["devices"].as_array().ok_or("no list")?.iter().filter_map(|d| d["name"].as_str());
    let found: Vec<&str> = names.filter_map(|name| name.split(':').next()).collect();
    for kind in ["cuda", "hip", "opencl", "metal", "vulkan", "dx12", "directml", "npu"] {
        let known = missing.contains(&kind) || found.contains(&kind);
        assert!(known, "{kind} is neither found nor missing with a reason");
    }
    let steps = json(&neurenix(&["explain", "softmax", "--json"], folder.path())?)?;
    assert_eq!(steps.as_array().map(Vec::len), Some(1), "softmax is one kernel: {steps}");
    for (model, part) in [("cnn", "conv_filter_gradient"), ("gpt", "attention")] {
        let steps = json(&neurenix(&["explain", model, "--json"], folder.path())?)?.to_string();
        assert!(steps.contains(part), "{model}: {steps}");
    }
    let verified = neurenix(&["verify", "--filter", "exp2"], folder.path())?;
    let text = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(text.lines().count() < 12 && text.ends_with("No result is outside its bounds.\n"), "{text}");
    let table = neurenix(&["verify", "--filter", "exp2", "--all"], folder.path())?;
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("of bound") && table.ends_with("No result is outside its bounds.\n"), "{table}");
    let completions = neurenix(&["completions", "bash"], folder.path())?;
    assert!(String::from_utf8_lossy(&completions.stdout).contains("neurenix"));
    Ok(())
}

#[test]
fn debugging_tells_every_step_and_what_it_made() -> Outcome {
    let folder = tempfile::tempdir()?;
    let run = |value: &str| {
        Command::new(env!("CARGO_BIN_EXE_neurenix"))
            .args(["bench", "--filter", "softmax", "--seconds", "0"])
            .env("RNN_GPU_DEBUG", value)
            .current_dir(folder.path())
            .output()
    };
    let told = run("1")?;
    assert!(told.status.success(), "{}", message(&told));
    let text = message(&told);
    let line = text.lines().find(|line| line.contains("cpu step rows")).ok_or("no line of a step")?;
    assert!(line.starts_with("RNN_GPU_DEBUG ") && line.contains("of float32, no NaN"), "{line}");
    assert!(!message(&run("0")?).contains("RNN_GPU_DEBUG"));
    Ok(())
}

#[test]
fn the_environment_names_a_device_and_what_its_pool_keeps() -> Outcome {
    let folder = tempfile::tempdir()?;
    for wrong in ["cuda:9", "77", "nonsense"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neurenix"));
        let told = command.args(["explain", "softmax"]).env("RNN_GPU_DEVICE", wrong).output()?;
        let text = message(&told);
        let named =
            text.contains(&format!("the environment variable RNN_GPU_DEVICE names no device: \"{wrong}\""));
        assert!(!told.status.success() && named && text.contains("found here: cpu"), "{text}");
        assert_eq!(text.contains("a number counts accelerators"), wrong == "77", "{text}");
        // A device named on the command line makes the default irrelevant.
        let mut command = Command::new(env!("CARGO_BIN_EXE_neurenix"));
        command.args(["explain", "softmax", "--device", "cpu"]).env("RNN_GPU_DEVICE", wrong);
        assert!(command.output()?.status.success());
    }
    let devices = json(&neurenix(&["devices", "--json"], folder.path())?)?;
    let memory = &devices["devices"][0]["memory"];
    assert!(memory["total"].as_u64() >= memory["available"].as_u64() && memory["total"].is_u64(), "{memory}");
    let told = neurenix(&["devices", "-v"], folder.path())?;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(text.contains("available") && !text.contains("0 B"), "{text}");
    Ok(())
}

/// When drivers are opened without this variable, lavapipe prints a warning.
#[test]
fn help_opens_no_drivers() -> Outcome {
    let cases: [&[&str]; 4] = [&["--help"], &["--version"], &["completions", "zsh"], &["train", "--help"]];
    for arguments in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_neurenix"));
        command.args(arguments).env_remove("XDG_RUNTIME_DIR").env("RNN_GPU_DEVICE", "nonsense");
        let told = command.output()?;
        assert!(told.status.success() && told.stderr.is_empty(), "{arguments:?}: {}", message(&told));
        if arguments.len() == 2 && arguments[0] == "train" {
            let text = String::from_utf8_lossy(&told.stdout).into_owned();
            assert!(text.contains("Default: RNN_GPU_DEVICE if set"), "{text}");
        }
    }
    Ok(())
}

#[test]
fn the_command_ends_well_while_devices_work() -> Outcome {
    let folder = tempfile::tempdir()?;
    let devices = json(&neurenix(&["devices", "--json"], folder.path())?)?;
    let names = devices["devices"].as_array().ok_or("no list")?.iter().filter_map(|d| d["name"].as_str());
    // NPUs run whole networks, and no kernels.
    for name in names.filter(|name| *name != "cpu" && !name.starts_with("npu")) {
        for _ in 0..2 {
            // Empty caches force the drivers to compile.
            let caches = tempfile::tempdir()?;
            let mut command = Command::new(env!("CARGO_BIN_EXE_neurenix"));
            command.args(["explain", "gelu", "--device", name]).env("MESA_SHADER_CACHE_DISABLE", "1");
            for cache in ["POCL_CACHE_DIR", "RNN_OPENCL_CACHE_PATH", "RNN_VULKAN_CACHE_PATH"] {
                let empty = caches.path().join(cache);
                std::fs::create_dir(&empty)?;
                command.env(cache, empty);
            }
            let output = command.output()?;
            assert!(output.status.success(), "{name}: {}\n{}", output.status, message(&output));
        }
    }
    Ok(())
}
