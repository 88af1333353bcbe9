//! The sweep from a loss back to its leaves: nodes in falling order of creation, so every node's gradient is complete
//! when its turn comes, and no recursion whatever the graph's depth. Time and memory are linear in the graph.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    sync::Arc,
};

use smallvec::SmallVec;

use super::accumulate;
use crate::{
    Error, Result, Tensor,
    graph::{hooks_of, node::Node},
    hash::FastBuild,
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
/// An optimiser takes the value and moves each gradient out of it, so that no handle to a gradient stays alive while
/// the update is computed and its memory can be reused at once.
#[derive(Default)]
pub struct Gradients {
    /// By the leaf's number, ascending.
    leaves: Vec<(u64, Option<Tensor>)>,
}

impl Gradients {
    /// Moves the gradients collected by [`Tensor::backward`] out of these leaves; leaves without one are left out.
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

    /// The gradient for this leaf, if the loss depends on it.
    pub fn get(&self, leaf: &Tensor) -> Option<&Tensor> {
        self.leaves[self.position(leaf)?].1.as_ref()
    }

    /// Moves the gradient for this leaf out.
    pub fn take(&mut self, leaf: &Tensor) -> Option<Tensor> {
        let position = self.position(leaf)?;
        self.leaves[position].1.take()
    }

    /// The gradients that have not been taken, in the order in which the leaves were made.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.leaves.iter().filter_map(|(_, gradient)| gradient.as_ref())
    }

    /// Replaces every gradient by a function of it (clipping, scaling).
    pub fn try_map(mut self, mut function: impl FnMut(Tensor) -> Result<Tensor>) -> Result<Gradients> {
        for (_, gradient) in &mut self.leaves {
            *gradient = gradient.take().map(&mut function).transpose()?;
        }
        Ok(self)
    }

    /// The number of gradients that have not been taken.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// True if every gradient has been taken, or there was none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tensor {
    /// Differentiates this scalar loss and adds the result into [`Tensor::grad`] of every leaf that asked for gradients.
    ///
    /// Afterwards the graph is released: intermediate results go as soon as nothing needs them, and a second call
    /// through them is an error.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there is exactly one element; [`Error::NoGradient`] if no leaf asked for gradients, if an
    /// operation on the way has none, or if the graph was released before.
    pub fn backward(&self) -> Result<()> {
        self.backward_from(&self.unit_gradient("backward")?, false)
    }

    /// As [`Tensor::backward`], but the graph stays for another call.
    pub fn backward_retain(&self) -> Result<()> {
        self.backward_from(&self.unit_gradient("backward")?, true)
    }

    /// As [`Tensor::backward`] for a tensor of any shape, given the gradient of some loss with respect to it.
    pub fn backward_from(&self, output_gradient: &Tensor, retain_graph: bool) -> Result<()> {
        let _guard = no_grad();
        let gradients = self.sweep_to_leaves(output_gradient, retain_graph, false)?;
        // The graph may be gone: every leaf gets its gradient.
        let _shield = Shield::new();
        gradients.iter().try_for_each(|(leaf, gradient)| leaf.add_grad(gradient))
    }

    /// As [`Tensor::backward_from`], by default from 1 for a scalar, with gradients that can be differentiated again. The
    /// graph stays: it lives as long as a leaf keeps such a gradient, so take it from there in the end.
    pub fn backward_create_graph(&self, output_gradient: Option<&Tensor>) -> Result<()> {
        let unit =
            output_gradient.map_or_else(|| self.unit_gradient("backward"), |given| Ok(given.clone()))?;
        let _guard = record_gradients(true);
        let gradients = self.sweep_to_leaves(&unit, true, true)?;
        let _shield = Shield::new();
        gradients.iter().try_for_each(|(leaf, gradient)| leaf.add_grad(gradient))
    }

    /// Adds to the collected gradient. Another thread may do so at the same time: the sum takes the place of what it was
    /// computed from, or is computed again.
    fn add_grad(&self, gradient: &Tensor) -> Result<()> {
        if self.node().body().replaced {
            let hint = "a value was put into its place after the forward pass (by an update or a change in place), so \
                        that the gradient would be lost: differentiate first, or compute the loss anew"
                .to_owned();
            return Err(Error::NoGradient { op: "a leaf that was replaced", hint });
        }
        let number = |grad: &Option<Tensor>| grad.as_ref().map(|t| t.node().number);
        loop {
            let before = self.grad();
            let sum = match &before {
                Some(before) => (Formula::of(before) + Formula::of(gradient)).tensor()?,
                None => gradient.clone(),
            };
            let mut body = self.node().body();
            if number(&body.grad) == number(&before) {
                let old = body.grad.replace(sum);
                drop(body);
                drop(old);
                return Ok(());
            }
        }
    }

    /// The leaves that asked for gradients and on which this tensor depends.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if the graph was released.
    pub fn gradient_leaves(&self) -> Result<Vec<Tensor>> {
        if !self.requires_grad() {
            return Ok(Vec::new());
        }
        let sweep = Sweep::to_leaves(self)?;
        let leaves = sweep.path.iter().map(|node| Tensor::from_node(node.clone())).filter(Tensor::is_leaf);
        Ok(leaves.collect())
    }

    /// Says whether another leaf stands in this one's place: [`Tensor::backward`] to one that was replaced is an error, since
    /// nobody would see the gradient.
    pub fn set_replaced(&self, replaced: bool) {
        self.node().body().replaced = replaced;
    }

    /// As [`Tensor::backward`], but the gradients are returned rather than stored.
    pub fn leaf_gradients(&self) -> Result<Gradients> {
        let swept = self.sweep_to_leaves(&self.unit_gradient("leaf_gradients")?, false, false)?;
        let mut leaves: Vec<_> = swept.into_iter().map(|(leaf, g)| (leaf.node().number, Some(g))).collect();
        leaves.sort_unstable_by_key(|(number, _)| *number);
        Ok(Gradients { leaves })
    }

    /// The gradients of this scalar with respect to any tensors of its graph. The graph stays; `grad()` is not touched.
    ///
    /// A tensor on which the loss does not depend has a gradient of zeros. The results themselves have no gradient: see
    /// [`Tensor::gradients_create_graph`].
    ///
    /// # Errors
    /// As [`Tensor::backward`]; [`Error::NoGradient`] too for a tensor that does not require gradients.
    pub fn gradients(&self, with_respect_to: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.vector_jacobian_product(&self.unit_gradient("gradients")?, with_respect_to, false)
    }

    /// As [`Tensor::gradients`], with results that can be differentiated again.
    pub fn gradients_create_graph(&self, with_respect_to: &[&Tensor]) -> Result<Vec<Tensor>> {
        self.vector_jacobian_product(&self.unit_gradient("gradients")?, with_respect_to, true)
    }

    /// The product of `output_gradient` (of this tensor's shape and dtype) with the Jacobian of this tensor with respect
    /// to each of `with_respect_to`. If `create_graph`, the results can be differentiated again.
    pub fn vector_jacobian_product(
        &self,
        output_gradient: &Tensor,
        with_respect_to: &[&Tensor],
        create_graph: bool,
    ) -> Result<Vec<Tensor>> {
        self.check_output_gradient("gradients", output_gradient)?;
        if with_respect_to.iter().any(|t| !t.requires_grad()) {
            let op = "a tensor to differentiate by";
            return Err(Error::NoGradient { op, hint: ASK_FOR_GRADIENTS.to_owned() });
        }
        let mut swept =
            Sweep::towards(self, with_respect_to, None)?.run(self, output_gradient, create_graph)?;
        let zeros = |t: &Tensor| Formula::of(t).like(0.0).tensor();
        let mut results = Vec::with_capacity(with_respect_to.len());
        for &target in with_respect_to {
            results.push(match swept.gradients.get(&target.node().number) {
                Some(gradient) => gradient.clone(),
                None => zeros(target)?,
            });
        }
        swept.gradients.clear();
        Ok(results)
    }

    /// The gradients of leaves, and of other tensors that retain theirs.
    fn sweep_to_leaves(
        &self,
        output_gradient: &Tensor,
        retain_graph: bool,
        create_graph: bool,
    ) -> Result<Vec<(Tensor, Tensor)>> {
        self.check_output_gradient("backward", output_gradient)?;
        let sweep = Sweep::to_leaves(self)?;
        sweep.evaluate_collected()?;
        let swept = sweep.run(self, output_gradient, create_graph)?;
        if !retain_graph {
            swept.path.iter().for_each(|node| node.release());
        }
        let mut gradients = swept.gradients;
        let is_computed_here =
            |gradient: &Tensor| !gradient.is_evaluated() && !gradient.is_same(output_gradient);
        for gradient in gradients.values().filter(|gradient| is_computed_here(gradient)) {
            gradient.node().body().beside = Some(Arc::downgrade(self.node()));
        }
        let leaf = |node: &Arc<Node>| {
            let gradient = gradients.remove(&node.number)?;
            Some((Tensor::from_node(node.clone()), gradient))
        };
        Ok(swept.path.iter().filter_map(leaf).collect())
    }

    fn unit_gradient(&self, op: &'static str) -> Result<Tensor> {
        if self.len() != 1 {
            let given = if op == "gradients" { "vector_jacobian_product()" } else { "backward_from()" };
            let hint = format!(
                "a gradient can be made implicitly only for a scalar: reduce it with sum() or mean(), or give the \
                 output's gradient with {given}"
            );
            return Err(Error::shape(op, &[self.shape()], hint));
        }
        Formula::of(self).like(1.0).tensor()
    }

    fn check_output_gradient(&self, op: &'static str, gradient: &Tensor) -> Result<()> {
        if !self.requires_grad() {
            return Err(Error::NoGradient { op: "this tensor", hint: ASK_FOR_GRADIENTS.to_owned() });
        }
        if gradient.shape() != self.shape() {
            return Err(Error::shape(
                op,
                &[self.shape(), gradient.shape()],
                "the output's gradient has its shape",
            ));
        }
        if gradient.dtype() != self.dtype() {
            return Err(Error::dtype(
                op,
                &[self.dtype(), gradient.dtype()],
                "the output's gradient has its dtype",
            ));
        }
        Ok(())
    }
}

