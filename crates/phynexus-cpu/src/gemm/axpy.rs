//! The kernel for at most four rows of A against a B whose rows lie side by side: B streams by once, four rows at a
//! time, and the sums stay in the nearest cache.

use super::lanes::Lanes;

/// One call of a streaming kernel. Strides in elements.
pub(crate) struct Stream<T> {
    /// Rows of B.
    pub(crate) k: usize,
    /// A at the first k.
    pub(crate) a: *const T,
    /// Between rows of A.
    pub(crate) a_row: isize,
    /// Between columns of A.
    pub(crate) a_step: isize,
    /// The first row of B.
    pub(crate) b: *const T,
    /// Between rows of B.
    pub(crate) b_step: isize,
    /// Sums: rows of `sums_row` elements, added to.
    pub(crate) sums: *mut T,
    /// Between rows of the sums.
    pub(crate) sums_row: usize,
    /// Columns.
    pub(crate) columns: usize,
}

/// A streaming kernel.
pub(crate) type StreamKernel<T> = unsafe fn(&Stream<T>);

/// Rows of the largest streaming kernel.
pub(crate) const STREAM_ROWS: usize = 4;

/// Adds the product of `M` rows of A and all of B to the sums.
///
/// # Safety
/// The machine has the instruction set of `V`, and `stream` describes memory that may be read and written so.
#[inline(always)]
pub(crate) unsafe fn stream<V: Lanes, const M: usize>(s: &Stream<V::Scalar>) {
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
/// Same as [`stream`], and these rows exist.
#[inline(always)]
unsafe fn rows<V: Lanes, const M: usize, const P: usize>(s: &Stream<V::Scalar>, p: usize) {
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
                let sums = s.sums.add(i * s.sums_row + j);
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
                let sums = s.sums.add(i * s.sums_row + j);
                let mut sum = V::load_masked(sums, mask);
                for (x, r) in row.iter().zip(right) {
                    sum = x.mul_add(r, sum);
                }
                sum.store_masked(sums, mask);
            }
        }
    }
}
