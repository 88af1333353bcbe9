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

use crate::{
    connection::Connection,
    object::{Held, Mapped, Memory},
    slabs::{SLAB, SMALL},
};

/// The most bytes of a device that are given out.
static LIMIT: AtomicU64 = AtomicU64::new(u64::MAX);

/// Makes devices behave as if they had only so many bytes of memory, or all that they have. For tests.
#[doc(hidden)]
pub fn limit_memory(bytes: Option<u64>) {
    LIMIT.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// A new buffer of the device.
fn memory(connection: &Connection, bytes: u64) -> Result<Arc<Memory>> {
    if connection.bytes.load(Ordering::Relaxed).saturating_add(bytes) > LIMIT.load(Ordering::Relaxed) {
        return Err(connection.no_room("allocating memory", bytes as usize));
    }
    let heap = D3D12_HEAP_PROPERTIES { Type: D3D12_HEAP_TYPE_DEFAULT, ..Default::default() };
    let resource = buffer(connection, bytes, &heap, D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS)?;
    // SAFETY: the resource is a buffer.
    let address = unsafe { resource.GetGPUVirtualAddress() };
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let all = connection.bytes.clone();
    all.fetch_add(bytes, Ordering::Relaxed);
    let memory = Arc::new(Memory { all, bytes, resource: Held::new(resource), address, number });
    connection.holds(&memory)?;
    Ok(memory)
}

/// Device memory.
pub(crate) struct Block {
    connection: Arc<Connection>,
    memory: Arc<Memory>,
    /// Where it begins in the memory.
    start: u64,
    pub(crate) bytes: u64,
    is_part: bool,
}

/// A part of a slab, and where it begins. `None` if there is no room for another slab. There may be room for the block
/// alone.
fn part(connection: &Connection, bytes: u64) -> Result<Option<(Arc<Memory>, u64)>> {
    loop {
        if let Some(part) = connection.slabs.take(bytes) {
            return Ok(Some(part));
        }
        match memory(connection, SLAB) {
            Ok(slab) => connection.slabs.add(slab),
            Err(Error::OutOfMemory { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

impl Block {
    /// A block of so many bytes.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if memory does not suffice.
    pub(crate) fn new(connection: &Arc<Connection>, bytes: usize) -> Result<Block> {
        // Kernels access whole vectors of four words.
        let no_room = || connection.no_room("allocating memory", bytes);
        let bytes = (bytes as u64).max(1).checked_next_multiple_of(16).ok_or_else(no_room)?;
        if bytes <= SMALL
            && let Some((memory, start)) = part(connection, bytes)?
        {
            return Ok(Block { connection: connection.clone(), memory, start, bytes, is_part: true });
        }
        let memory = memory(connection, bytes)?;
        Ok(Block { connection: connection.clone(), memory, start: 0, bytes, is_part: false })
    }

    /// Its address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address + self.start
    }

    /// Its buffer, and where it begins there.
    ///
    /// # Errors
    /// An error if the device was removed.
    pub(crate) fn place(&self) -> Result<(ID3D12Resource, u64)> {
        let resource = self.memory.resource.get();
        Ok((resource.ok_or_else(|| self.connection.lost())?, self.start))
    }

    /// A number of its buffer that no other has, and where it begins there.
    pub(crate) fn identity(&self) -> (u64, u64) {
        (self.memory.number, self.start)
    }

    /// Whether its contents are lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.connection.is_removed()
    }

    /// # Errors
    /// An error if its contents are lost.
    pub(crate) fn check(&self, on: &Connection) -> Result<()> {
        match self.connection.number == on.number {
            true => Ok(()),
            false => Err(self.connection.lost()),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.is_part {
            true => self.connection.slabs.give_back(&self.memory, self.start, self.bytes),
            false => free(&self.connection, &self.memory),
        }
    }
}

fn free(connection: &Connection, memory: &Memory) {
    if let Some(resource) = memory.resource.take() {
        connection.drop_later(resource);
    }
}

impl Connection {
    /// Frees the slabs of which nothing is used.
    pub(crate) fn trim(&self) {
        self.slabs.unused().iter().for_each(|memory| free(self, memory));
    }
}

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
    let parts = connection.parts()?;
    // SAFETY: the descriptions and the pointer are valid during the call.
    let result = unsafe {
        let state = D3D12_RESOURCE_STATE_COMMON;
        parts.device.CreateCommittedResource(heap, D3D12_HEAP_FLAG_NONE, &description, state, None, &mut made)
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

    fn is_gone(&self) -> bool {
        self.is_removed()
    }
}
