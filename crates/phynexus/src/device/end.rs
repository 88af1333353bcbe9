//! Shutdown at the end of the process. Driver libraries tear themselves down at that point, even while their own
//! threads run.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc::channel,
    },
    thread,
    time::Duration,
};

use super::{DeviceNature, devices};

/// The process that registered devices; 0 if none is registered.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Set once [`finish_within`] has timed out.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Records that the devices belong to this process, unless an ancestor process registered devices already.
pub(super) fn note() {
    let _ = PROCESS.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
}

/// Waits for work on software devices, so the process can exit safely. Their drivers compile kernels on threads that
/// must not lose their libraries midway. Other devices need no wait.
///
/// Unused devices are not opened. Errors are ignored. A child made by `fork` waits for nothing, because it has none of
/// the threads.
pub fn finish() {
    let (done, finished) = channel();
    if begin(move || done.send(()).unwrap_or(())) {
        let _ = finished.recv();
    }
}

/// Like [`finish`], but waits at most `time`. After a timeout, later calls do not wait again. The command `neurenix`
/// and the Python package call this at exit.
pub fn finish_within(time: Duration) {
    let (done, finished) = channel();
    if begin(move || done.send(()).unwrap_or(())) && finished.recv_timeout(time).is_err() {
        GIVEN_UP.store(true, Ordering::Relaxed);
    }
}

/// Waits on a new thread, then calls `done`. Returns false if there is nothing to wait for.
fn begin(done: impl FnOnce() + Send + 'static) -> bool {
    if PROCESS.load(Ordering::Relaxed) != process::id() || GIVEN_UP.load(Ordering::Relaxed) {
        return false;
    }
    let wait = || {
        for device in devices().into_iter().filter(|device| device.info().nature == DeviceNature::Emulator) {
            // At exit, errors cannot be reported.
            let _ = catch_unwind(AssertUnwindSafe(|| device.synchronize()));
        }
        done();
    };
    // An exiting thread has lost its thread-locals, which drivers need. A new thread also has no interrupt watch.
    thread::Builder::new().spawn(wait).is_ok()
}
