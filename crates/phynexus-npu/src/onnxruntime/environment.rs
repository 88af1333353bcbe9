//! The library, its environment and its plug-ins, once in a process.

use std::{
    collections::HashMap,
    ffi::CStr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use ort::{environment::Environment as OrtEnvironment, logging::LogLevel};

use super::provider::{OPENVINO, QNN, SUFFIX, short};
use crate::Search;

/// ONNX Runtime. It is loaded once and stays until the process ends: its threads and plug-ins cannot be unloaded
/// safely.
#[derive(Debug)]
pub(super) struct Environment {
    pub(super) ort: OrtEnvironment,
    /// The library's version, such as `1.31.1`.
    pub(super) version: String,
    /// The plug-ins that were registered, with the error if there was one.
    plugins: Mutex<HashMap<PathBuf, Arc<OnceLock<Option<String>>>>>,
    /// Held while sessions are created whose tensors are limited: the limit is the environment's for that time.
    pub(super) limits: Mutex<()>,
}

/// The environment of the process. The first library that a search finds is the process's.
///
/// # Errors
/// Why there is none.
pub(super) fn get(search: &Search) -> Result<&'static Environment, String> {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    if let Some(environment) = ENVIRONMENT.get() {
        return Ok(environment);
    }
    // `ort` has one library in a process, so that only one thread may load it.
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = ENVIRONMENT.get() {
        return Ok(environment);
    }
    let path = search.library(&["onnxruntime/capi"], "onnxruntime").ok_or_else(|| {
        "its library was not found; install the Python package onnxruntime (1.24 or newer) and name its \
         site-packages folder in RNN_NPU_PATH"
            .to_owned()
    })?;
    let environment = load(&path).map_err(|reason| format!("{}: {reason}", path.display()))?;
    Ok(ENVIRONMENT.get_or_init(|| environment))
}

fn load(path: &Path) -> Result<Environment, String> {
    let version = version(path)?;
    let builder = ort::init_from(path).map_err(|e| e.to_string())?;
    let ort = builder.with_name("neurenix").with_telemetry(false).build().map_err(|e| e.to_string())?;
    // What goes wrong comes back as an error; the library need not print it, too.
    ort.set_log_level(LogLevel::Fatal);
    Ok(Environment { ort, version, plugins: Mutex::default(), limits: Mutex::default() })
}

/// The library's version, which `ort` does not pass on.
fn version(path: &Path) -> Result<String, String> {
    type Base = unsafe extern "C" fn() -> *const ort::sys::OrtApiBase;
    // SAFETY: opening ONNX Runtime only runs its initialisers.
    let library = unsafe { libloading::Library::new(path) }.map_err(|e| e.to_string())?;
    // SAFETY: the type is that of `onnxruntime_c_api.h`.
    let base = unsafe { library.get::<Base>(b"OrtGetApiBase") }.map_err(|e| e.to_string())?;
    // SAFETY: the function takes nothing and returns a table that lives as long as the library.
    let base = unsafe { base().as_ref() }.ok_or("it has no interface")?;
    // SAFETY: as above, with a string that ends in zero.
    let text = unsafe { CStr::from_ptr((base.GetVersionString)()) };
    Ok(text.to_string_lossy().into_owned())
}

impl Environment {
    /// Registers the plug-ins that a search finds and that are not yet registered. Returns those that cannot be used.
    pub(super) fn register(&self, search: &Search) -> Vec<(String, String)> {
        let mut failed = Vec::new();
        for path in search.libraries("onnxruntime_", "onnxruntime_providers_") {
            let stem = path.file_name().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            let name = stem.trim_start_matches("lib").split('.').next().unwrap_or_default();
            if name.ends_with("_shared") {
                continue;
            }
            let name = provider_name(name);
            // The lock is not held while a plug-in is loaded, which may take long.
            let plugin = {
                let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(plugins.entry(path.clone()).or_default())
            };
            let error = plugin.get_or_init(|| {
                self.ort.register_ep_library(name, &path).err().map(|error| error.to_string())
            });
            if let Some(error) = error {
                failed.push((
                    format!("{}, {}", super::KIND, short(name)),
                    format!("{}: {error}", path.display()),
                ));
            } else if !self.ort.devices().any(|device| device.ep().is_ok_and(|own| own == name))
                && name.ends_with(SUFFIX)
            {
                let reason = format!("{} offers no device on this machine", path.display());
                failed.push((format!("{}, {}", super::KIND, short(name)), reason));
            }
        }
        failed
    }
}

/// The name to register a plug-in by. Some take it for their provider's name, by which options are given.
fn provider_name(library: &str) -> &str {
    match library {
        "onnxruntime_providers_qnn" => QNN,
        "onnxruntime_providers_openvino_plugin" => OPENVINO,
        other => other,
    }
}
