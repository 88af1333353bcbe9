//! A process may exit while its devices work: drivers' compilers must not be torn down while their threads use them.

use std::{
    env, fs, mem,
    process::{Child, Command, exit},
    thread::sleep,
    time::{Duration, Instant},
};

use phynexus::{Device, Result, Tensor, device::devices};
use tempfile::TempDir;

/// Environment variables that tell a child process its device and how to end.
const DEVICE: &str = "NEURENIX_TEST_DEVICE";
const END: &str = "NEURENIX_TEST_END";

/// A process that takes longer counts as hung.
const PATIENCE: Duration = Duration::from_secs(180);

/// Starts copies and kernels without waiting for them.
fn work(device: Device) -> Result<()> {
    // Each round's constant needs new kernels, which a CPU driver compiles for seconds.
    for round in 0..2 {
        let x = Tensor::from_slice(&vec![round as f32; 96 * 96], &[96, 96], device)?;
        let y = x.matmul(&x)?.add_scalar(f64::from(round))?.softmax(-1)?;
        y.evaluate()?;
        // Leaked like a static, so they still exist at exit.
        mem::forget((x, y));
    }
    Ok(())
}

/// The part that runs in a child process.
#[test]
fn a_process_that_ends() {
    let Ok(name) = env::var(DEVICE) else { return };
    neurenix::register_all();
    work(Device::find(&name).unwrap()).unwrap();
    // Otherwise main returns soon afterwards.
    if env::var(END).is_ok_and(|end| end == "exit") {
        exit(0);
    }
}

/// A process that uses a device and ends.
struct Ending {
    shown: String,
    child: Child,
    begun: Instant,
    /// The folder of its compilation cache.
    _caches: TempDir,
}

impl Ending {
    fn new(device: Device, end: &str) -> Ending {
        // An empty cache, so that drivers compile.
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "a_process_that_ends", "--test-threads=1"]);
        child.env(DEVICE, device.name()).env(END, end).env("MESA_SHADER_CACHE_DISABLE", "1");
        for cache in ["POCL_CACHE_DIR", "RNN_OPENCL_CACHE_PATH", "RNN_VULKAN_CACHE_PATH"] {
            let empty = folder.path().join(cache);
            fs::create_dir(&empty).unwrap();
            child.env(cache, empty);
        }
        let shown = format!("{device}, {end}");
        Ending { shown, child: child.spawn().unwrap(), begun: Instant::now(), _caches: folder }
    }

    fn wait(mut self) {
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if self.begun.elapsed() > PATIENCE => {
                    self.child.kill().unwrap();
                    panic!("{}: it does not end", self.shown);
                }
                None => sleep(Duration::from_millis(20)),
            }
        };
        assert!(status.success(), "{}: {status}", self.shown);
    }
}

#[test]
fn a_process_may_end_while_devices_work() {
    neurenix::register_all();
    for device in devices().into_iter().filter(|device| device.name() != "cpu") {
        // In parallel, because a driver compiles in one thread.
        let both = ["exit", "return"].map(|end| Ending::new(device, end));
        both.into_iter().for_each(Ending::wait);
    }
}
