//! OpenCL devices as devices of Phynexus: `opencl:0`, `opencl:1`.
//!
//! OpenCL's loader is opened when the program runs, and through it whatever platforms are installed: those of NVIDIA, AMD
//! and Intel, and PoCL, which makes a device of the processor; building needs none of them. A plan's steps are lowered to
//! loop trees by the engine, printed as OpenCL C 1.2, compiled by the device's own driver, kept on disk, and launched in
//! the order of one queue a device.
//!
//! | file | subject |
//! |---|---|
//! | `object` | OpenCL's objects and errors |
//! | `figures` | what a device says of itself, and what kernels on it can have |
//! | `compile` | from source to machine code |
//! | `queue` | a device's commands, in their order |
//! | `driver` | the engine's trait |
//! | `exit` | what a processor's driver compiles while the process ends |

mod compile;
mod driver;
mod exit;
mod figures;
mod object;
mod queue;

pub use compile::compile_source;
pub use driver::register;
