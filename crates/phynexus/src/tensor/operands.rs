//! Promotion and broadcasting of operands, shared by all methods that take several tensors.

use super::default_dtype::default_dtype;
use crate::{
    DType, DTypeKind, Error, Result, Scalar, Tensor,
    dtype::float8::FLOAT8_HINT,
    op::{Constant, Op},
    shape::{Dims, broadcast, dims},
};

impl Tensor {
    /// Broadcasts to `shape`, which the caller has validated. Records no node if the shape is unchanged, and a single
    /// one for a constant.
    pub(super) fn stretched(&self, shape: &[usize]) -> Result<Tensor> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        if let &Op::Constant(Constant(value)) = self.node().op() {
            return Tensor::record_on(
                self.device(),
                Op::Constant(Constant(value)),
                self.dtype(),
                shape.into(),
                &[],
            );
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

    /// A constant with this tensor's shape and device.
    pub(super) fn constant_like(&self, value: Scalar, dtype: DType) -> Result<Tensor> {
        Tensor::record_on(
            self.device(),
            Op::Constant(Constant(value.cast(dtype))),
            dtype,
            dims(self.shape()),
            &[],
        )
    }

    /// Converts to the dtype in which numbers of `dtype` are computed: `float32` for 16-bit floats.
    ///
    /// # Errors
    /// [`Error::DType`] for 8-bit floats.
    pub(super) fn wide(&self, dtype: DType) -> Result<Tensor> {
        if self.dtype().float8().is_some() {
            return Err(Error::dtype("compute", &[self.dtype()], FLOAT8_HINT));
        }
        self.to_dtype(dtype.compute())
    }

    /// Applies a function of several steps. 16-bit floats are computed in `float32` and rounded once, at the end.
    pub(super) fn in_compute_dtype(
        &self,
        function: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        function(&self.wide(self.dtype())?)?.to_dtype(self.dtype())
    }

    /// As [`Tensor::in_compute_dtype`] for a function of two tensors.
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
        function(&self.wide(wide)?, &other.wide(wide)?)?.to_dtype(dtype)
    }

    /// Unsigned integers as `int64`; other tensors unchanged. Wrapped differences then have the right sign in a sum.
    pub(super) fn signed(&self) -> Result<Tensor> {
        if self.dtype().kind() == DTypeKind::Unsigned { self.to_dtype(DType::I64) } else { Ok(self.clone()) }
    }

    /// Integers and `bool` in the default dtype; floats unchanged.
    pub(super) fn floating(&self) -> Result<Tensor> {
        self.to_dtype(floating(self.dtype()))
    }
}

/// The result dtype of floating-point functions for arguments of this dtype.
pub(super) fn floating(dtype: DType) -> DType {
    if dtype.is_float() { dtype } else { default_dtype() }
}

/// Converts both operands to their promoted dtype.
pub(super) fn promote2(a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    let dtype = a.dtype().promote(b.dtype());
    Ok((a.to_dtype(dtype)?, b.to_dtype(dtype)?))
}

/// Broadcasts both operands to their common shape.
pub(super) fn broadcast2(op: &'static str, a: &Tensor, b: &Tensor) -> Result<(Tensor, Tensor)> {
    if a.shape() == b.shape() {
        return Ok((a.clone(), b.clone()));
    }
    let shape = broadcast(op, a.shape(), b.shape())?;
    Ok((a.stretched(&shape)?, b.stretched(&shape)?))
}

/// The dtype of a tensor combined with a scalar. It is the tensor's dtype unless the scalar is of a higher kind (`bool`
/// < integer < float); then it is the default of that kind (`int64`, [`default_dtype`]).
pub(super) fn with_scalar(dtype: DType, scalar: Scalar) -> DType {
    match scalar.kind() {
        DTypeKind::Float => floating(dtype),
        DTypeKind::Signed | DTypeKind::Unsigned if dtype == DType::Bool => DType::I64,
        _ => dtype,
    }
}

/// Converts a scalar to `dtype`. Integers that do not fit an integer dtype are an error; they do not wrap.
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

/// The value of an integer scalar.
pub(super) fn whole(scalar: Scalar) -> i128 {
    match scalar {
        Scalar::UInt(u) => u.into(),
        other => other.as_i64().into(),
    }
}
