//! Views: tensors that share their elements with another tensor, as PyTorch's do. `neurenix::nn` has what keeps them
//! equal.

use neurenix::nn::ViewStep;
use phynexus::{
    Tensor,
    shape::{Dims, normalize_axis},
    tensor::IndexSpec,
};
use pyo3::{prelude::*, types::PyTuple};

use super::PyTensor;
use crate::{
    argument::{Axes, Count, Shape, one_of, size, varargs, whole_numbers, whole_numbers_up_to},
    error::{Result, runtime_error, type_error, value_error},
    interrupt::compute,
    variable::special::Special,
};

impl PyTensor {
    /// Wraps the value that a step makes of this tensor's.
    #[inline]
    pub(super) fn view_of(&self, value: Tensor, step: ViewStep) -> PyTensor {
        let view = if self.special.is_plain() {
            self.variable().view(ViewStep::Detach, value.clone()).view(step, value)
        } else {
            self.variable().view(step, value)
        };
        PyTensor::at(view, Special::none())
    }

    pub(super) fn viewed(&self, step: ViewStep) -> Result<PyTensor> {
        let value = step.apply(&self.tensor()?)?;
        Ok(self.view_of(value, step))
    }

    /// A view of the same elements in another shape.
    fn in_shape(&self, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<PyTensor> {
        let value = function(&self.tensor()?)?;
        let shape = value.shape().into();
        Ok(self.view_of(value, ViewStep::Reshape(shape)))
    }

    /// As `in_shape`, but a tensor of its own where PyTorch has to copy.
    fn reshaped(&self, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<PyTensor> {
        let value = function(&self.tensor()?)?;
        if !self.variable().reshapes_in_place(value.shape()) {
            return Ok(PyTensor::wrap(value));
        }
        let shape = value.shape().into();
        Ok(self.view_of(value, ViewStep::Reshape(shape)))
    }

    /// A view with two axes swapped.
    fn swapped(&self, dim0: i64, dim1: i64) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let first = normalize_axis("transpose", dim0, tensor.shape())?;
        let second = normalize_axis("transpose", dim1, tensor.shape())?;
        let mut order: Dims = (0..tensor.rank()).collect();
        order.swap(first, second);
        self.viewed(ViewStep::Permute(order))
    }

    /// A view of what an index chooses along one axis.
    fn along(&self, value: Tensor, axis: usize, spec: IndexSpec) -> PyTensor {
        let mut specs = vec![IndexSpec::ALL; axis];
        specs.push(spec);
        self.view_of(value, ViewStep::Index(specs))
    }

    /// Views of parts that lie behind one another along an axis.
    fn parts<'py>(&self, py: Python<'py>, parts: Vec<Tensor>, dim: i64) -> Result<Bound<'py, PyTuple>> {
        let mut start = 0;
        let mut views = Vec::with_capacity(parts.len());
        for part in parts {
            let axis = normalize_axis("split", dim, part.shape())?;
            let stop = start + part.shape()[axis] as i64;
            let range = IndexSpec::Slice { start: Some(start), stop: Some(stop), step: 1 };
            views.push(self.along(part, axis, range));
            start = stop;
        }
        Ok(PyTuple::new(py, views)?)
    }
}

/// Reshapes; one of the sizes may be -1.
fn in_sizes(tensor: &Tensor, sizes: &Bound<'_, PyTuple>) -> Result<Tensor> {
    Ok(tensor.reshape_infer(&varargs(sizes)?)?)
}