const ASK_FOR_GRADIENTS: &str = "no tensor that it was computed from asked for gradients: make leaves with .with_grad(), and compute outside \
     no_grad()";

/// The derivative of a composite by way of its body, for those of its `inputs` that `needs` marks.
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
    // Whatever is older than the body belongs to the caller's sweep.
    let boundary = inputs.iter().map(|t| t.node().number).max();
    let gradient = Tensor::from_term(call.gradient)?;
    let mut swept = Sweep::towards(&output, &targets, boundary)?.run(&output, &gradient, create_graph)?;
    if !create_graph {
        let is_inner = |node: &&Arc<Node>| Some(node.number) > boundary;
        swept.path.iter().filter(is_inner).for_each(|node| node.release());
    }
    // An input that appears twice has one gradient, which goes to its first place.
    for (gradient, input) in gradients.iter_mut().zip(&inputs) {
        *gradient = swept.gradients.remove(&input.node().number).map(|found| found.term());
    }
    Ok(gradients)
}

/// Where a sweep goes.
struct Sweep {
    /// The nodes on the way, latest first.
    path: Vec<Arc<Node>>,
    /// Whose gradients are wanted; `None`: the leaves'.
    targets: Option<HashSet<u64, FastBuild>>,
    /// Of the path, the nodes on which a target depends; `None`: all.
    useful: Option<HashSet<u64, FastBuild>>,
    /// Nodes up to this number are not passed through.
    boundary: Option<u64>,
}

