//! When the device did what: launches and copies between two marks of its own time.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Driver, Submission, memory::Heap};
use crate::{
    Result,
    profile::{self, DeviceClock, Phase, Run, Span, Track, show_time},
    schedule::debug,
};

/// With more spans than this the device is waited for and asked.
const PENDING: usize = 8192;

/// What a profiler has yet to be told.
pub(super) struct Clock<D: Driver>(Mutex<State<D::Mark>>);

struct State<M> {
    /// The profiler that asked.
    session: u64,
    has_clock: bool,
    /// A mark, and the profiler's time then; absent while the device is asked.
    origin: Option<(M, Duration)>,
    pending: Vec<Pending<M>>,
}

struct Pending<M> {
    from: M,
    to: M,
    span: Span,
    run: Option<Run>,
}

impl<D: Driver> Clock<D> {
    pub(super) fn new() -> Clock<D> {
        Clock(Mutex::new(State { session: 0, has_clock: false, origin: None, pending: Vec::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State<D::Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> Heap<D> {
    /// Submits a kernel by itself.
    pub(super) fn launch(self: &Arc<Self>, submission: &Submission<'_, D>) -> Result<()> {
        let Submission { kernel, .. } = submission;
        let geometry = || (kernel.grid(), kernel.block(), kernel.shared_bytes());
        self.watched(&kernel.name, geometry, || self.driver.launch(submission))
    }

    /// Submits a kernel of this name, with its grid, its block and its bytes of shared memory, by `work`.
    pub(super) fn watched(
        self: &Arc<Self>,
        name: &str,
        geometry: impl FnOnce() -> ([usize; 3], [usize; 3], usize),
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let geometry = || {
            let ([x, y, z], [a, b, c], shared) = geometry();
            format!("grid {x}x{y}x{z}, block {a}x{b}x{c}, {shared} bytes shared")
        };
        if debug::is_enabled() {
            let time = self.timed_alone(work)?;
            debug::say(format_args!("{} kernel {name}: {}, {time}", self.driver.name(), geometry()));
            return Ok(());
        }
        self.timed(|| self.span(Track::Kernels, name, geometry(), 0), work)
    }

    /// Copies from the host.
    pub(super) fn write(self: &Arc<Self>, block: &D::Block, offset: usize, bytes: &[u8]) -> Result<()> {
        let span = || self.span(Track::Transfers, "copy to the device", String::new(), bytes.len());
        self.timed(span, || self.driver.write(block, offset, bytes))
    }

    /// Copies to the host.
    pub(super) fn read(self: &Arc<Self>, block: &D::Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let length = bytes.len();
        // What the copy waits for is the waiting, not the copy.
        if profile::timeline().is_some() {
            self.synchronize()?;
        }
        let span = || self.span(Track::Transfers, "copy from the device", String::new(), length);
        self.timed(span, || self.driver.read(block, offset, bytes))
    }

    /// Waits for everything submitted.
    pub(super) fn synchronize(&self) -> Result<()> {
        let _phase = profile::phase(Phase::Waiting);
        self.driver.synchronize()
    }

    fn span(&self, track: Track, name: &str, detail: String, bytes: usize) -> Span {
        Span { track, device: self.driver.name().into(), name: name.into(), detail, bytes: bytes as u64 }
    }

    /// Does the work, and notes its span if a profiler wants it.
    fn timed(self: &Arc<Self>, span: impl FnOnce() -> Span, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(session) = profile::timeline() else { return work() };
        let begun = Instant::now();
        let from = if self.attached(session)? { self.driver.mark()? } else { None };
        work()?;
        let to = if from.is_some() { self.driver.mark()? } else { None };
        let span = span();
        let (Some(from), Some(to)) = (from, to) else {
            // A launch is timed with its step.
            if span.track == Track::Transfers {
                profile::host_span(span, begun);
            }
            return Ok(());
        };
        let run = if span.track == Track::Kernels { profile::current_run() } else { None };
        let mut state = self.clock.lock();
        if state.session == session {
            state.pending.push(Pending { from, to, span, run });
        }
        Ok(())
    }

    /// Begins to tell this profiler the time, unless that is done; false if the device has no clock.
    fn attached(self: &Arc<Self>, session: u64) -> Result<bool> {
        let (known, full) = {
            let state = self.clock.lock();
            (state.session == session, state.pending.len() >= PENDING)
        };
        if full {
            self.tell()?;
        }
        if !known {
            self.driver.synchronize()?;
            let origin = self.driver.mark()?.map(|mark| (mark, profile::now()));
            let mut state = self.clock.lock();
            *state = State { session, has_clock: origin.is_some(), origin, pending: Vec::new() };
            drop(state);
            let clock: Arc<dyn DeviceClock> = self.clone();
            profile::attach(session, clock);
        }
        Ok(self.clock.lock().has_clock)
    }

    /// The time of some work that nothing else runs beside, in words.
    fn timed_alone(&self, work: impl FnOnce() -> Result<()>) -> Result<String> {
        self.driver.synchronize()?;
        let begun = Instant::now();
        let from = self.driver.mark()?;
        work()?;
        let to = self.driver.mark()?;
        self.driver.synchronize()?;
        let time = begun.elapsed();
        Ok(match (from, to) {
            (Some(from), Some(to)) => {
                format!("{} by the device's clock", show_time(nanoseconds(self.driver.elapsed(&from, &to)?)))
            }
            _ => format!("{} by the host's clock", show_time(time)),
        })
    }
}

impl<D: Driver> DeviceClock for Heap<D> {
    fn tell(&self) -> Result<()> {
        let (session, origin, pending) = {
            let mut state = self.clock.lock();
            (state.session, state.origin.take(), std::mem::take(&mut state.pending))
        };
        let Some((mut origin, mut time)) = origin else { return Ok(()) };
        let mut step: Option<(Run, Duration)> = None;
        for Pending { from, to, span, run } in pending {
            let start = time + nanoseconds(self.driver.elapsed(&origin, &from)?);
            let took = nanoseconds(self.driver.elapsed(&from, &to)?);
            profile::finished_span(session, span, start, took);
            if let Some(run) = run {
                match &mut step {
                    Some((of, all)) if *of == run => *all += took,
                    _ => {
                        let before = step.replace((run, took));
                        before.into_iter().for_each(|(run, all)| profile::count_device_time(run, all));
                    }
                }
            }
            (origin, time) = (to, start + took);
        }
        step.into_iter().for_each(|(run, all)| profile::count_device_time(run, all));
        let mut state = self.clock.lock();
        if state.session == session {
            state.origin = Some((origin, time));
        }
        Ok(())
    }
}

/// A device's time as the host has it.
fn nanoseconds(time: f64) -> Duration {
    Duration::from_nanos(time.max(0.0).round() as u64)
}
