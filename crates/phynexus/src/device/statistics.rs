//! Memory statistics of a device.

/// State of a device's memory pool. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Bytes requested by live tensors.
    pub allocated: usize,
    /// The maximum of `allocated` since the start or the last reset.
    pub peak: usize,
    /// Bytes taken from the system: live blocks, cached blocks and rounding, and the kernels' working memory.
    pub reserved: usize,
    /// The part of `reserved` in cached blocks that can serve later requests of their size.
    pub cached: usize,
    /// The part of `cached` in blocks too small for the largest request so far.
    pub stranded: usize,
    /// The current memory limit.
    pub limit: Option<usize>,
    /// Successful allocations since the start.
    pub allocations: u64,
    /// The part of `allocations` served from the cache.
    pub reused: u64,
    /// Free memory of the device, if it reports that.
    pub available: Option<u64>,
    /// Total memory of the device, if it reports that.
    pub total: Option<u64>,
    /// Tensors whose data was spilled to host memory because the device was full.
    pub spilled_tensors: usize,
    /// Bytes of the spilled tensors.
    pub spilled_bytes: usize,
    /// How often a tensor was spilled.
    pub spills: u64,
    /// Bytes of pinned host memory used for copies to and from the device.
    pub pinned: usize,
}

impl MemoryStatistics {
    /// Returns the share of the reserved memory that is cached and too small for the largest request so far: `stranded
    /// / reserved`, or 0 if nothing is reserved.
    pub fn fragmentation(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.stranded as f64 / self.reserved as f64 }
    }
}
