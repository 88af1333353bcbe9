//! OpenCL devices as devices of Phynexus: `opencl:0`, `opencl:1`.
//!
//! OpenCL's loader is opened at run time, and through it all installed platforms: those of NVIDIA, AMD and Intel, and
//! PoCL, which runs on the CPU. The build needs none of them. The engine lowers a plan's steps to loop trees. They are
//! printed as OpenCL C 1.2, compiled by the device's driver, cached on disk, and launched in order on one queue per
//! device.
//!
//! | file | subject |
//! |---|---|
//! | `language` | OpenCL C, as kernels are printed and as users write it |
//! | `object` | OpenCL's objects and errors |
//! | `figures` | a device's properties, and the features that its kernels may use |
//! | `platforms` | finding the devices of all installed platforms |
//! | `compile` | from source to machine code |
//! | `queue` | a device's commands, in order |
//! | `driver` | the engine's trait |
//! | `exit` | waits at process exit for compilations of CPU drivers |

#[cfg(feature = "driver")]
mod compile;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod exit;
#[cfg(feature = "driver")]
mod figures;
mod language;
#[cfg(feature = "driver")]
mod object;
#[cfg(feature = "driver")]
mod platforms;
#[cfg(feature = "driver")]
mod queue;

#[cfg(feature = "driver")]
pub use compile::compile_source;
pub use language::{OPENCL, OPENCL_C};

use std::sync::Once;

use phynexus::device::register_aliases;

/// Registers every device of every platform, or the reason why there is none. Runs once per process. GPUs and
/// accelerators get the first numbers, CPUs the last.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        register_aliases("opencl", &["ocl", "pocl"]);
        #[cfg(feature = "driver")]
        driver::register();
        #[cfg(not(feature = "driver"))]
        phynexus::device::register_not_built("opencl", "opencl");
    });
}
