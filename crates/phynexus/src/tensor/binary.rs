//! Functions of pairs of elements. Operands are broadcast against each other and promoted to one dtype.

use super::operands::{broadcast2, fitting, floating, promote2, whole, with_scalar};
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{Binary, BinaryClass, Constant, Op},
    shape::{broadcast, dims, same_extents},
};

/// Records `op` on operands of one dtype, named `name` in errors.
fn record(name: &'static str, op: Binary, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let dtype = a.dtype();
    let op = on_bool(op, dtype);
    if !op.accepts(dtype) {
        let hint = match op.row().class {
            BinaryClass::bits => {
                "bit operations need integers or bool: use logical_and, logical_or or logical_xor"
            }
            BinaryClass::shifts => "shifts need integers: convert with .to_dtype()",
            _ => {
                "bool is not numeric: convert with .to_dtype(), or use logical_and, logical_or or logical_xor"
            }
        };
        return Err(Error::dtype(name, &[dtype], hint));
    }
    if same_extents(a.shape(), b.shape()) {
        return Tensor::record(Op::Binary(op), op.result(dtype), dims(a.shape()), &[a, b]);
    }
    let (a, b) = broadcast2(name, a, b)?;
    Tensor::record(Op::Binary(op), op.result(dtype), dims(a.shape()), &[&a, &b])
}

/// On bools a sum is `or` and a product is `and`, as in NumPy.
fn on_bool(op: Binary, dtype: DType) -> Binary {
    match op {
        Binary::Add if dtype == DType::Bool => Binary::Or,
        Binary::Mul if dtype == DType::Bool => Binary::And,
        other => other,
    }
}

/// The dtype in which `op` computes on operands promoted to `dtype`.
fn working(op: Binary, dtype: DType) -> DType {
    if op.row().class == BinaryClass::floats { floating(dtype) } else { dtype }
}

impl Tensor {
    /// Promotes, broadcasts and records.
    fn binary(&self, name: &'static str, op: Binary, other: &Tensor) -> Result<Tensor> {
        let dtype = working(op, self.dtype().promote(other.dtype()));
        if self.dtype() == dtype && other.dtype() == dtype {
            return record(name, op, self, other);
        }
        record(name, op, &self.to_dtype(dtype)?, &other.to_dtype(dtype)?)
    }

    /// `self op value`, or `value op self` if `swapped`.
    fn binary_scalar(&self, name: &'static str, op: Binary, number: Scalar, swapped: bool) -> Result<Tensor> {
        let dtype = working(op, with_scalar(self.dtype(), number));
        let tensor = self.to_dtype(dtype)?;
        let value = match fitting(name, number, dtype) {
            Ok(value) => value,
            Err(_) if op.is_comparison() => return self.compare_beyond(op, number, swapped),
            Err(error) => return Err(error),
        };
        // A number keeps its digits beside 16-bit floats, which are computed in `float32`. The graph is the same for
        // all numbers that may vary, so that they share a plan.
        let wide = dtype.compute();
        if wide != dtype && !op.is_exact() && Constant(number.cast(wide)).may_vary() {
            return tensor.wide(dtype)?.binary_scalar(name, op, number, swapped)?.to_dtype(dtype);
        }
        let constant = tensor.constant_like(value, dtype)?;
        if swapped { record(name, op, &constant, &tensor) } else { record(name, op, &tensor, &constant) }
    }

    /// A comparison with a whole number outside the dtype's range: every element is on the same side of it.
    fn compare_beyond(&self, op: Binary, value: Scalar, swapped: bool) -> Result<Tensor> {
        let below = (whole(value) > 0) != swapped;
        let answer = match op {
            Binary::Lt | Binary::Le => below,
            op => op == Binary::Ne,
        };
        self.constant_like(Scalar::Bool(answer), DType::Bool)
    }
}

/// Two methods for each row of the table: with a tensor, and with a number.
macro_rules! methods {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $scalar:ident $name:literal $class:ident($($meaning:tt)+)
        $rest:tt)+) => {
        impl Tensor { $(
            $(#[doc = $doc])+
            ///
            /// Shapes are broadcast, dtypes promoted.
            pub fn $method(&self, other: &Tensor) -> Result<Tensor> {
                self.binary(stringify!($method), Binary::$variant, other)
            }
            with_number! { $variant $method $scalar }
        )+ }
    };
}

macro_rules! with_number {
    // It has a method below.
    (Pow $method:ident $scalar:ident) => {};
    ($variant:ident $method:ident $scalar:ident) => {
        #[doc = concat!("[`Tensor::", stringify!($method), "`] with a number for the right operand. The number")]
        /// does not change the dtype unless its kind is higher: a float with integers gives `float32`. Beside 16-bit
        /// floats it is a `float32`; only comparisons, maxima and minima round it to the dtype first.
        pub fn $scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
            self.binary_scalar(stringify!($method), Binary::$variant, value.into(), false)
        }
    };
}

crate::binary_functions!(methods);

impl Tensor {
    /// ``self > other`` as ``bool``; false if either is NaN.
    ///
    /// Shapes are broadcast, dtypes promoted.
    pub fn gt(&self, other: &Tensor) -> Result<Tensor> {
        other.binary("gt", Binary::Lt, self)
    }

