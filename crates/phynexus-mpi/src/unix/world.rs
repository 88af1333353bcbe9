//! The ranks of the job, as one of them sees them: their communicator, and waiting for them.

use std::{
    ffi::c_int,
    hint,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use phynexus::{Error, Result, interrupt};

use super::{
    api::{Api, Fault, Transfer, turn},
    arrivals::Arrivals,
    dialect::Handle,
    end,
};

/// A wait polls without a break for `ACTIVE`, which is longer than a piece of a message takes within a host, then every
/// `NAP`. A thread that yields between polls instead uses up its share of a busy processor.
const ACTIVE: Duration = Duration::from_micros(200);
const NAP: Duration = Duration::from_micros(50);

/// Bytes of a message's piece. The memory of two pieces about fits into a core's second-level cache, so that the copies
/// cost little.
pub(crate) const PIECE: usize = 1 << 18;

/// Pieces of memory that are kept for later messages.
const SPARE: usize = 8;

/// What only one thread of the process may use at a time, because messages are told apart by their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    SendTo(usize),
    ReceiveFrom(usize),
    /// Collectives of all ranks.
    All,
}

/// The ranks of the job.
pub(crate) struct World<H: Handle> {
    pub(crate) api: &'static Api<H>,
    /// A copy of `MPI_COMM_WORLD`, so that messages of others who use MPI in this process are not received here.
    pub(crate) communicator: H,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) limit: Duration,
    /// The first failure. Ranks then disagree on what comes next, so nothing follows it.
    failure: OnceLock<String>,
    claims: Mutex<Vec<Channel>>,
    spare: Mutex<Vec<Vec<u8>>>,
    /// The number of collectives of all ranks that this one has begun.
    begun: AtomicU64,
    arrivals: Arrivals<H>,
}

/// Locks what threads change in one step.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a thread's use of channels.
struct Claim<'a> {
    claims: &'a Mutex<Vec<Channel>>,
    channels: &'a [Channel],
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        lock(self.claims).retain(|held| !self.channels.contains(held));
    }
}

/// Why a wait ended early.
enum Stop {
    Interrupted(Error),
    TooLate,
}

/// A wait for other ranks.
struct Clock {
    since: Instant,
    limit: Duration,
    /// Whether the half of the limit has passed.
    is_slow: bool,
}

impl Clock {
    fn new(limit: Duration) -> Clock {
        Clock { since: Instant::now(), limit, is_slow: false }
    }

    /// Passes some time. Returns whether the half of the limit passed just now.
    fn pass(&mut self) -> std::result::Result<bool, Stop> {
        interrupt::check().map_err(Stop::Interrupted)?;
        let waited = self.since.elapsed();
        if waited > self.limit {
            return Err(Stop::TooLate);
        }
        if waited < ACTIVE {
            hint::spin_loop()
        } else {
            thread::sleep(NAP)
        }
        let was_slow = self.is_slow;
        self.is_slow |= waited > self.limit / 2;
        Ok(self.is_slow && !was_slow)
    }
}

/// A call of the transport: it waits for other ranks, and has errors that name it.
pub(crate) struct Call<'a, H: Handle> {
    pub(crate) world: &'a World<H>,
    op: &'static str,
    clock: Clock,
}

impl<H: Handle> Call<'_, H> {
    /// Restarts the clock, after another rank did something.
    pub(crate) fn progressed(&mut self) {
        self.clock = Clock::new(self.world.limit);
    }

    /// Passes some time in a wait.
    ///
    /// # Errors
    /// If the wait was interrupted, or took too long. `late` then says for whom it waited; otherwise the ranks that
    /// have not begun as many collectives are named.
    pub(crate) fn pass(&mut self, late: Option<&dyn Fn() -> String>) -> Result<()> {
        let world = self.world;
        match self.clock.pass() {
            Ok(true) => {
                let own = [world.rank as u64, world.begun.load(Ordering::Relaxed)];
                world.arrivals.announce(world.api, world.communicator, world.size, own);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(Stop::Interrupted(error)) => Err(error),
            Err(Stop::TooLate) => {
                let seconds = world.limit.as_secs_f64();
                Err(self.failed(match late {
                    Some(late) => format!("{} for {seconds} s", late()),
                    None => world.missing(seconds),
                }))
            }
        }
    }

    /// An error of this call.
    pub(crate) fn failed(&self, message: String) -> Error {
        self.world.failed(self.op, message)
    }

    /// Adds this call to a message of MPI.
    pub(crate) fn check<T>(&self, result: std::result::Result<T, Fault>) -> Result<T> {
        result.map_err(|fault| self.failed(fault))
    }
}

