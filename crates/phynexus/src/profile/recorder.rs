//! Records events while a profiler runs.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    is_enabled,
    result::{
        Clock, DeviceProfile, Event, HostRow, MemorySample, PeakOrigin, Phase, Profile, ProfileRow, Track,
    },
    since, timeline,
};
use crate::{
    Error, Result,
    device::{Device, MemoryStatistics},
    kernel::step::StepSummary,
};

/// The maximum number of events kept, and of memory samples. Further ones are only counted.
const EVENTS: usize = 400_000;

static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);
static RUNS: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static RUN: Cell<Option<Run>> = const { Cell::new(None) };
    /// When this thread recorded the first operation that is not evaluated yet.
    static RECORDING: Cell<Option<Instant>> = const { Cell::new(None) };
    /// For each phase that this thread is in, the time spent in nested phases.
    static PHASES: RefCell<Vec<Duration>> = const { RefCell::new(Vec::new()) };
    static THREAD: u32 = THREADS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn lock() -> MutexGuard<'static, Option<Recorder>> {
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `action` on the recorder, if a profiler is running.
fn with<T>(action: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    lock().as_mut().map(action)
}

/// A step that a thread is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    session: u64,
    kind: usize,
    number: u64,
    /// True once the device's clock times part of the step.
    timed: bool,
}

/// A device that reports times later.
pub(crate) trait DeviceClock: Send + Sync {
    /// Waits for the outstanding times and reports them with [`finished_span`] and [`count_device_time`].
    fn tell(&self) -> Result<()>;
}

/// A span of time on a device.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) track: Track,
    pub(crate) device: Arc<str>,
    pub(crate) name: Arc<str>,
    /// How it was launched, for display. May be empty.
    pub(crate) detail: String,
    pub(crate) bytes: u64,
}

#[derive(Default)]
struct Times {
    count: u64,
    total: Duration,
    least: Option<Duration>,
    most: Duration,
}

impl Times {
    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.total += time;
        self.least = Some(self.least.map_or(time, |least| least.min(time)));
        self.most = self.most.max(time);
    }
}

/// The data of one row: the steps of one kind, or the transfers in one direction.
struct KindTotals {
    track: Track,
    name: Arc<str>,
    device: Arc<str>,
    count: u64,
    bytes: u64,
    operations: u64,
    own_peak: bool,
    host: Times,
    on_device: Times,
}

pub(crate) struct Recorder {
    pub(super) session: u64,
    started: Instant,
    kinds: Vec<KindTotals>,
    /// Indexed by the address of a summary, which `summaries` keeps alive.
    by_summary: HashMap<usize, usize>,
    summaries: Vec<Arc<StepSummary>>,
    by_name: HashMap<(Track, Arc<str>, Arc<str>), usize>,
    devices: Vec<Device>,
    phases: HashMap<Phase, Times>,
    events: Vec<Event>,
    memory: Vec<MemorySample>,
    left_out: u64,
    pub(super) clocks: Vec<Arc<dyn DeviceClock>>,
}

impl Recorder {
    pub(super) fn new(session: u64) -> Recorder {
        Recorder {
            session,
            started: Instant::now(),
            kinds: Vec::new(),
            by_summary: HashMap::new(),
            summaries: Vec::new(),
            by_name: HashMap::new(),
            devices: Vec::new(),
            phases: HashMap::new(),
            events: Vec::new(),
            memory: Vec::new(),
            left_out: 0,
            clocks: Vec::new(),
        }
    }

    fn named(&mut self, track: Track, device: &str, name: &str) -> usize {
        let key: (Track, Arc<str>, Arc<str>) = (track, device.into(), name.into());
        if let Some(&kind) = self.by_name.get(&key) {
            return kind;
        }
        self.kinds.push(KindTotals {
            track,
            device: key.1.clone(),
            name: key.2.clone(),
            count: 0,
            bytes: 0,
            operations: 0,
            own_peak: false,
            host: Times::default(),
            on_device: Times::default(),
        });
        self.by_name.insert(key, self.kinds.len() - 1);
        self.kinds.len() - 1
    }

