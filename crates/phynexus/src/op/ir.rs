//! The graph as plain data, as used by rewrites, the scheduler and the oracle. The inputs of a node precede it.

use smallvec::SmallVec;

use super::{Op, TensorType};
use crate::{
    DType,
    shape::{Dims, dims, element_count},
};

/// A node's position in [`Ir::nodes`].
pub type Id = u32;

/// An operation applied to earlier nodes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct IrNode {
    /// The operation.
    pub op: Op,
    /// The result's element type.
    pub dtype: DType,
    /// The result's shape.
    pub shape: Dims,
    /// The operands.
    pub inputs: SmallVec<[Id; 3]>,
}

impl Clone for IrNode {
    fn clone(&self) -> IrNode {
        // For plain numbers this is faster than the lists' generic clone.
        let inputs = SmallVec::from_slice(&self.inputs);
        IrNode { op: self.op.clone(), dtype: self.dtype, shape: dims(&self.shape), inputs }
    }
}

impl IrNode {
    /// The dtype and shape of the result.
    pub fn tensor_type(&self) -> TensorType<'_> {
        TensorType::new(self.dtype, &self.shape)
    }
    /// The number of elements of the result.
    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }
    /// True if the result has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
    /// The size of the result in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }
}

/// A graph: nodes in topological order, leaves (`Op::Buffer`) in slot order, and outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ir {
    /// The nodes. The id of every input is smaller than the node's.
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
