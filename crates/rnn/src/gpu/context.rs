//! A device in use: memory, copies, streams, figures.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use neurenix::phynexus::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use super::ByteCount;
use crate::{NetworkError, Result};

/// Memory on a device, of `float32` numbers. Clones are the same memory; once freed, all of them are refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GpuMemoryHandle {
    /// What tells it from other memory; no address.
    pub ptr: usize,
    /// Bytes.
    pub size: usize,
    /// The device's number.
    pub device_id: usize,
}

/// A stream of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuStreamHandle(pub usize);

/// What a device's memory holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuMemoryStats {
    /// Held by live tensors of this process.
    pub allocated: ByteCount,
    /// The most that this has been.
    pub peak: ByteCount,
    /// What nobody has; 0 if the driver does not tell.
    pub available: ByteCount,
    /// The device's memory; 0 if the driver does not tell.
    pub total: ByteCount,
    /// The share of the memory taken from the system that waits in pieces too small to serve the largest request so far.
    pub fragmentation: f64,
    /// Allocations since the start.
    pub allocation_count: usize,
}

/// A device in use.
pub struct GpuContext {
    id: usize,
    device: Device,
    memory: HashMap<usize, Tensor>,
    streams: usize,
    stream: GpuStreamHandle,
}

/// Numbers of memory, so that a handle of one context is not taken for another's.
static NEXT: AtomicUsize = AtomicUsize::new(1);

impl GpuContext {
    pub(crate) fn new(id: usize, device: Device) -> GpuContext {
        GpuContext { id, device, memory: HashMap::new(), streams: 1, stream: GpuStreamHandle(0) }
    }

    /// The device's number.
    pub fn device_id(&self) -> usize {
        self.id
    }

    /// The device's name in the engine: `cuda:0`.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    pub(crate) fn engine(&self) -> Device {
        self.device
    }

    /// So many bytes of `float32` numbers, zeros.
    ///
    /// # Errors
    /// For 0 bytes, or bytes that are no whole numbers; if there is no memory.
    pub fn allocate(&mut self, size: usize) -> Result<GpuMemoryHandle> {
        if size == 0 || !size.is_multiple_of(4) {
            let reason = "memory holds float32 numbers: a multiple of 4 bytes, at least 4";
            return Err(NetworkError::invalid_parameter("size", size, reason));
        }
        let zeros = Tensor::zeros(&[size / 4], DType::F32, self.device)?.contiguous()?.evaluated()?;
        let ptr = NEXT.fetch_add(1, Ordering::Relaxed);
        self.memory.insert(ptr, zeros);
        Ok(GpuMemoryHandle { ptr, size, device_id: self.id })
    }

    /// Gives memory back.
    ///
    /// # Errors
    /// If it was given back before, or is another context's.
    pub fn deallocate(&mut self, handle: GpuMemoryHandle) -> Result<()> {
        self.contents(&handle)?;
        self.memory.remove(&handle.ptr);
        Ok(())
    }

    /// Copies numbers to the beginning of memory; what lies behind stays.
    ///
    /// # Errors
    /// If they are too many, or the memory was given back.
    pub fn copy_to_device(&mut self, data: &[f32], handle: &GpuMemoryHandle) -> Result<()> {
        let old = self.contents(handle)?;
        check_fit(data.len(), old.len())?;
        let new = Tensor::from_slice(data, &[data.len()], self.device)?;
        let new = match data.len() < old.len() {
            true => Tensor::cat(&[&new, &old.narrow(0, data.len(), old.len() - data.len())?], 0)?,
            false => new,
        };
        self.memory.insert(handle.ptr, new.evaluated()?);
        Ok(())
    }

    /// Copies the first numbers of memory.
    ///
    /// # Errors
    /// If more are asked for than there are, or the memory was given back.
    pub fn copy_to_host(&mut self, handle: &GpuMemoryHandle, data: &mut [f32]) -> Result<()> {
        let contents = self.contents(handle)?;
        check_fit(data.len(), contents.len())?;
        let values = contents.narrow(0, 0, data.len())?.to_vec::<f32>()?;
        data.copy_from_slice(&values);
        Ok(())
    }

    /// What memory holds.
    pub(crate) fn contents(&self, handle: &GpuMemoryHandle) -> Result<Tensor> {
        let fits = |memory: &&Tensor| handle.device_id == self.id && handle.size == 4 * memory.len();
        let known = self.memory.get(&handle.ptr).filter(fits);
        known.cloned().ok_or_else(|| {
            let (ptr, id) = (handle.ptr, self.id);
            NetworkError::gpu(format!(
                "memory {ptr} is not of the context of device {id}, or was given back: allocate anew"
            ))
        })
    }

    /// Puts other numbers into memory.
    pub(crate) fn replace(&mut self, handle: &GpuMemoryHandle, contents: Tensor) {
        self.memory.insert(handle.ptr, contents);
    }

    /// Waits for all that was submitted.
    ///
    /// # Errors
    /// If the device failed.
    pub fn synchronize(&mut self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    /// What the device's memory holds.
    pub fn memory_stats(&self) -> GpuMemoryStats {
        let memory = self.device.memory();
        let total = memory.total.or(self.device.info().total_memory).unwrap_or(0);
        GpuMemoryStats {
            allocated: ByteCount::from(memory.allocated),
            peak: ByteCount::from(memory.peak),
            available: ByteCount(memory.available.unwrap_or(0)),
            total: ByteCount(total),
            fragmentation: memory.fragmentation(),
            allocation_count: usize::try_from(memory.allocations).unwrap_or(usize::MAX),
        }
    }

    /// A name for work that belongs together. The engine has one queue a device, and the order in which work was given is
    /// that in which it is done, whatever stream it was given to.
    ///
    /// # Errors
    /// None so far.
    pub fn create_stream(&mut self) -> Result<GpuStreamHandle> {
        let stream = GpuStreamHandle(self.streams);
        self.streams += 1;
        Ok(stream)
    }

    /// Gives work to a stream from now on.
    ///
    /// # Errors
    /// If the context has no such stream.
    pub fn set_stream(&mut self, stream: GpuStreamHandle) -> Result<()> {
        if stream.0 >= self.streams {
            let reason = "the context has no such stream: make one with create_stream";
            return Err(NetworkError::invalid_parameter("stream", stream.0, reason));
        }
        self.stream = stream;
        Ok(())
    }

    /// The stream that work is given to.
    pub fn stream(&self) -> GpuStreamHandle {
        self.stream
    }
}

fn check_fit(asked: usize, there: usize) -> Result<()> {
    if asked <= there {
        return Ok(());
    }
    Err(NetworkError::dimension_mismatch("copy", format!("at most {there} numbers"), asked.to_string()))
}
