//! The class ``Device``: the CPU, or one of the engine's GPUs.

use std::sync::{Mutex, OnceLock, PoisonError};

use phynexus::{
    Device,
    device::{DeviceNature, devices, missing},
};
use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyType};

use crate::{
    Reduced,
    host::{exception, host},
    kernel::is_wide,
    reduced,
};

/// The device of a value: the CPU, or an index into the list of used devices. One byte, because every value has one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceId(u8);

static USED: Mutex<Vec<Device>> = Mutex::new(Vec::new());

impl DeviceId {
    pub(crate) const CPU: DeviceId = DeviceId(0);

    #[inline]
    pub(crate) fn is_cpu(self) -> bool {
        self == DeviceId::CPU
    }

    /// The number of an engine device.
    fn of(device: Device) -> PyResult<DeviceId> {
        if device.name() == "cpu" {
            return Ok(DeviceId::CPU);
        }
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = used.iter().position(|known| *known == device).unwrap_or_else(|| {
            used.push(device);
            used.len() - 1
        });
        match u8::try_from(at + 1) {
            Ok(device_id) => Ok(DeviceId(device_id)),
            Err(_) => Err(PyRuntimeError::new_err("values are on more than 255 devices")),
        }
    }

    /// The engine device; `None` for the CPU, where values do not need it.
    pub(crate) fn device(self) -> Option<Device> {
        let used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        used.get(usize::from(self.0).checked_sub(1)?).copied()
    }

    /// The engine's name of the device.
    pub(crate) fn name(self) -> &'static str {
        self.device().map_or("cpu", Device::name)
    }

    /// The device for a pickled name: the CPU if there is no such device.
    pub(crate) fn restored(py: Python<'_>, name: &str) -> PyResult<DeviceId> {
        let find = host()?.find_device;
        py.detach(|| find(name).map_or(Ok(DeviceId::CPU), DeviceId::of))
    }

    /// A sort key.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The device's name in messages.
    pub(crate) fn kind(self) -> &'static str {
        if self.is_cpu() { "Cpu" } else { "Gpu" }
    }
}

/// The first device that is a hardware GPU and not an emulator.
fn first_gpu() -> PyResult<Option<DeviceId>> {
    static FIRST: OnceLock<Option<Device>> = OnceLock::new();
    let register = host()?.register_devices;
    let first = FIRST.get_or_init(|| {
        register();
        devices().into_iter().find(|device| device.info().nature == DeviceNature::Hardware)
    });
    first.map(DeviceId::of).transpose()
}

/// The exception for a missing GPU. Its notes, which Python shows below the message, give the reasons.
fn no_gpu(py: Python<'_>) -> PyErr {
    let emulators = devices().into_iter().filter(|device| device.info().nature == DeviceNature::Emulator);
    let emulators = emulators.map(|device| format!("{}: an emulator, not hardware", device.name()));
    let absent = missing().into_iter().map(|missing| format!("{}: {}", missing.kind, missing.reason));
    let notes: Vec<String> = absent.chain(emulators).collect();
    let error = PyRuntimeError::new_err("GPU is not available on this system");
    // Equivalent to `add_note` of Python 3.11; in 3.10 the attribute exists without the method.
    match error.value(py).setattr("__notes__", notes) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// The pickled name of `Device.GPU`.
const ANY_GPU: &str = "gpu";

#[derive(Clone, Copy)]
enum Which {
    Here(DeviceId),
    /// `Device.GPU`, which is looked up when it is used.
    AnyGpu,
}

/// The device of a value: ``Device.cpu()``, or ``Device.gpu()`` for any hardware GPU of the engine.
#[pyclass(name = "Device", module = "micrograd_rs", frozen)]
#[derive(Clone, Copy)]
pub(crate) struct PyDevice(Which);

impl PyDevice {
    pub(crate) fn at(device_id: DeviceId) -> PyDevice {
        PyDevice(Which::Here(device_id))
    }

    /// The device of a device argument; the CPU if there is none.
    pub(crate) fn chosen(py: Python<'_>, named: Option<&PyDevice>) -> PyResult<DeviceId> {
        named.map_or(Ok(DeviceId::CPU), |named| named.device_id(py))
    }

    pub(crate) fn device_id(&self, py: Python<'_>) -> PyResult<DeviceId> {
        match self.0 {
            Which::Here(device_id) => Ok(device_id),
            Which::AnyGpu => match py.detach(first_gpu)? {
                Some(device_id) => Ok(device_id),
                None => Err(no_gpu(py)),
            },
        }
    }

    fn is_cpu(&self) -> bool {
        matches!(self.0, Which::Here(DeviceId::CPU))
    }
}

#[pymethods]
impl PyDevice {
    #[classattr]
    const CPU: PyDevice = PyDevice(Which::Here(DeviceId::CPU));
    /// Any GPU. If there is none, using it raises an error.
    #[classattr]
    const GPU: PyDevice = PyDevice(Which::AnyGpu);

    #[new]
    fn new() -> PyDevice {
        PyDevice::CPU
    }
    /// Returns the CPU.
    #[staticmethod]
    fn cpu() -> PyDevice {
        PyDevice::CPU
    }
    /// Returns a hardware GPU. Raises ``RuntimeError`` if there is none.
    #[staticmethod]
    fn gpu(py: Python<'_>) -> PyResult<PyDevice> {
        PyDevice::GPU.device_id(py).map(PyDevice::at)
    }
    /// Returns whether there is a hardware GPU.
    #[staticmethod]
    fn is_gpu_available(py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(first_gpu)?.is_some())
    }
    /// Returns the engine device of this name, including emulators; for tests.
    #[staticmethod]
    fn _named(py: Python<'_>, name: &str) -> PyResult<PyDevice> {
        let find = host()?.find_device;
        py.detach(|| find(name).and_then(DeviceId::of)).map(PyDevice::at)
    }
    /// The engine's name of the device, such as ``"cpu"`` or ``"cuda:0"``.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.device_id(py)?.name())
    }
    /// The number type of values on this device: ``"f64"``, or ``"f32"`` on a GPU without f64.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        match self.device_id(py)?.device() {
            Some(device) if !py.detach(|| is_wide(device)).map_err(exception)? => Ok("f32"),
            _ => Ok("f64"),
        }
    }
    fn __int__(&self) -> u8 {
        u8::from(!self.is_cpu())
    }
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<PyDevice>() {
            let other = other.get();
            if self.is_cpu() || other.is_cpu() {
                return Ok(self.is_cpu() == other.is_cpu());
            }
            let device_id = |device: &PyDevice| match device.0 {
                Which::Here(device_id) => Ok(Some(device_id)),
                Which::AnyGpu => py.detach(first_gpu),
            };
            return Ok(device_id(self)? == device_id(other)?);
        }
        Ok(other.extract::<i64>().is_ok_and(|number| number == i64::from(self.__int__())))
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&'static str,)> {
        let name = match self.0 {
            Which::Here(device_id) => device_id.name(),
            Which::AnyGpu => ANY_GPU,
        };
        reduced::<PyDevice, _>(py, (name,))
    }
    #[classmethod]
    fn _restored(class: &Bound<'_, PyType>, name: &str) -> PyResult<PyDevice> {
        match name {
            ANY_GPU => Ok(PyDevice::GPU),
            name => DeviceId::restored(class.py(), name).map(PyDevice::at),
        }
    }
    fn __str__(&self) -> &'static str {
        if self.is_cpu() { "CPU" } else { "GPU" }
    }
    fn __repr__(&self) -> String {
        format!("Device.{}", self.__str__())
    }
}
