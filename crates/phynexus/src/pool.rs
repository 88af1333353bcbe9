//! A caching memory pool that device crates put on top of their allocator.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{Error, Result, device::MemoryStatistics, profile};

/// Blocks of one allocator, cached by size. `B` is the allocator's block.
///
/// Requests are rounded up to size classes: eight per power of two, so at most 12.5% is wasted. A freed block serves
/// the next request of its class. Cached memory is freed when a limit is reached or [`Pool::empty_cache`] is called.
pub struct Pool<B> {
    state: Mutex<PoolState<B>>,
    device: String,
    /// The maximum size of the cache in bytes, or the reason why the setting is invalid.
    keep: Result<usize, String>,
}

struct PoolState<B> {
    free: BTreeMap<usize, Vec<B>>,
    cached: usize,
    /// The class of the largest request served so far.
    largest: usize,
    statistics: MemoryStatistics,
}

/// The smallest class, and the alignment of every class.
const GRANULE: usize = 64;

/// The environment variable that sets how much is cached.
const VARIABLE: &str = "RNN_GPU_MEMORY_POOL";

/// Parses the maximum size of the cache.
fn kept(given: &str) -> Result<usize, String> {
    let value = given.trim().to_ascii_uppercase();
    match &*value {
        "" | "1" | "ON" => return Ok(usize::MAX),
        "0" | "OFF" => return Ok(0),
        _ => {}
    }
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let power = match value[digits..].trim_end_matches("IB").trim_end_matches('B') {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 0,
    };
    let size = value[..digits].parse::<usize>().ok().filter(|_| power > 0);
    size.and_then(|size| size.checked_mul(1 << power)).ok_or_else(|| {
        format!(
            "expected 0 (cache nothing), 1 (cache everything) or a size such as 512M or 4G, given {given:?}"
        )
    })
}

/// Returns the size of the block that serves a request: the next of eight steps per power of two.
pub fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(GRANULE);
    let power = bytes.checked_next_power_of_two().unwrap_or(1 << (usize::BITS - 1));
    let step = (power / 16).max(GRANULE);
    bytes.div_ceil(step).saturating_mul(step)
}

impl<B> Pool<B> {
    /// Makes an empty pool for the device of this name.
    pub fn new(device: impl Into<String>) -> Pool<B> {
        let statistics = MemoryStatistics::default();
        let state = PoolState { free: BTreeMap::new(), cached: 0, largest: 0, statistics };
        Pool { state: Mutex::new(state), device: device.into(), keep: Ok(usize::MAX) }
    }

    /// Makes a pool configured by `RNN_GPU_MEMORY_POOL`. `0` or `off` disables caching and rounding. `1`, `on` or an
    /// unset variable caches everything. A size such as `512M` or `4G` limits the cache. With any other value, every
    /// allocation is an error.
    pub fn from_environment(device: impl Into<String>) -> Pool<B> {
        let value = std::env::var(VARIABLE).unwrap_or_default();
        Pool { keep: kept(&value), ..Pool::new(device) }
    }

