//! The dtype of floats that neither a tensor nor the caller decides.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::{DType, Error, Result};

/// The dtypes that can be the default; the first one is so at the start.
const CHOICES: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// An index of `CHOICES`.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Sets the dtype of fractions of integers, for the whole process, in operations that are recorded from now on: of
/// integer tensors combined with a float, and of functions such as division, the mean and the sine of integers. Where
/// the documentation says that integers give `float32`, they give this dtype. In Python it is also that of new tensors.
/// At the start it is `float32`.
///
/// # Errors
/// [`Error::DType`] for any other dtype than `float16`, `bfloat16`, `float32` and `float64`.
pub fn set_default_dtype(dtype: DType) -> Result<()> {
    let Some(index) = CHOICES.iter().position(|&choice| choice == dtype) else {
        let hint = format!("the default dtype is one of {}", CHOICES.map(DType::name).join(", "));
        return Err(Error::dtype("set_default_dtype", &[dtype], hint));
    };
    CHOSEN.store(index as u8, Ordering::Relaxed);
    Ok(())
}

/// Returns what [`set_default_dtype`] set.
#[inline]
pub fn default_dtype() -> DType {
    CHOICES[CHOSEN.load(Ordering::Relaxed) as usize % CHOICES.len()]
}
