//! The class ``Tensor``: a variable that holds a tensor of the engine. `tensor` has its attributes and methods.
//!
//! The engine's tensors are values. Python's are variables: an in-place operation or an optimiser puts a new value into
//! the variable, which all its holders and views see.

pub(crate) mod special;

use neurenix::nn::Parameter;
use phynexus::Tensor;
use pyo3::prelude::*;
use smallvec::SmallVec;

use self::special::Special;
use crate::{error::Result, interrupt::compute};

/// A multi-dimensional array of numbers of one dtype on one device, with automatic differentiation.
///
/// Operations are recorded and evaluated lazily, when their values are needed: by printing, ``item``, ``numpy`` or an
/// optimiser step.
///
/// >>> import neurenix as nx
/// >>> x = nx.Tensor([[1.0, 2.0], [3.0, 4.0]])
/// >>> (x @ x).sum().item()
/// 54.0
#[pyclass(name = "Tensor", module = "neurenix", frozen, subclass, weakref)]
pub(crate) struct PyTensor {
    /// The variable, unless it has become one of its own: see [`PyTensor::variable`].
    pub(crate) own: Parameter,
    /// Whether it is the values of a variable without its gradients, which ``data`` gives.
    pub(crate) special: Special,
}

impl PyTensor {
    /// A new variable.
    pub(crate) fn wrap(tensor: Tensor) -> PyTensor {
        PyTensor::at(Parameter::buffer(tensor), Special::none())
    }

    pub(crate) fn at(own: Parameter, special: Special) -> PyTensor {
        PyTensor { own, special }
    }

    pub(crate) fn trainable(tensor: &Tensor) -> Result<PyTensor> {
        Ok(PyTensor::at(Parameter::new(tensor)?, Special::none()))
    }

    /// The value now: for one that requires gradients, the leaf that collects them.
    #[inline]
    pub(crate) fn tensor(&self) -> Result<Tensor> {
        if self.special.is_any() {
            return self.special_tensor();
        }
        if self.own.is_trainable() { Ok(self.own.leaf()?) } else { Ok(self.own.fresh()?) }
    }

    /// The shape; for complex numbers, without the axis of the parts.
    pub(crate) fn sizes(&self) -> SmallVec<[usize; 4]> {
        let tensor = self.variable().tensor();
        let shape = tensor.shape();
        SmallVec::from_slice(if self.special.is_complex() { &shape[..shape.len() - 1] } else { shape })
    }

    /// A tensor that shares this one's variable, and sees its values as complex numbers or as pairs of parts.
    pub(crate) fn seen(&self, as_complex: bool) -> PyTensor {
        PyTensor::at(self.own.clone(), self.special.seen(as_complex))
    }

    /// A new tensor from this one's value.
    #[inline]
    pub(crate) fn map(&self, function: impl FnOnce(&Tensor) -> phynexus::Result<Tensor>) -> Result<PyTensor> {
        Ok(PyTensor::wrap(function(&self.tensor()?)?))
    }

    /// The value, computed, while other threads of Python go on.
    pub(crate) fn evaluated(&self, py: Python<'_>) -> Result<Tensor> {
        let tensor = self.tensor()?;
        if !tensor.is_evaluated() {
            compute(py, || tensor.evaluate())?;
        }
        Ok(tensor)
    }
}
