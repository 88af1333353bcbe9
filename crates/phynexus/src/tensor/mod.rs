//! What a user holds: tensors. Methods check shapes and types at once and add nodes to the graph; nothing is computed
//! until somebody reads.

#[cfg(test)]
mod advanced_tests;
mod binary;
mod blend;
mod convert;
#[cfg(test)]
mod core_tests;
mod count;
mod create;
mod decomposition;
mod difference;
mod einsum;
mod extremes;
#[cfg(test)]
mod golden;
mod index;
mod join;
#[cfg(test)]
mod mathematics_tests;
mod matrix;
mod matrix_norm;
mod movement;
mod neural;
#[cfg(test)]
mod null;
#[cfg(test)]
pub(crate) use null::null_device;
mod operands;
mod operators;
mod overwrite;
mod place;
mod print;
mod product;
mod random;
mod rank;
#[cfg(test)]
mod rank_tests;
mod read;
mod reduce;
mod repeat;
mod represent;
mod scan;
mod select;
mod sort;
mod special;
mod unary;

pub(crate) use extremes::{Extremes, Reliance};
pub use index::IndexSpec;
pub use matrix_norm::MatrixNorm;
pub use random::{Generator, GeneratorState, manual_seed};
pub use rank::QuantileMethod;
pub use read::Reading;
pub use sort::Unique;

pub use neural::{
    AttentionOptions, CrossEntropyOptions, GeluApproximation, Interpolation, RecurrentOutput,
    RecurrentWeights, Reduction,
};

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    DType, Error, Result,
    device::{Device, Storage},
    graph::{
        gradient,
        node::{Node, Sources, intern},
        op::Op,
    },
    schedule::{self, backlog, capture},
    shape::{Dims, Layout, MAX_RANK, check_rank, checked_element_count, dims, element_count},
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

    /// A leaf that stands for an operand while a composite's body is recorded; it never has data.
    pub(crate) fn placeholder(device: Device, dtype: DType, shape: &[usize]) -> Tensor {
        Tensor(Node::pending(intern(Op::Buffer, dtype, shape.into()), device, Sources::new(), false))
    }

    /// Adds a node. `shape` and `dtype` are the result's, already checked against the operands by the caller; here the
    /// operands' devices are compared, sizes are checked for overflow, and views of data that is there become data.
    #[inline]
    pub(crate) fn record(op: Op, dtype: DType, shape: Dims, operands: &[&Tensor]) -> Result<Tensor> {
        let Some(first) = operands.first() else {
            return Err(Error::internal("record", "an operation without operands needs a device"));
        };
        Tensor::record_on(first.device(), op, dtype, shape, operands)
    }

    pub(crate) fn record_on(
        device: Device,
        op: Op,
        dtype: DType,
        shape: Dims,
        operands: &[&Tensor],
    ) -> Result<Tensor> {
        crate::profile::note_recording();
        if shape.len() > MAX_RANK {
            check_rank(op.name(), &shape)?;
        }
        if checked_element_count(&shape)
            .and_then(|n| n.checked_mul(dtype.size()))
            .is_none_or(|n| n > isize::MAX as usize)
        {
            return Err(Error::shape(op.name(), &[&shape], "the result would exceed the address space"));
        }
        if !matches!(op, Op::Copy)
            && let Some(other) = operands.iter().find(|o| o.device() != device)
        {
            return Err(Error::DeviceMismatch {
                op: op.name(),
                left: device.name().to_owned(),
                right: other.device().name().to_owned(),
            });
        }
        let known = Extremes::of_result(&op, dtype, &shape, operands);
        let requires_grad =
            dtype.is_float() && gradient::is_enabled() && operands.iter().any(|o| o.requires_grad());
        if op.is_view()
            && !requires_grad
            && operands[0].is_evaluated()
            && let Some(storage) = operands[0].0.data()
            && let Some(layout) = view_layout(&op, &shape, &storage.layout)
        {
            let view = Tensor::from_storage(device, dtype, Storage { buffer: storage.buffer, layout });
            view.note(known);
            return Ok(view);
        }
        let mut sources = Sources::new();
        operands.iter().for_each(|operand| sources.push(operand.0.clone()));
        let tensor = Tensor(Node::pending(intern(op, dtype, shape), device, sources, requires_grad));
        tensor.note(known);
        if schedule::is_eager() && !capture::is_recording() {
            tensor.evaluate()?;
        } else {
            backlog::note_recorded(&tensor.0)?;
        }
        Ok(tensor)
    }

    /// Computes the data now, if it is not there yet.
    pub fn evaluate(&self) -> Result<()> {
        schedule::evaluate(&[self], &mut Vec::new())
    }

    /// The tensor itself, computed.
    pub fn evaluated(self) -> Result<Tensor> {
        self.evaluate()?;
        Ok(self)
    }

    /// Computes several tensors together: work they share is done once.
    pub fn evaluate_all(tensors: &[&Tensor]) -> Result<()> {
        schedule::evaluate(tensors, &mut Vec::new())
    }

    /// As [`Tensor::evaluate_all`], and the results may take over the memory of `replaced` where nobody else holds these
    /// tensors: how an update overwrites what it replaces. On success `replaced` is empty; on an error its tensors are
    /// as they were, unless a kernel was refused memory after it had begun to overwrite them: reading those is an error.
    pub fn evaluate_replacing(tensors: &[&Tensor], replaced: &mut Vec<Tensor>) -> Result<()> {
        schedule::evaluate(tensors, replaced)
    }

    /// The data, computed if need be.
    pub fn storage(&self) -> Result<Storage> {
        self.evaluate()?;
        let internal = || Error::internal("storage", format!("{} has no data", self.0.op().name()));
        let storage = self.0.data().ok_or_else(internal)?;
        schedule::refuse_ruined(std::slice::from_ref(&storage))?;
        Ok(storage)
    }

    /// The same values in a buffer of their own, from which everybody reads them: what compares an element with a result
    /// must not compare two computations of it.
    pub(crate) fn stored(&self) -> Result<Tensor> {
        if self.is_evaluated() {
            return Ok(self.clone());
        }
        Tensor::record(Op::Contiguous, self.dtype(), dims(self.shape()), &[self])
    }

    /// [`Tensor::stored`] if there will be a gradient, else the tensor itself.
    pub(crate) fn stored_for_gradient(&self) -> Result<Tensor> {
        if self.requires_grad() && gradient::is_enabled() { self.stored() } else { Ok(self.clone()) }
    }

    /// True if neither a graph nor anybody else has the tensor.
    pub(crate) fn is_only_handle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The same values without a gradient.
    pub fn detach(&self) -> Result<Tensor> {
        if !self.requires_grad() {
            return Ok(self.clone());
        }
        if let Some(storage) = self.0.data() {
            return Ok(Tensor::from_storage(self.device(), self.dtype(), storage));
        }
        let _guard = gradient::no_grad();
        Tensor::record(Op::Reshape, self.dtype(), dims(self.shape()), &[self])
    }

    /// A leaf with this tensor's values (computed now) for which gradients are collected.
    pub fn with_grad(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(
                "with_grad",
                &[self.dtype()],
                "only floating-point tensors have gradients",
            ));
        }
        let storage = self.storage()?;
        let signature = intern(Op::Buffer, self.dtype(), self.shape().into());
        Ok(Tensor(Node::ready(signature, self.device(), storage, true)))
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

