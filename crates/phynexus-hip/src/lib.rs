//! AMD GPUs as devices of Phynexus: `hip:0`, `hip:1`.
//!
//! HIP's runtime and hipRTC, its compiler, are opened when the program runs; building needs neither. A plan's steps are
//! lowered to loop trees by the engine, printed as HIP C, compiled for the device's own architecture, kept on disk, and
//! launched in the order of one stream a device. Kernels are made for the width of the device's wavefronts: 64 on CDNA, 32
//! on RDNA.
//!
//! | file | subject |
//! |---|---|
//! | `library` | finding and opening HIP; the functions used of it |
//! | `context` | a GPU: its figures, stream and modules |
//! | `graph` | repeated launches as one graph |
//! | `copies` | pinned memory, copies from GPU to GPU |
//! | `compile` | from source to machine code |
//! | `code_object` | what machine code says of its kernels' parameters |
//! | `message_pack` | the format in which it says so |
//! | `driver` | the engine's trait |
//! | `architecture` | kernels compiled without a GPU |

mod architecture;
mod code_object;
mod compile;
mod context;
mod copies;
mod driver;
mod graph;
mod library;
mod message_pack;

pub use architecture::Architecture;
pub use driver::register;
