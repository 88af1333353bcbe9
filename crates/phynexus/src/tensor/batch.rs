//! Functions of one example, computed for a batch of examples.
//!
//! The function is called once, with tensors that stand for one example and have no values. What it records is then
//! recorded again for the whole batch, by the rules of `op::batch`.

use std::sync::Arc;

use smallvec::SmallVec;

pub use crate::schedule::batching::{Randomness, is_tracing};
use crate::{
    Error, Result, Tensor,
    graph::{
        hooks_of,
        node::{Node, Sources, intern},
    },
    hash::{FastMap, FastSet},
    op::{
        Composite, Op,
        batch::{Batch, Example, Operand},
        gradient::record_gradients,
        term::Term,
    },
    schedule::batching::Tracing,
};

/// A result of a batched function.
pub struct BatchResult {
    /// With the batch as the first axis, if it depends on the example.
    pub tensor: Tensor,
    /// Whether it has the batch.
    pub is_batched: bool,
}

impl Tensor {
    /// Computes `function`, of tensors of one example, for a batch: `arguments` have the batch as their first axis,
    /// whose size is `size`. Gradients flow through the results, and calls can be nested.
    ///
    /// The function must not read values of tensors, and tensors that depend on its arguments must leave it as results
    /// only.
    ///
    /// # Errors
    /// Those of the function; [`Error::Shape`] for arguments of another size; [`Error::Argument`] for an empty batch, a
    /// value that is read, and operations that cannot be computed for a batch.
    pub fn vmap<E: From<Error>>(
        arguments: &[&Tensor],
        size: usize,
        randomness: Randomness,
        function: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>, E>,
    ) -> Result<Vec<BatchResult>, E> {
        if size == 0 {
            return Err(Error::argument("vmap", "the batch has no examples").into());
        }
        let mut done: FastMap<u64, Operand> = FastMap::default();
        let mut examples = Vec::with_capacity(arguments.len());
        for argument in arguments {
            let [extent, shape @ ..] = argument.shape() else {
                return Err(
                    Error::shape("vmap", &[argument.shape()], "expected a first axis for the batch").into()
                );
            };
            if *extent != size {
                return Err(
                    Error::shape("vmap", &[argument.shape()], format!("expected {size} examples")).into()
                );
            }
            let signature = intern(Op::Buffer, argument.dtype(), shape.into());
            let node = Node::pending(signature, argument.device(), Sources::new(), argument.requires_grad());
            done.insert(node.number, Operand { term: argument.term(), is_batched: true });
            let example = Tensor::from_node(node);
            example.note_bounds_of(argument);
            examples.push(example);
        }
        let Some(first) = examples.first().map(|example| example.node().number) else {
            return Err(Error::argument("vmap", "no argument has a batch").into());
        };
        let tracing = Tracing::begin(size, randomness);
        let results = function(&examples);
        drop(tracing);
        let batch = Batch { size, draws_for_each: randomness == Randomness::Different };
        Ok(batched(batch, &results?, first, done)?)
    }

    /// Returns a tensor with the same values that gradients can be computed for: of a leaf, or of a tensor without
    /// values within [`Tensor::vmap`]. This tensor must not require gradients.
    ///
    /// # Errors
    /// Those of [`Tensor::with_grad`].
    pub fn as_variable(&self) -> Result<Tensor> {
        if !is_tracing() || self.is_evaluated() || !self.dtype().is_float() || self.dtype().float8().is_some()
        {
            return self.with_grad();
        }
        let signature = intern(Op::Reshape, self.dtype(), self.shape().into());
        let source = SmallVec::from_iter([self.node().clone()]);
        Ok(Tensor::from_node(Node::pending(signature, self.device(), source, true)))
    }
}

/// Records the graphs of results again, as far as they came after the node with this number and depend on what is
/// `done`.
fn batched(
    batch: Batch,
    results: &[Tensor],
    first: u64,
    mut done: FastMap<u64, Operand>,
) -> Result<Vec<BatchResult>> {
    for node in recorded_since(first, results) {
        if done.contains_key(&node.number) {
            continue;
        }
        let sources = node.sources();
        let draws = batch.draws_for_each
            && matches!(node.op(), Op::RandomBits | Op::Composite(Composite::Attention(_)));
        if !draws && !sources.iter().any(|source| done.contains_key(&source.number)) {
            continue;
        }
        let operand = |source: &Arc<Node>| match done.get(&source.number) {
            Some(operand) => operand.clone(),
            None => Operand { term: Term::Recorded(source.clone()), is_batched: false },
        };
        let operands: SmallVec<[Operand; 3]> = sources.iter().map(operand).collect();
        let example = Example { op: node.op(), dtype: node.signature.dtype, shape: &node.signature.shape };
        // What the function recorded without gradients stays without.
        let _mode = record_gradients(node.requires_grad);
        let result = batch.record(&Term::Recorded(node.clone()), &example, &operands)?;
        let differentiated = Tensor::from_term(&result.term)?.requires_grad();
        if differentiated && hooks_of(&node).is_some_and(|hooks| !hooks.is_empty()) {
            return Err(Error::argument(
                "vmap",
                "a hook or an autograd.Function in the function sees the gradient of one example, so gradients cannot \
                 be computed from outside: compute them within, as vmap(grad(f)) does",
            ));
        }
        done.insert(node.number, result);
    }
    let result = |tensor: &Tensor| {
        Ok(match done.get(&tensor.node().number) {
            Some(Operand { term, is_batched }) => {
                BatchResult { tensor: Tensor::from_term(term)?, is_batched: *is_batched }
            }
            None => BatchResult { tensor: tensor.clone(), is_batched: false },
        })
    };
    results.iter().map(result).collect()
}

/// The nodes that these tensors were computed by, from the one with this number on, in order.
fn recorded_since(first: u64, tensors: &[Tensor]) -> Vec<Arc<Node>> {
    let mut seen: FastSet<u64> = FastSet::default();
    let mut stack: Vec<Arc<Node>> = tensors.iter().map(|tensor| tensor.node().clone()).collect();
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        if node.number >= first && seen.insert(node.number) {
            stack.extend(node.sources());
            found.push(node);
        }
    }
    found.sort_unstable_by_key(|node| node.number);
    found
}
