//! Mixed precision: the dtype in which products of matrices compute on a thread, as `amp.autocast` sets it.

use std::cell::Cell;

use phynexus::{DType, Tensor};
use pyo3::prelude::*;

use crate::{
    dtype::{PyDType, Wanted},
    error::{Result, type_error},
};

thread_local! {
    static LOW: Cell<Option<DType>> = const { Cell::new(None) };
}

/// The low dtype of ``autocast`` on this thread, or ``None``.
#[pyfunction]
pub(crate) fn autocast_dtype() -> Option<PyDType> {
    LOW.get().map(PyDType)
}

/// Sets the low dtype of this thread; ``None`` for none.
#[pyfunction]
#[pyo3(signature = (dtype))]
pub(crate) fn set_autocast_dtype(dtype: Option<Wanted>) -> Result<()> {
    match dtype {
        Some(Wanted(dtype)) if !matches!(dtype, DType::F16 | DType::BF16) => {
            Err(type_error(format!("mixed precision computes in float16 or bfloat16, not {dtype}")))
        }
        dtype => {
            LOW.set(dtype.map(|Wanted(dtype)| dtype));
            Ok(())
        }
    }
}

/// Operands of a product: in the low dtype where there is one, unless one of them is `float64` or integers.
pub(crate) fn low(operands: Vec<Tensor>) -> phynexus::Result<Vec<Tensor>> {
    let castable = |tensor: &Tensor| matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16);
    match LOW.get() {
        Some(dtype) if operands.iter().all(castable) => {
            operands.iter().map(|tensor| tensor.to_dtype(dtype)).collect()
        }
        _ => Ok(operands),
    }
}

/// The product of matrices, in the low dtype where there is one.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> phynexus::Result<Tensor> {
    if LOW.get().is_none() {
        return left.matmul(right);
    }
    let operands = low(vec![left.clone(), right.clone()])?;
    operands[0].matmul(&operands[1])
}
