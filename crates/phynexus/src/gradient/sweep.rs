//! The backward sweep from a loss to its leaves. It visits nodes in decreasing order of creation, so each node's
//! gradient is complete when it is visited. There is no recursion. Time and memory are linear in the graph.

use std::{cmp::Reverse, sync::Arc};

use smallvec::SmallVec;

use super::{
    accumulate, anomaly,
    reduce::{Found, LeafGradient, reduce, store},
    segment::Running,
};
use crate::{
    Error, Result, Tensor,
    graph::{hooks_of, node::Node},
    hash::{FastMap, FastSet},
    interrupt::{self, Shield},
    op::{
        Op,
        composite::Composite,
        formula::Formula,
        gradient::{GradientMode, is_enabled, no_grad, record_gradients, rule},
        term::Term,
    },
    schedule::capture::is_recording,
};

/// Gradients of a loss with respect to its leaves.
///
/// An optimiser takes this by value and moves each gradient out. No handle to a gradient then stays alive while the
/// update is computed, and the gradient's memory can be reused at once.
#[derive(Default)]
pub struct Gradients {
    /// Sorted by the leaf's number, ascending.
    leaves: Vec<(u64, Option<Tensor>)>,
}

impl Gradients {
    /// Moves the gradients collected by [`Tensor::backward`] out of these leaves. Leaves without a gradient are
    /// skipped.
    pub fn take_from(leaves: &[&Tensor]) -> Gradients {
        let take = |leaf: &&Tensor| {
            let gradient = leaf.node().body().grad.take()?;
            Some((leaf.node().number, Some(gradient)))
        };
        let mut leaves: Vec<_> = leaves.iter().filter_map(take).collect();
        leaves.sort_unstable_by_key(|(number, _)| *number);
        Gradients { leaves }
    }

    fn position(&self, leaf: &Tensor) -> Option<usize> {
        self.leaves.binary_search_by_key(&leaf.node().number, |(number, _)| *number).ok()
    }

    /// Returns the gradient of this leaf, if the loss depends on it.
    pub fn get(&self, leaf: &Tensor) -> Option<&Tensor> {
        self.leaves[self.position(leaf)?].1.as_ref()
    }

    /// Moves the gradient of this leaf out.
    pub fn take(&mut self, leaf: &Tensor) -> Option<Tensor> {
        let position = self.position(leaf)?;
        self.leaves[position].1.take()
    }

