//! Exponential, logarithm, powers, square root, and the trigonometric and hyperbolic functions.
//!
//! Values at infinities and NaN are those of C's annex G, as the Python array API standard requires. They are chosen
//! where an operand is not finite, so that the gradient at finite numbers is that of the formula.

use std::f64::consts::{LN_2, LN_10};

use phynexus::{DType, Result, Tensor};

use super::{
    Complex,
    real::{Scaled, any_infinite, any_special, select, select_number, sign},
};

impl Complex {
    /// e to the power z.
    pub fn exp(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let growth = a.exp()?;
        let (real, imaginary) = (growth.mul(&b.cos()?)?, growth.mul(&b.sin()?)?);
        // The exponential may be infinite for a finite operand.
        let special = any_special(&growth, &b)?.or(&a.isinf()?)?;
        settle(special, (real, imaginary), |real, imaginary| {
            let wild = b.isfinite()?.logical_not()?;
            let (vanishes, grows) = (wild.and(&below(&a)?)?, wild.and(&above(&a)?)?);
            let real = select_number(&vanishes, 0.0, &select_number(&grows, f64::INFINITY, real)?)?;
            let imaginary = select(&b.eq_scalar(0)?, &b, imaginary)?;
            Ok((real, select_number(&vanishes, 0.0, &imaginary)?))
        })
    }

    /// `exp(z) - 1`, accurate near 0.
    pub fn expm1(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let half = b.mul_scalar(0.5)?.sin()?;
        // Adding 0 makes a zero positive.
        let real = a.expm1()?.mul(&b.cos()?)?.sub(&half.square()?.mul_scalar(2.0)?)?.add_scalar(0.0)?;
        let imaginary = a.exp()?.mul(&b.sin()?)?;
        let whole = self.exp()?.parts()?;
        settle(any_special(&whole.0, &whole.1)?.or(&any_special(&a, &b)?)?, (real, imaginary), |_, _| {
            Ok((whole.0.sub_scalar(1.0)?, whole.1.clone()))
        })
    }

    /// The natural logarithm; the imaginary part is from -pi to pi.
    pub fn log(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let scaled = Scaled::new(&a, &b)?;
        let (sum, zero) = scaled.squares()?;
        let far = sum.log()?.mul_scalar(0.5)?.sub(&scaled.logarithm()?)?;
        // Near the unit circle the logarithm of the sum would lose digits.
        let near = sum.gt_scalar(0.5)?.and(&sum.lt_scalar(3.0)?)?;
        let (x, y) = (scaled.x.mul(&sign(&scaled.x)?)?, scaled.y.mul(&sign(&scaled.y)?)?);
        let swapped = x.lt(&y)?;
        let (greater, lesser) = (select(&swapped, &y, &x)?, select(&swapped, &x, &y)?);
        let excess = greater.sub_scalar(1.0)?.mul(&greater.add_scalar(1.0)?)?.add(&lesser.square()?)?;
        let close = select_number(&near.logical_not()?, 0.0, &excess)?.log1p()?.mul_scalar(0.5)?;
        let real = select_number(&zero, f64::NEG_INFINITY, &select(&near, &close, &far)?)?;
        let real = select_number(&any_infinite(&a, &b)?, f64::INFINITY, &real)?;
        Complex::from_parts(&real, &scaled.y.atan2(&scaled.x)?)
    }

    /// `log(1 + z)`, accurate near 0.
    pub fn log1p(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let one_more = a.add_scalar(1.0)?;
        let (real, imaginary) = Complex::from_parts(&one_more, &b)?.log()?.parts()?;
        let size = a.detach()?.abs()?.maximum(&b.detach()?.abs()?)?;
        let small = size.lt_scalar(0.5)?;
        let excess = a.mul(&a.add_scalar(2.0)?)?.add(&b.square()?)?;
        let close = select_number(&small.logical_not()?, 0.0, &excess)?.log1p()?.mul_scalar(0.5)?;
        Complex::from_parts(&select(&small, &close, &real)?, &imaginary)
    }

    /// The logarithm to base 2.
    pub fn log2(&self) -> Result<Complex> {
        self.log()?.mul_scalar(1.0 / LN_2)
    }

