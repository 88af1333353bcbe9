//! Counting elements, and sums that ignore NaN.

use std::cmp::Ordering;

use crate::{DType, Error, Result, Scalar, Tensor, shape::Dims};

impl Tensor {
    /// How many elements over `axes` (all if empty) are nonzero, `int64`. NaN is nonzero.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn count_nonzero(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        self.to_dtype(DType::Bool)?.sum(axes, keepdim)
    }

    /// [`Tensor::sum`] of the elements that are not NaN; 0 if all are.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn nansum(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.sum(axes, keepdim);
        }
        self.isnan()?.where_(&self.zeros_like()?, self)?.sum(axes, keepdim)
    }

    /// [`Tensor::mean`] of the elements that are not NaN; NaN if all are. 16-bit floats are computed in `float32`.
    ///
    /// # Errors
    /// [`Error::DType`] unless the dtype is a float; as [`Tensor::sum`].
    pub fn nanmean(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype("nanmean", &[self.dtype()], "only floats can be NaN; use mean"));
        }
        let count = self.isnan()?.logical_not()?.sum(axes, keepdim)?;
        self.in_compute_dtype(|x| x.nansum(axes, keepdim)?.div(&count.to_dtype(x.dtype())?))
    }

    /// How often each whole number from 0 occurs in a vector of integers (`int64`), or the sum of the weights where it
    /// does (in their dtype). The result has `minlength` elements, or more for a greater number. The greatest number is
    /// computed at the call.
    ///
    /// # Errors
    /// [`Error::Argument`] unless this is a vector of non-negative integers; as [`Tensor::scatter_add`] for weights of
    /// another shape.
    pub fn bincount(&self, weights: Option<&Tensor>, minlength: usize) -> Result<Tensor> {
        let wrong = || Error::argument("bincount", "expected a vector of non-negative integers");
        if self.rank() != 1 || self.dtype().is_float() {
            return Err(wrong());
        }
        let one = self.constant_like(Scalar::Int(1), DType::I64)?;
        let counted = weights.unwrap_or(&one);
        if self.is_empty() {
            return Tensor::zeros(&[minlength], counted.dtype(), self.device());
        }
        let label = self.to_dtype(DType::I64)?;
        if label.min(&[], false)?.item::<i64>()? < 0 {
            return Err(wrong());
        }
        let greatest = usize::try_from(label.max(&[], false)?.item::<i64>()?).map_err(|_| wrong())?;
        let size = minlength.max(greatest.saturating_add(1));
        Tensor::zeros(&[size], counted.dtype(), self.device())?.scatter_add(0, &label, counted)
    }

    /// How many elements lie in each of `bins` equal parts between `min` and `max`, or between the least and the greatest
    /// element if these are equal: a vector of this dtype. The last part includes `max`; elements outside are left out.
    /// Computed at the call.
    ///
    /// # Errors
    /// [`Error::Argument`] for no parts, or limits that are not in order.
    pub fn histc(&self, bins: usize, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor> {
        let (mut min, mut max): (Scalar, Scalar) = (min.into(), max.into());
        let x = self.reshaped(Dims::from_slice(&[self.len()]))?.detach()?;
        if min.as_f64() == max.as_f64() && !x.is_empty() {
            let number = |x: Tensor| -> Result<Scalar> {
                Ok(Scalar::Float(match x.dtype() {
                    DType::F64 => x.item::<f64>()?,
                    dtype if dtype.is_float() => f64::from(x.to_dtype(DType::F32)?.item::<f32>()?),
                    DType::U64 => x.item::<u64>()? as f64,
                    _ => x.to_dtype(DType::I64)?.item::<i64>()? as f64,
                }))
            };
            (min, max) = (number(x.min(&[], false)?)?, number(x.max(&[], false)?)?);
        }
        if min.as_f64() == max.as_f64() {
            (min, max) = (Scalar::Float(min.as_f64() - 1.0), Scalar::Float(max.as_f64() + 1.0));
        }
        if bins == 0 || min.as_f64().partial_cmp(&max.as_f64()) != Some(Ordering::Less) {
            let message = format!("{bins} parts between {min} and {max}");
            return Err(Error::argument("histc", message));
        }
        let width = max.as_f64() - min.as_f64();
        let x = x.masked_select(&x.ge_scalar(min)?.and(&x.le_scalar(max)?)?)?;
        let place = x.sub_scalar(min)?.mul_scalar(bins as f64 / width)?.floor()?;
        let last = Scalar::Int(i64::try_from(bins - 1).unwrap_or(i64::MAX));
        let place = place.clamp(Some(Scalar::Int(0)), Some(last))?.to_dtype(DType::I64)?;
        place.bincount(None, bins)?.to_dtype(self.dtype())
    }
}
