//! Memory of small blocks: a buffer of its own costs 64 KiB.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{object::Memory, ranges::Ranges};

/// Blocks up to this size are parts of a slab.
pub(crate) const SMALL: u64 = 64 << 10;
/// The size of a slab.
pub(crate) const SLAB: u64 = 4 << 20;
/// The alignment of parts.
const GRANULE: u64 = 256;

/// Buffers that are divided into small blocks.
#[derive(Default)]
pub(crate) struct Slabs(Mutex<All>);

#[derive(Default)]
struct All {
    slabs: Vec<(Arc<Memory>, Ranges)>,
    /// Bytes of the blocks in use.
    used: u64,
}

impl Slabs {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free part, and where it begins.
    pub(crate) fn take(&self, bytes: u64) -> Option<(Arc<Memory>, u64)> {
        let mut all = self.lock();
        let find = |(memory, ranges): &mut (Arc<Memory>, Ranges)| {
            Some((memory.clone(), ranges.take(bytes.next_multiple_of(GRANULE))?))
        };
        let found = all.slabs.iter_mut().find_map(find)?;
        all.used += bytes;
        Some(found)
    }

    pub(crate) fn add(&self, memory: Arc<Memory>) {
        self.lock().slabs.push((memory, Ranges::new(SLAB)));
    }

    /// Takes back a part. Later work in it comes after the work that used it.
    pub(crate) fn give_back(&self, memory: &Arc<Memory>, start: u64, bytes: u64) {
        let mut all = self.lock();
        let own = all.slabs.iter_mut().find(|(slab, _)| Arc::ptr_eq(slab, memory));
        // After the device was removed, there are no slabs.
        if let Some((_, ranges)) = own {
            ranges.give_back(start, bytes.next_multiple_of(GRANULE));
            all.used -= bytes;
        }
    }

    /// Removes the slabs of which nothing is used.
    pub(crate) fn unused(&self) -> Vec<Arc<Memory>> {
        self.lock().slabs.extract_if(.., |(_, ranges)| ranges.is_free()).map(|(memory, _)| memory).collect()
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }

    /// Bytes of the slabs that no block has.
    pub(crate) fn rest(&self) -> u64 {
        let all = self.lock();
        all.slabs.len() as u64 * SLAB - all.used
    }
}
