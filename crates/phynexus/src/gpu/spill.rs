//! Tensor memory: a block of the device, or host memory for a tensor that was spilled because the device was full.
//!
//! The least recently used tensor is spilled first. It moves back when a plan or a copy needs it. A block in use is
//! pinned, because its handle is shared. Moving a tensor holds that tensor's lock, and a thread that moves one never
//! waits for another tensor's lock.

use std::{
    any::Any,
    ops::Deref,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use smallvec::SmallVec;

use super::{
    Driver,
    heap::{GpuBlock, Heap},
};
use crate::{
    Error, Result,
    device::{Binding, Buffer, Memory, MemoryStatistics},
    host_memory,
    interrupt::Shield,
};

/// Tracks the tensors that may be spilled, and statistics.
pub(super) struct Spilling<D: Driver> {
    enabled: AtomicBool,
    /// True once spilling has been enabled. Before that no tensor can move.
    begun: AtomicBool,
    /// Incremented with each use.
    clock: AtomicU64,
    members: Mutex<Vec<Weak<GpuMemory<D>>>>,
    /// Held by the thread that spills.
    turn: Mutex<()>,
    figures: Mutex<Figures>,
}

#[derive(Clone, Copy, Default)]
struct Figures {
    tensors: usize,
    bytes: usize,
    times: u64,
}

enum State<D: Driver> {
    Resident(Arc<GpuBlock<D>>),
    Spilled(Vec<u8>),
}

/// The memory of a tensor.
pub(super) enum GpuMemory<D: Driver> {
    /// Allocated while spilling was off; never moves.
    Fixed(GpuBlock<D>),
    Movable(Movable<D>),
}

/// Memory that may be spilled.
pub(super) struct Movable<D: Driver> {
    state: Mutex<State<D>>,
    bytes: usize,
    used: AtomicU64,
    heap: Arc<Heap<D>>,
}

/// A block that stays resident while this value lives.
pub(super) enum Pin<'a, D: Driver> {
    Fixed(&'a GpuBlock<D>),
    Held(Arc<GpuBlock<D>>),
}

impl<D: Driver> Deref for Pin<'_, D> {
    type Target = GpuBlock<D>;
    fn deref(&self) -> &GpuBlock<D> {
        match self {
            Pin::Fixed(block) => block,
            Pin::Held(block) => block,
        }
    }
}

