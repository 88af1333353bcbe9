//! Copies between layouts.

use smallvec::SmallVec;

use super::{Shared, Source, parallel_ranges};

/// Copies the elements of a strided tensor to row-major order. Strides are in elements and may be negative; a stride of
/// 0 repeats.
///
/// # Safety
/// All elements at `src` described by shape and strides must be readable; `dst` must address as many elements as the
/// shape has, without overlap. `size` must be 1, 2, 4 or 8, and both pointers must be aligned to it.
pub unsafe fn copy_strided(size: usize, shape: &[usize], strides: &[isize], src: *const u8, dst: *mut u8) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match size {
            1 => typed::<u8>(shape, strides, src, dst),
            2 => typed::<u16>(shape, strides, src, dst),
            4 => typed::<u32>(shape, strides, src, dst),
            _ => typed::<u64>(shape, strides, src, dst),
        }
    }
}

/// A dimension: extent, stride in the source, stride in the destination.
type Dimension = (usize, isize, usize);
type Dimensions = SmallVec<[Dimension; 8]>;

/// Drops dimensions of extent 1 and merges adjacent ones that are contiguous in the source.
fn simplify(shape: &[usize], strides: &[isize]) -> Dimensions {
    let mut dimensions = Dimensions::new();
    let mut dst_stride = 1;
    // From last to first.
    for (&n, &stride) in shape.iter().zip(strides).rev() {
        if n == 1 {
            continue;
        }
        match dimensions.last_mut() {
            Some((inner, inner_stride, _)) if *inner_stride * *inner as isize == stride => *inner *= n,
            _ => dimensions.push((n, stride, dst_stride)),
        }
        dst_stride *= n;
    }
    dimensions.reverse();
    dimensions
}

/// Edge length of the square blocks for copying a transposition.
const BLOCK: usize = 32;

/// # Safety
/// Same as for [`copy_strided`].
unsafe fn typed<T: Copy + Default>(shape: &[usize], strides: &[isize], src: *const u8, dst: *mut u8) {
    let (src, dst) = (Source(src.cast::<T>()), Shared(dst.cast::<T>()));
    if shape.contains(&0) {
        return;
    }
    let mut dimensions = simplify(shape, strides);
    let (n, stride, _) = dimensions.pop().unwrap_or((1, 1, 1));
    // A dimension whose source stride is smaller than the last dimension's.
    let near = (0..dimensions.len())
        .filter(|&d| dimensions[d].1 != 0)
        .min_by_key(|&d| dimensions[d].1.unsigned_abs());
    match near {
        Some(d)
            if stride != 0
                && dimensions[d].1.unsigned_abs() < stride.unsigned_abs()
                && stride.unsigned_abs() > 1 =>
        {
            let across = dimensions.remove(d);
            // SAFETY: the same elements in another order.
            unsafe { transpose(&dimensions, across, (n, stride), src, dst) }
        }
        // SAFETY: as above.
        _ => unsafe { rows(&dimensions, (n, stride), src, dst) },
    }
}

/// The offsets, in the source and the destination, of item `i` of the row-major order of some dimensions.
#[inline(always)]
fn offsets(dimensions: &[Dimension], mut i: usize) -> (isize, usize) {
    let (mut from, mut to) = (0, 0);
    for &(n, src_stride, dst_stride) in dimensions.iter().rev() {
        let at = i % n;
        i /= n;
        from += at as isize * src_stride;
        to += at * dst_stride;
    }
    (from, to)
}

/// Copies rows that are contiguous in the destination. Long rows are divided, so that a single row keeps all threads
/// busy.
///
/// # Safety
/// The dimensions and the row must describe readable elements of src and all elements of dst.
unsafe fn rows<T: Copy>(outer: &[Dimension], (n, stride): (usize, isize), src: Source<T>, dst: Shared<T>) {
    let count: usize = outer.iter().map(|d| d.0).product();
    let piece = n.min(1 << 14);
    let pieces = n.div_ceil(piece);
    parallel_ranges(count * pieces, piece * size_of::<T>(), 1, |start, end| {
        for task in start..end {
            let (from, to) = offsets(outer, task / pieces);
            let first = task % pieces * piece;
            let length = piece.min(n - first);
            // SAFETY: the piece lies within its row; rows are disjoint in dst.
            unsafe {
                let x = src.at(0).offset(from + first as isize * stride);
                let y = dst.at(to + first);
                match stride {
                    1 => std::ptr::copy_nonoverlapping(x, y, length),
                    0 => std::slice::from_raw_parts_mut(y, length).fill(*x),
                    _ => (0..length).for_each(|i| *y.add(i) = *x.offset(i as isize * stride)),
                }
            }
        }
    });
}

/// Copies a source whose `across` dimension has the smallest stride, in square blocks through a local array: reads run
/// along one dimension, writes along the other.
///
/// # Safety
/// Same as for [`rows`], with the dimension `across`.
unsafe fn transpose<T: Copy + Default>(
    outer: &[Dimension],
    (m, near, far): Dimension,
    (n, stride): (usize, isize),
    src: Source<T>,
    dst: Shared<T>,
) {
    let count: usize = outer.iter().map(|d| d.0).product();
    let (block_rows, block_columns) = (m.div_ceil(BLOCK), n.div_ceil(BLOCK));
    let blocks = block_rows * block_columns;
    parallel_ranges(count * blocks, BLOCK * BLOCK * size_of::<T>(), 1, |start, end| {
        let mut square = [[T::default(); BLOCK]; BLOCK];
        for task in start..end {
            let (from, to) = offsets(outer, task / blocks);
            // Consecutive blocks run along the source's fastest dimension.
            let block = task % blocks;
            let (i, j) = (block % block_rows * BLOCK, block / block_rows * BLOCK);
            let (height, width) = (BLOCK.min(m - i), BLOCK.min(n - j));
            // SAFETY: the block lies within the two dimensions; blocks are disjoint in dst.
            unsafe {
                for c in 0..width {
                    let x = src.at(0).offset(from + i as isize * near + (j + c) as isize * stride);
                    if near == 1 && height == BLOCK {
                        let column = x.cast::<[T; BLOCK]>().read_unaligned();
                        square.iter_mut().zip(column).for_each(|(row, x)| row[c] = x);
                    } else {
                        square
                            .iter_mut()
                            .enumerate()
                            .take(height)
                            .for_each(|(r, row)| row[c] = *x.offset(r as isize * near));
                    }
                }
                for (r, row) in square.iter().enumerate().take(height) {
                    std::ptr::copy_nonoverlapping(row.as_ptr(), dst.at(to + (i + r) * far + j), width);
                }
            }
        }
    });
}
