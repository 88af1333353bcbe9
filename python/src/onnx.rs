//! Networks from ONNX files.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use neurenix::onnx::{
    self, Element, Export, Extent, Model, Port, Text, Value,
    edit::{Network, stored},
    proto::{ModelProto, OperatorSetIdProto},
};
use phynexus::Tensor;
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyNotImplementedError,
    prelude::*,
    types::{PyBytes, PyList, PyTuple},
};

use crate::{
    create::{PyGenerator, generator},
    device::{Named, PyDevice, chosen, registered},
    error::{Failure, Result, type_error, value_error},
    interrupt::compute,
    variable::PyTensor,
};

impl From<onnx::Error> for Failure {
    /// The kind is that of the innermost error; the message names the nodes around it, too.
    fn from(error: onnx::Error) -> Failure {
        let message = error.to_string();
        let mut inner = error;
        while let onnx::Error::Node { source, .. } = inner {
            inner = *source;
        }
        match inner {
            onnx::Error::Unsupported(_) => PyNotImplementedError::new_err(message).into(),
            onnx::Error::Engine(error) => Failure::with_message(error, message),
            onnx::Error::File { path, source } => neurenix::Error::Io { action: "read", path, source }.into(),
            _ => value_error(message),
        }
    }
}

/// An input or output: its name, the name of its element type, and its extents: numbers, names or ``None``.
type Described = (String, Option<String>, Option<Vec<Option<Py<PyAny>>>>);

/// How pickles make an object again: a function and its arguments.
type Reduced<'py> = (Bound<'py, PyAny>, (Bound<'py, PyAny>, PyDevice));

/// A network from an ONNX file.
#[pyclass(name = "Onnx", module = "neurenix._engine", frozen)]
pub(crate) struct PyOnnx {
    model: Model,
    /// The file, if it was there already or is quantized. A float network is exported from what it records.
    file: Option<Arc<ModelProto>>,
}

impl PyOnnx {
    /// A network whose file `read` gives, if it is quantized.
    fn of(model: Model, read: impl FnOnce() -> onnx::Result<Network>) -> onnx::Result<PyOnnx> {
        let file = if model.is_quantized() { Some(Arc::new(read()?.to_proto())) } else { None };
        Ok(PyOnnx { model, file })
    }
}

fn described(py: Python<'_>, port: &Port) -> PyResult<Described> {
    let extent = |extent: &Extent| match extent {
        Extent::Fixed(size) => size.into_py_any(py).map(Some),
        Extent::Symbol(name) => name.into_py_any(py).map(Some),
        Extent::Unknown => Ok(None),
    };
    let shape =
        port.shape.as_ref().map(|shape| shape.iter().map(extent).collect::<PyResult<_>>()).transpose()?;
    Ok((port.name.clone(), port.element.map(|element| format!("{element:?}").to_lowercase()), shape))
}

/// A tensor, a list of values, a pair of a shape and strings, or ``None``.
pub(crate) fn given(object: &Bound<'_, PyAny>) -> Result<Value> {
    if object.is_none() {
        return Ok(Value::Optional(None));
    }
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return Ok(Value::Tensor(tensor.get().tensor()?));
    }
    if let Ok(parts) = object.cast::<PyList>() {
        return Ok(Value::of_parts(parts.iter().map(|part| given(&part)).collect::<Result<_>>()?)?);
    }
    if let Ok((shape, values)) = object.extract::<(Vec<usize>, Vec<String>)>() {
        return Ok(Value::Text(Text { shape, values }));
    }
    Err(type_error(format!("expected a tensor, a list or strings, got {}", object.get_type().name()?)))
}

pub(crate) fn returned(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Tensor(tensor) | Value::Narrow(tensor, _) => PyTensor::wrap(tensor).into_py_any(py),
        Value::Text(Text { shape, values }) => (PyTuple::new(py, shape)?, values).into_py_any(py),
        Value::Sequence(parts) => {
            let parts = parts.iter().map(|part| returned(py, part.clone())).collect::<PyResult<Vec<_>>>()?;
            parts.into_py_any(py)
        }
        Value::Optional(Some(inner)) => returned(py, *inner),
        Value::Optional(None) => Ok(py.None()),
        value @ (Value::Dequantized(_) | Value::Quantized(_)) => returned(py, value.plain()),
    }
}