    /// [`Tensor::gt`] with a number for the right operand, as in [`Tensor::lt_scalar`].
    pub fn gt_scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.binary_scalar("gt", Binary::Lt, value.into(), true)
    }

    /// ``self >= other`` as ``bool``; false if either is NaN.
    ///
    /// Shapes are broadcast, dtypes promoted.
    pub fn ge(&self, other: &Tensor) -> Result<Tensor> {
        other.binary("ge", Binary::Le, self)
    }

    /// [`Tensor::ge`] with a number for the right operand, as in [`Tensor::le_scalar`].
    pub fn ge_scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.binary_scalar("ge", Binary::Le, value.into(), true)
    }

    /// [`Tensor::pow`] with a number for the exponent; exponents 1 and 2 and -1 (of floats) cost no power.
    ///
    /// # Errors
    /// [`Error::Argument`] for a negative integer exponent of integers.
    pub fn pow_scalar(&self, exponent: impl Into<Scalar>) -> Result<Tensor> {
        let exponent = exponent.into();
        let dtype = with_scalar(self.dtype(), exponent);
        if dtype.is_integer() && whole(exponent) < 0 {
            return Err(Error::argument(
                "pow",
                "negative powers of integers are fractions: convert to a float first",
            ));
        }
        match exponent.as_f64() {
            1.0 if dtype != DType::Bool => self.to_dtype(dtype),
            2.0 if dtype != DType::Bool => self.to_dtype(dtype)?.square(),
            -1.0 => self.to_dtype(dtype)?.reciprocal(),
            _ => self.binary_scalar("pow", Binary::Pow, exponent, false),
        }
    }

    /// `value - self`: [`Tensor::sub`] with a number for the left operand.
    pub fn rsub_scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.binary_scalar("sub", Binary::Sub, value.into(), true)
    }

    /// `value / self`: [`Tensor::div`] with a number for the left operand.
    pub fn rdiv_scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.binary_scalar("div", Binary::Div, value.into(), true)
    }

    /// `value ** self`: [`Tensor::pow`] with a number for the base.
    pub fn rpow_scalar(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        self.binary_scalar("pow", Binary::Pow, value.into(), true)
    }

    /// True (`bool`) where both are nonzero. Any dtypes; shapes are broadcast.
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        record("logical_and", Binary::And, &self.to_dtype(DType::Bool)?, &other.to_dtype(DType::Bool)?)
    }

    /// True (`bool`) where either is nonzero. Any dtypes; shapes are broadcast.
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        record("logical_or", Binary::Or, &self.to_dtype(DType::Bool)?, &other.to_dtype(DType::Bool)?)
    }

    /// True (`bool`) where exactly one is nonzero. Any dtypes; shapes are broadcast.
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        record("logical_xor", Binary::Xor, &self.to_dtype(DType::Bool)?, &other.to_dtype(DType::Bool)?)
    }

    /// Elements of `then` where this tensor (`bool`) is true, of `otherwise` elsewhere. All three are broadcast, `then`
    /// and `otherwise` promoted to one dtype.
    ///
    /// # Errors
    /// [`Error::DType`] if the condition is not `bool`.
    pub fn where_(&self, then: &Tensor, otherwise: &Tensor) -> Result<Tensor> {
        if self.dtype() != DType::Bool {
            return Err(Error::dtype(
                "where",
                &[self.dtype()],
                "the condition must be bool: compare with .ne_scalar(0)",
            ));
        }
        let (then, otherwise) = promote2(then, otherwise)?;
        let shape = broadcast("where", then.shape(), otherwise.shape())?;
        let shape = broadcast("where", self.shape(), &shape)?;
        let (condition, then) = (self.stretched(&shape)?, then.stretched(&shape)?);
        Tensor::record(
            Op::Where,
            then.dtype(),
            shape.clone(),
            &[&condition, &then, &otherwise.stretched(&shape)?],
        )
    }

    /// Elements below `min` become `min`, then elements above `max` become `max`; NaN stays. The bounds are broadcast
    /// and promoted like operands.
    pub fn clip(&self, min: Option<&Tensor>, max: Option<&Tensor>) -> Result<Tensor> {
        let raised = min.map_or_else(|| Ok(self.clone()), |min| self.maximum(min))?;
        max.map_or_else(|| Ok(raised.clone()), |max| raised.minimum(max))
    }

    /// [`Tensor::clip`] with numbers for bounds; the gradient of floats is 0 at the bounds, as outside.
    pub fn clamp(&self, min: Option<Scalar>, max: Option<Scalar>) -> Result<Tensor> {
        let limit = |x: Tensor, bound: Option<Scalar>, lower: bool| match bound {
            None => Ok(x),
            Some(bound) if x.dtype().is_float() && !bound.as_f64().is_nan() => {
                let outside = if lower { x.le_scalar(bound)? } else { x.ge_scalar(bound)? };
                outside.where_(&x.full_like(bound)?, &x)
            }
            Some(bound) if lower => x.maximum_scalar(bound),
            Some(bound) => x.minimum_scalar(bound),
        };
        limit(limit(self.clone(), min, true)?, max, false)
    }
}
