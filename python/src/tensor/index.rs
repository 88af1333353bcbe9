//! Indexing with square brackets, by NumPy's rules.

use neurenix::nn::ViewStep;
use phynexus::{
    DType, Tensor, dtype::scalar_bytes, schedule::capture::is_recording, tensor::IndexSpec, text::show_shape,
};
use pyo3::{
    prelude::*,
    types::{PyBool, PyEllipsis, PyInt, PyList, PyRange, PySlice, PyTuple},
};
use smallvec::SmallVec;

use super::{PyTensor, numpy, operand::Operand};
use crate::{
    argument::{fits, kind, number, tensors},
    error::{Failure, Result, type_error},
    interrupt::compute,
};

fn specification(part: &Bound<'_, PyAny>, tensor: &Tensor) -> Result<IndexSpec> {
    if part.is_none() {
        return Ok(IndexSpec::NewAxis);
    }
    if let Ok(index) = part.cast::<PyTensor>() {
        let index = index.get().tensor()?;
        if !index.dtype().is_integer() && index.dtype() != DType::Bool {
            let message = format!("a {} tensor is not an index: use integers or bool", index.dtype());
            return Err(Failure::from(pyo3::exceptions::PyIndexError::new_err(message)));
        }
        return Ok(IndexSpec::Tensor(index.to_device(tensor.device())?));
    }
    if part.is_instance_of::<PyInt>() {
        return Ok(IndexSpec::At(part.extract()?));
    }
    if let Ok(slice) = part.cast::<PySlice>() {
        let end = |name: &str| -> Result<Option<i64>> {
            let end = slice.getattr(name)?;
            if end.is_none() {
                return Ok(None);
            }
            // Python clamps slice bounds of any size.
            let whole = end.call_method0("__index__")?;
            Ok(Some(match whole.extract::<i64>() {
                Ok(number) => number,
                Err(_) if whole.lt(0)? => i64::MIN / 2,
                Err(_) => i64::MAX / 2,
            }))
        };
        let step = end("step")?.unwrap_or(1);
        return Ok(IndexSpec::Slice { start: end("start")?, stop: end("stop")?, step });
    }
    if part.is_instance_of::<PyEllipsis>() {
        return Ok(IndexSpec::Ellipsis);
    }
    let is_sequence = part.is_instance_of::<PyList>()
        || part.is_instance_of::<PyTuple>()
        || part.is_instance_of::<PyRange>();
    if is_sequence || part.hasattr("__array_interface__")? {
        let mut index = numpy::import(part, None, tensor.device())?;
        if index.is_empty() && index.dtype().is_float() {
            index = index.to_dtype(DType::I64)?;
        }
        if index.dtype().is_float() {
            return Err(Failure::from(pyo3::exceptions::PyIndexError::new_err(
                "floating-point numbers are not indices: use integers or bool",
            )));
        }
        return Ok(IndexSpec::Tensor(index));
    }
    if let Ok(number) = part.call_method0("__index__") {
        return Ok(IndexSpec::At(number.extract()?));
    }
    Err(type_error(format!(
        "expected an index, got {}: use integers, slices, None, ..., or tensors of integers or bool",
        kind(part)
    )))
}

fn specifications(key: &Bound<'_, PyAny>, tensor: &Tensor) -> Result<Vec<IndexSpec>> {
    let specifications = match key.cast::<PyTuple>() {
        Ok(parts) => parts.iter().map(|part| specification(&part, tensor)).collect::<Result<Vec<_>>>()?,
        Err(_) => vec![fitted(specification(key, tensor)?, tensor)?],
    };
    let taken: usize = specifications
        .iter()
        .map(|specification| match specification {
            IndexSpec::NewAxis | IndexSpec::Ellipsis => 0,
            IndexSpec::Tensor(mask) if mask.dtype() == DType::Bool => mask.rank(),
            _ => 1,
        })
        .sum();
    if taken > tensor.rank() {
        let message =
            format!("too many indices: {taken} for a tensor of shape {}", show_shape(tensor.shape()));
        return Err(Failure::from(pyo3::exceptions::PyIndexError::new_err(message)));
    }
    Ok(specifications)
}

