//! Memory exchange with other libraries that use the same device: what DLPack needs from a device.

use std::any::Any;

use super::Buffer;
use crate::Result;

/// A device whose memory other libraries can access. Queues are the driver's handles; for CUDA they are streams.
pub trait Exchange: Sync {
    /// Returns the address of a buffer's memory, and a value that keeps the memory alive and in place.
    fn address(&self, buffer: &Buffer) -> Result<(u64, Box<dyn Any + Send>)>;
    /// Returns the queue that runs this device's work.
    fn queue(&self) -> u64;
    /// Orders future work on another queue after the work submitted here so far.
    ///
    /// # Safety
    /// `queue` must be a handle to a queue of this device.
    unsafe fn precede(&self, queue: u64) -> Result<()>;
    /// Orders future work here after the work submitted to another queue so far.
    ///
    /// # Safety
    /// `queue` must be a handle to a queue of this device.
    unsafe fn follow(&self, queue: u64) -> Result<()>;
    /// Waits for all work on the device, whoever submitted it.
    fn settle(&self) -> Result<()>;
    /// Copies `bytes` bytes at `address` to the beginning of a buffer, in order with this device's work.
    ///
    /// # Safety
    /// `address` must point to at least `bytes` bytes of this device's memory, valid until the copy is done.
    unsafe fn take(&self, target: &Buffer, address: u64, bytes: usize) -> Result<()>;
}
