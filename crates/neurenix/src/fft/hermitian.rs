//! Transforms of real numbers, whose results are Hermitian: the second half conjugates the first.

use phynexus::{Result, Tensor};

use super::{
    Norm, Plan, along,
    factors::{Kind, complex},
    fitted, fitted_real, scaled, transform,
};
use crate::complex::{Complex, component};

/// The transform of real numbers over `axes`; see [`fft`](super::fft) for the arguments. Along the last of the axes the
/// result has the first `length / 2 + 1` elements only.
///
/// # Errors
/// As [`fft`](super::fft).
pub fn rfft(x: &Tensor, lengths: &[usize], axes: &[i64], norm: Norm) -> Result<Complex> {
    forward("rfft", x, lengths, axes, norm, false)
}

fn forward(
    op: &'static str,
    x: &Tensor,
    lengths: &[usize],
    axes: &[i64],
    norm: Norm,
    inverse: bool,
) -> Result<Complex> {
    let plan = Plan::new(op, x.shape(), lengths, axes)?;
    let mut real = x.to_dtype(component(x.dtype()))?;
    for (&axis, &length) in plan.axes.iter().zip(&plan.lengths) {
        real = fitted_real(&real, axis, length)?;
    }
    let [first @ .., halved] = plan.axes.as_slice() else { return Complex::from_real(&real) };
    let (halved, last) = (*halved as i64, x.rank() as i64 - 1);
    let mut found = real_last(&real.transpose(halved, last)?, inverse)?.transpose(halved, last)?;
    for &axis in first {
        found = along(&found, axis, inverse)?;
    }
    scaled(&found, norm.factor(plan.count(), inverse))
}

/// The first half of the transform along the last axis.
fn real_last(x: &Tensor, inverse: bool) -> Result<Complex> {
    let n = x.shape()[x.rank() - 1];
    if n % 2 == 1 {
        return transform::last(&Complex::from_real(x)?, inverse)?.narrow(-1, 0, n / 2 + 1);
    }
    // Even and odd elements are the parts of half as many complex numbers.
    let mut shape = x.shape().to_vec();
    if let Some(size) = shape.last_mut() {
        *size = n / 2;
    }
    shape.push(2);
    let packed = transform::last(&Complex::from_pair(&x.reshape(&shape)?)?, inverse)?;
    let z = Complex::cat(&[&packed, &packed.narrow(-1, 0, 1)?], -1)?;
    let mirrored = reversed(&z)?.conj()?;
    let twiddles = complex(Kind::Half, n, inverse, &z)?;
    let odd = z.sub(&mirrored)?.over_i()?.mul(&twiddles)?;
    z.add(&mirrored)?.add(&odd)?.mul_scalar(0.5)
}

/// The order along the last axis reversed.
fn reversed(x: &Complex) -> Result<Complex> {
    let axis = x.rank() as i64 - 1;
    x.on_pair(|pair| pair.flip(&[axis]))
}

/// The real inverse of [`rfft`]. The last of `lengths` is that of the result; by default it is even. Imaginary parts
/// that the transform of real numbers does not have are ignored.
///
/// # Errors
/// As [`fft`](super::fft).
pub fn irfft(x: &Complex, lengths: &[usize], axes: &[i64], norm: Norm) -> Result<Tensor> {
    backward("irfft", x, lengths, axes, norm, true)
}

fn backward(
    op: &'static str,
    x: &Complex,
    lengths: &[usize],
    axes: &[i64],
    norm: Norm,
    inverse: bool,
) -> Result<Tensor> {
    // A last axis of size 1 would give a length of 0, which the plan refuses.
    let mut shape = x.shape().to_vec();
    let rank = shape.len() as i64;
    let halved = axes.last().copied().unwrap_or(-1);
    let front = if halved < 0 { halved + rank } else { halved };
    if let Some(size) = usize::try_from(front).ok().and_then(|place| shape.get_mut(place)) {
        *size = 2 * size.saturating_sub(1);
    }
    let plan = Plan::new(op, &shape, lengths, axes)?;
    let ([first @ .., halved], [.., length]) = (plan.axes.as_slice(), plan.lengths.as_slice()) else {
        return x.real();
    };
    let mut found = x.clone();
    for (&axis, &length) in first.iter().zip(&plan.lengths) {
        found = along(&fitted(&found, axis, length)?, axis, inverse)?;
    }
    let found = fitted(&found, *halved, length / 2 + 1)?;
    let (halved, last) = (*halved as i64, x.rank() as i64 - 1);
    let found = hermitian_last(&found.transpose(halved, last)?, *length, inverse)?.transpose(halved, last)?;
    let factor = norm.factor(plan.count(), inverse);
    if factor == 1.0 { Ok(found) } else { found.mul_scalar(factor) }
}

/// The real transform of `n` numbers along the last axis from their first half.
fn hermitian_last(x: &Complex, n: usize, inverse: bool) -> Result<Tensor> {
    let half = n / 2;
    if n % 2 == 1 {
        let (a, b) = x.parts()?;
        let kept = only(half + 1, |k| k > 0, &b)?;
        let x = Complex::from_parts(&a, &b.mul(&kept)?)?;
        let rest = reversed(&x.narrow(-1, 1, half)?)?.conj()?;
        return transform::last(&Complex::cat(&[&x, &rest], -1)?, inverse)?.real();
    }
    let (a, b) = x.parts()?;
    let kept = only(half + 1, |k| k > 0 && k < half, &b)?;
    let x = Complex::from_parts(&a, &b.mul(&kept)?)?;
    let mirrored = reversed(&x)?.conj()?;
    // Its direction is opposite to that of the transform that it undoes.
    let twiddles = complex(Kind::Half, n, inverse, &x)?;
    let odd = x.sub(&mirrored)?.times_i()?.mul(&twiddles)?;
    let packed = transform::last(&x.add(&mirrored)?.add(&odd)?.narrow(-1, 0, half)?, inverse)?;
    let mut shape = packed.shape().to_vec();
    if let Some(size) = shape.last_mut() {
        *size = n;
    }
    packed.pair().reshape(&shape)
}

/// A vector of 1 where `wanted` holds of the index, else 0.
fn only(size: usize, wanted: impl Fn(usize) -> bool, like: &Tensor) -> Result<Tensor> {
    let values: Vec<f32> = (0..size).map(|k| f32::from(u8::from(wanted(k)))).collect();
    Tensor::from_slice(&values, &[size], like.device())?.to_dtype(like.dtype())
}

/// The real transform of numbers whose conjugates are their mirror image, of which the first half is given.
///
/// # Errors
/// As [`fft`](super::fft).
pub fn hfft(x: &Complex, lengths: &[usize], axes: &[i64], norm: Norm) -> Result<Tensor> {
    backward("hfft", x, lengths, axes, norm, false)
}

/// The inverse of [`hfft`].
///
/// # Errors
/// As [`fft`](super::fft).
pub fn ihfft(x: &Tensor, lengths: &[usize], axes: &[i64], norm: Norm) -> Result<Complex> {
    forward("ihfft", x, lengths, axes, norm, true)
}
