//! Resampling of images and signals.

use crate::{DType, Error, Result, Tensor, graph::op::Op, shape::Dims};

/// How [`Tensor::interpolate`] fills the places between samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// The sample at `floor(place * size / new size)`.
    Nearest,
    /// A weighted mean of the neighbours along every spatial dimension: PyTorch's `linear`, `bilinear`, `trilinear`.
    Linear {
        /// The corner samples stay at the corners; else samples are areas, and the outer ones extend beyond their centre.
        align_corners: bool,
    },
}

impl Tensor {
    /// `[N, C, spatial..]` resampled to the spatial extents `size` (one to three). 16-bit floats are computed in `float32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of spatial dimensions differs or an extent is 0; [`Error::DType`] unless the
    /// tensor is of floats.
    pub fn interpolate(&self, size: &[usize], mode: Interpolation) -> Result<Tensor> {
        if self.rank() != size.len() + 2
            || size.is_empty()
            || size.contains(&0)
            || self.shape()[2..].contains(&0)
        {
            let hint = format!("(N, C, ..) with as many spatial dimensions as {size:?}, none of them empty");
            return Err(Error::shape("interpolate", &[self.shape()], hint));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype("interpolate", &[self.dtype()], "convert to a float with .to_dtype()"));
        }
        let mut y = self.to_dtype(self.dtype().compute())?;
        for (axis, &new) in (2..).zip(size) {
            let old = self.shape()[axis];
            if new == old {
                continue;
            }
            y = match mode {
                Interpolation::Nearest if new.is_multiple_of(old) => repeated(&y, axis, new / old)?,
                Interpolation::Nearest => {
                    let place = counter(&y, &[new], 0, DType::I64)?;
                    let index = place.mul_scalar(old as i64)?.floor_divide_scalar(new as i64)?;
                    y.index_select(axis as i64, &index)?
                }
                Interpolation::Linear { align_corners } => {
                    let weights = linear_weights(&y, old, new, align_corners)?;
                    y.move_axis(axis as i64, -1)?.matmul(&weights)?.move_axis(-1, axis as i64)?
                }
            };
        }
        y.to_dtype(self.dtype())
    }

    /// [`Tensor::interpolate`] to extents `floor(size * scale)`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the factor is positive and finite, else as [`Tensor::interpolate`].
    pub fn interpolate_by(&self, scale_factor: f64, mode: Interpolation) -> Result<Tensor> {
        if !(scale_factor.is_finite() && scale_factor > 0.0) {
            let message = format!("the scale factor must be positive, not {scale_factor}");
            return Err(Error::argument("interpolate", message));
        }
        let spatial = self.shape().get(2..).unwrap_or_default();
        let size: Vec<usize> = spatial.iter().map(|&d| (d as f64 * scale_factor).floor() as usize).collect();
        self.interpolate(&size, mode)
    }
}

/// The index along an axis.
fn counter(like: &Tensor, shape: &[usize], axis: usize, dtype: DType) -> Result<Tensor> {
    Tensor::record_on(like.device(), Op::Iota { axis }, dtype, shape.into(), &[])
}

/// Every element along `axis` repeated.
fn repeated(x: &Tensor, axis: usize, times: usize) -> Result<Tensor> {
    let mut split: Dims = x.shape().into();
    split.insert(axis + 1, 1);
    let mut wide = split.clone();
    wide[axis + 1] = times;
    let mut merged: Dims = x.shape().into();
    merged[axis] *= times;
    x.reshape(&split)?.expand(&wide)?.reshape(&merged)
}

/// What each sample (rows) gives to each new place (columns): `max(0, 1 - |source place - sample|)`.
fn linear_weights(x: &Tensor, old: usize, new: usize, align_corners: bool) -> Result<Tensor> {
    let place = counter(x, &[1, new], 1, x.dtype())?;
    let source = if align_corners {
        let scale = if new > 1 { (old - 1) as f64 / (new - 1) as f64 } else { 0.0 };
        place.mul_scalar(scale)?
    } else {
        place.add_scalar(0.5)?.mul_scalar(old as f64 / new as f64)?.sub_scalar(0.5)?.maximum_scalar(0)?
    };
    let source = source.minimum_scalar((old - 1) as f64)?;
    let sample = counter(x, &[old, 1], 0, x.dtype())?;
    source.sub(&sample)?.abs()?.rsub_scalar(1)?.maximum_scalar(0)
}
