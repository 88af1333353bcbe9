//! Files of tensors.

use std::{collections::BTreeMap, path::PathBuf};

use neurenix::{
    data::HostArray,
    io::safetensors::{self, NamedArrays},
};
use phynexus::Tensor;
use pyo3::prelude::*;

use crate::{
    device::{Named, find},
    error::{Failure, Result},
    interrupt::compute,
    tensor::PyTensor,
};

/// Writes named tensors as a safetensors file, completely or not at all.
#[pyfunction]
pub(crate) fn save_safetensors(
    py: Python<'_>,
    path: PathBuf,
    tensors: BTreeMap<String, Bound<'_, PyTensor>>,
    metadata: BTreeMap<String, String>,
) -> Result<()> {
    let tensors = tensors
        .into_iter()
        .map(|(name, tensor)| Ok((name, tensor.get().tensor()?)))
        .collect::<Result<Vec<_>>>()?;
    compute(py, || -> Result<()> {
        let mut arrays = BTreeMap::new();
        for (name, tensor) in tensors {
            let array = HostArray::from_bytes(tensor.dtype(), tensor.shape(), tensor.to_bytes()?)?;
            arrays.insert(name, array);
        }
        Ok(safetensors::save(&path, &NamedArrays { arrays, metadata })?)
    })
}

/// Reads a safetensors file: tensors by name, and the metadata.
#[pyfunction]
#[pyo3(signature = (path, device=None))]
pub(crate) fn load_safetensors(
    py: Python<'_>,
    path: PathBuf,
    device: Option<Named>,
) -> Result<(BTreeMap<String, PyTensor>, BTreeMap<String, String>)> {
    let device = device.map_or_else(|| find("cpu"), |device| Ok(device.0))?;
    let (tensors, metadata) = compute(py, || {
        let contents = safetensors::load(&path)?;
        let tensor = |(name, array): (String, HostArray)| {
            let tensor = Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device)?;
            Ok((name, tensor))
        };
        let tensors = contents.arrays.into_iter().map(tensor).collect::<Result<Vec<(String, Tensor)>>>()?;
        Ok::<_, Failure>((tensors, contents.metadata))
    })?;
    let tensors = tensors.into_iter().map(|(name, tensor)| (name, PyTensor::wrap(tensor))).collect();
    Ok((tensors, metadata))
}

/// The handwritten digits that come with the library: inputs of training, its labels, inputs of the test, its labels.
#[pyfunction]
pub(crate) fn digits() -> Result<(PyTensor, PyTensor, PyTensor, PyTensor)> {
    let cpu = find("cpu")?;
    let tensor = |array: &HostArray| -> Result<PyTensor> {
        Ok(PyTensor::wrap(Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), cpu)?))
    };
    let (train, test) = neurenix::data::digits_split()?;
    let (train, test) = (train.all()?, test.all()?);
    Ok((tensor(&train.inputs)?, tensor(&train.targets)?, tensor(&test.inputs)?, tensor(&test.targets)?))
}
