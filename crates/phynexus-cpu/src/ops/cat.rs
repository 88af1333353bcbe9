//! Concatenation of tensors.

use super::{Shared, Source, parallel_ranges};

/// One input of [`cat`].
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its elements, `outer * n * inner` in row-major order.
    pub start: *const u8,
    /// Its extent along the axis.
    pub n: usize,
}

/// Concatenates tensors along an axis: each of the `outer` rows of `dst` consists of the parts' rows of
/// `n * inner_bytes` bytes.
///
/// # Safety
/// Each part must address `outer * n * inner_bytes` bytes, and `dst` their sum; `dst` must not overlap a part.
pub unsafe fn cat(parts: &[Part], outer: usize, inner_bytes: usize, dst: *mut u8) {
    let row_bytes: usize = parts.iter().map(|part| part.n * inner_bytes).sum();
    let dst = Shared(dst);
    let mut before = 0;
    for part in parts {
        let (src, bytes, offset) = (Source(part.start), part.n * inner_bytes, before);
        before += bytes;
        if outer == 1 {
            parallel_ranges(bytes, 1, 64, |start, end| {
                // SAFETY: start..end lies within the part's only row and belongs to this task.
                unsafe { std::ptr::copy_nonoverlapping(src.at(start), dst.at(offset + start), end - start) }
            });
        } else if bytes > 0 {
            parallel_ranges(outer, bytes, 1, |start, end| {
                for row in start..end {
                    // SAFETY: row < outer; the rows of a part are disjoint in dst.
                    unsafe {
                        std::ptr::copy_nonoverlapping(
                            src.at(row * bytes),
                            dst.at(row * row_bytes + offset),
                            bytes,
                        )
                    }
                }
            });
        }
    }
}