    /// Iterates over the gradients not yet taken, in order of creation of their leaves.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.leaves.iter().filter_map(|(_, gradient)| gradient.as_ref())
    }

    /// Replaces every gradient by a function of it, such as clipping or scaling.
    pub fn try_map(mut self, mut function: impl FnMut(Tensor) -> Result<Tensor>) -> Result<Gradients> {
        for (_, gradient) in &mut self.leaves {
            *gradient = gradient.take().map(&mut function).transpose()?;
        }
        Ok(self)
    }

    /// The number of gradients not yet taken.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether no gradients are left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tensor {
    /// Computes the gradients of this scalar loss and adds them to [`Tensor::grad`] of every leaf that requires
    /// gradients.
    ///
    /// The graph is then released: intermediate results are freed as soon as nothing needs them, and a second call
    /// through them is an error.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the tensor has exactly one element. [`Error::NoGradient`] if no leaf requires gradients,
    /// if an operation on the path has no gradient, or if the graph was released.
    pub fn backward(&self) -> Result<()> {
        self.backward_from(&self.unit_gradient("backward")?, false)
    }

    /// Like [`Tensor::backward`], but keeps the graph for another call.
    pub fn backward_retain(&self) -> Result<()> {
        self.backward_from(&self.unit_gradient("backward")?, true)
    }

    /// Like [`Tensor::backward`] for a tensor of any shape, given the gradient of some loss with respect to it.
    /// `output_gradient` has this tensor's shape and dtype.
    pub fn backward_from(&self, output_gradient: &Tensor, retain_graph: bool) -> Result<()> {
        let _guard = no_grad();
        let gradients = self.sweep_to_leaves(output_gradient, retain_graph, false)?;
        let found = reduce(gradients, true)?;
        // The graph may already be released, so an interruption must not leave some leaves without their gradients.
        let _shield = Shield::new();
        store(found)
    }

    /// Like [`Tensor::backward_from`], but the collected gradients can be differentiated again. `output_gradient`
    /// defaults to 1 for a scalar. The graph lives as long as a leaf keeps such a gradient, so take the gradients out
    /// in the end.
    pub fn backward_create_graph(&self, output_gradient: Option<&Tensor>) -> Result<()> {
        let unit =
            output_gradient.map_or_else(|| self.unit_gradient("backward"), |given| Ok(given.clone()))?;
        let _guard = record_gradients(true);
        let gradients = self.sweep_to_leaves(&unit, true, true)?;
        let found = reduce(gradients, true)?;
        let _shield = Shield::new();
        store(found)
    }

    /// Returns the leaves that require gradients and on which this tensor depends, and variables without values (see
    /// [`Tensor::as_variable`]).
    ///
    /// # Errors
    /// [`Error::NoGradient`] if the graph was released.
    pub fn gradient_leaves(&self) -> Result<Vec<Tensor>> {
        if !self.requires_grad() {
            return Ok(Vec::new());
        }
        let sweep = Sweep::to_leaves(&[self])?;
        let is_first = |node: &&Arc<Node>| !node.body().sources.iter().any(|source| source.requires_grad);
        Ok(sweep.path.iter().filter(is_first).map(|node| Tensor::from_node(node.clone())).collect())
    }

    /// Returns whether gradients can flow from this tensor to others: it is not a leaf, and no backward pass has
    /// released the graph that it was computed with.
    pub fn has_graph(&self) -> bool {
        !self.is_leaf() && self.gradient_leaves().is_ok_and(|leaves| !leaves.is_empty())
    }

    /// Marks whether another leaf has replaced this one. [`Tensor::backward`] to a replaced leaf is an error, because
    /// its gradient would be lost.
    pub fn set_replaced(&self, replaced: bool) {
        self.node().body().replaced = replaced;
    }

    /// Like [`Tensor::backward`], but returns the gradients instead of storing them.
    pub fn leaf_gradients(&self) -> Result<Gradients> {
        let swept = self.sweep_to_leaves(&self.unit_gradient("leaf_gradients")?, false, false)?;
        let _guard = no_grad();
        let Found { own, reduced } = reduce(swept, false)?;
        let mut leaves: Vec<_> =
            own.into_iter().chain(reduced).map(|(leaf, g)| (leaf.node().number, Some(g))).collect();
        leaves.sort_unstable_by_key(|(number, _)| *number);
        Ok(Gradients { leaves })
    }

    /// Returns the gradients of this scalar with respect to any tensors of its graph. The graph is kept, and `grad()`
    /// does not change.
    ///
    /// If the loss does not depend on a tensor, its gradient is zero. The results do not require gradients; see
    /// [`Tensor::gradients_create_graph`].
    ///
    /// # Errors
    /// Like [`Tensor::backward`]; also [`Error::NoGradient`] for a tensor that does not require gradients.
    pub fn gradients(&self, with_respect_to: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.vector_jacobian_product(&self.unit_gradient("gradients")?, with_respect_to, false)
    }

    /// Like [`Tensor::gradients`], with results that can be differentiated again.
    pub fn gradients_create_graph(&self, with_respect_to: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.vector_jacobian_product(&self.unit_gradient("gradients")?, with_respect_to, true)
    }

    /// Computes the product of `output_gradient` with the Jacobian of this tensor with respect to each tensor in
    /// `with_respect_to`. `output_gradient` has this tensor's shape and dtype. If `create_graph`, the results can be
    /// differentiated again.
    pub fn vector_jacobian_product(
        &self,
        output_gradient: &Tensor,
        with_respect_to: &[&Tensor],
        create_graph: bool,
    ) -> Result<Vec<Tensor>> {
        self.check_output_gradient("gradients", output_gradient)?;
        if with_respect_to.iter().any(|t| !t.requires_grad()) {
            let op = "a tensor to differentiate with respect to";
            return Err(Error::NoGradient { op, hint: ASK_FOR_GRADIENTS.to_owned() });
        }
        self.swept(
            Sweep::towards(&[self], with_respect_to, None)?,
            output_gradient,
            with_respect_to,
            create_graph,
        )
    }

    /// The gradients that a sweep finds for these tensors; zero for those that this one does not depend on.
    pub(super) fn swept(
        &self,
        sweep: Sweep,
        output_gradient: &Tensor,
        with_respect_to: &[&Tensor],
        create_graph: bool,
    ) -> Result<Vec<Tensor>> {
        let swept = sweep.run(&[(self, output_gradient)], create_graph)?;
        let found = |target: &&Tensor| match swept.gradients.get(&target.node().number) {
            Some(gradient) => Ok(gradient.clone()),
            None => Formula::of(*target).like(0.0).tensor(),
        };
        with_respect_to.iter().map(found).collect()
    }

    /// Returns the gradients of leaves, and of other tensors that retain theirs.
    fn sweep_to_leaves(
        &self,
        output_gradient: &Tensor,
        retain_graph: bool,
        create_graph: bool,
    ) -> Result<Vec<LeafGradient>> {
        self.check_output_gradient("backward", output_gradient)?;
        Sweep::to_leaves(&[self])?.gradients(&[(self, output_gradient)], retain_graph, create_graph)
    }

    pub(super) fn unit_gradient(&self, op: &'static str) -> Result<Tensor> {
        if self.len() != 1 {
            let given = if op == "gradients" { "vector_jacobian_product()" } else { "backward_from()" };
            let hint = format!(
                "the output gradient is implicit only for a scalar: reduce it with sum() or mean(), or pass the \
                 output gradient with {given}"
            );
            return Err(Error::shape(op, &[self.shape()], hint));
        }
        Formula::of(self).like(1.0).tensor()
    }

    pub(super) fn check_output_gradient(&self, op: &'static str, gradient: &Tensor) -> Result<()> {
        if !self.requires_grad() {
            return Err(Error::NoGradient { op: "this tensor", hint: ASK_FOR_GRADIENTS.to_owned() });
        }
        if gradient.shape() != self.shape() {
            return Err(Error::shape(
                op,
                &[self.shape(), gradient.shape()],
                "the output gradient must have the output's shape",
            ));
        }
        if gradient.dtype() != self.dtype() {
            return Err(Error::dtype(
                op,
                &[self.dtype(), gradient.dtype()],
                "the output gradient must have the output's dtype",
            ));
        }
        Ok(())
    }
}

