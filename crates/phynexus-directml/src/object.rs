//! What the device's commands use.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use phynexus::{Error, Result};
use windows::Win32::Graphics::Direct3D12::{ID3D12PipelineState, ID3D12Resource, ID3D12RootSignature};

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
    pub(crate) made: Held<Made>,
}

/// A kernel on an open device.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) state: ID3D12PipelineState,
    pub(crate) signature: ID3D12RootSignature,
    /// The number of its connection.
    pub(crate) connection: u64,
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

/// A buffer of the device.
pub(crate) struct Memory {
    /// Bytes of all buffers of the device, and of this one.
    pub(crate) all: Arc<AtomicU64>,
    pub(crate) bytes: u64,
    pub(crate) resource: Held<ID3D12Resource>,
    /// Its address on the device.
    pub(crate) address: u64,
    /// Other buffers may get its address after it, but not its number.
    pub(crate) number: u64,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Holder for Memory {
    fn release(&self) {
        drop(self.resource.take());
    }
}

// SAFETY: Direct3D's resources may be used from any thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

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
