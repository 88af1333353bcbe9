//! The devices of this process, and why others are missing.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Backend, Device, DeviceNature};
use crate::{Error, Result};

/// A kind of device that was looked for and not found.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The kind: `cuda`, `vulkan`.
    pub kind: String,
    /// Why, in plain words.
    pub reason: String,
}

struct Registry {
    found: Vec<Device>,
    /// Those of `found` that are hardware: devices are asked once, for they may have to ask their drivers.
    accelerators: Vec<Device>,
    missing: Vec<Missing>,
}

/// The variable that names the default device.
const VARIABLE: &str = "RNN_GPU_DEVICE";

static REGISTRY: RwLock<Registry> =
    RwLock::new(Registry { found: Vec::new(), accelerators: Vec::new(), missing: Vec::new() });

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a device, for the life of the process. A second device of the same name is refused and the first returned.
pub fn register(backend: Box<dyn Backend>) -> Device {
    let is_accelerator = backend.info().nature == DeviceNature::Hardware;
    let mut registry = write();
    if let Some(device) = registry.found.iter().find(|d| d.name() == backend.name()) {
        return *device;
    }
    let device = Device(Box::leak(backend));
    registry.found.push(device);
    if is_accelerator {
        registry.accelerators.push(device);
    }
    device
}

/// Notes why a kind of device is not there.
pub fn register_missing(kind: impl Into<String>, reason: impl Into<String>) {
    let entry = Missing { kind: kind.into(), reason: reason.into() };
    let mut registry = write();
    registry.missing.retain(|m| m.kind != entry.kind);
    registry.missing.push(entry);
}

/// Every device found, in the order of registration.
pub fn devices() -> Vec<Device> {
    read().found.clone()
}

/// Every kind of device not found, with the reason.
pub fn missing() -> Vec<Missing> {
    read().missing.clone()
}

impl Registry {
    fn find(&self, name: &str) -> Option<Device> {
        self.found.iter().find(|d| d.name() == name).copied()
    }

    /// The names of all devices.
    fn found_here(&self) -> String {
        let names: Vec<_> = self.found.iter().map(|d| d.name()).collect();
        match names.is_empty() {
            true => "no device is registered: call register_all() first".to_owned(),
            false => format!("found here: {}", names.join(", ")),
        }
    }

    /// Why there is no device of this name, and which there are.
    fn hint(&self, name: &str) -> String {
        match self.missing.iter().find(|m| name.starts_with(&m.kind)) {
            Some(missing) => format!("{} ({})", missing.reason, self.found_here()),
            None => self.found_here(),
        }
    }
}

/// The device of this name.
pub fn find(name: &str) -> Result<Device> {
    let registry = read();
    let unknown = || Error::UnknownDevice { name: name.to_owned(), hint: registry.hint(name) };
    registry.find(name).ok_or_else(unknown)
}

/// The device that `RNN_GPU_DEVICE` names: a name, or the number of an accelerator; else the first accelerator; else the
/// first device.
pub(super) fn default_device() -> Result<Device> {
    let registry = read();
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let unknown = |hint| Error::UnknownDevice { name: format!("{VARIABLE}={}", wanted.trim()), hint };
    match wanted.trim() {
        "" => {
            registry.accelerators.first().or_else(|| registry.found.first()).copied().ok_or_else(|| {
                Error::UnknownDevice { name: "default".to_owned(), hint: registry.found_here() }
            })
        }
        number if number.bytes().all(|b| b.is_ascii_digit()) => {
            let device = number.parse().ok().and_then(|n: usize| registry.accelerators.get(n)).copied();
            device.ok_or_else(|| {
                let count = registry.accelerators.len();
                unknown(format!("accelerators counted from 0: {count}; {}", registry.found_here()))
            })
        }
        name => registry.find(name).ok_or_else(|| unknown(registry.hint(name))),
    }
}
