//! Reading and writing tensor files.

use std::{
    collections::BTreeMap,
    io::{self, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use neurenix::{
    data::HostArray,
    io::{
        Source,
        safetensors::{self, NamedArrays},
    },
};
use phynexus::Tensor;
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    device::{Named, find},
    error::{Failure, Result, through_engine},
    interrupt::compute,
    tensor::PyTensor,
};

type Texts = BTreeMap<String, String>;

/// An open Python file object. Exceptions from its methods propagate unchanged.
struct OpenFile(Py<PyAny>);

impl OpenFile {
    /// The name used in error messages.
    const NAME: &str = "the open file";

    fn call<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        Python::attach(|py| work(self.0.bind(py))).map_err(|raised| io::Error::other(through_engine(raised)))
    }
}

impl Read for OpenFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let got = self.call(|file| {
            let part = file.call_method1("read", (bytes.len(),))?;
            let part = part.cast::<PyBytes>()?.as_bytes();
            Ok(bytes.get_mut(..part.len()).map(|place| {
                place.copy_from_slice(part);
                part.len()
            }))
        })?;
        got.ok_or_else(|| io::Error::other("read() returned more bytes than requested"))
    }
}

impl Write for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // An unbuffered file may write only part of the bytes. `write` may also return None.
        let taken = self.call(|file| {
            let bytes = PyBytes::new(file.py(), bytes);
            file.call_method1("write", (bytes,))?.extract::<Option<usize>>()
        })?;
        Ok(taken.unwrap_or(bytes.len()).min(bytes.len()))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes named tensors to a safetensors file. A path is written atomically; an open binary file is written in order.
#[pyfunction]
pub(crate) fn save_safetensors(
    py: Python<'_>,
    file: Bound<'_, PyAny>,
    tensors: BTreeMap<String, Bound<'_, PyTensor>>,
    metadata: BTreeMap<String, String>,
) -> Result<()> {
    let tensors = tensors
        .into_iter()
        .map(|(name, tensor)| Ok((name, tensor.get().tensor()?)))
        .collect::<Result<Vec<_>>>()?;
    let file = path_or_file(&file);
    compute(py, || -> Result<()> {
        let mut arrays = BTreeMap::new();
        for (name, tensor) in tensors {
            let array = HostArray::from_bytes(tensor.dtype(), tensor.shape(), tensor.to_bytes()?)?;
            arrays.insert(name, array);
        }
        let contents = NamedArrays { arrays, metadata };
        match file {
            Ok(path) => safetensors::save(&path, &contents)?,
            Err(mut file) => safetensors::write(&mut file, Path::new(OpenFile::NAME), &contents)?,
        }
        Ok(())
    })
}

/// The path, or the open file object.
fn path_or_file(file: &Bound<'_, PyAny>) -> Result<PathBuf, OpenFile> {
    file.extract().map_err(|_| OpenFile(file.clone().unbind()))
}

/// Reads a safetensors file from a path or an open file. Returns the tensors by name, the metadata, and the names and
/// types of the tensors whose type is not supported.
#[pyfunction]
#[pyo3(signature = (file, device=None))]
pub(crate) fn load_safetensors(
    py: Python<'_>,
    file: Bound<'_, PyAny>,
    device: Option<Named>,
) -> Result<(BTreeMap<String, PyTensor>, Texts, Texts)> {
    let device = device.map_or_else(|| find("cpu"), |device| Ok(device.0))?;
    /// Bytes per read from an open file.
    const PIECE: usize = 1 << 20;
    let file = path_or_file(&file);
    let (tensors, metadata, left_out) = compute(py, || {
        let mut source = match file {
            Ok(path) => Source::open(&path, safetensors::FORMAT)?,
            Err(file) => {
                let reader = BufReader::with_capacity(PIECE, file);
                Source::new(reader, Path::new(OpenFile::NAME), safetensors::FORMAT, None)
            }
        };
        let (contents, left_out) = safetensors::read(&mut source)?;
        let tensor = |(name, array): (String, HostArray)| {
            let tensor = Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device)?;
            Ok((name, tensor))
        };
        let tensors = contents.arrays.into_iter().map(tensor).collect::<Result<Vec<(String, Tensor)>>>()?;
        Ok::<_, Failure>((tensors, contents.metadata, left_out))
    })?;
    let tensors = tensors.into_iter().map(|(name, tensor)| (name, PyTensor::wrap(tensor))).collect();
    Ok((tensors, metadata, left_out))
}

/// Returns the bundled handwritten digits: training inputs, training labels, test inputs, test labels.
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
