//! Plans by key. A hit compares the whole key, so equal hashes of different graphs cannot be confused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::plan::Plan;
use crate::graph::node::FastBuild;

/// More plans than this are never kept.
const CAPACITY: usize = 512;

#[derive(Default)]
struct Cache {
    plans: HashMap<Vec<u64>, (Arc<Plan>, u64), FastBuild>,
    clock: u64,
    hits: u64,
    misses: u64,
}

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Cache>> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn find(key: &[u64]) -> Option<Arc<Plan>> {
    let mut guard = lock();
    let cache = guard.get_or_insert_default();
    cache.clock += 1;
    match cache.plans.get_mut(key) {
        Some((plan, used)) => {
            *used = cache.clock;
            cache.hits += 1;
            Some(plan.clone())
        }
        None => {
            cache.misses += 1;
            None
        }
    }
}

pub(super) fn insert(key: Vec<u64>, plan: Arc<Plan>) {
    let mut guard = lock();
    let cache = guard.get_or_insert_default();
    let mut dropped = Vec::new();
    if cache.plans.len() >= CAPACITY {
        // The older half goes at once, so that the search for it is paid rarely.
        let mut times: Vec<u64> = cache.plans.values().map(|(_, used)| *used).collect();
        times.sort_unstable();
        let limit = times[times.len() / 2];
        dropped.extend(cache.plans.extract_if(|_, (_, used)| *used <= limit));
    }
    cache.plans.insert(key, (plan, cache.clock));
    drop(guard);
    drop(dropped);
}

/// How often a plan was known, and how often one had to be made, since the start.
pub fn plan_statistics() -> (u64, u64) {
    lock().as_ref().map_or((0, 0), |cache| (cache.hits, cache.misses))
}
