//! The end of the process. Drivers' libraries take themselves down then, whatever their own threads do.

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

/// The process that registered devices; 0 while none is registered.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Set when somebody has waited long enough.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Notes that devices are this process's, if they are not another's of which this is a child.
pub(super) fn note() {
    let _ = PROCESS.compare_exchange(0, process::id(), Ordering::Relaxed, Ordering::Relaxed);
}

/// Waits for what is under way on devices that a driver makes of the processor, so that the process may end: such drivers
/// compile kernels in threads of their own, which must not lose their libraries in the midst of it. Others take care of
/// themselves.
///
/// Devices that nobody has used are not opened for it. What goes wrong is not told, and a child made by `fork` waits for
/// nothing: it has none of the threads.
pub fn finish() {
    let (done, finished) = channel();
    if begin(move || done.send(()).unwrap_or(())) {
        let _ = finished.recv();
    }
}

/// As [`finish`], which the command `neurenix` and Python call by themselves, but not longer than this. What is not done by then
/// is not waited for again.
pub fn finish_within(time: Duration) {
    let (done, finished) = channel();
    if begin(move || done.send(()).unwrap_or(())) && finished.recv_timeout(time).is_err() {
        GIVEN_UP.store(true, Ordering::Relaxed);
    }
}

/// Waits in a thread of its own, and then calls `done`; false if there is nothing to wait for.
fn begin(done: impl FnOnce() + Send + 'static) -> bool {
    if PROCESS.load(Ordering::Relaxed) != process::id() || GIVEN_UP.load(Ordering::Relaxed) {
        return false;
    }
    let wait = || {
        for device in devices().into_iter().filter(|device| device.info().nature == DeviceNature::Emulator) {
            // There is nobody left to tell.
            let _ = catch_unwind(AssertUnwindSafe(|| device.synchronize()));
        }
        done();
    };
    // A thread that ends has no locals any more, which drivers ask for; nor is anybody asked in a new one whether to go on.
    thread::Builder::new().spawn(wait).is_ok()
}