impl<H: Handle> World<H> {
    /// Connects the ranks. All call this.
    pub(crate) fn connect(api: &'static Api<H>, limit: Duration) -> Result<World<H>> {
        let functions = &api.functions;
        let number = |name, function: unsafe extern "C" fn(H, *mut c_int) -> c_int| {
            let mut number = 0;
            let turn = turn();
            // SAFETY: the communicator exists once MPI is initialised; the function writes one number.
            let code = unsafe { function(api.dialect.world, &mut number) };
            drop(turn);
            api.check(name, code).map_err(|fault| Error::argument("mpi", fault))?;
            usize::try_from(number).map_err(|_| Error::argument("mpi", format!("{name} returned {number}")))
        };
        let mut world = World {
            api,
            communicator: api.dialect.world,
            rank: number("MPI_Comm_rank", functions.MPI_Comm_rank)?,
            size: number("MPI_Comm_size", functions.MPI_Comm_size)?,
            limit,
            failure: OnceLock::new(),
            claims: Mutex::default(),
            spare: Mutex::default(),
            begun: AtomicU64::new(0),
            arrivals: Arrivals::default(),
        };
        world.communicator = world.copy_communicator().inspect_err(|_| end::failed())?;
        Ok(world)
    }

    fn copy_communicator(&self) -> Result<H> {
        let (api, functions) = (self.api, &self.api.functions);
        let failed = |message| self.failed("connect", message);
        // MPI writes it later, perhaps after this call failed: it is never freed.
        let address: *mut H = Box::into_raw(Box::default());
        let mut transfer = Transfer::begin(api, "MPI_Comm_idup", Vec::new(), |_, request| {
            // SAFETY: the addresses are valid until the request is complete.
            unsafe { (functions.MPI_Comm_idup)(api.dialect.world, address, request) }
        })
        .map_err(failed)?;
        let mut clock = Clock::new(self.limit);
        while transfer.test().map_err(failed)?.is_none() {
            clock.pass().map_err(|stop| match stop {
                Stop::Interrupted(error) => error,
                Stop::TooLate => {
                    failed(format!("a rank has not called it for {} s", self.limit.as_secs_f64()))
                }
            })?;
        }
        // SAFETY: MPI has written it.
        let copy = unsafe { address.read() };
        let turn = turn();
        // SAFETY: both are handles of MPI.
        let code = unsafe { (functions.MPI_Comm_set_errhandler)(copy, api.dialect.errors_return) };
        drop(turn);
        api.check("MPI_Comm_set_errhandler", code).map_err(failed)?;
        Ok(copy)
    }

    fn failed(&self, op: &'static str, message: String) -> Error {
        Error::Collective { op, rank: self.rank, size: self.size, message }
    }

    /// Says who has not come to a collective.
    fn missing(&self, seconds: f64) -> String {
        let own = [self.rank as u64, self.begun.load(Ordering::Relaxed)];
        let late = self.arrivals.late(self.api, self.communicator, self.size, own);
        let names: Vec<String> = late.iter().map(usize::to_string).collect();
        match &names[..] {
            [] => format!(
                "waited {seconds} s. Every rank waits, but not for the same: all ranks must run the same collectives \
                 in the same order, and none may fail"
            ),
            [rank] => format!("rank {rank} has not called it for {seconds} s"),
            [ranks @ .., last] => {
                format!("ranks {} and {last} have not called it for {seconds} s", ranks.join(", "))
            }
        }
    }

    /// Runs a call that uses channels. If it fails, so do all later ones.
    pub(crate) fn call<T>(
        &self,
        op: &'static str,
        channels: &[Channel],
        work: impl FnOnce(&mut Call<'_, H>) -> Result<T>,
    ) -> Result<T> {
        let mut call = Call { world: self, op, clock: Clock::new(self.limit) };
        let _claim = self.claim(channels, &mut call)?;
        if let Some(failure) = self.failure.get() {
            let message = format!("nothing can follow an earlier failure ({failure}): start the job again");
            return Err(call.failed(message));
        }
        call.progressed();
        if channels.contains(&Channel::All) {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        work(&mut call).inspect_err(|error| {
            end::failed();
            let _ = self.failure.set(error.to_string());
        })
    }

    fn claim<'a>(&'a self, channels: &'a [Channel], call: &mut Call<'_, H>) -> Result<Claim<'a>> {
        loop {
            let mut claims = lock(&self.claims);
            if !claims.iter().any(|held| channels.contains(held)) {
                claims.extend_from_slice(channels);
                return Ok(Claim { claims: &self.claims, channels });
            }
            drop(claims);
            call.pass(Some(&|| "another thread of this process has been in a collective".to_owned()))?;
        }
    }

    /// Memory for a message, at least this large, of any contents.
    pub(crate) fn memory(&self, bytes: usize) -> Vec<u8> {
        let mut memory = lock(&self.spare).pop().unwrap_or_default();
        if memory.len() < bytes {
            memory.resize(bytes, 0);
        }
        memory
    }

    /// Keeps memory for the next message.
    pub(crate) fn recycle(&self, memory: Vec<u8>) {
        let mut spare = lock(&self.spare);
        if spare.len() < SPARE {
            spare.push(memory);
        }
    }
}
