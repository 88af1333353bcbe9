//! DirectML's GPUs, and how their launches become commands.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use phynexus::{
    Error, Result,
    gpu::{DiskCache, Driver, Staging, Submission},
};
use smallvec::SmallVec;

use crate::{
    adapters::Found,
    compile::made,
    connection::{Connection, references_left},
    graph::Graph,
    libraries::Libraries,
    object::Pipeline,
    queue::{What, Work},
    routine::Routine,
    times::Times,
};

/// What runs on the device.
pub(crate) enum Module {
    Kernel(Arc<Pipeline>),
    Routine(Arc<Routine>),
}

/// An open GPU.
pub(crate) struct Open {
    pub(crate) connection: Arc<Connection>,
    pub(crate) staging: Arc<Staging<Connection>>,
    pub(crate) times: Times,
    pub(crate) cache: DiskCache,
    /// Compiled graphs; `None` if DirectML refuses one. Compiling takes so long that they are kept for the life of the
    /// device.
    pub(crate) routines: Mutex<HashMap<Graph, Option<Arc<Routine>>>>,
}

/// A GPU, opened on first use, and again if it was removed.
pub(crate) struct DirectMl {
    libraries: &'static Libraries,
    pub(crate) found: Found,
    open: Mutex<Option<Arc<Open>>>,
    /// True if it was removed.
    is_closed: AtomicBool,
    /// Held while opening.
    opening: Mutex<()>,
}

// SAFETY: DXGI's adapters may be used from any thread.
unsafe impl Send for DirectMl {}
// SAFETY: as above.
unsafe impl Sync for DirectMl {}

impl DirectMl {
    pub(crate) fn new(libraries: &'static Libraries, found: Found) -> DirectMl {
        DirectMl {
            libraries,
            found,
            open: Mutex::default(),
            is_closed: AtomicBool::new(false),
            opening: Mutex::new(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device, if it is open.
    pub(crate) fn known(&self) -> Option<Arc<Open>> {
        self.lock().clone()
    }

    fn intact(&self) -> Option<Arc<Open>> {
        self.known().filter(|open| !open.connection.is_removed())
    }

    pub(crate) fn open(&self) -> Result<Arc<Open>> {
        if let Some(open) = self.intact() {
            return Ok(open);
        }
        // One thread at a time. A failure is not cached: the next attempt may succeed.
        let _turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.intact() {
            return Ok(open);
        }
        let removed = self.lock().take();
        if let Some(removed) = removed {
            let connection = removed.connection.clone();
            connection.settle();
            drop(removed);
            connection.release();
            self.is_closed.store(true, Ordering::Release);
        }
        let connection = Connection::new(self.libraries, &self.found).map_err(|error| self.again(error))?;
        self.is_closed.store(false, Ordering::Release);
        let staging = Staging::new(connection.clone(), &self.found.info.name);
        let cache = DiskCache::new("directml", "RNN_DIRECTML_CACHE_PATH");
        let (times, routines) = (Times::default(), Mutex::default());
        let open = Arc::new(Open { connection, staging, times, cache, routines });
        *self.lock() = Some(open.clone());
        Ok(open)
    }

    /// The error of opening it, with what may prevent it.
    fn again(&self, error: Error) -> Error {
        let left = references_left();
        match error {
            Error::Device { device, message } if left > 0 && self.is_closed.load(Ordering::Acquire) => {
                let message = format!(
                    "{message}; it was removed, and {left} of its objects are still used, such as those of \
                     copies to the host that have not been waited for"
                );
                Error::Device { device, message }
            }
            other => other,
        }
    }

    /// The device, if it is open. One that was removed is opened again.
    pub(crate) fn known_again(&self) -> Result<Option<Arc<Open>>> {
        match self.known() {
            None if self.is_closed.load(Ordering::Acquire) => self.open().map(Some),
            known => Ok(known),
        }
    }

    pub(crate) fn connection(&self) -> Result<Arc<Connection>> {
        Ok(self.open()?.connection.clone())
    }

    /// No host memory can be pinned for a copy.
    pub(crate) fn no_room(&self, bytes: usize) -> Error {
        Error::OutOfMemory {
            device: self.found.info.name.clone(),
            requested: bytes,
            in_use: 0,
            limit: usize::MAX,
            hint: "there is no host memory that the device can access".to_owned(),
        }
    }
}

/// A launch as a command. One that is to be repeated uses no descriptors of others.
pub(crate) fn work<'a>(
    connection: &Arc<Connection>,
    submission: &Submission<'a, DirectMl>,
    is_repeated: bool,
) -> Result<Work<'a>> {
    submission.arguments.iter().try_for_each(|(block, _)| block.check(connection))?;
    let name = submission.kernel.name.as_str();
    let pipeline = match submission.module {
        Module::Kernel(pipeline) => pipeline,
        Module::Routine(routine) => {
            let what = routine.run(connection, &submission.arguments, is_repeated)?;
            return Ok(Work { name, what });
        }
    };
    let mut addresses = SmallVec::new();
    let mut starts = SmallVec::new();
    for (&(block, start), parameter) in submission.arguments.iter().zip(&submission.kernel.buffers) {
        // The start of an empty parameter is irrelevant.
        let alignment = DirectMl::ALIGNMENT as u64;
        let offset = u64::try_from(start).unwrap_or(0) / alignment * alignment;
        let offset = if offset < block.bytes { offset } else { 0 };
        starts.push(((start - offset as i64) / parameter.dtype.size() as i64) as i32);
        addresses.push(block.address() + offset);
    }
    // The zero that printed kernels expect.
    starts.push(0);
    let grid = submission.kernel.grid().map(|extent| extent as u32);
    let made = made(connection, pipeline)?;
    Ok(Work { name, what: What::Kernel { pipeline: pipeline.clone(), made, addresses, starts, grid } })
}
