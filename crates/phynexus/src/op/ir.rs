//! The graph as plain data: what rewrites, the scheduler and the oracle read. A node's inputs come before it.

use smallvec::SmallVec;

use super::{Op, TensorType};
use crate::{
    DType,
    shape::{Dims, element_count},
};

/// A node's position in [`Ir::nodes`].
pub type Id = u32;

/// An operation applied to earlier nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IrNode {
    /// What is done.
    pub op: Op,
    /// The result's element type.
    pub dtype: DType,
    /// The result's shape.
    pub shape: Dims,
    /// The operands.
    pub inputs: SmallVec<[Id; 3]>,
}

impl IrNode {
    /// Dtype and shape of the result.
    pub fn tensor_type(&self) -> TensorType<'_> {
        TensorType::new(self.dtype, &self.shape)
    }
    /// Elements of the result.
    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }
    /// True if the result has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
    /// Bytes of the result.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }
}

/// A graph: nodes in topological order, the leaves (`Op::Buffer`) in slot order, and what is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ir {
    /// The nodes; every input's id is smaller than the node's.
    pub nodes: Vec<IrNode>,
    /// Leaf `i` is bound to slot `i`.
    pub leaves: Vec<Id>,
    /// The results.
    pub outputs: Vec<Id>,
}

impl Ir {
    /// Appends a node.
    pub fn push(&mut self, op: Op, dtype: DType, shape: Dims, inputs: impl IntoIterator<Item = Id>) -> Id {
        let id = self.nodes.len() as Id;
        if op == Op::Buffer {
            self.leaves.push(id);
        }
        self.nodes.push(IrNode { op, dtype, shape, inputs: inputs.into_iter().collect() });
        id
    }

    /// The node with this id.
    pub fn node(&self, id: Id) -> &IrNode {
        &self.nodes[id as usize]
    }
}