    /// Returns the index of a kind of step.
    fn kind(&mut self, device: Device, summary: &Arc<StepSummary>) -> usize {
        let address = Arc::as_ptr(summary).addr();
        if let Some(&kind) = self.by_summary.get(&address) {
            return kind;
        }
        let kind =
            self.named(Track::Kernels, &summary.device, &format!("{} {}", summary.name, summary.detail));
        self.kinds[kind].own_peak = summary.own_peak;
        self.by_summary.insert(address, kind);
        self.summaries.push(summary.clone());
        if !self.devices.contains(&device) {
            self.devices.push(device);
        }
        kind
    }

    fn push(&mut self, event: Event) {
        if self.events.len() < EVENTS { self.events.push(event) } else { self.left_out += 1 }
    }

    fn ran(&mut self, run: Run, summary: &StepSummary, begun: Instant, time: Duration, detailed: bool) {
        let start = since(begun, self.started);
        let kind = &mut self.kinds[run.kind];
        let bytes = (summary.bytes_read + summary.bytes_written) as u64;
        kind.count += 1;
        kind.bytes += bytes;
        kind.operations += summary.operations;
        kind.host.add(time);
        if !detailed {
            return;
        }
        let (track, name) = match run.timed {
            true => (Track::Host, Arc::from(Phase::Submitting.name())),
            false => (Track::Kernels, kind.name.clone()),
        };
        let event = Event {
            track,
            device: kind.device.clone(),
            name,
            detail: if run.timed { kind.name.to_string() } else { String::new() },
            start,
            time,
            bytes: if run.timed { 0 } else { bytes },
            operations: if run.timed { 0 } else { summary.operations },
            clock: Clock::Host,
            thread: THREAD.with(|thread| *thread),
        };
        if run.timed {
            self.phases.entry(Phase::Submitting).or_default().add(time);
        }
        self.push(event);
    }

    fn span(&mut self, span: Span, start: Duration, time: Duration, clock: Clock) {
        if span.track == Track::Transfers {
            let kind = self.named(Track::Transfers, &span.device, &span.name);
            let kind = &mut self.kinds[kind];
            kind.count += 1;
            kind.bytes += span.bytes;
            if clock == Clock::Device { kind.on_device.add(time) } else { kind.host.add(time) }
        }
        self.push(Event {
            track: span.track,
            device: span.device,
            name: span.name,
            detail: span.detail,
            start,
            time,
            bytes: span.bytes,
            operations: 0,
            clock,
            thread: THREAD.with(|thread| *thread),
        });
    }

    pub(super) fn finish(self, failures: Vec<Error>) -> Profile {
        let row = |kind: KindTotals| {
            let (clock, times) = match kind.on_device.count {
                0 => (Clock::Host, kind.host),
                _ => (Clock::Device, kind.on_device),
            };
            ProfileRow {
                track: kind.track,
                name: kind.name.to_string(),
                device: kind.device.to_string(),
                count: kind.count,
                time: times.total,
                least: times.least.unwrap_or_default(),
                most: times.most,
                clock,
                bytes: kind.bytes,
                operations: kind.operations,
                own_peak: kind.own_peak,
            }
        };
        let mut rows: Vec<ProfileRow> = self.kinds.into_iter().filter(|k| k.count > 0).map(row).collect();
        rows.sort_by(|a, b| (a.track, b.time, &a.name).cmp(&(b.track, a.time, &b.name)));
        let mut host: Vec<HostRow> = self
            .phases
            .into_iter()
            .map(|(phase, times)| HostRow { phase, count: times.count, time: times.total })
            .collect();
        host.sort_by_key(|row| row.phase);
        let device = |device: Device| {
            let peaks = device.backend().peaks();
            DeviceProfile {
                device,
                model: device.info().model,
                peaks,
                origin: PeakOrigin::Specification,
                memory: device.memory(),
            }
        };
        let mut events = self.events;
        events.sort_by_key(|event| event.start);
        Profile {
            duration: self.started.elapsed(),
            rows,
            host,
            devices: self.devices.into_iter().map(device).collect(),
            events,
            memory: self.memory,
            left_out: self.left_out,
            failures,
        }
    }
}

