//! Products of a few rows of bytes with a matrix that is contiguous along k: dot products, without a packed copy of the
//! matrix.

use super::Problem;

/// The greatest number of rows.
pub(super) const MOST_ROWS: usize = 4;

/// Computes the product if it has few rows, B is contiguous along k, and the machine has instructions for it; returns
/// whether it did.
///
/// # Safety
/// Same as [`super::bytes::product`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn product(problem: &Problem<'_>) -> bool {
    let fits = problem.m <= MOST_ROWS && problem.b.row_stride == 1;
    if !fits || !super::bytes::has_dots(problem.set) {
        return false;
    }
    // SAFETY: guaranteed by the caller; the machine has VNNI.
    unsafe { x86::product(problem) };
    true
}

/// Other machines take the general path.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn product(_: &Problem<'_>) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::super::{Problem, blocked::Shared, part, scratch::Scratch};
    use super::MOST_ROWS;
    use crate::kernels::bytes::Words;
    use crate::kernels::words::Packing;
    use crate::pool;

    /// Columns whose products are summed together.
    const COLUMNS: usize = 4;
    /// Bytes of a register.
    const BYTES: usize = 64;
    /// Bytes of B per task.
    const TASK: usize = 1 << 16;

    /// Rows of A as unsigned bytes, and columns of B.
    #[derive(Clone, Copy)]
    struct Dots {
        k: usize,
        /// Rows are a whole number of registers apart, and zero past the end of k.
        a: *const u8,
        a_row: usize,
        b: *const u8,
        b_column: isize,
        /// What B's bytes are changed by to be signed.
        flip: u8,
        /// Whether 128 times the sum of B's column is subtracted.
        is_shifted: bool,
    }

    /// # Safety
    /// Same as [`super::product`]; the machine must have VNNI.
    pub(super) unsafe fn product(problem: &Problem<'_>) {
        let Problem { m, n, k, a, b, set, .. } = *problem;
        let of_a = Packing::new(set, Words::FourBytes, a.dtype, false);
        let of_b = Packing::new(set, Words::FourBytes, b.dtype, true);
        let (sa, sb) = (of_a.shift(), of_b.shift());
        let a_row = k.next_multiple_of(BYTES);
        let rows = Scratch::new::<u8>(m * a_row);
        let start = rows.start::<u8>();
        let mut of_rows = [0i32; MOST_ROWS];
        // SAFETY: the scratch has room for the rows, whose elements exist.
        unsafe {
            start.write_bytes(0, m * a_row);
            for (i, of_row) in of_rows.iter_mut().enumerate().take(m) {
                if a.column_stride == 1 && sa == 0 && sb == 0 {
                    std::ptr::copy_nonoverlapping(a.corner(i, 0).data, start.add(i * a_row), k);
                    continue;
                }
                let mut sum = 0i32;
                for p in 0..k {
                    let byte = *a.corner(i, p).data ^ of_a.zero() as u8;
                    *start.add(i * a_row + p) = byte;
                    sum = sum.wrapping_add(i32::from(byte));
                }
                *of_row = sum.wrapping_mul(sb).wrapping_add((k as i32).wrapping_mul(sa * sb));
            }
        }
        let a_start = Shared(start);
        let blocks = n.div_ceil(COLUMNS);
        let tasks = (n * k).div_ceil(TASK).min(4 * pool::threads()).clamp(1, blocks);
        problem.tasks(tasks, &|task| {
            let range = part(blocks, tasks, task);
            for block in range.clone() {
                let first = block * COLUMNS;
                let columns = COLUMNS.min(n - first);
                let dots = Dots {
                    k,
                    a: a_start.get(),
                    a_row,
                    b: b.corner(0, first).data,
                    b_column: b.column_stride,
                    flip: of_b.zero() as u8,
                    is_shifted: sa != 0,
                };
                // SAFETY: the rows and columns exist, and tasks write disjoint columns.
                unsafe {
                    let mut sums = [[0i32; COLUMNS]; MOST_ROWS];
                    match m {
                        1 => block_of::<1>(&dots, columns, &mut sums),
                        2 => block_of::<2>(&dots, columns, &mut sums),
                        3 => block_of::<3>(&dots, columns, &mut sums),
                        _ => block_of::<4>(&dots, columns, &mut sums),
                    }
                    for (i, (sums, of_row)) in sums.iter().zip(of_rows).enumerate().take(m) {
                        for (j, sum) in sums.iter().enumerate().take(columns) {
                            let out = problem.c.corner(i, first + j).data.cast::<i32>();
                            *out = sum.wrapping_add(of_row);
                        }
                    }
                }
            }
            problem.finish(0..m, range.start * COLUMNS..n.min(range.end * COLUMNS));
        });
    }

    /// The products of `M` rows with up to four columns; a missing column is replaced by the first.
    ///
    /// # Safety
    /// Rows and columns must exist, and the machine must have VNNI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn block_of<const M: usize>(d: &Dots, columns: usize, out: &mut [[i32; COLUMNS]; MOST_ROWS]) {
        let zero = _mm512_setzero_si512();
        let flip = _mm512_set1_epi8(d.flip as i8);
        let ones = _mm512_set1_epi8(1);
        let mut sums = [[zero; COLUMNS]; M];
        let mut of_columns = [zero; COLUMNS];
        let mut starts = [d.b; COLUMNS];
        for (j, start) in starts.iter_mut().enumerate().take(columns) {
            *start = d.b.wrapping_offset(j as isize * d.b_column);
        }
        for p in (0..d.k).step_by(BYTES) {
            let is_whole = d.k - p >= BYTES;
            let mask = u64::MAX >> (BYTES - BYTES.min(d.k - p));
            let mut left = [zero; M];
            for (i, left) in left.iter_mut().enumerate() {
                // SAFETY: rows are whole registers.
                *left = unsafe { _mm512_loadu_si512(d.a.add(i * d.a_row + p).cast()) };
            }
            for (j, start) in starts.iter().enumerate() {
                // SAFETY: the mask excludes what lies past the end of the column.
                let right = unsafe {
                    match is_whole {
                        true => _mm512_loadu_si512(start.add(p).cast()),
                        false => _mm512_maskz_loadu_epi8(mask, start.add(p).cast()),
                    }
                };
                let right = _mm512_xor_si512(right, flip);
                for (sums, left) in sums.iter_mut().zip(left) {
                    sums[j] = _mm512_dpbusd_epi32(sums[j], left, right);
                }
                if d.is_shifted {
                    // Past the end, bytes may have been flipped.
                    let present = _mm512_maskz_mov_epi8(mask, ones);
                    of_columns[j] = _mm512_dpbusd_epi32(of_columns[j], present, right);
                }
            }
        }
        for (sums, out) in sums.iter().zip(out) {
            let mut shifted = *sums;
            for (sum, of_column) in shifted.iter_mut().zip(of_columns) {
                *sum = _mm512_sub_epi32(*sum, _mm512_slli_epi32::<7>(of_column));
            }
            *out = totals(shifted);
        }
    }

    /// The sum of each register.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn totals(v: [__m512i; COLUMNS]) -> [i32; COLUMNS] {
        let pairs = |a: __m512i, b: __m512i| {
            _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b))
        };
        let (first, second) = (pairs(v[0], v[1]), pairs(v[2], v[3]));
        let fours =
            _mm512_add_epi32(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
        let half = _mm256_add_epi32(_mm512_castsi512_si256(fours), _mm512_extracti64x4_epi64::<1>(fours));
        let quarter = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half));
        let mut out = [0; COLUMNS];
        // SAFETY: the array has 128 bits.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), quarter) };
        out
    }
}
