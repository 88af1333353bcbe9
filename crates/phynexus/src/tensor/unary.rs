//! Functions of each element.

use super::operands::floating;
use crate::{
    DType, Error, Result, Scalar, Tensor,
    graph::{
        formula::Formula,
        op::{Op, Unary},
    },
    shape::dims,
};

impl Tensor {
    /// Records `op` on a tensor whose dtype the op accepts.
    pub(crate) fn unary(&self, op: Unary) -> Result<Tensor> {
        if !op.accepts(self.dtype()) {
            let hint = match op {
                Unary::Not => "bit operations need integers or bool: convert with .to_dtype()",
                _ => "convert to a number with .to_dtype() first",
            };
            return Err(Error::dtype(op.name(), &[self.dtype()], hint));
        }
        Tensor::record(Op::Unary(op), op.result(self.dtype()), dims(self.shape()), &[self])
    }
}

/// Functions that the op set has: integers and `bool` are converted to `float32` first.
macro_rules! float_functions {
    ($($(#[doc = $doc:literal])+ $name:ident = $op:ident;)+) => {
        impl Tensor {
            $(
                $(#[doc = $doc])+
                ///
                /// The shape stays; floats keep their dtype, integers and `bool` give `float32`.
                pub fn $name(&self) -> Result<Tensor> {
                    if self.dtype().is_float() { self.unary(Unary::$op) } else { self.floating()?.unary(Unary::$op) }
                }
            )+
        }
    };
}

float_functions! {
    /// `1 / x`; infinite where x is 0.
    reciprocal = Recip;
    /// The square root; NaN below 0.
    sqrt = Sqrt;
    /// `1 / sqrt(x)`; infinite where x is 0, NaN below.
    rsqrt = Rsqrt;
    /// e to the power x.
    exp = Exp;
    /// 2 to the power x.
    exp2 = Exp2;
    /// `exp(x) - 1`, accurate near 0.
    expm1 = Expm1;
    /// The natural logarithm; -infinity where x is 0, NaN below.
    log = Log;
    /// The logarithm to base 2.
    log2 = Log2;
    /// `log(1 + x)`, accurate near 0.
    log1p = Log1p;
    /// The sine of radians.
    sin = Sin;
    /// The cosine of radians.
    cos = Cos;
    /// The tangent of radians.
    tan = Tan;
    /// The arc sine in radians; NaN outside -1 to 1.
    asin = Asin;
    /// The arc cosine in radians; NaN outside -1 to 1.
    acos = Acos;
    /// The arc tangent in radians.
    atan = Atan;
    /// The hyperbolic sine.
    sinh = Sinh;
    /// The hyperbolic cosine.
    cosh = Cosh;
    /// The hyperbolic tangent.
    tanh = Tanh;
    /// The inverse hyperbolic sine.
    asinh = Asinh;
    /// The inverse hyperbolic cosine; NaN below 1.
    acosh = Acosh;
    /// The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.
    atanh = Atanh;
    /// The error function, `2 / sqrt(pi)` times the integral of `exp(-t^2)` from 0 to x.
    erf = Erf;
}

/// Roundings: integers are whole already and are returned as they are.
macro_rules! roundings {
    ($($(#[doc = $doc:literal])+ $name:ident = $op:ident;)+) => {
        impl Tensor {
            $(
                $(#[doc = $doc])+
                ///
                /// Shape and dtype stay; integers and `bool` are returned as they are.
                pub fn $name(&self) -> Result<Tensor> {
                    if self.dtype().is_float() { self.unary(Unary::$op) } else { Ok(self.clone()) }
                }
            )+
        }
    };
}

roundings! {
    /// The greatest whole number not above x.
    floor = Floor;
    /// The least whole number not below x.
    ceil = Ceil;
    /// x without its fraction.
    trunc = Trunc;
    /// The nearest whole number, halves to even.
    round = Round;
}

impl Tensor {
    /// `-x`. Unsigned integers wrap.
    ///
    /// # Errors
    /// [`Error::DType`] for `bool`: use [`Tensor::logical_not`].
    pub fn neg(&self) -> Result<Tensor> {
        self.unary(Unary::Neg)
    }

    /// The absolute value. The least signed integer stays as it is.
    ///
    /// # Errors
    /// [`Error::DType`] for `bool`.
    pub fn abs(&self) -> Result<Tensor> {
        self.unary(Unary::Abs)
    }

    /// -1, 0 or 1 in the tensor's dtype; NaN stays NaN.
    ///
    /// # Errors
    /// [`Error::DType`] for `bool`.
    pub fn sign(&self) -> Result<Tensor> {
        self.unary(Unary::Sign)
    }

    /// `x * x`.
    pub fn square(&self) -> Result<Tensor> {
        self.mul(self)
    }

    /// The logarithm to base 10: the natural logarithm divided by that of 10, within about one rounding more.
    pub fn log10(&self) -> Result<Tensor> {
        self.in_compute_dtype(|x| x.log()?.div_scalar(std::f64::consts::LN_10))
    }

    /// Every bit inverted; `bool` is negated.
    ///
    /// # Errors
    /// [`Error::DType`] for floats.
    pub fn bitwise_not(&self) -> Result<Tensor> {
        self.unary(Unary::Not)
    }

    /// True (`bool`) where the element is zero.
    pub fn logical_not(&self) -> Result<Tensor> {
        self.to_dtype(DType::Bool)?.unary(Unary::Not)
    }

    /// True (`bool`) where the element is NaN; false everywhere for integers and `bool`.
    pub fn isnan(&self) -> Result<Tensor> {
        self.float_test(Unary::IsNan)
    }

    /// True (`bool`) where the element is infinite; false everywhere for integers and `bool`.
    pub fn isinf(&self) -> Result<Tensor> {
        self.float_test(Unary::IsInf)
    }

    /// True (`bool`) where the element is neither NaN nor infinite.
    pub fn isfinite(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.constant_like(Scalar::Bool(true), DType::Bool);
        }
        self.isnan()?.or(&self.isinf()?)?.unary(Unary::Not)
    }

    fn float_test(&self, op: Unary) -> Result<Tensor> {
        if self.dtype().is_float() {
            self.unary(op)
        } else {
            self.constant_like(Scalar::Bool(false), DType::Bool)
        }
    }

    /// `max(x, 0)`: NaN stays NaN; the slope at 0 is 0.
    pub fn relu(&self) -> Result<Tensor> {
        self.le_scalar(0)?.where_(&self.zeros_like()?, self)
    }

    /// The logistic function `1 / (1 + exp(-x))`. 16-bit floats are computed in `float32`; integers give `float32`.
    pub fn sigmoid(&self) -> Result<Tensor> {
        let dtype = floating(self.dtype());
        Formula::of(self).cast(dtype.compute()).sigmoid().cast(dtype).tensor()
    }
}
