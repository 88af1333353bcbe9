//! Submitted collectives: which launches wait for them, and whether they fail.
//!
//! A device has a second stream for collectives, so that kernels run meanwhile. In that stream a collective follows
//! what was submitted to the first one before it. A launch in the first stream waits for a collective only if it
//! touches memory that the collective writes, or writes what the collective reads. Addresses tell: memory that was
//! freed and is used again has the addresses it had.
//!
//! While the host waits for the device, it asks each communicator for errors. A collective that takes longer than the
//! transport's time limit, or whose rank has ended, is aborted, and so the device goes on. Its results, and what was
//! computed from them, are undefined: until the group is closed, every wait is then an error.

use std::{
    cell::Cell,
    collections::VecDeque,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use phynexus::{
    Result,
    kernel::loops::{BufferParameter, Kernel},
};

use crate::communicator::{ASK, Communicator, nap};

/// Memory that a launch touches, by its addresses.
pub struct Touched {
    /// The addresses.
    pub range: Range<u64>,
    /// Whether it writes there.
    pub written: bool,
}

impl Touched {
    /// What a kernel with buffers at these addresses may touch.
    pub fn by(kernel: &Kernel, addresses: &[u64]) -> Vec<Touched> {
        let touch = |(buffer, &start): (&BufferParameter, &u64)| Touched {
            range: start..start.saturating_add((buffer.length * buffer.dtype.size()) as u64),
            written: buffer.written,
        };
        kernel.buffers.iter().zip(addresses).map(touch).collect()
    }
}

/// A collective in the second stream, between two events of the device.
pub struct Flight<E> {
    /// When the first stream has reached the collective.
    begun: E,
    /// When the collective is done.
    done: E,
    communicator: Arc<Communicator>,
    /// The collective's name.
    name: &'static str,
    reads: Range<u64>,
    writes: Range<u64>,
    /// Whether the first stream waits for it already.
    is_joined: AtomicBool,
    /// When the host saw that the device has reached it, and that a rank has ended.
    seen: OnceLock<Instant>,
    lost: OnceLock<Instant>,
}

impl<E> Flight<E> {
    pub(crate) fn new(
        communicator: Arc<Communicator>,
        name: &'static str,
        [reads, writes]: [Range<u64>; 2],
        [begun, done]: [E; 2],
    ) -> Flight<E> {
        let (seen, lost, is_joined) = (OnceLock::new(), OnceLock::new(), AtomicBool::new(false));
        Flight { begun, done, communicator, name, reads, writes, is_joined, seen, lost }
    }

    /// The event after the collective.
    pub(crate) fn done(&self) -> &E {
        &self.done
    }

    /// Whether a launch that touches this memory must wait for the collective.
    pub fn collides(&self, touched: &[Touched]) -> bool {
        let meets = |one: &Range<u64>, other: &Range<u64>| {
            !one.is_empty() && one.start < other.end && other.start < one.end
        };
        touched.iter().any(|Touched { range, written }| {
            meets(range, &self.writes) || *written && meets(range, &self.reads)
        })
    }

    fn is_joined(&self) -> bool {
        self.is_joined.load(Ordering::Acquire)
    }

    /// Notes that the first stream waits for the collective.
    pub(crate) fn join(&self) {
        self.is_joined.store(true, Ordering::Release);
    }

    /// Returns an error, and aborts the communicator, if it fails or takes too long. The device is in this collective if
    /// it `is_reached`.
    fn watch(&self, is_reached: bool) -> Result<()> {
        self.communicator.check(self.name)?;
        if !is_reached {
            return Ok(());
        }
        let seen = self.seen.get_or_init(Instant::now);
        let limit = self.communicator.limit();
        if seen.elapsed() > limit {
            let message = format!("a rank did not come within {} s", limit.as_secs_f64());
            return Err(self.communicator.fail(self.name, &message));
        }
        if self.communicator.is_lost(&self.lost) {
            return Err(self.communicator.fail(self.name, "it cannot end"));
        }
        Ok(())
    }
}

/// A device's collectives that are not known to be done, in order.
pub(crate) struct Flights<E> {
    state: Mutex<State<E>>,
    /// The number of flights and failed communicators.
    count: AtomicUsize,
}

struct State<E> {
    flights: VecDeque<Arc<Flight<E>>>,
    failed: Vec<Weak<Communicator>>,
}

impl<E> Default for Flights<E> {
    fn default() -> Flights<E> {
        let state = State { flights: VecDeque::new(), failed: Vec::new() };
        Flights { state: Mutex::new(state), count: AtomicUsize::new(0) }
    }
}

impl<E> Flights<E> {
    fn lock(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and counts again.
    fn update<T>(&self, change: impl FnOnce(&mut State<E>) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        self.count.store(state.flights.len() + state.failed.len(), Ordering::Release);
        result
    }

    /// Whether no collective is in the stream, and none has failed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Adds a collective, in the order of the stream.
    pub(crate) fn add(&self, flight: Flight<E>) {
        self.update(|state| state.flights.push_back(Arc::new(flight)));
    }

    /// The collectives that the first stream does not wait for, in order.
    pub(crate) fn open(&self) -> Vec<Arc<Flight<E>>> {
        match self.is_quiet() {
            true => Vec::new(),
            false => self.lock().flights.iter().filter(|flight| !flight.is_joined()).cloned().collect(),
        }
    }

    /// Looks which collectives are done, and whether one fails. `has_happened` tells whether the device has passed an
    /// event, or has failed. Does not wait.
    ///
    /// # Errors
    /// The first failure of an open group, also after it was returned before.
    pub(crate) fn check(&self, has_happened: impl Fn(&E) -> bool) -> Result<()> {
        if self.is_quiet() {
            return Ok(());
        }
        while let Some(flight) = self.first() {
            let is_done = has_happened(&flight.done);
            // A collective that was aborted is done, too.
            let watched = match is_done {
                true => flight.communicator.failure().cloned().map_or(Ok(()), Err),
                false => flight.watch(has_happened(&flight.begun)),
            };
            if watched.is_err() {
                self.update(|state| {
                    let failed = Arc::downgrade(&flight.communicator);
                    if !state.failed.iter().any(|other| other.ptr_eq(&failed)) {
                        state.failed.push(failed);
                    }
                });
            }
            if !is_done {
                break;
            }
            let is_same =
                |first: Option<&Arc<Flight<E>>>| first.is_some_and(|first| Arc::ptr_eq(first, &flight));
            let first = |state: &mut State<E>| match is_same(state.flights.front()) {
                true => state.flights.pop_front(),
                false => None,
            };
            // Dropped without the lock: this may end a communicator.
            drop(self.update(first));
        }
        let failed: Vec<Arc<Communicator>> = self.update(|state| {
            state.failed.retain(|failed| failed.strong_count() > 0);
            state.failed.iter().filter_map(Weak::upgrade).collect()
        });
        failed.iter().find_map(|failed| failed.failure().cloned()).map_or(Ok(()), Err)
    }

    fn first(&self) -> Option<Arc<Flight<E>>> {
        self.lock().flights.front().cloned()
    }

    /// Waits until `is_done`, or until there is nothing left to watch.
    ///
    /// # Errors
    /// As [`Flights::check`].
    pub(crate) fn watch(&self, is_done: impl Fn() -> bool, has_happened: impl Fn(&E) -> bool) -> Result<()> {
        let begun = Instant::now();
        let look = self.look(&has_happened);
        while !self.is_quiet() && !is_done() {
            look()?;
            nap(begun);
        }
        self.check(&has_happened)
    }

    /// A function that a wait calls in its loop. It does [`Flights::check`] every [`ASK`], because that costs a system
    /// call for each rank over some transports.
    pub(crate) fn look(&self, has_happened: impl Fn(&E) -> bool) -> impl Fn() -> Result<()> {
        let asked = Cell::new(Instant::now());
        move || {
            if asked.get().elapsed() <= ASK {
                return Ok(());
            }
            asked.set(Instant::now());
            self.check(&has_happened)
        }
    }
}
