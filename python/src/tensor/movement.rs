//! Shape operations: they move elements without changing them.

use phynexus::{Tensor, host_memory};
use pyo3::{
    prelude::*,
    types::{PyTuple, PyType},
};

use super::{PyTensor, reshaped};
use crate::{
    argument::{
        Axes, Count, Number, Shape, number, one_of, size, tensors, varargs, varargs_sizes, whole_numbers,
        whole_numbers_up_to,
    },
    error::{Result, type_error, value_error},
    interrupt::compute,
    precision,
};

impl PyTensor {
    /// Reshapes. The result counts as a view of a tensor, but not of a view, where PyTorch may return a copy.
    fn reshaped(&self, function: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<PyTensor> {
        let tensor = function(&self.tensor()?)?;
        Ok(if self.viewed.is_some() { PyTensor::wrap(tensor) } else { self.view_of(tensor) })
    }
}

#[pymethods]
impl PyTensor {
    /// Returns a tensor with the same elements and another shape; one size may be -1.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, shape: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        self.reshaped(|tensor| reshaped(tensor, shape))
    }
    /// As ``reshape``. It works for any memory layout.
    #[pyo3(signature = (*shape))]
    fn view(&self, shape: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        Ok(self.view_of(reshaped(&self.tensor()?, shape)?))
    }
    /// Reshapes to the shape of ``other``.
    fn view_as(&self, other: &PyTensor) -> Result<PyTensor> {
        let shape = other.sizes();
        self.map_view(|t| t.reshape(&shape))
    }
    /// Reshapes to the shape of ``other``.
    fn reshape_as(&self, other: &PyTensor) -> Result<PyTensor> {
        let shape = other.sizes();
        self.reshaped(|t| Ok(t.reshape(&shape)?))
    }
    /// Reorders the dimensions.
    #[pyo3(signature = (*dims))]
    fn permute(&self, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let rank = tensor.rank() as i64;
        let from_front = |axis: i64| {
            let positive = if axis < 0 { axis + rank } else { axis };
            usize::try_from(positive)
                .ok()
                .filter(|&p| p < tensor.rank())
                .ok_or_else(|| phynexus::Error::Axis { op: "permute", axis, shape: tensor.shape().into() })
        };
        let order = varargs(dims)?.into_iter().map(from_front).collect::<phynexus::Result<Vec<_>>>()?;
        Ok(self.view_of(tensor.permute(&order)?))
    }
    /// Swaps two dimensions.
    fn transpose(&self, dim0: i64, dim1: i64) -> Result<PyTensor> {
        self.map_view(|t| t.transpose(dim0, dim1))
    }
    /// Alias of ``transpose``.
    fn swapaxes(&self, axis0: i64, axis1: i64) -> Result<PyTensor> {
        self.map_view(|t| t.transpose(axis0, axis1))
    }
    /// Transposes a matrix.
    fn t(&self) -> Result<PyTensor> {
        self.map_view(|t| if t.rank() < 2 { Ok(t.clone()) } else { t.t() })
    }
    /// The transposed matrix.
    #[getter(T)]
    fn transposed(&self) -> Result<PyTensor> {
        let rank = self.ndim();
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
        self.map_view(|t| t.transpose(-2, -1))
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
        let tensor = self.tensor()?;
        let rank = tensor.rank() as i64;
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
        let order: Vec<usize> = (0..rank)
            .filter_map(|place| match to.iter().position(|&t| t == place) {
                Some(position) => Some(from[position] as usize),
                None => rest.next().map(|axis| axis as usize),
            })
            .collect();
        Ok(self.view_of(tensor.permute(&order)?))
    }
    /// Broadcasts dimensions of size 1 to ``sizes``; -1 keeps a size.
    #[pyo3(signature = (*sizes))]
    fn expand(&self, sizes: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let sizes = varargs(sizes)?;
        let added = sizes.len().saturating_sub(tensor.rank());
        let sizes = sizes
            .iter()
            .enumerate()
            .map(|(i, &wanted)| match i.checked_sub(added) {
                Some(axis) if wanted == -1 && axis < tensor.rank() => Ok(tensor.shape()[axis]),
                _ => size(wanted),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(PyTensor::wrap(tensor.broadcast_to(&sizes)?))
    }
    /// Broadcasts to the shape of ``other``.
    fn expand_as(&self, other: &PyTensor) -> Result<PyTensor> {
        let shape = other.sizes();
        self.map(|t| t.broadcast_to(&shape))
    }
    /// Broadcasts to ``shape``.
    fn broadcast_to(&self, shape: Shape) -> Result<PyTensor> {
        self.map(|t| t.broadcast_to(&shape.0))
    }
    /// Removes dimensions of size 1: all of them, or those in ``dim``.
    #[pyo3(signature = (dim=Axes::All, *, axis=None))]
    fn squeeze(&self, dim: Axes, axis: Option<Axes>) -> Result<PyTensor> {
        let (tensor, dim) = (self.tensor()?, dim.or(axis)?);
        let Axes::All = dim else {
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
            axes.sort_unstable();
            axes.dedup();
            let mut squeezed = tensor.clone();
            for axis in axes.into_iter().rev().filter(|&axis| tensor.shape().get(axis as usize) == Some(&1)) {
                squeezed = squeezed.squeeze(axis)?;
            }
            return Ok(self.view_of(squeezed));
        };
        Ok(self.view_of(tensor.squeeze_all()?))
    }
    /// Inserts a dimension of size 1 at ``dim``.
    #[pyo3(signature = (dim=None, *, axis=None))]
    fn unsqueeze(&self, dim: Option<i64>, axis: Option<i64>) -> Result<PyTensor> {
        let dim = one_of(dim, axis)?.ok_or_else(|| type_error("unsqueeze: missing argument dim"))?;
        self.map_view(|t| t.unsqueeze(dim))
    }
    /// Merges the dimensions from ``start_dim`` to ``end_dim``.
    #[pyo3(signature = (start_dim=0, end_dim=-1))]
    fn flatten(&self, start_dim: i64, end_dim: i64) -> Result<PyTensor> {
        self.reshaped(|t| Ok(t.flatten(start_dim, end_dim)?))
    }
    /// Flattens the tensor to a vector.
    fn ravel(&self) -> Result<PyTensor> {
        self.reshaped(|t| Ok(t.reshape_infer(&[-1])?))
    }
    /// Splits one dimension into several; one size may be -1.
    fn unflatten(&self, dim: i64, sizes: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let rank = tensor.rank() as i64;
        if !(-rank..rank).contains(&dim) {
            return Err(
                phynexus::Error::Axis { op: "unflatten", axis: dim, shape: tensor.shape().into() }.into()
            );
        }
        let axis = dim.rem_euclid(rank) as usize;
        let before = tensor.shape()[..axis].iter().map(|&s| s as i64);
        let after = tensor.shape()[axis + 1..].iter().map(|&s| s as i64);
        let shape: Vec<i64> = before.chain(whole_numbers(sizes)?).chain(after).collect();
        Ok(self.view_of(tensor.reshape_infer(&shape)?))
    }
    /// Reverses the order of elements along these dimensions.
    #[pyo3(signature = (*dims))]
    fn flip(&self, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let axes = varargs(dims)?;
        self.map(|t| if axes.is_empty() { Ok(t.clone()) } else { t.flip(&axes) })
    }
    /// Rolls elements along dimensions: elements shifted past the end reappear at the start.
    #[pyo3(signature = (shifts, dims=None))]
    fn roll(&self, shifts: &Bound<'_, PyAny>, dims: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let mut shifts = whole_numbers(shifts)?;
        let Some(dims) = dims.filter(|dims| !dims.is_none()) else {
            let [shift] = shifts[..] else {
                return Err(value_error("roll: give one dim for each shift"));
            };
            return self.map(|t| t.reshape_infer(&[-1])?.roll(&[shift], &[0])?.reshape(t.shape()));
        };
        let dims = whole_numbers(dims)?;
        if shifts.len() == 1 {
            shifts = vec![shifts[0]; dims.len()];
        }
        self.map(|t| t.roll(&shifts, &dims))
    }
    /// Repeats the tensor along each dimension, like ``numpy.tile``.
    #[pyo3(signature = (*repeats))]
    fn repeat(&self, repeats: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let counts = varargs_sizes(repeats)?;
        self.map(|t| t.repeat(&counts))
    }
    /// Repeats the tensor along each dimension; missing counts are 1.
    #[pyo3(signature = (*dims))]
    fn tile(&self, dims: &Bound<'_, PyTuple>) -> Result<PyTensor> {
        let counts = varargs_sizes(dims)?;
        self.map(|t| t.tile(&counts))
    }
    /// Repeats each element ``repeats`` times in a row.
    #[pyo3(signature = (repeats, dim=None))]
    fn repeat_interleave(&self, repeats: Count, dim: Option<i64>) -> Result<PyTensor> {
        self.map(|t| match dim {
            Some(dim) => t.repeat_interleave(repeats.0, dim),
            None => t.reshape_infer(&[-1])?.repeat_interleave(repeats.0, 0),
        })
    }
    /// Returns ``length`` elements along ``dim`` starting at ``start``. A negative ``start`` counts from the end.
    fn narrow(&self, dim: i64, start: i64, length: Count) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let rank = tensor.rank() as i64;
        // The engine reports an axis out of range.
        let size = match (-rank..rank).contains(&dim) {
            true => tensor.shape()[dim.rem_euclid(rank) as usize] as i64,
            false => 0,
        };
        let from_end = if start < 0 { size } else { 0 };
        let Ok(first) = usize::try_from(start + from_end) else {
            return Err(value_error(format!("narrow: start {start} is out of range for size {size}")));
        };
        Ok(self.view_of(tensor.narrow(dim, first, length.0)?))
    }
    /// Selects one position along ``dim`` and removes the dimension.
    fn select(&self, dim: i64, index: i64) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let rank = tensor.rank() as i64;
        if !(-rank..rank).contains(&dim) {
            return Err(
                phynexus::Error::Axis { op: "select", axis: dim, shape: tensor.shape().into() }.into()
            );
        }
        let axis = dim.rem_euclid(rank);
        let mut specs = vec![phynexus::tensor::IndexSpec::ALL; axis as usize];
        specs.push(phynexus::tensor::IndexSpec::At(index));
        Ok(self.view_of(tensor.index(&specs)?))
    }
    /// Splits along ``dim`` into parts of ``split_size`` elements, or into parts of the given sizes.
    #[pyo3(signature = (split_size, dim=0))]
    fn split(&self, split_size: &Bound<'_, PyAny>, dim: i64) -> Result<Vec<PyTensor>> {
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
        Ok(parts.into_iter().map(|part| self.view_of(part)).collect())
    }
    /// Splits into ``chunks`` parts along ``dim``.
    #[pyo3(signature = (chunks, dim=0))]
    fn chunk(&self, chunks: Count, dim: i64) -> Result<Vec<PyTensor>> {
        Ok(self.tensor()?.chunk(chunks.0, dim)?.into_iter().map(|part| self.view_of(part)).collect())
    }
    /// Splits into one tensor per position along ``dim``.
    #[pyo3(signature = (dim=0))]
    pub(super) fn unbind(&self, py: Python<'_>, dim: i64) -> Result<Vec<PyTensor>> {
        let tensor = self.tensor()?;
        let rank = tensor.rank() as i64;
        if !(-rank..rank).contains(&dim) {
            return Err(
                phynexus::Error::Axis { op: "unbind", axis: dim, shape: tensor.shape().into() }.into()
            );
        }
        let axis = dim.rem_euclid(rank);
        if tensor.shape()[axis as usize] == 0 {
            return Ok(Vec::new());
        }
        let parts = compute(py, || {
            let parts = tensor.split(1, dim)?;
            let mut unbound = host_memory::room(parts.len())?;
            for part in parts {
                unbound.push(part.squeeze(axis)?);
            }
            Ok::<_, phynexus::Error>(unbound)
        })?;
        Ok(parts.into_iter().map(|part| self.view_of(part)).collect())
    }
    /// Returns the lower triangle; other elements are 0.
    #[pyo3(signature = (diagonal=0))]
    fn tril(&self, diagonal: i64) -> Result<PyTensor> {
        self.map(|t| t.tril(diagonal))
    }
    /// Returns the upper triangle; other elements are 0.
    #[pyo3(signature = (diagonal=0))]
    fn triu(&self, diagonal: i64) -> Result<PyTensor> {
        self.map(|t| t.triu(diagonal))
    }
    /// Returns a matrix with this vector on the diagonal, or the diagonal of this matrix.
    #[pyo3(signature = (diagonal=0))]
    fn diag(&self, diagonal: i64) -> Result<PyTensor> {
        self.map(|t| t.diag(diagonal))
    }
    /// Pads with ``value``: pairs of widths, from the last dimension to the first, as in PyTorch.
    #[pyo3(signature = (padding, value=None))]
    fn pad(&self, padding: &Bound<'_, PyAny>, value: Option<Number>) -> Result<PyTensor> {
        let widths = whole_numbers(padding)?;
        let tensor = self.tensor()?;
        if widths.len() % 2 == 1 || widths.len() / 2 > tensor.rank() {
            let message = format!(
                "pad: expected one pair of widths per dimension, got {} widths for {} dimensions",
                widths.len(),
                tensor.rank()
            );
            return Err(value_error(message));
        }
        let mut borders = vec![(0, 0); tensor.rank()];
        let mut cut = tensor.clone();
        for (i, pair) in widths.chunks_exact(2).enumerate() {
            let axis = tensor.rank() - 1 - i;
            borders[axis] = (pair[0].max(0) as usize, pair[1].max(0) as usize);
            let (before, after) = (pair[0].min(0), pair[1].min(0));
            if before < 0 || after < 0 {
                let end = tensor.shape()[axis] as i64 + after;
                if end < -before {
                    let message = format!(
                        "pad: {} and {} remove more elements than axis {axis} of size {} has",
                        pair[0],
                        pair[1],
                        tensor.shape()[axis]
                    );
                    return Err(value_error(message));
                }
                cut = cut.slice(axis as i64, Some(-before), Some(end), 1)?;
            }
        }
        let value = value.map_or(phynexus::Scalar::Int(0), |value| value.0);
        Ok(PyTensor::wrap(cut.pad(&borders, value)?))
    }
}

