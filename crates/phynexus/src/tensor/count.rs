//! Counts of elements, and reductions that ignore NaN.

use std::cmp::Ordering;

use crate::{DType, Error, Result, Scalar, Tensor, shape::Dims};

impl Tensor {
    /// The number of nonzero elements over `axes` (all if empty), as `int64`. NaN counts as nonzero.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn count_nonzero(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        self.to_dtype(DType::Bool)?.sum(axes, keepdim)
    }

    /// [`Tensor::sum`] that ignores NaN; 0 if every element is NaN.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn nansum(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return self.sum(axes, keepdim);
        }
        self.isnan()?.where_(&self.zeros_like()?, self)?.sum(axes, keepdim)
    }

    /// [`Tensor::mean`] that ignores NaN; NaN if every element is NaN. 16-bit floats are computed in `float32`.
    ///
    /// # Errors
    /// [`Error::DType`] unless the dtype is a float; otherwise as [`Tensor::sum`].
    pub fn nanmean(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(
                "nanmean",
                &[self.dtype()],
                "expected a float dtype; integers have no NaN, use mean",
            ));
        }
        let count = self.isnan()?.logical_not()?.sum(axes, keepdim)?;
        self.in_compute_dtype(|x| x.nansum(axes, keepdim)?.div(&count.to_dtype(x.dtype())?))
    }

    /// Counts the occurrences of each value in a vector of non-negative integers: element i of the result (`int64`) is
    /// the number of elements equal to i. With `weights`, it is the sum of their weights, in the dtype of the weights.
    /// The result has at least `minlength` elements. Computed immediately, since the greatest value sets the size.
    ///
    /// # Errors
    /// [`Error::Argument`] unless this is a vector of non-negative integers; the errors of [`Tensor::scatter_add`] if
    /// the shape of the weights differs.
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

    /// Histogram of `bins` equal bins between `min` and `max`, as a vector of this dtype. If `min` equals `max`, the
    /// bins span the least to the greatest element. The last bin includes `max`; elements outside the range are
    /// ignored. Computed immediately, 16-bit floats in `float32` and integers in `float64`.
    ///
    /// # Errors
    /// [`Error::Argument`] if `bins` is 0 or unless `min <= max`.
    pub fn histc(&self, bins: usize, min: impl Into<Scalar>, max: impl Into<Scalar>) -> Result<Tensor> {
        let (mut min, mut max): (Scalar, Scalar) = (min.into(), max.into());
        let wide = if self.dtype().is_float() { self.dtype().compute() } else { DType::F64 };
        let x = self.reshaped(Dims::from_slice(&[self.len()]))?.detach()?.wide(wide)?;
        if min.as_f64() == max.as_f64() && !x.is_empty() {
            let number = |x: Tensor| -> Result<Scalar> {
                Ok(Scalar::Float(match wide {
                    DType::F32 => x.item::<f32>()?.into(),
                    _ => x.item::<f64>()?,
                }))
            };
            (min, max) = (number(x.min(&[], false)?)?, number(x.max(&[], false)?)?);
        }
        if min.as_f64() == max.as_f64() {
            (min, max) = (Scalar::Float(min.as_f64() - 1.0), Scalar::Float(max.as_f64() + 1.0));
        }
        if bins == 0 || min.as_f64().partial_cmp(&max.as_f64()) != Some(Ordering::Less) {
            let message =
                format!("expected at least one bin and min <= max, got {bins} bins from {min} to {max}");
            return Err(Error::argument("histc", message));
        }
        let width = max.as_f64() - min.as_f64();
        let x = x.masked_select(&x.ge_scalar(min)?.and(&x.le_scalar(max)?)?)?;
        let place = x.sub_scalar(min)?.mul_scalar(bins as f64)?.div_scalar(width)?.floor()?;
        let last = Scalar::Int(i64::try_from(bins - 1).unwrap_or(i64::MAX));
        let place = place.clamp(Some(Scalar::Int(0)), Some(last))?.to_dtype(DType::I64)?;
        place.bincount(None, bins)?.to_dtype(self.dtype())
    }
}
