//! Sums of products: interpolation, fused multiply-add, contraction over axes, distances, matrix powers.

use super::operands::{broadcast2, promote2};
use crate::{
    DTypeKind, Error, Result, Scalar, Tensor,
    shape::{Dims, element_count, normalize_axis},
};

impl Tensor {
    /// Linear interpolation `self + weight * (end - self)`. Shapes are broadcast, dtypes promoted.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes cannot be broadcast; [`Error::DType`] for `bool`.
    pub fn lerp(&self, end: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let (start, end) = interpolated(self, end, weight.dtype().is_float())?;
        start.add(&end.sub(&start)?.mul(weight)?)
    }

    /// [`Tensor::lerp`] with a scalar weight.
    ///
    /// # Errors
    /// As [`Tensor::lerp`].
    pub fn lerp_scalar(&self, end: &Tensor, weight: impl Into<Scalar>) -> Result<Tensor> {
        let weight = weight.into();
        let (start, end) = interpolated(self, end, weight.kind() == DTypeKind::Float)?;
        start.add(&end.sub(&start)?.mul_scalar(weight)?)
    }

    /// `self + value * a * b`. Shapes are broadcast, dtypes promoted.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn addcmul(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.add(&a.mul(b)?.mul_scalar(value)?)
    }

    /// `self + value * a / b`. Shapes are broadcast, dtypes promoted; integer quotients are `float32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes cannot be broadcast.
    pub fn addcdiv(&self, a: &Tensor, b: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        self.add(&a.div(b)?.mul_scalar(value)?)
    }

    /// `beta * self + alpha * (a @ b)`, with the shapes of [`Tensor::matmul`]; this tensor is broadcast to the product.
    /// If `beta` is 0, this tensor is not read, so NaN in it has no effect. Also covers PyTorch's `addmv` and
    /// `baddbmm`.
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

    /// Inner product over the last axis of both tensors. The result has the remaining axes of this tensor, then those
    /// of the other. If either is a scalar, it is the elementwise product.
    ///
    /// # Errors
    /// [`Error::Shape`] if the sizes of the last axes differ.
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        self.tensordot(other, &[-1], &[-1])
    }

    /// Tensor contraction: sums of products over `axes` of this tensor and `other_axes` of the other, matched in order.
    /// The result has the remaining axes of this tensor, then those of the other. Dtypes are as for [`Tensor::matmul`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless the axes of each pair have the same size; [`Error::Axis`] for an axis out of range;
    /// [`Error::Argument`] for a repeated axis.
    pub fn tensordot(&self, other: &Tensor, axes: &[i64], other_axes: &[i64]) -> Result<Tensor> {
        let (kept, summed) = self.parted("tensordot", axes)?;
        let (other_kept, other_summed) = other.parted("tensordot", other_axes)?;
        let sizes = |t: &Tensor, axes: &[usize]| axes.iter().map(|&axis| t.shape()[axis]).collect::<Dims>();
        let (inner, other_inner) = (sizes(self, &summed), sizes(other, &other_summed));
        if inner != other_inner {
            let hint = format!("axes {axes:?} and {other_axes:?} must have matching sizes");
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

    /// The axes that are not in `axes`, in order, and those that are, as given.
    fn parted(&self, op: &'static str, axes: &[i64]) -> Result<(Dims, Dims)> {
        let mut named = Dims::new();
        for &axis in axes {
            let normal = normalize_axis(op, axis, self.shape())?;
            if named.contains(&normal) {
                return Err(Error::argument(op, format!("axis {axis} is repeated")));
            }
            named.push(normal);
        }
        Ok(((0..self.rank()).filter(|axis| !named.contains(axis)).collect(), named))
    }

    /// Dot product of vectors along an axis; the other axes are broadcast. The result has the promoted dtype, for
    /// integers too.
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

    /// The p-norm of `self - other` over all elements of the broadcast shape. `p` is as for [`Tensor::norm`].
    ///
    /// # Errors
    /// As [`Tensor::sub`] and [`Tensor::norm`].
    pub fn dist(&self, other: &Tensor, p: f64) -> Result<Tensor> {
        let (a, b) = promote2(self, other)?;
        a.floating()?.sub(&b.floating()?)?.norm(p, &[], false)
    }

    /// Pairwise p-norm distances between the rows of two batches of matrices: `[.., P, M]` and `[.., R, M]` give `[..,
    /// P, R]`. `p` = infinity gives the greatest difference, 0 the number of elements that differ. The gradient between
    /// equal rows is 0.
    ///
    /// The result of integers is `float32`; for `p` = 1 it has 64 bits, for 0 and infinity it keeps the dtype.
    ///
    /// # Errors
    /// [`Error::Argument`] for a negative or NaN `p`; [`Error::Shape`] if the shapes cannot be broadcast, or for `p` =
    /// infinity over empty rows; [`Error::Axis`] for
    /// too few dimensions.
    pub fn cdist(&self, other: &Tensor, p: impl Into<Scalar>) -> Result<Tensor> {
        let order: Scalar = p.into();
        let p = order.as_f64();
        if p.is_nan() || p < 0.0 {
            return Err(Error::argument("cdist", format!("p must not be negative or NaN, got {p}")));
        }
        // The difference of integers is that of the greater and the lesser: it does not wrap below 0.
        let (a, b) = (self.unsqueeze(-2)?, other.unsqueeze(-3)?);
        let apart = match promote2(self, other)?.0.dtype().is_float() {
            true => a.sub(&b)?.abs()?,
            false => a.maximum(&b)?.sub(&a.minimum(&b)?)?,
        };
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
        // The infinite derivative of the root at 0, times 0, would give NaN.
        let same = total.eq_scalar(0)?;
        let root = same.where_(&total.ones_like()?, &total)?.pow_scalar(1.0 / p)?;
        same.where_(&root.zeros_like()?, &root)
    }

    /// The n-th power of square matrices `[.., N, N]`, by repeated squaring. A negative `n` is a power of the inverse.
    /// Power 0 is the identity.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrices are square; the errors of [`Tensor::inv`] for a negative `n`.
    pub fn matrix_power(&self, n: i64) -> Result<Tensor> {
        let &[.., rows, columns] = self.shape() else {
            return Err(Error::shape("matrix_power", &[self.shape()], "the matrices must be square"));
        };
        if rows != columns {
            return Err(Error::shape("matrix_power", &[self.shape()], "the matrices must be square"));
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

/// Both ends of an interpolation in their common dtype: a floating-point one if the weight is a float, since differences of
/// unsigned integers wrap.
fn interpolated(start: &Tensor, end: &Tensor, by_float: bool) -> Result<(Tensor, Tensor)> {
    let (start, end) = promote2(start, end)?;
    match by_float && start.dtype().is_integer() {
        true => Ok((start.floating()?, end.floating()?)),
        false => Ok((start, end)),
    }
}
