//! Windows GPUs of every vendor as devices of Phynexus, through Direct3D 12 and DirectML: `directml:0`, `directml:1`.
//!
//! The libraries are opened at run time; the build needs none of them. Steps for which DirectML has operators become
//! graphs of these, which DirectML compiles. The engine lowers the others to loop trees. They are printed as WGSL,
//! translated to HLSL, and compiled by DXC or, where that is missing, by the older compiler that every Windows has. All
//! work is in the order of one compute queue per device.
//!
//! | file | subject |
//! |---|---|
//! | `operator` | DirectML's operators |
//! | `graph` | graphs of operators |
//! | `fused`, `elementwise` | generated kernels as graphs, and their functions as operators |
//! | `library`, `product`, `convolution`, `pooling` | operations with an operator of their own |
//! | `encode` | descriptors of operators in memory |
//! | `routine`, `binding`, `descriptors` | compiled graphs, and what their runs use |
//! | `hlsl` | kernels in HLSL |
//! | `libraries` | the libraries of Windows |
//! | `adapters` | the GPUs that DXGI reports, and the features that their kernels may use |
//! | `object` | what commands use |
//! | `connection` | an open GPU: its objects, its errors, and its removal |
//! | `queue`, `lists` | command lists and their order |
//! | `recording` | steps that repeat, as lists that run again and again |
//! | `times` | timestamps of the device |
//! | `memory`, `slabs`, `ranges` | blocks of device memory, and host memory that the device reads and writes |
//! | `debug` | what `RNN_GPU_DEBUG` shows |
//! | `compile` | from a loop tree to a pipeline |
//! | `gpu` | a GPU, opened on first use, and how its launches become commands |
//! | `driver` | the engine's trait |

#[cfg(all(windows, feature = "driver"))]
mod adapters;
#[cfg(all(windows, feature = "driver"))]
mod binding;
#[cfg(all(windows, feature = "driver"))]
mod compile;
#[cfg(all(windows, feature = "driver"))]
mod connection;
#[cfg(any(test, all(windows, feature = "driver")))]
mod convolution;
#[cfg(all(windows, feature = "driver"))]
mod debug;
#[cfg(all(windows, feature = "driver"))]
mod descriptors;
#[cfg(all(windows, feature = "driver"))]
mod driver;
#[cfg(any(test, all(windows, feature = "driver")))]
mod elementwise;
#[cfg(any(test, all(windows, feature = "driver")))]
mod encode;
#[cfg(any(test, all(windows, feature = "driver")))]
mod fused;
#[cfg(all(windows, feature = "driver"))]
mod gpu;
#[cfg(any(test, all(windows, feature = "driver")))]
mod graph;
#[cfg(any(test, all(windows, feature = "driver")))]
mod hlsl;
#[cfg(all(windows, feature = "driver"))]
mod libraries;
#[cfg(any(test, all(windows, feature = "driver")))]
mod library;
#[cfg(all(windows, feature = "driver"))]
mod lists;
#[cfg(all(windows, feature = "driver"))]
mod memory;
#[cfg(all(windows, feature = "driver"))]
mod object;
#[cfg(any(test, all(windows, feature = "driver")))]
mod operator;
#[cfg(any(test, all(windows, feature = "driver")))]
mod pooling;
#[cfg(any(test, all(windows, feature = "driver")))]
mod product;
#[cfg(all(windows, feature = "driver"))]
mod queue;
#[cfg(any(test, all(windows, feature = "driver")))]
mod ranges;
#[cfg(all(windows, feature = "driver"))]
mod recording;
#[cfg(all(windows, feature = "driver"))]
mod routine;
#[cfg(all(windows, feature = "driver"))]
mod slabs;
#[cfg(all(windows, feature = "driver"))]
mod times;

#[cfg(all(windows, feature = "driver"))]
pub use {
    connection::{references_left, remove_device},
    driver::round_halves,
    memory::limit_memory,
    queue::{dispatched_routines, repeated_lists},
};

use std::sync::Once;

use phynexus::device::register_aliases;

/// Registers every GPU that DXGI reports, or the reason why there is none. Runs once per process.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        register_aliases("directml", &["dml"]);
        #[cfg(not(feature = "driver"))]
        phynexus::device::register_not_built("directml", "directml");
        #[cfg(all(feature = "driver", not(windows)))]
        phynexus::device::register_missing("directml", "DirectML is only available on Windows");
        #[cfg(all(feature = "driver", windows))]
        driver::register();
    });
}