#[pymethods]
impl PyOnnx {
    /// Reads a file.
    #[staticmethod]
    #[pyo3(signature = (path, device=None))]
    fn load(py: Python<'_>, path: String, device: Option<Named>) -> Result<PyOnnx> {
        let (path, device) = (PathBuf::from(path), chosen(device)?);
        compute(py, || PyOnnx::of(Model::load(&path, device)?, || Network::load(&path)))
    }
    /// Reads the bytes of a file.
    #[staticmethod]
    #[pyo3(signature = (data, device=None))]
    fn parse(py: Python<'_>, data: &[u8], device: Option<Named>) -> Result<PyOnnx> {
        let device = chosen(device)?;
        compute(py, || PyOnnx::of(Model::parse(data, None, device)?, || Network::parse(data, None)))
    }
    /// The inputs that must be given.
    fn inputs(&self, py: Python<'_>) -> PyResult<Vec<Described>> {
        self.model.inputs().iter().map(|port| described(py, port)).collect()
    }
    /// The outputs.
    fn outputs(&self, py: Python<'_>) -> PyResult<Vec<Described>> {
        self.model.outputs().iter().map(|port| described(py, port)).collect()
    }
    /// The tensors of floats in the file, and whether training changes them.
    fn parameters(&self) -> Vec<(String, PyTensor, bool)> {
        let wrap = |(name, tensor, trainable): (&str, &phynexus::Tensor, bool)| {
            (name.to_owned(), PyTensor::wrap(tensor.clone()), trainable)
        };
        self.model.parameters().map(wrap).collect()
    }
    /// Where it computes.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.model.device())
    }
    /// The same network on another device.
    fn to_device(&self, py: Python<'_>, device: Named) -> Result<PyOnnx> {
        let device = chosen(Some(device))?;
        let model = compute(py, || self.model.to_device(device))?;
        Ok(PyOnnx { model, file: self.file.clone() })
    }
    /// Whether nodes quantize numbers, or compute with quantized ones.
    #[getter]
    fn is_quantized(&self) -> bool {
        self.model.is_quantized()
    }
    /// The file with these elements for stored tensors; ``None`` for a float network that was loaded.
    fn file(&self, py: Python<'_>, tensors: NamedTensors) -> Result<Option<PyOnnxFile>> {
        self.file.as_ref().map(|file| PyOnnxFile(file.clone()).with_tensors(py, tensors)).transpose()
    }
    /// It never changes: copies of a module share it.
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        let _ = memo;
        slf.clone()
    }
    /// Pickles hold the file. Nothing keeps that of a float network that was loaded.
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<Reduced<'py>> {
        let Some(file) = &self.file else {
            return Err(type_error(
                "a network from a file of floats cannot be pickled: keep the file, and load it again",
            ));
        };
        let file = Bound::new(py, PyOnnxFile(file.clone()))?.into_any();
        Ok((py.get_type::<PyOnnxFile>().getattr("network")?, (file, PyDevice(self.model.device()))))
    }
    /// Computes the outputs from inputs, and other tensors in place of the file's, by name.
    #[pyo3(signature = (values, generator=None))]
    fn run(
        &self,
        py: Python<'_>,
        values: HashMap<String, Bound<'_, PyAny>>,
        generator: Option<&PyGenerator>,
    ) -> Result<Vec<Py<PyAny>>> {
        let values = values.into_iter().map(|(name, value)| Ok((name, given(&value)?)));
        let values = values.collect::<Result<HashMap<String, Value>>>()?;
        let generator = self::generator(generator);
        let results = compute(py, || self.model.run(values, generator))?;
        Ok(results.into_iter().map(|value| returned(py, value)).collect::<PyResult<_>>()?)
    }
}

/// Tensors with their names.
type NamedTensors = Vec<(String, Py<PyTensor>)>;

/// The tensors of an export: inputs, outputs, and weights.
struct Tensors([Vec<(String, Tensor)>; 3]);

impl Tensors {
    fn of((inputs, outputs, weights): &(NamedTensors, NamedTensors, NamedTensors)) -> Result<Tensors> {
        let tensors = |named: &NamedTensors| {
            named
                .iter()
                .map(|(name, tensor)| Ok((name.clone(), tensor.get().tensor()?)))
                .collect::<Result<Vec<_>>>()
        };
        Ok(Tensors([tensors(inputs)?, tensors(outputs)?, tensors(weights)?]))
    }

    fn export(&self, symbols: &[(usize, usize, String)]) -> Export<'_> {
        let [inputs, outputs, names] = self
            .0
            .each_ref()
            .map(|named| named.iter().map(|(name, tensor)| (name.clone(), tensor)).collect());
        Export { inputs, outputs, names, symbols: symbols.to_vec() }
    }
}

/// An ONNX file that is not written yet.
#[pyclass(name = "OnnxFile", module = "neurenix._engine", frozen)]
pub(crate) struct PyOnnxFile(pub(crate) Arc<ModelProto>);

impl PyOnnxFile {
    /// The file of a network.
    pub(crate) fn of(network: &Network) -> PyOnnxFile {
        PyOnnxFile(Arc::new(network.to_proto()))
    }
}

