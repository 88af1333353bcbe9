//! User-written kernels as operations of the graph: their signature, sources, CPU function and derivative.
//!
//! | file | subject |
//! |---|---|
//! | `kernel` | the definition of a kernel, and a launch as an operation |
//! | `builder` | building and validating a kernel |
//! | `pattern` | shapes of parameters as patterns of names and numbers |
//! | `arguments` | checks of tensors and scalars against the signature |
//! | `parameters` | checks of machine code against the signature |
//! | `host` | the CPU function |
//! | `gradient` | the derivative, as another kernel or as a function |
//! | `operation` | a launch among the operations of the graph |
//! | `diagnostics` | compiler messages with the source lines they refer to |

mod arguments;
mod builder;
pub mod diagnostics;
mod gradient;
mod host;
mod kernel;
mod operation;
mod parameters;
mod pattern;

pub use builder::{CustomKernelBuilder, OutputShape};
pub(crate) use gradient::CustomGradient;
pub use host::{HostCall, HostInput, HostOutput};
pub use kernel::{CustomCall, CustomKernel, Parameter, ParameterKind, Source, SourceLanguage};
