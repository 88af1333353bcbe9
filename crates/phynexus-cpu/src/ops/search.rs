//! Binary search.

use phynexus::DType;

use super::order::{Ordered, by_order};
use super::{Shared, Source, parallel_ranges};

/// `dst[i]` (`int64`) is where `values[i]` would be inserted into the ascending `sorted`: before equal elements, or after
/// them if `right`. NaN is the greatest and equal to itself, zeros are equal.
///
/// # Safety
/// `sorted` addresses `n` elements of `dtype`, `values` `m`, `dst` `m` of `int64`; `dst` overlaps neither.
pub unsafe fn search_sorted(
    dtype: DType,
    right: bool,
    sorted: *const u8,
    n: usize,
    values: *const u8,
    m: usize,
    dst: *mut i64,
) {
    // SAFETY: the caller vouches for the pointers.
    unsafe { by_order!(dtype, typed(right, sorted, n, values, m, dst)) }
}

/// # Safety
/// As for [`search_sorted`].
unsafe fn typed<T: Ordered>(
    right: bool,
    sorted: *const u8,
    n: usize,
    values: *const u8,
    m: usize,
    dst: *mut i64,
) {
    // SAFETY: the caller gives n elements.
    let sorted = unsafe { slice(sorted.cast::<T>(), n) };
    let (values, dst) = (Source(values.cast::<T>()), Shared(dst));
    let steps = usize::BITS - n.leading_zeros();
    parallel_ranges(m, 8 * steps as usize, 1, |start, end| {
        for i in start..end {
            // SAFETY: i < m, and this task's own.
            unsafe {
                let key = (*values.at(i)).key();
                let place = sorted.partition_point(|x| if right { x.key() <= key } else { x.key() < key });
                *dst.at(i) = place as i64;
            }
        }
    });
}

/// A slice that may be empty with any pointer.
///
/// # Safety
/// `start` addresses `n` elements for as long as the slice lives.
unsafe fn slice<'a, T>(start: *const T, n: usize) -> &'a [T] {
    // SAFETY: given by the caller.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, n) } }
}
