//! NVIDIA GPUs as devices of Phynexus: `cuda:0`, `cuda:1`.
//!
//! The driver and NVRTC, CUDA's compiler, are loaded at run time from the system, from CUDA's folders or from Python
//! packages; the build needs neither. The engine lowers a plan's steps to loop trees. They are printed as CUDA C,
//! compiled for the device's architecture, cached on disk, and launched in order on one stream per device.
//!
//! | file | subject |
//! |---|---|
//! | `language` | CUDA C, as kernels are printed and as users write it |
//! | `instructions` | the instructions that it needs |
//! | `products`, `bulk` | products of panels, and the copies that bring them |
//! | `library` | finding and opening the driver, NVRTC and NCCL |
//! | `versions` | which versions and GPUs work together |
//! | `context` | a GPU's context: its figures, stream and modules |
//! | `gpu` | a GPU as the engine uses it: compiler, memory, features that kernels may use |
//! | `copies` | pinned memory, copies from GPU to GPU |
//! | `graph` | repeated launches as one graph |
//! | `collective` | collectives by NCCL |
//! | `compile` | from source to machine code |
//! | `cubin` | parameters of the kernels in machine code |
//! | `driver` | the engine's trait |
//! | `architecture` | kernels compiled without a GPU |

#[cfg(feature = "driver")]
mod architecture;
mod bulk;
#[cfg(feature = "driver")]
mod collective;
#[cfg(feature = "driver")]
mod compile;
#[cfg(feature = "driver")]
mod context;
#[cfg(feature = "driver")]
mod copies;
#[cfg(feature = "driver")]
mod cubin;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod gpu;
#[cfg(feature = "driver")]
mod graph;
mod instructions;
mod language;
#[cfg(feature = "driver")]
mod library;
#[cfg(feature = "driver")]
mod parameters;
mod products;
#[cfg(feature = "driver")]
mod versions;

#[cfg(feature = "driver")]
pub use architecture::Architecture;
pub use language::{CUDA, CUDA_C};
pub use products::matrix_units;

use std::sync::Once;

use phynexus::device::register_aliases;

/// The version of NCCL, which computes collectives between GPUs: major, minor, patch.
///
/// # Errors
/// Why there is none.
pub fn nccl_version() -> Result<(u32, u32, u32), String> {
    #[cfg(feature = "driver")]
    return library::nccl().map(phynexus_nccl::Library::version);
    #[cfg(not(feature = "driver"))]
    Err("this program was built without the feature `cuda`".to_owned())
}

/// Registers every GPU that NVIDIA's driver reports, or the reason why there is none. Runs once per process.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        register_aliases("cuda", &["nvidia"]);
        #[cfg(feature = "driver")]
        driver::register();
        #[cfg(not(feature = "driver"))]
        phynexus::device::register_not_built("cuda", "cuda");
    });
}
