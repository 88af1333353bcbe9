//! Binary search.

use phynexus::DType;

use super::order::Ordered;
use super::{Shared, Source, parallel_ranges};
use crate::{by_dtype::by_dtype, working_memory};

/// Searches that run side by side, because each waits for memory at every step.
const TOGETHER: usize = 16;

/// `dst[i]` (`int64`) is the position at which `values[i]` would be inserted into the ascending `sorted`: before equal
/// elements, or after them if `right`. NaN is the greatest and equal to itself, and zeros are equal.
///
/// # Safety
/// `sorted` must address `n` elements of `dtype`, `values` `m`, and `dst` `m` of `int64`; `dst` must not overlap the
/// others.
pub unsafe fn search_sorted(
    dtype: DType,
    right: bool,
    sorted: *const u8,
    n: usize,
    values: *const u8,
    m: usize,
    dst: *mut i64,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { by_dtype!(dtype, bool is u8, T => typed::<T>(right, sorted, n, values, m, dst)) }
}

/// # Safety
/// Same as for [`search_sorted`].
unsafe fn typed<T: Ordered>(
    right: bool,
    sorted: *const u8,
    n: usize,
    values: *const u8,
    m: usize,
    dst: *mut i64,
) {
    // SAFETY: the caller provides n elements.
    let sorted = unsafe { slice(sorted.cast::<T>(), n) };
    if m >= n {
        // Every element is examined several times, so compute the keys once.
        let mut keys = working_memory::filled(T::Key::default(), n);
        let out = Shared(keys.as_mut_ptr());
        parallel_ranges(n, 16, 1, |start, end| {
            // SAFETY: the keys of this task.
            let keys = unsafe { std::slice::from_raw_parts_mut(out.at(start), end - start) };
            keys.iter_mut().zip(&sorted[start..end]).for_each(|(key, element)| *key = element.key());
        });
        // SAFETY: guaranteed by the caller.
        unsafe { by_key::<T, T::Key>(right, &keys, |key| key, values, m, dst) };
    } else {
        // SAFETY: as above.
        unsafe { by_key::<T, T>(right, sorted, T::key, values, m, dst) };
    }
}

/// # Safety
/// Same as for [`search_sorted`].
unsafe fn by_key<T: Ordered, E: Copy + Sync>(
    right: bool,
    sorted: &[E],
    key: impl Fn(E) -> T::Key + Copy + Sync,
    values: *const u8,
    m: usize,
    dst: *mut i64,
) {
    let (values, dst) = (Source(values.cast::<T>()), Shared(dst));
    let steps = usize::BITS - sorted.len().leading_zeros();
    parallel_ranges(m, 8 * steps as usize, TOGETHER, |start, end| {
        for first in (start..end).step_by(TOGETHER) {
            let count = TOGETHER.min(end - first);
            // SAFETY: first + count <= m, and this task's own.
            let (x, y) = unsafe {
                (
                    std::slice::from_raw_parts(values.at(first), count),
                    std::slice::from_raw_parts_mut(dst.at(first), count),
                )
            };
            let mut wanted = [T::Key::default(); TOGETHER];
            wanted.iter_mut().zip(x).for_each(|(wanted, x)| *wanted = x.key());
            if right {
                places(sorted, wanted, y, |element, value| key(element) <= value);
            } else {
                places(sorted, wanted, y, |element, value| key(element) < value);
            }
        }
    });
}

/// The number of elements before each of up to [`TOGETHER`] values, computed without branches.
#[inline(always)]
fn places<E: Copy, K: Copy>(
    sorted: &[E],
    values: [K; TOGETHER],
    places: &mut [i64],
    before: impl Fn(E, K) -> bool,
) {
    let mut base = [0usize; TOGETHER];
    let mut length = sorted.len();
    // The position of each value is between base and base + length.
    while length > 1 {
        let half = length / 2;
        for (base, value) in base.iter_mut().zip(values) {
            // SAFETY: base + length <= sorted.len() always holds, and half < length.
            let middle = unsafe { *sorted.get_unchecked(*base + half - 1) };
            *base += if before(middle, value) { half } else { 0 };
        }
        length -= half;
    }
    for ((place, base), value) in places.iter_mut().zip(base).zip(values) {
        let last = sorted.get(base).is_some_and(|element| before(*element, value));
        *place = (base + usize::from(last)) as i64;
    }
}

/// A slice; if it is empty, the pointer may be arbitrary.
///
/// # Safety
/// `start` must address `n` elements for the lifetime of the slice.
unsafe fn slice<'a, T>(start: *const T, n: usize) -> &'a [T] {
    // SAFETY: guaranteed by the caller.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, n) } }
}
