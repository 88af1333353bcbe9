//! GPUs with Vulkan, Metal or DirectX 12 as devices of Phynexus, through wgpu: `vulkan:0`, `metal:0`, `dx12:0`.
//!
//! The drivers are opened at run time. The engine lowers a plan's steps to loop trees. They are printed as WGSL,
//! translated to the API's language, and launched in order on one queue per device.
//!
//! | file | subject |
//! |---|---|
//! | `language` | the languages of custom kernels |
//! | `adapter` | the GPUs that the APIs report, and the features that their kernels may use |
//! | `connection` | an open GPU: its queue, pending commands, copies, errors |
//! | `compile` | from a loop tree to a pipeline |
//! | `pipelines` | creating pipelines, with machine code cached on disk |
//! | `times` | timestamps of the device |
//! | `source` | user-written kernels |
//! | `spirv` | SPIR-V decorations for exact arithmetic |
//! | `float_controls` | the float behaviour that a Vulkan driver supports |
//! | `memory` | the memory of a GPU |
//! | `future` | waiting for wgpu's futures |
//! | `driver` | the engine's trait |
//! | `quiet` | silences loaders during device discovery |
//! | `exit` | waits at process exit for compilations of CPU drivers |

#[cfg(feature = "driver")]
mod adapter;
#[cfg(feature = "driver")]
mod compile;
#[cfg(feature = "driver")]
mod connection;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod exit;
#[cfg(feature = "driver")]
mod float_controls;
#[cfg(feature = "driver")]
mod future;
mod language;
#[cfg(feature = "driver")]
mod memory;
#[cfg(feature = "driver")]
mod pipelines;
#[cfg(feature = "driver")]
mod quiet;
#[cfg(feature = "driver")]
mod source;
#[cfg(feature = "driver")]
mod spirv;
#[cfg(feature = "driver")]
mod times;

#[cfg(feature = "driver")]
pub use compile::compile_source;
pub use language::{MSL, SPIR_V, WGSL};

use std::sync::Once;

use phynexus::device::{register_aliases, register_missing};

/// The reason why OpenGL is not in the list: with Mesa 22.3 through wgpu's OpenGL backend, simplifications ignore NaN,
/// some integer results are wrong, networks train differently than on the CPU, and a six-second kernel ends the process
/// when another thread copies.
const NO_OPENGL: &str = "OpenGL is not supported: results were wrong on the tested driver";

/// Registers every GPU that the APIs report, or the reasons why there are none. Runs once per process.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        register_aliases("vulkan", &["vk"]);
        register_aliases("metal", &["apple", "mps"]);
        register_aliases("dx12", &["d3d12", "directx"]);
        register_aliases("gl", &["opengl"]);
        register_missing("gl", NO_OPENGL);
        #[cfg(feature = "driver")]
        driver::register();
        #[cfg(not(feature = "driver"))]
        for kind in ["vulkan", "metal", "dx12"] {
            phynexus::device::register_not_built(kind, "wgpu");
        }
    });
}
