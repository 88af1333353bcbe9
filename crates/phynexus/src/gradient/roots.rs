//! Gradients of several tensors in one sweep.

use std::sync::Arc;

use super::{
    no_grad, record_gradients,
    reduce::{LeafGradient, reduce, store},
    sweep::Sweep,
};
use crate::{
    Result, Tensor,
    graph::node::Node,
    hash::FastMap,
    interrupt::Shield,
    schedule::{capture::is_recording, turns},
};

impl Tensor {
    /// The unit gradient of this scalar.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) unless the tensor has exactly one element.
    pub fn implicit_gradient(&self) -> Result<Tensor> {
        self.unit_gradient("backward")
    }

    /// As [`Tensor::backward_from`] for several tensors, each with its gradient, in one sweep. With `inputs`, only
    /// these collect gradients; they need not be leaves.
    ///
    /// # Errors
    /// Those of [`Tensor::backward`].
    pub fn backward_all(
        roots: &[(&Tensor, &Tensor)],
        inputs: Option<&[&Tensor]>,
        retain_graph: bool,
        create_graph: bool,
    ) -> Result<()> {
        let _mode = record_gradients(create_graph);
        let sweep = Sweep::from_roots("backward", roots, inputs)?;
        let found = reduce(sweep.gradients(roots, retain_graph, create_graph)?, true)?;
        // The graph may already be released, so an interruption must not leave some leaves without their gradients.
        let _shield = Shield::new();
        store(found)
    }

    /// The gradients of several tensors with respect to `inputs`, in one sweep: the sum over the products of each
    /// root's gradient with its Jacobian. `None` for an input that no root depends on. `grad()` does not change.
    ///
    /// # Errors
    /// Those of [`Tensor::vector_jacobian_product`].
    pub fn gradients_of_all(
        roots: &[(&Tensor, &Tensor)],
        inputs: &[&Tensor],
        retain_graph: bool,
        create_graph: bool,
    ) -> Result<Vec<Option<Tensor>>> {
        let _mode = no_grad();
        let sweep = Sweep::from_roots("gradients", roots, Some(inputs))?;
        let found = sweep.gradients(roots, retain_graph, create_graph)?;
        let found: FastMap<u64, Tensor> =
            found.into_iter().map(|(input, gradient)| (input.node().number, gradient)).collect();
        Ok(inputs.iter().map(|input| found.get(&input.node().number).cloned()).collect())
    }
}

impl Sweep {
    /// The sweep from these tensors to the inputs, or to all leaves.
    fn from_roots(
        op: &'static str,
        roots: &[(&Tensor, &Tensor)],
        inputs: Option<&[&Tensor]>,
    ) -> Result<Sweep> {
        roots.iter().try_for_each(|(root, gradient)| root.check_output_gradient(op, gradient))?;
        let starts: Vec<&Tensor> = roots.iter().map(|(root, _)| *root).collect();
        match inputs {
            Some(inputs) => Sweep::towards(&starts, inputs, None),
            None => Sweep::to_leaves(&starts),
        }
    }

    /// The gradients of the targets or leaves, and of other tensors that retain theirs. Releases the graph unless it is
    /// to be retained.
    pub(super) fn gradients(
        self,
        roots: &[(&Tensor, &Tensor)],
        retain_graph: bool,
        create_graph: bool,
    ) -> Result<Vec<LeafGradient>> {
        self.evaluate_collected()?;
        let collectives = turns::recorded();
        let releases = |node: &&Arc<Node>| {
            !retain_graph && (self.targets.is_none() || self.is_useful(node) && !self.is_wanted(node))
        };
        let released: Vec<Arc<Node>> = self.path.iter().filter(releases).cloned().collect();
        let path = self.path.clone();
        let mut gradients = self.run(roots, create_graph)?.gradients;
        released.iter().for_each(|node| node.release());
        let is_computed_here = |gradient: &Tensor| {
            !gradient.is_evaluated() && !roots.iter().any(|(_, given)| gradient.is_same(given))
        };
        if let Some((first, _)) = roots.first() {
            for gradient in gradients.values().filter(|gradient| is_computed_here(gradient)) {
                gradient.node().body().beside = Some(Arc::downgrade(first.node()));
            }
        }
        // Every rank must run their collectives now, whatever it reads next.
        if turns::recorded() != collectives && !is_recording() {
            Tensor::evaluate_all(&gradients.values().collect::<Vec<_>>())?;
        }
        let leaf = |node: &Arc<Node>| {
            let gradient = gradients.remove(&node.number)?;
            Some((Tensor::from_node(node.clone()), gradient))
        };
        Ok(path.iter().filter_map(leaf).collect())
    }
}
