//! GPUs behind Vulkan, Metal and DirectX 12 as devices of Phynexus, through wgpu: `vulkan:0`, `metal:0`, `dx12:0`.
//!
//! The drivers are opened when the program runs. A plan's steps are lowered to loop trees by the engine, printed as WGSL,
//! translated to what the API takes, and launched in the order of one queue a device.
//!
//! | file | subject |
//! |---|---|
//! | `adapter` | the GPUs that the APIs show, and what kernels of each can have |
//! | `connection` | a GPU in use: its queue, what waits to be submitted, copies, errors |
//! | `compile` | from a loop tree to a pipeline |
//! | `pipelines` | machine code on disk |
//! | `times` | when the device did what |
//! | `source` | kernels written by users |
//! | `spirv` | what SPIR-V must say for exact arithmetic |
//! | `float_controls` | what of it a Vulkan driver can be asked for |
//! | `memory` | how much memory a GPU has |
//! | `driver` | the engine's trait |
//! | `quiet` | silence of loaders while devices are looked for |
//! | `exit` | what a processor's driver compiles while the process ends |

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
