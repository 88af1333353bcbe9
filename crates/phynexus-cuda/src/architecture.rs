//! Compiles kernels for an architecture without a GPU of it.

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use phynexus::kernel::{
    loops::Kernel,
    lower::Target,
    print::{print, print_variable},
};

use crate::{compile::Compiler, gpu::target, language::CUDA, library, versions::Nvrtc};

/// Maximum shared memory per block in bytes, from the compute capability table of NVIDIA's CUDA C++ Programming Guide.
fn shared_bytes(number: usize) -> usize {
    let kilobytes = match number {
        70 | 72 => 96,
        75 => 64,
        80 | 87 => 163,
        86 | 89 | 120 | 121 => 99,
        90 | 100 | 101 | 103 | 110 => 227,
        _ => 48,
    };
    kilobytes << 10
}

/// An NVIDIA architecture to compile kernels for.
pub struct Architecture {
    compiler: Compiler,
    target: Target,
}

impl Architecture {
    /// Creates the architecture with NVIDIA's name: `sm_80`, `sm_90a`.
    ///
    /// # Errors
    /// If the name is invalid, or NVRTC is not installed or does not support it. The message names what is missing.
    pub fn new(name: &str) -> Result<Architecture, String> {
        let number = name.strip_prefix("sm_").map(|rest| rest.trim_end_matches(char::is_alphabetic));
        let number: usize = number
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| format!("{name:?} is not an NVIDIA architecture such as sm_80"))?;
        if !library::has_compiler() {
            return Err("NVRTC is not installed: `pip install nvidia-cuda-nvrtc`".to_owned());
        }
        let nvrtc = Nvrtc::ask()?;
        if let Some(reason) = nvrtc.refusal(number, None) {
            return Err(reason);
        }
        let figure = |attribute| match attribute {
            Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE => Some(32),
            // All that NVRTC compiles for have it: 6.0 and later.
            Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH => Some(1),
            Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => Some(shared_bytes(number)),
            _ => None,
        };
        let compiler = Compiler::new(name, nvrtc.version);
        Ok(Architecture { compiler, target: target(name, number / 10, name == "sm_90a", figure) })
    }

    /// The features that its kernels may use.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Prints and compiles a kernel, with its numbers built in or all of them as arguments. Returns the size of its
    /// machine code in bytes.
    ///
    /// # Errors
    /// The message of the printer or the compiler.
    pub fn compile(&self, kernel: &Kernel, general: bool) -> Result<usize, String> {
        let source = match general {
            false => print(kernel, &CUDA),
            true => print_variable(&kernel.with_sizes(1), &CUDA).map(|variable| variable.general_source()),
        };
        let source = source.map_err(|error| error.to_string())?;
        Ok(self.compiler.compile_now(&source)?.len())
    }

    /// Compiles user-written CUDA C with the compiler's default options. Returns the machine code (a cubin).
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile_source(&self, source: &str) -> Result<Vec<u8>, String> {
        self.compiler.compile_source(source).map_err(|reason| reason.to_string())
    }
}
