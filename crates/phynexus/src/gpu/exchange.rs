//! Access to memory and queues for other libraries.

use std::any::Any;

use super::{
    Driver, Gpu,
    spill::{keep, pin},
};
use crate::{
    Error, Result,
    device::{Buffer, Exchange},
};

/// A driver's part of [`Exchange`]. The functions match those of that trait.
pub trait Handles<B> {
    /// Returns the address of a block.
    fn address(&self, block: &B) -> u64;
    /// Returns the queue that runs all work.
    fn queue(&self) -> u64;
    /// Makes another queue wait for this one.
    ///
    /// # Safety
    /// `queue` must be a handle to a queue of this device.
    unsafe fn precede(&self, queue: u64) -> Result<()>;
    /// Makes this queue wait for another one.
    ///
    /// # Safety
    /// `queue` must be a handle to a queue of this device.
    unsafe fn follow(&self, queue: u64) -> Result<()>;
    /// Waits for all queues.
    fn settle(&self) -> Result<()>;
    /// Copies `bytes` bytes at `address` to the beginning of a block.
    ///
    /// # Safety
    /// `address` must point to at least `bytes` bytes of this device's memory, valid until the copy is done.
    unsafe fn take(&self, target: &B, address: u64, bytes: usize) -> Result<()>;
}

impl<D: Driver> Gpu<D> {
    fn handles(&self) -> Result<&dyn Handles<D::Block>> {
        let none =
            || Error::internal("gpu", format!("{} has no handles for other libraries", self.driver().name()));
        self.driver().handles().ok_or_else(none)
    }
}

impl<D: Driver> Exchange for Gpu<D> {
    fn address(&self, buffer: &Buffer) -> Result<(u64, Box<dyn Any + Send>)> {
        let handles = self.handles()?;
        keep(self.heap(), buffer, |block| handles.address(block))
    }

    fn queue(&self) -> u64 {
        self.driver().handles().map_or(0, |handles| handles.queue())
    }

    unsafe fn precede(&self, queue: u64) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.handles()?.precede(queue) }
    }

    unsafe fn follow(&self, queue: u64) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.handles()?.follow(queue) }
    }

    fn settle(&self) -> Result<()> {
        self.handles()?.settle()
    }

    unsafe fn take(&self, target: &Buffer, address: u64, bytes: usize) -> Result<()> {
        let memory = pin(self.heap(), target)?;
        // SAFETY: `slice` checks that the target has this many bytes; the caller guarantees the rest.
        unsafe { self.handles()?.take(memory.slice(0, bytes)?.0, address, bytes) }
    }
}
