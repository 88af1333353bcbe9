//! Kernels in vendors' languages, and their compilation.

use std::collections::HashMap;

use neurenix::{
    compile::{NotCompiled, compile_source},
    languages,
    phynexus::custom::SourceLanguage,
};

pub use super::sources::{CudaKernels, MetalKernels, OpenCLKernels};
use crate::{NetworkError, Result, device::explained};

/// A kernel to execute: see [`GpuContext::execute_kernel`](super::GpuContext::execute_kernel).
#[derive(Clone, Debug)]
pub struct GpuKernel {
    /// The name in messages.
    pub name: String,
    /// The source, in the language of the context's device.
    pub source: String,
    /// The name of the function in the source.
    pub entry_point: String,
    /// The result of [`KernelManager::compile_kernel`], for the caller's use. Execution compiles the source, or uses
    /// the engine's cache.
    pub compiled_binary: Option<Vec<u8>>,
    /// The size of a group. In WGSL it must equal the source's `@workgroup_size`.
    pub work_group_size: (usize, usize, usize),
    /// A handle for the caller's use.
    pub backend_handle: Option<usize>,
}

/// The language of a backend.
pub(crate) fn language(backend: &str) -> Result<SourceLanguage> {
    match backend {
        "cuda" => Ok(languages::CUDA_C),
        "opencl" => Ok(languages::OPENCL_C),
        "metal" => Ok(languages::MSL),
        "rocm" => Ok(languages::HIP_C),
        "wgsl" => Ok(languages::WGSL),
        other => {
            let reason = "use \"cuda\", \"opencl\", \"metal\", \"rocm\" or \"wgsl\"";
            Err(NetworkError::invalid_parameter("backend", format!("{other:?}"), reason))
        }
    }
}

/// Compiles kernels and caches their binaries.
#[derive(Debug, Default)]
pub struct KernelManager {
    compiled: HashMap<(String, String), (String, Vec<u8>)>,
}

impl KernelManager {
    /// An empty manager.
    pub fn new() -> KernelManager {
        KernelManager::default()
    }

    /// Compiles a source for a backend: `cuda` (a cubin), `rocm` (a code object), `opencl` (the driver's binary),
    /// `wgsl` (SPIR-V), `metal`. Binaries are cached, those of CUDA and HIP on disk too (`RNN_CUDA_CACHE_PATH`).
    /// `RNN_GPU_DEBUG=1` prints each compilation.
    ///
    /// # Errors
    /// [`NetworkError::KernelCompilation`] with the compiler's messages if the source is refused;
    /// [`NetworkError::CompilerMissing`] if the compiler is not on this machine.
    pub fn compile_kernel(&mut self, name: &str, source: &str, backend: &str) -> Result<Vec<u8>> {
        let language = language(backend)?;
        let key = (backend.to_owned(), name.to_owned());
        if let Some((_, binary)) = self.compiled.get(&key).filter(|(known, _)| known == source) {
            return Ok(binary.clone());
        }
        let debug = std::env::var("RNN_GPU_DEBUG").is_ok_and(|value| !matches!(value.trim(), "" | "0"));
        let outcome = compile_source(language, source);
        if debug {
            let told = match &outcome {
                Ok(binary) => format!("{} bytes", binary.len()),
                Err(error) => error.to_string(),
            };
            eprintln!("kernel {name} for {backend}: {told}");
        }
        let binary = outcome.map_err(|reason| match reason {
            NotCompiled::Missing(install) => {
                let install = explained(backend, install);
                NetworkError::CompilerMissing { backend: backend.to_owned(), install }
            }
            NotCompiled::Refused(message) => NetworkError::KernelCompilation {
                kernel: name.to_owned(),
                backend: backend.to_owned(),
                message,
            },
        })?;
        self.compiled.insert(key, (source.to_owned(), binary.clone()));
        Ok(binary)
    }

    /// The cached binary of a kernel.
    pub fn get_kernel(&self, name: &str, backend: &str) -> Option<&Vec<u8>> {
        let key = (backend.to_owned(), name.to_owned());
        self.compiled.get(&key).map(|(_, binary)| binary)
    }

    /// Clears the cache.
    pub fn clear(&mut self) {
        self.compiled.clear();
    }
}
