//! What formulas combine: nodes of the graph that users' tensors hold, or nodes of an [`Ir`]. A gradient rule or the body
//! of a composite is written once and serves both.

use std::{any::Any, cell::RefCell, rc::Rc, sync::Arc};

use smallvec::SmallVec;

use super::{
    Op,
    ir::{Id, Ir},
};
use crate::{
    DType, Error, Result,
    shape::{Dims, check_size, element_count},
};

/// A dtype and a shape: what checks of operands read.
#[derive(Clone, Copy, Debug)]
pub struct TensorType<'a> {
    dtype: DType,
    shape: &'a [usize],
}

impl<'a> TensorType<'a> {
    /// Of this dtype and shape.
    pub fn new(dtype: DType, shape: &'a [usize]) -> TensorType<'a> {
        TensorType { dtype, shape }
    }
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// The shape.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        element_count(self.shape)
    }
    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// A node of the graph as formulas see it. The graph is a higher layer, so it implements this trait.
pub(crate) trait Recorded: Any + Send + Sync {
    /// The element type.
    fn dtype(&self) -> DType;
    /// The shape.
    fn shape(&self) -> &[usize];
    /// The operation that was recorded.
    fn op(&self) -> &Op;
    /// Its operands; empty once the node has its data and needs them no longer.
    fn sources(&self) -> SmallVec<[Term; 3]>;
    /// Records an operation on this node's device.
    fn record(&self, op: Op, dtype: DType, shape: Dims, operands: &[&Term]) -> Result<Term>;
    /// The same values without a gradient.
    fn detach(self: Arc<Self>) -> Result<Term>;
    /// For the graph, which knows the type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// An operand or a result of operations.
#[derive(Clone)]
pub(crate) enum Term {
    /// A node of the graph.
    Recorded(Arc<dyn Recorded>),
    /// A node of an IR.
    Drafted(Rc<Drafted>),
}

/// A node of an IR that is being built.
pub(crate) struct Drafted {
    ir: Rc<RefCell<Ir>>,
    id: Id,
    dtype: DType,
    shape: Dims,
}

impl Term {
    /// The element type.
    pub(crate) fn dtype(&self) -> DType {
        match self {
            Term::Recorded(node) => node.dtype(),
            Term::Drafted(node) => node.dtype,
        }
    }
    /// The shape.
    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Term::Recorded(node) => node.shape(),
            Term::Drafted(node) => &node.shape,
        }
    }
    /// The number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.shape().len()
    }
    /// The number of elements.
    pub(crate) fn len(&self) -> usize {
        element_count(self.shape())
    }
    /// True if there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }
    /// Dtype and shape.
    pub(crate) fn tensor_type(&self) -> TensorType<'_> {
        TensorType::new(self.dtype(), self.shape())
    }

    /// Adds an operation beside its first operand. `shape` and `dtype` are the result's.
    pub(crate) fn record(op: Op, dtype: DType, shape: Dims, operands: &[&Term]) -> Result<Term> {
        match operands.first() {
            Some(first) => first.record_beside(op, dtype, shape, operands),
            None => Err(Error::internal("record", "an operation without operands needs a place")),
        }
    }

    /// Adds an operation beside this term: to the same IR, or on the same device.
    pub(crate) fn record_beside(
        &self,
        op: Op,
        dtype: DType,
        shape: Dims,
        operands: &[&Term],
    ) -> Result<Term> {
        match self {
            Term::Recorded(node) => node.record(op, dtype, shape, operands),
            Term::Drafted(node) => node.record(op, dtype, shape, operands),
        }
    }

    /// The operation and its operands, of a node of the graph.
    pub(crate) fn definition(&self) -> Option<(&Op, SmallVec<[Term; 3]>)> {
        match self {
            Term::Recorded(node) => Some((node.op(), node.sources())),
            Term::Drafted(_) => None,
        }
    }

    /// The same values without a gradient. An IR has no gradients.
    pub(crate) fn detach(&self) -> Result<Term> {
        match self {
            Term::Recorded(node) => node.clone().detach(),
            Term::Drafted(_) => Ok(self.clone()),
        }
    }
}

impl Drafted {
    fn record(&self, op: Op, dtype: DType, shape: Dims, operands: &[&Term]) -> Result<Term> {
        let id = |operand: &&Term| match operand {
            Term::Drafted(other) if Rc::ptr_eq(&other.ir, &self.ir) => Ok(other.id),
            _ => Err(Error::internal("draft", format!("an operand of {} is not in this IR", op.name()))),
        };
        let inputs = operands.iter().map(id).collect::<Result<SmallVec<[Id; 3]>>>()?;
        check_size(op.name(), dtype, &shape)?;
        let id = self.ir.borrow_mut().push(op, dtype, shape.clone(), inputs);
        Ok(Term::Drafted(Rc::new(Drafted { ir: self.ir.clone(), id, dtype, shape })))
    }
}

/// The IR of what `build` computes from leaves of these types.
pub(crate) fn draft(operands: &[TensorType], build: impl FnOnce(&[Term]) -> Result<Term>) -> Result<Ir> {
    let ir = Rc::new(RefCell::new(Ir::default()));
    let leaf = |operand: &TensorType| {
        let id = ir.borrow_mut().push(Op::Buffer, operand.dtype, operand.shape.into(), []);
        let shape = operand.shape.into();
        Term::Drafted(Rc::new(Drafted { ir: ir.clone(), id, dtype: operand.dtype, shape }))
    };
    let leaves: Vec<Term> = operands.iter().map(leaf).collect();
    match build(&leaves)? {
        Term::Drafted(result) if Rc::ptr_eq(&result.ir, &ir) => {
            let mut ir = ir.take();
            ir.outputs.push(result.id);
            Ok(ir)
        }
        _ => Err(Error::internal("draft", "the result is not in the IR")),
    }
}
