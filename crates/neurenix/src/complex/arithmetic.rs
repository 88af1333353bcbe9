//! Arithmetic and comparisons. Operands are broadcast, and promoted to the wider component.

use phynexus::{Result, Scalar, Tensor};

use super::{
    Complex,
    real::{any_infinite, length, select, select_number},
};

impl Complex {
    /// `self + other`.
    pub fn add(&self, other: &Complex) -> Result<Complex> {
        Ok(Complex { pair: self.pair.add(&other.pair)? })
    }

    /// `self - other`.
    pub fn sub(&self, other: &Complex) -> Result<Complex> {
        Ok(Complex { pair: self.pair.sub(&other.pair)? })
    }

    /// `self * other`.
    pub fn mul(&self, other: &Complex) -> Result<Complex> {
        let ((a, b), (c, d)) = (self.parts()?, other.parts()?);
        Complex::from_parts(&a.mul(&c)?.sub(&b.mul(&d)?)?, &a.mul(&d)?.add(&b.mul(&c)?)?)
    }

    /// `self * other` for real numbers.
    pub fn mul_real(&self, other: &Tensor) -> Result<Complex> {
        let (a, b) = self.parts()?;
        Complex::from_parts(&a.mul(other)?, &b.mul(other)?)
    }

    /// `self * value` for a real number.
    pub fn mul_scalar(&self, value: impl Into<Scalar>) -> Result<Complex> {
        self.on_pair(|pair| pair.mul_scalar(value))
    }

    /// `self / other`. Division by zero divides both parts by zero.
    pub fn div(&self, other: &Complex) -> Result<Complex> {
        let ((a, b), (c, d)) = (self.parts()?, other.parts()?);
        // The greatest part is a constant to the gradient: the quotient does not depend on it.
        let greatest = c.detach()?.abs()?.maximum(&d.detach()?.abs()?)?;
        let zero = greatest.eq_scalar(0)?;
        let scale = select_number(&zero, 1.0, &greatest)?;
        let (x, y) = (c.div(&scale)?, d.div(&scale)?);
        let sum = select_number(&zero, 1.0, &x.square()?.add(&y.square()?)?)?;
        let quotient = |part: Tensor| part.div(&sum)?.div(&scale);
        let real = quotient(a.mul(&x)?.add(&b.mul(&y)?)?)?;
        let imaginary = quotient(b.mul(&x)?.sub(&a.mul(&y)?)?)?;
        // A finite number divided by an infinite one is zero.
        let vanishes = any_infinite(&c, &d)?.and(&self.isfinite()?)?;
        let by_zero = |part: &Tensor| part.detach()?.div(&greatest.zeros_like()?);
        let settle = |found: &Tensor, part: &Tensor| {
            select_number(&vanishes, 0.0, &select(&zero, &by_zero(part)?, found)?)
        };
        Complex::from_parts(&settle(&real, &a)?, &settle(&imaginary, &b)?)
    }

    /// `self / other` for real numbers.
    pub fn div_real(&self, other: &Tensor) -> Result<Complex> {
        let (a, b) = self.parts()?;
        Complex::from_parts(&a.div(other)?, &b.div(other)?)
    }

    /// `1 / self`.
    pub fn reciprocal(&self) -> Result<Complex> {
        Complex::from_real(&self.real()?.ones_like()?.detach()?)?.div(self)
    }

    /// `-self`.
    pub fn neg(&self) -> Result<Complex> {
        self.on_pair(Tensor::neg)
    }

    /// The conjugate, `x - iy`.
    pub fn conj(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        Complex::from_parts(&a, &b.neg()?)
    }

    /// `i * self`.
    pub fn times_i(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        Complex::from_parts(&b.neg()?, &a)
    }

    /// `-i * self`.
    pub fn over_i(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        Complex::from_parts(&b, &a.neg()?)
    }

    /// `self * self`.
    pub fn square(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let real = a.sub(&b)?.mul(&a.add(&b)?)?;
        Complex::from_parts(&real, &a.mul(&b)?.mul_scalar(2.0)?)
    }

    /// `sqrt(x * x + y * y)`. Its gradient at 0 is 0.
    pub fn abs(&self) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        length(&a, &b)
    }

    /// The angle from the positive real axis, from -pi to pi.
    pub fn angle(&self) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        b.atan2(&a)
    }

    /// `self / abs(self)`, and 0 for 0.
    pub fn sign(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let length = length(&a, &b)?;
        let zero = length.eq_scalar(0)?;
        let length = select_number(&zero, 1.0, &length)?;
        let part = |part: Tensor| select_number(&zero, 0.0, &part.div(&length)?);
        // A NaN in one part makes both NaN.
        let nan = self.isnan()?;
        let real = select_number(&nan, f64::NAN, &part(a)?)?;
        Complex::from_parts(&real, &select_number(&nan, f64::NAN, &part(b)?)?)
    }

    /// Both parts rounded, halves to even.
    pub fn round(&self) -> Result<Complex> {
        self.on_pair(Tensor::round)
    }

    /// True where both parts are equal.
    pub fn eq(&self, other: &Complex) -> Result<Tensor> {
        let ((a, b), (c, d)) = (self.parts()?, other.parts()?);
        a.eq(&c)?.and(&b.eq(&d)?)
    }

    /// True where a part is not zero.
    pub fn is_nonzero(&self) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        a.ne_scalar(0)?.or(&b.ne_scalar(0)?)
    }

    /// True where a part is NaN.
    pub fn isnan(&self) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        a.isnan()?.or(&b.isnan()?)
    }

    /// True where a part is infinite.
    pub fn isinf(&self) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        any_infinite(&a, &b)
    }

    /// True where both parts are finite.
    pub fn isfinite(&self) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        a.isfinite()?.and(&b.isfinite()?)
    }

    /// The numbers where the mask holds, elsewhere those of `other`.
    pub fn select(mask: &Tensor, first: &Complex, second: &Complex) -> Result<Complex> {
        let ((a, b), (c, d)) = (first.parts()?, second.parts()?);
        Complex::from_parts(&select(mask, &a, &c)?, &select(mask, &b, &d)?)
    }
}
