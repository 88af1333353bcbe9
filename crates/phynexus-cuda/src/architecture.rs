//! Kernels compiled for an architecture of which no GPU is there.

use cudarc::driver::sys::CUdevice_attribute as Attribute;
use phynexus::kernel::{
    loops::Kernel,
    lower::Target,
    print::{CUDA, print},
};

use crate::{compile::Compiler, driver::target, library};

/// An architecture of NVIDIA's that kernels are compiled for.
pub struct Architecture {
    compiler: Compiler,
    target: Target,
}

impl Architecture {
    /// By NVIDIA's name: `sm_80`, `sm_90a`.
    ///
    /// # Errors
    /// If that is not a name, or NVRTC is not installed: what is missing, in words.
    pub fn new(name: &str) -> Result<Architecture, String> {
        let number = name.strip_prefix("sm_").map(|rest| rest.trim_end_matches(char::is_alphabetic));
        let number: usize = number
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| format!("{name:?} is not an architecture of NVIDIA's, such as sm_80"))?;
        if !library::has_compiler() {
            return Err("NVRTC is not installed: `pip install nvidia-cuda-nvrtc`".to_owned());
        }
        let figure = |attribute| match attribute {
            Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE => Some(32),
            _ => None,
        };
        Ok(Architecture { compiler: Compiler::new(name), target: target(name, number / 10, figure) })
    }

    /// What kernels of it can have.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Prints and compiles a kernel; the bytes of its machine code.
    ///
    /// # Errors
    /// What the printer or the compiler says.
    pub fn compile(&self, kernel: &Kernel) -> Result<usize, String> {
        let source = print(kernel, &CUDA).map_err(|error| error.to_string())?;
        Ok(self.compiler.compile_now(&source)?.len())
    }

    /// Compiles CUDA C that a user wrote, with the compiler's own defaults; its machine code (a cubin).
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile_source(&self, source: &str) -> Result<Vec<u8>, String> {
        self.compiler.compile_source(source).map_err(|reason| reason.to_string())
    }
}
