//! Elementwise functions of one argument.

use super::operands::floating;
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{Op, Unary, formula::Formula},
    shape::dims,
};

impl Tensor {
    /// Records `op` on a tensor whose dtype the op accepts.
    pub(crate) fn unary(&self, op: Unary) -> Result<Tensor> {
        if !op.accepts(self.dtype()) {
            let hint = match op {
                Unary::Not => "expected integers or bool: convert with .to_dtype()",
                _ => "convert to a numeric dtype with .to_dtype() first",
            };
            return Err(Error::dtype(op.name(), &[self.dtype()], hint));
        }
        Tensor::record(Op::Unary(op), op.result(self.dtype()), dims(self.shape()), &[self])
    }
}

/// Defines a method for each row of the table.
macro_rules! methods {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $name:literal $class:ident($meaning:expr) $rest:tt)+) => {
        impl Tensor {
            $( method! { $class $variant $method $(#[doc = $doc])+ } )+
        }
    };
}

macro_rules! method {
    (floats $variant:ident $method:ident $($doc:tt)+) => {
        $($doc)+
        ///
        /// The shape is kept. Floats keep their dtype; integers and `bool` give `float32`.
        pub fn $method(&self) -> Result<Tensor> {
            if self.dtype().is_float() { self.unary(Unary::$variant) } else { self.floating()?.unary(Unary::$variant) }
        }
    };
    (roundings $variant:ident $method:ident $($doc:tt)+) => {
        $($doc)+
        ///
        /// Shape and dtype are kept; integers and `bool` are returned unchanged.
        pub fn $method(&self) -> Result<Tensor> {
            if self.dtype().is_float() { self.unary(Unary::$variant) } else { Ok(self.clone()) }
        }
    };
    (numbers $variant:ident $method:ident $($doc:tt)+) => {
        $($doc)+
        ///
        /// # Errors
        /// [`Error::DType`] for `bool`.
        pub fn $method(&self) -> Result<Tensor> {
            self.unary(Unary::$variant)
        }
    };
    (bits $variant:ident $method:ident $($doc:tt)+) => {
        $($doc)+
        ///
        /// # Errors
        /// [`Error::DType`] for floats.
        pub fn $method(&self) -> Result<Tensor> {
            self.unary(Unary::$variant)
        }
    };
    (tests $variant:ident $method:ident $($doc:tt)+) => {
        $($doc)+
        pub fn $method(&self) -> Result<Tensor> {
            match self.dtype().is_float() {
                true => self.unary(Unary::$variant),
                false => self.constant_like(Scalar::Bool(false), DType::Bool),
            }
        }
    };
}

crate::unary_functions!(methods);

impl Tensor {
    /// `x * x`.
    pub fn square(&self) -> Result<Tensor> {
        self.mul(self)
    }

    /// The base-10 logarithm: the natural logarithm divided by log(10), with about one more rounding error.
    pub fn log10(&self) -> Result<Tensor> {
        self.in_compute_dtype(|x| x.log()?.div_scalar(std::f64::consts::LN_10))
    }

    /// True (`bool`) where the element is zero.
    pub fn logical_not(&self) -> Result<Tensor> {
        self.to_dtype(DType::Bool)?.unary(Unary::Not)
    }

    /// True (`bool`) where the element is neither NaN nor infinite.
    pub fn isfinite(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.constant_like(Scalar::Bool(true), DType::Bool);
        }
        self.isnan()?.or(&self.isinf()?)?.unary(Unary::Not)
    }

    /// `max(x, 0)`. NaN is propagated; the derivative at 0 is 0.
    pub fn relu(&self) -> Result<Tensor> {
        self.le_scalar(0)?.where_(&self.zeros_like()?, self)
    }

    /// The logistic function `1 / (1 + exp(-x))`. 16-bit floats are computed in `float32`; integers give `float32`.
    pub fn sigmoid(&self) -> Result<Tensor> {
        let dtype = floating(self.dtype());
        Formula::of(&self.wide(dtype)?).sigmoid().cast(dtype).tensor()
    }
}
