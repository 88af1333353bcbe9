//! GPUs with Vulkan, Metal or DirectX 12 as devices of Phynexus, through wgpu: `vulkan:0`, `metal:0`, `dx12:0`.
//!
//! The drivers are opened at run time. The engine lowers a plan's steps to loop trees. They are printed as WGSL,
//! translated to the API's language, and launched in order on one queue per device.
//!
//! | file | subject |
//! |---|---|
//! | `adapter` | the GPUs that the APIs report, and the features that their kernels may use |
//! | `connection` | an open GPU: its queue, pending commands, copies, errors |
//! | `compile` | from a loop tree to a pipeline |
//! | `pipelines` | machine code cached on disk |
//! | `times` | timestamps of the device |
//! | `source` | user-written kernels |
//! | `spirv` | SPIR-V decorations for exact arithmetic |
//! | `float_controls` | the float behaviour that a Vulkan driver supports |
//! | `memory` | the memory of a GPU |
//! | `driver` | the engine's trait |
//! | `quiet` | silences loaders during device discovery |
//! | `exit` | waits at process exit for compilations of CPU drivers |

mod adapter;
mod compile;
mod connection;
mod driver;
mod exit;
mod float_controls;
mod memory;
mod pipelines;
mod quiet;
mod source;
mod spirv;
mod times;

pub use adapter::register;
pub use compile::compile_source;