pub(super) type Pins<'a, D> = SmallVec<[Pin<'a, D>; 16]>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Driver> Spilling<D> {
    pub(super) fn new() -> Spilling<D> {
        Spilling {
            enabled: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            clock: AtomicU64::new(0),
            members: Mutex::default(),
            turn: Mutex::default(),
            figures: Mutex::default(),
        }
    }

    pub(super) fn set(&self, enabled: bool) {
        self.begun.fetch_or(enabled, Ordering::Relaxed);
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    pub(super) fn add_to(&self, statistics: MemoryStatistics) -> MemoryStatistics {
        let Figures { tensors, bytes, times } = *lock(&self.figures);
        MemoryStatistics { spilled_tensors: tensors, spilled_bytes: bytes, spills: times, ..statistics }
    }

    /// Returns the tensors that still exist, least recently used first.
    fn by_use(&self) -> Vec<Arc<GpuMemory<D>>> {
        let mut members = lock(&self.members);
        let mut there: Vec<Arc<GpuMemory<D>>> = members.iter().filter_map(Weak::upgrade).collect();
        members.retain(|member| member.strong_count() > 0);
        drop(members);
        // Cached keys: other threads change the times during the sort.
        there.sort_by_cached_key(|member| {
            member.movable().map(|movable| movable.used.load(Ordering::Relaxed))
        });
        there
    }
}

impl<D: Driver> Heap<D> {
    /// Spills tensors until `allocate`, which ran out of memory, succeeds. Returns the last failure if spilling is off
    /// or nothing is left to spill.
    pub(super) fn spill_for(
        &self,
        bytes: usize,
        failure: Error,
        allocate: impl Fn() -> Result<D::Block>,
    ) -> Result<D::Block> {
        if !self.spilling.is_enabled() {
            return Err(failure);
        }
        // One thread at a time, since memory freed by another thread may suffice.
        let _turn = lock(&self.spilling.turn);
        loop {
            match allocate() {
                Err(failure @ Error::OutOfMemory { .. }) => {
                    if !self.make_room(bytes)? {
                        return Err(failure);
                    }
                }
                other => return other,
            }
        }
    }

    /// Spills tensors until at least `bytes` bytes are freed. Returns false if none could be spilled.
    fn make_room(&self, bytes: usize) -> Result<bool> {
        let mut freed = 0;
        for member in self.spilling.by_use() {
            if freed >= bytes.max(1) {
                break;
            }
            freed += member.movable().map_or(Ok(0), Movable::spill)?;
        }
        if freed > 0 {
            self.pool.empty_cache();
            self.driver.synchronize()?;
        }
        Ok(freed > 0)
    }
}

impl<D: Driver> GpuMemory<D> {
    /// Allocates this many bytes with undefined contents.
    pub(super) fn new(heap: &Arc<Heap<D>>, bytes: usize) -> Result<Arc<GpuMemory<D>>> {
        let block = GpuBlock::new(heap, bytes)?;
        if !heap.spilling.is_enabled() {
            return Ok(Arc::new(GpuMemory::Fixed(block)));
        }
        Ok(GpuMemory::movable_in(heap, State::Resident(Arc::new(block)), bytes))
    }

    /// Makes memory with these contents that is on the host until a plan or a copy needs it.
    pub(super) fn on_host(heap: &Arc<Heap<D>>, contents: Vec<u8>) -> Arc<GpuMemory<D>> {
        heap.spilling.begun.store(true, Ordering::Relaxed);
        let bytes = contents.len();
        let mut figures = lock(&heap.spilling.figures);
        figures.tensors += 1;
        figures.bytes += bytes;
        drop(figures);
        GpuMemory::movable_in(heap, State::Spilled(contents), bytes)
    }

    fn movable_in(heap: &Arc<Heap<D>>, state: State<D>, bytes: usize) -> Arc<GpuMemory<D>> {
        let used = AtomicU64::new(heap.spilling.clock.fetch_add(1, Ordering::Relaxed));
        let state = Mutex::new(state);
        let memory = Arc::new(GpuMemory::Movable(Movable { state, bytes, used, heap: heap.clone() }));
        let mut members = lock(&heap.spilling.members);
        if members.len() == members.capacity() {
            members.retain(|member| member.strong_count() > 0);
        }
        members.push(Arc::downgrade(&memory));
        memory
    }

    fn movable(&self) -> Option<&Movable<D>> {
        match self {
            GpuMemory::Fixed(_) => None,
            GpuMemory::Movable(movable) => Some(movable),
        }
    }
}

impl<D: Driver> Movable<D> {
    /// Returns the block, moved back if it was spilled. It cannot be spilled while the handle lives.
    fn hold(&self) -> Result<Arc<GpuBlock<D>>> {
        let mut state = lock(&self.state);
        let bytes = match &*state {
            State::Resident(block) => {
                self.touch();
                return Ok(block.clone());
            }
            State::Spilled(bytes) => bytes,
        };
        self.touch();
        let block = Arc::new(GpuBlock::new(&self.heap, self.bytes)?);
        if !bytes.is_empty() {
            let (block, offset) = block.slice(0, bytes.len())?;
            self.heap.write(block, offset, bytes)?;
        }
        *state = State::Resident(block.clone());
        self.left_host();
        Ok(block)
    }

    fn touch(&self) {
        self.used.store(self.heap.spilling.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    fn left_host(&self) {
        let mut figures = lock(&self.heap.spilling.figures);
        figures.tensors -= 1;
        figures.bytes -= self.bytes;
    }

    /// Copies the contents to the host and frees the block, unless it is in use. Returns the bytes freed.
    fn spill(&self) -> Result<usize> {
        let Ok(mut state) = self.state.try_lock() else { return Ok(0) };
        let State::Resident(block) = &*state else { return Ok(0) };
        if Arc::strong_count(block) > 1 || self.bytes == 0 || block.is_lost() {
            return Ok(0);
        }
        // No interrupt check may run while the lock is held.
        let _shield = Shield::new();
        let mut bytes = host_memory::filled(0, self.bytes)?;
        let (block, offset) = block.slice(0, self.bytes)?;
        self.heap.read(block, offset, &mut bytes)?;
        *state = State::Spilled(bytes);
        let mut figures = lock(&self.heap.spilling.figures);
        figures.tensors += 1;
        figures.bytes += self.bytes;
        figures.times += 1;
        Ok(self.bytes)
    }
}

impl<D: Driver> Drop for Movable<D> {
    fn drop(&mut self) {
        let spilled = matches!(*lock(&self.state), State::Spilled(_));
        if spilled {
            self.left_host();
        }
    }
}

impl<D: Driver> Memory for GpuMemory<D> {
    fn size(&self) -> usize {
        match self {
            GpuMemory::Fixed(block) => block.bytes(),
            GpuMemory::Movable(movable) => movable.bytes,
        }
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Downcasts a buffer to this device's memory.
fn memory<'a, D: Driver>(heap: &Arc<Heap<D>>, buffer: &'a Buffer) -> Result<&'a GpuMemory<D>> {
    let own = buffer.0.as_any().downcast_ref::<GpuMemory<D>>().filter(|memory| match memory {
        GpuMemory::Fixed(block) => block.is_of(heap),
        GpuMemory::Movable(movable) => Arc::ptr_eq(&movable.heap, heap),
    });
    let foreign = || format!("the buffer does not belong to {}", heap.driver.name());
    own.ok_or_else(|| Error::internal("gpu", foreign()))
}

/// Returns the block of a buffer, moved back if it was spilled.
pub(super) fn pin<'a, D: Driver>(heap: &Arc<Heap<D>>, buffer: &'a Buffer) -> Result<Pin<'a, D>> {
    match memory(heap, buffer)? {
        GpuMemory::Fixed(block) => Ok(Pin::Fixed(block)),
        GpuMemory::Movable(movable) => movable.hold().map(Pin::Held),
    }
}

/// Copies a part of a buffer that is on the host, whether or not the device works. Returns `None` if the buffer is
/// elsewhere, or has no such part.
pub(super) fn read_on_host<D: Driver>(
    heap: &Arc<Heap<D>>,
    buffer: &Buffer,
    offset: usize,
    bytes: &mut [u8],
) -> Option<()> {
    let state = lock(&memory(heap, buffer).ok()?.movable()?.state);
    let State::Spilled(contents) = &*state else { return None };
    let end = offset.checked_add(bytes.len())?;
    bytes.copy_from_slice(contents.get(offset..end)?);
    Some(())
}

/// Calls `look` on a buffer's block. Returns the result, and a value that keeps the block in place.
pub(super) fn keep<D: Driver, R>(
    heap: &Arc<Heap<D>>,
    buffer: &Buffer,
    look: impl FnOnce(&D::Block) -> R,
) -> Result<(R, Box<dyn Any + Send>)> {
    let held = memory(heap, buffer)?.movable().map(|movable| movable.hold()).transpose()?;
    let found = look(pin(heap, buffer)?.slice(0, 0)?.0);
    Ok((found, Box::new((buffer.clone(), held))))
}

/// A block, and the device of the same family that owns it.
type Foreign<'a, D> = (Arc<Heap<D>>, Pin<'a, D>);

