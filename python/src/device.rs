//! Devices.

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

/// Registers the machine's devices on first use. Opening drivers is too slow for an import.
pub(crate) fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(neurenix::register_all);
}

static CHOSEN: Mutex<Option<Device>> = Mutex::new(None);

/// The device for new tensors if none is given.
pub(crate) fn default_device() -> Result<Device> {
    let chosen = || CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = *chosen() {
        return Ok(device);
    }
    // Release the GIL: registration is slow, and other threads may need the GIL.
    Python::attach(|py| py.detach(registered));
    let device = Device::default_device()?;
    Ok(*chosen().get_or_insert(device))
}

/// A compute device, such as ``nx.Device("cpu")`` or ``nx.Device("cuda", 1)``.
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
    /// The name, such as ``"cpu"`` or ``"cuda:0"``.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }
    /// The kind, such as ``"cpu"`` or ``"cuda"``.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.0.name().split(':').next().unwrap_or_default()
    }
    /// The index among the devices of the same kind.
    #[getter]
    fn index(&self) -> usize {
        self.0.name().split(':').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    }
    /// Properties that the device reports. Unknown properties are missing.
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
    /// Returns the memory pool's statistics; sizes are in bytes.
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
    /// Waits until all work submitted to the device is done.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let device = self.0;
        compute(py, || device.synchronize())
    }
    /// Limits the memory that tensors may use, in bytes; ``None`` removes the limit.
    fn set_memory_limit(&self, limit: Option<Count>) {
        self.0.set_memory_limit(limit.map(|limit| limit.0));
    }
    /// With ``True``, the least recently used tensors move to host memory when the device is full or at its limit, and
    /// move back when they are needed. With ``False``, the default, a full device raises ``MemoryError``. Only tensors
    /// created while spilling is on can move. ``memory()`` reports how many did.
    fn set_spilling(&self, spilling: bool) -> Result<()> {
        Ok(self.0.set_spilling(spilling)?)
    }
    /// Returns cached memory that no tensor uses to the system.
    fn empty_cache(&self) {
        self.0.empty_cache();
    }
    /// Resets the peak memory statistic.
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

/// Finds a device by name. A kind alone means its first device.
pub(crate) fn find(name: &str) -> Result<Device> {
    // The CPU needs no drivers.
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
    // As in PyTorch, a plain integer is the index of an NVIDIA GPU.
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
            Err(type_error(format!("{object} is not a device: use a name such as \"cpu\" or \"cuda:0\"")))
        }
    }
}

/// A device argument: a ``Device``, a name or a GPU index.
#[derive(Clone, Copy)]
pub(crate) struct Named(pub(crate) Device);

impl<'py> FromPyObject<'_, 'py> for Named {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Named> {
        Ok(Named(found(&object)?))
    }
}

/// The given device, or the default device.
pub(crate) fn chosen(named: Option<Named>) -> Result<Device> {
    named.map_or_else(default_device, |named| Ok(named.0))
}

/// Waits for pending work on devices when Python exits. There is a time limit because this wait cannot be interrupted.
#[pyfunction]
fn finish(py: Python<'_>) {
    py.detach(|| device::finish_within(Duration::from_secs(10)));
}

/// Makes Python wait for devices at exit, before it destroys any objects.
pub(crate) fn finish_at_exit(engine: &Bound<'_, PyModule>) -> PyResult<()> {
    let function = wrap_pyfunction!(finish, engine)?;
    engine.py().import("atexit")?.call_method1("register", (function,)).map(drop)
}

/// Returns all compute devices of this machine, including the CPU.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> Vec<PyDevice> {
    py.detach(registered);
    device::devices().into_iter().map(PyDevice).collect()
}

/// Returns the reference device, which computes operations one by one from their definitions on the CPU. Every machine
/// has it, so that tests can use two devices. It is not listed in ``devices()``.
#[pyfunction]
pub(crate) fn reference_device() -> PyDevice {
    PyDevice(phynexus::oracle::reference_device())
}

/// Returns ``(kind, reason)`` for each kind of device that is unavailable.
#[pyfunction]
pub(crate) fn missing_devices(py: Python<'_>) -> Vec<(String, String)> {
    py.detach(registered);
    device::missing().into_iter().map(|missing| (missing.kind, missing.reason)).collect()
}

/// Returns the device on which new tensors are created by default.
#[pyfunction]
pub(crate) fn get_default_device() -> Result<PyDevice> {
    default_device().map(PyDevice)
}

/// Sets the device on which new tensors are created by default. ``None`` restores the best device.
#[pyfunction]
pub(crate) fn set_default_device(device: Option<Named>) {
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = device.map(|named| named.0);
}

/// Sets the number of threads for CPU computation.
#[pyfunction]
pub(crate) fn set_num_threads(threads: Count) -> Result<()> {
    neurenix::set_threads(threads.0).map_err(Failure::from)
}

/// Sets the precision of float32 matrix products and convolutions recorded from now on. ``"highest"``, the default,
/// computes in float32. ``"high"`` rounds the factors to TF32 on devices with TF32 units. ``"split"`` computes matrix
/// products as six products of bfloat16 numbers on NVIDIA Hopper, with float32's accuracy; infinite factors may give
/// NaN. Gradients use the precision of the operation that they belong to.
#[pyfunction]
pub(crate) fn set_float32_matmul_precision(precision: &str) -> Result<()> {
    phynexus::set_float32_matmul_precision(MatmulPrecision::from_name(precision)?);
    Ok(())
}

/// Sets the precision of float32 products for this thread, or ends that with ``None``. Returns what was set before.
#[pyfunction]
#[pyo3(signature = (precision))]
pub(crate) fn set_thread_matmul_precision(precision: Option<&str>) -> Result<Option<&'static str>> {
    let precision = precision.map(MatmulPrecision::from_name).transpose()?;
    Ok(phynexus::set_thread_matmul_precision(precision).map(MatmulPrecision::name))
}

/// Returns the setting of ``set_float32_matmul_precision``: ``"highest"``, ``"high"`` or ``"split"``.
#[pyfunction]
pub(crate) fn get_float32_matmul_precision() -> &'static str {
    phynexus::float32_matmul_precision().name()
}