/// Concatenates tensors along ``dim``.
#[pyfunction]
#[pyo3(signature = (tensors, dim=0))]
pub(crate) fn cat(tensors: &Bound<'_, PyAny>, dim: i64) -> Result<PyTensor> {
    let parts = self::tensors(tensors)?;
    Ok(PyTensor::wrap(Tensor::cat(&parts.iter().collect::<Vec<_>>(), dim)?))
}

/// Stacks tensors along a new dimension at ``dim``.
#[pyfunction]
#[pyo3(signature = (tensors, dim=0))]
pub(crate) fn stack(tensors: &Bound<'_, PyAny>, dim: i64) -> Result<PyTensor> {
    let parts = self::tensors(tensors)?;
    Ok(PyTensor::wrap(Tensor::stack(&parts.iter().collect::<Vec<_>>(), dim)?))
}

/// Returns coordinate grids of the given axes; ``indexing`` is ``"ij"`` or ``"xy"``.
#[pyfunction]
#[pyo3(signature = (tensors, indexing="ij"))]
pub(crate) fn meshgrid(tensors: &Bound<'_, PyAny>, indexing: &str) -> Result<Vec<PyTensor>> {
    let mut axes = self::tensors(tensors)?;
    let swap = match indexing {
        "ij" => false,
        "xy" => axes.len() > 1,
        other => {
            return Err(value_error(format!("meshgrid: unknown indexing {other:?}: use \"ij\" or \"xy\"")));
        }
    };
    if swap {
        axes.swap(0, 1);
    }
    let mut grids = Tensor::meshgrid(&axes.iter().collect::<Vec<_>>())?;
    if swap {
        grids.swap(0, 1);
    }
    Ok(grids.into_iter().map(PyTensor::wrap).collect())
}

