//! Blocks in use, and places in them.

use std::{any::Any, sync::Arc};

use super::{Driver, clock::Clock};
use crate::{
    Error, Result,
    device::{Buffer, Memory, MemoryStatistics, Pool},
};

/// A device's blocks; shared by everything that holds one.
pub(super) struct Heap<D: Driver> {
    pub(super) driver: D,
    pub(super) pool: Pool<D::Block>,
    pub(super) clock: Clock<D>,
}

impl<D: Driver> Heap<D> {
    /// What the pool holds, with the device's own figures.
    pub(super) fn statistics(&self) -> MemoryStatistics {
        MemoryStatistics {
            available: self.driver.available_memory(),
            total: self.driver.info().total_memory,
            ..self.pool.statistics()
        }
    }

    /// Adds to an error what the device has.
    fn with_figures(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory { hint, .. } = &mut error
            && let Some(available) = self.driver.available_memory()
        {
            let total = self.driver.info().total_memory.map_or(String::new(), |total| format!(" of {total}"));
            *hint = format!("the device has {available}{total} bytes free; {hint}");
        }
        error
    }
}

/// A block in use; it goes back to the pool when dropped.
pub(super) struct GpuMemory<D: Driver> {
    block: Option<D::Block>,
    bytes: usize,
    heap: Arc<Heap<D>>,
}

impl<D: Driver> GpuMemory<D> {
    /// So many bytes from the pool. Where the device has none, the cache is emptied, what is still to be given back is
    /// waited for, and it is tried once more.
    pub(super) fn new(heap: &Arc<Heap<D>>, bytes: usize) -> Result<GpuMemory<D>> {
        let allocate = || heap.pool.allocate(bytes, |class| heap.driver.allocate(class));
        let block = match allocate() {
            Err(Error::OutOfMemory { in_use, limit, .. }) if bytes <= limit.saturating_sub(in_use) => {
                heap.driver.synchronize()?;
                allocate().map_err(|error| heap.with_figures(error))?
            }
            other => other?,
        };
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