/// Runs a step of `device` and records it. A step that fails is not counted.
pub(crate) fn step(
    device: Device,
    summary: &Arc<StepSummary>,
    run: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !is_enabled() {
        return run();
    }
    let detailed = timeline().is_some();
    let Some((session, kind)) = with(|r| (r.session, r.kind(device, summary))) else { return run() };
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    /// Restores the enclosing run, even if an interruption unwinds.
    struct Outer(Option<Run>);
    impl Drop for Outer {
        fn drop(&mut self) {
            RUN.set(self.0.take());
        }
    }
    let outer = Outer(RUN.replace(Some(Run { session, kind, number, timed: false })));
    let begun = Instant::now();
    let result = run();
    let this = RUN.take();
    drop(outer);
    result?;
    let Some(this) = this else { return Ok(()) };
    if detailed && !this.timed {
        // Without this, the host time would only be the time to submit.
        device.synchronize()?;
    }
    let time = begun.elapsed();
    with(|r| {
        if r.session == session {
            r.ran(this, summary, begun, time, detailed);
        }
    });
    Ok(())
}

/// Returns the step that this thread runs, and marks it as timed by its device's clock.
pub(crate) fn current_run() -> Option<Run> {
    let run = RUN.get().map(|run| Run { timed: true, ..run });
    RUN.set(run);
    run
}

/// Adds a clock that is queried at the end.
pub(crate) fn attach(session: u64, clock: Arc<dyn DeviceClock>) {
    with(|r| {
        if r.session == session {
            r.clocks.push(clock);
        }
    });
}

/// Returns the time since the profiler started.
pub(crate) fn now() -> Duration {
    with(|r| r.started.elapsed()).unwrap_or_default()
}

/// Records a span that a device timed, if its profiler is still running.
pub(crate) fn finished_span(session: u64, span: Span, start: Duration, time: Duration) {
    with(|r| {
        if r.session == session {
            r.span(span, start, time, Clock::Device);
        }
    });
}

/// Records the device time of a whole step.
pub(crate) fn count_device_time(run: Run, time: Duration) {
    with(|r| {
        if r.session == run.session {
            r.kinds[run.kind].on_device.add(time);
        }
    });
}

/// Records a span that the host timed, from `begun` until now.
pub(crate) fn host_span(span: Span, begun: Instant) {
    let time = begun.elapsed();
    with(|r| {
        let start = since(begun, r.started);
        r.span(span, start, time, Clock::Host);
    });
}

/// Records the state of a memory pool.
pub(crate) fn memory(device: &str, statistics: &MemoryStatistics) {
    if timeline().is_none() {
        return;
    }
    with(|r| {
        if r.memory.len() < EVENTS {
            r.memory.push(MemorySample {
                device: device.into(),
                at: r.started.elapsed(),
                allocated: statistics.allocated,
                reserved: statistics.reserved,
            });
        } else {
            r.left_out += 1;
        }
    });
}

/// Ends a phase of this thread when dropped.
pub(crate) struct PhaseGuard {
    phase: Phase,
    begun: Instant,
}

/// Begins a phase of this thread. Returns `None` if no profiler records a timeline.
pub(crate) fn phase(phase: Phase) -> Option<PhaseGuard> {
    timeline()?;
    PHASES.with_borrow_mut(|phases| phases.push(Duration::ZERO));
    Some(PhaseGuard { phase, begun: Instant::now() })
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        let time = self.begun.elapsed();
        let inside = PHASES.with_borrow_mut(|phases| {
            let inside = phases.pop().unwrap_or_default();
            if let Some(outer) = phases.last_mut() {
                *outer += time;
            }
            inside
        });
        finish_phase(self.phase, self.begun, time, time.saturating_sub(inside));
    }
}

/// Records a phase: its total time, and its own time without nested phases.
fn finish_phase(phase: Phase, begun: Instant, time: Duration, own: Duration) {
    with(|r| {
        if begun < r.started {
            return;
        }
        r.phases.entry(phase).or_default().add(own);
        let event = Event {
            track: Track::Host,
            device: "host".into(),
            name: phase.name().into(),
            detail: String::new(),
            start: since(begun, r.started),
            time,
            bytes: 0,
            operations: 0,
            clock: Clock::Host,
            thread: THREAD.with(|thread| *thread),
        };
        r.push(event);
    });
}

/// Records that this thread records an operation.
#[inline]
pub(crate) fn note_recording() {
    if timeline().is_some() && RECORDING.get().is_none() {
        RECORDING.set(Some(Instant::now()));
    }
}

/// Records that this thread now evaluates what it has recorded.
pub(crate) fn end_recording() {
    if timeline().is_some()
        && let Some(begun) = RECORDING.take()
    {
        let time = begun.elapsed();
        finish_phase(Phase::Recording, begun, time, time);
    }
}
