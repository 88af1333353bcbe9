//! Functions of the representation of numbers: signs, adjacent floats, non-finite values, fractions, remainders.

use super::operands::{broadcast2, promote2};
use crate::{DType, DTypeKind, Error, Result, Scalar, Tensor, op::gradient};

/// The integer dtype of a float's width, and its least value, which is the sign bit alone.
fn bits_of(dtype: DType) -> Option<(DType, i64)> {
    match dtype {
        DType::F8E4M3 | DType::F8E5M2 => Some((DType::I8, i64::from(i8::MIN))),
        DType::F16 | DType::BF16 => Some((DType::I16, i64::from(i16::MIN))),
        DType::F32 => Some((DType::I32, i64::from(i32::MIN))),
        DType::F64 => Some((DType::I64, i64::MIN)),
        _ => None,
    }
}

/// The greatest finite value of a float dtype.
fn greatest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

impl Tensor {
    /// True (`bool`) where the sign bit is set, including -0.0 and NaN. Always false for unsigned integers and `bool`.
    pub fn signbit(&self) -> Result<Tensor> {
        match (bits_of(self.dtype()), self.dtype().kind()) {
            (Some((bits, _)), _) => self.bitcast(bits)?.lt_scalar(0),
            (None, DTypeKind::Signed) => self.lt_scalar(0),
            _ => self.constant_like(Scalar::Bool(false), DType::Bool),
        }
    }

    /// The magnitude of this tensor with the sign bit of `sign`. Shapes are broadcast, dtypes promoted. The gradient of
    /// `sign` is 0.
    ///
    /// # Errors
    /// [`Error::DType`] for `bool`; [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn copysign(&self, sign: &Tensor) -> Result<Tensor> {
        let magnitude = self.to_dtype(self.dtype().promote(sign.dtype()))?.abs()?;
        let result = sign.signbit()?.where_(&magnitude.neg()?, &magnitude)?;
        if !sign.requires_grad() {
            return Ok(result);
        }
        // d/dsign is zero; multiply by a 1 that depends on `sign` so that a gradient reaches it.
        let number = sign.sign()?;
        let number = sign.isnan()?.where_(&number.zeros_like()?, &number)?;
        result.mul(&number.mul_scalar(0)?.add_scalar(1)?)
    }

    /// The next representable number after this one towards `other`; `other` if both are equal; NaN if either is NaN.
    /// Shapes are broadcast, dtypes promoted.
    ///
    /// # Errors
    /// [`Error::DType`] unless the promoted dtype is a float; [`Error::NoGradient`] if an operand requires gradients
    /// while they are recorded, since the function has no derivative; [`Error::Shape`] if the shapes cannot be
    /// broadcast.
    pub fn nextafter(&self, other: &Tensor) -> Result<Tensor> {
        if gradient::is_enabled() && (self.requires_grad() || other.requires_grad()) {
            return Err(Error::NoGradient {
                op: "nextafter",
                hint: "detach() its operands first".to_owned(),
            });
        }
        let (a, b) = promote2(self, other)?;
        let dtype = a.dtype();
        let Some((integer, sign_bit)) = bits_of(dtype) else {
            let hint = "expected a float dtype: convert with .to_dtype(float32)";
            return Err(Error::dtype("nextafter", &[self.dtype(), other.dtype()], hint));
        };
        let (a, b) = broadcast2("nextafter", &a, &b)?;
        // For floats of the same sign, the order of the bits is the order of the magnitudes.
        let bits = a.bitcast(integer)?;
        let grows = b.gt(&a)?.eq(&a.gt_scalar(0)?)?;
        let away = grows.where_(&bits.add_scalar(1)?, &bits.sub_scalar(1)?)?;
        let smallest = bits.ones_like()?;
        let from_zero = b.gt_scalar(0)?.where_(&smallest, &smallest.add_scalar(sign_bit)?)?;
        let moved = a.eq_scalar(0)?.where_(&from_zero, &away)?.bitcast(dtype)?;
        let missing = a.isnan()?.or(&b.isnan()?)?;
        missing.where_(&a.add(&b)?, &a.eq(&b)?.where_(&b, &moved)?)
    }

    /// Replaces NaN by `nan`, infinity by `posinf` and -infinity by `neginf`. Infinities default to the greatest and
    /// least finite values of the dtype. Integers and `bool` are returned unchanged. The gradient of replaced elements
    /// is 0.
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Ok(self.clone());
        }
        let most = greatest(self.dtype());
        let (high, low) = (posinf.unwrap_or(most), neginf.unwrap_or(-most));
        let result = self.isnan()?.where_(&self.full_like(nan)?, self)?;
        let result = result.eq_scalar(f64::INFINITY)?.where_(&self.full_like(high)?, &result)?;
        result.eq_scalar(f64::NEG_INFINITY)?.where_(&self.full_like(low)?, &result)
    }

    /// The fractional part `x - trunc(x)`, which has the sign of x; NaN for infinities. 0 for integers.
    ///
    /// # Errors
    /// [`Error::DType`] for `bool`.
    pub fn frac(&self) -> Result<Tensor> {
        self.sub(&self.trunc()?)
    }

    /// The remainder of a truncated division, as C's `fmod`: it has the sign of this tensor ([`Tensor::remainder`] has
    /// that of the divisor). A zero divisor gives 0 for integers and NaN for floats. Shapes are broadcast, dtypes
    /// promoted.
    ///
    /// # Errors
    /// [`Error::DType`] for `bool`; [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn fmod(&self, other: &Tensor) -> Result<Tensor> {
        let floored = self.remainder(other)?;
        if !floored.dtype().is_float() {
            return self.truncated(&floored, &floored.sub(other)?);
        }
        // Computed from magnitudes, since a float's floored remainder may be rounded. Converted to the result dtype
        // first, because the magnitude of the least integer does not fit an integer dtype.
        let dtype = floored.dtype();
        let rest = self.to_dtype(dtype)?.abs()?.remainder(&other.to_dtype(dtype)?.abs()?)?;
        self.lt_scalar(0)?.where_(&rest.neg()?, &rest)
    }

    /// [`Tensor::fmod`] with a scalar divisor.
    ///
    /// # Errors
    /// As [`Tensor::fmod`]; [`Error::Argument`] for an integer that does not fit an integer dtype.
    pub fn fmod_scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        let value = value.into();
        let floored = self.remainder_scalar(value)?;
        if !floored.dtype().is_float() {
            return self.truncated(&floored, &floored.sub_scalar(value)?);
        }
        let size = match value {
            Scalar::Int(whole) => Scalar::UInt(whole.unsigned_abs()),
            Scalar::Float(float) => Scalar::Float(float.abs()),
            other => other,
        };
        let rest = self.to_dtype(floored.dtype())?.abs()?.remainder_scalar(size)?;
        self.lt_scalar(0)?.where_(&rest.neg()?, &rest)
    }

    /// The truncated remainder of integers. `floored` is the floored remainder, `less` is `floored` minus the divisor.
    fn truncated(&self, floored: &Tensor, less: &Tensor) -> Result<Tensor> {
        // Compares signs, because the magnitude of the least integer does not fit its dtype.
        let apart = floored.lt_scalar(0)?.ne(&self.lt_scalar(0)?)?;
        floored.ne_scalar(0)?.and(&apart)?.where_(less, floored)
    }
}