/// A mask without elements selects nothing, also where a size of 0 stands for another.
fn fitted(index: IndexSpec, tensor: &Tensor) -> Result<IndexSpec> {
    let IndexSpec::Tensor(mask) = &index else { return Ok(index) };
    let covered = tensor.shape().get(..mask.rank()).unwrap_or_default();
    if mask.dtype() != DType::Bool || covered.is_empty() {
        return Ok(index);
    }
    if !mask.shape().iter().zip(covered).all(|(&size, &whole)| size == whole || size == 0) {
        let (mask, shape) = (show_shape(mask.shape()), show_shape(tensor.shape()));
        let message = format!("a mask of shape {mask} does not fit a tensor of shape {shape}");
        return Err(Failure::from(pyo3::exceptions::PyIndexError::new_err(message)));
    }
    if !mask.is_empty() {
        return Ok(index);
    }
    Ok(IndexSpec::Tensor(Tensor::full(covered, false, DType::Bool, tensor.device())?))
}

/// A Python bool or 0-d `bool` tensor as an index: a mask of one element over an added axis.
fn single_mask(key: &Bound<'_, PyAny>, tensor: &Tensor) -> Result<Option<Tensor>> {
    if let Ok(value) = key.cast::<PyBool>() {
        return Ok(Some(Tensor::full(&[1], value.is_true(), DType::Bool, tensor.device())?));
    }
    let Ok(mask) = key.cast::<PyTensor>() else { return Ok(None) };
    let mask = mask.get().tensor()?;
    Ok(if mask.rank() == 0 && mask.dtype() == DType::Bool { Some(mask.reshape(&[1])?) } else { None })
}

/// Shared tensors of at most this many bytes are copied before one element is written.
const COPIED: usize = 1 << 16;

/// The position of one element, if the key is one in-range integer per axis.
fn element(key: &Bound<'_, PyAny>, shape: &[usize]) -> Option<SmallVec<[usize; 4]>> {
    let parts = key.cast::<PyTuple>().ok();
    let count = parts.map_or(1, |parts| parts.len());
    if count != shape.len() {
        return None;
    }
    let place = |axis: usize| {
        let part = match parts {
            Some(parts) => parts.get_item(axis).ok()?,
            None => key.clone(),
        };
        let at: i64 = part.cast_exact::<PyInt>().ok()?.extract().ok()?;
        let size = i64::try_from(shape[axis]).ok()?;
        usize::try_from(if at < 0 { at + size } else { at }).ok().filter(|&at| at < shape[axis])
    };
    (0..count).map(place).collect()
}

