//! The range of floats on a device.
//!
//! NPUs compute with floats of 16 bits, whatever the types of the network say. Beyond their range, some saturate
//! without a word (Qualcomm's HTP makes 131008 of NaN), and the comparison with the CPU sees only the samples.

use phynexus::{DType, Tensor};

use crate::{Error, Result};

/// The largest number of 16 bits.
const LARGEST: f32 = 65504.0;

/// Checks what a part reads.
///
/// # Errors
/// [`Error::Range`] if a number is beyond the range.
pub(super) fn check_given(name: &str, tensor: &Tensor) -> Result<()> {
    check(name, tensor, |x| x <= LARGEST)
}

/// Checks what a part made. The largest number itself may be a larger one that was cut off.
///
/// # Errors
/// As for [`check_given`].
pub(super) fn check_made(name: &str, tensor: &Tensor) -> Result<()> {
    check(name, tensor, |x| x < LARGEST)
}

fn check(name: &str, tensor: &Tensor, is_within: impl Fn(f32) -> bool) -> Result<()> {
    if !tensor.dtype().is_float() {
        return Ok(());
    }
    let numbers = tensor.to_dtype(DType::F32)?.to_vec::<f32>()?;
    // No comparison holds of what is not a number.
    match numbers.iter().all(|x| is_within(x.abs())) {
        true => Ok(()),
        false => Err(Error::Range { value: name.to_owned() }),
    }
}
