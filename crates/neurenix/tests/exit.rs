//! A process may end while its devices work: drivers' compilers are not taken down under their own threads.

use std::{
    env, fs, mem,
    process::{Child, Command, exit},
    thread::sleep,
    time::{Duration, Instant},
};

use phynexus::{Device, Result, Tensor, device::devices};
use tempfile::TempDir;

/// The device of a child, and how it ends.
const DEVICE: &str = "NEURENIX_TEST_DEVICE";
const END: &str = "NEURENIX_TEST_END";

/// A process that takes longer does not end.
const PATIENCE: Duration = Duration::from_secs(180);

/// Copies and kernels that nobody waits for.
fn work(device: Device) -> Result<()> {
    // Each round's constant makes kernels of its own, which a driver on the processor compiles for seconds.
    for round in 0..2 {
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

/// A process that uses a device and ends.
struct Ending {
    shown: String,
    child: Child,
    begun: Instant,
    /// Where it keeps what it compiles.
    _caches: TempDir,
}

impl Ending {
    fn new(device: Device, end: &str) -> Ending {
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
        // A driver compiles in one thread.
        let both = ["exit", "return"].map(|end| Ending::new(device, end));
        both.into_iter().for_each(Ending::wait);
    }
}
