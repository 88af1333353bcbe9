//! The devices of this process, and the reasons why others are missing.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Backend, Device, DeviceNature, end};
use crate::{Error, Result};

/// A kind of device that was not found.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The kind: `cuda`, `vulkan`.
    pub kind: String,
    /// The reason, in plain words.
    pub reason: String,
}

struct Registry {
    found: Vec<Device>,
    /// The hardware devices of `found`. Stored, because asking a device for its nature may involve its driver.
    accelerators: Vec<Device>,
    missing: Vec<Missing>,
    /// Aliases of kinds, with the kinds they stand for.
    aliases: Vec<(&'static str, &'static str)>,
}

/// The environment variable that selects the default device.
const VARIABLE: &str = "RNN_GPU_DEVICE";

static REGISTRY: RwLock<Registry> = RwLock::new(Registry {
    found: Vec::new(),
    accelerators: Vec::new(),
    missing: Vec::new(),
    aliases: Vec::new(),
});

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a device for the life of the process. If the name is already taken, returns the existing device.
pub fn register(backend: Box<dyn Backend>) -> Device {
    end::note();
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

/// Records why a kind of device is missing.
pub fn register_missing(kind: impl Into<String>, reason: impl Into<String>) {
    let entry = Missing { kind: kind.into(), reason: reason.into() };
    let mut registry = write();
    registry.missing.retain(|m| m.kind != entry.kind);
    registry.missing.push(entry);
}

/// Records that this program was built without a kind of device, and the feature that includes it.
pub fn register_not_built(kind: &str, feature: &str) {
    register_missing(kind, format!("this program was built without it: enable the feature {feature}"));
}

/// Registers alternative names for a kind of device. An error about an unknown device suggests the kind.
pub fn register_aliases(kind: &'static str, aliases: &[&'static str]) {
    let mut registry = write();
    for alias in aliases {
        if !registry.aliases.contains(&(alias, kind)) {
            registry.aliases.push((alias, kind));
        }
    }
}

/// Returns every device found, in order of registration.
pub fn devices() -> Vec<Device> {
    read().found.clone()
}

/// Returns every missing kind of device, with the reason.
pub fn missing() -> Vec<Missing> {
    read().missing.clone()
}

/// Normalises a device name. A kind without a number means its first device, as in PyTorch, and there is only one CPU.
fn canonical(name: &str) -> String {
    match name {
        "cpu" | "cpu:0" => "cpu".to_owned(),
        kind if !kind.is_empty() && !kind.contains(':') => format!("{kind}:0"),
        name => name.to_owned(),
    }
}

impl Registry {
    fn find(&self, name: &str) -> Option<Device> {
        let exact = |name: &str| self.found.iter().find(|d| d.name() == name).copied();
        exact(name).or_else(|| exact(&canonical(name)))
    }

    /// Guesses the intended device name, if `name` is not known.
    fn meant(&self, name: &str) -> Option<String> {
        let lower = name.trim().to_ascii_lowercase();
        let known = self.found.iter().map(|device| device.name().split(':').next().unwrap_or_default());
        let missing = self.missing.iter().map(|missing| missing.kind.split(':').next().unwrap_or_default());
        let aliases = self.aliases.iter().map(|(alias, _)| *alias);
        // Splits the name into a kind and a number, with any separator. The longest matching kind wins.
        let split = |kind: &str| {
            let rest = lower.strip_prefix(kind).filter(|rest| !rest.starts_with(":-"))?;
            let rest = rest.trim_start_matches([':', '-', '_', '/', '.', ' ']);
            let number = if rest.is_empty() { 0 } else { rest.parse::<usize>().ok()? };
            Some((kind.to_owned(), number))
        };
        let kinds = known.chain(missing).chain(aliases).chain(["gpu", "accelerator"]);
        let (kind, number) = kinds.filter_map(split).max_by_key(|(kind, _)| kind.len())?;
        if kind == "gpu" || kind == "accelerator" {
            return self.accelerators.get(number).map(|device| device.name().to_owned());
        }
        let kind = self.aliases.iter().find(|(alias, _)| *alias == kind).map_or(&*kind, |(_, own)| *own);
        let meant = canonical(&format!("{kind}:{number}"));
        (meant != canonical(name)).then_some(meant)
    }

    /// Lists the names of all devices.
    fn found_here(&self) -> String {
        let names: Vec<_> = self.found.iter().map(|d| d.name()).collect();
        match names.is_empty() {
            true => "no device is registered: call register_all() first".to_owned(),
            false => format!("found here: {}", names.join(", ")),
        }
    }

    /// Explains the naming rule that this name breaks, if there is one.
    fn rule(&self, name: &str) -> String {
        let lower = name.trim().to_ascii_lowercase();
        if lower.contains(":-") {
            return "devices are counted from 0; ".to_owned();
        }
        let example = self.accelerators.first().map(|device| device.name());
        match example.or_else(|| self.missing.first().map(|missing| &*missing.kind)) {
            Some(kind) if ["gpu", "accelerator"].iter().any(|prefix| lower.starts_with(prefix)) => {
                format!("GPUs are named by their drivers, such as {:?}; ", canonical(kind))
            }
            _ => String::new(),
        }
    }

    /// Explains why there is no device of this name, suggests a likely name, and lists the available devices.
    fn hint(&self, name: &str) -> String {
        let meant = self.meant(name);
        let wanted = meant.clone().unwrap_or_else(|| canonical(name));
        let kind = wanted.split(':').next().unwrap_or_default();
        let missing = self.missing.iter().find(|missing| missing.kind == wanted || missing.kind == kind);
        let question = match meant {
            Some(meant) => format!("did you mean {meant:?}? "),
            None => self.rule(name),
        };
        match missing.filter(|_| self.find(&wanted).is_none()) {
            Some(missing) => format!("{question}{} ({})", missing.reason, self.found_here()),
            None => format!("{question}{}", self.found_here()),
        }
    }
}

/// Finds a device by name. `cuda` is `cuda:0`, likewise for the other kinds, and `cpu:0` is `cpu`.
pub fn find(name: &str) -> Result<Device> {
    let registry = read();
    let unknown =
        || Error::UnknownDevice { name: name.to_owned(), variable: None, hint: registry.hint(name) };
    registry.find(name).ok_or_else(unknown)
}

/// Returns the device that `RNN_GPU_DEVICE` selects by name or by accelerator number. If it is not set: the first
/// accelerator, otherwise the first device.
pub(super) fn default_device() -> Result<Device> {
    let registry = read();
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let unknown = |hint| Error::UnknownDevice { name: wanted.clone(), variable: Some(VARIABLE), hint };
    match wanted.trim() {
        "" => registry.accelerators.first().or_else(|| registry.found.first()).copied().ok_or_else(|| {
            Error::UnknownDevice { name: "default".to_owned(), variable: None, hint: registry.found_here() }
        }),
        number if number.bytes().all(|b| b.is_ascii_digit()) => {
            let device = number.parse().ok().and_then(|n: usize| registry.accelerators.get(n)).copied();
            device.ok_or_else(|| {
                let accelerators = registry.accelerators.iter().enumerate();
                let known: Vec<String> = accelerators.map(|(n, d)| format!("{n} ({})", d.name())).collect();
                let there = match known.is_empty() {
                    true => "a number counts accelerators, and there is none".to_owned(),
                    false => format!("a number counts accelerators: {}", known.join(", ")),
                };
                unknown(format!("{there}; {}", registry.found_here()))
            })
        }
        name => registry.find(name).ok_or_else(|| unknown(registry.hint(name))),
    }
}