    /// The logarithm to base 10.
    pub fn log10(&self) -> Result<Complex> {
        self.log()?.mul_scalar(1.0 / LN_10)
    }

    /// The square root whose real part is not negative.
    pub fn sqrt(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let scaled = Scaled::new(&a, &b)?;
        let (sum, zero) = scaled.squares()?;
        let (sign_x, sign_y) = (sign(&scaled.x)?, sign(&scaled.y)?);
        let (x, y) = (scaled.x.mul(&sign_x)?, scaled.y.mul(&sign_y)?);
        // W. Kahan, "Branch cuts for complex elementary functions", 1987.
        let greater = sum.sqrt()?.add(&x)?.mul_scalar(0.5)?.sqrt()?;
        let lesser = y.div(&greater)?.mul_scalar(0.5)?;
        let negative = sign_x.lt_scalar(0)?;
        let undo = scaled.inverse_root()?;
        let real = select(&negative, &lesser, &greater)?.mul(&undo)?;
        let imaginary = select(&negative, &greater, &lesser)?.mul(&undo)?.mul(&sign_y)?;
        let real = select_number(&zero, 0.0, &real)?;
        let imaginary = select(&zero, &b.detach()?, &imaginary)?;
        settle(any_special(&a, &b)?, (real, imaginary), |real, imaginary| {
            let (nan, infinite) = (b.isnan()?, b.isinf()?);
            let real = select_number(&infinite.or(&above(&a)?)?, f64::INFINITY, real)?;
            let imaginary = select_number(&nan.and(&below(&a)?)?, f64::INFINITY, imaginary)?;
            Ok((real, select(&infinite, &b, &imaginary)?))
        })
    }

    /// `self` to the power `exponent`: `exp(exponent * log(self))`. A power of 0 is 0, but 1 if the exponent is 0.
    pub fn pow(&self, exponent: &Complex) -> Result<Complex> {
        let shape = phynexus::shape::broadcast("pow", self.shape(), exponent.shape())?;
        let (base, exponent) = (self.broadcast_to(&shape)?, exponent.broadcast_to(&shape)?);
        let zero = base.is_nonzero()?.logical_not()?;
        let (a, b) = base.parts()?;
        let safe = Complex::from_parts(&select_number(&zero, 1.0, &a)?, &b)?;
        let (real, imaginary) = exponent.mul(&safe.log()?)?.exp()?.parts()?;
        // 0 to a power with a positive real part is 0, and infinite or NaN otherwise.
        let rises = exponent.real()?.gt_scalar(0)?;
        let lost = zero.and(&rises.logical_not()?)?;
        let real = select_number(&zero, 0.0, &real)?;
        let real = select_number(&lost, f64::NAN, &real)?;
        let imaginary = select_number(&zero, 0.0, &imaginary)?;
        let imaginary = select_number(&lost, f64::NAN, &imaginary)?;
        let none = exponent.is_nonzero()?.logical_not()?;
        Complex::from_parts(&select_number(&none, 1.0, &real)?, &select_number(&none, 0.0, &imaginary)?)
    }

    /// `self` to an integer power, by multiplication.
    pub fn powi(&self, exponent: i32) -> Result<Complex> {
        let one = Complex::from_real(&self.real()?.ones_like()?)?.to_component(self.component())?;
        let mut rest = exponent.unsigned_abs();
        if rest == 0 {
            return Ok(one);
        }
        let (mut power, mut product) = (self.clone(), None::<Complex>);
        while rest > 0 {
            if rest & 1 == 1 {
                product = Some(match product {
                    Some(product) => product.mul(&power)?,
                    None => power.clone(),
                });
            }
            rest >>= 1;
            if rest > 0 {
                power = power.square()?;
            }
        }
        let product = product.unwrap_or_else(|| one.clone());
        if exponent < 0 { one.div(&product) } else { Ok(product) }
    }

