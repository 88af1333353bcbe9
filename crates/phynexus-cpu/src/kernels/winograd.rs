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
    /// Whether to add to the elements instead of overwriting them.
    pub(crate) adds: bool,
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

/// Multiplies with a matrix from the left and its transpose from the right. `$product` is its product with a column.
///
/// Loops over constants, expanded in place: functions would pass registers through memory.
macro_rules! multiply {
    ($t:ident, $from:literal to $to:literal, |$column:pat_param| $product:expr) => {
        for start in (0..$t.count).step_by(V::N) {
            let mask = V::first(V::N.min($t.count - start));
            let (from, to) = ($t.from.add(start), $t.to.add(start));
            // `halfway[column][row]` of the product of the matrix and the input.
            let mut halfway = [[V::zero(); $to]; $from];
            for column in 0..$from {
                let mut elements = [V::zero(); $from];
                for row in 0..$from {
                    let place = (row * $from + column) as isize;
                    elements[row] = V::load_masked(from.offset(place * $t.from_step), mask);
                }
                let $column = elements;
                halfway[column] = $product;
            }
            for row in 0..$to {
                let mut elements = [V::zero(); $from];
                for column in 0..$from {
                    elements[column] = halfway[column][row];
                }
                let $column = elements;
                let products: [V; $to] = $product;
                for column in 0..$to {
                    let to = to.add((row * $to + column) * $t.to_step);
                    let mut product = products[column];
                    if $t.adds {
                        product = product.add(V::load_masked(to, mask));
                    }
                    product.store_masked(to, mask);
                }
            }
        }
    };
}

/// Transforms matrices.
///
/// # Safety
/// The elements must exist, and the machine must support the instruction set of `V`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "rows and columns are numbered")]
pub(crate) unsafe fn transform<V: Lanes>(matrix: Matrix, t: &Transform<V::Scalar>) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (half, zero) = (V::splat(&t.half), V::zero());
        match matrix {
            Matrix::Source => multiply!(t, 4 to 4, |[a, b, c, d]| [a.sub(c), b.add(c), c.sub(b), b.sub(d)]),
            Matrix::Filter => multiply!(t, 3 to 4, |[a, b, c]| {
                let (ends, middle) = (a.add(c).mul_add(half, zero), b.mul_add(half, zero));
                [a, ends.add(middle), ends.sub(middle), c]
            }),
            Matrix::Result => multiply!(t, 4 to 2, |[a, b, c, d]| [a.add(b).add(c), b.sub(c).sub(d)]),
            Matrix::ResultGradient => multiply!(t, 2 to 4, |[a, b]| [a, a.add(b), a.sub(b), zero.sub(b)]),
            Matrix::FilterGradient => multiply!(t, 4 to 3, |[a, b, c, d]| {
                let (sum, difference) = (b.add(c), b.sub(c));
                [sum.mul_add(half, a), difference.mul_add(half, zero), sum.mul_add(half, d)]
            }),
        }
    }
}
