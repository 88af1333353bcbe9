//! Products and convolutions whose factors may be rounded.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Composite, Definition, check,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result,
    op::{
        Conv, ConvKind, Geometry, Op,
        gradient::rule::{Call, InputGradients, Reads},
        primitive::dot,
        term::{TensorType, Term},
    },
    shape::Dims,
    text::show_shape,
};

/// Two inputs. A product or convolution of `float32` whose factors a device may round to TF32: to 11 bits of a
/// significand. See [`set_float32_matmul_precision`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tf32 {
    /// What it is without roundings.
    pub op: Box<Op>,
    /// The result's shape.
    pub shape: Dims,
}

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
                let message = format!("expected \"highest\" or \"high\", got {name:?}");
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
        true => Composite::term(Tf32 { op: Box::new(op), shape }, &operands),
        false => Term::record(op, dtype, shape, &operands),
    }
}

impl Definition for Tf32 {
    fn name(&self) -> &'static str {
        match *self.op {
            Op::Dot => "dot_tf32",
            Op::Conv(Conv(ConvKind::InputGradient, _)) => "conv_input_gradient_tf32",
            Op::Conv(Conv(ConvKind::FilterGradient, _)) => "conv_filter_gradient_tf32",
            _ => "conv_tf32",
        }
    }

    fn attributes(&self) -> String {
        format!("shape={}", show_shape(&self.shape))
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 2)?;
        operands.iter().try_for_each(|operand| check::dtype(self.name(), operand, DType::F32))?;
        Ok((DType::F32, self.shape.clone()))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let operands: Vec<&Term> = operands.iter().collect();
        Term::record((*self.op).clone(), DType::F32, self.shape.clone(), &operands)
    }

    /// Those of the exact operation, whose products may round their factors too.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        match &*self.op {
            Op::Dot => call.each(|i| dot::operand_gradient(call, i, true)),
            Op::Conv(conv) => call.each(|i| conv.operand_gradient(call, i, true)),
            _ => Ok(None),
        }
    }

    fn gradient_reads(&self) -> Reads {
        self.op.operation().gradient_reads()
    }

    fn samples() -> Vec<Sample> {
        let pair = |x: usize| Dims::from_slice(&[x, x]);
        let padding = [(1, 1); 2].into_iter().collect();
        let geometry = Geometry { kernel: pair(3), stride: pair(1), dilation: pair(1), padding, groups: 1 };
        let conv = |kind| Op::Conv(Conv(kind, geometry.clone()));
        let (x, w, y) = ([1, 2, 5, 6], [3, 2, 3, 3], [1, 3, 5, 6]);
        let call = |op: Op, shape: &[usize], operands: [&[usize]; 2]| {
            let operands = operands.map(|shape| SampleOperand::new(shape).fixed(DType::F32));
            Sample::new(Tf32 { op: Box::new(op), shape: shape.into() }, operands)
        };
        vec![
            call(Op::Dot, &[6, 10], [&[6, 8], &[8, 10]]),
            call(conv(ConvKind::Forward), &y, [&x, &w]),
            call(conv(ConvKind::InputGradient), &x, [&y, &w]),
            call(conv(ConvKind::FilterGradient), &w, [&x, &y]),
        ]
    }
}
