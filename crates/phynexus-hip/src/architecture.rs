//! Kernels compiled for an architecture of which no GPU is there.

use phynexus::kernel::{
    loops::Kernel,
    lower::Target,
    print::{HIP, print},
};

use crate::{compile::Compiler, context::Attribute, driver::target, library::hip};

/// An architecture of AMD's that kernels are compiled for.
pub struct Architecture {
    compiler: Compiler,
    /// For sources that users write.
    sources: Compiler,
    target: Target,
}

impl Architecture {
    /// By AMD's name: `gfx90a`. An unknown one may end the process when a kernel is compiled: old releases of hipRTC do so.
    ///
    /// # Errors
    /// If hipRTC is not installed: what is missing, in words.
    pub fn new(name: &str) -> Result<Architecture, String> {
        // CDNA and its forerunners are gfx9, whose wavefronts are 64 wide; those of RDNA's gfx10 and later are 32.
        let width = if name.starts_with("gfx9") { 64 } else { 32 };
        let figure = |attribute| match attribute {
            Attribute::WarpSize => Some(width),
            _ => None,
        };
        let hip = hip()?;
        let (compiler, sources) = (Compiler::new(hip, name), Compiler::of_sources(hip, name));
        Ok(Architecture { compiler, sources, target: target(name, name, figure) })
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
        let source = print(kernel, &HIP).map_err(|error| error.to_string())?;
        Ok(self.compiler.machine_code(&source).map_err(|reason| reason.to_string())?.len())
    }

    /// Compiles HIP C that a user wrote, with the compiler's own defaults; its machine code.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile_source(&self, source: &str) -> Result<Vec<u8>, String> {
        self.sources.compile(source).map_err(|reason| reason.to_string())
    }
}
