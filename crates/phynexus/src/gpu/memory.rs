//! Blocks in use, and places in them.

use std::{any::Any, sync::Arc};

use super::{Driver, clock::Clock};
use crate::{
    Error, Result,
    device::{Buffer, Memory, Pool},
};

/// A device's blocks; shared by everything that holds one.
pub(super) struct Heap<D: Driver> {
    pub(super) driver: D,
    pub(super) pool: Pool<D::Block>,
    pub(super) clock: Clock<D>,
}

/// A block in use; it goes back to the pool when dropped.
pub(super) struct GpuMemory<D: Driver> {
    block: Option<D::Block>,
    bytes: usize,
    heap: Arc<Heap<D>>,
}

impl<D: Driver> GpuMemory<D> {
    /// So many bytes from the pool.
    pub(super) fn new(heap: &Arc<Heap<D>>, bytes: usize) -> Result<GpuMemory<D>> {
        let block = heap.pool.allocate(bytes, |class| heap.driver.allocate(class))?;
        Ok(GpuMemory { block: Some(block), bytes, heap: heap.clone() })
    }

    /// So many bytes from an offset on.
    pub(super) fn place(&self, offset: usize, bytes: usize) -> Result<(&D::Block, usize)> {
        match &self.block {
            Some(block) if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes) => {
                Ok((block, offset))
            }
            _ => Err(Error::internal(
                "gpu",
                format!("{bytes} bytes at {offset} of a buffer of {} bytes", self.bytes),
            )),
        }
    }
}

impl<D: Driver> Memory for GpuMemory<D> {
    fn size(&self) -> usize {
        self.bytes
    }
    fn host_pointer(&self) -> Option<*mut u8> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<D: Driver> Drop for GpuMemory<D> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.heap.pool.release(self.bytes, block);
        }
    }
}

/// A buffer as memory of this device.
pub(super) fn memory<'a, D: Driver>(heap: &Arc<Heap<D>>, buffer: &'a Buffer) -> Result<&'a GpuMemory<D>> {
    match buffer.0.as_any().downcast_ref::<GpuMemory<D>>() {
        Some(memory) if Arc::ptr_eq(&memory.heap, heap) => Ok(memory),
        _ => Err(Error::internal("gpu", format!("a buffer of another device than {}", heap.driver.name()))),
    }
}
