//! Memory and queues for other libraries.

use std::any::Any;

use super::{
    Driver, Gpu,
    spill::{keep, pin},
};
use crate::{
    Error, Result,
    device::{Buffer, Exchange},
};

/// What a driver gives for [`Exchange`]; the functions are those of that trait.
pub trait Handles<B> {
    /// Where a block is.
    fn address(&self, block: &B) -> u64;
    /// The queue in whose order everything is done.
    fn queue(&self) -> u64;
    /// Lets another queue wait for this one.
    ///
    /// # Safety
    /// The handle is that of a queue of this device.
    unsafe fn precede(&self, queue: u64) -> Result<()>;
    /// Lets this queue wait for another one.
    ///
    /// # Safety
    /// The handle is that of a queue of this device.
    unsafe fn follow(&self, queue: u64) -> Result<()>;
    /// Waits for all queues.
    fn settle(&self) -> Result<()>;
    /// Copies so many bytes to the beginning of a block.
    ///
    /// # Safety
    /// They are there, in memory of this device, until the copy is done.
    unsafe fn take(&self, target: &B, address: u64, bytes: usize) -> Result<()>;
}

impl<D: Driver> Gpu<D> {
    fn handles(&self) -> Result<&dyn Handles<D::Block>> {
        let none = || Error::internal("gpu", format!("{} gives no handles", self.driver().name()));
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
        // SAFETY: the caller's promise.
        unsafe { self.handles()?.precede(queue) }
    }

    unsafe fn follow(&self, queue: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.handles()?.follow(queue) }
    }

    fn settle(&self) -> Result<()> {
        self.handles()?.settle()
    }

    unsafe fn take(&self, target: &Buffer, address: u64, bytes: usize) -> Result<()> {
        let memory = pin(self.heap(), target)?;
        // SAFETY: the target has so many bytes; the rest is the caller's promise.
        unsafe { self.handles()?.take(memory.place(0, bytes)?.0, address, bytes) }
    }
}
