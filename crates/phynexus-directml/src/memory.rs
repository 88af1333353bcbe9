//! Blocks of device memory, and host memory that the device reads and writes.

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use phynexus::{Error, Result, gpu::Medium};
use windows::Win32::Graphics::{
    Direct3D12::{
        D3D12_CPU_PAGE_PROPERTY_WRITE_BACK, D3D12_HEAP_FLAG_NONE, D3D12_HEAP_PROPERTIES,
        D3D12_HEAP_TYPE_CUSTOM, D3D12_HEAP_TYPE_DEFAULT, D3D12_MEMORY_POOL_L0, D3D12_RESOURCE_DESC,
        D3D12_RESOURCE_DIMENSION_BUFFER, D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS,
        D3D12_RESOURCE_FLAG_NONE, D3D12_RESOURCE_FLAGS, D3D12_RESOURCE_STATE_COMMON,
        D3D12_TEXTURE_LAYOUT_ROW_MAJOR, ID3D12Resource,
    },
    Dxgi::Common::DXGI_SAMPLE_DESC,
};

use crate::{connection::Connection, object::Mapped};

/// Device memory.
pub(crate) struct Block {
    connection: Arc<Connection>,
    resource: ID3D12Resource,
    /// Its address on the device.
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Other blocks may get its address after it, but not its number.
    pub(crate) number: u64,
}

impl Block {
    /// A block of so many bytes; `None` if memory does not suffice.
    pub(crate) fn new(connection: &Arc<Connection>, bytes: usize) -> Option<Block> {
        // Kernels access whole vectors of four words.
        let bytes = (bytes as u64).max(1).checked_next_multiple_of(16)?;
        let heap = D3D12_HEAP_PROPERTIES { Type: D3D12_HEAP_TYPE_DEFAULT, ..Default::default() };
        let resource = buffer(connection, bytes, &heap, D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS).ok()?;
        // SAFETY: the resource is a buffer.
        let address = unsafe { resource.GetGPUVirtualAddress() };
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Some(Block { connection: connection.clone(), resource, address, bytes, number })
    }

    pub(crate) fn resource(&self) -> &ID3D12Resource {
        &self.resource
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.connection.release(self.resource.clone());
    }
}

// SAFETY: Direct3D's resources may be used from any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

/// A buffer with memory of its own.
fn buffer(
    connection: &Connection,
    bytes: u64,
    heap: &D3D12_HEAP_PROPERTIES,
    flags: D3D12_RESOURCE_FLAGS,
) -> Result<ID3D12Resource> {
    let description = D3D12_RESOURCE_DESC {
        Dimension: D3D12_RESOURCE_DIMENSION_BUFFER,
        Width: bytes,
        Height: 1,
        DepthOrArraySize: 1,
        MipLevels: 1,
        SampleDesc: DXGI_SAMPLE_DESC { Count: 1, Quality: 0 },
        Layout: D3D12_TEXTURE_LAYOUT_ROW_MAJOR,
        Flags: flags,
        ..Default::default()
    };
    let mut made: Option<ID3D12Resource> = None;
    // SAFETY: the descriptions and the pointer are valid during the call.
    let result = unsafe {
        let state = D3D12_RESOURCE_STATE_COMMON;
        let device = connection.device();
        device.CreateCommittedResource(heap, D3D12_HEAP_FLAG_NONE, &description, state, None, &mut made)
    };
    result.map_err(|error| connection.error("allocating memory", &error))?;
    made.ok_or_else(|| Error::internal("phynexus_directml", "no buffer was made"))
}

/// Host memory that the device reads and writes.
pub(crate) struct Pinned {
    mapped: Mapped,
    resource: ID3D12Resource,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is owned exclusively, and Direct3D's resources may be used from any thread.
unsafe impl Send for Pinned {}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the buffer is mapped, and new buffers are zeroed.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl AsMut<[u8]> for Pinned {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and this is the only reference.
        unsafe { slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.mapped.remove(self.start.addr());
        // SAFETY: the buffer is mapped, and no reference to its bytes is left.
        unsafe { self.resource.Unmap(0, None) };
    }
}

impl Medium for Connection {
    type Pinned = Pinned;
    /// The fence's value.
    type Event = u64;

    fn pin(&self, bytes: usize) -> Option<Pinned> {
        // Unlike Direct3D's own kinds of heaps, this one is for both directions.
        let heap = D3D12_HEAP_PROPERTIES {
            Type: D3D12_HEAP_TYPE_CUSTOM,
            CPUPageProperty: D3D12_CPU_PAGE_PROPERTY_WRITE_BACK,
            MemoryPoolPreference: D3D12_MEMORY_POOL_L0,
            ..Default::default()
        };
        let resource = buffer(self, bytes.max(1) as u64, &heap, D3D12_RESOURCE_FLAG_NONE).ok()?;
        let mut start = std::ptr::null_mut();
        // SAFETY: the pointer is valid during the call.
        unsafe { resource.Map(0, None, Some(&mut start)) }.ok()?;
        let start = start.cast::<u8>();
        self.mapped.insert(start.addr(), resource.clone());
        Some(Pinned { mapped: self.mapped.clone(), resource, start, bytes })
    }

    fn event(&self) -> Result<u64> {
        self.flush()
    }

    fn has_happened(&self, event: &u64) -> bool {
        self.has_finished(*event)
    }

    fn wait(&self, event: &u64) -> Result<()> {
        self.wait_for(*event)
    }
}
