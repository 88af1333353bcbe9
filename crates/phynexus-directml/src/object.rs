//! What the device's commands use.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use phynexus::{Error, Result};
use windows::Win32::Graphics::Direct3D12::{ID3D12PipelineState, ID3D12Resource, ID3D12RootSignature};

use crate::connection::Connection;

/// The most buffers of a kernel: a root signature has 64 words, of which a buffer takes two, and its start one.
pub(crate) const BUFFERS: usize = 20;

/// Objects of a device that are dropped when it was removed: Direct3D does not open an adapter again while anything of
/// a removed device is left, and the engine keeps tensors and kernels.
pub(crate) struct Held<T>(Mutex<Option<T>>);

impl<T: Clone> Held<T> {
    pub(crate) fn new(value: T) -> Held<T> {
        Held(Mutex::new(Some(value)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Option<T> {
        self.lock().clone()
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    /// Holds this value, and returns the one before.
    pub(crate) fn replace(&self, value: T) -> Option<T> {
        self.lock().replace(value)
    }
}

/// What holds objects of a device.
pub(crate) trait Holder: Send + Sync {
    /// Drops them.
    fn release(&self);
}

/// A kernel. It is made again for a device that was opened again.
pub(crate) struct Pipeline {
    /// What the compiler returned, and the kernel's number of buffers.
    pub(crate) code: Vec<u8>,
    pub(crate) buffers: usize,
    made: Held<Made>,
}

/// A kernel on an open device.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) state: ID3D12PipelineState,
    pub(crate) signature: ID3D12RootSignature,
    /// The number of its connection.
    pub(crate) connection: u64,
}

impl Pipeline {
    pub(crate) fn new(
        connection: &Connection,
        code: Vec<u8>,
        buffers: usize,
        made: Made,
    ) -> Result<Arc<Pipeline>> {
        let pipeline = Arc::new(Pipeline { code, buffers, made: Held::new(made) });
        connection.holds(&pipeline)?;
        Ok(pipeline)
    }

    /// The kernel on this device. `make` makes it if the device was opened again.
    pub(crate) fn on(
        self: &Arc<Pipeline>,
        connection: &Connection,
        make: impl FnOnce(&Pipeline) -> Result<Made>,
    ) -> Result<Made> {
        if let Some(made) = self.made.get().filter(|made| made.connection == connection.number) {
            return Ok(made);
        }
        let made = make(self)?;
        drop(self.made.replace(made.clone()));
        connection.holds(self)?;
        Ok(made)
    }
}

impl Holder for Pipeline {
    fn release(&self) {
        drop(self.made.take());
    }
}

// SAFETY: pipeline states and root signatures do not change and may be used from any thread.
unsafe impl Send for Pipeline {}
// SAFETY: as above.
unsafe impl Sync for Pipeline {}

/// Mapped buffers, by the addresses where they begin.
#[derive(Clone, Default)]
pub(crate) struct Mapped(Arc<Mutex<BTreeMap<usize, ID3D12Resource>>>);

impl Mapped {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, ID3D12Resource>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, start: usize, buffer: ID3D12Resource) {
        self.lock().insert(start, buffer);
    }

    pub(crate) fn remove(&self, start: usize) {
        self.lock().remove(&start);
    }

    /// The buffer in which bytes of pinned memory lie, and where.
    pub(crate) fn find(&self, bytes: &[u8]) -> Result<(ID3D12Resource, usize)> {
        let address = bytes.as_ptr().addr();
        let known = self.lock();
        let found =
            known.range(..=address).next_back().map(|(start, buffer)| (buffer.clone(), address - start));
        found.ok_or_else(|| Error::internal("phynexus_directml", "bytes outside pinned memory"))
    }
}
