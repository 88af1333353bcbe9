//! The table: one row an operation. A new operation does not compile until it has its row.

use smallvec::SmallVec;

use super::{elementwise, indexing, linear, reduction};
use crate::{
    Error, Result, Tensor,
    graph::{
        formula::Formula,
        op::{Op, PoolKind},
    },
};

/// What a rule knows: a node, its operands, the gradient of its result, and which operands need theirs.
pub(crate) struct Call<'a> {
    pub(crate) inputs: &'a [Tensor],
    pub(crate) output: &'a Tensor,
    pub(crate) gradient: &'a Tensor,
    pub(crate) needs: &'a [bool],
}

/// One entry an operand: its gradient, of its shape and dtype, or `None` where it is zero or not needed.
pub(crate) type InputGradients = SmallVec<[Option<Tensor>; 3]>;

impl Call<'_> {
    /// An operand as a formula.
    pub(in crate::graph) fn input(&self, position: usize) -> Formula {
        Formula::of(&self.inputs[position])
    }
    /// The result as a formula.
    pub(in crate::graph) fn output(&self) -> Formula {
        Formula::of(self.output)
    }
    /// The gradient of the result as a formula.
    pub(in crate::graph) fn gradient(&self) -> Formula {
        Formula::of(self.gradient)
    }
    /// Applies `rule` to the positions of the operands that need a gradient.
    pub(in crate::graph) fn each(&self, mut rule: impl FnMut(usize) -> Formula) -> Result<InputGradients> {
        let one = |(position, &needed): (usize, &bool)| needed.then(|| rule(position).tensor()).transpose();
        self.needs.iter().enumerate().map(one).collect()
    }
    /// No operand has a gradient: the result does not vary with any of them smoothly.
    fn none(&self) -> InputGradients {
        self.inputs.iter().map(|_| None).collect()
    }
}

/// The gradients of a node's operands.
pub(super) fn input_gradients(call: &Call) -> Result<InputGradients> {
    let g = || call.gradient();
    match call.output.node().op() {
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
            let home = call.inputs[i].device();
            g().then(|g| Tensor::record_on(home, Op::Copy, g.dtype(), g.shape().into(), &[g]))
        }),
        Op::Pad { padding, .. } => call.each(|i| indexing::unpad(&g(), padding, call.inputs[i].shape())),
        Op::Slice { start, step } => {
            call.each(|i| indexing::unslice(&g(), start, step, call.inputs[i].shape()))
        }
        Op::Cat { axis } => indexing::cat(call, *axis),

        Op::Unary(function) => call.each(|_| elementwise::unary(*function, call)),
        Op::Binary(function) => call.each(|i| elementwise::binary(*function, call, i)),
        Op::Where => call.each(|i| {
            let zero = g().like(0.0);
            if i == 1 { call.input(0).choose(&g(), &zero) } else { call.input(0).choose(&zero, &g()) }
        }),
        Op::Cast => call.each(|i| g().cast(call.inputs[i].dtype())),

        Op::Reduce { combine, axes } => call.each(|_| reduction::reduce(*combine, *axes, call)),
        Op::Scan { combine, axis, reverse } => {
            call.each(|_| reduction::scan(*combine, *axis, *reverse, call))
        }

        Op::Gather => call.each(|_| indexing::gather(call)),
        Op::Scatter(mode) => call.each(|i| indexing::scatter(*mode, call, i)),

        Op::Dot => call.each(|i| linear::dot(call, i, false)),
        Op::Conv(kind, geometry) => call.each(|i| linear::conv(*kind, geometry, call, i, false)),
        Op::Pool(kind, geometry) => call.each(|_| linear::pool(*kind, geometry, call)),

        Op::Custom(custom) => crate::custom::input_gradients(custom, call),

        Op::Composite(composite) => match composite.gradient(call)? {
            Some(gradients) => Ok(gradients),
            None => super::sweep::differentiate_body(composite, call),
        },
    }
}
