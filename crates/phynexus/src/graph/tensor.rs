//! The tensor handle that users hold: a reference to a node.

use std::sync::Arc;

use super::node::{Node, intern};
use crate::{
    DType,
    device::{Device, Storage},
    op::Op,
    shape::element_count,
};

/// A multi-dimensional array: a cheap, shared, immutable handle.
///
/// Tensors are values: no operation changes one, and views do not alias. Clones share the data.
#[derive(Clone)]
pub struct Tensor(Arc<Node>);

impl Tensor {
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.0.signature.shape
    }
    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.0.signature.dtype
    }
    /// The device.
    pub fn device(&self) -> Device {
        self.0.device
    }
    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        element_count(self.shape())
    }
    /// Returns whether the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
    /// Returns whether gradients flow to or through this tensor.
    pub fn requires_grad(&self) -> bool {
        self.0.requires_grad
    }
    /// Returns whether the data is ready, so that reading it computes nothing.
    pub fn is_evaluated(&self) -> bool {
        self.0.is_ready()
    }

    /// Returns whether both are handles to the same node of the graph.
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.0
    }
    pub(crate) fn into_node(self) -> Arc<Node> {
        self.0
    }
    pub(crate) fn from_node(node: Arc<Node>) -> Tensor {
        Tensor(node)
    }

    /// Makes a leaf from existing data.
    pub fn from_storage(device: Device, dtype: DType, storage: Storage) -> Tensor {
        let signature = intern(Op::Buffer, dtype, storage.layout.shape.clone());
        Tensor(Node::ready(signature, device, storage, false))
    }

    /// Returns whether this is the only handle: no graph and no other handle refers to the node.
    pub(crate) fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Returns whether the tensor is a leaf, that is, data rather than the result of a recorded operation.
    pub fn is_leaf(&self) -> bool {
        *self.0.op() == Op::Buffer
    }

    /// The gradient collected by [`Tensor::backward`], for leaves that require one and for tensors that retain theirs.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.body().grad.clone()
    }

    /// Replaces the collected gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        let old = std::mem::replace(&mut self.0.body().grad, grad);
        drop(old);
    }
}
