//! The inverse trigonometric and hyperbolic functions, after W. Kahan, "Branch cuts for complex elementary functions",
//! 1987.

use std::f64::consts::FRAC_PI_2;

use phynexus::{DType, Result, Tensor};

use super::{
    Complex,
    elementary::settle,
    real::{any_infinite, any_special, select, select_number, sign},
};

impl Complex {
    /// `sqrt(1 - z)` and `sqrt(1 + z)`, in parts.
    fn roots(&self) -> Result<[Tensor; 4]> {
        let (a, b) = self.parts()?;
        let (c, d) = Complex::from_parts(&a.rsub_scalar(1.0)?, &b.neg()?)?.sqrt()?.parts()?;
        let (e, f) = Complex::from_parts(&a.add_scalar(1.0)?, &b)?.sqrt()?.parts()?;
        Ok([c, d, e, f])
    }

    /// The arc cosine; the real part is from 0 to pi.
    pub fn acos(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let [c, d, e, f] = self.roots()?;
        let real = c.atan2(&e)?.mul_scalar(2.0)?;
        // The imaginary part of conj(sqrt(1 + z)) * sqrt(1 - z).
        let imaginary = e.mul(&d)?.sub(&f.mul(&c)?)?.asinh()?;
        settle(any_special(&a, &b)?, (real, imaginary), |real, imaginary| {
            let infinite = any_infinite(&a, &b)?;
            let size = b.mul(&sign(&b)?)?;
            let right = a.eq_scalar(0)?.and(&b.isnan()?)?;
            let real = select(&infinite, &size.atan2(&a)?, &select_number(&right, FRAC_PI_2, real)?)?;
            Ok((real, select(&infinite, &sign(&b)?.mul_scalar(f64::NEG_INFINITY)?, imaginary)?))
        })
    }

    /// The arc sine.
    pub fn asin(&self) -> Result<Complex> {
        self.times_i()?.asinh()?.over_i()
    }

    /// The inverse hyperbolic sine; the imaginary part is from -pi/2 to pi/2.
    pub fn asinh(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        // The arc sine of i * z is i times the result.
        let [c, d, e, f] = self.times_i()?.roots()?;
        let real = c.mul(&f)?.sub(&d.mul(&e)?)?.asinh()?;
        let imaginary = b.atan2(&c.mul(&e)?.sub(&d.mul(&f)?)?)?;
        settle(any_special(&a, &b)?, (real, imaginary), |real, imaginary| {
            let infinite = any_infinite(&a, &b)?;
            let (sign, imaginary) = (sign(&a)?, select(&b.eq_scalar(0)?, &b, imaginary)?);
            let imaginary = select(&infinite, &b.atan2(&a.mul(&sign)?)?, &imaginary)?;
            Ok((select(&infinite, &sign.mul_scalar(f64::INFINITY)?, real)?, imaginary))
        })
    }

    /// The inverse hyperbolic cosine; the real part is not negative.
    pub fn acosh(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let (c, d) = Complex::from_parts(&a.sub_scalar(1.0)?, &b)?.sqrt()?.parts()?;
        let (e, f) = Complex::from_parts(&a.add_scalar(1.0)?, &b)?.sqrt()?.parts()?;
        let real = c.mul(&e)?.add(&d.mul(&f)?)?.asinh()?;
        let imaginary = d.atan2(&e)?.mul_scalar(2.0)?;
        settle(any_special(&a, &b)?, (real, imaginary), |real, imaginary| {
            let infinite = any_infinite(&a, &b)?;
            let right = a.eq_scalar(0)?.and(&b.isnan()?)?;
            let imaginary = select_number(&right, FRAC_PI_2, imaginary)?;
            let real = select_number(&infinite, f64::INFINITY, real)?;
            Ok((real, select(&infinite, &b.atan2(&a)?, &imaginary)?))
        })
    }

    /// The arc tangent.
    pub fn atan(&self) -> Result<Complex> {
        self.times_i()?.atanh()?.over_i()
    }

    /// The inverse hyperbolic tangent; the imaginary part is from -pi/2 to pi/2.
    pub fn atanh(&self) -> Result<Complex> {
        // Beyond, the logarithm of 1 plus 4x / |z|^2 is that fraction, and the squares may overflow.
        let bound = 2f64.powi(if self.component() == DType::F64 { 300 } else { 40 });
        let (a, b) = self.parts()?;
        let (sign_a, sign_b) = (sign(&a)?, sign(&b)?);
        let (x, y) = (a.mul(&sign_a)?, b.mul(&sign_b)?);
        let far = x.detach()?.maximum(&y.detach()?)?.gt_scalar(bound)?;
        let (near_x, near_y) = (select_number(&far, 0.5, &x)?, select_number(&far, 0.5, &y)?);
        let rest = near_x.rsub_scalar(1.0)?;
        let square = near_y.square()?;
        let ratio = near_x.mul_scalar(4.0)?.div(&rest.square()?.add(&square)?)?;
        let real = ratio.log1p()?.mul_scalar(0.25)?;
        let cosine = rest.mul(&near_x.add_scalar(1.0)?)?.sub(&square)?;
        let imaginary = near_y.mul_scalar(2.0)?.atan2(&cosine)?.mul_scalar(0.5)?;
        let length = Complex::from_parts(&x, &y)?.abs()?;
        let length = select_number(&far.logical_not()?, 1.0, &length)?;
        let real = select(&far, &x.div(&length)?.div(&length)?, &real)?.mul(&sign_a)?;
        // The angle at infinity, from which it differs by y / |z|^2.
        let angle = y.div(&length)?.div(&length)?.rsub_scalar(FRAC_PI_2)?;
        let imaginary = select(&far, &angle, &imaginary)?.mul(&sign_b)?;
        settle(any_special(&a, &b)?, (real, imaginary), |real, imaginary| {
            let infinite = any_infinite(&a, &b)?;
            let kept = infinite.or(&a.eq_scalar(0)?)?;
            let flat = infinite.and(&b.isnan()?.logical_not()?)?;
            let imaginary = select(&flat, &sign_b.mul_scalar(FRAC_PI_2)?, imaginary)?;
            Ok((select(&kept, &sign_a.mul_scalar(0.0)?, real)?, imaginary))
        })
    }
}
