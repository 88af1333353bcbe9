//! The source languages of custom kernels. Each device crate declares its own.

use phynexus::custom::SourceLanguage;

pub use phynexus_cuda::CUDA_C;
pub use phynexus_hip::HIP_C;
pub use phynexus_opencl::OPENCL_C;
pub use phynexus_wgpu::{MSL, SPIR_V, WGSL};

/// All languages, including those of devices that this program was built without.
pub const ALL: [SourceLanguage; 6] = [CUDA_C, HIP_C, OPENCL_C, WGSL, SPIR_V, MSL];
