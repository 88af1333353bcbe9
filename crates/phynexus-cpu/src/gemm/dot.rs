//! The kernel for operands that are both contiguous along k: a few rows of A times a few columns of B, with k across
//! the lanes.
//!
//! Nothing is packed. This pays off if packing would cost as much as the product: few rows, deep k.

use super::lanes::Lanes;

/// The arguments of a dot kernel. Rows of A and columns of B are contiguous. Strides are in elements.
pub(crate) struct Dots<T> {
    /// The length of the sums.
    pub(crate) k: usize,
    /// The first row of A.
    pub(crate) a: *const T,
    /// Row stride of A.
    pub(crate) a_row: isize,
    /// The first column of B.
    pub(crate) b: *const T,
    /// Column stride of B.
    pub(crate) b_column: isize,
    /// The first element of C.
    pub(crate) c: *mut T,
    /// Row stride of C.
    pub(crate) c_row: isize,
    /// Column stride of C.
    pub(crate) c_column: isize,
    /// Whether to add to C instead of overwriting it.
    pub(crate) accumulate: bool,
}

/// A dot kernel.
pub(crate) type DotKernel<T> = unsafe fn(&Dots<T>);

/// Maximum number of rows of a dot kernel.
pub(crate) const DOT_ROWS: usize = 6;
/// Maximum number of columns of a dot kernel.
pub(crate) const DOT_COLUMNS: usize = 4;

/// Computes `R` by `C` elements.
///
/// # Safety
/// The machine must support the instruction set of `V`, and `dots` must describe memory that is valid for these
/// accesses.
#[inline(always)]
pub(crate) unsafe fn dot<V: Lanes, const R: usize, const C: usize>(dots: &Dots<V::Scalar>) {
    // SAFETY: guaranteed by the caller; every address below is an element of these rows and columns.
    unsafe {
        let mut acc = [[V::zero(); C]; R];
        let mut p = 0;
        while p + V::N <= dots.k {
            let mut right = [V::zero(); C];
            for (j, r) in right.iter_mut().enumerate() {
                *r = V::load(dots.b.offset(j as isize * dots.b_column).add(p));
            }
            for (i, sums) in acc.iter_mut().enumerate() {
                let left = V::load(dots.a.offset(i as isize * dots.a_row).add(p));
                for (sum, r) in sums.iter_mut().zip(right) {
                    *sum = left.mul_add(r, *sum);
                }
            }
            p += V::N;
        }
        if p < dots.k {
            let mask = V::first(dots.k - p);
            let mut right = [V::zero(); C];
            for (j, r) in right.iter_mut().enumerate() {
                *r = V::load_masked(dots.b.offset(j as isize * dots.b_column).add(p), mask);
            }
            for (i, sums) in acc.iter_mut().enumerate() {
                let left = V::load_masked(dots.a.offset(i as isize * dots.a_row).add(p), mask);
                for (sum, r) in sums.iter_mut().zip(right) {
                    *sum = left.mul_add(r, *sum);
                }
            }
        }
        for (i, sums) in acc.into_iter().enumerate() {
            let row = dots.c.offset(i as isize * dots.c_row);
            let mut four = [V::zero(); 4];
            four[..C].copy_from_slice(&sums);
            let totals = V::sums(four);
            for (j, &total) in totals.iter().enumerate().take(C) {
                let p = row.offset(j as isize * dots.c_column);
                *p = if dots.accumulate { super::lanes::Number::add(*p, total) } else { total };
            }
        }
    }
}
