//! The transform along the last axis.

use phynexus::Result;

use super::factors::{Kind, complex, constant};
use crate::complex::Complex;

/// Up to this length a transform is one product with a matrix.
const DIRECT: usize = 64;
/// The longest transform that is split off at once.
const RADIX: usize = 32;

/// The transform along the last axis, without a factor.
pub(super) fn last(x: &Complex, inverse: bool) -> Result<Complex> {
    let n = x.shape()[x.rank() - 1];
    if n <= 1 || x.pair().is_empty() {
        return Ok(x.clone());
    }
    if n <= DIRECT {
        return direct(x, n, inverse);
    }
    match (2..=RADIX).rev().find(|radix| n.is_multiple_of(*radix)) {
        Some(radix) => split(x, n, radix, inverse),
        None => convolved(x, n, inverse),
    }
}

/// By a product with the matrix of all roots.
fn direct(x: &Complex, n: usize, inverse: bool) -> Result<Complex> {
    let matrix = constant(Kind::Matrix, n, inverse, x.component(), x.pair().device())?;
    let count = x.pair().len() / (2 * n);
    let rows = x.pair().reshape(&[count, 2 * n])?;
    Complex::from_pair(&rows.matmul(&matrix)?.reshape(x.pair().shape())?)
}

/// By transforms of `radix` numbers, a multiplication, and transforms of the remaining factor.
fn split(x: &Complex, n: usize, radix: usize, inverse: bool) -> Result<Complex> {
    let (rest, count) = (n / radix, x.pair().len() / (2 * n));
    // Element a * rest + b of the input is at (a, b), element c + radix * d of the result at (d, c).
    let columns = x.reshape(&[count, radix, rest])?.transpose(1, 2)?;
    let twiddles = complex(Kind::Twiddles { radix }, n, inverse, x)?;
    let columns = direct(&columns, radix, inverse)?.mul(&twiddles)?;
    last(&columns.transpose(1, 2)?, inverse)?.transpose(1, 2)?.reshape(x.shape())
}

/// As a convolution with a chirp, by transforms of a power of two.
fn convolved(x: &Complex, n: usize, inverse: bool) -> Result<Complex> {
    let length = (2 * n - 1).next_power_of_two();
    let chirp = complex(Kind::Chirp, n, inverse, x)?;
    let filter = complex(Kind::ChirpTransform { length }, n, inverse, x)?;
    let padded = super::fitted(&x.mul(&chirp)?, x.rank() - 1, length)?;
    let convolution = last(&last(&padded, false)?.mul(&filter)?, true)?;
    convolution.narrow(-1, 0, n)?.mul(&chirp)
}
