//! NVIDIA GPUs as devices of Phynexus: `cuda:0`, `cuda:1`.
//!
//! The driver and NVRTC, CUDA's compiler, are loaded at run time from the system, from CUDA's folders or from Python
//! packages; the build needs neither. The engine lowers a plan's steps to loop trees. They are printed as CUDA C,
//! compiled for the device's architecture, cached on disk, and launched in order on one stream per device.
//!
//! | file | subject |
//! |---|---|
//! | `library` | finding and opening the driver and NVRTC |
//! | `versions` | which versions and GPUs work together |
//! | `context` | a GPU: its figures, stream and modules |
//! | `copies` | pinned memory, copies from GPU to GPU |
//! | `graph` | repeated launches as one graph |
//! | `compile` | from source to machine code |
//! | `cubin` | parameters of the kernels in machine code |
//! | `driver` | the engine's trait |
//! | `architecture` | kernels compiled without a GPU |

mod architecture;
mod compile;
mod context;
mod copies;
mod cubin;
mod driver;
mod graph;
mod library;
mod versions;

pub use architecture::Architecture;
pub use driver::register;