#[pymethods]
impl PyTensor {
    /// Lets this tensor be one of its views from now on. Other views keep sharing elements with it.
    fn _become(slf: PyRef<'_, Self>, view: &PyTensor) -> Result<Py<PyTensor>> {
        if slf.collects() {
            return Err(runtime_error(
                "a leaf that requires gradients keeps its shape: use the function that returns a view",
            ));
        }
        slf.special.part(view.variable().clone());
        Ok(slf.into())
    }
    /// Returns a tensor with the same elements and another shape; one size may be -1. It is a view, unless this is a
    /// view whose elements PyTorch would have to copy.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        self.reshaped(|tensor| in_sizes(tensor, shape))
    }
    /// Returns a view with another shape; one size may be -1. It works for any memory layout.
    #[pyo3(signature = (*shape))]
    fn view(&self, shape: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        self.in_shape(|tensor| in_sizes(tensor, shape))
    }
    /// Returns a view with the shape of ``other``.
    fn view_as(&self, other: &PyTensor) -> Result<PyTensor> {
        let shape = other.variable().tensor();
        self.in_shape(|t| Ok(t.reshape(shape.shape())?))
    }
    /// Reshapes to the shape of ``other``, as ``reshape``.
    fn reshape_as(&self, other: &PyTensor) -> Result<PyTensor> {
        let shape = other.variable().tensor();
        self.reshaped(|t| Ok(t.reshape(shape.shape())?))
    }
    /// Reorders the dimensions.
    #[pyo3(signature = (*dims))]
    fn permute(&self, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let tensor = self.variable().tensor();
        let axes = varargs(dims)?;
        let order = axes.into_iter().map(|axis| normalize_axis("permute", axis, tensor.shape()));
        self.viewed(ViewStep::Permute(order.collect::<phynexus::Result<Dims>>()?))
    }
    /// Swaps two dimensions.
    fn transpose(&self, dim0: i64, dim1: i64) -> Result<PyTensor> {
        self.swapped(dim0, dim1)
    }
    /// Alias of ``transpose``.
    fn swapaxes(&self, axis0: i64, axis1: i64) -> Result<PyTensor> {
        self.swapped(axis0, axis1)
    }
    /// Transposes a matrix.
    fn t(&self) -> Result<PyTensor> {
        let value = self.tensor()?.t()?;
        let order = (0..value.rank()).rev().collect();
        Ok(self.view_of(value, ViewStep::Permute(order)))
    }
    /// The transposed matrix.
    #[getter(T)]
    fn transposed(&self) -> Result<PyTensor> {
        let rank = self.variable().tensor().rank();
        if rank != 2 {
            return Err(value_error(format!(
                "T: expected a matrix, got a tensor of {rank} dimensions: use mT or permute"
            )));
        }
        self.t()
    }
    /// The tensor with its last two dimensions swapped.
    #[getter(mT)]
    fn matrices_transposed(&self) -> Result<PyTensor> {
        self.swapped(-2, -1)
    }
    /// Alias of ``mT``: there are no complex tensors.
    #[getter(mH)]
    fn matrices_adjoint(&self) -> Result<PyTensor> {
        self.matrices_transposed()
    }
    /// Alias of ``T``: there are no complex tensors.
    #[getter(H)]
    fn adjoint(&self) -> Result<PyTensor> {
        self.transposed()
    }
    /// Moves dimensions to other positions.
    fn movedim(&self, source: &Bound<'_, PyAny>, destination: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let (from, to) = (whole_numbers(source)?, whole_numbers(destination)?);
        let rank = self.variable().tensor().rank() as i64;
        let front = |axis: i64| if axis < 0 { axis + rank } else { axis };
        let (from, to): (Vec<i64>, Vec<i64>) =
            (from.into_iter().map(front).collect(), to.into_iter().map(front).collect());
        let valid = |list: &[i64]| {
            list.iter().enumerate().all(|(i, a)| (0..rank).contains(a) && !list[..i].contains(a))
        };
        if from.len() != to.len() || !valid(&from) || !valid(&to) {
            return Err(value_error(format!(
                "movedim: cannot move dims {source} to {destination} of {rank} dimensions"
            )));
        }
        let mut rest = (0..rank).filter(|axis| !from.contains(axis));
        let order = (0..rank)
            .filter_map(|place| match to.iter().position(|&t| t == place) {
                Some(position) => Some(from[position] as usize),
                None => rest.next().map(|axis| axis as usize),
            })
            .collect();
        self.viewed(ViewStep::Permute(order))
    }
    /// Broadcasts dimensions of size 1 to ``sizes``; -1 keeps a size.
    #[pyo3(signature = (*sizes))]
    fn expand(&self, sizes: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let tensor = self.variable().tensor();
        let sizes = varargs(sizes)?;
        let added = sizes.len().saturating_sub(tensor.rank());
        let sizes = sizes
            .iter()
            .enumerate()
            .map(|(i, &wanted)| match i.checked_sub(added) {
                Some(axis) if wanted == -1 && axis < tensor.rank() => Ok(tensor.shape()[axis]),
                _ => size(wanted),
            })
            .collect::<Result<Dims>>()?;
        self.viewed(ViewStep::Expand(sizes))
    }
    /// Broadcasts to the shape of ``other``.
    fn expand_as(&self, other: &PyTensor) -> Result<PyTensor> {
        self.viewed(ViewStep::Expand(other.variable().tensor().shape().into()))
    }
    /// Broadcasts to ``shape``.
    fn broadcast_to(&self, shape: Shape) -> Result<PyTensor> {
        self.viewed(ViewStep::Expand(shape.0.into()))
    }
    /// Removes dimensions of size 1: all of them, or those in ``dim``.
    #[pyo3(signature = (dim=Axes::All, *, axis=None))]
    fn squeeze(&self, dim: Axes, axis: Option<Axes>) -> Result<PyTensor> {
        let dim = dim.or(axis)?;
        let Axes::All = dim else {
            let tensor = self.tensor()?;
            let rank = tensor.rank() as i64;
            let mut axes: Vec<i64> = dim.list().unwrap_or_default().to_vec();
            for axis in &mut axes {
                let known = (-rank.max(1)..rank.max(1)).contains(axis);
                if !known {
                    let shape = tensor.shape().into();
                    return Err(phynexus::Error::Axis { op: "squeeze", axis: *axis, shape }.into());
                }
                *axis = axis.rem_euclid(rank.max(1));
            }
            let kept = |&(axis, &size): &(usize, &usize)| size != 1 || !axes.contains(&(axis as i64));
            let shape = tensor.shape().iter().enumerate().filter(kept).map(|(_, &size)| size).collect();
            return self.viewed(ViewStep::Reshape(shape));
        };
        self.in_shape(|tensor| Ok(tensor.squeeze_all()?))
    }
    /// Inserts a dimension of size 1 at ``dim``.
    #[pyo3(signature = (dim=None, *, axis=None))]
    fn unsqueeze(&self, dim: Option<i64>, axis: Option<i64>) -> Result<PyTensor> {
        let dim = one_of(dim, axis)?.ok_or_else(|| type_error("unsqueeze: missing argument dim"))?;
        self.in_shape(|t| Ok(t.unsqueeze(dim)?))
    }
    /// Merges the dimensions from ``start_dim`` to ``end_dim``, as ``reshape``.
    #[pyo3(signature = (start_dim=0, end_dim=-1))]
    fn flatten(&self, start_dim: i64, end_dim: i64) -> Result<PyTensor> {
        self.reshaped(|t| Ok(t.flatten(start_dim, end_dim)?))
    }
    /// Flattens the tensor to a vector, as ``reshape``.
    fn ravel(&self) -> Result<PyTensor> {
        self.reshaped(|t| Ok(t.reshape_infer(&[-1])?))
    }
    /// Splits one dimension into several; one size may be -1.
    fn unflatten(&self, dim: i64, sizes: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let sizes = whole_numbers(sizes)?;
        self.in_shape(|tensor| {
            let axis = normalize_axis("unflatten", dim, tensor.shape())?;
            let known: i64 = sizes.iter().filter(|&&size| size != -1).product();
            let whole = tensor.shape()[axis] as i64;
            let inferred = |size: i64| if size == -1 && known > 0 { whole / known } else { size };
            let before = tensor.shape()[..axis].iter().map(|&s| s as i64);
            let after = tensor.shape()[axis + 1..].iter().map(|&s| s as i64);
            let shape: Vec<i64> = before.chain(sizes.into_iter().map(inferred)).chain(after).collect();
            Ok(tensor.reshape_infer(&shape)?)
        })
    }
    /// Returns ``length`` elements along ``dim`` starting at ``start``. A negative ``start`` counts from the end.
    fn narrow(&self, dim: i64, start: i64, length: Count) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let axis = normalize_axis("narrow", dim, tensor.shape())?;
        let size = tensor.shape()[axis] as i64;
        let from_end = if start < 0 { size } else { 0 };
        let Ok(first) = usize::try_from(start + from_end) else {
            return Err(value_error(format!("narrow: start {start} is out of range for size {size}")));
        };
        let value = tensor.narrow(dim, first, length.0)?;
        let (start, stop) = (Some(first as i64), Some((first + length.0) as i64));
        Ok(self.along(value, axis, IndexSpec::Slice { start, stop, step: 1 }))
    }
    /// Selects one position along ``dim`` and removes the dimension.
    fn select(&self, dim: i64, index: i64) -> Result<PyTensor> {
        let axis = normalize_axis("select", dim, self.variable().tensor().shape())?;
        let mut specs = vec![IndexSpec::ALL; axis];
        specs.push(IndexSpec::At(index));
        self.viewed(ViewStep::Index(specs))
    }
    /// Returns the windows of ``size`` elements along ``dimension`` that begin every ``step`` elements. Their elements
    /// are a new last dimension. Windows that overlap cannot be changed in place.
    fn unfold(&self, dimension: i64, size: Count, step: Count) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        if tensor.rank() == 0 {
            return self
                .in_shape(|tensor| Ok(tensor.reshape(&[1])?))?
                .unfold(dimension, size, step)?
                .select(0, 0);
        }
        let (size, step) = (size.0, step.0);
        let axis = normalize_axis("unfold", dimension, tensor.shape())?;
        let length = tensor.shape()[axis];
        if size > length || step == 0 {
            return Err(value_error(format!(
                "unfold: expected windows of at most {length} elements and a step of at least 1, got {size} and {step}"
            )));
        }
        let windows = self.viewed(ViewStep::Windows { axis, size, step })?;
        let order = (0..=axis).chain(axis + 2..=tensor.rank()).chain([axis + 1]).collect();
        windows.viewed(ViewStep::Permute(order))
    }
    /// Splits along ``dim`` into parts of ``split_size`` elements, or into parts of the given sizes.
    #[pyo3(signature = (split_size, dim=0))]
    fn split<'py>(
        &self,
        py: Python<'py>,
        split_size: &Bound<'_, PyAny>,
        dim: i64,
    ) -> Result<Bound<'py, PyTuple>> {
        let tensor = self.tensor()?;
        let parts = match split_size.extract::<i64>() {
            Ok(one) => tensor.split(size(one)?, dim)?,
            Err(_) => {
                // At most one part per element, plus some empty ones.
                let most = tensor.shape().iter().fold(1024, |most, &size| size.saturating_add(most));
                let sizes = whole_numbers_up_to(split_size, most)?;
                tensor.split_sizes(&sizes.into_iter().map(size).collect::<Result<Vec<_>>>()?, dim)?
            }
        };
        self.parts(py, parts, dim)
    }
    /// Splits into ``chunks`` parts along ``dim``.
    #[pyo3(signature = (chunks, dim=0))]
    fn chunk<'py>(&self, py: Python<'py>, chunks: Count, dim: i64) -> Result<Bound<'py, PyTuple>> {
        self.parts(py, self.tensor()?.chunk(chunks.0, dim)?, dim)
    }
    /// Splits into one tensor per position along ``dim``.
    #[pyo3(signature = (dim=0))]
    pub(super) fn unbind<'py>(&self, py: Python<'py>, dim: i64) -> Result<Bound<'py, PyTuple>> {
        let tensor = self.tensor()?;
        let axis = normalize_axis("unbind", dim, tensor.shape())?;
        if tensor.shape()[axis] == 0 {
            return Ok(PyTuple::empty(py));
        }
        let parts = compute(py, || {
            let mut parts = tensor.split(1, dim)?;
            for part in &mut parts {
                *part = part.squeeze(axis as i64)?;
            }
            Ok::<_, phynexus::Error>(parts)
        })?;
        let views =
            parts.into_iter().enumerate().map(|(i, part)| self.along(part, axis, IndexSpec::At(i as i64)));
        Ok(PyTuple::new(py, views.collect::<Vec<_>>())?)
    }
}
