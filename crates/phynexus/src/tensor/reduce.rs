//! Reductions over axes.

use super::operands::floating;
use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{ArgReduce, Axes, Combine, Op, Reduce},
    shape::{Dims, element_count, normalize_axis},
};

/// Normalises the axes; an empty list means all.
pub(super) fn axes_of(op: &'static str, axes: &[i64], shape: &[usize]) -> Result<Axes> {
    if axes.is_empty() {
        return Ok(Axes::of(0..shape.len()));
    }
    let mut set = Axes::default();
    for &axis in axes {
        let normal = normalize_axis(op, axis, shape)?;
        if set.contains(normal) {
            return Err(Error::argument(op, format!("axis {axis} is repeated")));
        }
        set.0 |= 1 << normal;
    }
    Ok(set)
}

/// `shape` with these axes removed, or set to 1 if `keepdim`.
pub(super) fn reduced_shape(shape: &[usize], axes: Axes, keepdim: bool) -> Dims {
    let kept = |(axis, &d): (usize, &usize)| match axes.contains(axis) {
        true if keepdim => Some(1),
        true => None,
        false => Some(d),
    };
    shape.iter().enumerate().filter_map(kept).collect()
}

impl Tensor {
    /// Reduces over `axes` in the tensor's own dtype.
    pub(super) fn reduced(&self, combine: Combine, axes: Axes, keepdim: bool) -> Result<Tensor> {
        let wide = Axes::of(axes.iter().filter(|&axis| axis < self.rank() && self.shape()[axis] != 1));
        let reduced = if wide == Axes::default() {
            self.clone()
        } else {
            let shape = reduced_shape(self.shape(), wide, true);
            Tensor::record(Op::Reduce(Reduce { combine, axes: wide }), self.dtype(), shape, &[self])?
        };
        reduced.reshaped(reduced_shape(self.shape(), axes, keepdim))
    }

    /// The number of elements that are reduced to one.
    pub(super) fn count_along(&self, axes: Axes) -> usize {
        element_count(&axes.iter().filter_map(|axis| self.shape().get(axis).copied()).collect::<Dims>())
    }

    /// The sum over `axes` (all if empty), which are removed, or kept with size 1 if `keepdim`.
    ///
    /// Integers and `bool` are summed in 64 bits; floats keep their dtype (16-bit floats are accumulated in `float32`).
    /// The sum of no elements is 0.
    pub fn sum(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("sum", axes, self.shape())?;
        self.to_dtype(self.dtype().accumulator())?.reduced(Combine::Sum, axes, keepdim)
    }

    /// The product over `axes`. Axes and dtypes are as for [`Tensor::sum`]. The product of no elements is 1.
    pub fn prod(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("prod", axes, self.shape())?;
        self.to_dtype(self.dtype().accumulator())?.reduced(Combine::Prod, axes, keepdim)
    }

    /// The mean over `axes` (all if empty). Integers and `bool` give `float32`; 16-bit floats are summed in `float32`.
    /// The mean of no elements is NaN.
    pub fn mean(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("mean", axes, self.shape())?;
        let dtype = floating(self.dtype());
        let sum = self.wide(dtype)?.reduced(Combine::Sum, axes, keepdim)?;
        sum.div_scalar(self.count_along(axes) as f64)?.to_dtype(dtype)
    }

    /// The maximum over `axes` (all if empty); NaN if any element is NaN. Elements equal to the maximum share its
    /// gradient. As with PyTorch's `max()`, NaNs share it too when reducing over all axes. As with `amax`, a NaN makes
    /// the gradients of all elements reduced with it NaN when reducing over some.
    ///
    /// # Errors
    /// [`Error::Shape`] if a reduced axis is empty.
    pub fn max(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        self.extreme("max", Combine::Max, axes, keepdim)
    }

    /// The minimum over `axes` (all if empty); NaN if any element is NaN. Its gradient is as for [`Tensor::max`].
    ///
    /// # Errors
    /// [`Error::Shape`] if a reduced axis is empty.
    pub fn min(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        self.extreme("min", Combine::Min, axes, keepdim)
    }

    fn extreme(&self, op: &'static str, combine: Combine, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of(op, axes, self.shape())?;
        if self.count_along(axes) == 0 && element_count(&reduced_shape(self.shape(), axes, false)) > 0 {
            return Err(Error::shape(op, &[self.shape()], "an empty axis has no maximum or minimum"));
        }
        self.stored_for_gradient()?.reduced(combine, axes, keepdim)
    }

    /// The index (`int64`) of the maximum along `axis`, or in the flattened tensor for `None`. The first of equal
    /// elements wins. NaN counts as the maximum.
    ///
    /// # Errors
    /// [`Error::Shape`] if the axis is empty.
    pub fn argmax(&self, axis: Option<i64>, keepdim: bool) -> Result<Tensor> {
        self.arg_extreme("argmax", Combine::Max, axis, keepdim)
    }