/// Evaluates the Einstein summation convention, such as ``einsum("ij,jk->ik", a, b)``.
#[pyfunction]
#[pyo3(signature = (equation, *operands))]
pub(crate) fn einsum(equation: &str, operands: &Bound<'_, PyTuple>) -> Result<PyTensor> {
    let operands = match operands.len() {
        1 if operands.get_item(0)?.cast::<PyTensor>().is_err() => tensors(&operands.get_item(0)?)?,
        _ => tensors(operands.as_any())?,
    };
    let operands = precision::low(operands)?;
    Ok(PyTensor::wrap(Tensor::einsum(equation, &operands.iter().collect::<Vec<_>>())?))
}

/// Returns ``then`` where ``condition`` is true and ``otherwise`` elsewhere. Both are tensors or numbers.
#[pyfunction(name = "where")]
pub(crate) fn where_(
    condition: &PyTensor,
    then: &Bound<'_, PyAny>,
    otherwise: &Bound<'_, PyAny>,
) -> Result<PyTensor> {
    let condition = condition.tensor()?;
    let tensor = |object: &Bound<'_, PyAny>, beside: Option<&Tensor>| -> Result<Tensor> {
        if let Ok(tensor) = object.cast::<PyTensor>() {
            return tensor.get().tensor();
        }
        match (number(object)?, beside) {
            (Some(scalar), Some(beside)) => super::operand::Operand::Number(scalar).into_tensor(beside),
            (Some(scalar), None) => {
                let dtype = match scalar {
                    phynexus::Scalar::Bool(_) => phynexus::DType::Bool,
                    phynexus::Scalar::Float(_) => phynexus::DType::F32,
                    _ => phynexus::DType::I64,
                };
                Ok(Tensor::full(&[], scalar, dtype, condition.device())?)
            }
            (None, _) => super::numpy::import(object, None, condition.device()),
        }
    };
    let other = otherwise.cast::<PyTensor>().ok().map(|t| t.get().tensor()).transpose()?;
    let then = tensor(then, other.as_ref())?;
    let otherwise = tensor(otherwise, Some(&then))?;
    Ok(PyTensor::wrap(condition.where_(&then, &otherwise)?))
}

