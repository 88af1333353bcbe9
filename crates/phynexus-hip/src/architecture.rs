//! Compiles kernels for an architecture without a GPU of it.

use phynexus::kernel::{
    loops::Kernel,
    lower::Target,
    print::{print, print_variable},
};

use crate::{compile::Compiler, context::Attribute, gpu::target, language::HIP, library::hip};

/// An AMD architecture to compile kernels for.
pub struct Architecture {
    compiler: Compiler,
    /// The compiler for user-written sources.
    sources: Compiler,
    target: Target,
}

impl Architecture {
    /// Creates the architecture with AMD's name: `gfx90a`. With old releases of hipRTC, compiling a kernel for an
    /// unknown architecture may end the process.
    ///
    /// # Errors
    /// If hipRTC is not installed. The message names what is missing.
    pub fn new(name: &str) -> Result<Architecture, String> {
        // CDNA and its predecessors are gfx9 with 64-wide wavefronts; RDNA (gfx10 and later) has 32-wide ones.
        let width = if name.starts_with("gfx9") { 64 } else { 32 };
        let figure = |attribute| match attribute {
            Attribute::WarpSize => Some(width),
            _ => None,
        };
        let hip = hip()?;
        let (compiler, sources) = (Compiler::new(hip, name), Compiler::of_sources(hip, name));
        Ok(Architecture { compiler, sources, target: target(name, name, figure) })
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
            false => print(kernel, &HIP),
            true => print_variable(&kernel.with_sizes(1), &HIP).map(|variable| variable.general_source()),
        };
        let source = source.map_err(|error| error.to_string())?;
        Ok(self.compiler.machine_code(&source).map_err(|reason| reason.to_string())?.len())
    }

    /// Compiles user-written HIP C with the compiler's default options. Returns the machine code.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile_source(&self, source: &str) -> Result<Vec<u8>, String> {
        self.sources.compile(source).map_err(|reason| reason.to_string())
    }
}
