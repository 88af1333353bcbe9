//! Products that packing would slow down: a few vectors times a matrix, and few rows with a deep k.

use super::blocked::Shared;
use super::pack::Accumulator;
use super::scratch::Scratch;
use super::{Problem, part};
use crate::kernels::axpy::STREAM_ROWS;
use crate::kernels::dot::{DOT_COLUMNS, DOT_ROWS, Dots};
use crate::kernels::tile::Tile;
use crate::pool;

/// Steps of k per dot kernel call if A has many rows: those of A then stay in the second-level cache.
const DOT_STEPS: usize = 1024;
/// Matrices with fewer elements than this are not worth the setup of streaming.
const STREAM_ELEMENTS: usize = 1 << 15;
/// Bytes of a row per streaming task: whole pages keep the prefetchers effective.
const STRIP_BYTES: usize = 4096;

/// Computes the product if it is one of these; otherwise returns false.
///
/// # Safety
/// Same as [`super::gemm`]; k must not be 0.
pub(super) unsafe fn product<T: Accumulator>(problem: &Problem<'_>) -> bool {
    let Problem { m, n, k, a, b, c, .. } = *problem;
    if a.dtype != T::DTYPE || b.dtype != T::DTYPE || c.dtype != T::DTYPE {
        return false;
    }
    let lanes = T::kernels(problem.set).lanes;
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Each method adds sums in a different order. The choice must be the same for a product and its transpose,
        // which may be computed instead, and for a strided view and its contiguous copy. So it depends only on which of
        // the strides is smaller.
        let a_along_k = m == 1 || a.column_stride.abs() < a.row_stride.abs();
        let b_along_k = n == 1 || b.row_stride.abs() < b.column_stride.abs();
        // Columns of B that are not contiguous along k, or such rows of A, can be copied if they are few.
        let few = m.min(n);
        let along_k = (b_along_k || n <= STREAM_ROWS) && (a_along_k || m <= STREAM_ROWS);
        let matrix_along_k = (m <= n && b_along_k) || (m >= n && a_along_k) || m.max(n) <= STREAM_ROWS;
        if along_k && matrix_along_k && k >= 2 * lanes && (few <= STREAM_ROWS || k >= 8 * few.max(lanes)) {
            dots::<T>(problem);
            return true;
        }
        if m <= STREAM_ROWS && !b_along_k && k * n >= STREAM_ELEMENTS {
            stream::<T>(problem);
            return true;
        }
        if n <= STREAM_ROWS && !a_along_k && k * m >= STREAM_ELEMENTS {
            stream::<T>(&problem.exchanged());
            return true;
        }
        false
    }
}

/// Copies the elements of a matrix with these strides, row by row.
///
/// # Safety
/// The elements must exist.
unsafe fn copied<T: Accumulator>(
    [rows, columns]: [usize; 2],
    data: *const u8,
    strides: [isize; 2],
) -> Scratch {
    let scratch = Scratch::new::<T>(rows * columns);
    for row in 0..rows {
        for column in 0..columns {
            let at = row as isize * strides[0] + column as isize * strides[1];
            // SAFETY: an element of the matrix, and of the scratch.
            unsafe { *scratch.start::<T>().add(row * columns + column) = *data.cast::<T>().offset(at) };
        }
    }
    scratch
}

