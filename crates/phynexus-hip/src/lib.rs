//! AMD GPUs as devices of Phynexus: `hip:0`, `hip:1`.
//!
//! HIP's runtime and hipRTC, its compiler, are loaded at run time; the build needs neither. The engine lowers a plan's
//! steps to loop trees. They are printed as HIP C, compiled for the device's architecture, cached on disk, and launched
//! in order on one stream per device. Kernels are specialised for the width of the device's wavefronts: 64 on CDNA, 32
//! on RDNA.
//!
//! | file | subject |
//! |---|---|
//! | `language` | HIP C, as kernels are printed and as users write it |
//! | `matrices` | the matrix instructions that it needs |
//! | `library` | finding and opening HIP and RCCL; the HIP functions in use |
//! | `context` | a GPU's context: its figures, stream and modules |
//! | `parameters` | the parameters of a launch |
//! | `gpu` | a GPU as the engine uses it: compiler, memory, features that kernels may use |
//! | `graph` | repeated launches as one graph |
//! | `collective` | collectives by RCCL |
//! | `copies` | pinned memory, copies from GPU to GPU |
//! | `compile` | from source to machine code |
//! | `code_object` | parameters of the kernels in machine code |
//! | `message_pack` | the format of that metadata |
//! | `driver` | the engine's trait |
//! | `architecture` | kernels compiled without a GPU |

#[cfg(feature = "driver")]
mod architecture;
#[cfg(feature = "driver")]
mod code_object;
#[cfg(feature = "driver")]
mod collective;
#[cfg(feature = "driver")]
mod compile;
#[cfg(feature = "driver")]
mod context;
#[cfg(feature = "driver")]
mod copies;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod gpu;
#[cfg(feature = "driver")]
mod graph;
mod language;
#[cfg(feature = "driver")]
mod library;
mod matrices;
#[cfg(feature = "driver")]
mod message_pack;
#[cfg(feature = "driver")]
mod parameters;

#[cfg(feature = "driver")]
pub use architecture::Architecture;
pub use language::{HIP, HIP_C};
pub use matrices::matrix_units;

use std::sync::Once;

use phynexus::device::register_aliases;

/// Registers every GPU that HIP's runtime reports, or the reason why there is none. Runs once per process.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        register_aliases("hip", &["amd", "rocm"]);
        #[cfg(feature = "driver")]
        driver::register();
        #[cfg(not(feature = "driver"))]
        phynexus::device::register_not_built("hip", "hip");
    });
}
