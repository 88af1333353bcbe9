//! AMD GPUs as devices of Phynexus: `hip:0`, `hip:1`.
//!
//! HIP's runtime and hipRTC, its compiler, are loaded at run time; the build needs neither. The engine lowers a plan's
//! steps to loop trees. They are printed as HIP C, compiled for the device's architecture, cached on disk, and launched
//! in order on one stream per device. Kernels are specialised for the width of the device's wavefronts: 64 on CDNA, 32
//! on RDNA.
//!
//! | file | subject |
//! |---|---|
//! | `library` | finding and opening HIP; the HIP functions in use |
//! | `context` | a GPU's context: its figures, stream and modules |
//! | `gpu` | a GPU as the engine uses it: compiler, memory, features that kernels may use |
//! | `graph` | repeated launches as one graph |
//! | `copies` | pinned memory, copies from GPU to GPU |
//! | `compile` | from source to machine code |
//! | `code_object` | parameters of the kernels in machine code |
//! | `message_pack` | the format of that metadata |
//! | `driver` | the engine's trait |
//! | `architecture` | kernels compiled without a GPU |

mod architecture;
mod code_object;
mod compile;
mod context;
mod copies;
mod driver;
mod gpu;
mod graph;
mod library;
mod message_pack;

pub use architecture::Architecture;
pub use driver::register;
