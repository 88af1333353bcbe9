//! What the device's commands use.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use phynexus::{Error, Result};
use windows::Win32::Graphics::Direct3D12::{ID3D12PipelineState, ID3D12Resource, ID3D12RootSignature};

/// The most buffers of a kernel: a root signature has 64 words, of which a buffer takes two, and its start one.
pub(crate) const BUFFERS: usize = 20;

/// A kernel that can be launched.
pub(crate) struct Pipeline {
    pub(crate) state: ID3D12PipelineState,
    pub(crate) signature: ID3D12RootSignature,
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
