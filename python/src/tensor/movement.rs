//! Shape operations: they move elements without changing them.

use phynexus::Tensor;
use pyo3::{
    prelude::*,
    types::{PyTuple, PyType},
};

use super::PyTensor;
use crate::{
    argument::{Count, Number, Shape, number, tensors, varargs, varargs_sizes, whole_numbers},
    error::{Result, value_error},
    precision, promotion,
};

#[pymethods]
impl PyTensor {
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
                    phynexus::Scalar::Float(_) => phynexus::tensor::default_dtype(),
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
    let (then, otherwise) = promotion::promoted(then, otherwise)?;
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
