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

/// The device of this name.
pub fn find(name: &str) -> Result<Device> {
    let registry = read();
    registry.found.iter().find(|d| d.name() == name).copied().ok_or_else(|| {
        let names: Vec<_> = registry.found.iter().map(|d| d.name()).collect();
        let hint = match registry.missing.iter().find(|m| name.starts_with(&m.kind)) {
            Some(missing) => missing.reason.clone(),
            None if names.is_empty() => "no device is registered: call register_all() first".to_owned(),
            None => format!("found here: {}", names.join(", ")),
        };
        Error::UnknownDevice { name: name.to_owned(), hint }
    })
}

/// The device that `RNN_GPU_DEVICE` names: a name, or the number of an accelerator; else the first accelerator; else the
/// first device.
pub(super) fn default_device() -> Result<Device> {
    let wanted = std::env::var("RNN_GPU_DEVICE").unwrap_or_default();
    let first = match wanted.trim() {
        "" => {
            let registry = read();
            registry.accelerators.first().or_else(|| registry.found.first()).copied()
        }
        number if number.bytes().all(|b| b.is_ascii_digit()) => {
            let registry = read();
            let device = number.parse().ok().and_then(|n: usize| registry.accelerators.get(n)).copied();
            return device.ok_or_else(|| Error::UnknownDevice {
                name: format!("RNN_GPU_DEVICE={number}"),
                hint: format!("there are {} accelerators, counted from 0", registry.accelerators.len()),
            });
        }
        name => return find(name),
    };
    first.ok_or_else(|| Error::UnknownDevice {
        name: "default".to_owned(),
        hint: "no device is registered: call register_all() first".to_owned(),
    })
}