const ASK_FOR_GRADIENTS: &str = "it depends on no tensor that requires gradients: make leaves with .with_grad(), and compute outside \
     no_grad()";

/// Differentiates a composite through its body, for the `inputs` marked in `needs`.
fn differentiate_body(composite: &Composite, call: &rule::Call) -> Result<rule::InputGradients> {
    let create_graph = is_enabled();
    let output = {
        let _guard = record_gradients(true);
        Tensor::from_term(&composite.body(call.inputs)?)?
    };
    let mut gradients: rule::InputGradients = call.inputs.iter().map(|_| None).collect();
    if !output.requires_grad() {
        return Ok(gradients);
    }
    let inputs: Vec<Tensor> = call.inputs.iter().map(Tensor::from_term).collect::<Result<_>>()?;
    let targets: Vec<&Tensor> = inputs.iter().zip(call.needs).filter(|(_, n)| **n).map(|(t, _)| t).collect();
    // Nodes older than the body belong to the caller's sweep.
    let boundary = inputs.iter().map(|t| t.node().number).max();
    let gradient = Tensor::from_term(call.gradient)?;
    let mut swept =
        Sweep::towards(&[&output], &targets, boundary)?.run(&[(&output, &gradient)], create_graph)?;
    if !create_graph {
        let is_inner = |node: &&Arc<Node>| Some(node.number) > boundary;
        swept.path.iter().filter(is_inner).for_each(|node| node.release());
    }
    // An input that appears twice has one gradient, which is assigned to its first position.
    for (gradient, input) in gradients.iter_mut().zip(&inputs) {
        *gradient = swept.gradients.remove(&input.node().number).map(|found| found.term());
    }
    Ok(gradients)
}

