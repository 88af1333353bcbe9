//! Products and convolutions of `float32` on units that multiply narrower numbers.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU8, Ordering},
};

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

/// Two inputs. A product or convolution of `float32` that a device may compute in this precision; see
/// [`set_float32_matmul_precision`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InPrecision {
    /// What it is in [`MatmulPrecision::Highest`].
    pub op: Box<Op>,
    /// The result's shape.
    pub shape: Dims,
    /// The precision: another one.
    pub precision: MatmulPrecision,
}

static PRECISION: AtomicU8 = AtomicU8::new(MatmulPrecision::Highest as u8);

/// What products and convolutions of `float32` may make of their factors; `highest` and `high` are PyTorch's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// Nothing: all is computed in `float32`.
    #[default]
    Highest,
    /// A device may round them to TF32: to 11 bits of a significand, with `float32`'s exponents and sums.
    High,
    /// A matrix product may be the sum of six products of `bfloat16` numbers: each factor is the sum of three, exactly,
    /// of which the products of two small ones are left out. Sums are of `float32`'s accuracy; but products with
    /// infinite factors may be NaN, and parts of numbers below 1e-33 may be lost. Convolutions are as in `Highest`.
    Split,
}

impl MatmulPrecision {
    /// All precisions.
    pub const ALL: [MatmulPrecision; 3] =
        [MatmulPrecision::Highest, MatmulPrecision::High, MatmulPrecision::Split];

    /// By its name: `highest`, `high` or `split`.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other name.
    pub fn from_name(name: &str) -> Result<MatmulPrecision> {
        MatmulPrecision::ALL.into_iter().find(|p| p.name() == name).ok_or_else(|| {
            let message = format!("expected \"highest\", \"high\" or \"split\", got {name:?}");
            Error::argument("set_float32_matmul_precision", message)
        })
    }

    /// `highest`, `high` or `split`.
    pub fn name(self) -> &'static str {
        match self {
            MatmulPrecision::Highest => "highest",
            MatmulPrecision::High => "high",
            MatmulPrecision::Split => "split",
        }
    }
}

/// Sets the precision of products and convolutions of `float32` that are recorded from now on, by any thread; at the
/// start it is [`MatmulPrecision::Highest`]. Gradients have that of the product they belong to, whenever they are
/// recorded. A device without such units computes in `float32`, whatever the precision.
pub fn set_float32_matmul_precision(precision: MatmulPrecision) {
    PRECISION.store(precision as u8, Ordering::Release);
}

thread_local! {
    static OF_THREAD: Cell<Option<MatmulPrecision>> = const { Cell::new(None) };
}

/// Sets the precision of what this thread records from now on, whatever that of the process is; `None` ends that.
/// Returns what was set before.
pub fn set_thread_matmul_precision(precision: Option<MatmulPrecision>) -> Option<MatmulPrecision> {
    OF_THREAD.replace(precision)
}

/// What [`set_thread_matmul_precision`] set for this thread, otherwise what [`set_float32_matmul_precision`] set.
pub fn float32_matmul_precision() -> MatmulPrecision {
    if let Some(precision) = OF_THREAD.get() {
        return precision;
    }
    let set = PRECISION.load(Ordering::Acquire);
    MatmulPrecision::ALL.into_iter().find(|&precision| precision as u8 == set).unwrap_or_default()
}

/// Records a product or a convolution, in this precision if it has it and all numbers are `float32`.
pub(crate) fn record(
    precision: MatmulPrecision,
    op: Op,
    dtype: DType,
    shape: Dims,
    operands: [&Term; 2],
) -> Result<Term> {
    let floats = dtype == DType::F32 && operands.iter().all(|operand| operand.dtype() == DType::F32);
    let differs = match precision {
        MatmulPrecision::Highest => false,
        MatmulPrecision::High => true,
        MatmulPrecision::Split => op == Op::Dot,
    };
    match differs && floats {
        true => Composite::term(InPrecision { op: Box::new(op), shape, precision }, &operands),
        false => Term::record(op, dtype, shape, &operands),
    }
}

impl Definition for InPrecision {
    fn name(&self) -> &'static str {
        match *self.op {
            Op::Dot if self.precision == MatmulPrecision::Split => "dot_split",
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

    /// Those of the exact operation, in the same precision.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        match &*self.op {
            Op::Dot => call.each(|i| dot::operand_gradient(call, i, self.precision)),
            Op::Conv(conv) => call.each(|i| conv.operand_gradient(call, i, self.precision)),
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
            let precision = MatmulPrecision::High;
            Sample::new(InPrecision { op: Box::new(op), shape: shape.into(), precision }, operands)
        };
        let split = |m: usize, k: usize, n: usize| {
            let operands = [[m, k], [k, n]].map(|shape| SampleOperand::new(&shape).fixed(DType::F32));
            let (op, shape) = (Box::new(Op::Dot), [m, n].as_slice().into());
            Sample::new(InPrecision { op, shape, precision: MatmulPrecision::Split }, operands)
        };
        vec![
            call(Op::Dot, &[6, 10], [&[6, 8], &[8, 10]]),
            split(6, 8, 10),
            split(72, 200, 136),
            split(128, 128, 64),
            call(conv(ConvKind::Forward), &y, [&x, &w]),
            call(conv(ConvKind::InputGradient), &x, [&y, &w]),
            call(conv(ConvKind::FilterGradient), &w, [&x, &y]),
        ]
    }
}
