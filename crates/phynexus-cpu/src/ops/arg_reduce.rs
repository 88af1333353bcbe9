//! The position of the greatest or smallest element along an axis.

use phynexus::DType;

use super::order::Ordered;
use super::{Axis, Shared, Source, parallel_ranges};
use crate::by_dtype::by_dtype;

/// Elements per block: the greatest key of a block is found before any position is examined.
const BLOCK: usize = 64;

/// `dst[o, c]` (`int64`) is the first position of the greatest (or smallest) element of `src[o, .., c]`. NaN counts as
/// the extreme. Positions along an empty axis are 0.
///
/// # Safety
/// `src` must address `axis.outer * axis.n * axis.inner` elements of `dtype`, and `dst` `axis.outer * axis.inner` of
/// `int64`; they must not overlap.
pub unsafe fn arg_reduce(dtype: DType, least: bool, axis: Axis, src: *const u8, dst: *mut i64) {
    // SAFETY: guaranteed by the caller.
    unsafe { by_dtype!(dtype, bool is u8, T => typed::<T>(least, axis, src, dst)) }
}

/// # Safety
/// Same as for [`arg_reduce`].
unsafe fn typed<T: Ordered>(least: bool, axis: Axis, src: *const u8, dst: *mut i64) {
    let (src, dst) = (Source(src.cast::<T>()), Shared(dst));
    // SAFETY: guaranteed by the caller.
    unsafe {
        if least {
            with_key(axis, src, dst, T::descending_key);
        } else {
            with_key(axis, src, dst, T::key);
        }
    }
}

/// # Safety
/// Same as for [`arg_reduce`].
unsafe fn with_key<T: Ordered>(
    axis: Axis,
    src: Source<T>,
    dst: Shared<i64>,
    key: impl Fn(T) -> T::Key + Sync + Copy,
) {
    let Axis { outer, n, inner } = axis;
    let line_bytes = n * size_of::<T>();
    parallel_ranges(outer * inner, line_bytes, BLOCK.min(inner.max(1)), |start, end| {
        // SAFETY: lines start..end lie within the axis and belong to this task.
        unsafe {
            if n == 0 {
                std::slice::from_raw_parts_mut(dst.at(start), end - start).fill(0);
            } else if inner == 1 {
                for line in start..end {
                    *dst.at(line) =
                        first_greatest(std::slice::from_raw_parts(src.at(line * n), n), key) as i64;
                }
            } else {
                let mut line = start;
                while line < end {
                    let (o, c) = (line / inner, line % inner);
                    let columns = BLOCK.min(inner - c).min(end - line);
                    columns_greatest(src.at(o * n * inner + c), n, inner, columns, dst.at(line), key);
                    line += columns;
                }
            }
        }
    });
}

/// The first position of the greatest key of a nonempty line.
fn first_greatest<T: Ordered>(line: &[T], key: impl Fn(T) -> T::Key) -> usize {
    let (mut best, mut position) = (key(line[0]), 0);
    for (block, values) in line.chunks(BLOCK).enumerate() {
        let greatest = values.iter().fold(T::Key::default(), |greatest, &x| greatest.max(key(x)));
        if greatest > best {
            best = greatest;
            position = block * BLOCK + values.iter().position(|&x| key(x) == greatest).unwrap_or(0);
        }
    }
    position
}

/// # Safety
/// `src` must address n rows of `columns <= BLOCK` elements, `inner` elements apart, and `dst` as many positions.
unsafe fn columns_greatest<T: Ordered>(
    src: *const T,
    n: usize,
    inner: usize,
    columns: usize,
    dst: *mut i64,
    key: impl Fn(T) -> T::Key,
) {
    let mut best = [T::Key::default(); BLOCK];
    let mut position = [0i64; BLOCK];
    for i in 0..n {
        for c in 0..columns {
            // SAFETY: guaranteed by the caller.
            let k = unsafe { key(*src.add(i * inner + c)) };
            let better = k > best[c];
            best[c] = if better { k } else { best[c] };
            position[c] = if better { i as i64 } else { position[c] };
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy_nonoverlapping(position.as_ptr(), dst, columns) }
}
