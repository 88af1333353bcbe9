//! Processes that compute together: finding each other, and a transport between them.
//!
//! ```
//! use neurenix::distributed::{self, InitOptions};
//!
//! // Without a launcher: rank 0 of 1.
//! let world = distributed::init(&InitOptions::default())?;
//! println!("rank {} of {}", world.rank(), world.size());
//! distributed::destroy();
//! # Ok::<(), neurenix::Error>(())
//! ```
//!
//! A launcher (`torchrun`, `mpirun`, `srun`) starts the same program several times and tells each process its rank:
//! [`Environment`] lists the variables. [`init`] opens the group of all processes. [`phynexus::distributed`] has its
//! collectives and subgroups. Rank 0 opens a [`Store`] at `MASTER_ADDR` and `MASTER_PORT` while the ranks connect
//! ([`Tcp`]); afterwards the port is free again.
//!
//! There is neither encryption nor authentication: use it in networks that you trust.

mod data_parallel;
mod division;
mod environment;
mod store;
mod tcp;
mod wait;

use std::{
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

pub use data_parallel::{DataParallel, DataParallelOptions, broadcast};
pub use division::Division;
pub use environment::{Environment, Launcher};
use phynexus::distributed::Group;
pub use store::Store;
pub use tcp::Tcp;

use crate::{Error, Result};

/// The time limit of collectives unless another one is set.
pub const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// What carries bytes between the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// MPI in processes that `mpirun` started, if its library is found; otherwise TCP.
    #[default]
    Auto,
    /// TCP.
    Tcp,
    /// MPI.
    Mpi,
}

impl FromStr for Backend {
    type Err = Error;

    /// `gloo` is PyTorch's name of such a backend.
    fn from_str(name: &str) -> Result<Backend> {
        match name {
            "auto" => Ok(Backend::Auto),
            "tcp" | "gloo" => Ok(Backend::Tcp),
            "mpi" => Ok(Backend::Mpi),
            _ => {
                let message = format!("there is no backend {name:?}: use tcp (or gloo), mpi or auto");
                Err(phynexus::Error::argument("init", message).into())
            }
        }
    }
}

/// How [`init`] opens the world.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// What carries bytes between the ranks.
    pub backend: Backend,
    /// How long a rank waits for another one: see [`Tcp`].
    pub timeout: Duration,
    /// This process's rank, in place of the launcher's. Needs `world_size`.
    pub rank: Option<usize>,
    /// The number of processes, in place of the launcher's. Needs `rank`.
    pub world_size: Option<usize>,
    /// The name or address of the host of rank 0, in place of `MASTER_ADDR`.
    pub address: Option<String>,
    /// The port of the store, in place of `MASTER_PORT`.
    pub port: Option<u16>,
}

impl Default for InitOptions {
    fn default() -> InitOptions {
        let (rank, world_size, address, port) = (None, None, None, None);
        InitOptions { backend: Backend::Auto, timeout: TIMEOUT, rank, world_size, address, port }
    }
}

impl InitOptions {
    /// The environment with these options in place of its variables.
    fn environment(&self, lookup: impl Fn(&str) -> Option<String>) -> Result<Environment> {
        let has_place = self.rank.is_some() || self.world_size.is_some();
        let number = |number: Option<usize>| number.map(|number| number.to_string());
        let mut environment = Environment::read(|name| match name {
            "RANK" => number(self.rank).or_else(|| lookup(name)),
            "WORLD_SIZE" => number(self.world_size).or_else(|| lookup(name)),
            // They belong to the launcher's ranks.
            "LOCAL_RANK" | "LOCAL_WORLD_SIZE" if has_place => None,
            "MASTER_ADDR" => self.address.clone().or_else(|| lookup(name)),
            _ => lookup(name),
        })?;
        environment.master_port = self.port.or(environment.master_port);
        Ok(environment)
    }
}

/// The group of all processes, if there is one.
enum State {
    None,
    Opening,
    Open(Arc<Group>),
}

static WORLD: Mutex<State> = Mutex::new(State::None);
/// How many worlds this process has opened. Its peers have opened as many.
static OPENED: AtomicU32 = AtomicU32::new(0);

