//! Mixed precision: the dtype that `amp.autocast` sets for matrix products on a thread.

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

/// Returns this thread's ``autocast`` dtype, or ``None``.
#[pyfunction]
pub(crate) fn autocast_dtype() -> Option<PyDType> {
    LOW.get().map(PyDType)
}

/// Sets this thread's ``autocast`` dtype; ``None`` turns it off.
#[pyfunction]
#[pyo3(signature = (dtype))]
pub(crate) fn set_autocast_dtype(dtype: Option<Wanted>) -> Result<()> {
    match dtype {
        Some(Wanted(dtype)) if !matches!(dtype, DType::F16 | DType::BF16) => {
            Err(type_error(format!("autocast: expected float16 or bfloat16, got {dtype}")))
        }
        dtype => {
            LOW.set(dtype.map(|Wanted(dtype)| dtype));
            Ok(())
        }
    }
}

/// Casts the operands of a product to the autocast dtype, if one is set. `float64` or integer operands prevent it.
pub(crate) fn low(operands: Vec<Tensor>) -> phynexus::Result<Vec<Tensor>> {
    let castable = |tensor: &Tensor| matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16);
    match LOW.get() {
        Some(dtype) if operands.iter().all(castable) => {
            operands.iter().map(|tensor| tensor.to_dtype(dtype)).collect()
        }
        _ => Ok(operands),
    }
}

/// Matrix product, in the autocast dtype if one is set.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> phynexus::Result<Tensor> {
    if LOW.get().is_none() {
        return left.matmul(right);
    }
    let operands = low(vec![left.clone(), right.clone()])?;
    operands[0].matmul(&operands[1])
}
