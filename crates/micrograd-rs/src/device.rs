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
pub(crate) struct Place(u8);

static USED: Mutex<Vec<Device>> = Mutex::new(Vec::new());

impl Place {
    pub(crate) const CPU: Place = Place(0);

    #[inline]
    pub(crate) fn is_cpu(self) -> bool {
        self == Place::CPU
    }

    /// The place of an engine device.
    fn of(device: Device) -> PyResult<Place> {
        if device.name() == "cpu" {
            return Ok(Place::CPU);
        }
        let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
        let at = used.iter().position(|known| *known == device).unwrap_or_else(|| {
            used.push(device);
            used.len() - 1
        });
        match u8::try_from(at + 1) {
            Ok(place) => Ok(Place(place)),
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

    /// The place for a pickled name: the CPU if there is no such device.
    pub(crate) fn restored(py: Python<'_>, name: &str) -> PyResult<Place> {
        let find = host()?.find_device;
        py.detach(|| find(name).map_or(Ok(Place::CPU), Place::of))
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
fn first_gpu() -> PyResult<Option<Place>> {
    static FIRST: OnceLock<Option<Device>> = OnceLock::new();
    let register = host()?.register_devices;
    let first = FIRST.get_or_init(|| {
        register();
        devices().into_iter().find(|device| device.info().nature == DeviceNature::Hardware)
    });
    first.map(Place::of).transpose()
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
    Here(Place),
    /// `Device.GPU`, which is looked up when it is used.
    AnyGpu,
}

/// The device of a value: ``Device.cpu()``, or ``Device.gpu()`` for any hardware GPU of the engine.
#[pyclass(name = "Device", module = "micrograd_rs", frozen)]
#[derive(Clone, Copy)]
pub(crate) struct PlaceDevice(Which);

impl PlaceDevice {
    pub(crate) fn at(place: Place) -> PlaceDevice {
        PlaceDevice(Which::Here(place))
    }

    /// The place of a device argument; the CPU if there is none.
    pub(crate) fn chosen(py: Python<'_>, named: Option<&PlaceDevice>) -> PyResult<Place> {
        named.map_or(Ok(Place::CPU), |named| named.place(py))
    }

    pub(crate) fn place(&self, py: Python<'_>) -> PyResult<Place> {
        match self.0 {
            Which::Here(place) => Ok(place),
            Which::AnyGpu => match py.detach(first_gpu)? {
                Some(place) => Ok(place),
                None => Err(no_gpu(py)),
            },
        }
    }

    fn is_cpu(&self) -> bool {
        matches!(self.0, Which::Here(Place::CPU))
    }
}

#[pymethods]
impl PlaceDevice {
    #[classattr]
    const CPU: PlaceDevice = PlaceDevice(Which::Here(Place::CPU));
    /// Any GPU. If there is none, using it raises an error.
    #[classattr]
    const GPU: PlaceDevice = PlaceDevice(Which::AnyGpu);

    #[new]
    fn new() -> PlaceDevice {
        PlaceDevice::CPU
    }
    /// Returns the CPU.
    #[staticmethod]
    fn cpu() -> PlaceDevice {
        PlaceDevice::CPU
    }
    /// Returns a hardware GPU. Raises ``RuntimeError`` if there is none.
    #[staticmethod]
    fn gpu(py: Python<'_>) -> PyResult<PlaceDevice> {
        PlaceDevice::GPU.place(py).map(PlaceDevice::at)
    }
    /// Returns whether there is a hardware GPU.
    #[staticmethod]
    fn is_gpu_available(py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(first_gpu)?.is_some())
    }
    /// Returns the engine device of this name, including emulators; for tests.
    #[staticmethod]
    fn _named(py: Python<'_>, name: &str) -> PyResult<PlaceDevice> {
        let find = host()?.find_device;
        py.detach(|| find(name).and_then(Place::of)).map(PlaceDevice::at)
    }
    /// The engine's name of the device, such as ``"cpu"`` or ``"cuda:0"``.
    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.place(py)?.name())
    }
    /// The number type of values on this device: ``"f64"``, or ``"f32"`` on a GPU without f64.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        match self.place(py)?.device() {
            Some(device) if !py.detach(|| is_wide(device)).map_err(exception)? => Ok("f32"),
            _ => Ok("f64"),
        }
    }
    fn __int__(&self) -> u8 {
        u8::from(!self.is_cpu())
    }
    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<PlaceDevice>() {
            let other = other.get();
            if self.is_cpu() || other.is_cpu() {
                return Ok(self.is_cpu() == other.is_cpu());
            }
            let place = |device: &PlaceDevice| match device.0 {
                Which::Here(place) => Ok(Some(place)),
                Which::AnyGpu => py.detach(first_gpu),
            };
            return Ok(place(self)? == place(other)?);
        }
        Ok(other.extract::<i64>().is_ok_and(|number| number == i64::from(self.__int__())))
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (&'static str,)> {
        let name = match self.0 {
            Which::Here(place) => place.name(),
            Which::AnyGpu => ANY_GPU,
        };
        reduced::<PlaceDevice, _>(py, (name,))
    }
    #[classmethod]
    fn _restored(class: &Bound<'_, PyType>, name: &str) -> PyResult<PlaceDevice> {
        match name {
            ANY_GPU => Ok(PlaceDevice::GPU),
            name => Place::restored(class.py(), name).map(PlaceDevice::at),
        }
    }
    fn __str__(&self) -> &'static str {
        if self.is_cpu() { "CPU" } else { "GPU" }
    }
    fn __repr__(&self) -> String {
        format!("Device.{}", self.__str__())
    }
}