#[pymethods]
impl PyOnnxFile {
    /// Reads a file, with the tensors that it keeps in others.
    #[staticmethod]
    fn load(py: Python<'_>, path: String) -> Result<PyOnnxFile> {
        let network = compute(py, || {
            registered();
            Network::load(Path::new(&path))
        })?;
        Ok(PyOnnxFile::of(&network))
    }
    /// The names of the inputs that must be given.
    fn inputs(&self) -> Vec<String> {
        let graph = self.0.graph.iter();
        let is_stored =
            |name: &str| graph.clone().flat_map(|g| &g.initializer).any(|tensor| tensor.name == name);
        let names = graph.clone().flat_map(|g| &g.input).map(|input| &input.name);
        names.filter(|name| !is_stored(name)).cloned().collect()
    }
    /// The version of ONNX's own operators that it uses.
    #[getter]
    fn opset(&self) -> i64 {
        let own = |set: &&OperatorSetIdProto| set.domain.is_empty() || set.domain == "ai.onnx";
        self.0.opset_import.iter().find(own).map_or(1, |set| set.version)
    }
    /// The name and the operator of each node.
    fn nodes(&self) -> Vec<(String, String)> {
        let nodes = self.0.graph.iter().flat_map(|graph| &graph.node);
        nodes.map(|node| (node.name.clone(), node.op_type.clone())).collect()
    }
    /// The same file with other elements for these stored tensors, of the types and shapes that they have.
    fn with_tensors(&self, py: Python<'_>, tensors: NamedTensors) -> Result<PyOnnxFile> {
        let tensors = (tensors.into_iter())
            .map(|(name, tensor)| Ok((name, tensor.get().tensor()?)))
            .collect::<Result<Vec<_>>>()?;
        compute(py, || -> Result<PyOnnxFile> {
            let mut network = Network::new((*self.0).clone())?;
            for (name, tensor) in &tensors {
                let given = stored(name, tensor)?;
                let Some(known) = network.stored(name) else {
                    return Err(value_error(format!("the file has no dense tensor {name:?}")));
                };
                if (known.data_type, &known.dims) != (given.data_type, &given.dims) {
                    let element = Element::of_number(i64::from(known.data_type));
                    return Err(value_error(format!(
                        "the tensor {name:?} is {} of shape {:?}, but the file needs {} of shape {:?}; convert it back",
                        tensor.dtype(),
                        tensor.shape(),
                        element.map_or("another type".to_owned(), |element| format!("{element:?}")),
                        known.dims
                    )));
                }
                network.store(given);
            }
            Ok(PyOnnxFile::of(&network))
        })
    }
    /// It never changes: copies share it.
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        let _ = memo;
        slf.clone()
    }
    /// The file of these bytes, which hold all of its tensors.
    #[staticmethod]
    fn parse(py: Python<'_>, data: &[u8]) -> Result<PyOnnxFile> {
        compute(py, || Network::parse(data, None)).map(|network| PyOnnxFile::of(&network))
    }
    /// Pickles hold the file's bytes.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let bytes = py.detach(|| onnx::to_bytes(&self.0));
        Ok((py.get_type::<PyOnnxFile>().getattr("parse")?, (PyBytes::new(py, &bytes),)))
    }
    /// The network as it will be read.
    #[pyo3(signature = (device=None))]
    fn network(&self, py: Python<'_>, device: Option<Named>) -> Result<PyOnnx> {
        let device = chosen(device)?;
        let model = compute(py, || Model::of(&self.0, None, device))?;
        Ok(PyOnnx { model, file: Some(self.0.clone()) })
    }
    /// Writes the file. It is complete or not there.
    fn save(&self, py: Python<'_>, path: String) -> Result<()> {
        let written = compute(py, || Ok::<_, Failure>(onnx::save(&self.0, Path::new(&path))))?;
        written.map_err(|error| match error {
            onnx::Error::File { path, source } => {
                neurenix::Error::Io { action: "write", path, source }.into()
            }
            other => other.into(),
        })
    }
}

/// Makes an ONNX file of a network: inputs, outputs that were computed from them, and weights, by name. ``other`` is the
/// same with other sizes on the axes of ``symbols``.
#[pyfunction]
#[pyo3(signature = (network, symbols, other=None, opset=21))]
pub(crate) fn export_onnx(
    py: Python<'_>,
    network: (NamedTensors, NamedTensors, NamedTensors),
    symbols: Vec<(usize, usize, String)>,
    other: Option<(NamedTensors, NamedTensors, NamedTensors)>,
    opset: i64,
) -> Result<PyOnnxFile> {
    let network = Tensors::of(&network)?;
    let other = other.as_ref().map(Tensors::of).transpose()?;
    compute(py, || {
        let network = network.export(&symbols);
        match &other {
            Some(other) => onnx::export_as(&network, &other.export(&symbols), opset),
            None => onnx::export_as(&network, &network, opset),
        }
    })
    .map(|file| PyOnnxFile(Arc::new(file)))
}