/// The layout of a view of laid-out data, if strides can say it.
pub(crate) fn view_layout(op: &Op, shape: &[usize], input: &Layout) -> Option<Layout> {
    match op {
        Op::Reshape => reshape_layout(shape, input),
        Op::Permute(permutation) => Some(Layout {
            shape: shape.into(),
            strides: permutation.iter().map(|&p| input.strides[p as usize]).collect(),
            offset: input.offset,
        }),
        Op::Expand => {
            let keep = |(i, &s): (usize, &isize)| if input.shape[i] == 1 && shape[i] != 1 { 0 } else { s };
            let strides = input.strides.iter().enumerate().map(keep).collect();
            Some(Layout { shape: shape.into(), strides, offset: input.offset })
        }
        Op::Slice { start, step } => {
            if shape.contains(&0) {
                return Some(Layout {
                    shape: shape.into(),
                    strides: input.strides.clone(),
                    offset: input.offset,
                });
            }
            let moved: isize =
                start.iter().zip(&input.strides).map(|(&s, &stride)| s as isize * stride).sum();
            let strides = input.strides.iter().zip(step).map(|(a, b)| a * b).collect();
            Some(Layout { shape: shape.into(), strides, offset: input.offset.checked_add_signed(moved)? })
        }
        _ => None,
    }
}

/// Strides that lay the same elements out as `shape`, if there are any (the rule of NumPy's no-copy reshape).
fn reshape_layout(shape: &[usize], input: &Layout) -> Option<Layout> {
    if shape.contains(&0) {
        return Some(Layout { shape: shape.into(), ..Layout::contiguous(shape) });
    }
    let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.len());
    // Runs of input dimensions that are one block in memory, from the last.
    let mut blocks: SmallVec<[(usize, isize); 4]> = SmallVec::new();
    for (&extent, &stride) in input.shape.iter().zip(&input.strides).rev().filter(|(d, _)| **d != 1) {
        match blocks.last_mut() {
            Some((size, inner)) if stride == *inner * *size as isize => *size *= extent,
            _ => blocks.push((extent, stride)),
        }
    }
    let mut blocks = blocks.into_iter();
    let (mut left, mut stride) = blocks.next().unwrap_or((1, 1));
    for axis in (0..shape.len()).rev() {
        if shape[axis] == 1 {
            strides[axis] = stride;
            continue;
        }
        if left == 1 {
            (left, stride) = blocks.next()?;
        }
        if left % shape[axis] != 0 {
            return None;
        }
        strides[axis] = stride;
        stride *= shape[axis] as isize;
        left /= shape[axis];
    }
    Some(Layout { shape: shape.into(), strides, offset: input.offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[isize]) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset: 0 }
    }

    #[test]
    fn reshapes_without_a_copy_where_strides_allow() {
        let l = |shape: &[usize], input: Layout| reshape_layout(shape, &input).map(|l| l.strides.to_vec());
        assert_eq!(l(&[6], layout(&[2, 3], &[3, 1])), Some(vec![1]));
        assert_eq!(l(&[6], layout(&[3, 2], &[1, 3])), None);
        assert_eq!(l(&[2, 2, 3], layout(&[4, 3], &[6, 1])), Some(vec![12, 6, 1]));
        assert_eq!(l(&[12], layout(&[4, 3], &[6, 1])), None);
        assert_eq!(l(&[4], layout(&[2, 2], &[0, 0])), Some(vec![0]));
        assert_eq!(l(&[1, 1], layout(&[], &[])), Some(vec![1, 1]));
        assert_eq!(l(&[3, 2], layout(&[6], &[-1])), Some(vec![-2, -1]));
    }
}
