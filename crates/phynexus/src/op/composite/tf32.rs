//! Products and convolutions whose factors may be rounded.

use std::sync::atomic::{AtomicBool, Ordering};

use super::Composite;
use crate::{
    DType, Error, Result,
    op::{
        Op,
        gradient::{
            linear,
            rule::{Call, InputGradients},
        },
        term::{TensorType, Term},
    },
    shape::Dims,
};

static HIGH: AtomicBool = AtomicBool::new(false);

/// What products and convolutions of `float32` may make of their factors; names are PyTorch's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// Nothing: all is computed in `float32`.
    #[default]
    Highest,
    /// A device may round them to TF32: to 11 bits of a significand, with `float32`'s exponents and sums.
    High,
}

impl MatmulPrecision {
    /// By its name: `highest` or `high`.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other name.
    pub fn from_name(name: &str) -> Result<MatmulPrecision> {
        [MatmulPrecision::Highest, MatmulPrecision::High].into_iter().find(|p| p.name() == name).ok_or_else(
            || {
                let message = format!("{name:?} is no precision of products: give \"highest\" or \"high\"");
                Error::argument("set_float32_matmul_precision", message)
            },
        )
    }

    /// `highest` or `high`.
    pub fn name(self) -> &'static str {
        match self {
            MatmulPrecision::Highest => "highest",
            MatmulPrecision::High => "high",
        }
    }
}

/// Sets the precision of products and convolutions of `float32` that are recorded from now on, by any thread; at the start
/// it is [`MatmulPrecision::Highest`]. Gradients have that of the product they belong to, whenever they are recorded. A
/// device without units that round computes in `float32`, whatever the precision.
pub fn set_float32_matmul_precision(precision: MatmulPrecision) {
    HIGH.store(precision == MatmulPrecision::High, Ordering::Release);
}

/// What [`set_float32_matmul_precision`] set.
pub fn float32_matmul_precision() -> MatmulPrecision {
    if HIGH.load(Ordering::Acquire) { MatmulPrecision::High } else { MatmulPrecision::Highest }
}

/// True if products and convolutions that users ask for may round their factors.
pub(crate) fn may_round() -> bool {
    float32_matmul_precision() == MatmulPrecision::High
}

/// Records a product or a convolution, which rounds its factors if `may_round` and all numbers are `float32`.
pub(crate) fn record(
    may_round: bool,
    op: Op,
    dtype: DType,
    shape: Dims,
    operands: [&Term; 2],
) -> Result<Term> {
    let floats = dtype == DType::F32 && operands.iter().all(|operand| operand.dtype() == DType::F32);
    match may_round && floats {
        true => Composite::Tf32 { op: Box::new(op), shape }.term(&operands),
        false => Term::record(op, dtype, shape, &operands),
    }
}

pub(super) fn check(composite: &Composite, shape: &Dims, inputs: &[TensorType]) -> Result<(DType, Dims)> {
    composite.check_count(inputs, 2)?;
    inputs.iter().try_for_each(|input| composite.check_dtype(input, DType::F32))?;
    Ok((DType::F32, shape.clone()))
}

pub(super) fn body(op: &Op, shape: &Dims, inputs: &[Term]) -> Result<Term> {
    Term::record(op.clone(), DType::F32, shape.clone(), &inputs.iter().collect::<Vec<_>>())
}

/// Those of the exact operation, whose products may round their factors too.
pub(super) fn gradient(op: &Op, call: &Call) -> Result<Option<InputGradients>> {
    match op {
        Op::Dot => call.each(|i| linear::dot(call, i, true)).map(Some),
        Op::Conv(kind, geometry) => call.each(|i| linear::conv(*kind, geometry, call, i, true)).map(Some),
        _ => Ok(None),
    }
}
