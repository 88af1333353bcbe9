//! Order statistics: medians, quantiles, k-th smallest elements, and modes.

use super::operands::floating;
use crate::{
    DType, Error, Result, Scalar, Tensor,
    shape::{Dims, normalize_axis},
};

/// How to compute a quantile that lies between two elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuantileMethod {
    /// Linear interpolation.
    #[default]
    Linear,
    /// The lower element.
    Lower,
    /// The higher element.
    Higher,
    /// The mean of both.
    Midpoint,
    /// The nearer element; halfway, the one of even rank.
    Nearest,
}

impl QuantileMethod {
    /// The weight of the higher element at the fractional rank `place`, where `low` is the rank of the lower one.
    fn weight(self, place: f64, low: f64) -> f64 {
        match self {
            QuantileMethod::Linear => place - low,
            QuantileMethod::Lower => 0.0,
            QuantileMethod::Higher => 1.0,
            QuantileMethod::Midpoint => 0.5,
            QuantileMethod::Nearest => place.round_ties_even() - low,
        }
    }
}

impl Tensor {
    /// The axis and its size, which must not be 0.
    fn ranked_axis(&self, op: &'static str, dim: i64) -> Result<(usize, usize)> {
        let axis = normalize_axis(op, dim, self.shape())?;
        match self.shape()[axis] {
            0 => Err(Error::shape(op, &[self.shape()], format!("axis {dim} must have an element"))),
            size => Ok((axis, size)),
        }
    }

    /// The result for a 0-dimensional tensor: the element and position 0.
    fn alone(&self, dim: i64) -> Result<Option<(Tensor, Tensor)>> {
        if self.rank() > 0 || !matches!(dim, -1 | 0) {
            return Ok(None);
        }
        Ok(Some((self.clone(), self.constant_like(Scalar::Int(0), DType::I64)?)))
    }

    /// A constant rank, with the shape of `order` reduced to size 1 along the axis.
    fn rank_like(order: &Tensor, axis: usize, rank: usize) -> Result<Tensor> {
        order.sliced_axis(axis, 0, 1, 1)?.full_like(rank as i64)
    }

    /// The elements at these ranks of the sorted order, and their positions.
    fn at_ranks(
        &self,
        order: &Tensor,
        rank: &Tensor,
        axis: usize,
        keepdim: bool,
    ) -> Result<(Tensor, Tensor)> {
        let dim = axis as i64;
        let position = order.gather(dim, rank)?;
        let value = self.gather(dim, &position)?;
        if keepdim { Ok((value, position)) } else { Ok((value.squeeze(dim)?, position.squeeze(dim)?)) }
    }

    /// The median along an axis (the lower of two middle elements) and its position (`int64`). If any element is NaN,
    /// the result is the first NaN.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range; [`Error::Shape`] for an empty axis.
    pub fn median(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        if let Some(alone) = self.alone(dim)? {
            return Ok(alone);
        }
        let (axis, size) = self.ranked_axis("median", dim)?;
        let order = self.argsort(dim, false)?;
        let mut rank = Tensor::rank_like(&order, axis, (size - 1) / 2)?;
        if self.dtype().is_float() {
            // NaNs are last in the order; the first of them is the result.
            let present = self.isnan()?.sum(&[dim], true)?.rsub_scalar(size as i64)?;
            rank = present.lt_scalar(size as i64)?.where_(&present, &rank)?;
        }
        self.at_ranks(&order, &rank, axis, keepdim)
    }

    /// The median along an axis ignoring NaN (the lower of two middle elements) and its position (`int64`). NaN if all
    /// elements are.
    ///
    /// # Errors
    /// As [`Tensor::median`].
    pub fn nanmedian(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        if let Some(alone) = self.alone(dim)? {
            return Ok(alone);
        }
        let (axis, _) = self.ranked_axis("nanmedian", dim)?;
        let present = self.isnan()?.logical_not()?.sum(&[dim], true)?;
        let middle = present.sub_scalar(1)?.floor_divide_scalar(2)?;
        let rank = present.gt_scalar(0)?.where_(&middle, &present.zeros_like()?)?;
        self.at_ranks(&self.argsort(dim, false)?, &rank, axis, keepdim)
    }

