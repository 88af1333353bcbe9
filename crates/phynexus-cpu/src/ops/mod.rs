//! Operations without tile kernels: scans, positions, rows by index, sorting, concatenation, copies between layouts.
//!
//! They work on raw buffers of elements of a dtype, contiguous unless a stride is given, and use all threads of the
//! pool if that pays off. Results do not depend on the number of threads.

mod arg_reduce;
mod cat;
mod copy;
mod element;
mod index;
mod order;
mod random;
mod scan;
mod scatter;
mod search;
mod sort;

#[cfg(test)]
mod tests;

pub use arg_reduce::arg_reduce;
pub use cat::{Part, cat};
pub use copy::copy_strided;
pub use index::{Indices, gather};
pub use random::random_bits;
pub use scan::scan;
pub use scatter::scatter;
pub use search::search_sorted;
pub use sort::arg_sort;

use crate::pool;

/// A tensor viewed from one of its axes: `outer * n * inner` elements in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The product of the dimensions before the axis.
    pub outer: usize,
    /// The size of the axis.
    pub n: usize,
    /// The product of the dimensions after it.
    pub inner: usize,
}

/// Bytes below which a task is not worth another thread.
const TASK_BYTES: usize = 1 << 16;
/// Maximum bytes per task, so that an interruption does not have to wait long.
const LONGEST_TASK: usize = 32 << 20;

/// Calls `body(start, end)` for ranges that cover `0..n`, in parallel if `n` items of `item_bytes` justify it. The
/// boundaries are multiples of `step` (and `n`).
fn parallel_ranges(n: usize, item_bytes: usize, step: usize, body: impl Fn(usize, usize) + Sync) {
    let bytes = n.saturating_mul(item_bytes.max(1));
    // Several tasks per thread balance differing speeds.
    let most = (4 * pool::threads()).max(bytes / LONGEST_TASK);
    let tasks = (bytes / TASK_BYTES).clamp(1, most).min(n.div_ceil(step));
    if tasks <= 1 {
        if n > 0 {
            body(0, n);
        }
        return;
    }
    let size = n.div_ceil(tasks).next_multiple_of(step);
    pool::parallel_for(n.div_ceil(size), &|task| body(task * size, ((task + 1) * size).min(n)));
}

/// A pointer shared by tasks; each writes its own elements.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: a pointer is data; code that dereferences it gives its tasks disjoint elements.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The pointer to element `i`. A method, so that closures capture the wrapper instead of the bare pointer.
    #[inline(always)]
    fn at(&self, i: usize) -> *mut T {
        self.0.wrapping_add(i)
    }
}

/// A pointer that tasks read through.
#[derive(Clone, Copy)]
struct Source<T>(*const T);

// SAFETY: nothing is written through it.
unsafe impl<T> Send for Source<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Source<T> {}

impl<T> Source<T> {
    /// The pointer to element `i`.
    #[inline(always)]
    fn at(&self, i: usize) -> *const T {
        self.0.wrapping_add(i)
    }
}
