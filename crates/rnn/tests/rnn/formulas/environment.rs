//! Variables of the environment, each in a process of its own, which this program starts as itself.

use std::process::Command;

use rnn::{GpuDeviceType, GpuManager, LayerBuilder, Network, Result};

/// What says to this program that it is such a process.
const PART: &str = "RNN_TEST_PART";

/// The test of this name again, as a process with this value of a variable and no others of ours.
fn child(test: &str, variable: &str, value: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for name in ["RNN_GPU_DEVICE", "RNN_GPU_DEBUG", "RNN_GPU_MEMORY_POOL", "RNN_CUDA_CACHE_PATH"] {
        command.env_remove(name);
    }
    let test = format!("formulas::environment::{test}");
    command.args(["--exact", &test, "--nocapture"]).env(PART, value).env(variable, value);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{value}: {told}{errors}");
}

#[test]
fn a_gpu_is_named_by_its_number() -> Result<()> {
    let Ok(number) = std::env::var(PART) else {
        for number in ["0", "99"] {
            child("a_gpu_is_named_by_its_number", "RNN_GPU_DEVICE", number);
        }
        return Ok(());
    };
    let network = Network::with_input_size(2)?.add_layer(LayerBuilder::dense(1)).build();
    let default = GpuManager::new().default_device();
    if number == "0" && GpuManager::is_gpu_available() {
        let default = default.expect("the first GPU");
        assert!(!default.is_emulated && default.device_type != GpuDeviceType::Generic);
        assert_eq!(network?.device(), default.engine_name);
        return Ok(());
    }
    // Software is not counted.
    let error = network.map(drop).unwrap_err().to_string();
    let wanted = format!("RNN_GPU_DEVICE names no device: \"{number}\"");
    assert!(error.contains(&wanted) && error.contains("a number counts accelerators"), "{error}");
    assert!(default.is_none());
    Ok(())
}

/// Of GPUs, those that software plays too; the CPU keeps what it has.
#[test]
fn so_much_memory_of_gpus_is_kept() -> Result<()> {
    let Ok(size) = std::env::var(PART) else {
        for size in ["4G", "64M", "1K"] {
            child("so_much_memory_of_gpus_is_kept", "RNN_GPU_MEMORY_POOL", size);
        }
        return Ok(());
    };
    let mut manager = GpuManager::new();
    for device in manager.devices().to_vec() {
        if device.device_type == GpuDeviceType::Generic {
            continue;
        }
        let context = manager.create_context(device.id)?;
        let (part, whole) = (context.allocate(1 << 18)?, context.allocate(1 << 20)?);
        // Nothing is under way that holds them.
        context.synchronize()?;
        context.deallocate(part)?;
        context.synchronize()?;
        // What was given back waits in vain for a request as large as the whole: about a fifth of all, or next to nothing.
        let waits = context.memory_stats().fragmentation > 0.1;
        assert_eq!(waits, size != "1K", "{size} on {}", device.engine_name);
        context.deallocate(whole)?;
    }
    Ok(())
}