    /// The hyperbolic cosine.
    pub fn cosh(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let main = (a.cosh()?.mul(&b.cos()?)?, a.sinh()?.mul(&b.sin()?)?);
        settle(any_special(&main.0, &main.1)?, main, |real, imaginary| {
            let wild = b.isfinite()?.logical_not()?;
            let real = select_number(&a.isinf()?.and(&wild)?, f64::INFINITY, real)?;
            let on_axis = a.eq_scalar(0)?.or(&b.eq_scalar(0)?)?;
            let signed = sign(&a)?.mul(&sign(&b)?)?.mul_scalar(0.0)?;
            Ok((real, select(&on_axis, &signed, imaginary)?))
        })
    }

    /// The hyperbolic sine.
    pub fn sinh(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let main = (a.sinh()?.mul(&b.cos()?)?, a.cosh()?.mul(&b.sin()?)?);
        settle(any_special(&main.0, &main.1)?, main, |real, imaginary| {
            let wild = b.isfinite()?.logical_not()?;
            let kept = a.eq_scalar(0)?.or(&a.isinf()?.and(&wild)?)?;
            Ok((select(&kept, &a, real)?, select(&b.eq_scalar(0)?, &b, imaginary)?))
        })
    }

    /// The hyperbolic tangent.
    pub fn tanh(&self) -> Result<Complex> {
        // From here on exp(-2 * bound) is less than half an ulp of 1.
        let bound = if self.component() == DType::F64 { 20.0 } else { 10.0 };
        let (a, b) = self.parts()?;
        let sign_a = sign(&a)?;
        let size = a.mul(&sign_a)?;
        let far = size.gt_scalar(bound)?;
        let near = select_number(&far, bound, &size)?.mul(&sign_a)?;
        let (sinh, cosh) = (near.sinh()?, near.cosh()?);
        let (sin, cos) = (b.sin()?, b.cos()?);
        let sum = cos.square()?.add(&sinh.square()?)?;
        let decay = size.mul_scalar(-2.0)?.exp()?;
        let faint = sin.mul(&cos)?.mul(&decay)?.mul_scalar(4.0)?;
        let real = select(&far, &sign_a, &sinh.mul(&cosh)?.div(&sum)?)?;
        let imaginary = select(&far, &faint, &sin.mul(&cos)?.div(&sum)?)?;
        settle(any_special(&a, &b)?, (real, imaginary), |real, imaginary| {
            let wild = b.isfinite()?.logical_not()?;
            let real = select_number(&wild.and(&a.isfinite()?)?, f64::NAN, real)?;
            let real = select(&a.eq_scalar(0)?, &a, &real)?;
            let imaginary = select(&a.isinf()?, &sign(&b)?.mul_scalar(0.0)?, imaginary)?;
            Ok((real, select(&b.eq_scalar(0)?, &b, &imaginary)?))
        })
    }

    /// The cosine.
    pub fn cos(&self) -> Result<Complex> {
        self.times_i()?.cosh()
    }

    /// The sine.
    pub fn sin(&self) -> Result<Complex> {
        self.times_i()?.sinh()?.over_i()
    }

    /// The tangent.
    pub fn tan(&self) -> Result<Complex> {
        self.times_i()?.tanh()?.over_i()
    }

    /// `1 / (1 + exp(-z))`.
    pub fn sigmoid(&self) -> Result<Complex> {
        // By the tangent, which does not overflow: (1 + tanh(z / 2)) / 2.
        let (a, b) = self.mul_scalar(0.5)?.tanh()?.mul_scalar(0.5)?.parts()?;
        Complex::from_parts(&a.add_scalar(0.5)?, &b)
    }
}

/// True where the number is positive infinity.
fn above(x: &Tensor) -> Result<Tensor> {
    x.eq_scalar(f64::INFINITY)
}

/// True where the number is negative infinity.
fn below(x: &Tensor) -> Result<Tensor> {
    x.eq_scalar(f64::NEG_INFINITY)
}

/// The parts, of which those where the mask holds are replaced by constants made of both.
pub(super) fn settle(
    special: Tensor,
    (real, imaginary): (Tensor, Tensor),
    replaced: impl FnOnce(&Tensor, &Tensor) -> Result<(Tensor, Tensor)>,
) -> Result<Complex> {
    let (x, y) = replaced(&real.detach()?, &imaginary.detach()?)?;
    let real = select(&special, &x.detach()?, &real)?;
    Complex::from_parts(&real, &select(&special, &y.detach()?, &imaginary)?)
}
