//! Loads MPI and initialises it, once in a process.

use std::{
    ffi::c_int,
    ptr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use libloading::os::unix::Library;
use phynexus::{Error, Result, distributed::Transport};

use super::{
    api::{Api, turn},
    dialect::{self, Dialect, Handle},
    end,
    launcher::Launcher,
    library::{self, Family},
    world::World,
};

/// An initialised MPI, by its kind of handles.
#[derive(Clone, Copy)]
enum Loaded {
    Numbers(&'static Api<c_int>),
    Addresses(&'static Api<usize>),
}

#[derive(Clone, Copy)]
enum State {
    New,
    /// A thread initialises it.
    Busy,
    Ready(Loaded),
}

static STATE: Mutex<State> = Mutex::new(State::New);

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn connect(limit: Duration) -> Result<Arc<dyn Transport>> {
    match load(limit)? {
        Loaded::Numbers(api) => join(api, limit),
        Loaded::Addresses(api) => join(api, limit),
    }
}

fn join<H: Handle>(api: &'static Api<H>, limit: Duration) -> Result<Arc<dyn Transport>> {
    Ok(Arc::new(World::connect(api, limit)?))
}

fn load(limit: Duration) -> Result<Loaded> {
    let mut state = state();
    match *state {
        State::Ready(loaded) => return Ok(loaded),
        State::Busy => return Err(wrong("another thread initialises MPI: connect once, in one thread")),
        State::New => *state = State::Busy,
    }
    drop(state);
    let loaded = initialise(limit);
    *self::state() = loaded.as_ref().map_or(State::New, |&loaded| State::Ready(loaded));
    loaded
}

fn wrong(message: impl Into<String>) -> Error {
    Error::argument("mpi", message)
}

fn initialise(limit: Duration) -> Result<Loaded> {
    let (launcher, size) = Launcher::find();
    let (family, library) = library::open(launcher).map_err(wrong)?;
    // MPI cannot be unloaded: it has threads and handlers.
    let library: &'static Library = Box::leak(Box::new(library));
    match family {
        Family::OpenMpi => {
            let dialect = dialect::open_mpi(library).map_err(|error| wrong(library::reason(&error)))?;
            Ok(Loaded::Addresses(begin(library, dialect, launcher, size, limit)?))
        }
        Family::Mpich => Ok(Loaded::Numbers(begin(library, dialect::MPICH, launcher, size, limit)?)),
        Family::Standard => Ok(Loaded::Addresses(begin(library, dialect::STANDARD, launcher, size, limit)?)),
    }
}

/// Initialises MPI unless another library in this process has done so, and checks that it fits.
fn begin<H: Handle>(
    opened: &Library,
    dialect: Dialect<H>,
    launcher: Launcher,
    size: Option<usize>,
    limit: Duration,
) -> Result<&'static Api<H>> {
    let api = Api::open(opened, dialect).map_err(|error| {
        let missing = library::reason(&error);
        wrong(format!("MPI 3.0 or later is needed, but the library lacks a function: {missing}"))
    })?;
    let api: &'static Api<H> = Box::leak(Box::new(api));
    let functions = &api.functions;
    if api.number("MPI_Finalized", functions.MPI_Finalized).map_err(wrong)? != 0 {
        return Err(wrong("MPI was finalised, and cannot be used again in this process"));
    }
    let was_initialised = api.number("MPI_Initialized", functions.MPI_Initialized).map_err(wrong)? != 0;
    let level = match was_initialised {
        true => api.number("MPI_Query_thread", functions.MPI_Query_thread).map_err(wrong)?,
        false if launcher == Launcher::None => {
            return Err(wrong(
                "this process was not started by an MPI launcher: start the program with `mpirun -n 2 PROGRAM`, or \
                 connect the ranks by another transport",
            ));
        }
        false => {
            let mut level = 0;
            // SAFETY: the arguments may be null; the function writes the level.
            let code = unsafe {
                (functions.MPI_Init_thread)(
                    ptr::null_mut(),
                    ptr::null_mut(),
                    api.dialect.thread_multiple,
                    &mut level,
                )
            };
            api.check("MPI_Init_thread", code).map_err(wrong)?;
            end::initialised(api, limit);
            let turn = turn();
            // SAFETY: both are handles of MPI. Errors outside a communicator are raised on this one.
            let code =
                unsafe { (functions.MPI_Comm_set_errhandler)(api.dialect.world, api.dialect.errors_return) };
            drop(turn);
            api.check("MPI_Comm_set_errhandler", code).map_err(wrong)?;
            level
        }
    };
    if level < api.dialect.thread_serialized {
        return Err(wrong(match was_initialised {
            true => {
                "MPI was initialised for calls of one thread only: initialise it with MPI_THREAD_MULTIPLE or \
                 MPI_THREAD_SERIALIZED"
            }
            false => "this build of MPI allows calls of one thread only: install one that supports threads",
        }));
    }
    let mut ranks = 0;
    let turn = turn();
    // SAFETY: MPI is initialised; the function writes a number.
    let code = unsafe { (functions.MPI_Comm_size)(api.dialect.world, &mut ranks) };
    drop(turn);
    api.check("MPI_Comm_size", code).map_err(wrong)?;
    match size {
        Some(size) if size != ranks as usize => Err(wrong(format!(
            "the launcher started {size} processes, but MPI's library finds {ranks}: the library and the launcher are \
             of different implementations of MPI, so use the launcher that belongs to the library"
        ))),
        _ => Ok(api),
    }
}
