//! Differences of neighbours, and integrals by the trapezoidal rule.

use crate::{
    DType, Error, Result, Tensor,
    shape::{Dims, normalize_axis},
};

impl Tensor {
    /// The elements along an axis without the first, and without the last; two empty tensors for an empty axis.
    fn neighbours(&self, axis: usize) -> Result<(Tensor, Tensor)> {
        let size = self.shape()[axis];
        let rest = size.saturating_sub(1);
        Ok((self.sliced_axis(axis, size - rest, 1, rest)?, self.sliced_axis(axis, 0, 1, rest)?))
    }

    /// The differences of adjacent elements along an axis, `n` times: element i is `x[i + 1] - x[i]`, and the axis loses
    /// `n` elements (all if there are fewer). Integers wrap; of `bool` it is whether neighbours differ.
    ///
    /// # Errors
    /// [`Error::Axis`].
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

    /// The integral along an axis by the trapezoidal rule, of values at points `dx` apart. Fewer than two values give 0;
    /// integers give `float32`.
    ///
    /// # Errors
    /// [`Error::Axis`], also for a tensor of no dimensions.
    pub fn trapezoid(&self, dx: f64, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("trapezoid", dim, self.shape())?;
        if self.shape()[axis] == 0 {
            return self.sum(&[dim], false)?.mul_scalar(dx);
        }
        let (later, earlier) = self.neighbours(axis)?;
        later.add(&earlier)?.signed()?.sum(&[dim], false)?.mul_scalar(dx / 2.0)
    }

    /// [`Tensor::trapezoid`] of values at the points `x`: a vector, or a tensor that can be broadcast with this one and
    /// has its size along the axis.
    ///
    /// # Errors
    /// [`Error::Axis`]; [`Error::Argument`] if there is another number of points; [`Error::Shape`].
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
        let ((later, earlier), (right, left)) = (self.neighbours(axis)?, x.neighbours(along)?);
        let areas = later.add(&earlier)?.mul(&right.sub(&left)?)?;
        areas.signed()?.sum(&[dim], false)?.div_scalar(2)
    }
}
