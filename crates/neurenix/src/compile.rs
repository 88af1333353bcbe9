//! Sources of custom kernels compiled to machine code, with or without a device that runs it.

use phynexus::custom::SourceLanguage;
#[cfg(any(feature = "cuda", feature = "hip"))]
use phynexus::device;

/// Why there is no machine code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCompiled {
    /// The compiler is not on this machine: what to install.
    #[error("{0}")]
    Missing(String),
    /// The source is refused: the compiler's messages.
    #[error("{0}")]
    Refused(String),
}

/// The architectures that are compiled for where no GPU is there to ask.
#[cfg(feature = "cuda")]
const CUDA: &str = "sm_80";
#[cfg(feature = "hip")]
const HIP: &str = "gfx90a";

/// Machine code of a source: a cubin of CUDA C, a code object of HIP C, the driver's binary of OpenCL C, SPIR-V of WGSL.
///
/// CUDA C and HIP C are compiled for this machine's first GPU of the family, or else for sm_80 and gfx90a; OpenCL C for the
/// first device.
///
/// # Errors
/// If the compiler is missing, or refuses the source. MSL is compiled by Metal when a kernel is launched, nowhere else.
pub fn compile_source(language: SourceLanguage, source: &str) -> Result<Vec<u8>, NotCompiled> {
    match language {
        #[cfg(feature = "cuda")]
        SourceLanguage::CudaC => {
            phynexus_cuda::register();
            let architecture = feature("cuda:0", "compute capability ");
            let name =
                architecture.map_or(CUDA.to_owned(), |version| format!("sm_{}", version.replace('.', "")));
            let cuda = phynexus_cuda::Architecture::new(&name).map_err(NotCompiled::Missing)?;
            cuda.compile_source(source).map_err(NotCompiled::Refused)
        }
        #[cfg(feature = "hip")]
        SourceLanguage::HipC => {
            phynexus_hip::register();
            let name = feature("hip:0", "gfx").map_or(HIP.to_owned(), |rest| format!("gfx{rest}"));
            let hip = phynexus_hip::Architecture::new(&name).map_err(NotCompiled::Missing)?;
            hip.compile_source(source).map_err(NotCompiled::Refused)
        }
        #[cfg(feature = "opencl")]
        SourceLanguage::OpenClC => phynexus_opencl::compile_source(source)
            .map_err(NotCompiled::Missing)?
            .map_err(NotCompiled::Refused),
        #[cfg(feature = "wgpu")]
        SourceLanguage::Wgsl => phynexus_wgpu::compile_source(source).map_err(NotCompiled::Refused),
        SourceLanguage::Msl => Err(NotCompiled::Missing(
            "Metal's compiler is a part of macOS: launch the kernel on a Mac".to_owned(),
        )),
        other => Err(NotCompiled::Missing(format!("this program was built without a compiler for {other}"))),
    }
}

/// What follows these words in a device's features. Its family alone is looked for: libraries of others may not bear with
/// its compiler in one process.
#[cfg(any(feature = "cuda", feature = "hip"))]
fn feature(device: &str, words: &str) -> Option<String> {
    let found = device::find(device).ok()?;
    found.info().features.iter().find_map(|feature| feature.strip_prefix(words).map(str::to_owned))
}
