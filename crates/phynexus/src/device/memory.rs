//! The caching memory pool that device crates put over their allocator.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{Error, Result, profile};

/// What a device's memory pool holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Held by live tensors, as asked for.
    pub allocated: usize,
    /// The most that `allocated` has been, since the start or the last reset.
    pub peak: usize,
    /// Taken from the system: live, cached and rounding, and what the device's kernels keep to work in.
    pub reserved: usize,
    /// The limit in force.
    pub limit: Option<usize>,
    /// Allocations served since the start; those refused are not counted.
    pub allocations: u64,
    /// Of those, served from the cache.
    pub reused: u64,
}

/// Blocks of one allocator, cached by size. `B` is the allocator's block.
///
/// Requests are rounded up to size classes (eight per power of two, so at most 12.5% waste) and a freed block serves
/// the next request of its class. The cache gives memory back when a limit is met or [`Pool::empty_cache`] is called.
pub struct Pool<B> {
    state: Mutex<PoolState<B>>,
    device: String,
}

struct PoolState<B> {
    free: BTreeMap<usize, Vec<B>>,
    cached: usize,
    statistics: MemoryStatistics,
}

/// The smallest class, and the alignment of all of them.
const GRANULE: usize = 64;

/// The size of the block that serves a request: the next of eight steps per power of two.
pub fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(GRANULE);
    let power = bytes.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1));
    let step = (power / 16).max(GRANULE);
    bytes.div_ceil(step).saturating_mul(step)
}

impl<B> Pool<B> {
    /// An empty pool for the device of this name.
    pub fn new(device: impl Into<String>) -> Pool<B> {
        let state = PoolState { free: BTreeMap::new(), cached: 0, statistics: MemoryStatistics::default() };
        Pool { state: Mutex::new(state), device: device.into() }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block for `bytes`: from the cache, else from `allocate` (called with the class size, without the lock held).
    /// When a limit or `allocate` refuses, the cache is emptied and tried once more.
    pub fn allocate(&self, bytes: usize, allocate: impl Fn(usize) -> Option<B>) -> Result<B> {
        let class = size_class(bytes);
        let out_of_memory = |statistics: &MemoryStatistics| Error::OutOfMemory {
            device: self.device.clone(),
            requested: bytes,
            in_use: statistics.allocated,
            limit: statistics.limit.unwrap_or(usize::MAX),
            hint: "use a smaller batch, drop tensors that are no longer needed, or raise the limit"
                .to_owned(),
        };
        let mut dropped = Vec::new();
        {
            let mut state = self.lock();
            let limit = state.statistics.limit.unwrap_or(usize::MAX);
            let allocated = state.statistics.allocated.checked_add(bytes).filter(|&sum| sum <= limit);
            let reserved = state.statistics.reserved.checked_add(class);
            let (Some(allocated), Some(reserved)) = (allocated, reserved) else {
                return Err(out_of_memory(&state.statistics));
            };
            state.statistics.allocated = allocated;
            if let Some(block) = state.free.get_mut(&class).and_then(Vec::pop) {
                state.cached -= class;
                state.statistics.reused += 1;
                let now = state.served();
                drop(state);
                profile::memory(&self.device, &now);
                return Ok(block);
            }
            if reserved > limit {
                state.take_cache(&mut dropped);
            }
            state.statistics.reserved += class;
        }
        drop(dropped);
        let block = allocate(class).or_else(|| {
            self.empty_cache();
            allocate(class)
        });
        let mut state = self.lock();
        match block {
            Some(block) => {
                let now = state.served();
                drop(state);
                profile::memory(&self.device, &now);
                Ok(block)
            }
            None => {
                state.statistics.reserved -= class;
                state.statistics.allocated -= bytes;
                Err(out_of_memory(&state.statistics))
            }
        }
    }

    /// Takes back a block that served `bytes`.
    pub fn release(&self, bytes: usize, block: B) {
        let class = size_class(bytes);
        let mut state = self.lock();
        state.statistics.allocated -= bytes;
        state.cached += class;
        state.free.entry(class).or_default().push(block);
        let now = state.statistics;
        drop(state);
        profile::memory(&self.device, &now);
    }

    /// Drops every cached block.
    pub fn empty_cache(&self) {
        let mut dropped = Vec::new();
        self.lock().take_cache(&mut dropped);
    }

    /// The figures now.
    pub fn statistics(&self) -> MemoryStatistics {
        self.lock().statistics
    }

    /// Counts the peak anew, from what is allocated now.
    pub fn reset_peak(&self) {
        let mut state = self.lock();
        state.statistics.peak = state.statistics.allocated;
    }

    /// Sets or lifts the limit on bytes in use.
    pub fn set_limit(&self, limit: Option<usize>) {
        self.lock().statistics.limit = limit;
    }
}

impl<B> PoolState<B> {
    /// Counts an allocation that was served; the figures then.
    fn served(&mut self) -> MemoryStatistics {
        self.statistics.allocations += 1;
        self.statistics.peak = self.statistics.peak.max(self.statistics.allocated);
        self.statistics
    }

    fn take_cache(&mut self, out: &mut Vec<B>) {
        self.statistics.reserved -= self.cached;
        self.cached = 0;
        out.extend(std::mem::take(&mut self.free).into_values().flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_little_and_are_monotone() {
        assert!(
            size_class(usize::MAX) == usize::MAX && size_class(isize::MAX as usize) > isize::MAX as usize
        );
        let mut last = 0;
        for bytes in (1..200_000).step_by(37) {
            let class = size_class(bytes);
            assert!(class >= bytes && class >= last && class.is_multiple_of(GRANULE));
            assert!(class <= bytes + bytes / 8 + GRANULE, "{bytes} -> {class}");
            last = class;
        }
    }

    #[test]
    fn blocks_are_reused_and_counted() {
        let pool = Pool::new("test");
        let block = pool.allocate(1000, |n| Some(vec![0u8; n])).unwrap();
        pool.release(1000, block);
        let block = pool.allocate(990, |_| None).unwrap();
        let s = pool.statistics();
        assert_eq!((s.allocated, s.peak, s.allocations, s.reused), (990, 1000, 2, 1));
        assert!(pool.allocate(5000, |_| None).is_err());
        assert_eq!(pool.statistics().peak, 1000);
        pool.reset_peak();
        assert_eq!(pool.statistics().peak, 990);
        pool.release(990, block);
        pool.empty_cache();
        assert_eq!(pool.statistics().reserved, 0);
    }

    #[test]
    fn limits_and_failures_are_typed_errors_and_leave_the_figures_right() {
        let pool = Pool::<Vec<u8>>::new("test");
        pool.set_limit(Some(1 << 20));
        assert!(matches!(pool.allocate(2 << 20, |n| Some(vec![0; n])), Err(Error::OutOfMemory { .. })));
        pool.set_limit(None);
        assert!(matches!(pool.allocate(100, |_| None), Err(Error::OutOfMemory { .. })));
        assert!(matches!(pool.allocate(usize::MAX, |_| None), Err(Error::OutOfMemory { .. })));
        assert!(matches!(pool.allocate(isize::MAX as usize, |_| None), Err(Error::OutOfMemory { .. })));
        let s = pool.statistics();
        assert_eq!((s.allocated, s.reserved, s.peak, s.allocations), (0, 0, 0, 0));
    }
}
