//! Discrete Fourier transforms, with the conventions of NumPy and PyTorch.
//!
//! A transform of length n is computed in O(n log n) operations of the engine, on every device and with gradients: small
//! transforms are products with a matrix, longer ones are split into factors (J. W. Cooley and J. W. Tukey, 1965), and
//! lengths with a large prime factor become a convolution (L. I. Bluestein, 1970). The factors are computed in `float64`
//! on the host.
//!
//! ```
//! use neurenix::{complex::Complex, fft};
//! use phynexus::{Device, Tensor};
//!
//! neurenix::register_cpu();
//! let x = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0], &[4], Device::default_device()?)?;
//! let spectrum = fft::fft(&Complex::from_real(&x)?, &[], &[], fft::Norm::Backward)?;
//! assert_eq!(spectrum.real()?.to_vec::<f64>()?, [10.0, -2.0, -2.0, -2.0]);
//! # Ok::<(), phynexus::Error>(())
//! ```

mod factors;
mod hermitian;
mod transform;

use phynexus::{Error, Result, Tensor};

pub use hermitian::{hfft, ihfft, irfft, rfft};

use crate::complex::Complex;

/// How a pair of transforms is scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Norm {
    /// The inverse transform divides by the number of elements.
    #[default]
    Backward,
    /// Both transforms divide by its square root.
    Ortho,
    /// The forward transform divides by it.
    Forward,
}

impl Norm {
    /// The norm with the other direction scaled.
    pub fn swapped(self) -> Norm {
        match self {
            Norm::Backward => Norm::Forward,
            Norm::Ortho => Norm::Ortho,
            Norm::Forward => Norm::Backward,
        }
    }

    /// The factor of a transform of `count` elements.
    fn factor(self, count: usize, inverse: bool) -> f64 {
        let count = count as f64;
        match (self, inverse) {
            (Norm::Backward, false) | (Norm::Forward, true) => 1.0,
            (Norm::Backward, true) | (Norm::Forward, false) => 1.0 / count,
            (Norm::Ortho, _) => 1.0 / count.sqrt(),
        }
    }
}

/// The transform over `axes`, or over the last ones (as many as there are lengths, all if there are none). The input is
/// cut, or padded with zeros, to `lengths`, if there are any.
///
/// # Errors
/// [`Error::Axis`] for an axis out of range; [`Error::Argument`] for a repeated axis, a length of 0, or another number
/// of lengths than axes.
pub fn fft(x: &Complex, lengths: &[usize], axes: &[i64], norm: Norm) -> Result<Complex> {
    over_axes("fft", x, lengths, axes, norm, false)
}

/// The inverse of [`fft`].
///
/// # Errors
/// As [`fft`].
pub fn ifft(x: &Complex, lengths: &[usize], axes: &[i64], norm: Norm) -> Result<Complex> {
    over_axes("ifft", x, lengths, axes, norm, true)
}

fn over_axes(
    op: &'static str,
    x: &Complex,
    lengths: &[usize],
    axes: &[i64],
    norm: Norm,
    inverse: bool,
) -> Result<Complex> {
    let plan = Plan::new(op, x.shape(), lengths, axes)?;
    let mut found = x.clone();
    for (&axis, &length) in plan.axes.iter().zip(&plan.lengths) {
        found = along(&fitted(&found, axis, length)?, axis, inverse)?;
    }
    scaled(&found, norm.factor(plan.count(), inverse))
}

/// The transform along one axis, without a factor.
fn along(x: &Complex, axis: usize, inverse: bool) -> Result<Complex> {
    let (axis, last) = (axis as i64, x.rank() as i64 - 1);
    if axis == last {
        return transform::last(x, inverse);
    }
    transform::last(&x.transpose(axis, last)?, inverse)?.transpose(axis, last)
}

fn scaled(x: &Complex, factor: f64) -> Result<Complex> {
    if factor == 1.0 { Ok(x.clone()) } else { x.mul_scalar(factor) }
}

/// The axes of a transform and its lengths along them.
struct Plan {
    axes: Vec<usize>,
    lengths: Vec<usize>,
}

impl Plan {
    fn new(op: &'static str, shape: &[usize], lengths: &[usize], axes: &[i64]) -> Result<Plan> {
        let wrong = |message: String| Error::Argument { op, message };
        let rank = shape.len() as i64;
        let count = if lengths.is_empty() { shape.len() } else { lengths.len() };
        if axes.is_empty() && count > shape.len() {
            return Err(wrong(format!("{count} lengths for {} axes", shape.len())));
        }
        let last = (shape.len() - count.min(shape.len())) as i64..rank;
        let axes: Vec<i64> = if axes.is_empty() { last.collect() } else { axes.to_vec() };
        let front = |axis: i64| {
            let front = if axis < 0 { axis + rank } else { axis };
            match (0..rank).contains(&front) {
                true => Ok(front as usize),
                false => Err(Error::Axis { op, axis, shape: shape.to_vec() }),
            }
        };
        let axes = axes.into_iter().map(front).collect::<Result<Vec<_>>>()?;
        if (1..axes.len()).any(|place| axes[..place].contains(&axes[place])) {
            return Err(wrong("an axis is repeated".to_owned()));
        }
        if axes.is_empty() {
            return Err(wrong("expected at least one axis".to_owned()));
        }
        let lengths = match lengths.is_empty() {
            true => axes.iter().map(|&axis| shape[axis]).collect(),
            false => lengths.to_vec(),
        };
        if lengths.len() != axes.len() {
            return Err(wrong(format!("{} lengths for {} axes", lengths.len(), axes.len())));
        }
        if lengths.contains(&0) {
            return Err(wrong("a length is 0: it must be at least 1".to_owned()));
        }
        Ok(Plan { axes, lengths })
    }

    fn count(&self) -> usize {
        self.lengths.iter().product()
    }
}

/// The numbers cut, or padded with zeros, to a length along an axis.
fn fitted(x: &Complex, axis: usize, length: usize) -> Result<Complex> {
    x.on_pair(|pair| fitted_real(pair, axis, length))
}

fn fitted_real(x: &Tensor, axis: usize, length: usize) -> Result<Tensor> {
    let size = x.shape()[axis];
    if length <= size {
        return if length == size { Ok(x.clone()) } else { x.narrow(axis as i64, 0, length) };
    }
    let mut shape = x.shape().to_vec();
    shape[axis] = length - size;
    Tensor::cat(&[x, &Tensor::zeros(&shape, x.dtype(), x.device())?], axis as i64)
}
