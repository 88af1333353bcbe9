//! Kernels written by users, as operations of the graph: their signature, sources, function for the CPU and derivative.
//!
//! | file | subject |
//! |---|---|
//! | `kernel` | the kernel, and a launch as an operation |
//! | `builder` | making one, and what is checked then |
//! | `pattern` | shapes of parameters as patterns of names and numbers |
//! | `arguments` | tensors and numbers against the signature |
//! | `parameters` | what machine code takes against the signature |
//! | `host` | the function for the CPU |
//! | `gradient` | the derivative, as another kernel or as a function |
//! | `diagnostics` | a compiler's messages with the source's lines |

mod arguments;
mod builder;
pub mod diagnostics;
pub(crate) mod gradient;
mod host;
mod kernel;
mod parameters;
mod pattern;

pub use builder::{CustomKernelBuilder, OutputShape};
pub(crate) use gradient::CustomGradient;
pub use host::{HostCall, HostInput, HostOutput};
pub use kernel::{CustomCall, CustomKernel, Parameter, ParameterKind, Source, SourceLanguage};
