//! The table: one row an operation. A new operation does not compile until it has its row.

use smallvec::SmallVec;

use super::{indexing, linear, reduction};
use crate::{
    Error, Result,
    op::{Binary, Combine, Op, PoolKind, Unary, custom, formula::Formula, term::Term},
};

/// What a rule knows: a node, its operands, the gradient of its result, and which operands need theirs.
pub(crate) struct Call<'a> {
    pub(crate) op: &'a Op,
    pub(crate) inputs: &'a [Term],
    pub(crate) output: &'a Term,
    pub(crate) gradient: &'a Term,
    pub(crate) needs: &'a [bool],
}

/// One entry an operand: its gradient, of its shape and dtype, or `None` where it is zero or not needed.
pub(crate) type InputGradients = SmallVec<[Option<Term>; 3]>;

impl Call<'_> {
    /// An operand as a formula.
    pub(in crate::op) fn input(&self, position: usize) -> Formula {
        Formula::of(&self.inputs[position])
    }
    /// The result as a formula.
    pub(in crate::op) fn output(&self) -> Formula {
        Formula::of(self.output)
    }
    /// The gradient of the result as a formula.
    pub(in crate::op) fn gradient(&self) -> Formula {
        Formula::of(self.gradient)
    }
    /// Applies `rule` to the positions of the operands that need a gradient.
    pub(in crate::op) fn each(&self, mut rule: impl FnMut(usize) -> Formula) -> Result<InputGradients> {
        let one = |(position, &needed): (usize, &bool)| needed.then(|| rule(position).term()).transpose();
        self.needs.iter().enumerate().map(one).collect()
    }
    /// Applies a rule for 16-bit floats to the same numbers as `float32`, and rounds what it gives.
    fn in_compute_dtype(&self, rule: impl FnOnce(&Call) -> Result<InputGradients>) -> Result<InputGradients> {
        let dtype = self.gradient.dtype();
        if dtype.compute() == dtype {
            return rule(self);
        }
        let wide = |tensor: &Term| match tensor.dtype() == dtype {
            true => Formula::of(tensor).cast(dtype.compute()).term(),
            false => Ok(tensor.clone()),
        };
        let inputs: SmallVec<[Term; 3]> = self.inputs.iter().map(wide).collect::<Result<_>>()?;
        let (output, gradient) = (wide(self.output)?, wide(self.gradient)?);
        let gradients = rule(&Call {
            op: self.op,
            inputs: &inputs,
            output: &output,
            gradient: &gradient,
            needs: self.needs,
        })?;
        let rounded = |gradient: Option<Term>| {
            gradient.map(|gradient| Formula::of(&gradient).cast(dtype).term()).transpose()
        };
        gradients.into_iter().map(rounded).collect()
    }
    /// No operand has a gradient: the result does not vary with any of them smoothly.
    fn none(&self) -> InputGradients {
        self.inputs.iter().map(|_| None).collect()
    }
}

/// The gradients of a node's operands.
/// [`None`] where a composite has no rule of its own: its body is to be differentiated.
pub(crate) fn input_gradients(call: &Call) -> Result<Option<InputGradients>> {
    if let Op::Composite(composite) = call.op {
        return composite.gradient(call);
    }
    by_rule(call).map(Some)
}

fn by_rule(call: &Call) -> Result<InputGradients> {
    let g = || call.gradient();
    match call.op {
        // No operands, or a result of an integer or bool dtype: no gradient arrives here.
        Op::Constant(_) | Op::Buffer | Op::Iota { .. } | Op::RandomBits => Ok(call.none()),
        Op::ArgReduce { .. } | Op::ArgSort { .. } | Op::SearchSorted { .. } => Ok(call.none()),
        Op::Pool(PoolKind::ArgMax, _) => Ok(call.none()),

        Op::Bitcast => Err(Error::NoGradient {
            op: "bitcast",
            hint: "bits do not vary smoothly: detach() the operand first".to_owned(),
        }),

        Op::Reshape => call.each(|i| g().reshape(call.inputs[i].shape())),
        Op::Permute(order) => call.each(|_| indexing::inverse_permute(&g(), order)),
        Op::Expand => call.each(|i| reduction::sum_to(&g(), call.inputs[i].shape())),
        Op::Contiguous => call.each(|_| g()),
        Op::Copy => call.each(|i| {
            g().then(|g| call.inputs[i].record_beside(Op::Copy, g.dtype(), g.shape().into(), &[g]))
        }),
        Op::Pad { padding, .. } => call.each(|i| indexing::unpad(&g(), padding, call.inputs[i].shape())),
        Op::Slice { start, step } => {
            call.each(|i| indexing::unslice(&g(), start, step, call.inputs[i].shape()))
        }
        Op::Cat { axis } => indexing::cat(call, *axis),

        Op::Unary(function) => call.in_compute_dtype(|call| call.each(|_| unary(*function, call))),
        Op::Binary(function @ (Binary::Add | Binary::Sub)) => call.each(|i| binary(*function, call, i)),
        Op::Binary(function) => call.in_compute_dtype(|call| call.each(|i| binary(*function, call, i))),
        Op::Where => call.each(|i| {
            let zero = g().like(0.0);
            if i == 1 { call.input(0).choose(&g(), &zero) } else { call.input(0).choose(&zero, &g()) }
        }),
        Op::Cast => call.each(|i| g().cast(call.inputs[i].dtype())),

        Op::Reduce { combine: Combine::Sum, axes } => {
            call.each(|_| reduction::reduce(Combine::Sum, *axes, call))
        }
        Op::Reduce { combine, axes } => {
            call.in_compute_dtype(|call| call.each(|_| reduction::reduce(*combine, *axes, call)))
        }
        Op::Scan { combine, axis, reverse } => {
            call.in_compute_dtype(|call| call.each(|_| reduction::scan(*combine, *axis, *reverse, call)))
        }

        Op::Gather(range) => call.each(|_| indexing::gather(*range, call)),
        Op::Scatter(mode, range) => call.each(|i| indexing::scatter(*mode, *range, call, i)),

        Op::Dot => call.each(|i| linear::dot(call, i, false)),
        Op::Conv(kind, geometry) => call.each(|i| linear::conv(*kind, geometry, call, i, false)),
        Op::Pool(kind, geometry) => call.each(|_| linear::pool(*kind, geometry, call)),

        Op::Custom(custom) => custom::gradient::input_gradients(custom, call),
        Op::Composite(composite) => Err(Error::internal("gradients", composite.name())),
    }
}