fn state() -> MutexGuard<'static, State> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the group of all processes of the job, which all call this. A process that no launcher started is alone.
///
/// # Errors
/// [`Error::Environment`] if variables are missing or contradict each other; [`Error::Store`] if rank 0 cannot be
/// reached; [`Error::Engine`] if another rank fails or does not come in time, and if the world is open already.
pub fn init(options: &InitOptions) -> Result<Arc<Group>> {
    let environment = options.environment(environment::process_variable)?;
    let refuse = |message| Err(phynexus::Error::argument("init", message).into());
    {
        let mut state = state();
        match *state {
            State::None => *state = State::Opening,
            State::Opening => return refuse("another thread opens the process group at the moment"),
            State::Open(_) => return refuse("the process group is open already: call destroy() first"),
        }
    }
    /// Lets another call try if this one fails.
    struct Attempt;
    impl Drop for Attempt {
        fn drop(&mut self) {
            let mut state = state();
            if matches!(*state, State::Opening) {
                *state = State::None;
            }
        }
    }
    let _attempt = Attempt;
    let group = open(options, &environment)?;
    OPENED.fetch_add(1, Ordering::Relaxed);
    *state() = State::Open(group.clone());
    Ok(group)
}

/// The group of all processes, if [`init`] opened it.
pub fn world() -> Option<Arc<Group>> {
    match &*state() {
        State::Open(group) => Some(group.clone()),
        _ => None,
    }
}

/// Closes the group of all processes: the others learn that this one leaves. Call it before the process exits. Does
/// nothing if the group is not open.
pub fn destroy() {
    let closed = {
        let mut state = state();
        match *state {
            State::Open(_) => std::mem::replace(&mut *state, State::None),
            _ => return,
        }
    };
    if let State::Open(group) = closed {
        group.close();
        group.transport().leave();
    }
}

fn open(options: &InitOptions, environment: &Environment) -> Result<Arc<Group>> {
    let is_mpirun = matches!(environment.launcher, Launcher::OpenMpi | Launcher::Mpich);
    let mpi = match options.backend {
        Backend::Mpi => Some(phynexus_mpi::connect(options.timeout)?),
        // Without the launcher's library, its variables are enough for TCP.
        Backend::Auto if is_mpirun && phynexus_mpi::is_found() => {
            Some(phynexus_mpi::connect(options.timeout)?)
        }
        Backend::Auto | Backend::Tcp => None,
    };
    if let Some(transport) = mpi {
        return Ok(Group::open(transport));
    }
    let tcp = match environment.world_size {
        1 => Tcp::single(options.timeout),
        _ => {
            let scope = format!("{}.{}", environment.restart_count, OPENED.load(Ordering::Relaxed));
            rendezvous(environment, &scope, options.timeout)?
        }
    };
    Ok(Group::open(tcp))
}

/// Whether an MPI library is found.
pub fn has_mpi() -> bool {
    phynexus_mpi::is_found()
}

/// Whether NCCL is found, which carries the tensors of NVIDIA GPUs.
pub fn has_nccl() -> bool {
    phynexus_cuda::nccl_version().is_ok()
}

/// Connects the ranks through the store of rank 0.
fn rendezvous(environment: &Environment, scope: &str, timeout: Duration) -> Result<Arc<Tcp>> {
    let &Environment { rank, world_size, .. } = environment;
    let Some(address) = &environment.master_addr else {
        let message = "it is not set: set it to the name or address of the host of rank 0, such as with \
                       `mpirun -x MASTER_ADDR=HOST`";
        return Err(Error::environment("MASTER_ADDR", message));
    };
    let Some(port) = environment.master_port else {
        let message = "it is not set: set it to a port that is free on the host of rank 0, such as 29500";
        return Err(Error::environment("MASTER_PORT", message));
    };
    let until = store::deadline(timeout);
    loop {
        let store = Store::connect(address, port, rank == 0, store::rest(until))?;
        match Tcp::connect(&store, scope, rank, world_size, store::rest(until), timeout) {
            // This was the store of an earlier group, which rank 0 was about to close.
            Err(error) if rank != 0 && store::is_lost(&error) && !store::rest(until).is_zero() => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests;
