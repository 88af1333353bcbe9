//! The scratch memory kept by threads and kernels, in addition to the pool's memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use phynexus::{host_memory, interrupt::or_leave};

/// Total bytes of this memory in the process.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// The bytes currently kept.
pub(crate) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// Records bytes taken from the system.
pub(crate) fn taken(bytes: usize) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Records bytes returned to the system.
pub(crate) fn given_back(bytes: usize) {
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// A vector of `count` times the same value, for a kernel. If the system refuses the memory, the kernel is left by
/// unwinding.
pub(crate) fn filled<T: Clone>(value: T, count: usize) -> Vec<T> {
    or_leave(host_memory::filled(value, count))
}
