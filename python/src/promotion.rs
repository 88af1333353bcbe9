//! The dtype of results of two tensors: the array API standard's, or PyTorch's.

use std::sync::atomic::{AtomicBool, Ordering};

use phynexus::{DType, Tensor};
use pyo3::prelude::*;

use crate::error::{Result, value_error};

static FOLLOWS_PYTORCH: AtomicBool = AtomicBool::new(false);

/// Sets how operators of two tensors, ``where`` and in-place operators choose the dtype of their result, for the whole
/// process: ``"standard"`` treats all tensors alike; with ``"pytorch"``, a tensor without dimensions changes the dtype
/// of one with dimensions only if it is of a higher category (bool, integers, floats).
#[pyfunction]
pub(crate) fn set_promotion(rule: &str) -> Result<()> {
    let follows = match rule {
        "standard" => false,
        "pytorch" => true,
        _ => {
            let message = format!("unknown promotion {rule:?}: use \"standard\" or \"pytorch\"");
            return Err(value_error(message));
        }
    };
    FOLLOWS_PYTORCH.store(follows, Ordering::Relaxed);
    Ok(())
}

/// Returns what ``set_promotion`` set.
#[pyfunction]
pub(crate) fn get_promotion() -> &'static str {
    if FOLLOWS_PYTORCH.load(Ordering::Relaxed) { "pytorch" } else { "standard" }
}

/// The operands as the engine's promotion has to see them.
#[inline]
pub(crate) fn promoted(first: Tensor, second: Tensor) -> Result<(Tensor, Tensor)> {
    if !FOLLOWS_PYTORCH.load(Ordering::Relaxed) || first.dtype() == second.dtype() {
        return Ok((first, second));
    }
    Ok(match (first.rank(), second.rank()) {
        (0, 0) => (first, second),
        (0, _) => (beside(first, second.dtype())?, second),
        (_, 0) => {
            let dtype = first.dtype();
            (first, beside(second, dtype)?)
        }
        _ => (first, second),
    })
}

/// A tensor without dimensions, in the dtype of the other operand if that decides.
fn beside(scalar: Tensor, dtype: DType) -> Result<Tensor> {
    let category = |dtype: DType| (dtype != DType::Bool) as u8 + u8::from(dtype.is_float());
    Ok(if category(scalar.dtype()) <= category(dtype) { scalar.to_dtype(dtype)? } else { scalar })
}