/// The gradient of the operand of a function of one element. Where a derivative does not exist the value is PyTorch's: 0 for
/// steps and for `abs` at 0, half to each operand where a maximum or minimum meets equals.
fn unary(function: Unary, call: &Call) -> Formula {
    (function.row().gradient)(&call.gradient(), &call.input(0), &call.output())
}

/// The gradient of operand `position` of a function of two elements.
fn binary(function: Binary, call: &Call, position: usize) -> Formula {
    let gradient = function.row().gradient[position];
    gradient(&call.gradient(), &call.input(0), &call.input(1), &call.output())
}

/// What the rule of an operation reads: of what it does not, no value is kept for the gradient.
#[derive(Clone, Copy)]
pub(crate) struct Reads {
    operands: Operands,
    /// True if it reads the result.
    pub(crate) result: bool,
}

/// Which operands a rule reads.
#[derive(Clone, Copy)]
enum Operands {
    Nothing,
    All,
    /// The first.
    First,
    /// Each of two if the other one needs a gradient.
    Crosswise,
}

impl Reads {
    pub(crate) const NOTHING: Reads = Reads { operands: Operands::Nothing, result: false };
    pub(crate) const RESULT: Reads = Reads { operands: Operands::Nothing, result: true };
    const FIRST: Reads = Reads { operands: Operands::First, result: false };
    pub(in crate::op) const CROSSWISE: Reads = Reads { operands: Operands::Crosswise, result: false };
    pub(crate) const OPERANDS: Reads = Reads { operands: Operands::All, result: false };
    pub(in crate::op) const EVERYTHING: Reads = Reads { operands: Operands::All, result: true };

    /// True if it reads this operand; `needs` tells which operands need a gradient.
    pub(crate) fn operand(&self, position: usize, needs: impl Fn(usize) -> bool) -> bool {
        match self.operands {
            Operands::Nothing => false,
            Operands::All => true,
            Operands::First => position == 0,
            Operands::Crosswise => needs(1 - position),
        }
    }
}

/// What [`input_gradients`] reads of an operation.
pub(crate) fn reads(op: &Op) -> Reads {
    match op {
        Op::Constant(_) | Op::Buffer | Op::Iota { .. } | Op::RandomBits => Reads::NOTHING,
        Op::ArgReduce { .. } | Op::ArgSort { .. } | Op::SearchSorted { .. } => Reads::NOTHING,
        Op::Bitcast | Op::Reshape | Op::Permute(_) | Op::Expand | Op::Contiguous | Op::Copy => Reads::NOTHING,
        Op::Pad { .. } | Op::Slice { .. } | Op::Cat { .. } | Op::Cast => Reads::NOTHING,
        Op::Unary(function) => function.row().reads,
        Op::Binary(function) => function.row().reads,
        Op::Where => Reads::FIRST,
        Op::Reduce { combine: Combine::Sum, .. } | Op::Scan { combine: Combine::Sum, .. } => Reads::NOTHING,
        Op::Reduce { .. } | Op::Scan { .. } => Reads::EVERYTHING,
        Op::Gather(_) => Reads::OPERANDS,
        Op::Scatter(..) | Op::Custom(_) => Reads::EVERYTHING,
        Op::Dot | Op::Conv(..) => Reads::CROSSWISE,
        Op::Pool(PoolKind::Sum | PoolKind::Spread, _) => Reads::NOTHING,
        Op::Pool(PoolKind::Max | PoolKind::ArgMax, _) => Reads::OPERANDS,
        Op::Composite(composite) => composite.gradient_reads(),
    }
}
