//! Device timing: launches and copies, each between two marks of the device's clock.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Driver, Submission, heap::Heap, staging::PIECE};
use crate::{
    Error, Result,
    device::{Copied, HostRead},
    host_memory, interrupt,
    profile::{self, DeviceClock, Phase, Run, Span, Track, show_time},
    schedule::debug,
};

/// Parts of a large copy in flight at once.
const AHEAD: usize = 4;
/// At this many pending spans, the device is synchronised and queried.
const PENDING: usize = 8192;

/// Timings not yet reported to the profiler.
pub(super) struct Clock<D: Driver>(Mutex<State<D::Mark>>);

struct State<M> {
    /// The profiler session that asked for the times.
    session: u64,
    has_clock: bool,
    /// The latest mark queried, and the profiler's time at that mark.
    origin: Option<(M, Duration)>,
    pending: Vec<Pending<M>>,
    /// The device time of each step so far.
    runs: HashMap<Run, Duration>,
}

impl<M> State<M> {
    fn new() -> State<M> {
        State { session: 0, has_clock: false, origin: None, pending: Vec::new(), runs: HashMap::new() }
    }
}

struct Pending<M> {
    from: M,
    to: M,
    span: Span,
    run: Option<Run>,
}

impl<D: Driver> Clock<D> {
    pub(super) fn new() -> Clock<D> {
        Clock(Mutex::new(State::new()))
    }

    fn lock(&self) -> MutexGuard<'_, State<D::Mark>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Driver> Heap<D> {
    /// Submits one kernel.
    pub(super) fn launch(self: &Arc<Self>, submission: &Submission<'_, D>) -> Result<()> {
        let Submission { kernel, .. } = submission;
        let geometry = || (kernel.grid(), kernel.block(), kernel.shared_bytes());
        self.watched(&kernel.name, geometry, || self.driver.launch(submission))
    }

