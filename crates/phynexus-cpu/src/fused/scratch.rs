//! Scratch memory of kernel runs. It is kept between runs, so a repeated run allocates nothing.

use std::{
    cell::Cell,
    sync::{Mutex, PoisonError},
};

use phynexus::{host_memory, interrupt::or_leave};

use super::{
    machine::{Machine, SlotAddress},
    program::Program,
};
use crate::working_memory;

/// A cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    _bytes: [u8; 64],
}

/// Memory aligned to cache lines.
#[derive(Default)]
pub(crate) struct AlignedMemory {
    lines: Vec<Line>,
}

impl AlignedMemory {
    /// Ensures at least `bytes` bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(size_of::<Line>());
        if self.lines.len() < lines {
            let before = self.bytes();
            let more = lines - self.lines.len();
            or_leave(host_memory::reserve(&mut self.lines, more));
            self.lines.resize(lines, Line { _bytes: [0; 64] });
            working_memory::taken(self.bytes() - before);
        }
        self.lines.as_mut_ptr().cast()
    }

    fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        working_memory::given_back(self.bytes());
    }
}

/// A thread's scratch memory.
#[derive(Default)]
struct Scratch {
    registers: AlignedMemory,
    rows: AlignedMemory,
    addresses: Vec<SlotAddress>,
}

thread_local! {
    /// Taken while a tile is processed.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Maximum size kept by a thread between kernels, or by a kernel between runs.
const KEPT_BYTES: usize = 16 << 20;

/// Calls `body` with a machine that has this thread's registers and, if there are groups, a row tile's state and its
/// groups' partial results.
pub(super) fn with(program: &Program, parameters: &[*mut u8], groups: usize, body: impl FnOnce(Machine<'_>)) {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.addresses.clear();
    scratch.addresses.resize(program.slots.len(), SlotAddress::NOWHERE);
    let registers = scratch.registers.reserve(program.register_bytes + program.staging_bytes);
    let (state, partial) = if groups > 0 {
        let state = scratch.rows.reserve(program.state_bytes + groups * program.partial_bytes);
        (state, state.wrapping_add(program.state_bytes))
    } else {
        (std::ptr::null_mut(), std::ptr::null_mut())
    };
    body(Machine {
        program,
        parameters,
        scratch: registers,
        state,
        partial,
        addresses: &mut scratch.addresses,
    });
    for memory in [&mut scratch.registers, &mut scratch.rows] {
        if memory.bytes() > KEPT_BYTES {
            *memory = AlignedMemory::default();
        }
    }
    SCRATCH.set(Some(scratch));
}

/// Memory shared by all threads of a kernel run. Kept for the kernel's next run unless it is large.
#[derive(Default)]
pub(super) struct Shared {
    free: Mutex<Vec<AlignedMemory>>,
}

/// The address of shared memory. Each thread uses a separate part at a time.
#[derive(Clone, Copy)]
pub(super) struct SharedPointer(*mut u8);

// SAFETY: it is only an address; its users keep to separate parts.
unsafe impl Sync for SharedPointer {}

impl SharedPointer {
    pub(super) fn pointer(self) -> *mut u8 {
        self.0
    }
}

impl Shared {
    /// Calls `body` with at least `bytes` bytes.
    pub(super) fn with(&self, bytes: usize, body: impl FnOnce(SharedPointer)) {
        let lock = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = lock().pop().unwrap_or_default();
        body(SharedPointer(memory.reserve(bytes)));
        if memory.bytes() <= KEPT_BYTES {
            lock().push(memory);
        }
    }
}
