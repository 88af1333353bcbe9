//! Differences of adjacent elements, and integrals by the trapezoidal rule.

use crate::{
    DType, Error, Result, Tensor,
    shape::{Dims, normalize_axis},
};

impl Tensor {
    /// The elements along an axis without the first, and without the last. Both are empty for an empty axis.
    fn neighbours(&self, axis: usize) -> Result<(Tensor, Tensor)> {
        let size = self.shape()[axis];
        let rest = size.saturating_sub(1);
        Ok((self.sliced_axis(axis, size - rest, 1, rest)?, self.sliced_axis(axis, 0, 1, rest)?))
    }

    /// The n-th difference of adjacent elements along an axis: `x[i + 1] - x[i]`, applied `n` times. The axis shrinks
    /// by `n` elements, to 0 at least. Integers wrap; the difference of `bool` elements is `!=`.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range.
    pub fn diff(&self, n: usize, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("diff", dim, self.shape())?;
        if n >= self.shape()[axis] {
            return self.sliced_axis(axis, 0, 1, 0);
        }
        let mut x = self.clone();
        for _ in 0..n {
            let (later, earlier) = x.neighbours(axis)?;
            x = if x.dtype() == DType::Bool { later.ne(&earlier)? } else { later.sub(&earlier)? };
        }
        Ok(x)
    }

    /// The integral along an axis by the trapezoidal rule, for samples spaced `dx` apart. It is 0 for fewer than two
    /// samples. Integers give `float32`.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range, or a 0-dimensional tensor.
    pub fn trapezoid(&self, dx: f64, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("trapezoid", dim, self.shape())?;
        if self.shape()[axis] == 0 {
            return self.floating()?.sum(&[dim], false)?.mul_scalar(dx);
        }
        let (later, earlier) = self.floating()?.neighbours(axis)?;
        later.add(&earlier)?.sum(&[dim], false)?.mul_scalar(dx / 2.0)
    }

    /// [`Tensor::trapezoid`] for samples at the points `x`. `x` is a vector, or broadcasts with this tensor and has its
    /// size along the axis.
    ///
    /// # Errors
    /// [`Error::Axis`] for an axis out of range; [`Error::Argument`] if the number of points differs from the number of
    /// samples; [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn trapezoid_at(&self, x: &Tensor, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("trapezoid", dim, self.shape())?;
        let size = self.shape()[axis];
        if size == 0 {
            return self.trapezoid(1.0, dim);
        }
        let x = if x.rank() == 1 {
            let mut sizes = Dims::from_elem(1, self.rank());
            sizes[axis] = x.len();
            x.reshaped(sizes)?
        } else {
            x.clone()
        };
        let along = normalize_axis("trapezoid", dim, x.shape())?;
        if x.shape()[along] != size {
            let given = x.shape()[along];
            let message = format!("expected {size} sample points along dimension {dim}, got {given}");
            return Err(Error::argument("trapezoid", message));
        }
        // In floating point: sums and differences of integers would wrap.
        let (later, earlier) = self.floating()?.neighbours(axis)?;
        let (right, left) = x.floating()?.neighbours(along)?;
        later.add(&earlier)?.mul(&right.sub(&left)?)?.sum(&[dim], false)?.div_scalar(2)
    }
}
