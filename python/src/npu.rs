//! Neural processing units.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Mutex, TryLockError},
};

use neurenix::{
    npu::{self, Compiled, Device, Options, Place, Search},
    onnx::edit::Network,
    phynexus::device::DeviceNature,
};
use pyo3::{exceptions::PyMemoryError, prelude::*, types::PyDict};

use crate::{
    device::registered,
    error::{Failure, Result, runtime_error, value_error},
    interrupt::compute,
    onnx::{PyOnnxFile, given, returned},
    quantize::{Samples, samples},
};

impl From<npu::Error> for Failure {
    fn from(error: npu::Error) -> Failure {
        match error {
            npu::Error::Onnx(error) => error.into(),
            npu::Error::Engine(error) => error.into(),
            npu::Error::Invalid(message) => value_error(message),
            error @ npu::Error::Memory { .. } => PyMemoryError::new_err(error.to_string()).into(),
            other => neurenix::Error::from(other).into(),
        }
    }
}

/// A unit that compiles and runs whole networks.
#[pyclass(name = "NpuDevice", module = "neurenix._engine", frozen)]
pub(crate) struct PyNpuDevice(Device);

#[pymethods]
impl PyNpuDevice {
    /// Its name, such as ``npu:0``.
    #[getter]
    fn name(&self) -> String {
        self.0.name().to_owned()
    }
    /// What it is, as far as its runtime says.
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = self.0.properties();
        let told = PyDict::new(py);
        told.set_item("name", &properties.model)?;
        told.set_item("device", self.0.name())?;
        told.set_item("vendor", &properties.vendor)?;
        told.set_item("runtime", &properties.runtime)?;
        told.set_item("version", &properties.version)?;
        let nature = match properties.nature {
            DeviceNature::Hardware => "hardware",
            DeviceNature::Emulator => "emulator",
            DeviceNature::HostCpu => "host CPU",
        };
        told.set_item("nature", nature)?;
        if let Some(architecture) = &properties.architecture {
            told.set_item("architecture", architecture)?;
        }
        if let Some(memory) = properties.memory {
            told.set_item("memory", memory)?;
        }
        Ok(told)
    }
}

/// A node's name, its operator, the device, and the reason if that is not the unit.
type PlacedNode = (String, String, String, Option<String>);

fn search(folders: Vec<String>) -> Search {
    Search::of(folders.into_iter().map(PathBuf::from).collect())
}

/// The units that runtimes in these folders, in those of ``RNN_NPU_PATH`` and in the system's offer.
#[pyfunction]
pub(crate) fn npu_devices(py: Python<'_>, folders: Vec<String>) -> Result<Vec<PyNpuDevice>> {
    let found = compute(py, || -> Result<_> { Ok(npu::devices(&search(folders))) })?;
    Ok(found.into_iter().map(PyNpuDevice).collect())
}

/// The runtimes that were not found, with reasons.
#[pyfunction]
pub(crate) fn missing_npus(py: Python<'_>, folders: Vec<String>) -> Result<Vec<(String, String)>> {
    compute(py, || -> Result<_> { Ok(npu::missing(&search(folders))) })
}

/// Where compiled networks are kept: ``neurenix/npu`` in the user's cache folder. ``None`` if the user has none.
#[pyfunction]
pub(crate) fn npu_cache_folder() -> Option<String> {
    npu::cache_folder().map(|folder| folder.to_string_lossy().into_owned())
}

/// How a network is compiled, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    strict: bool,
    low_power: bool,
    memory_limit: Option<u64>,
    save_memory: bool,
    cache: Option<String>,
}

/// A network that was compiled for a unit.
#[pyclass(name = "NpuProgram", module = "neurenix._engine", frozen)]
pub(crate) struct PyNpuProgram {
    compiled: Mutex<Compiled>,
    device: String,
}

impl PyNpuProgram {
    /// Uses the compiled network, which no other thread can use meanwhile. It stays usable after a panic: what a run
    /// leaves behind does not matter to the next.
    fn with<T>(&self, work: impl FnOnce(&mut Compiled) -> Result<T>) -> Result<T> {
        let mut compiled = match self.compiled.try_lock() {
            Ok(compiled) => compiled,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let message = "another thread is using this network: give each thread a network of its own";
                return Err(runtime_error(message));
            }
        };
        work(&mut compiled)
    }
}

#[pymethods]
impl PyNpuProgram {
    /// Compiles a network, and compares its results for the samples with the CPU's.
    #[new]
    fn new(
        py: Python<'_>,
        file: &PyOnnxFile,
        device: &PyNpuDevice,
        samples: Samples<'_>,
        settings: Settings,
    ) -> Result<PyNpuProgram> {
        let samples = self::samples(samples)?;
        let options = Options {
            strict: settings.strict,
            low_power: settings.low_power,
            memory_limit: settings.memory_limit,
            save_memory: settings.save_memory,
            cache: settings.cache.map(PathBuf::from),
            ..Options::default()
        };
        let compiled = compute(py, || -> Result<Compiled> {
            registered();
            let network = Network::new((*file.0).clone())?;
            Ok(Compiled::compile(&network, &device.0, &samples, &options)?)
        })?;
        Ok(PyNpuProgram { compiled: Mutex::new(compiled), device: device.0.name().to_owned() })
    }
    /// Computes the outputs from inputs by name.
    fn run(
        &self,
        py: Python<'_>,
        values: HashMap<String, Bound<'_, PyAny>>,
    ) -> Result<Vec<(String, Py<PyAny>)>> {
        let values = values.into_iter().map(|(name, value)| Ok((name, given(&value)?)));
        let values = values.collect::<Result<HashMap<_, _>>>()?;
        let results = self.with(|compiled| compute(py, || -> Result<_> { Ok(compiled.run(&values)?) }))?;
        let named = results.into_iter().map(|(name, value)| Ok((name, returned(py, value)?)));
        Ok(named.collect::<PyResult<_>>()?)
    }
    /// For each node: its name, its operator, the device, and the reason if that is not the unit.
    fn placement(&self) -> Result<Vec<PlacedNode>> {
        let placed = |placed: &npu::Placed| {
            let (device, reason) = match &placed.place {
                Place::Device => (self.device.clone(), None),
                Place::Cpu(reason) => ("cpu".to_owned(), Some(reason.clone())),
            };
            (placed.node.clone(), placed.operator.clone(), device, reason)
        };
        self.with(|compiled| Ok(compiled.placement_report().nodes.iter().map(placed).collect()))
    }
    /// The report as text.
    fn summary(&self) -> Result<String> {
        self.with(|compiled| Ok(compiled.placement_report().to_string()))
    }
    /// Bytes: of values between nodes at the same time, of stored tensors, and what the runtime says it has allocated.
    fn memory(&self) -> Result<(u64, u64, Option<u64>)> {
        let memory = self.with(|compiled| Ok(compiled.memory()))?;
        Ok((memory.activations, memory.weights, memory.allocated))
    }
}
