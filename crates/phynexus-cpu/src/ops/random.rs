//! Random words, in parallel.

use super::{Shared, parallel_ranges};
use crate::vector;

/// `dst[i]` (`uint32`) is word i of the op `RandomBits` with this state: a key of two words and a 64-bit counter, low
/// word first.
/// # Safety
/// `dst` must address `n` elements.
pub unsafe fn random_bits(state: [u32; 4], n: usize, dst: *mut u32) {
    let kernel = vector::random_bits();
    let dst = Shared(dst);
    parallel_ranges(n, 4, 64, |start, end| {
        // SAFETY: start..end lies within 0..n and belongs to this task.
        unsafe { kernel(&state, start as u64, dst.at(start), end - start) }
    });
}
