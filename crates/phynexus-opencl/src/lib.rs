//! OpenCL devices as devices of Phynexus: `opencl:0`, `opencl:1`.
//!
//! OpenCL's loader is opened at run time, and through it all installed platforms: those of NVIDIA, AMD and Intel, and
//! PoCL, which runs on the CPU. The build needs none of them. The engine lowers a plan's steps to loop trees. They are
//! printed as OpenCL C 1.2, compiled by the device's driver, cached on disk, and launched in order on one queue per
//! device.
//!
//! | file | subject |
//! |---|---|
//! | `object` | OpenCL's objects and errors |
//! | `figures` | a device's properties, and the features that its kernels may use |
//! | `compile` | from source to machine code |
//! | `queue` | a device's commands, in order |
//! | `driver` | the engine's trait |
//! | `exit` | waits at process exit for compilations of CPU drivers |

mod compile;
mod driver;
mod exit;
mod figures;
mod object;
mod queue;

pub use compile::compile_source;
pub use driver::register;