    /// Submits a kernel by calling `work`. `geometry` returns its grid, its block and its bytes of shared memory.
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
            let time = self.timed_alone(work).map_err(|error| self.with_usage(error))?;
            debug::say(format_args!("{} kernel {name}: {}, {time}", self.driver.name(), geometry()));
            return Ok(());
        }
        let span = || self.span(Track::Kernels, name, geometry(), 0);
        self.timed(Track::Kernels, span, work).map_err(|error| self.with_usage(error))
    }

    /// Copies from the host to the device.
    pub(super) fn write(self: &Arc<Self>, block: &D::Block, offset: usize, bytes: &[u8]) -> Result<()> {
        let span = || self.span(Track::Transfers, "copy to the device", String::new(), bytes.len());
        let work = || self.driver.write(block, offset, bytes);
        self.timed(Track::Transfers, span, work).map_err(|error| self.with_usage(error))
    }

    /// Copies from the device to the host.
    pub(super) fn read(self: &Arc<Self>, block: &D::Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let length = bytes.len();
        // Wait first, so that waiting is not counted as copying.
        if profile::timeline().is_some() {
            self.synchronize()?;
        }
        self.wait_asking()?;
        let span = || self.span(Track::Transfers, "copy from the device", String::new(), length);
        self.timed(Track::Transfers, span, || self.read_in_parts(block, offset, bytes))
    }

    /// Copies from the device to the host. Large copies are pipelined in parts.
    fn read_in_parts(&self, block: &D::Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() <= PIECE {
            return self.driver.read(block, offset, bytes);
        }
        let (mut from, end) = (offset, offset + bytes.len());
        let mut next = || {
            let part = PIECE.min(end - from);
            let begun = match part {
                0 => None,
                _ => self.driver.begin_read(block, from, part)?,
            };
            from += if begun.is_some() { part } else { 0 };
            Ok::<_, Error>(begun)
        };
        let mut parts = VecDeque::new();
        while parts.len() < AHEAD
            && let Some(part) = next()?
        {
            parts.push_back(part);
        }
        let mut done = 0;
        while let Some(part) = parts.pop_front() {
            // With a profiler, the clock's lock is held here, so no interrupt check may run.
            if profile::timeline().is_none() {
                interrupt::check()?;
            }
            part.finish(&mut |part| {
                bytes[done..done + part.len()].copy_from_slice(part);
                done += part.len();
                Ok(())
            })?;
            parts.extend(next()?);
        }
        // Copy what the driver could not begin with a blocking read.
        let rest = &mut bytes[done..];
        if rest.is_empty() { Ok(()) } else { self.driver.read(block, offset + done, rest) }
    }

    /// Begins a copy to the host. While a profiler records times, copies now.
    pub(super) fn begin_read(
        self: &Arc<Self>,
        block: &D::Block,
        offset: usize,
        bytes: usize,
    ) -> Result<Box<dyn HostRead>> {
        if bytes > 0
            && profile::timeline().is_none()
            && let Some(read) = self.driver.begin_read(block, offset, bytes)?
        {
            return Ok(read);
        }
        let mut copy = host_memory::filled(0, bytes)?;
        if bytes > 0 {
            self.read(block, offset, &mut copy)?;
        }
        Ok(Box::new(Copied(copy)))
    }

    /// Copies from another device of this family. Returns false if the two devices cannot.
    pub(super) fn copy_from(
        self: &Arc<Self>,
        target: &D::Block,
        device: &Heap<D>,
        source: &D::Block,
        offset: usize,
        bytes: usize,
    ) -> Result<bool> {
        if !self.driver.copies_from(&device.driver) {
            return Ok(false);
        }
        let span = || {
            let detail = format!("from {}", device.driver.name());
            self.span(Track::Transfers, "copy between devices", detail, bytes)
        };
        let work = || self.driver.copy_from(target, &device.driver, source, offset, bytes);
        self.timed(Track::Transfers, span, work)?;
        Ok(true)
    }

    /// Waits for everything submitted.
    pub(super) fn synchronize(&self) -> Result<()> {
        let _phase = profile::phase(Phase::Waiting);
        self.wait_asking()?;
        self.driver.synchronize()
    }

    /// On a watched thread, waits interruptibly until the device has done everything submitted so far.
    pub(super) fn wait_asking(&self) -> Result<()> {
        if interrupt::is_watched()
            && let Some(done) = self.driver.progress()?
        {
            interrupt::wait_until(&*done)?;
        }
        Ok(())
    }

    fn span(&self, track: Track, name: &str, detail: String, bytes: usize) -> Span {
        Span { track, device: self.driver.name().into(), name: name.into(), detail, bytes: bytes as u64 }
    }

    /// Runs `work`, and records its span if a profiler wants a timeline. In that case one thread at a time submits,
    /// since marks of concurrent submissions would interleave.
    fn timed(
        self: &Arc<Self>,
        track: Track,
        span: impl FnOnce() -> Span,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if profile::timeline().is_none() {
            return work();
        }
        let mut state = self.clock.lock();
        // The profiler may have ended while this thread waited for the lock.
        let Some(session) = profile::timeline() else {
            drop(state);
            return work();
        };
        self.attach(&mut state, session)?;
        // A driver that batches launches would submit the marks of a copy together with later launches.
        let mark = || {
            let mark = self.driver.mark()?;
            if track == Track::Transfers {
                self.driver.submit()?;
            }
            Ok::<_, Error>(mark)
        };
        let begun = Instant::now();
        let from = if state.has_clock { mark()? } else { None };
        work()?;
        let to = if from.is_some() { mark()? } else { None };
        let span = span();
        let (Some(from), Some(to)) = (from, to) else {
            // Without a device clock, the step's own time covers its launches.
            if track == Track::Transfers {
                profile::host_span(span, begun);
            }
            return Ok(());
        };
        let run = if track == Track::Kernels { profile::current_run() } else { None };
        state.pending.push(Pending { from, to, span, run });
        Ok(())
    }

    /// Registers this clock with the profiler session, unless that is done.
    fn attach(self: &Arc<Self>, state: &mut State<D::Mark>, session: u64) -> Result<()> {
        if state.session == session {
            return if state.pending.len() >= PENDING { self.ask(state) } else { Ok(()) };
        }
        self.driver.synchronize()?;
        let origin = self.driver.mark()?.map(|mark| (mark, profile::now()));
        self.driver.submit()?;
        *state = State { session, has_clock: origin.is_some(), origin, ..State::new() };
        let clock: Arc<dyn DeviceClock> = self.clone();
        profile::attach(session, clock);
        Ok(())
    }

    /// Queries the device for the times of pending spans. Spans without a time are dropped.
    fn ask(&self, state: &mut State<D::Mark>) -> Result<()> {
        let pending = std::mem::take(&mut state.pending);
        let Some((origin, time)) = &mut state.origin else { return Ok(()) };
        for Pending { from, to, span, run } in pending {
            let start = *time + nanoseconds(self.driver.elapsed(origin, &from)?);
            let took = nanoseconds(self.driver.elapsed(&from, &to)?);
            profile::finished_span(state.session, span, start, took);
            if let Some(run) = run {
                *state.runs.entry(run).or_default() += took;
            }
            (*origin, *time) = (to, start + took);
        }
        Ok(())
    }

    /// Runs some work alone and returns its time as text.
    fn timed_alone(&self, work: impl FnOnce() -> Result<()>) -> Result<String> {
        let _alone = self.clock.lock();
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
        let mut state = self.clock.lock();
        let asked = self.ask(&mut state);
        // Steps of several threads interleave, so their times are complete only now.
        std::mem::take(&mut state.runs)
            .into_iter()
            .for_each(|(run, time)| profile::count_device_time(run, time));
        asked
    }
}

/// Converts nanoseconds of the device's clock.
fn nanoseconds(time: f64) -> Duration {
    Duration::from_nanos(time.max(0.0).round() as u64)
}
