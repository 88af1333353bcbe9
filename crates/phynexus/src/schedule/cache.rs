//! Each device's plans by key. A lookup compares the whole key, so a hash collision cannot return a wrong plan.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::{
    plan::{Plan, PlannedStep},
    slots::Numbers,
};
use crate::{
    Device,
    hash::FastMap,
    kernel::{fused::Fusion, step::Step},
};

/// The maximum number of plans kept for a device.
const CAPACITY: usize = 512;
/// The maximum size of a device's cache in bytes, by estimate. The most recent plan is kept even if it is larger.
const BYTES: usize = 128 << 20;

struct Cache<P> {
    plans: FastMap<Vec<u64>, Entry<P>>,
    bytes: usize,
    clock: u64,
    hits: u64,
    misses: u64,
}

struct Entry<P> {
    /// The first plan, which has the graph's numbers built in, and the last one, if there are several.
    plans: SmallVec<[Arc<P>; 1]>,
    used: u64,
    /// The bytes of the key and the plans, and of the first plan's share.
    bytes: usize,
    first: usize,
}

/// One for each device: work on one device does not evict the plans of another.
static CACHES: Mutex<Vec<(Device, Cache<Plan>)>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Vec<(Device, Cache<Plan>)>> {
    CACHES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn of(caches: &mut Vec<(Device, Cache<Plan>)>, device: Device) -> &mut Cache<Plan> {
    let at = caches.iter().position(|(known, _)| *known == device).unwrap_or_else(|| {
        caches.push((device, Cache::default()));
        caches.len() - 1
    });
    &mut caches[at].1
}

/// Returns a plan of this key, and whether it fits these numbers. If none fits, it is the last one made.
pub(super) fn find(device: Device, key: &[u64], numbers: &Numbers) -> Option<(Arc<Plan>, bool)> {
    of(&mut lock(), device).find(key, |plan| plan.slots.fit(numbers))
}

/// Estimated host memory of a compiled step, and of each instruction of its kernel. Based on the CPU's executables.
const STEP_BYTES: usize = 4096;
const INSTRUCTION_BYTES: usize = 512;

/// Returns an estimate of the host memory that a plan occupies, in bytes.
fn host_bytes(plan: &Plan) -> usize {
    let kernel = |kernel: &Fusion| STEP_BYTES + INSTRUCTION_BYTES * kernel.instructions.len();
    let step = |step: &PlannedStep| match &step.step {
        Step::Fused(fused) => kernel(fused),
        Step::Batch(kernels) => kernels.iter().map(kernel).sum(),
        Step::Library(library) => STEP_BYTES + library.epilogue.as_ref().map_or(0, kernel),
    };
    plan.steps.iter().map(step).sum()
}

pub(super) fn insert(device: Device, key: Vec<u64>, plan: Arc<Plan>) {
    let bytes = host_bytes(&plan);
    let mut caches = lock();
    let dropped = of(&mut caches, device).insert(key, plan, bytes);
    drop(caches);
    drop(dropped);
}

impl<P> Default for Cache<P> {
    fn default() -> Cache<P> {
        Cache { plans: FastMap::default(), bytes: 0, clock: 0, hits: 0, misses: 0 }
    }
}

impl<P> Cache<P> {
    fn find(&mut self, key: &[u64], fits: impl Fn(&P) -> bool) -> Option<(Arc<P>, bool)> {
        self.clock += 1;
        let found = self.plans.get_mut(key).and_then(|entry| {
            entry.used = self.clock;
            let fitting = entry.plans.iter().find(|plan| fits(plan)).map(|plan| (plan.clone(), true));
            fitting.or_else(|| entry.plans.last().map(|plan| (plan.clone(), false)))
        });
        match found {
            Some((_, true)) => self.hits += 1,
            _ => self.misses += 1,
        }
        found
    }

    /// Inserts a plan and returns the evicted entries. The caller drops them after releasing the lock.
    fn insert(&mut self, key: Vec<u64>, plan: Arc<P>, bytes: usize) -> Vec<Entry<P>> {
        let bytes = bytes.saturating_add(size_of_val(&key[..]));
        let mut dropped = Vec::new();
        if self.plans.len() >= CAPACITY || self.bytes.saturating_add(bytes) > BYTES {
            // Evicts the older half at once, to amortize the scan.
            let mut ages: Vec<(u64, usize)> =
                self.plans.values().map(|entry| (entry.used, entry.bytes)).collect();
            ages.sort_unstable();
            let (mut count, mut left, mut limit) = (0, self.bytes, 0);
            for (used, bytes) in ages.iter().copied() {
                if count > ages.len() / 2 && left <= BYTES / 2 {
                    break;
                }
                (count, left, limit) = (count + 1, left - bytes, used);
            }
            let old = self.plans.extract_if(|_, entry| entry.used <= limit);
            dropped.extend(old.map(|(_, entry)| entry));
            self.bytes = left;
        }
        self.clock += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let former = self.plans.remove(&key);
        let mut entry = Entry { plans: SmallVec::new(), used: self.clock, bytes, first: bytes };
        if let Some(mut former) = former {
            self.bytes -= former.bytes - former.first;
            (entry.bytes, entry.first) = (bytes.saturating_add(former.first), former.first);
            let replaced = former.plans.drain(1..).collect();
            entry.plans.append(&mut former.plans);
            dropped.push(Entry { plans: replaced, ..former });
        }
        entry.plans.push(plan);
        self.plans.insert(key, entry);
        dropped
    }
}

/// Returns the number of plan cache hits and misses since the start of the process.
pub fn plan_statistics() -> (u64, u64) {
    lock().iter().fold((0, 0), |(hits, misses), (_, cache)| (hits + cache.hits, misses + cache.misses))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(cache: &mut Cache<usize>, key: u64) -> Option<usize> {
        cache.find(&[key], |_| true).map(|(plan, _)| *plan)
    }

    #[test]
    fn what_was_used_longest_ago_goes_for_what_is_new() {
        let mut cache: Cache<usize> = Cache::default();
        let plan = BYTES / 10;
        for number in 0..100 {
            // Entry 0 is used in every iteration.
            assert_eq!(find(&mut cache, 0), (number > 0).then_some(0));
            assert!(find(&mut cache, number).is_none() || number == 0);
            cache.insert(vec![number], Arc::new(number as usize), plan);
            assert!(cache.bytes <= BYTES, "{number}: {}", cache.bytes);
            assert_eq!(cache.bytes, cache.plans.values().map(|entry| entry.bytes).sum::<usize>());
            assert!(find(&mut cache, number).is_some());
        }
        assert!(cache.plans.len() > 2);
        // A plan larger than the limit is kept until the next insertion.
        cache.insert(vec![100], Arc::new(100), 2 * BYTES);
        assert_eq!(find(&mut cache, 100), Some(100));
        cache.insert(vec![101], Arc::new(101), plan);
        assert_eq!((find(&mut cache, 101), cache.plans.len()), (Some(101), 1));
        // Fills the cache with small plans up to its capacity.
        for number in 200..200 + 3 * CAPACITY as u64 {
            cache.insert(vec![number], Arc::new(0), 100);
            assert!(cache.plans.len() <= CAPACITY);
        }
    }
}