    /// The most frequent element along an axis, the smallest if several are, and its last position (`int64`). NaN
    /// differs from every element, including itself.
    ///
    /// # Errors
    /// As [`Tensor::median`].
    pub fn mode(&self, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        if let Some(alone) = self.alone(dim)? {
            return Ok(alone);
        }
        let (axis, size) = self.ranked_axis("mode", dim)?;
        let dim = axis as i64;
        let order = self.argsort(dim, false)?;
        let ordered = self.detach()?.gather(dim, &order)?;
        let mut shape = Dims::from_elem(1, self.rank());
        shape[axis] = size;
        let place = Tensor::iota(shape, axis, DType::I64, self.device())?;
        // Equal elements form runs. For each place, find where its run begins; the longest distance from there is the
        // mode.
        let differs =
            ordered.sliced_axis(axis, 1, 1, size - 1)?.ne(&ordered.sliced_axis(axis, 0, 1, size - 1)?)?;
        let first = order.sliced_axis(axis, 0, 1, 1)?.constant_like(Scalar::Bool(true), DType::Bool)?;
        let begins = Tensor::cat(&[&first, &differs], dim)?;
        let begin = begins.where_(&place, &place.zeros_like()?)?.cummax(dim)?.0;
        let rank = place.sub(&begin)?.argmax(Some(dim), true)?;
        self.at_ranks(&order, &rank, axis, keepdim)
    }

    /// The k-th smallest element along an axis, counted from 1, and its position (`int64`). NaN counts as the greatest.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range; [`Error::Argument`] unless `k` is between 1 and the size of the axis.
    pub fn kthvalue(&self, k: usize, dim: i64, keepdim: bool) -> Result<(Tensor, Tensor)> {
        let alone = self.alone(dim)?;
        let (axis, size) = match alone {
            Some(_) => (0, 1),
            None => normalize_axis("kthvalue", dim, self.shape()).map(|axis| (axis, self.shape()[axis]))?,
        };
        if k == 0 || k > size {
            let message = format!("k = {k} is out of range for dimension {dim} of size {size}");
            return Err(Error::argument("kthvalue", message));
        }
        if let Some(alone) = alone {
            return Ok(alone);
        }
        let order = self.argsort(dim, false)?;
        let rank = Tensor::rank_like(&order, axis, k - 1)?;
        self.at_ranks(&order, &rank, axis, keepdim)
    }

    /// The quantiles `q` (between 0 and 1) along an axis, or of all elements for `None`. The result has a leading
    /// dimension for `q`. Quantile `q` of n elements has rank `q * (n - 1)`, counted from 0. If any element is NaN, so
    /// is the result. Integers give `float32`, or `float64` where promotion does.
    ///
    /// # Errors
    /// [`Error::Argument`] if `q` is empty or has a value outside 0 to 1; [`Error::Axis`] for an axis out of range;
    /// [`Error::Shape`] if there are no elements.
    pub fn quantile(
        &self,
        q: &[f64],
        dim: Option<i64>,
        keepdim: bool,
        method: QuantileMethod,
    ) -> Result<Tensor> {
        if let Some(wrong) = q.iter().find(|&&q| !(0.0..=1.0).contains(&q)) {
            return Err(Error::argument("quantile", format!("q must be between 0 and 1, got {wrong}")));
        }
        if q.is_empty() {
            return Err(Error::argument("quantile", "q is empty: give at least one quantile"));
        }
        // Differences of integers would wrap.
        if !self.dtype().is_float() {
            return self.floating()?.quantile(q, dim, keepdim, method);
        }
        let Some(dim) = dim else {
            let flat = self.reshaped(Dims::from_slice(&[self.len()]))?.quantile(q, Some(0), false, method)?;
            let mut shape = Dims::from_slice(&[q.len()]);
            if keepdim {
                shape.extend(std::iter::repeat_n(1, self.rank()));
            }
            return flat.reshaped(shape);
        };
        let (axis, size) = self.ranked_axis("quantile", dim)?;
        let ordered = self.sort(dim, false)?.0;
        let missing = self.isnan()?.any(&[dim], true)?;
        let one = |q: f64| {
            let place = q * (size - 1) as f64;
            let (low, high) = (place.floor(), place.ceil());
            let weight = method.weight(place, low);
            let below = ordered.sliced_axis(axis, low as usize, 1, 1)?;
            let value = if weight == 0.0 || low == high {
                below
            } else {
                let above = ordered.sliced_axis(axis, high as usize, 1, 1)?;
                below.add(&above.sub(&below)?.mul_scalar(weight)?)?
            };
            let nothing = value.constant_like(Scalar::Float(f64::NAN), floating(value.dtype()))?;
            let value = missing.where_(&nothing, &value)?;
            if keepdim { Ok(value) } else { value.squeeze(axis as i64) }
        };
        let parts = q.iter().map(|&q| one(q)).collect::<Result<Vec<Tensor>>>()?;
        Tensor::stack(&parts.iter().collect::<Vec<_>>(), 0)
    }
}
