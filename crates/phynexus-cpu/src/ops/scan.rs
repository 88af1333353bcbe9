//! Scans: running combinations along an axis.

use phynexus::DType;
use phynexus::op::Combine;

use super::element::{Combinable, Combiner, Scannable, by_combine, combines};
use super::{Axis, Shared, Source, parallel_ranges};
use crate::by_dtype::by_dtype;
use crate::pool;

/// Columns scanned side by side: their accumulators stay in registers or the first-level cache.
const COLUMNS: usize = 64;

/// `dst[o, i, c]` combines `src[o, 0..=i, c]` (or `src[o, i.., c]` in reverse) in order; floats are combined in
/// `f64`. Returns false without writing anything for sums and products of `bool`.
///
/// # Safety
/// `src` and `dst` must address `axis.outer * axis.n * axis.inner` elements of `dtype`; they must be equal or not
/// overlap.
pub unsafe fn scan(
    combine: Combine,
    dtype: DType,
    axis: Axis,
    reverse: bool,
    src: *const u8,
    dst: *mut u8,
) -> bool {
    if !combines(dtype, combine) {
        return false;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        by_dtype!(dtype, bool is u8, T => by_combine!(combine, C => {
            lines::<<T as Scannable>::Combinable, C>(axis, reverse, src, dst)
        }));
    }
    true
}

/// Rows between checks for interruption.
const UNASKED: usize = 1 << 18;

/// # Safety
/// Same as for [`scan`].
unsafe fn lines<T: Combinable, C: Combiner<T>>(axis: Axis, reverse: bool, src: *const u8, dst: *mut u8) {
    let (src, dst) = (Source(src.cast::<T>()), Shared(dst.cast::<T>()));
    let Axis { outer, n, inner } = axis;
    if n == 0 || inner == 0 {
        return;
    }
    let groups = inner.div_ceil(COLUMNS);
    let group_bytes = n * inner.min(COLUMNS) * size_of::<T>();
    parallel_ranges(outer * groups, group_bytes, 1, |start, end| {
        for task in start..end {
            let (o, group) = (task / groups, task % groups);
            let first = group * COLUMNS;
            let columns = COLUMNS.min(inner - first);
            // The rows in scanning order: the start of each row.
            let row = |i: usize| o * n * inner + (if reverse { n - 1 - i } else { i }) * inner + first;
            // SAFETY: rows and columns lie within the axis; tasks have disjoint columns.
            unsafe {
                if columns == 1 {
                    let mut total = (*src.at(row(0))).widen();
                    *dst.at(row(0)) = T::narrow(total);
                    for start in (1..n).step_by(UNASKED) {
                        pool::check();
                        for i in start..n.min(start + UNASKED) {
                            total = C::combine(total, (*src.at(row(i))).widen());
                            *dst.at(row(i)) = T::narrow(total);
                        }
                    }
                } else {
                    columns_scan::<T, C>(&src, &dst, n, columns, row);
                }
            }
        }
    });
}

/// # Safety
/// `row(0..n)` must be starts of `columns <= COLUMNS` elements of both pointers.
unsafe fn columns_scan<T: Combinable, C: Combiner<T>>(
    src: &Source<T>,
    dst: &Shared<T>,
    n: usize,
    columns: usize,
    row: impl Fn(usize) -> usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut totals = [(*src.at(row(0))).widen(); COLUMNS];
        for i in 0..n {
            if i % UNASKED == 0 {
                pool::check();
            }
            let (x, y) = (src.at(row(i)), dst.at(row(i)));
            for (c, total) in totals.iter_mut().enumerate().take(columns) {
                let value = (*x.add(c)).widen();
                *total = if i == 0 { value } else { C::combine(*total, value) };
                *y.add(c) = T::narrow(*total);
            }
        }
    }
}
