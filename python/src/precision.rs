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

/// An operand of a product: in the low dtype where there is one, unless it is `float64` or integers.
pub(crate) fn low(tensor: &Tensor) -> phynexus::Result<Tensor> {
    match LOW.get() {
        Some(dtype) if matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16) => {
            tensor.to_dtype(dtype)
        }
        _ => Ok(tensor.clone()),
    }
}

/// The product of matrices, in the low dtype where there is one.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> phynexus::Result<Tensor> {
    if LOW.get().is_none() { left.matmul(right) } else { low(left)?.matmul(&low(right)?) }
}