/// The path of a sweep.
pub(super) struct Sweep {
    /// The nodes to visit, latest first.
    pub(super) path: Vec<Arc<Node>>,
    /// The nodes whose gradients are wanted; `None` for the leaves.
    pub(super) targets: Option<FastSet<u64>>,
    /// The nodes of the path that depend on a target; `None` for all.
    useful: Option<FastSet<u64>>,
    /// The sweep stops at nodes up to this number.
    pub(super) boundary: Option<u64>,
    /// The hooks of the targets are left to another sweep.
    pub(super) before_hooks: bool,
}

/// The result of a sweep.
pub(super) struct Swept {
    path: Vec<Arc<Node>>,
    pub(super) gradients: FastMap<u64, Tensor>,
}

impl Sweep {
    pub(super) fn to_leaves(roots: &[&Tensor]) -> Result<Sweep> {
        Sweep::to_boundary(roots, None)
    }

    pub(super) fn to_boundary(roots: &[&Tensor], boundary: Option<u64>) -> Result<Sweep> {
        let mut sweep =
            Sweep { path: Vec::new(), targets: None, useful: None, boundary, before_hooks: false };
        sweep.collect(roots, 0)?;
        Ok(sweep)
    }

    pub(super) fn towards(roots: &[&Tensor], targets: &[&Tensor], boundary: Option<u64>) -> Result<Sweep> {
        let numbers: FastSet<u64> = targets.iter().map(|t| t.node().number).collect();
        let first = numbers.iter().copied().min().unwrap_or(u64::MAX);
        let targets = Some(numbers.clone());
        let mut sweep = Sweep { path: Vec::new(), targets, useful: None, boundary, before_hooks: false };
        sweep.collect(roots, first)?;
        let mut useful = numbers;
        for node in sweep.path.iter().rev() {
            if !useful.contains(&node.number)
                && sweep.passes(node)
                && node.body().sources.iter().any(|s| useful.contains(&s.number))
            {
                useful.insert(node.number);
            }
        }
        sweep.useful = Some(useful);
        Ok(sweep)
    }

    /// Returns whether the sweep continues from this node to its operands.
    pub(super) fn passes(&self, node: &Node) -> bool {
        *node.op() != Op::Buffer && Some(node.number) > self.boundary
    }

    /// Collects the nodes between the roots and those numbered at least `first`.
    fn collect(&mut self, roots: &[&Tensor], first: u64) -> Result<()> {
        let mut seen: FastSet<u64> = FastSet::default();
        let mut stack: Vec<Arc<Node>> = roots.iter().map(|root| root.node().clone()).collect();
        stack.retain(|root| root.number >= first && seen.insert(root.number));
        while let Some(node) = stack.pop() {
            if self.passes(&node) && node.number > first {
                if node.is_released() {
                    return Err(Error::NoGradient {
                        // The caller may not know any of the operations in this graph.
                        op: "a graph that was released",
                        hint: "backward() has already run through it: keep it with backward_retain(), or compute the \
                               loss again"
                            .to_owned(),
                    });
                }
                for source in &node.body().sources {
                    if source.requires_grad && source.number >= first && seen.insert(source.number) {
                        stack.push(source.clone());
                    }
                }
            }
            self.path.push(node);
        }
        self.path.sort_unstable_by_key(|node| Reverse(node.number));
        Ok(())
    }

