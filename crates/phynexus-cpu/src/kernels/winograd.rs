//! The transforms of Winograd's method F(2x2, 3x3): A. Lavin, S. Gray, "Fast Algorithms for Convolutional Neural
//! Networks", 2015, section 4.1. The names of the matrices are theirs.

use super::lanes::Lanes;

/// The points of a transformed tile.
pub(crate) const POINTS: usize = 16;

/// The arguments of a transform: matrices of `count` adjacent elements are transformed together.
pub(crate) struct Transform<T> {
    pub(crate) from: *const T,
    /// The distance between elements of a matrix.
    pub(crate) from_step: isize,
    pub(crate) to: *mut T,
    pub(crate) to_step: usize,
    pub(crate) count: usize,
    /// One half.
    pub(crate) half: T,
}

/// What is transformed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Matrix {
    /// `B^T d B`: 4 by 4 elements of the source.
    Source,
    /// `G g G^T`: a filter of 3 by 3.
    Filter,
    /// `A^T m A`: to 2 by 2 elements of the result.
    Result,
    /// `A y A^T`: the gradient of 2 by 2 elements of the result.
    ResultGradient,
    /// `G^T m G`: to the gradient of a filter of 3 by 3.
    FilterGradient,
}

/// Transforms matrices.
///
/// # Safety
/// The elements must exist, and the machine must support the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn transform<V: Lanes>(matrix: Matrix, t: &Transform<V::Scalar>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (half, zero) = (V::splat(&t.half), V::zero());
        match matrix {
            Matrix::Source => {
                multiply::<V, 4, 4>(t, |[a, b, c, d]| [a.sub(c), b.add(c), c.sub(b), b.sub(d)]);
            }
            Matrix::Filter => multiply::<V, 3, 4>(t, |[a, b, c]| {
                let (ends, middle) = (a.add(c).mul_add(half, zero), b.mul_add(half, zero));
                [a, ends.add(middle), ends.sub(middle), c]
            }),
            Matrix::Result => multiply::<V, 4, 2>(t, |[a, b, c, d]| [a.add(b).add(c), b.sub(c).sub(d)]),
            Matrix::ResultGradient => {
                multiply::<V, 2, 4>(t, |[a, b]| [a, a.add(b), a.sub(b), zero.sub(b)]);
            }
            Matrix::FilterGradient => multiply::<V, 4, 3>(t, |[a, b, c, d]| {
                let (sum, difference) = (b.add(c), b.sub(c));
                [sum.mul_add(half, a), difference.mul_add(half, zero), sum.mul_add(half, d)]
            }),
        }
    }
}

/// Multiplies with a matrix from the left and its transpose from the right: `f` is its product with a column.
///
/// # Safety
/// See [`transform`].
#[inline(always)]
unsafe fn multiply<V: Lanes, const I: usize, const O: usize>(
    t: &Transform<V::Scalar>,
    f: impl Fn([V; I]) -> [V; O],
) {
    for start in (0..t.count).step_by(V::N) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mask = V::first(V::N.min(t.count - start));
            let element = |i: usize| V::load_masked(t.from.offset(i as isize * t.from_step).add(start), mask);
            // `halfway[j]` is column j of the product of the matrix and the input.
            let halfway: [[V; O]; I] =
                std::array::from_fn(|column| f(std::array::from_fn(|row| element(row * I + column))));
            for row in 0..O {
                let of_row = f(std::array::from_fn(|column| halfway[column][row]));
                for (column, value) in of_row.into_iter().enumerate() {
                    value.store_masked(t.to.add((row * O + column) * t.to_step + start), mask);
                }
            }
        }
    }
}
