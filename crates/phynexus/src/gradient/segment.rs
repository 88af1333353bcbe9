//! What gradient checkpointing needs of the sweep: a part of a graph that is released and computed again.

use std::cell::Cell;

use super::sweep::Sweep;
use crate::{Result, Tensor, hash::FastSet};

thread_local! {
    /// The number of the innermost sweep that runs on this thread, and of the latest one.
    static SWEEPS: Cell<[u64; 2]> = const { Cell::new([0; 2]) };
}

/// The sweep that runs on this thread: 0 if there is none, otherwise a number that no other sweep has.
pub fn running_sweep() -> u64 {
    SWEEPS.get()[0]
}

/// Ends the sweep when it is dropped.
pub(super) struct Running {
    outer: u64,
}

impl Running {
    pub(super) fn begin() -> Running {
        let [outer, latest] = SWEEPS.get();
        SWEEPS.set([latest + 1; 2]);
        Running { outer }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        SWEEPS.set([self.outer, SWEEPS.get()[1]]);
    }
}

impl Tensor {
    /// The number of this tensor in the order in which tensors are recorded.
    pub fn recorded_number(&self) -> u64 {
        self.node().number
    }

    /// Releases the graphs of these tensors as far as they were recorded after the tensor with this number. Returns what
    /// they were computed from: leaves and earlier tensors that require gradients.
    ///
    /// # Errors
    /// Those of [`Tensor::gradient_leaves`].
    pub fn release_graphs(tensors: &[&Tensor], boundary: u64) -> Result<Vec<Tensor>> {
        let (mut seen, mut sources) = (FastSet::default(), Vec::new());
        let mut released = Vec::new();
        for tensor in tensors.iter().filter(|tensor| tensor.requires_grad()) {
            let sweep = Sweep::to_boundary(&[tensor], Some(boundary))?;
            for node in sweep.path.iter().filter(|node| seen.insert(node.number)) {
                match sweep.passes(node) {
                    true => released.push(node.clone()),
                    false => sources.push(Tensor::from_node(node.clone())),
                }
            }
        }
        released.iter().for_each(|node| node.release());
        Ok(sources)
    }

    /// As [`Tensor::vector_jacobian_product`], without calling the hooks of `with_respect_to`. Zero where this tensor does
    /// not depend on one of them.
    ///
    /// # Errors
    /// Those of [`Tensor::vector_jacobian_product`].
    pub fn gradients_before_hooks(
        &self,
        output_gradient: &Tensor,
        with_respect_to: &[&Tensor],
        create_graph: bool,
    ) -> Result<Vec<Tensor>> {
        self.check_output_gradient("gradients", output_gradient)?;
        let mut sweep = Sweep::towards(&[self], with_respect_to, None)?;
        sweep.before_hooks = true;
        self.swept(sweep, output_gradient, with_respect_to, create_graph)
    }
}
