//! Recording an operation, and computing what was recorded.

use std::{any::Any, sync::Arc};

use smallvec::SmallVec;

use super::{backlog, capture, evaluate, is_eager, ruined};
use crate::{
    DType, Error, Result, Tensor,
    device::{Device, Storage},
    graph::{
        Extremes,
        node::{Node, Sources, intern},
    },
    op::{
        Composite, Op,
        composite::tf32,
        formula::Formula,
        gradient,
        term::{Recorded, TensorType, Term},
        view::view_layout,
    },
    random::GeneratorState,
    shape::{Dims, MAX_RANK, check_rank, checked_element_count, dims},
};

impl Tensor {
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
        if let Op::Custom(call) = &op {
            device.backend().prepare_custom(call.kernel(), call.groups())?;
        }
        let known = Extremes::of_result(&op, dtype, &shape, operands);
        let requires_grad =
            dtype.is_float() && gradient::is_enabled() && operands.iter().any(|o| o.requires_grad());
        if op.is_view()
            && !requires_grad
            && operands[0].is_evaluated()
            && let Some(storage) = operands[0].node().data()
            && let Some(layout) = view_layout(&op, &shape, &storage.layout)
        {
            let view = Tensor::from_storage(device, dtype, Storage { buffer: storage.buffer, layout });
            view.note(known);
            return Ok(view);
        }
        let mut sources = Sources::new();
        operands.iter().for_each(|operand| sources.push(operand.node().clone()));
        let tensor =
            Tensor::from_node(Node::pending(intern(op, dtype, shape), device, sources, requires_grad));
        tensor.note(known);
        if is_eager() && !capture::is_recording() {
            tensor.evaluate()?;
        } else {
            backlog::note_recorded(tensor.node())?;
        }
        Ok(tensor)
    }

    /// Computes the data now, if it is not there yet.
    pub fn evaluate(&self) -> Result<()> {
        evaluate(&[self], &mut Vec::new())
    }

    /// The tensor itself, computed.
    pub fn evaluated(self) -> Result<Tensor> {
        self.evaluate()?;
        Ok(self)
    }

    /// Computes several tensors together: work they share is done once.
    pub fn evaluate_all(tensors: &[&Tensor]) -> Result<()> {
        evaluate(tensors, &mut Vec::new())
    }

    /// As [`Tensor::evaluate_all`], and the results may take over the memory of `replaced` where nobody else holds these
    /// tensors: how an update overwrites what it replaces. On success `replaced` is empty; on an error its tensors are
    /// as they were, unless a kernel was refused memory after it had begun to overwrite them: reading those is an error.
    pub fn evaluate_replacing(tensors: &[&Tensor], replaced: &mut Vec<Tensor>) -> Result<()> {
        evaluate(tensors, replaced)
    }

    /// The data, computed if need be.
    pub fn storage(&self) -> Result<Storage> {
        self.evaluate()?;
        let internal = || Error::internal("storage", format!("{} has no data", self.node().op().name()));
        let storage = self.node().data().ok_or_else(internal)?;
        ruined::check(std::slice::from_ref(&storage))?;
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

    /// The same values without a gradient.
    pub fn detach(&self) -> Result<Tensor> {
        if !self.requires_grad() {
            return Ok(self.clone());
        }
        if let Some(storage) = self.node().data() {
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
        Ok(Tensor::from_node(Node::ready(signature, self.device(), storage, true)))
    }
}

impl Recorded for Node {
    fn dtype(&self) -> DType {
        self.signature.dtype
    }
    fn shape(&self) -> &[usize] {
        &self.signature.shape
    }
    fn op(&self) -> &Op {
        &self.signature.op
    }
    fn sources(&self) -> SmallVec<[Term; 3]> {
        Node::sources(self).into_iter().map(|node| Term::Recorded(node)).collect()
    }
    fn record(&self, op: Op, dtype: DType, shape: Dims, operands: &[&Term]) -> Result<Term> {
        let operands: SmallVec<[Tensor; 3]> =
            operands.iter().map(|term| Tensor::from_term(term)).collect::<Result<_>>()?;
        let operands: SmallVec<[&Tensor; 3]> = operands.iter().collect();
        Ok(Tensor::record_on(self.device, op, dtype, shape, &operands)?.term())
    }
    fn detach(self: Arc<Self>) -> Result<Term> {
        Ok(Tensor::from_node(self).detach()?.term())
    }
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl From<&Tensor> for Formula {
    fn from(tensor: &Tensor) -> Formula {
        Formula::from(Ok(tensor.term()))
    }
}

impl Formula {
    /// The tensor, or the first error.
    pub(crate) fn tensor(self) -> Result<Tensor> {
        Tensor::from_term(&self.term()?)
    }
}

impl Tensor {
    /// The tensor as formulas see it.
    pub(crate) fn term(&self) -> Term {
        Term::Recorded(self.node().clone())
    }

    /// The tensor of a node of the graph.
    pub(crate) fn from_term(term: &Term) -> Result<Tensor> {
        let node = match term {
            Term::Recorded(node) => node.clone().into_any().downcast::<Node>().ok(),
            Term::Drafted(_) => None,
        };
        node.map(Tensor::from_node).ok_or_else(|| Error::internal("record", "not a node of the graph"))
    }

    /// Dtype and shape.
    pub(crate) fn tensor_type(&self) -> TensorType<'_> {
        TensorType::new(self.dtype(), self.shape())
    }

    /// Records a product or a convolution that a user asked for: its factors may be rounded as
    /// [`set_float32_matmul_precision`](crate::set_float32_matmul_precision) says.
    pub(crate) fn record_product(
        op: Op,
        dtype: DType,
        shape: Dims,
        operands: [&Tensor; 2],
    ) -> Result<Tensor> {
        let [a, b] = operands.map(Tensor::term);
        Tensor::from_term(&tf32::record(tf32::may_round(), op, dtype, shape, [&a, &b])?)
    }
}

impl Composite {
    /// Checks the operands and records the operation.
    pub(crate) fn apply(composite: impl Into<Composite>, operands: &[&Tensor]) -> Result<Tensor> {
        let composite = composite.into();
        let types: SmallVec<[TensorType; 4]> = operands.iter().map(|operand| operand.tensor_type()).collect();
        let (dtype, shape) = composite.check(&types)?;
        Tensor::record(Op::Composite(composite), dtype, shape, operands)
    }
}

/// Key and counter as the leaf of an [`Op::RandomBits`].
pub(crate) fn random_state(state: GeneratorState, device: Device) -> Result<Tensor> {
    let GeneratorState { seed, counter } = state;
    let words = [seed as u32, (seed >> 32) as u32, counter as u32, (counter >> 32) as u32];
    Tensor::from_slice(&words, &[4], device)
}
