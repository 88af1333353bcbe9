//! Memory that runs of kernels work in: kept between runs, so that a repeated run allocates nothing.

use std::{
    cell::Cell,
    sync::{Mutex, PoisonError},
};

use phynexus::{host_memory, interrupt::or_leave};

use super::{
    machine::{Machine, Place},
    program::Program,
};
use crate::working_memory;

/// A cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    _bytes: [u8; 64],
}

/// A piece of memory aligned to cache lines.
#[derive(Default)]
pub(crate) struct Memory {
    lines: Vec<Line>,
}

impl Memory {
    /// At least so many bytes.
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

impl Drop for Memory {
    fn drop(&mut self) {
        working_memory::given_back(self.bytes());
    }
}

/// What a thread works in.
#[derive(Default)]
struct Scratch {
    registers: Memory,
    rows: Memory,
    places: Vec<Place>,
}

thread_local! {
    /// Taken while a tile is worked on.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// A thread keeps no more than this between kernels, nor a kernel between its runs.
const KEPT_BYTES: usize = 16 << 20;

/// Calls `body` with a machine that has this thread's registers and, where there are groups, a row tile's state and the
/// partial results of its groups.
pub(super) fn with(program: &Program, parameters: &[*mut u8], groups: usize, body: impl FnOnce(Machine<'_>)) {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    scratch.places.clear();
    scratch.places.resize(program.slots.len(), Place::NOWHERE);
    let registers = scratch.registers.reserve(program.register_bytes + program.staging_bytes);
    let (state, partial) = if groups > 0 {
        let state = scratch.rows.reserve(program.state_bytes + groups * program.partial_bytes);
        (state, state.wrapping_add(program.state_bytes))
    } else {
        (std::ptr::null_mut(), std::ptr::null_mut())
    };
    body(Machine { program, parameters, scratch: registers, state, partial, places: &mut scratch.places });
    for memory in [&mut scratch.registers, &mut scratch.rows] {
        if memory.bytes() > KEPT_BYTES {
            *memory = Memory::default();
        }
    }
    SCRATCH.set(Some(scratch));
}

/// Memory that all threads of a run share; of a kernel, and kept for its next run unless it is large.
#[derive(Default)]
pub(super) struct Shared {
    free: Mutex<Vec<Memory>>,
}

/// The address of memory that threads share. Each uses a part of its own at a time.
#[derive(Clone, Copy)]
pub(super) struct SharedMemory(*mut u8);

// SAFETY: it is an address; who uses it says which part is whose.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(super) fn pointer(self) -> *mut u8 {
        self.0
    }
}

impl Shared {
    /// Calls `body` with at least so many bytes.
    pub(super) fn with(&self, bytes: usize, body: impl FnOnce(SharedMemory)) {
        let lock = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut memory = lock().pop().unwrap_or_default();
        body(SharedMemory(memory.reserve(bytes)));
        if memory.bytes() <= KEPT_BYTES {
            lock().push(memory);
        }
    }
}
