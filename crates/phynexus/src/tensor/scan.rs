//! Cumulative sums, products and extremes, and vector norms.

use smallvec::SmallVec;

use super::{
    operands::floating,
    reduce::{axes_of, reduced_shape},
};
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{Combine, Op, Scan},
    shape::{element_count, normalize_axis},
};

impl Tensor {
    /// The cumulative sum along an axis (inclusive). Integers and `bool` are summed in 64 bits.
    pub fn cumsum(&self, dim: i64) -> Result<Tensor> {
        self.scan("cumsum", Combine::Sum, dim)
    }

    /// The cumulative product along an axis (inclusive). Integers and `bool` are multiplied in 64 bits.
    pub fn cumprod(&self, dim: i64) -> Result<Tensor> {
        self.scan("cumprod", Combine::Prod, dim)
    }

    /// The cumulative maximum along an axis (inclusive), and its position (`int64`). The last of equal elements wins.
    /// The result is NaN from the first NaN on.
    pub fn cummax(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        self.running_extreme("cummax", Combine::Max, dim)
    }

    /// The cumulative minimum along an axis, as [`Tensor::cummax`].
    pub fn cummin(&self, dim: i64) -> Result<(Tensor, Tensor)> {
        self.running_extreme("cummin", Combine::Min, dim)
    }

    fn running_extreme(&self, op: &'static str, combine: Combine, dim: i64) -> Result<(Tensor, Tensor)> {
        if self.rank() == 0 && matches!(dim, -1 | 0) {
            return Ok((self.clone(), self.constant_like(Scalar::Int(0), DType::I64)?));
        }
        let axis = normalize_axis(op, dim, self.shape())?;
        if self.shape()[axis] <= 1 {
            return Ok((self.clone(), self.constant_like(Scalar::Int(0), DType::I64)?));
        }
        let along = |x: &Tensor, combine| {
            let op = Op::Scan(Scan { combine, axis, reverse: false });
            Tensor::record(op, x.dtype(), x.shape().into(), &[x])
        };
        let x = self.stored()?;
        let values = along(&x, combine)?;
        let mut holds = x.detach()?.eq(&values.detach()?)?;
        if self.dtype().is_float() {
            holds = holds.or(&x.detach()?.isnan()?)?;
        }
        let position = Tensor::iota(self.shape().into(), axis, DType::I64, self.device())?;
        let holder = holds.where_(&position, &position.zeros_like()?)?;
        Ok((values, along(&holder, Combine::Max)?))
    }

    /// The logarithm of the cumulative sum of `exp` along an axis (inclusive), without overflow. Integers give
    /// `float32`; 16-bit floats are computed in `float32`.
    pub fn logcumsumexp(&self, dim: i64) -> Result<Tensor> {
        let dtype = floating(self.dtype());
        let mut sums = self.wide(dtype)?;
        if self.rank() == 0 && matches!(dim, -1 | 0) {
            return sums.to_dtype(dtype);
        }
        let axis = normalize_axis("logcumsumexp", dim, self.shape())?;
        let size = self.shape()[axis];
        // Each pass doubles the number of elements that a sum covers (Hillis and Steele, 1986).
        let mut reach = 1;
        while reach < size {
            let mut padding: SmallVec<[(usize, usize); 4]> = SmallVec::from_elem((0, 0), self.rank());
            padding[axis] = (reach, 0);
            let before = sums.sliced_axis(axis, 0, 1, size - reach)?.pad(&padding, f64::NEG_INFINITY)?;
            sums = sums.log_of_sum(&before)?;
            reach *= 2;
        }
        sums.to_dtype(dtype)
    }

    /// `log(exp(self) + exp(other))`.
    fn log_of_sum(&self, other: &Tensor) -> Result<Tensor> {
        // The difference of equal infinities would be NaN.
        let equal = self.eq(other)?;
        let difference = equal.where_(&self.zeros_like()?, &self.sub(other)?)?;
        self.maximum(other)?.add(&difference.abs()?.neg()?.exp()?.log1p()?)
    }

    fn scan(&self, op: &'static str, combine: Combine, dim: i64) -> Result<Tensor> {
        let x = self.to_dtype(self.dtype().accumulator())?;
        if self.rank() == 0 && matches!(dim, -1 | 0) {
            return Ok(x);
        }
        let axis = normalize_axis(op, dim, self.shape())?;
        if self.shape()[axis] <= 1 {
            return Ok(x);
        }
        Tensor::record(
            Op::Scan(Scan { combine, axis, reverse: false }),
            x.dtype(),
            self.shape().into(),
            &[&x],
        )
    }

    /// The p-norm over `axes` (all if empty): `sum(|x|^p)^(1/p)`. p = infinity gives the greatest absolute value,
    /// -infinity the least, 0 the number of nonzero elements. The gradient of the 2-norm at a zero vector is zero.
    ///
    /// Integers give `float32`; 16-bit floats are computed in `float32`.
    ///
    /// # Errors
    /// [`Error::Argument`] if p is NaN; [`Error::Shape`] for an infinite norm of no elements.
    pub fn norm(&self, p: f64, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        if p.is_nan() {
            return Err(Error::argument("norm", "the order of a norm must not be NaN"));
        }
        let axes = axes_of("norm", axes, self.shape())?;
        let dtype = floating(self.dtype());
        let x = self.wide(dtype)?;
        let result = if p == 2.0 {
            let squares = x.square()?.reduced(Combine::Sum, axes, keepdim)?;
            // The infinite derivative of the root at 0, times 0, would give NaN.
            let is_zero = squares.eq_scalar(0)?;
            let root = is_zero.where_(&squares.ones_like()?, &squares)?.sqrt()?;
            is_zero.where_(&squares.zeros_like()?, &root)?
        } else if p.is_infinite() {
            let nothing = self.count_along(axes) == 0;
            if nothing && element_count(&reduced_shape(self.shape(), axes, false)) > 0 {
                return Err(Error::shape("norm", &[self.shape()], "an empty axis has no maximum or minimum"));
            }
            let combine = if p > 0.0 { Combine::Max } else { Combine::Min };
            x.abs()?.stored_for_gradient()?.reduced(combine, axes, keepdim)?
        } else if p == 0.0 {
            x.ne_scalar(0)?.to_dtype(x.dtype())?.reduced(Combine::Sum, axes, keepdim)?
        } else if p == 1.0 {
            x.abs()?.reduced(Combine::Sum, axes, keepdim)?
        } else {
            // The derivative of a power at 0 may be infinite. As in PyTorch, use 0 instead, for the elements and for
            // their sum.
            let power = |x: &Tensor, p: f64| {
                let is_zero = x.eq_scalar(0)?;
                let zero = x.constant_like(Scalar::Float(0f64.powf(p)), x.dtype())?;
                is_zero.where_(&zero, &is_zero.where_(&x.ones_like()?, x)?.pow_scalar(p)?)
            };
            power(&power(&x.abs()?, p)?.reduced(Combine::Sum, axes, keepdim)?, 1.0 / p)?
        };
        result.to_dtype(dtype)
    }

    /// The Frobenius norm of the matrices in the last two dimensions: the square root of the sum of squares.
    ///
    /// # Errors
    /// [`Error::Axis`] for fewer than two dimensions.
    pub fn frobenius_norm(&self, keepdim: bool) -> Result<Tensor> {
        self.norm(2.0, &[-2, -1], keepdim)
    }
}
