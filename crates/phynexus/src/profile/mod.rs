//! What ran where, how often and for how long.
//!
//! A [`Profiler`] notes the work of all threads from its start to its end. Kernels and transfers are timed by the device's
//! own clock where its driver has one, else by the host's, and every figure says by which.
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
//! | `recorder` | what is noted while a profiler runs |
//! | `result` | a finished profile: rows, figures, the table |
//! | `trace` | the timeline as Chrome's trace format |

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

/// How much a profiler notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Every kind of step: how often, and the host's time. On a device with a queue, that is the time to submit it.
    Counts,
    /// Also every kernel, transfer and change of memory with its time, by the device's clock where it has one, and what the
    /// host does in between. Where a device has no clock, every step is waited for.
    Timeline,
}

const OFF: u8 = 0;
const COUNTS: u8 = 1;
const TIMELINE: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(OFF);
/// Counts profilers, so that what one of them began is not taken for the next one's.
static SESSION: AtomicU64 = AtomicU64::new(0);

/// Notes what runs until it is finished or dropped. There is one at a time in a process.
#[derive(Debug)]
pub struct Profiler(u64);

impl Profiler {
    /// Begins to note the work of every thread.
    ///
    /// # Errors
    /// [`Error::Argument`] if another profiler runs.
    pub fn start(detail: Detail) -> Result<Profiler> {
        let mut recorder = recorder::lock();
        if recorder.is_some() {
            let message = "another profiler is running: finish it first; there is one for all threads";
            return Err(Error::argument("profile", message));
        }
        let session = SESSION.fetch_add(1, Ordering::Relaxed) + 1;
        *recorder = Some(recorder::Recorder::new(session));
        STATE.store(if detail == Detail::Counts { COUNTS } else { TIMELINE }, Ordering::Release);
        Ok(Profiler(session))
    }

    /// Ends it, waits for the devices whose times are still to come, and tells what was noted. A device that does not tell,
    /// as one that was lost, is among the profile's [`failures`](Profile::failures).
    ///
    /// # Errors
    /// [`Error::Internal`] if what was noted is gone.
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
        // After it was finished there may be another one.
        if recorder.as_ref().is_some_and(|recorder| recorder.session == self.0) {
            STATE.store(OFF, Ordering::Release);
            drop(recorder.take());
        }
    }
}

/// True while a profiler runs.
#[inline]
pub(crate) fn is_enabled() -> bool {
    STATE.load(Ordering::Relaxed) != OFF
}

/// The number of the profiler that wants a timeline, if one does.
#[inline]
pub(crate) fn timeline() -> Option<u64> {
    (STATE.load(Ordering::Relaxed) == TIMELINE).then(|| SESSION.load(Ordering::Relaxed))
}

/// The time of an instant since another, 0 if it came before.
fn since(instant: Instant, origin: Instant) -> Duration {
    instant.saturating_duration_since(origin)
}

#[cfg(test)]
pub(crate) mod tests;
