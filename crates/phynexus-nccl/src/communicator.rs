//! A communicator: starting, enqueueing, errors, ending.

use std::{
    ffi::{c_int, c_void},
    hint, ptr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use phynexus::{
    Error, Result,
    distributed::{Group, Transport},
    interrupt,
    op::{CollectiveKind, Combine},
};

use crate::{
    Endpoint,
    call::{Call, combination},
    library::{Config, Handle, IN_PROGRESS, Library, SUCCESS, UniqueId},
};

/// A wait spins for `ACTIVE`, then polls every `NAP`.
const ACTIVE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(100);
/// How long the end of a communicator may take before it is aborted.
const LAST: Duration = Duration::from_secs(5);
/// How long a wait goes on after one of the ranks was seen to have ended: it may have had its part.
const GRACE: Duration = Duration::from_secs(5);
/// How often a wait asks for errors, and for ranks that ended.
pub(crate) const ASK: Duration = Duration::from_millis(1);

/// Waits a moment in a loop that began at this time.
pub(crate) fn nap(begun: Instant) {
    if begun.elapsed() < ACTIVE { hint::spin_loop() } else { thread::sleep(NAP) }
}

/// Who takes part, for errors.
#[derive(Clone)]
pub(crate) struct Member {
    /// This process's rank in the group.
    pub(crate) rank: usize,
    /// The number of the group's members.
    pub(crate) size: usize,
    /// The communicator's ranks as numbers in the group.
    pub(crate) ranks: Vec<usize>,
}

impl Member {
    pub(crate) fn of(group: &Group) -> Member {
        Member { rank: group.rank(), size: group.size(), ranks: (0..group.size()).collect() }
    }

    /// The error of a collective.
    pub(crate) fn error(&self, op: &'static str, message: String) -> Error {
        Error::Collective { op, rank: self.rank, size: self.size, message }
    }

    /// Gives a transport's error the numbers of the group, and the collective.
    pub(crate) fn named(&self, op: &'static str, error: Error) -> Error {
        match error {
            Error::Collective { message, .. } => self.error(op, message),
            other => other,
        }
    }
}

/// The library's communicator; null once it was aborted.
struct Open(Handle);

// SAFETY: the library's communicators may be used from any thread, by one at a time.
unsafe impl Send for Open {}

/// A communicator of the library.
pub(crate) struct Communicator {
    library: &'static Library,
    handle: Mutex<Open>,
    member: Member,
    /// Of the communicator's ranks. It knows which of them ended, and how long one waits for another.
    transport: Arc<dyn Transport>,
    /// Whether a thread is enqueueing.
    is_busy: AtomicBool,
    failure: OnceLock<Error>,
}

/// Marks a communicator as in use.
struct Busy<'a>(&'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Communicator {
    /// The number of a new communicator.
    pub(crate) fn unique_id(library: &Library) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (library.functions.ncclGetUniqueId)(&mut id) };
        if code == SUCCESS { Ok(id) } else { Err(library.text(code, ptr::null_mut())) }
    }

    /// Starts a communicator of the transport's ranks, which all call this.
    ///
    /// # Errors
    /// Why it does not start.
    pub(crate) fn start(
        endpoint: &dyn Endpoint,
        library: &'static Library,
        id: UniqueId,
        transport: &Arc<dyn Transport>,
        member: &Member,
    ) -> Result<Communicator, String> {
        endpoint.bind().map_err(|error| error.to_string())?;
        let mut handle = ptr::null_mut();
        let mut config = Config::non_blocking();
        let [size, rank] = [transport.size(), transport.rank()].map(|number| number as c_int);
        // SAFETY: the pointers are valid for the call, and the configuration has the size that it says.
        let code =
            unsafe { (library.functions.ncclCommInitRankConfig)(&mut handle, size, id, rank, &mut config) };
        let made = Communicator {
            library,
            handle: Mutex::new(Open(handle)),
            member: member.clone(),
            transport: transport.clone(),
            is_busy: AtomicBool::new(false),
            failure: OnceLock::new(),
        };
        // Half of the time, so that others still hear of a failure.
        match made.settled(code, transport.time_limit() / 2) {
            Ok(()) => Ok(made),
            Err(reason) => {
                let reason = format!("{reason}{}", made.ended_in_words());
                made.abort();
                Err(reason)
            }
        }
    }

    fn rank(&self) -> usize {
        self.transport.rank()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of what was begun, or what the library reports meanwhile.
    fn state(&self, open: &Open) -> c_int {
        let mut state = SUCCESS;
        // SAFETY: the communicator is valid, the lock keeps others from using it, and the pointer is valid for the call.
        let code = unsafe { (self.library.functions.ncclCommGetAsyncError)(open.0, &mut state) };
        if code == SUCCESS { state } else { code }
    }

    /// Waits until what returned this code is done: a thread of the library may go on with it.
    fn settled(&self, mut code: c_int, limit: Duration) -> Result<(), String> {
        let begun = Instant::now();
        let mut asked = begun;
        let lost = OnceLock::new();
        while code == IN_PROGRESS {
            if begun.elapsed() > limit {
                let seconds = limit.as_secs_f64();
                return Err(format!("the ranks did not connect within {seconds} s"));
            }
            if asked.elapsed() > ASK {
                if self.is_lost(&lost) {
                    return Err("it cannot end".to_owned());
                }
                asked = Instant::now();
            }
            if interrupt::requested() {
                return Err("it was interrupted".to_owned());
            }
            nap(begun);
            let open = self.lock();
            if open.0.is_null() {
                return Err("it was aborted".to_owned());
            }
            code = self.state(&open);
        }
        match code {
            SUCCESS => Ok(()),
            code => Err(self.library.text(code, self.lock().0)),
        }
    }

    /// The error, if the communicator has failed.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }

    /// Ends the communicator. What is in a stream ends, with undefined results.
    fn abort(&self) {
        let handle = std::mem::replace(&mut self.lock().0, ptr::null_mut());
        if !handle.is_null() {
            // SAFETY: the communicator was valid, and this was its only handle.
            unsafe { (self.library.functions.ncclCommAbort)(handle) };
        }
    }

    /// Ends the communicator after a failure. Returns the error, which later uses get too.
    pub(crate) fn fail(&self, op: &'static str, message: &str) -> Error {
        let message = format!("{message}{}", self.ended_in_words());
        let error = self.failure.get_or_init(|| self.member.error(op, message)).clone();
        self.abort();
        error
    }

    /// The other ranks of the communicator that are known to have ended.
    fn ended(&self) -> impl Iterator<Item = usize> {
        let others = (0..self.transport.size()).filter(|&rank| rank != self.rank());
        others.filter(|&rank| self.transport.has_ended(rank))
    }

    /// The end of an error's message, which names them.
    fn ended_in_words(&self) -> String {
        let words = |rank| format!("; rank {} has ended", self.member.ranks[rank]);
        self.ended().map(words).collect()
    }

    /// Whether a rank has ended too long ago to go on. `lost` gets the time when this was first seen.
    pub(crate) fn is_lost(&self, lost: &OnceLock<Instant>) -> bool {
        self.ended().next().is_some() && lost.get_or_init(Instant::now).elapsed() > GRACE
    }

    /// How long a collective may take once the device has reached it.
    pub(crate) fn limit(&self) -> Duration {
        self.transport.time_limit()
    }

    /// Returns an error if the communicator has failed, or the library reports in this collective that it has. Does not
    /// wait.
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        let code = match self.handle.try_lock() {
            Ok(open) if !open.0.is_null() => self.state(&open),
            Err(TryLockError::Poisoned(open)) if !open.get_ref().0.is_null() => self.state(open.get_ref()),
            // Another thread is using it, and will hear of it.
            _ => SUCCESS,
        };
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            code => {
                let text = self.library.text(code, self.lock().0);
                Err(self.fail(op, &text))
            }
        }
    }

    /// Submits a collective to a stream of the endpoint, which must be current.
    ///
    /// # Safety
    /// The operand and the result must be memory of the endpoint with the bytes of the call, until the stream has passed
    /// it, and they must not overlap.
    ///
    /// # Errors
    /// [`Error::Collective`] if the communicator fails or has failed.
    pub(crate) unsafe fn enqueue(
        &self,
        endpoint: &dyn Endpoint,
        call: &Call,
        [operand, result]: [u64; 2],
        stream: *mut c_void,
    ) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error.clone());
        }
        if self.is_busy.swap(true, Ordering::AcqRel) {
            let message = "two threads of this process run collectives of the group at once: use one thread";
            return Err(self.member.error(call.kind.name(), message.to_owned()));
        }
        let _busy = Busy(&self.is_busy);
        if call.operand == 0 || call.result == 0 {
            return Ok(());
        }
        let gets_zeros = match call.kind {
            CollectiveKind::Reduce { root } => root as usize != self.rank(),
            CollectiveKind::Send { .. } => true,
            _ => false,
        };
        if gets_zeros {
            // SAFETY: guaranteed by the caller.
            unsafe { endpoint.zero(result, call.result_bytes(), stream) }?;
        }
        let open = self.lock();
        // SAFETY: guaranteed by the caller.
        let code = unsafe { self.submit(&open, call, [operand, result], stream) };
        drop(open);
        self.settled(code, self.limit()).map_err(|reason| {
            let error = self.fail(call.kind.name(), &reason);
            interrupt::check().err().unwrap_or(error)
        })
    }

    /// # Safety
    /// As for [`Communicator::enqueue`].
    unsafe fn submit(&self, open: &Open, call: &Call, [operand, result]: [u64; 2], stream: Handle) -> c_int {
        let &Open(handle) = open;
        let functions = &self.library.functions;
        let &Call { kind, dtype, .. } = call;
        let from: *const c_void = ptr::with_exposed_provenance(operand as usize);
        let to: *mut c_void = ptr::with_exposed_provenance_mut(result as usize);
        let peer = |rank: u32| -> c_int {
            let place = self.member.ranks.iter().position(|&member| member == rank as usize);
            place.map_or(-1, |place| place as c_int)
        };
        let sum = combination(Combine::Sum);
        // SAFETY: the communicator is valid; the caller guarantees the same of the memory and of the stream.
        unsafe {
            match kind {
                CollectiveKind::AllReduce(combine, _) => {
                    let by = combination(combine);
                    (functions.ncclAllReduce)(from, to, call.operand, dtype, by, handle, stream)
                }
                CollectiveKind::Reduce { root } => {
                    (functions.ncclReduce)(from, to, call.operand, dtype, sum, peer(root), handle, stream)
                }
                CollectiveKind::ReduceScatter(combine) => {
                    let by = combination(combine);
                    (functions.ncclReduceScatter)(from, to, call.result, dtype, by, handle, stream)
                }
                CollectiveKind::AllGather { .. } => {
                    (functions.ncclAllGather)(from, to, call.operand, dtype, handle, stream)
                }
                CollectiveKind::Broadcast { root } => {
                    (functions.ncclBroadcast)(from, to, call.operand, dtype, peer(root), handle, stream)
                }
                CollectiveKind::Send { to } => {
                    (functions.ncclSend)(from, call.operand, dtype, peer(to), handle, stream)
                }
                CollectiveKind::Receive { from } => {
                    (functions.ncclRecv)(to, call.result, dtype, peer(from), handle, stream)
                }
                CollectiveKind::AllToAll => self.all_to_all(open, call, [from, to.cast_const()], stream),
            }
        }
    }

    /// # Safety
    /// As for [`Communicator::enqueue`].
    unsafe fn all_to_all(
        &self,
        open: &Open,
        call: &Call,
        [from, to]: [*const c_void; 2],
        stream: Handle,
    ) -> c_int {
        let functions = &self.library.functions;
        let size = self.transport.size();
        let part = call.operand / size;
        // SAFETY: the function has no preconditions.
        let begun = unsafe { (functions.ncclGroupStart)() };
        if begun != SUCCESS {
            return begun;
        }
        for rank in 0..size {
            let place = rank * part * call.width;
            // SAFETY: the communicator is valid, and the parts lie within the operand and the result.
            unsafe {
                let sent = from.wrapping_byte_add(place);
                (functions.ncclSend)(sent, part, call.dtype, rank as c_int, open.0, stream);
                let received = to.wrapping_byte_add(place).cast_mut();
                (functions.ncclRecv)(received, part, call.dtype, rank as c_int, open.0, stream);
            }
        }
        // Of the whole group, this returns the first failure.
        // SAFETY: a group was begun.
        unsafe { (functions.ncclGroupEnd)() }
    }
}

impl Drop for Communicator {
    /// What was submitted has been done: a [flight](crate::Flight) keeps its communicator.
    fn drop(&mut self) {
        let Open(handle) = *self.lock();
        if handle.is_null() {
            return;
        }
        // SAFETY: the communicator is valid, and nothing else uses it anymore.
        let mut code = unsafe { (self.library.functions.ncclCommFinalize)(handle) };
        let begun = Instant::now();
        while code == IN_PROGRESS && begun.elapsed() < LAST {
            nap(begun);
            code = self.state(&Open(handle));
        }
        if code != SUCCESS {
            return self.abort();
        }
        // SAFETY: as above.
        unsafe { (self.library.functions.ncclCommDestroy)(handle) };
    }
}
