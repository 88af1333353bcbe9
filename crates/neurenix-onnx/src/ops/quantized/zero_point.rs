//! The integers that stand for 0.

use phynexus::{DType, Tensor, schedule::capture};

use crate::{
    Result,
    graph::Call,
    value::{floats, integers},
};

/// The integer that stands for 0.
#[derive(Clone, Debug)]
pub(super) enum ZeroPoint {
    /// All elements have this one.
    Number(i64),
    /// It broadcasts to the shape of the elements.
    Tensor(Tensor),
}

impl ZeroPoint {
    /// Whether it is known to be 0.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self, ZeroPoint::Number(0))
    }

    /// The sum with numbers, in their dtype.
    pub(super) fn added_to(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            ZeroPoint::Number(0) => x.clone(),
            ZeroPoint::Number(number) => x.add_scalar(*number)?,
            ZeroPoint::Tensor(tensor) => x.add(&tensor.to_dtype(x.dtype())?)?,
        })
    }

    /// Numbers less the zero point, in their dtype.
    pub(super) fn subtracted_from(&self, x: &Tensor) -> Result<Tensor> {
        Ok(match self {
            ZeroPoint::Number(0) => x.clone(),
            ZeroPoint::Number(number) => x.sub_scalar(*number)?,
            ZeroPoint::Tensor(tensor) => x.sub(&tensor.to_dtype(x.dtype())?)?,
        })
    }

    /// The product with numbers, in their dtype; `None` if it is 0.
    pub(super) fn times(&self, x: &Tensor) -> Result<Option<Tensor>> {
        Ok(match self {
            ZeroPoint::Number(0) => None,
            ZeroPoint::Number(number) => Some(x.mul_scalar(*number)?),
            ZeroPoint::Tensor(tensor) => Some(x.mul(&tensor.to_dtype(x.dtype())?)?),
        })
    }
}

/// Whether a tensor is in the memory of the CPU, so that reading it waits for nothing.
fn is_stored(tensor: &Tensor) -> bool {
    tensor.is_evaluated() && tensor.device().name() == "cpu"
}

/// The numbers of an input of floats, if they are in the CPU's memory. While a function is captured, only what the file
/// has: the tensors that stand for arguments have no numbers yet.
pub(super) fn stored_floats(call: &Call<'_>, input: usize) -> Result<Option<Vec<f64>>> {
    let tensor = call.value(input)?.tensor()?;
    if !is_stored(tensor) || capture::is_recording() && !call.is_constant(input) {
        return Ok(None);
    }
    let numbers = capture::outside(|| match tensor.dtype() {
        DType::F32 => Ok(tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect()),
        _ => floats(tensor),
    });
    numbers.map(Some)
}

/// The number that all elements of an input are, if the file has it in the CPU's memory.
pub(super) fn stored_number(call: &Call<'_>, input: usize) -> Result<Option<i64>> {
    let tensor = call.value(input)?.tensor()?;
    if !call.is_constant(input) || !is_stored(tensor) || tensor.dtype().is_float() {
        return Ok(None);
    }
    // What the file has is the same in every run, also of a function that is captured.
    let numbers = capture::outside(|| match tensor.dtype() {
        DType::U8 => Ok(tensor.to_vec::<u8>()?.into_iter().map(i64::from).collect()),
        DType::I8 => Ok(tensor.to_vec::<i8>()?.into_iter().map(i64::from).collect()),
        _ => integers(tensor),
    })?;
    Ok(numbers.first().copied().filter(|first| numbers.iter().all(|number| number == first)))
}
