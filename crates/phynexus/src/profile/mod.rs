//! Profiling: what ran where, how often and for how long.
//!
//! A [`Profiler`] records the work of all threads from its start to its end. Kernels and transfers are timed by the
//! device's clock if its driver has one, otherwise by the host's. Every figure states its clock.
//!
//! ```
//! use phynexus::{Tensor, oracle::reference_device, profile::{Detail, Profiler}};
//!
//! let profiler = Profiler::start(Detail::Timeline)?;
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], reference_device())?;
//! x.exp()?.sum(&[], false)?.item::<f32>()?;
//! let profile = profiler.finish()?;
//! println!("{profile}");
//! assert_eq!(profile.rows[0].count, 1);
//! let trace = profile.chrome_trace(); // for Perfetto, or chrome://tracing
//! # assert!(trace.contains("kernels"));
//! # Ok::<(), phynexus::Error>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `recorder` | what is recorded while a profiler runs |
//! | `result` | a finished profile: rows, figures, the table |
//! | `trace` | the timeline in Chrome's trace format |

mod recorder;
mod result;
mod trace;

use std::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering},
    time::{Duration, Instant},
};

pub(crate) use recorder::{
    DeviceClock, Run, Span, attach, count_device_time, current_run, end_recording, finished_span, host_span,
    memory, note_recording, now, phase, step,
};
pub(crate) use result::show_time;
pub use result::{
    ABOVE_THE_ROOF, Clock, DeviceProfile, Event, HostRow, MemorySample, PeakOrigin, Phase, Profile,
    ProfileRow, Track, show_giga, show_rate,
};

use crate::{Error, Result};

/// How much a profiler records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every kind of step, with its count and host time. On a device with a queue, the host time is the time to submit.
    Counts,
    /// Also every kernel, transfer and change of memory with its time, by the device's clock if it has one, and the
    /// host's work in between. A device without a clock is synchronised after every step.
    Timeline,
}

const OFF: u8 = 0;
const COUNTS: u8 = 1;
const TIMELINE: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(OFF);
/// Numbers the profilers, so that late reports for one are not attributed to the next.
static SESSION: AtomicU64 = AtomicU64::new(0);

/// Records work until it is finished or dropped. Only one can run in a process.
#[derive(Debug)]
pub struct Profiler(u64);

impl Profiler {
    /// Starts recording the work of every thread.
    ///
    /// # Errors
    /// [`Error::Argument`] if another profiler is running.
    pub fn start(detail: Detail) -> Result<Profiler> {
        let mut recorder = recorder::lock();
        if recorder.is_some() {
            let message = "another profiler is running: finish it first, since only one can run per process";
            return Err(Error::argument("profile", message));
        }
        let session = SESSION.fetch_add(1, Ordering::Relaxed) + 1;
        *recorder = Some(recorder::Recorder::new(session));
        STATE.store(if detail == Detail::Counts { COUNTS } else { TIMELINE }, Ordering::Release);
        Ok(Profiler(session))
    }

    /// Stops recording, waits for devices with outstanding times, and returns the profile. A device that fails to
    /// report, for example because it was lost, is listed in [`failures`](Profile::failures).
    ///
    /// # Errors
    /// [`Error::Internal`] if the recording is lost.
    pub fn finish(self) -> Result<Profile> {
        STATE.store(OFF, Ordering::Release);
        let clocks = recorder::lock().as_mut().map(|r| std::mem::take(&mut r.clocks)).unwrap_or_default();
        let failures = clocks.iter().filter_map(|clock| clock.tell().err()).collect();
        let recorder = recorder::lock().take();
        recorder
            .map(|recorder| recorder.finish(failures))
            .ok_or_else(|| Error::internal("profile", "a profiler without a recorder"))
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let mut recorder = recorder::lock();
        // A finished profiler may already have a successor.
        if recorder.as_ref().is_some_and(|recorder| recorder.session == self.0) {
            STATE.store(OFF, Ordering::Release);
            drop(recorder.take());
        }
    }
}

/// Returns whether a profiler is running.
#[inline]
pub(crate) fn is_enabled() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
}

/// Returns the number of the running profiler, if it records a timeline.
#[inline]
pub(crate) fn timeline() -> Option<u64> {
    (STATE.load(Ordering::Relaxed) == TIMELINE).then(|| SESSION.load(Ordering::Relaxed))
}

/// Returns the time from `origin` to `instant`, or 0 if `instant` is earlier.
fn since(instant: Instant, origin: Instant) -> Duration {
    instant.saturating_duration_since(origin)
}

#[cfg(test)]
pub(crate) mod tests;