    /// Returns the size of the block that serves a request. Without a cache there is no rounding, so memory checkers
    /// detect every access beyond a tensor.
    fn class(&self, bytes: usize) -> usize {
        if self.keep == Ok(0) { bytes.max(1) } else { size_class(bytes) }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a block for `bytes` bytes, from the cache or from `allocate`. `allocate` is called with the class size
    /// and without the lock. If a limit is reached or `allocate` fails, the cache is emptied and the request tried once
    /// more.
    pub fn allocate(&self, bytes: usize, allocate: impl Fn(usize) -> Option<B>) -> Result<B> {
        let class = self.class(bytes);
        let out_of_memory = |statistics: &MemoryStatistics| Error::OutOfMemory {
            device: self.device.clone(),
            requested: bytes,
            in_use: statistics.allocated,
            limit: statistics.limit.unwrap_or(usize::MAX),
            hint: match statistics.limit {
                Some(limit) if bytes > limit.saturating_sub(statistics.allocated) => {
                    "use a smaller batch, drop tensors that are no longer needed, or raise the limit"
                }
                _ => "use a smaller batch, or drop tensors that are no longer needed",
            }
            .to_owned(),
        };
        if let Err(wrong) = &self.keep {
            return Err(Error::argument(VARIABLE, wrong.clone()));
        }
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
                let now = state.served(class);
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
                let now = state.served(class);
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

    /// Takes back a block that served `bytes` bytes.
    pub fn release(&self, bytes: usize, block: B) {
        self.take_back(bytes, block, self.keep.as_ref().map_or(0, |&keep| keep));
    }

    /// Frees a block that served `bytes` bytes, because it cannot be used again.
    pub fn discard(&self, bytes: usize, block: B) {
        self.take_back(bytes, block, 0);
    }

    /// Takes back a block, and keeps it if the cache then has at most `most` bytes.
    fn take_back(&self, bytes: usize, block: B, most: usize) {
        let class = self.class(bytes);
        let mut state = self.lock();
        state.statistics.allocated -= bytes;
        let keep = state.cached.saturating_add(class) <= most;
        let mut dropped = None;
        if keep {
            state.cached += class;
            state.free.entry(class).or_default().push(block);
        } else {
            state.statistics.reserved -= class;
            dropped = Some(block);
        }
        let now = state.statistics;
        drop(state);
        drop(dropped);
        profile::memory(&self.device, &now);
    }

    /// Frees every cached block.
    pub fn empty_cache(&self) {
        let mut dropped = Vec::new();
        self.lock().take_cache(&mut dropped);
    }

    /// Returns the current statistics.
    pub fn statistics(&self) -> MemoryStatistics {
        let state = self.lock();
        let small = state.free.range(..state.largest).map(|(class, blocks)| class * blocks.len());
        MemoryStatistics { cached: state.cached, stranded: small.sum(), ..state.statistics }
    }

    /// Resets the peak to the bytes now allocated.
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
    /// Counts a successful allocation and returns the new statistics.
    fn served(&mut self, class: usize) -> MemoryStatistics {
        self.largest = self.largest.max(class);
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
    fn what_is_discarded_is_not_reused() {
        let pool = Pool::new("test");
        let block = pool.allocate(1000, |n| Some(vec![0u8; n])).unwrap();
        pool.discard(1000, block);
        let s = pool.statistics();
        assert_eq!((s.allocated, s.reserved, s.cached), (0, 0, 0));
        assert!(pool.allocate(1000, |_| None).is_err());
    }

    #[test]
    fn what_is_cached_and_too_small_is_fragmentation() {
        let pool = Pool::new("test");
        let take = |bytes: usize| pool.allocate(bytes, |n| Some(vec![0u8; n])).unwrap();
        assert_eq!(pool.statistics().fragmentation(), 0.0);
        let (small, large, live) = (take(1024), take(4096), take(1024));
        pool.release(1024, small);
        pool.release(4096, large);
        let s = pool.statistics();
        assert_eq!((s.reserved, s.cached, s.stranded), (6144, 5120, 1024));
        assert_eq!(s.fragmentation(), 1024.0 / 6144.0);
        pool.release(1024, live);
        pool.empty_cache();
        let s = pool.statistics();
        assert_eq!((s.reserved, s.cached, s.stranded, s.fragmentation()), (0, 0, 0, 0.0));
    }

    #[test]
    fn the_cache_is_as_large_as_was_asked_for() {
        assert_eq!([kept(""), kept("1"), kept(" on ")], [Ok(usize::MAX), Ok(usize::MAX), Ok(usize::MAX)]);
        assert_eq!([kept("0"), kept("off")], [Ok(0), Ok(0)]);
        assert_eq!(
            [kept("512M"), kept("3k"), kept("4GiB"), kept("2gb")].map(Result::unwrap),
            [512 << 20, 3 << 10, 4 << 30, 2 << 30]
        );
        for wrong in ["2", "-1", "many", "G", "1X", "99999999999999999999G", "9999999999T", "1.5G"] {
            assert!(kept(wrong).is_err(), "{wrong}");
        }
        let pool = Pool { keep: Ok(2048), ..Pool::new("test") };
        let blocks: Vec<Vec<u8>> =
            (0..3).map(|_| pool.allocate(1024, |n| Some(vec![0; n])).unwrap()).collect();
        blocks.into_iter().for_each(|block| pool.release(1024, block));
        let s = pool.statistics();
        assert_eq!((s.allocated, s.reserved, s.cached), (0, 2048, 2048));
        let none = Pool { keep: Ok(0), ..Pool::new("test") };
        let block = none.allocate(1001, |n| Some(vec![0u8; n])).unwrap();
        assert_eq!((block.len(), none.statistics().reserved), (1001, 1001));
        none.release(1001, block);
        assert_eq!((none.statistics().reserved, none.statistics().cached), (0, 0));
        let wrong = Pool::<u8> { keep: kept("Many gb"), ..Pool::new("test") };
        let error = wrong.allocate(8, |_| Some(0)).unwrap_err().to_string();
        assert!(error.contains("RNN_GPU_MEMORY_POOL") && error.contains("given \"Many gb\""), "{error}");
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