    /// The index (`int64`) of the minimum, as [`Tensor::argmax`]. NaN counts as the minimum.
    pub fn argmin(&self, axis: Option<i64>, keepdim: bool) -> Result<Tensor> {
        self.arg_extreme("argmin", Combine::Min, axis, keepdim)
    }

    fn arg_extreme(
        &self,
        op: &'static str,
        combine: Combine,
        axis: Option<i64>,
        keepdim: bool,
    ) -> Result<Tensor> {
        let Some(axis) = axis else {
            let all =
                self.reshaped(Dims::from_slice(&[self.len()]))?.arg_extreme(op, combine, Some(0), false)?;
            return if keepdim { all.reshaped(Dims::from_elem(1, self.rank())) } else { Ok(all) };
        };
        let axis = normalize_axis(op, axis, self.shape())?;
        let axes = Axes::of([axis]);
        let shape = reduced_shape(self.shape(), axes, true);
        if self.shape()[axis] == 0 && element_count(&shape) > 0 {
            return Err(Error::shape(op, &[self.shape()], "an empty axis has no maximum or minimum"));
        }
        let index = Tensor::record(Op::ArgReduce(ArgReduce { combine, axis }), DType::I64, shape, &[self])?;
        index.reshaped(reduced_shape(self.shape(), axes, keepdim))
    }

    /// True (`bool`) where all elements over `axes` (all axes if empty) are nonzero; true for no elements.
    pub fn all(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("all", axes, self.shape())?;
        self.to_dtype(DType::Bool)?.reduced(Combine::Min, axes, keepdim)
    }

    /// True (`bool`) where any element over `axes` (all axes if empty) is nonzero; false for no elements.
    pub fn any(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("any", axes, self.shape())?;
        self.to_dtype(DType::Bool)?.reduced(Combine::Max, axes, keepdim)
    }

    /// The variance over `axes` (all if empty): the sum of squared deviations from the mean, divided by the count less
    /// `correction` (1 for the unbiased estimate, 0 for the population variance). NaN unless the divisor is positive.
    /// Integers give `float32`; 16-bit floats are computed in `float32`.
    pub fn var(&self, axes: &[i64], correction: f64, keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("var", axes, self.shape())?;
        let dtype = floating(self.dtype());
        let x = self.wide(dtype)?;
        let count = self.count_along(axes) as f64;
        let mean = x.reduced(Combine::Sum, axes, true)?.div_scalar(count)?;
        let sum = x.sub(&mean)?.square()?.reduced(Combine::Sum, axes, keepdim)?;
        let divisor = count - correction;
        let divisor = if divisor > 0.0 { divisor } else { f64::NAN };
        sum.div_scalar(divisor)?.to_dtype(dtype)
    }

    /// The standard deviation: the square root of [`Tensor::var`]. The gradient is 0 where all elements are equal.
    pub fn std(&self, axes: &[i64], correction: f64, keepdim: bool) -> Result<Tensor> {
        let dtype = floating(self.dtype());
        let variance = self.wide(dtype)?.var(axes, correction, keepdim)?;
        if !variance.requires_grad() {
            return variance.sqrt()?.to_dtype(dtype);
        }
        // The infinite derivative of the root at 0, times 0, would give NaN.
        let is_zero = variance.eq_scalar(0)?;
        let root = is_zero.where_(&variance.ones_like()?, &variance)?.sqrt()?;
        is_zero.where_(&variance.zeros_like()?, &root)?.to_dtype(dtype)
    }

    /// `log(sum(exp(x)))` over `axes` (all if empty), without overflow; -infinity for no elements. Integers give
    /// `float32`;
    /// 16-bit floats are computed in `float32`.
    pub fn logsumexp(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        let axes = axes_of("logsumexp", axes, self.shape())?;
        let dtype = floating(self.dtype());
        let x = self.wide(dtype)?;
        if self.count_along(axes) == 0 {
            // A sum over nothing, which gives the empty tensor a gradient.
            return x.reduced(Combine::Sum, axes, keepdim)?.add_scalar(f64::NEG_INFINITY)?.to_dtype(dtype);
        }
        // The shift cancels in the derivative, so it is detached; infinite maxima would give inf - inf.
        let greatest = x.detach()?.reduced(Combine::Max, axes, true)?;
        let zero = greatest.constant_like(Scalar::Int(0), greatest.dtype())?;
        let shift = greatest.isinf()?.where_(&zero, &greatest)?;
        let sum = x.sub(&shift)?.exp()?.reduced(Combine::Sum, axes, true)?;
        let result = sum.log()?.add(&shift)?;
        result.reshaped(reduced_shape(self.shape(), axes, keepdim))?.to_dtype(dtype)
    }
}
