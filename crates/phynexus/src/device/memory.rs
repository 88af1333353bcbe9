//! What a device tells of its memory.

/// What a device's memory pool holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Held by live tensors, as asked for.
    pub allocated: usize,
    /// The most that `allocated` has been, since the start or the last reset.
    pub peak: usize,
    /// Taken from the system: live, cached and rounding, and what the device's kernels keep to work in.
    pub reserved: usize,
    /// Of that, in blocks that wait for the next request of their size.
    pub cached: usize,
    /// Of the cached, in blocks smaller than the largest request so far needs: they could not serve it.
    pub stranded: usize,
    /// The limit in force.
    pub limit: Option<usize>,
    /// Allocations served since the start; those refused are not counted.
    pub allocations: u64,
    /// Of those, served from the cache.
    pub reused: u64,
    /// The device's memory that nobody has, if it tells.
    pub available: Option<u64>,
    /// The device's memory, if it tells.
    pub total: Option<u64>,
    /// Tensors whose data the host's memory holds, since the device was full.
    pub spilled_tensors: usize,
    /// Their bytes.
    pub spilled_bytes: usize,
    /// How often tensors were moved there.
    pub spills: u64,
    /// Bytes of the host's memory that copies to and from the device go through.
    pub pinned: usize,
}

impl MemoryStatistics {
    /// The share of the reserved memory that is cached and too small for the largest request so far:
    /// `stranded / reserved`, 0 if nothing is reserved.
    pub fn fragmentation(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.stranded as f64 / self.reserved as f64 }
    }
}