impl PyTensor {
    /// Writes one element directly into memory. Returns false, and writes nothing, if the tensor is on a device, takes
    /// part in autograd or a recording, or is a view.
    fn put_element(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<bool> {
        let tensor = self.own.tensor();
        let differs = self.special.is_any()
            || self.own.is_trainable()
            || self.own.has_base()
            || self.own.has_repeated_elements();
        if differs || tensor.requires_grad() || is_recording() || tensor.device().backend().target().is_some()
        {
            return Ok(false);
        }
        let Some(index) = element(key, tensor.shape()) else { return Ok(false) };
        let bytes = if let Ok(value) = value.cast::<PyTensor>() {
            let value = value.get().tensor()?;
            if value.rank() > 0 || value.requires_grad() || value.device() != tensor.device() {
                return Ok(false);
            }
            SmallVec::from_vec(compute(py, || value.to_dtype(tensor.dtype())?.to_bytes())?)
        } else if let Some(scalar) = number(value)? {
            fits(scalar, tensor.dtype())?;
            scalar_bytes(scalar.cast(tensor.dtype()), tensor.dtype())
        } else {
            return Ok(false);
        };
        if !tensor.is_evaluated() {
            compute(py, || tensor.evaluate())?;
        }
        let small = tensor.len() * tensor.dtype().size() <= COPIED;
        // This handle would make the memory look shared.
        drop(tensor);
        if self.own.overwrite_element(&index, &bytes)? {
            return Ok(true);
        }
        if !small {
            return Ok(false);
        }
        let shared = self.own.tensor();
        self.own.keep(Tensor::from_bytes(
            &shared.to_bytes()?,
            shared.dtype(),
            shared.shape(),
            shared.device(),
        )?)?;
        Ok(self.own.overwrite_element(&index, &bytes)?)
    }

    /// Assigns a value computed with these indices after checking that they are in range, so that a bad index leaves
    /// the tensor unchanged. Indices from the host were checked already. Computed indices are checked when the value is
    /// evaluated.
    fn put(&self, py: Python<'_>, value: Tensor, indices: &[Tensor]) -> Result<()> {
        let known = |index: &Tensor| index.dtype() == DType::Bool || index.extremes().is_some();
        if !indices.iter().all(|index| index.is_empty() || known(index)) && !is_recording() {
            compute(py, || value.evaluate())?;
        }
        self.assign(value)
    }
}

#[pymethods]
impl PyTensor {
    /// Assigns a value that was computed from this tensor and these indices.
    #[pyo3(signature = (value, *indices))]
    fn _put<'py>(
        slf: &Bound<'py, Self>,
        value: &PyTensor,
        indices: &Bound<'py, PyTuple>,
    ) -> Result<Bound<'py, Self>> {
        let indices = tensors(indices.as_any())?;
        slf.get().put(slf.py(), value.tensor()?, &indices)?;
        Ok(slf.clone())
    }
    fn __getitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        if let Some(mask) = single_mask(key, &tensor)? {
            let chosen = compute(py, || tensor.unsqueeze(0)?.index(&[IndexSpec::Tensor(mask)]))?;
            return Ok(PyTensor::wrap(chosen));
        }
        let specs = specifications(key, &tensor)?;
        // A boolean mask makes the shape depend on data, so this computes.
        let chosen = compute(py, || tensor.index(&specs))?;
        let is_view = !specs.iter().any(|spec| matches!(spec, IndexSpec::Tensor(_)));
        Ok(if is_view { self.view_of(chosen, ViewStep::Index(specs)) } else { PyTensor::wrap(chosen) })
    }
    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> Result<()> {
        // In ``x[0] += 1``, Python changes the view ``x[0]`` and then assigns it to the index.
        if let Ok(view) = value.cast::<PyTensor>()
            && view.get().variable().is_view()
            && single_mask(key, &self.variable().tensor())?.is_none()
            && view.get().variable().is_part(self.variable(), &specifications(key, &self.tensor()?)?)
        {
            return Ok(());
        }
        if self.put_element(py, key, value)? {
            return Ok(());
        }
        let tensor = self.tensor()?;
        let mask = single_mask(key, &tensor)?;
        let specs = if mask.is_some() { Vec::new() } else { specifications(key, &tensor)? };
        let value = match Operand::beside(&tensor, value)? {
            Some(Operand::Number(scalar)) => {
                fits(scalar, tensor.dtype())?;
                Tensor::full(&[], scalar, tensor.dtype(), tensor.device())?
            }
            Some(Operand::Tensor(value)) => value,
            None => numpy::import(value, None, tensor.device())?,
        };
        let value = value.to_dtype(tensor.dtype())?;
        let indices: Vec<Tensor> = specs
            .iter()
            .filter_map(|spec| match spec {
                IndexSpec::Tensor(index) => Some(index.clone()),
                _ => None,
            })
            .collect();
        let changed = compute(py, || match mask {
            Some(mask) => tensor.unsqueeze(0)?.index_put(&[IndexSpec::Tensor(mask)], &value)?.squeeze(0),
            None => tensor.index_put(&specs, &value),
        })?;
        self.put(py, changed, &indices)
    }
}
