//! Contexts: memory, copies, streams, statistics of a device.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use neurenix::phynexus::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use super::ByteCount;
use crate::{NetworkError, Result};

/// Memory on a device for `float32` numbers. Clones refer to the same memory. Once it is freed, all of them are
/// invalid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GpuMemoryHandle {
    /// An identifier, which is not an address.
    pub ptr: usize,
    /// The size in bytes.
    pub size: usize,
    /// The device's number.
    pub device_id: usize,
}

/// A stream of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuStreamHandle(pub usize);

/// Statistics of a device's memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuMemoryStats {
    /// Memory of live tensors of this process.
    pub allocated: ByteCount,
    /// The maximum of `allocated` so far.
    pub peak: ByteCount,
    /// The free memory; 0 if the driver does not report it.
    pub available: ByteCount,
    /// The device's memory; 0 if the driver does not report it.
    pub total: ByteCount,
    /// The share of the process's memory that is free, but in pieces too small for the largest request so far.
    pub fragmentation: f64,
    /// The number of allocations so far.
    pub allocation_count: usize,
}

/// The context of a device.
pub struct GpuContext {
    id: usize,
    device: Device,
    memory: HashMap<usize, Tensor>,
    streams: usize,
    stream: GpuStreamHandle,
}

/// The next identifier, which is unique among all contexts.
static NEXT: AtomicUsize = AtomicUsize::new(1);

impl GpuContext {
    pub(crate) fn new(id: usize, device: Device) -> GpuContext {
        GpuContext { id, device, memory: HashMap::new(), streams: 1, stream: GpuStreamHandle(0) }
    }

    /// The device's number.
    pub fn device_id(&self) -> usize {
        self.id
    }

    /// The device's name in the engine, such as `cuda:0`.
    pub fn device_name(&self) -> &str {
        self.device.name()
    }

    pub(crate) fn engine(&self) -> Device {
        self.device
    }

    /// Allocates `size` bytes of zeros.
    ///
    /// # Errors
    /// If `size` is 0 or not a multiple of 4, or there is not enough memory.
    pub fn allocate(&mut self, size: usize) -> Result<GpuMemoryHandle> {
        if size == 0 || !size.is_multiple_of(4) {
            let reason = "memory holds float32 numbers: use a positive multiple of 4";
            return Err(NetworkError::invalid_parameter("size", size, reason));
        }
        let zeros = Tensor::zeros(&[size / 4], DType::F32, self.device)?.contiguous()?.evaluated()?;
        let ptr = NEXT.fetch_add(1, Ordering::Relaxed);
        self.memory.insert(ptr, zeros);
        Ok(GpuMemoryHandle { ptr, size, device_id: self.id })
    }

    /// Frees memory.
    ///
    /// # Errors
    /// If it was already freed, or belongs to another context.
    pub fn deallocate(&mut self, handle: GpuMemoryHandle) -> Result<()> {
        self.contents(&handle)?;
        self.memory.remove(&handle.ptr);
        Ok(())
    }

    /// Copies numbers to the beginning of memory. The rest of the memory does not change.
    ///
    /// # Errors
    /// If there are too many numbers, or the memory was freed.
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

    /// Copies the first numbers of memory to `data`.
    ///
    /// # Errors
    /// If `data` is longer than the memory, or the memory was freed.
    pub fn copy_to_host(&mut self, handle: &GpuMemoryHandle, data: &mut [f32]) -> Result<()> {
        let contents = self.contents(handle)?;
        check_fit(data.len(), contents.len())?;
        let values = contents.narrow(0, 0, data.len())?.to_vec::<f32>()?;
        data.copy_from_slice(&values);
        Ok(())
    }

    /// The contents of memory.
    pub(crate) fn contents(&self, handle: &GpuMemoryHandle) -> Result<Tensor> {
        let fits = |memory: &&Tensor| handle.device_id == self.id && handle.size == 4 * memory.len();
        let known = self.memory.get(&handle.ptr).filter(fits);
        known.cloned().ok_or_else(|| {
            let (ptr, id) = (handle.ptr, self.id);
            NetworkError::gpu(format!(
                "memory {ptr} does not belong to the context of device {id}, or was freed: allocate it again"
            ))
        })
    }

    /// Replaces the contents of memory.
    pub(crate) fn replace(&mut self, handle: &GpuMemoryHandle, contents: Tensor) {
        self.memory.insert(handle.ptr, contents);
    }

    /// Waits until all submitted work is done.
    ///
    /// # Errors
    /// If the device failed.
    pub fn synchronize(&mut self) -> Result<()> {
        Ok(self.device.synchronize()?)
    }

    /// Statistics of the device's memory.
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

    /// Creates a stream. The engine has one queue per device: work on all streams runs in the order of submission.
    pub fn create_stream(&mut self) -> Result<GpuStreamHandle> {
        let stream = GpuStreamHandle(self.streams);
        self.streams += 1;
        Ok(stream)
    }

    /// Selects the stream for further work.
    ///
    /// # Errors
    /// If the context has no such stream.
    pub fn set_stream(&mut self, stream: GpuStreamHandle) -> Result<()> {
        if stream.0 >= self.streams {
            let reason = "the context has no such stream: create one with create_stream";
            return Err(NetworkError::invalid_parameter("stream", stream.0, reason));
        }
        self.stream = stream;
        Ok(())
    }

    /// The selected stream.
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
