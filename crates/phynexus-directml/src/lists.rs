//! Command lists, and what they use.

use std::{
    any::Any,
    collections::VecDeque,
    sync::{Arc, atomic::AtomicU64},
};

use smallvec::SmallVec;
use windows::Win32::Graphics::Direct3D12::{
    ID3D12CommandAllocator, ID3D12GraphicsCommandList, ID3D12Resource,
};

/// The lists of a device. The thread that has the lock records and submits: all later work comes after it.
#[derive(Default)]
pub(crate) struct State {
    /// Launches that are not submitted yet.
    pub(crate) open: Option<Recording>,
    /// The fence's value after everything submitted.
    pub(crate) submitted: u64,
    /// What the device has yet to finish, and the fence's value after it.
    pub(crate) flying: VecDeque<(u64, Recording)>,
    pub(crate) spare: Vec<Commands>,
    /// What is dropped once the lock is free.
    pub(crate) trash: (Vec<Kept>, Vec<(u64, Dropped)>),
}

/// A command list with its memory.
pub(crate) struct Commands {
    pub(crate) allocator: ID3D12CommandAllocator,
    pub(crate) list: ID3D12GraphicsCommandList,
}

/// A list and what it uses: Direct3D does not keep it.
pub(crate) struct Recording {
    pub(crate) commands: Commands,
    pub(crate) kept: Vec<Kept>,
}

/// What a command uses until the device has finished it.
pub(crate) type Kept = SmallVec<[Arc<dyn Any + Send + Sync>; 2]>;

/// What the device may still use.
pub(crate) enum Dropped {
    Memory(#[expect(dead_code, reason = "kept")] ID3D12Resource),
    List(#[expect(dead_code, reason = "kept")] Arc<Repeated>),
}

/// A closed list that runs again and again.
pub(crate) struct Repeated {
    pub(crate) recording: Recording,
    /// The fence's value after its last run.
    pub(crate) last: AtomicU64,
    pub(crate) routines: u64,
}

// SAFETY: a closed list is only used by the thread that has the lock of the state.
unsafe impl Send for Repeated {}
// SAFETY: as above.
unsafe impl Sync for Repeated {}
