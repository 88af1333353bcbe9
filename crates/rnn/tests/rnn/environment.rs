//! The four variables of the environment, each in a process of its own, which this program starts as itself.

use std::process::{Command, Output};

use rnn::{
    Array2, GpuDeviceType, GpuManager, LayerBuilder, Network, NetworkError, Result, TrainingConfig,
    gpu::{CudaKernels, KernelManager},
};

/// What says to this program that it is such a process, and which.
const PART: &str = "RNN_TEST_PART";

/// The test of this name again, as a process with these variables and no others of ours.
fn child(test: &str, part: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for name in ["RNN_GPU_DEVICE", "RNN_GPU_DEBUG", "RNN_GPU_MEMORY_POOL", "RNN_CUDA_CACHE_PATH"] {
        command.env_remove(name);
    }
    command
        .args(["--exact", &format!("environment::{test}"), "--nocapture"])
        .env(PART, part)
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{part}: {}{errors}", String::from_utf8_lossy(&output.stdout));
    output
}

fn small() -> Result<Network> {
    Network::with_input_size(2)?.add_layer(LayerBuilder::dense(1)).build()
}

#[test]
fn a_device_is_named() -> Result<()> {
    match std::env::var(PART).as_deref() {
        Ok("cpu") => {
            assert_eq!(small()?.device(), "cpu");
            let default = GpuManager::new().default_device().map(|device| (device.id, device.engine_name));
            assert_eq!(default, Some((0, "cpu".to_owned())));
        }
        Ok(_) => {
            let error = small().map(drop).unwrap_err().to_string();
            assert!(
                error.contains("RNN_GPU_DEVICE names no device: \"nonsense\"") && error.contains("cpu"),
                "{error}"
            );
            let mut manager = GpuManager::new();
            assert!(manager.default_device().is_none() && !manager.devices().is_empty());
            assert!(manager.create_context(0).is_ok());
            // What names its device does not ask.
            let named =
                Network::with_input_size(2)?.add_layer(LayerBuilder::dense(1)).device("cpu").build()?;
            assert_eq!(named.device(), "cpu");
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            named.save(path("json"))?;
            named.save_binary(path("binary"))?;
            named.save_safetensors(path("safetensors"))?;
            assert!(Network::load(path("json")).is_err());
            for read in [
                Network::load_on(path("json"), "cpu")?,
                Network::load_binary_on(path("binary"), "cpu")?,
                Network::load_safetensors_on(path("safetensors"), "cpu")?,
            ] {
                assert_eq!((read.device(), read.get_weights()?), ("cpu", named.get_weights()?));
            }
            assert!(Network::load_on(path("json"), "cuda:99").is_err());
        }
        Err(_) => {
            for part in ["cpu", "nonsense"] {
                child("a_device_is_named", part, &[("RNN_GPU_DEVICE", part)]);
            }
        }
    }
    Ok(())
}

#[test]
fn debugging_tells_of_steps_and_compilers() -> Result<()> {
    if std::env::var(PART).is_ok() {
        // Without a compiler it tells of that.
        let _ = KernelManager::new().compile_kernel("nothing", "garbage", "wgsl");
        let mut network =
            Network::with_input_size(2)?.add_layer(LayerBuilder::dense(1)).device("cpu").build()?;
        let config = TrainingConfig { max_epochs: 1, verbose: false, ..TrainingConfig::default() };
        network.train(&Array2::ones((10, 2)), &Array2::ones((10, 1)), &config)?;
        return Ok(());
    }
    for (value, tells) in [("1", true), ("0", false)] {
        let output = child("debugging_tells_of_steps_and_compilers", value, &[("RNN_GPU_DEBUG", value)]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text.contains("kernel nothing for wgsl"), tells, "{text}");
        assert_eq!(text.contains("RNN_GPU_DEBUG "), tells, "{text}");
    }
    Ok(())
}

/// Of GPUs, those that software plays too; the CPU keeps what it has.
#[test]
fn memory_of_gpus_is_kept_or_given_back() -> Result<()> {
    let Ok(value) = std::env::var(PART) else {
        for part in ["1", "0", "many"] {
            child("memory_of_gpus_is_kept_or_given_back", part, &[("RNN_GPU_MEMORY_POOL", part)]);
        }
        return Ok(());
    };
    let mut manager = GpuManager::new();
    for device in manager.devices().to_vec() {
        let context = manager.create_context(device.id)?;
        if device.device_type == GpuDeviceType::Generic {
            context.allocate(64)?;
            continue;
        }
        if value == "many" {
            let error = context.allocate(64).map(drop).unwrap_err().to_string();
            assert!(error.contains("RNN_GPU_MEMORY_POOL"), "{error}");
            continue;
        }
        let small = context.allocate(4096)?;
        let large = context.allocate(1 << 20)?;
        // Nothing is under way that holds them.
        context.synchronize()?;
        context.deallocate(small)?;
        context.synchronize()?;
        // A small block waits in vain for a request as large as that, if blocks wait at all.
        let waits = context.memory_stats().fragmentation > 0.0;
        assert_eq!(waits, value == "1", "{}", device.engine_name);
        context.deallocate(large)?;
    }
    Ok(())
}

#[test]
fn cuda_kernels_are_kept_in_a_folder() -> Result<()> {
    if std::env::var(PART).is_ok() {
        match KernelManager::new().compile_kernel("add", CudaKernels::add(), "cuda") {
            Ok(_) => println!("compiled"),
            Err(NetworkError::CompilerMissing { .. }) => {}
            Err(error) => return Err(error),
        }
        return Ok(());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels");
    let variables = [("RNN_CUDA_CACHE_PATH", path.to_str().unwrap())];
    let output = child("cuda_kernels_are_kept_in_a_folder", "compile", &variables);
    let compiled = String::from_utf8_lossy(&output.stdout).contains("compiled");
    let kept = std::fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some());
    assert_eq!(kept, compiled);
    Ok(())
}
