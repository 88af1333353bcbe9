//! The other operand of an operator.

use phynexus::{Scalar, Tensor};
use pyo3::prelude::*;

use super::{PyTensor, numpy};
use crate::{argument::number, error::Result};

/// A tensor or a number.
pub(crate) enum Operand {
    /// A tensor, or what NumPy has an array of.
    Tensor(Tensor),
    /// A number, which does not decide the dtype.
    Number(Scalar),
}

impl Operand {
    /// The operand beside a tensor, if it is one.
    pub(crate) fn beside(tensor: &Tensor, object: &Bound<'_, PyAny>) -> Result<Option<Operand>> {
        if let Ok(other) = object.cast::<PyTensor>() {
            return Ok(Some(Operand::Tensor(other.get().tensor()?)));
        }
        if let Some(scalar) = number(object)? {
            return Ok(Some(Operand::Number(scalar)));
        }
        if object.hasattr("__array_interface__")? {
            return Ok(Some(Operand::Tensor(numpy::import(object, None, tensor.device())?)));
        }
        Ok(None)
    }

    /// Converts the operand to a tensor on the device of `beside`.
    pub(crate) fn into_tensor(self, beside: &Tensor) -> Result<Tensor> {
        match self {
            Operand::Tensor(tensor) => Ok(tensor),
            Operand::Number(scalar) => {
                let dtype = match scalar {
                    Scalar::Float(_) if beside.dtype().is_float() => beside.dtype(),
                    Scalar::Float(_) => phynexus::tensor::default_dtype(),
                    Scalar::Bool(_) => phynexus::DType::Bool,
                    _ if beside.dtype() == phynexus::DType::Bool => phynexus::DType::I64,
                    _ => beside.dtype(),
                };
                Ok(Tensor::full(&[], scalar, dtype, beside.device())?)
            }
        }
    }
}
