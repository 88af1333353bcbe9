//! Handing memory to other libraries that use the same device, and taking theirs: what DLPack needs of a device.

use std::any::Any;

use super::Buffer;
use crate::Result;

/// A device whose memory other libraries reach. Queues are the handles of its driver: of CUDA, streams.
pub trait Exchange: Sync {
    /// The address of a buffer's memory, and what keeps it there.
    fn address(&self, buffer: &Buffer) -> Result<(u64, Box<dyn Any + Send>)>;
    /// The queue in whose order this device's work is done.
    fn queue(&self) -> u64;
    /// What is submitted to another queue from now on comes after what was submitted here.
    ///
    /// # Safety
    /// The handle is that of a queue of this device.
    unsafe fn precede(&self, queue: u64) -> Result<()>;
    /// What is submitted here from now on comes after what was submitted to another queue.
    ///
    /// # Safety
    /// The handle is that of a queue of this device.
    unsafe fn follow(&self, queue: u64) -> Result<()>;
    /// Waits for everything that anybody submitted to the device.
    fn settle(&self) -> Result<()>;
    /// Copies to the beginning of a buffer, in the order of this device's work.
    ///
    /// # Safety
    /// At the address is memory of this device, with so many bytes, until the copy is done.
    unsafe fn take(&self, target: &Buffer, address: u64, bytes: usize) -> Result<()>;
}
