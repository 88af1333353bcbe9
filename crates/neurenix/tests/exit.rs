//! A process may end while its devices work: drivers' compilers are not taken down under their own threads.

use std::{
    env, fs, mem,
    process::{Command, exit},
    thread::sleep,
    time::{Duration, Instant},
};

use phynexus::{Device, Result, Tensor, device::devices};

/// The device of a child, and how it ends.
const DEVICE: &str = "NEURENIX_TEST_DEVICE";
const END: &str = "NEURENIX_TEST_END";

/// A process that takes longer does not end.
const PATIENCE: Duration = Duration::from_secs(180);

/// Copies and kernels that nobody waits for.
fn work(device: Device) -> Result<()> {
    for round in 0..6 {
        let x = Tensor::from_slice(&vec![round as f32; 96 * 96], &[96, 96], device)?;
        let y = x.matmul(&x)?.add_scalar(f64::from(round))?.softmax(-1)?;
        y.evaluate()?;
        // As what a static holds, they are still there at the end.
        mem::forget((x, y));
    }
    Ok(())
}

/// The part of a process of its own.
#[test]
fn a_process_that_ends() {
    let Ok(name) = env::var(DEVICE) else { return };
    neurenix::register_all();
    work(Device::find(&name).unwrap()).unwrap();
    // Otherwise main returns, soon after this.
    if env::var(END).is_ok_and(|end| end == "exit") {
        exit(0);
    }
}

#[test]
fn a_process_may_end_while_devices_work() {
    neurenix::register_all();
    for device in devices().into_iter().filter(|device| device.name() != "cpu") {
        for end in ["exit", "return"] {
            // Drivers are to compile, not to find what was compiled before.
            let folder = tempfile::tempdir().unwrap();
            let mut child = Command::new(env::current_exe().unwrap());
            child.args(["--exact", "a_process_that_ends", "--test-threads=1"]);
            child.env(DEVICE, device.name()).env(END, end).env("MESA_SHADER_CACHE_DISABLE", "1");
            for cache in ["POCL_CACHE_DIR", "RNN_OPENCL_CACHE_PATH", "RNN_VULKAN_CACHE_PATH"] {
                let empty = folder.path().join(cache);
                fs::create_dir(&empty).unwrap();
                child.env(cache, empty);
            }
            let mut child = child.spawn().unwrap();
            let begun = Instant::now();
            let status = loop {
                match child.try_wait().unwrap() {
                    Some(status) => break status,
                    None if begun.elapsed() > PATIENCE => {
                        child.kill().unwrap();
                        panic!("{device}, {end}: it does not end");
                    }
                    None => sleep(Duration::from_millis(20)),
                }
            };
            assert!(status.success(), "{device}, {end}: {status}");
        }
    }
}