/// Uses dot kernels. An operand that is not contiguous along k is copied.
///
/// # Safety
/// Same as [`product`].
unsafe fn dots<T: Accumulator>(problem: &Problem<'_>) {
    let Problem { m, n, k, mut a, mut b, c, .. } = *problem;
    let copy = |lines: usize, data: *const u8, line: isize, step: isize| {
        // SAFETY: guaranteed by the caller.
        (step != 1).then(|| unsafe { copied::<T>([lines, k], data, [line, step]) })
    };
    let a_copy = copy(m, a.data, a.row_stride, a.column_stride);
    let b_copy = copy(n, b.data, b.column_stride, b.row_stride);
    if let Some(copied) = &a_copy {
        (a.data, a.row_stride, a.column_stride) = (copied.start::<u8>(), k as isize, 1);
    }
    if let Some(copied) = &b_copy {
        (b.data, b.row_stride, b.column_stride) = (copied.start::<u8>(), 1, k as isize);
    }
    let problem = &Problem { a, b, ..*problem };
    let kernels = T::kernels(problem.set);
    let threads = if problem.is_small() { 1 } else { pool::threads() };
    // The longer side is divided among the threads, with several parts each if the work is long.
    let parts = if problem.work() >> 21 >= threads { 4 * threads } else { threads };
    let (row_tiles, column_tiles) = (m.div_ceil(DOT_ROWS), n.div_ceil(DOT_COLUMNS));
    let by_rows = m > n;
    let parts = parts.min(if by_rows { row_tiles } else { column_tiles });
    let steps = if m.min(n) <= STREAM_ROWS { k } else { DOT_STEPS };
    problem.tasks(parts, &|task| {
        let (rows, columns) = if by_rows {
            (part(row_tiles, parts, task), 0..column_tiles)
        } else {
            (0..row_tiles, part(column_tiles, parts, task))
        };
        let mut start = 0;
        while start < k {
            let count = steps.min(k - start);
            for j in columns.clone().map(|t| part(n, column_tiles, t)) {
                for i in rows.clone().map(|t| part(m, row_tiles, t)) {
                    // SAFETY: guaranteed by the caller; blocks of C are disjoint.
                    unsafe {
                        kernels.dots[i.len() - 1][j.len() - 1](&Dots {
                            k: count,
                            a: problem.a.corner(i.start, start).data.cast(),
                            a_row: problem.a.row_stride,
                            b: problem.b.corner(start, j.start).data.cast(),
                            b_column: problem.b.column_stride,
                            c: c.corner(i.start, j.start).data.cast(),
                            c_row: c.row_stride,
                            c_column: c.column_stride,
                            accumulate: start > 0,
                        });
                    }
                }
            }
            start += count;
        }
        let rows = part(m, row_tiles, rows.start).start..part(m, row_tiles, rows.end - 1).end;
        let columns = part(n, column_tiles, columns.start).start..part(n, column_tiles, columns.end - 1).end;
        problem.finish(rows, columns);
    });
}

/// At most four rows times a matrix with contiguous (or copied) rows: divided into strips of columns, or parts of k if
/// rows are short.
///
/// # Safety
/// Same as [`product`].
unsafe fn stream<T: Accumulator>(problem: &Problem<'_>) {
    let Problem { m, n, k, a, mut b, c, .. } = *problem;
    // SAFETY: guaranteed by the caller.
    let copy = || unsafe { copied::<T>([k, n], b.data, [b.row_stride, b.column_stride]) };
    let copy = (b.column_stride != 1).then(copy);
    if let Some(copied) = &copy {
        (b.data, b.row_stride, b.column_stride) = (copied.start::<u8>(), n as isize, 1);
    }
    let problem = &Problem { b, ..*problem };
    let kernels = T::kernels(problem.set);
    // Parts of k depend only on the shape, as every result must; strips of columns may depend on the threads.
    let k_parts = if n * size_of::<T>() < STRIP_BYTES { (k * n / STREAM_ELEMENTS).clamp(1, 16) } else { 1 };
    let strips = if k_parts > 1 { 1 } else { (n * size_of::<T>() / 512).clamp(1, pool::threads()) };
    let scratch = Scratch::new::<T>(k_parts * m * n);
    let sums = Shared(scratch.start::<T>());
    problem.tasks(k_parts * strips, &|task| {
        let steps = part(k, k_parts, task / strips);
        let columns = part(n, strips, task % strips);
        // SAFETY: this part's sums belong to this task, and the operands' elements exist.
        unsafe {
            let out = sums.get().add(task / strips * m * n + columns.start);
            for i in 0..m {
                for j in 0..columns.len() {
                    *out.add(i * n + j) = T::default();
                }
            }
            kernels.streams[m - 1](&Tile {
                k: steps.len(),
                a: a.corner(0, steps.start).data.cast(),
                a_row: a.row_stride,
                a_step: a.column_stride,
                b: b.corner(steps.start, columns.start).data.cast(),
                b_step: b.row_stride,
                c: out,
                c_row: n as isize,
                columns: columns.len(),
                accumulate: true,
            });
            if k_parts == 1 {
                for i in 0..m {
                    let c = c.corner(i, columns.start);
                    T::store(out.add(i * n), columns.len(), c.dtype, c.data, c.column_stride);
                }
                problem.finish(0..m, columns);
            }
        }
    });
    if k_parts > 1 {
        // SAFETY: all parts are done.
        unsafe {
            let total = std::slice::from_raw_parts_mut(sums.get(), m * n);
            for i in 1..k_parts {
                for (t, x) in
                    total.iter_mut().zip(std::slice::from_raw_parts(sums.get().add(i * m * n), m * n))
                {
                    *t = t.add(*x);
                }
            }
            for i in 0..m {
                let c = c.corner(i, 0);
                T::store(sums.get().add(i * n), n, c.dtype, c.data, c.column_stride);
            }
        }
        problem.finish(0..m, 0..n);
    }
}
