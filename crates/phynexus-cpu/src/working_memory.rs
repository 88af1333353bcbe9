//! How much memory threads and kernels keep to work in, beside the pool's.

use std::sync::atomic::{AtomicUsize, Ordering};

use phynexus::{host_memory, interrupt::or_leave};

/// Bytes of all such memory of the process.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The bytes kept now.
pub(crate) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Says that so many bytes more were taken from the system.
pub(crate) fn taken(bytes: usize) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Says that so many bytes were given back.
pub(crate) fn given_back(bytes: usize) {
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// `count` times the same value, for a kernel; which is left if the system refuses the memory.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    or_leave(host_memory::filled(value, count))
}