/// Returns the shape that the given shapes broadcast to. Raises an error if they do not broadcast.
#[pyfunction]
#[pyo3(signature = (*shapes))]
pub(crate) fn broadcast_shapes<'py>(shapes: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyTuple>> {
    let mut result: Vec<usize> = Vec::new();
    for shape in shapes.iter() {
        let shape = shape.extract::<Shape>()?;
        result = phynexus::shape::broadcast("broadcast_shapes", &result, &shape.0)?.to_vec();
    }
    Ok(PyTuple::new(shapes.py(), result)?)
}

#[pymethods]
impl PyTensor {
    /// Stacks tensors along a new dimension, like the function ``stack``.
    #[classmethod]
    #[pyo3(name = "stack", signature = (tensors, dim=0))]
    fn stack_of(class: &Bound<'_, PyType>, tensors: &Bound<'_, PyAny>, dim: i64) -> Result<PyTensor> {
        let _ = class;
        stack(tensors, dim)
    }
    /// Concatenates tensors, like the function ``cat``.
    #[classmethod]
    #[pyo3(name = "cat", signature = (tensors, dim=0))]
    fn cat_of(class: &Bound<'_, PyType>, tensors: &Bound<'_, PyAny>, dim: i64) -> Result<PyTensor> {
        let _ = class;
        cat(tensors, dim)
    }
}
