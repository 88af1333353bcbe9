//! Sums of products: interpolation, products added to a tensor, sums of products over axes, distances.

use super::operands::{broadcast2, promote2};
use crate::{
    Error, Result, Scalar, Tensor,
    shape::{Dims, element_count, normalize_axis},
};

impl Tensor {
    /// Linear interpolation `self + weight * (end - self)`. Shapes are broadcast, dtypes promoted.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes cannot be broadcast; [`Error::DType`] for `bool`.
    pub fn lerp(&self, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
        self.add(&end.sub(self)?.mul(weight)?)
    }

    /// [`Tensor::lerp`] with a number for the weight.
    ///
    /// # Errors
    /// As [`Tensor::lerp`].
    pub fn lerp_scalar(&self, end: &Tensor, weight: impl Into<Scalar>) -> Result<Tensor> {
        self.add(&end.sub(self)?.mul_scalar(weight)?)
    }

    /// `self + value * a * b`. Shapes are broadcast, dtypes promoted.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.add(&a.mul(b)?.mul_scalar(value)?)
    }

    /// `self + value * a / b`. Shapes are broadcast, dtypes promoted; quotients of integers are `float32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.add(&a.div(b)?.mul_scalar(value)?)
    }

    /// `beta * self + alpha * (a @ b)`, with [`Tensor::matmul`]'s shapes; this tensor is broadcast. With `beta` 0 its
    /// values are not read, so NaN in them has no effect. Also PyTorch's `addmv` and `baddbmm`.
    ///
    /// # Errors
    /// As [`Tensor::matmul`] and [`Tensor::add`].
    pub fn addmm(
        &self,
        a: &Tensor,
        b: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        let (beta, alpha) = (beta.into(), alpha.into());
        let product = a.matmul(b)?;
        let product = if alpha.as_f64() == 1.0 { product } else { product.mul_scalar(alpha)? };
        match beta.as_f64() {
            0.0 => Ok(product),
            1.0 => self.add(&product),
            _ => self.mul_scalar(beta)?.add(&product),
        }
    }

    /// The sums of products over the last axis of both: `[.., K]` and `[.., K]` give the axes of this tensor without its
    /// last, then those of the other without its last. With a scalar it is the product.
    ///
    /// # Errors
    /// [`Error::Shape`] if the last axes differ.
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        self.tensordot(other, &[-1], &[-1])
    }

    /// The sums of products over `axes` of this tensor and `other_axes` of the other, in pairs; the result has the axes
    /// that are left, this tensor's first. Dtypes are those of [`Tensor::matmul`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless the axes of each pair have one size; [`Error::Axis`] for an axis out of range;
    /// [`Error::Argument`] for an axis named twice.
    pub fn tensordot(&self, other: &Tensor, axes: &[i64], other_axes: &[i64]) -> Result<Tensor> {
        let (kept, summed) = self.parted("tensordot", axes)?;
        let (other_kept, other_summed) = other.parted("tensordot", other_axes)?;
        let sizes = |t: &Tensor, axes: &[usize]| axes.iter().map(|&axis| t.shape()[axis]).collect::<Dims>();
        let (inner, other_inner) = (sizes(self, &summed), sizes(other, &other_summed));
        if inner != other_inner {
            let hint = format!("axes {axes:?} and {other_axes:?} must have the same sizes in pairs");
            return Err(Error::shape("tensordot", &[self.shape(), other.shape()], hint));
        }
        let (rows, columns) = (sizes(self, &kept), sizes(other, &other_kept));
        let order: Dims = kept.iter().chain(&summed).copied().collect();
        let left = [element_count(&rows), element_count(&inner)];
        let left = self.permute(&order)?.reshaped(Dims::from_slice(&left))?;
        let order: Dims = other_summed.iter().chain(&other_kept).copied().collect();
        let right = [element_count(&inner), element_count(&columns)];
        let right = other.permute(&order)?.reshaped(Dims::from_slice(&right))?;
        left.matmul(&right)?.reshaped(rows.iter().chain(&columns).copied().collect())
    }

    /// The axes that are not named, in order, and those that are, as given.
    fn parted(&self, op: &'static str, axes: &[i64]) -> Result<(Dims, Dims)> {
        let mut named = Dims::new();
        for &axis in axes {
            let normal = normalize_axis(op, axis, self.shape())?;
            if named.contains(&normal) {
                return Err(Error::argument(op, format!("axis {axis} is named twice")));
            }
            named.push(normal);
        }
        Ok(((0..self.rank()).filter(|axis| !named.contains(axis)).collect(), named))
    }

    /// The inner products of vectors along an axis of both, which are broadcast elsewhere. The result has the promoted
    /// dtype, also of integers.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the sizes along the axis agree and the shapes can be broadcast; [`Error::Axis`].
    pub fn vecdot(&self, other: &Tensor, dim: i64) -> Result<Tensor> {
        let (a, b) = promote2(self, other)?;
        let axis = normalize_axis("vecdot", dim, a.shape())?;
        let other_axis = normalize_axis("vecdot", dim, b.shape())?;
        if a.shape()[axis] != b.shape()[other_axis] {
            let hint = format!("the sizes along axis {dim} must agree");
            return Err(Error::shape("vecdot", &[self.shape(), other.shape()], hint));
        }
        let (a, b) = broadcast2("vecdot", &a, &b)?;
        a.mul(&b)?.sum(&[dim], false)?.to_dtype(a.dtype())
    }

    /// The p-norm of the difference, over all elements of the broadcast shape; orders as for [`Tensor::norm`].
    ///
    /// # Errors
    /// As [`Tensor::sub`] and [`Tensor::norm`].
    pub fn dist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        self.sub(other)?.norm(p, &[], false)
    }

    /// The p-norm distances between all rows of two batches of matrices: `[.., P, M]` and `[.., R, M]` give `[.., P, R]`;
    /// for infinity the greatest magnitude, for 0 the number of elements that differ. Equal rows have a distance of 0 with
    /// a gradient of 0. Integers give `float32`, but 64-bit integers for 1, and their own dtype for 0 and infinity.
    ///
    /// # Errors
    /// [`Error::Shape`] for shapes that cannot be broadcast, or an infinite norm of rows without elements;
    /// [`Error::Axis`] for too few dimensions.
    pub fn cdist(&self, other: &Tensor, p: impl Into<Scalar>) -> Result<Tensor> {
        let order: Scalar = p.into();
        let apart = self.unsqueeze(-2)?.sub(&other.unsqueeze(-3)?)?.abs()?;
        let p = order.as_f64();
        if p == f64::INFINITY {
            return apart.max(&[-1], false);
        }
        if p == 1.0 {
            return apart.signed()?.sum(&[-1], false);
        }
        if p == 0.0 {
            return apart.ne_scalar(0)?.sum(&[-1], false)?.to_dtype(apart.dtype());
        }
        let powers = if p == 2.0 { apart.square()? } else { apart.pow_scalar(order)? };
        let total = powers.signed()?.sum(&[-1], false)?.floating()?;
        // The root's infinite slope at 0 would meet a zero and give NaN.
        let same = total.eq_scalar(0)?;
        let root = same.where_(&total.ones_like()?, &total)?.pow_scalar(1.0 / p)?;
        same.where_(&root.zeros_like()?, &root)
    }

    /// The n-th power of square matrices `[.., N, N]` by repeated squaring; for a negative `n`, of their inverses. The
    /// power 0 is the identity.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrices are square; those of [`Tensor::inv`] for a negative `n`.
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        let &[.., rows, columns] = self.shape() else {
            return Err(Error::shape("matrix_power", &[self.shape()], "a power needs square matrices"));
        };
        if rows != columns {
            return Err(Error::shape("matrix_power", &[self.shape()], "a power needs square matrices"));
        }
        let mut result = Tensor::eye(rows, rows, self.dtype(), self.device())?.stretched(self.shape())?;
        let mut power = if n < 0 { self.inv()? } else { self.clone() };
        let mut left = n.unsigned_abs();
        while left > 0 {
            if left & 1 == 1 {
                result = result.matmul(&power)?;
            }
            left >>= 1;
            if left > 0 {
                power = power.matmul(&power)?;
            }
        }
        Ok(result)
    }
}
