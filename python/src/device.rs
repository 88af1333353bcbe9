//! Devices as Python sees them.

use std::{
    sync::{Mutex, Once, PoisonError},
    time::Duration,
};

use phynexus::{
    Device, MatmulPrecision,
    device::{self, DeviceNature},
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyInt, PyString, PyType},
};

use crate::{
    argument::Count,
    error::{Failure, Result, type_error},
    interrupt::compute,
};

/// Finds the machine's devices, the first time that somebody asks: opening drivers takes longer than an import may.
pub(crate) fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(neurenix::register_all);
}

static CHOSEN: Mutex<Option<Device>> = Mutex::new(None);

/// The device that new tensors are made on unless another is named.
pub(crate) fn default_device() -> Result<Device> {
    let chosen = || CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = *chosen() {
        return Ok(device);
    }
    // Other threads of Python go on meanwhile, and may want the lock.
    Python::attach(|py| py.detach(registered));
    let device = Device::default_device()?;
    Ok(*chosen().get_or_insert(device))
}

/// A device that computes, as ``nx.Device("cpu")`` or ``nx.Device("cuda", 1)``.
#[pyclass(name = "Device", module = "neurenix", frozen, subclass)]
#[derive(Clone, Copy)]
pub(crate) struct PyDevice(pub(crate) Device);

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (name, index=None))]
    fn new(name: &Bound<'_, PyAny>, index: Option<i64>) -> Result<PyDevice> {
        match index {
            None => found(name).map(PyDevice),
            Some(index) => {
                let kind = match name.getattr("value") {
                    Ok(value) => value.to_string(),
                    Err(_) => name.to_string(),
                };
                find(&format!("{kind}:{index}")).map(PyDevice)
            }
        }
    }
    /// The name, as ``"cpu"`` or ``"cuda:0"``.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }
    /// The kind, as ``"cpu"`` or ``"cuda"``.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.name().split(':').next().unwrap_or_default()
    }
    /// The number among the devices of its kind.
    #[getter]
    fn index(&self) -> usize {
        self.0.name().split(':').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    }
    /// What the device says of itself: what it cannot tell is absent.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = self.0.info();
        let told = PyDict::new(py);
        told.set_item("name", info.name)?;
        told.set_item("model", info.model)?;
        told.set_item(
            "nature",
            match info.nature {
                DeviceNature::HostCpu => "host CPU",
                DeviceNature::Hardware => "hardware",
                DeviceNature::Emulator => "emulator",
            },
        )?;
        if let Some(units) = info.compute_units {
            told.set_item("compute_units", units)?;
        }
        if let Some(bytes) = info.total_memory {
            told.set_item("total_memory", bytes)?;
        }
        told.set_item("features", info.features)?;
        Ok(told)
    }
    /// What its memory pool holds, in bytes and counts.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let held = self.0.memory();
        let told = PyDict::new(py);
        told.set_item("allocated", held.allocated)?;
        told.set_item("peak", held.peak)?;
        told.set_item("reserved", held.reserved)?;
        told.set_item("cached", held.cached)?;
        told.set_item("limit", held.limit)?;
        told.set_item("allocations", held.allocations)?;
        told.set_item("reused", held.reused)?;
        told.set_item("available", held.available)?;
        told.set_item("total", held.total)?;
        told.set_item("fragmentation", held.fragmentation())?;
        told.set_item("pinned", held.pinned)?;
        told.set_item("spilled_tensors", held.spilled_tensors)?;
        told.set_item("spilled_bytes", held.spilled_bytes)?;
        told.set_item("spills", held.spills)?;
        Ok(told)
    }
    /// Waits until everything given to the device has been computed.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let device = self.0;
        compute(py, || device.synchronize())
    }
    /// Refuses tensors beyond so many bytes in use; ``None`` lifts the limit.
    fn set_memory_limit(&self, limit: Option<Count>) {
        self.0.set_memory_limit(limit.map(|limit| limit.0));
    }
    /// With ``True``, tensors used longest ago move to the host's memory where the device is full or at its limit, and come
    /// back when they are needed; with ``False``, as at the start, a full device is a ``MemoryError``. Only tensors made while
    /// it is on are moved; ``memory()`` tells how many were.
    fn set_spilling(&self, spilling: bool) -> Result<()> {
        Ok(self.0.set_spilling(spilling)?)
    }
    /// Gives memory that no tensor uses back to the system.
    fn empty_cache(&self) {
        self.0.empty_cache();
    }
    /// Counts the peak of memory anew.
    fn reset_peak_memory(&self) {
        self.0.reset_peak_memory();
    }
    fn __repr__(&self) -> String {
        format!("Device({:?})", self.0.name())
    }
    fn __str__(&self) -> &'static str {
        self.0.name()
    }
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        match other.cast::<PyDevice>() {
            Ok(other) => other.get().0 == self.0,
            Err(_) => other.extract::<&str>().is_ok_and(|name| name == self.0.name()),
        }
    }
    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, self.0.name()).hash()
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyType>, (&'static str,)) {
        (py.get_type::<PyDevice>(), (self.0.name(),))
    }
}

