//! The devices that the installed runtimes offer.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use phynexus::device::DeviceNature;

use crate::{
    Error, Found, Properties, Result, Runtime, Search, armnn, litert, onnxruntime, openvino, vendors,
};

/// The kinds of runtimes, each with its search.
const FINDERS: &[fn(&Search) -> Found] = &[onnxruntime::find, openvino::find, litert::find, armnn::find];

/// A device that compiles and runs whole networks.
#[derive(Clone, Debug)]
pub struct Device {
    name: String,
    runtime: Arc<dyn Runtime>,
    answers: Arc<Answers>,
}

/// Which parts of networks a device took and which it refused, by what decides about it.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<HashMap<String, Option<String>>>);

impl Answers {
    /// The answer, if it is known: the reason of a refusal, or `None` for what was taken.
    pub(crate) fn get(&self, key: &str) -> Option<Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Keeps an answer.
    pub(crate) fn set(&self, key: String, answer: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, answer);
    }
}

impl Device {
    /// A device of this name, of a runtime that is not among those that [`devices`] finds.
    pub fn new(name: &str, runtime: Arc<dyn Runtime>) -> Device {
        Device { name: name.to_owned(), runtime, answers: Arc::default() }
    }

    /// The device of this name.
    ///
    /// # Errors
    /// If there is none. The error lists those that there are, and what is missing.
    pub fn find(name: &str, search: &Search) -> Result<Device> {
        let (found, missing) = all(search);
        let known: Vec<String> = found.iter().map(|device| device.name.clone()).collect();
        let device = found.into_iter().find(|device| device.name == name);
        device
            .ok_or_else(|| Error::Missing(absent(&format!("there is no device {name:?}"), &known, &missing)))
    }

    /// Its name, such as `npu:0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is.
    pub fn properties(&self) -> &Properties {
        self.runtime.properties()
    }

    /// What it took and refused.
    pub(crate) fn answers(&self) -> &Answers {
        &self.answers
    }

    /// What compiles for it.
    pub fn runtime(&self) -> &dyn Runtime {
        &*self.runtime
    }
}

/// The devices of all runtimes that `search` finds, hardware first, named `npu:0`, `npu:1` and so on.
///
/// Emulators and the host's CPU are no NPUs. Their names are `npu-emulator:0` and `npu-host:0`, unless
/// [`Search::emulators`] asks for numbers as for hardware; then they are `npu:N`, after the hardware.
pub fn devices(search: &Search) -> Vec<Device> {
    all(search).0
}

/// What was not found or cannot be used: the kind of runtime, and the reason with the remedy; then the vendors whose
/// software this release only looks for ([`vendors::survey`]).
pub fn missing(search: &Search) -> Vec<(String, String)> {
    let vendors = vendors::survey(search).into_iter().map(|status| {
        let reason = match status.found {
            Ok(found) => format!("{found} is installed, but this release runs no networks through it"),
            Err(missing) => missing,
        };
        (status.vendor.to_owned(), reason)
    });
    all(search).1.into_iter().chain(vendors).collect()
}

/// The device `npu:0`: the first hardware. An emulator or the host's CPU only if [`Search::emulators`] asks for them.
///
/// # Errors
/// If there is none. The error says what was not found.
pub fn default_device(search: &Search) -> Result<Device> {
    Device::find("npu:0", search)
}

fn all(search: &Search) -> (Vec<Device>, Vec<(String, String)>) {
    let mut runtimes = Vec::new();
    let mut missing = Vec::new();
    for find in FINDERS {
        let found = find(search);
        runtimes.extend(found.runtimes);
        missing.extend(found.missing);
    }
    (named(runtimes, search.emulators()), missing)
}

/// Devices with names, hardware first, then emulators.
fn named(mut runtimes: Vec<Arc<dyn Runtime>>, emulators: bool) -> Vec<Device> {
    let rank = |nature: DeviceNature| match nature {
        DeviceNature::Hardware => 0,
        DeviceNature::Emulator => 1,
        DeviceNature::HostCpu => 2,
    };
    runtimes.sort_by_key(|runtime| rank(runtime.properties().nature));
    let mut counts = [0usize; 3];
    let name = |runtime: Arc<dyn Runtime>| {
        let rank = if emulators { 0 } else { rank(runtime.properties().nature) };
        let kind = ["npu", "npu-emulator", "npu-host"][rank];
        counts[rank] += 1;
        Device::new(&format!("{kind}:{}", counts[rank] - 1), runtime)
    };
    runtimes.into_iter().map(name).collect()
}

/// A message that something is missing, with what there is and where to get the rest.
fn absent(what: &str, known: &[String], missing: &[(String, String)]) -> String {
    let known = if known.is_empty() {
        "no device was found".to_owned()
    } else {
        format!("found: {}", known.join(", "))
    };
    let missing: String = missing.iter().map(|(kind, reason)| format!("; {kind}: {reason}")).collect();
    let emulators = "emulators and the host's CPU are numbered as npu:N if RNN_NPU_EMULATORS is 1";
    // One line: the command escapes line breaks.
    format!("{what}; {known}; {emulators}{missing}")
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::edit::{Network, ValueType};

    use super::*;
    use crate::{Accepts, Options, Program};

    #[derive(Debug)]
    struct Nothing(Properties);

    impl Runtime for Nothing {
        fn properties(&self) -> &Properties {
            &self.0
        }

        fn accepts(&self, _: &Network, _: usize, _: &HashMap<String, ValueType>) -> Accepts {
            Accepts::No("it takes nothing".to_owned())
        }

        fn compile(&self, _: &Network, _: &Options) -> Result<Box<dyn Program>> {
            Err(Error::Missing("it takes nothing".to_owned()))
        }
    }

    #[test]
    fn hardware_comes_first_and_only_it_is_an_npu() {
        use DeviceNature::*;
        let runtime = |(at, nature): (usize, &DeviceNature)| -> Arc<dyn Runtime> {
            Arc::new(Nothing(Properties {
                vendor: at.to_string(),
                model: String::new(),
                runtime: String::new(),
                version: String::new(),
                architecture: None,
                memory: None,
                nature: *nature,
            }))
        };
        let natures = [HostCpu, Emulator, Hardware, Emulator, Hardware];
        let names = |emulators: bool| -> Vec<(String, String)> {
            let all = natures.iter().enumerate().map(runtime).collect();
            let name = |device: Device| (device.name().to_owned(), device.properties().vendor.clone());
            named(all, emulators).into_iter().map(name).collect()
        };
        let own = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(name, vendor)| ((*name).to_owned(), (*vendor).to_owned())).collect()
        };
        let apart = [
            ("npu:0", "2"),
            ("npu:1", "4"),
            ("npu-emulator:0", "1"),
            ("npu-emulator:1", "3"),
            ("npu-host:0", "0"),
        ];
        assert_eq!(names(false), own(&apart));
        let together = [("npu:0", "2"), ("npu:1", "4"), ("npu:2", "1"), ("npu:3", "3"), ("npu:4", "0")];
        assert_eq!(names(true), own(&together));
    }

    #[test]
    fn a_missing_device_says_what_there_is_and_what_is_not() {
        let missing = [("QNN".to_owned(), "install it".to_owned())];
        let message = absent("there is no device \"npu:0\"", &["npu-host:0".to_owned()], &missing);
        assert!(message.contains("found: npu-host:0") && message.contains("; QNN: install it"), "{message}");
    }
}
