//! The CPU's name and its memory.

use std::{
    alloc::{Layout, alloc, dealloc},
    any::Any,
    ptr::NonNull,
    sync::Arc,
};

use phynexus::{
    Error, Result,
    device::{Buffer, Memory},
    pool::Pool,
};

/// The device's name.
pub(crate) const NAME: &str = "cpu";
/// Memory alignment: a cache line, and the widest vector.
pub(crate) const ALIGNMENT: usize = 64;

/// Memory from the system allocator, aligned for vectors.
pub(crate) struct Block {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory; its holder synchronises accesses through the address.
unsafe impl Send for Block {}
// SAFETY: as above; a shared block only exposes its address.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates a block of `bytes` bytes (not 0); `None` if the system has no memory left.
    pub(crate) fn new(bytes: usize) -> Option<Block> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok()?;
        // SAFETY: the pool never requests a block of zero bytes.
        let pointer = NonNull::new(unsafe { alloc(layout) })?;
        Some(Block { pointer, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: it came from the same allocator with the same layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// A block in use. Returns to the pool when dropped.
pub(crate) struct HostMemory {
    block: Option<Block>,
    bytes: usize,
    pool: Arc<Pool<Block>>,
}

impl HostMemory {
    /// A block for `bytes` bytes, which `pool` allocated.
    pub(crate) fn new(block: Block, bytes: usize, pool: Arc<Pool<Block>>) -> HostMemory {
        HostMemory { block: Some(block), bytes, pool }
    }
}

impl Memory for HostMemory {
    fn size(&self) -> usize {
        self.bytes
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        self.block.as_ref().map(|b| b.pointer.as_ptr())
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.release(self.bytes, block);
        }
    }
}

/// The address of a part of a buffer.
pub(crate) fn part(buffer: &Buffer, offset: usize, bytes: usize) -> Result<*mut u8> {
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= buffer.size());
    match buffer.0.host_pointer() {
        // SAFETY: the part lies within the buffer.
        Some(pointer) if fits => Ok(unsafe { pointer.add(offset) }),
        Some(_) => Err(Error::internal(
            "phynexus_cpu::device",
            format!("{bytes} bytes at {offset} of a buffer of {} bytes", buffer.size()),
        )),
        None => Err(Error::internal("phynexus_cpu::device", "the host cannot access the buffer")),
    }
}