/// The device of this name; a kind alone means its first device.
pub(crate) fn find(name: &str) -> Result<Device> {
    // It is there without the drivers.
    if matches!(name, "cpu" | "cpu:0") {
        return Ok(phynexus_cpu::register());
    }
    registered();
    Ok(Device::find(name)?)
}

fn found(object: &Bound<'_, PyAny>) -> Result<Device> {
    if let Ok(device) = object.cast::<PyDevice>() {
        return Ok(device.get().0);
    }
    // As in PyTorch, a number alone is that of an NVIDIA GPU.
    if object.is_exact_instance_of::<PyInt>() {
        object.py().detach(registered);
        return find(&format!("cuda:{object}"));
    }
    match object.cast::<PyString>() {
        Ok(name) => {
            let name = name.to_str()?;
            if !matches!(name, "cpu" | "cpu:0") {
                object.py().detach(registered);
            }
            find(name)
        }
        Err(_) => {
            Err(type_error(format!("{object} is not a device: give its name, such as \"cpu\" or \"cuda:0\"")))
        }
    }
}

/// A device as a caller names it: one of ours, or its name.
#[derive(Clone, Copy)]
pub(crate) struct Named(pub(crate) Device);

impl<'py> FromPyObject<'_, 'py> for Named {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Named> {
        Ok(Named(found(&object)?))
    }
}

/// The device named, or the default.
pub(crate) fn chosen(named: Option<Named>) -> Result<Device> {
    named.map_or_else(default_device, |named| Ok(named.0))
}

/// Waits for what is under way on devices, for the end of Python: not for ever, since nothing interrupts it there.
#[pyfunction]
fn finish(py: Python<'_>) {
    py.detach(|| device::finish_within(Duration::from_secs(10)));
}

/// Lets Python wait for devices at its end, before anything is taken down.
pub(crate) fn finish_at_exit(engine: &Bound<'_, PyModule>) -> PyResult<()> {
    let function = wrap_pyfunction!(finish, engine)?;
    engine.py().import("atexit")?.call_method1("register", (function,)).map(drop)
}

/// All devices of this machine that compute, the CPU among them.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Vec<PyDevice> {
    py.detach(registered);
    device::devices().into_iter().map(PyDevice).collect()
}

/// A second device of every machine, for tests of what several devices do: the definitions of operations, computed one after
/// the other on the processor. It is not among ``devices()``.
#[pyfunction]
pub(crate) fn reference_device() -> PyDevice {
    PyDevice(phynexus::oracle::reference_device())
}

/// The device kinds that are not here: pairs of kind and reason.
#[pyfunction]
pub(crate) fn missing_devices(py: Python<'_>) -> Vec<(String, String)> {
    py.detach(registered);
    device::missing().into_iter().map(|missing| (missing.kind, missing.reason)).collect()
}

/// The device that new tensors are made on unless another is named.
#[pyfunction]
pub(crate) fn get_default_device() -> Result<PyDevice> {
    default_device().map(PyDevice)
}

/// Makes new tensors on this device unless another is named; ``None`` goes back to the best there is.
#[pyfunction]
pub(crate) fn set_default_device(device: Option<Named>) {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = device.map(|named| named.0);
}

/// The number of threads with which the CPU computes.
#[pyfunction]
pub(crate) fn set_num_threads(threads: Count) -> Result<()> {
    neurenix::set_threads(threads.0).map_err(Failure::from)
}

/// How exactly products and convolutions of float32 are computed that are recorded from now on: ``"highest"`` (as at the
/// start) in float32, ``"high"`` with factors rounded to TF32 where the device has units for it. Gradients are computed as
/// the product they belong to.
#[pyfunction]
pub(crate) fn set_float32_matmul_precision(precision: &str) -> Result<()> {
    phynexus::set_float32_matmul_precision(MatmulPrecision::from_name(precision)?);
    Ok(())
}

/// What ``set_float32_matmul_precision`` set: ``"highest"`` or ``"high"``.
#[pyfunction]
pub(crate) fn get_float32_matmul_precision() -> &'static str {
    phynexus::float32_matmul_precision().name()
}
