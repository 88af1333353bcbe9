//! The end of the process: `MPI_Finalize`, if this crate initialised MPI.
//!
//! `MPI_Finalize` waits for all ranks, without a limit. It is therefore called only once all ranks have come to their
//! end, which a barrier with a limit finds out. A rank that has failed or ends with a status other than zero does not
//! call it: the launcher then ends the other ranks, which would wait for this one otherwise.

use std::{
    ffi::c_int,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    api::{Api, Transfer, turn},
    dialect::Handle,
};

/// What the end of a process calls.
struct Finish {
    /// A child made by `fork` inherits the hook, but is no rank.
    process: u32,
    finish: Box<dyn Fn() + Send + Sync>,
}

static FINISH: OnceLock<Finish> = OnceLock::new();
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Makes the end of the process finalise MPI, which this process has initialised. It waits for other ranks up to the
/// limit.
pub(crate) fn initialised<H: Handle>(api: &'static Api<H>, limit: Duration) {
    let finish = Finish { process: process::id(), finish: Box::new(move || finalise(api, limit)) };
    if FINISH.set(finish).is_ok() {
        hook();
    }
}

/// Records that this rank can no longer follow the others.
pub(crate) fn failed() {
    HAS_FAILED.store(true, Ordering::Relaxed);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn hook() {
    use std::{ffi::c_void, ptr};

    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn ended(status: c_int, _: *mut c_void) {
        end(status);
    }
    // SAFETY: glibc declares the function so, and calls `ended` once, at the end of the process.
    unsafe { on_exit(ended, ptr::null_mut()) };
}

/// Only glibc tells the status.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn hook() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    extern "C" fn ended() {
        end(0);
    }
    // SAFETY: C declares the function so, and calls `ended` once, at the end of the process.
    unsafe { atexit(ended) };
}

fn end(status: c_int) {
    let Some(finish) = FINISH.get().filter(|finish| finish.process == process::id()) else { return };
    if status == 0 && !HAS_FAILED.load(Ordering::Relaxed) {
        // A panic must not reach C.
        let _ = catch_unwind(AssertUnwindSafe(|| (finish.finish)()));
    }
}

/// Waits until all ranks come to their end, then finalises MPI. At exit, errors cannot be reported.
fn finalise<H: Handle>(api: &'static Api<H>, limit: Duration) {
    let functions = &api.functions;
    if api.number("MPI_Finalized", functions.MPI_Finalized) != Ok(0) {
        return;
    }
    let transfer = Transfer::begin(api, "MPI_Ibarrier", Vec::new(), |_, request| {
        // SAFETY: the communicator exists until MPI is finalised.
        unsafe { (functions.MPI_Ibarrier)(api.dialect.world, request) }
    });
    let Ok(mut transfer) = transfer else { return };
    let begun = Instant::now();
    while let Ok(None) = transfer.test() {
        if begun.elapsed() > limit {
            return;
        }
        thread::sleep(Duration::from_micros(100));
    }
    let _turn = turn();
    // SAFETY: MPI is initialised and not finalised.
    unsafe { (functions.MPI_Finalize)() };
}
