//! Records operations, and computes what was recorded.

use std::{any::Any, sync::Arc};

use smallvec::SmallVec;

use super::{backlog, capture, evaluate, is_eager, ruined, turns};
use crate::{
    DType, Error, Result, Tensor,
    device::{Device, Storage},
    graph::{
        Extremes,
        node::{Node, Sources, intern},
    },
    op::{
        Composite, Op,
        composite::precision,
        custom::CustomKernel,
        formula::Formula,
        gradient,
        term::{Recorded, TensorType, Term},
        view::view_layout,
    },
    random::GeneratorState,
    shape::{Dims, check_size, dims},
};

impl Tensor {
    /// Adds a node. The caller has already checked the result's `shape` and `dtype` against the operands. This function
    /// compares the operands' devices, checks sizes for overflow, and turns views of existing data into data.
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
        let mut sources = Sources::new();
        operands.iter().for_each(|operand| sources.push(operand.node().clone()));
        Tensor::record_nodes(device, op, dtype, shape, sources)
    }

    fn record_nodes(device: Device, op: Op, dtype: DType, shape: Dims, sources: Sources) -> Result<Tensor> {
        crate::profile::note_recording();
        check_size(op.name(), dtype, &shape)?;
        if !op.takes_float8() {
            refuse_float8(&op, dtype, &sources)?;
        }
        if !matches!(op, Op::Copy)
            && let Some(other) = sources.iter().find(|source| source.device != device)
        {
            return Err(Error::DeviceMismatch {
                op: op.name(),
                left: device.name().to_owned(),
                right: other.device.name().to_owned(),
            });
        }
        let differentiated = gradient::is_enabled() && sources.iter().any(|source| source.requires_grad);
        if let Op::Custom(call) = &op {
            prepare_custom(call.kernel(), device, call.groups(), differentiated)?;
        }
        turns::note_recorded(&op);
        let known = Extremes::of_result(&op, dtype, &shape, &sources);
        let requires_grad = dtype.is_float() && differentiated;
        if op.is_view()
            && !requires_grad
            && sources[0].is_ready()
            && let Some(storage) = sources[0].data()
            && let Some(layout) = view_layout(&op, &shape, &storage.layout)
        {
            let view = Tensor::from_storage(device, dtype, Storage { buffer: storage.buffer, layout });
            view.note(known);
            return Ok(view);
        }
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

    /// Computes the data now, unless it is ready.
    pub fn evaluate(&self) -> Result<()> {
        evaluate(&[self], &mut Vec::new())
    }

    /// Computes the tensor and returns it.
    pub fn evaluated(self) -> Result<Tensor> {
        self.evaluate()?;
        Ok(self)
    }

    /// Computes several tensors together. Work that they share is done once.
    pub fn evaluate_all(tensors: &[&Tensor]) -> Result<()> {
        evaluate(tensors, &mut Vec::new())
    }

    /// Like [`Tensor::evaluate_all`], but the results may take over the memory of `replaced` if nothing else holds
    /// those tensors. Use this for updates that overwrite their inputs. On success `replaced` is empty; on an error its
    /// tensors are unchanged. The exception is a failure after a step has begun to overwrite them. Reading the
    /// overwritten tensors is then an error.
    pub fn evaluate_replacing(tensors: &[&Tensor], replaced: &mut Vec<Tensor>) -> Result<()> {
        evaluate(tensors, replaced)
    }

    /// Returns the data, and computes it if necessary.
    pub fn storage(&self) -> Result<Storage> {
        self.evaluate()?;
        let internal = || Error::internal("storage", format!("{} has no data", self.node().op().name()));
        let storage = self.node().data().ok_or_else(internal)?;
        ruined::check(&[&storage])?;
        Ok(storage)
    }

    /// The same values in a separate buffer that all readers share. Code that compares an element with a result needs
    /// this, because it must not compare two separate computations.
    pub(crate) fn stored(&self) -> Result<Tensor> {
        if self.is_evaluated() {
            return Ok(self.clone());
        }
        Tensor::record(Op::Contiguous, self.dtype(), dims(self.shape()), &[self])
    }

    /// Returns [`Tensor::stored`] if a gradient will be needed, otherwise the tensor itself.
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

    /// Computes this tensor and returns a leaf with its values that collects gradients.
    ///
    /// # Errors
    /// [`Error::DType`] if the tensor is not floating-point.
    pub fn with_grad(&self) -> Result<Tensor> {
        if !self.dtype().is_float() {
            return Err(Error::dtype(
                "with_grad",
                &[self.dtype()],
                "only floating-point tensors have gradients",
            ));
        }
        if self.dtype().float8().is_some() {
            let hint = "8-bit floats have no gradients: keep them in float32, and multiply with matmul_float8 (in Python \
                        within autocast(dtype=float8_e4m3fn))";
            return Err(Error::dtype("requires_grad", &[self.dtype()], hint));
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
        let node = |operand: &&Term| Ok(Tensor::from_term(operand)?.into_node());
        let sources = operands.iter().map(node).collect::<Result<Sources>>()?;
        Ok(Term::Recorded(Tensor::record_nodes(self.device, op, dtype, shape, sources)?.into_node()))
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
    /// Returns the tensor, or the first error.
    pub(crate) fn tensor(self) -> Result<Tensor> {
        Tensor::from_term(&self.term()?)
    }
}

impl Tensor {
    /// Returns the tensor as a term of formulas.
    pub(crate) fn term(&self) -> Term {
        Term::Recorded(self.node().clone())
    }

    /// Returns the tensor of a recorded node.
    pub(crate) fn from_term(term: &Term) -> Result<Tensor> {
        let node = match term {
            Term::Recorded(node) => node.clone().into_any().downcast::<Node>().ok(),
            Term::Drafted(_) => None,
        };
        node.map(Tensor::from_node).ok_or_else(|| Error::internal("record", "not a node of the graph"))
    }

    /// Returns the dtype and shape.
    pub(crate) fn tensor_type(&self) -> TensorType<'_> {
        TensorType::new(self.dtype(), self.shape())
    }

    /// Records a matrix product or a convolution that a user asked for. Its factors may be rounded as set by
    /// [`set_float32_matmul_precision`](crate::set_float32_matmul_precision).
    pub(crate) fn record_product(
        op: Op,
        dtype: DType,
        shape: Dims,
        operands: [&Tensor; 2],
    ) -> Result<Tensor> {
        let [a, b] = operands.map(Tensor::term);
        Tensor::from_term(&precision::record(
            precision::float32_matmul_precision(),
            op,
            dtype,
            shape,
            [&a, &b],
        )?)
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

/// Refuses 8-bit floats for an operation that computes with its operands' elements.
fn refuse_float8(op: &Op, dtype: DType, sources: &Sources) -> Result<()> {
    let operands = sources.iter().map(|source| source.dtype());
    let mut all = operands.clone().chain([dtype]);
    if all.all(|dtype| dtype.float8().is_none()) {
        return Ok(());
    }
    Err(Error::dtype(op.name(), &operands.collect::<Vec<_>>(), crate::dtype::float8::FLOAT8_HINT))
}

/// Makes a custom kernel ready on a device, and the kernel of its gradient if it is to be differentiated, so that errors
/// of the latter are reported before the backward pass.
pub(crate) fn prepare_custom(
    kernel: &CustomKernel,
    device: Device,
    groups: [usize; 3],
    differentiated: bool,
) -> Result<()> {
    device.backend().prepare_custom(kernel, groups)?;
    let Some(gradient) = kernel.gradient_kernel().filter(|_| differentiated) else { return Ok(()) };
    device.backend().prepare_custom(gradient, [1; 3]).map_err(|error| match error {
        Error::KernelLanguage { kernel: gradient, device, expected, available } => {
            Error::KernelGradient { kernel: kernel.name().to_owned(), gradient, device, expected, available }
        }
        other => other,
    })
}

/// Uploads a key and counter as the leaf of an [`Op::RandomBits`].
pub(crate) fn random_state(state: GeneratorState, device: Device) -> Result<Tensor> {
    let GeneratorState { seed, counter } = state;
    let words = [seed as u32, (seed >> 32) as u32, counter as u32, (counter >> 32) as u32];
    Tensor::from_slice(&words, &[4], device)
}
