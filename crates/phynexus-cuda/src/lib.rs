//! NVIDIA GPUs as devices of Phynexus: `cuda:0`, `cuda:1`.
//!
//! The driver and NVRTC, CUDA's compiler, are opened when the program runs, from the system, from CUDA's folders or from
//! Python's packages; building needs neither. A plan's steps are lowered to loop trees by the engine, printed as CUDA C,
//! compiled for the device's own architecture, kept on disk, and launched in the order of one stream a device.
//!
//! | file | subject |
//! |---|---|
//! | `library` | finding and opening the driver and NVRTC |
//! | `versions` | which versions of them and which GPUs go together |
//! | `context` | a GPU: its figures, stream and modules |
//! | `copies` | pinned memory, copies from GPU to GPU |
//! | `graph` | launches that are repeated, as one graph |
//! | `compile` | from source to machine code |
//! | `cubin` | what machine code says of its kernels |
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
