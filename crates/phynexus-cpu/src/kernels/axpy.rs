//! The kernel for at most four rows of A and a B with contiguous rows. It streams B once, four rows at a time, while
//! the sums stay in the first-level cache.

use super::{lanes::Lanes, tile::Tile};

/// Maximum number of rows of a streaming kernel.
pub(crate) const STREAM_ROWS: usize = 4;

/// Adds the product of `M` rows of A and all of B to C.
///
/// # Safety
/// The machine must support the instruction set of `V`, and `s` must describe memory that is valid for these
/// accesses.
#[inline(always)]
pub(crate) unsafe fn stream<V: Lanes, const M: usize>(s: &Tile<V::Scalar>) {
    let whole = s.k - s.k % 4;
    let mut p = 0;
    while p < whole {
        // SAFETY: guaranteed by the caller; rows p to p + 3 exist.
        unsafe { rows::<V, M, 4>(s, p) };
        p += 4;
    }
    while p < s.k {
        // SAFETY: guaranteed by the caller; row p exists.
        unsafe { rows::<V, M, 1>(s, p) };
        p += 1;
    }
}

/// Adds rows `p` to `p + P - 1` of B, times their elements of A.
///
/// # Safety
/// Same as [`stream`], and these rows must exist.
#[inline(always)]
unsafe fn rows<V: Lanes, const M: usize, const P: usize>(s: &Tile<V::Scalar>, p: usize) {
    // SAFETY: guaranteed by the caller; every address below is an element of those rows.
    unsafe {
        let mut left = [[V::zero(); P]; M];
        for (i, row) in left.iter_mut().enumerate() {
            for (q, x) in row.iter_mut().enumerate() {
                *x = V::splat(s.a.offset(i as isize * s.a_row + (p + q) as isize * s.a_step));
            }
        }
        let b = s.b.offset(p as isize * s.b_step);
        let mut j = 0;
        while j + V::N <= s.columns {
            let mut right = [V::zero(); P];
            for (q, r) in right.iter_mut().enumerate() {
                *r = V::load(b.offset(q as isize * s.b_step).add(j));
            }
            for (i, row) in left.iter().enumerate() {
                let sums = s.c.offset(i as isize * s.c_row).add(j);
                let mut sum = V::load(sums);
                for (x, r) in row.iter().zip(right) {
                    sum = x.mul_add(r, sum);
                }
                sum.store(sums);
            }
            j += V::N;
        }
        if j < s.columns {
            let mask = V::first(s.columns - j);
            let mut right = [V::zero(); P];
            for (q, r) in right.iter_mut().enumerate() {
                *r = V::load_masked(b.offset(q as isize * s.b_step).add(j), mask);
            }
            for (i, row) in left.iter().enumerate() {
                let sums = s.c.offset(i as isize * s.c_row).add(j);
                let mut sum = V::load_masked(sums, mask);
                for (x, r) in row.iter().zip(right) {
                    sum = x.mul_add(r, sum);
                }
                sum.store_masked(sums, mask);
            }
        }
    }
}
