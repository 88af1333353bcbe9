//! The handle that users hold: a reference to a node.

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
/// Tensors are values: an operation never changes one, and views do not alias. Clones share the data.
#[derive(Clone)]
pub struct Tensor(Arc<Node>);

impl Tensor {
    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.0.signature.shape
    }
    /// The element type.
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
    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
    /// True if gradients flow to or through this tensor.
    pub fn requires_grad(&self) -> bool {
        self.0.requires_grad
    }
    /// True if the data is there, and reading it computes nothing.
    pub fn is_evaluated(&self) -> bool {
        self.0.is_ready()
    }

    /// True if both are one node of the graph: handles to the same result.
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

    /// A leaf over data that exists.
    pub fn from_storage(device: Device, dtype: DType, storage: Storage) -> Tensor {
        let signature = intern(Op::Buffer, dtype, storage.layout.shape.clone());
        Tensor(Node::ready(signature, device, storage, false))
    }

    /// True if neither a graph nor anybody else has the tensor.
    pub(crate) fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// True for a tensor that is data rather than the result of recorded operations.
    pub fn is_leaf(&self) -> bool {
        *self.0.op() == Op::Buffer
    }

    /// The gradient collected by [`Tensor::backward`], on leaves that asked for one.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.body().grad.clone()
    }

    /// Replaces the collected gradient.
    pub fn set_grad(&self, grad: Option<Tensor>) {
        let old = std::mem::replace(&mut self.0.body().grad, grad);
        drop(old);
    }
}
