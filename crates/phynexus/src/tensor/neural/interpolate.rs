//! Resampling images and signals.

use crate::{DType, Error, Result, Tensor, shape::Dims};

/// The interpolation method of [`Tensor::interpolate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// The sample at `floor(position * size / new size)`.
    Nearest,
    /// Linear interpolation along every spatial dimension: PyTorch's `linear`, `bilinear`, `trilinear`.
    Linear {
        /// If true, the corner samples are aligned with the corners of the result. Otherwise samples are areas, and the
        /// outer ones extend beyond their centre.
        align_corners: bool,
    },
}

impl Tensor {
    /// Resamples `[N, C, spatial..]` to the spatial extents `size` (one to three). 16-bit floats are computed in
    /// `float32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of spatial dimensions differs or an extent is 0; [`Error::DType`] unless the
    /// dtype is a float.
    pub fn interpolate(&self, size: &[usize], mode: Interpolation) -> Result<Tensor> {
        self.resampled(size, None, mode)
    }

    /// Resamples to `size`. The distance between samples is `1 / factor` if a factor is given, otherwise `size / new
    /// size`.
    fn resampled(&self, size: &[usize], factor: Option<f64>, mode: Interpolation) -> Result<Tensor> {
        if self.rank() != size.len() + 2
            || size.is_empty()
            || size.contains(&0)
            || self.shape()[2..].contains(&0)
        {
            let hint =
                format!("expected (N, C, ..) with as many nonempty spatial dimensions as the size {size:?}");
            return Err(Error::shape("interpolate", &[self.shape()], hint));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype("interpolate", &[self.dtype()], "convert to a float with .to_dtype()"));
        }
        let mut y = self.wide(self.dtype())?;
        for (axis, &new) in (2..).zip(size) {
            let old = self.shape()[axis];
            // A factor that gives the distance `old / new` can be ignored.
            let factor = factor.filter(|factor| old as f64 * factor != new as f64);
            y = match mode {
                Interpolation::Nearest => match factor {
                    None if new.is_multiple_of(old) => repeated(&y, axis, new / old)?,
                    None => {
                        let place = counter(&y, new, DType::I64)?;
                        let index = place.mul_scalar(old as i64)?.floor_divide_scalar(new as i64)?;
                        y.index_select(axis as i64, &index)?
                    }
                    Some(factor) => {
                        let place = counter(&y, new, DType::F64)?.div_scalar(factor)?;
                        let index = place.floor()?.minimum_scalar((old - 1) as f64)?.to_dtype(DType::I64)?;
                        y.index_select(axis as i64, &index)?
                    }
                },
                Interpolation::Linear { .. } if new == old => y,
                Interpolation::Linear { align_corners } => {
                    let source = linear_source(&y, old, new, factor, align_corners)?;
                    between(&y, axis, &source)?
                }
            };
        }
        y.to_dtype(self.dtype())
    }

    /// [`Tensor::interpolate`] to the extents `floor(size * scale_factor)`. Even if an extent is rounded, samples are
    /// `1 / scale_factor` apart (unless corners are aligned), as in PyTorch without `recompute_scale_factor`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the factor is positive and finite; otherwise as [`Tensor::interpolate`].
    pub fn interpolate_by(&self, scale_factor: f64, mode: Interpolation) -> Result<Tensor> {
        if !(scale_factor.is_finite() && scale_factor > 0.0) {
            let message = format!("the scale factor must be positive and finite, got {scale_factor}");
            return Err(Error::argument("interpolate", message));
        }
        let spatial = self.shape().get(2..).unwrap_or_default();
        let size: Vec<usize> = spatial.iter().map(|&d| (d as f64 * scale_factor).floor() as usize).collect();
        self.resampled(&size, Some(scale_factor), mode)
    }
}

/// The vector 0, 1, .., `count - 1`.
fn counter(like: &Tensor, count: usize, dtype: DType) -> Result<Tensor> {
    Tensor::iota(Dims::from_slice(&[count]), 0, dtype, like.device())
}

/// Repeats every element along `axis`.
fn repeated(x: &Tensor, axis: usize, times: usize) -> Result<Tensor> {
    let mut split: Dims = x.shape().into();
    split.insert(axis + 1, 1);
    let mut wide = split.clone();
    wide[axis + 1] = times;
    let mut merged: Dims = x.shape().into();
    merged[axis] *= times;
    x.reshape(&split)?.expand(&wide)?.reshape(&merged)
}

/// The fractional source position of each new sample.
fn linear_source(
    x: &Tensor,
    old: usize,
    new: usize,
    factor: Option<f64>,
    align_corners: bool,
) -> Result<Tensor> {
    let place = counter(x, new, x.dtype())?;
    let source = if align_corners {
        place.mul_scalar(if new > 1 { (old - 1) as f64 / (new - 1) as f64 } else { 0.0 })?
    } else {
        let step = factor.map_or(old as f64 / new as f64, |factor| 1.0 / factor);
        place.add_scalar(0.5)?.mul_scalar(step)?.sub_scalar(0.5)?.maximum_scalar(0)?
    };
    source.minimum_scalar((old - 1) as f64)
}

/// Linear interpolation at the positions `source` along an axis. At an exact sample position, the neighbour is ignored
/// even if it is infinite or NaN.
fn between(x: &Tensor, axis: usize, source: &Tensor) -> Result<Tensor> {
    let mut shape = Dims::from_elem(1, x.rank());
    shape[axis] = source.len();
    let first = source.floor()?;
    let weight = source.sub(&first)?.reshape(&shape)?;
    let last = source.ceil()?.to_dtype(DType::I64)?;
    let before = x.index_select(axis as i64, &first.to_dtype(DType::I64)?)?;
    let after = x.index_select(axis as i64, &last)?;
    let mean = before.mul(&weight.rsub_scalar(1)?)?.add(&after.mul(&weight)?)?;
    weight.eq_scalar(0)?.where_(&before, &mean)
}