/// What a sweep found.
struct Swept {
    path: Vec<Arc<Node>>,
    gradients: HashMap<u64, Tensor, FastBuild>,
}

impl Sweep {
    fn to_leaves(root: &Tensor) -> Result<Sweep> {
        let mut sweep = Sweep { path: Vec::new(), targets: None, useful: None, boundary: None };
        sweep.collect(root, 0)?;
        Ok(sweep)
    }

    fn towards(root: &Tensor, targets: &[&Tensor], boundary: Option<u64>) -> Result<Sweep> {
        let numbers: HashSet<u64, FastBuild> = targets.iter().map(|t| t.node().number).collect();
        let first = numbers.iter().copied().min().unwrap_or(u64::MAX);
        let mut sweep = Sweep { path: Vec::new(), targets: Some(numbers.clone()), useful: None, boundary };
        sweep.collect(root, first)?;
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

    /// True if the sweep goes on from this node to its operands.
    fn passes(&self, node: &Node) -> bool {
        *node.op() != Op::Buffer && Some(node.number) > self.boundary
    }

    /// Finds the nodes between the root and those not older than number `first`.
    fn collect(&mut self, root: &Tensor, first: u64) -> Result<()> {
        let mut seen: HashSet<u64, FastBuild> = HashSet::default();
        let mut stack = vec![root.node().clone()];
        seen.insert(root.node().number);
        while let Some(node) = stack.pop() {
            if self.passes(&node) && node.number > first {
                if node.is_released() {
                    return Err(Error::NoGradient {
                        // Its operations may be none that the caller knows of.
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

    fn is_useful(&self, node: &Node) -> bool {
        node.requires_grad && self.useful.as_ref().is_none_or(|useful| useful.contains(&node.number))
    }

    fn is_wanted(&self, node: &Node) -> bool {
        match &self.targets {
            Some(targets) => targets.contains(&node.number),
            None => *node.op() == Op::Buffer,
        }
    }

    /// Computes the gradients that leaves have collected: what they follow from would stay until the sums with the next ones
    /// are read.
    fn evaluate_collected(&self) -> Result<()> {
        if is_recording() {
            return Ok(());
        }
        let leaves = self.path.iter().filter(|node| *node.op() == Op::Buffer);
        let collected: Vec<Tensor> = leaves.filter_map(|leaf| leaf.body().grad.clone()).collect();
        Tensor::evaluate_all(&collected.iter().collect::<Vec<_>>())
    }

    /// Applies the rules along the path.
    fn run(self, root: &Tensor, output_gradient: &Tensor, create_graph: bool) -> Result<Swept> {
        let _guard: GradientMode = record_gradients(create_graph);
        let mut pending: HashMap<u64, SmallVec<[Tensor; 2]>, FastBuild> = HashMap::default();
        let mut gradients: HashMap<u64, Tensor, FastBuild> = HashMap::default();
        pending.entry(root.node().number).or_default().push(output_gradient.clone());
        for node in &self.path {
            interrupt::check()?;
            let Some(contributions) = pending.remove(&node.number) else { continue };
            let mut gradient = accumulate::total(contributions)?;
            let hooks = hooks_of(node);
            if let Some(hooks) = &hooks {
                gradient = hooks.apply(gradient)?;
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
            let inputs: SmallVec<[Term; 3]> = sources.into_iter().map(|node| Term::Recorded(node)).collect();
            let (output, gradient) = (Term::Recorded(node.clone()), gradient.term());
            let op = node.op();
            let call =
                rule::Call { op, inputs: &inputs, output: &output, gradient: &gradient, needs: &needs };
            let found = match (rule::input_gradients(&call)?, op) {
                (Some(found), _) => found,
                (None, Op::Composite(composite)) => differentiate_body(composite, &call)?,
                (None, _) => return Err(Error::internal("gradients", op.name())),
            };
            for ((input, found), _) in inputs.iter().zip(found).zip(&needs).filter(|(_, needed)| **needed) {
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
                pending.entry(Tensor::from_term(input)?.node().number).or_default().push(found);
            }
        }
        Ok(Swept { path: self.path, gradients })
    }
}