    pub(super) fn is_useful(&self, node: &Node) -> bool {
        node.requires_grad && self.useful.as_ref().is_none_or(|useful| useful.contains(&node.number))
    }

    pub(super) fn is_wanted(&self, node: &Node) -> bool {
        match &self.targets {
            Some(targets) => targets.contains(&node.number),
            None => *node.op() == Op::Buffer,
        }
    }

    /// Evaluates the gradients already collected in the leaves. Otherwise the graph they depend on would stay alive
    /// until their sums with the new gradients are read.
    pub(super) fn evaluate_collected(&self) -> Result<()> {
        if is_recording() {
            return Ok(());
        }
        let leaves = self.path.iter().filter(|node| *node.op() == Op::Buffer);
        let collected: Vec<Tensor> = leaves.filter_map(|leaf| leaf.body().grad.clone()).collect();
        Tensor::evaluate_all(&collected.iter().collect::<Vec<_>>())
    }

    /// Applies the gradient rules along the path, from roots with their gradients.
    pub(super) fn run(self, roots: &[(&Tensor, &Tensor)], create_graph: bool) -> Result<Swept> {
        let _guard: GradientMode = record_gradients(create_graph);
        let _running = Running::begin();
        let mut pending: FastMap<u64, SmallVec<[Tensor; 2]>> = FastMap::default();
        let mut gradients: FastMap<u64, Tensor> = FastMap::default();
        for (root, gradient) in roots {
            pending.entry(root.node().number).or_default().push((*gradient).clone());
        }
        for node in &self.path {
            interrupt::check()?;
            let Some(contributions) = pending.remove(&node.number) else { continue };
            let mut gradient = accumulate::total(contributions)?;
            let hooks = hooks_of(node).filter(|_| !(self.before_hooks && self.is_wanted(node)));
            if let Some(hooks) = &hooks {
                let Some(passed) = hooks.apply(gradient)? else { continue };
                gradient = passed;
            }
            let is_retained = self.targets.is_none() && hooks.is_some_and(|hooks| hooks.retains());
            if is_retained || self.is_wanted(node) {
                gradients.insert(node.number, gradient.clone());
            }
            let sources = node.sources();
            let needs: SmallVec<[bool; 3]> = sources.iter().map(|s| self.is_useful(s)).collect();
            if !self.passes(node) || !needs.contains(&true) {
                continue;
            }
            let numbers: SmallVec<[u64; 3]> = sources.iter().map(|source| source.number).collect();
            let inputs: SmallVec<[Term; 3]> = sources.into_iter().map(|node| Term::Recorded(node)).collect();
            let (output, gradient) = (Term::Recorded(node.clone()), Term::Recorded(gradient.into_node()));
            let op = node.op();
            let call = rule::Call { inputs: &inputs, output: &output, gradient: &gradient, needs: &needs };
            let found = match (op.operation().gradient(&call)?, op) {
                (Some(found), _) => found,
                (None, Op::Composite(composite)) => differentiate_body(composite, &call)?,
                (None, _) => return Err(Error::internal("gradients", op.name())),
            };
            for (((input, number), found), _) in
                inputs.iter().zip(numbers).zip(found).zip(&needs).filter(|(_, needed)| **needed)
            {
                let Some(found) = found else { continue };
                if found.shape() != input.shape() || found.dtype() != input.dtype() {
                    let message = format!(
                        "the gradient of {} is {} {:?} for an operand {} {:?}",
                        node.op().name(),
                        found.dtype(),
                        found.shape(),
                        input.dtype(),
                        input.shape()
                    );
                    return Err(Error::internal("gradients", message));
                }
                let found = Tensor::from_term(&found)?;
                anomaly::check(op, &found)?;
                pending.entry(number).or_default().push(found);
            }
        }
        Ok(Swept { path: self.path, gradients })
    }
}