/// Returns the block of a buffer and its device, or `None` if the buffer belongs to another family.
pub(super) fn pin_foreign<D: Driver>(buffer: &Buffer) -> Result<Option<Foreign<'_, D>>> {
    let heap = match buffer.0.as_any().downcast_ref::<GpuMemory<D>>() {
        None => return Ok(None),
        Some(GpuMemory::Fixed(block)) => block.heap().clone(),
        Some(GpuMemory::Movable(movable)) => movable.heap.clone(),
    };
    let pin = pin(&heap, buffer)?;
    Ok(Some((heap, pin)))
}

/// Pins the blocks of bindings.
pub(super) fn pin_all<'a, D: Driver>(heap: &Arc<Heap<D>>, bindings: &'a [Binding]) -> Result<Pins<'a, D>> {
    bindings.iter().map(|binding| pin(heap, &binding.buffer)).collect()
}

/// Moves spilled buffers back to the device. They stay resident while the returned value lives.
pub(super) fn hold<D: Driver>(
    heap: &Arc<Heap<D>>,
    buffers: &mut dyn Iterator<Item = &Buffer>,
) -> Result<Option<Box<dyn Any>>> {
    if !heap.spilling.begun.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let mut held: Vec<Arc<GpuBlock<D>>> = Vec::new();
    for buffer in buffers {
        if let Some(movable) = memory(heap, buffer)?.movable() {
            held.push(movable.hold()?);
        }
    }
    Ok(Some(Box::new(held)))
}
