//! How operands are brought together: one dtype, one shape. Every method that takes several tensors goes through here.

use crate::{
    DType, Error, Kind, Result, Scalar, Tensor,
    op::Op,
    shape::{Dims, broadcast, dims},
};

impl Tensor {
    /// The same tensor stretched to `shape`, which the caller has checked. No node is added if nothing changes, and one
    /// if the tensor is a constant.
    pub(super) fn stretched(&self, shape: &[usize]) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        if let &Op::Constant(value) = self.node().op() {
            return Tensor::record_on(self.device(), Op::Constant(value), self.dtype(), shape.into(), &[]);
        }
        let added = shape.len() - self.rank();
        let aligned = if added == 0 {
            self.clone()
        } else {
            let dims: Dims = std::iter::repeat_n(1, added).chain(self.shape().iter().copied()).collect();
            self.reshaped(dims)?
        };
        if aligned.shape() == shape {
            return Ok(aligned);
        }
        Tensor::record(Op::Expand, self.dtype(), shape.into(), &[&aligned])
    }

    /// A constant of this tensor's shape and device.
    pub(super) fn constant_like(&self, value: Scalar, dtype: DType) -> Result<Tensor> {
        Tensor::record_on(self.device(), Op::Constant(value.cast(dtype)), dtype, dims(self.shape()), &[])
    }

    /// A function of several steps: 16-bit floats go through it as `float32` and are rounded once, at its end.
    pub(super) fn in_compute_dtype(
        &self,
        function: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        function(&self.to_dtype(self.dtype().compute())?)?.to_dtype(self.dtype())
    }

    /// As [`Tensor::in_compute_dtype`], for a function of two tensors whose promoted dtype is a 16-bit float.
    pub(super) fn in_compute_dtype_with(
        &self,
        other: &Tensor,
        function: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dtype = self.dtype().promote(other.dtype());
        let wide = dtype.compute();
        if wide == dtype {
            return function(self, other);
        }
        function(&self.to_dtype(wide)?, &other.to_dtype(wide)?)?.to_dtype(dtype)
    }

    /// Unsigned integers as `int64`, so that a sum of differences which wrapped is right; other tensors as they are.
    pub(super) fn signed(&self) -> Result<Tensor> {
        if self.dtype().kind() == Kind::Unsigned { self.to_dtype(DType::I64) } else { Ok(self.clone()) }
    }

    /// The tensor as floating point: integers and `bool` become `float32`.
    pub(super) fn floating(&self) -> Result<Tensor> {
        self.to_dtype(floating(self.dtype()))
    }
}

/// The dtype in which floating-point functions of this one are given.
pub(super) fn floating(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { DType::F32 }
}

/// Both operands in their promoted dtype.
pub(super) fn promote2(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let dtype = a.dtype().promote(b.dtype());
    Ok((a.to_dtype(dtype)?, b.to_dtype(dtype)?))
}

/// Both operands in their common shape.
pub(super) fn broadcast2(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    if a.shape() == b.shape() {
        return Ok((a.clone(), b.clone()));
    }
    let shape = broadcast(op, a.shape(), b.shape())?;
    Ok((a.stretched(&shape)?, b.stretched(&shape)?))
}

/// The dtype of a tensor combined with a plain number: the tensor's own, unless the number is of a higher kind (`bool`,
/// integer, float); then the default of that kind (`int64`, `float32`).
pub(super) fn with_scalar(dtype: DType, scalar: Scalar) -> DType {
    match scalar.kind() {
        Kind::Float => floating(dtype),
        Kind::Signed | Kind::Unsigned if dtype == DType::Bool => DType::I64,
        _ => dtype,
    }
}

/// The number as an element of `dtype`; whole numbers that do not fit are an error rather than wrapped.
pub(super) fn fitting(op: &'static str, scalar: Scalar, dtype: DType) -> Result<Scalar> {
    let cast = scalar.cast(dtype);
    let exact = match scalar {
        Scalar::Int(i) if dtype.is_integer() => i128::from(i) == whole(cast),
        Scalar::UInt(u) if dtype.is_integer() => i128::from(u) == whole(cast),
        _ => true,
    };
    if exact {
        return Ok(cast);
    }
    Err(Error::argument(
        op,
        format!("{scalar} does not fit into {dtype}: convert the tensor to a wider dtype first"),
    ))
}

/// The value of a whole number.
pub(super) fn whole(scalar: Scalar) -> i128 {
    match scalar {
        Scalar::UInt(u) => u.into(),
        other => other.as_i64().into(),
    }
}
