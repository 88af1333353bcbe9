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
    LOW.get().map(PyDType::real)
}

/// Sets this thread's ``autocast`` dtype; ``None`` turns it off.
#[pyfunction]
#[pyo3(signature = (dtype))]
pub(crate) fn set_autocast_dtype(dtype: Option<Wanted>) -> Result<()> {
    match dtype {
        Some(Wanted(dtype)) if !matches!(dtype, DType::F16 | DType::BF16 | DType::F8E4M3) => {
            Err(type_error(format!("autocast: expected float16, bfloat16 or float8_e4m3fn, got {dtype}")))
        }
        dtype => {
            LOW.set(dtype.map(|Wanted(dtype)| dtype));
            Ok(())
        }
    }
}

/// Casts the operands of a product to the autocast dtype, if one is set; `bfloat16` if that is an 8-bit one. `float64`
/// or integer operands prevent it.
pub(crate) fn low(operands: Vec<Tensor>) -> phynexus::Result<Vec<Tensor>> {
    let castable = |tensor: &Tensor| matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16);
    match LOW.get() {
        Some(dtype) if operands.iter().all(castable) => {
            let dtype = if dtype.float8().is_some() { DType::BF16 } else { dtype };
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
    product(&operands[0], &operands[1])
}

/// The size of which all dimensions of a product of 8-bit floats, and of its gradients, must be multiples: matrix units
/// read 16 bytes of a row at a time.
const MULTIPLE: usize = 16;

/// Matrix product of operands that have the autocast dtype. A matrix on the right, such as a weight, is multiplied in 8
/// bits if that is asked for and the sizes allow it.
pub(crate) fn product(left: &Tensor, right: &Tensor) -> phynexus::Result<Tensor> {
    let is_float8 = LOW.get().is_some_and(|dtype| dtype.float8().is_some());
    let rows: usize = left.shape().iter().rev().skip(1).product();
    let fits = right.rank() == 2
        && left.rank() >= 2
        && left.dtype() == DType::BF16
        && right.dtype() == DType::BF16
        && right.shape().iter().chain([&rows]).all(|size| size.is_multiple_of(MULTIPLE));
    if is_float8 && fits { left.matmul_float8(right) } else { left.matmul(right) }
}
