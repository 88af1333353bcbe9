//! Blocks in use, and offsets in them.

use std::sync::Arc;

use super::{Driver, clock::Clock, spill::Spilling};
use crate::{Error, Result, device::MemoryStatistics, pool::Pool};

/// A device's driver and memory pool, shared by all of its blocks.
pub(super) struct Heap<D: Driver> {
    pub(super) driver: D,
    pub(super) pool: Pool<D::Block>,
    pub(super) clock: Clock<D>,
    pub(super) spilling: Spilling<D>,
}

impl<D: Driver> Heap<D> {
    /// Returns the pool's statistics, with the device's own figures.
    pub(super) fn statistics(&self) -> MemoryStatistics {
        let pooled = self.pool.statistics();
        self.spilling.add_to(MemoryStatistics {
            reserved: pooled.reserved + self.driver.own_memory(),
            available: self.driver.available_memory(),
            total: self.driver.info().total_memory,
            pinned: self.driver.pinned_memory(),
            ..pooled
        })
    }

    /// Frees all unused memory.
    pub(super) fn empty_cache(&self) {
        self.pool.empty_cache();
        self.driver.trim();
    }

    /// Adds the pool's and the device's figures to a driver's out-of-memory error.
    pub(super) fn with_usage(&self, error: Error) -> Error {
        match error {
            Error::OutOfMemory { device, requested, hint, .. } => {
                let now = self.pool.statistics();
                let (in_use, limit) = (now.allocated, now.limit.unwrap_or(usize::MAX));
                self.with_figures(Error::OutOfMemory { device, requested, in_use, limit, hint })
            }
            other => other,
        }
    }

    /// Adds the device's free memory to an out-of-memory error.
    pub(super) fn with_figures(&self, mut error: Error) -> Error {
        if let Error::OutOfMemory { hint, .. } = &mut error
            && let Some(available) = self.driver.available_memory()
        {
            let total = self.driver.info().total_memory.map_or(String::new(), |total| format!(" of {total}"));
            *hint = format!("the device has {available}{total} bytes free; {hint}");
        }
        error
    }
}

/// A block in use, returned to the pool on drop.
pub(super) struct GpuBlock<D: Driver> {
    block: Option<D::Block>,
    bytes: usize,
    heap: Arc<Heap<D>>,
}

impl<D: Driver> GpuBlock<D> {
    /// Allocates from the pool. If the device is out of memory, empties the cache, waits for pending frees, and tries
    /// once more. If that fails too, spills tensors, if spilling is on.
    pub(super) fn new(heap: &Arc<Heap<D>>, bytes: usize) -> Result<GpuBlock<D>> {
        let allocate = || loop {
            let block = heap.pool.allocate(bytes, |class| heap.driver.allocate(class))?;
            if !heap.driver.is_lost(&block) {
                return Ok(block);
            }
            heap.pool.discard(bytes, block);
        };
        let block = match allocate() {
            Err(Error::OutOfMemory { in_use, limit, .. }) if bytes <= limit.saturating_sub(in_use) => {
                heap.driver.synchronize()?;
                heap.driver.trim();
                allocate()
            }
            other => other,
        };
        let block = match block {
            Err(error @ Error::OutOfMemory { .. }) => {
                heap.spill_for(bytes, error, allocate).map_err(|error| heap.with_figures(error))?
            }
            other => other?,
        };
        Ok(GpuBlock { block: Some(block), bytes, heap: heap.clone() })
    }

    /// The number of bytes requested.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the heap it belongs to.
    pub(super) fn heap(&self) -> &Arc<Heap<D>> {
        &self.heap
    }

    /// Returns whether its contents are lost.
    pub(super) fn is_lost(&self) -> bool {
        self.block.as_ref().is_some_and(|block| self.heap.driver.is_lost(block))
    }

    /// Returns whether it belongs to this heap.
    pub(super) fn is_of(&self, heap: &Arc<Heap<D>>) -> bool {
        Arc::ptr_eq(&self.heap, heap)
    }

    /// Returns the block and `offset`, after checking that `bytes` bytes fit.
    pub(super) fn slice(&self, offset: usize, bytes: usize) -> Result<(&D::Block, usize)> {
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

impl<D: Driver> Drop for GpuBlock<D> {
    fn drop(&mut self) {
        match self.block.take() {
            Some(block) if self.heap.driver.is_lost(&block) => self.heap.pool.discard(self.bytes, block),
            Some(block) => self.heap.pool.release(self.bytes, block),
            None => {}
        }
    }
}
