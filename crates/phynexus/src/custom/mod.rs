//! Custom kernels: user-written source code as an operation of the graph.
//!
//! A [`CustomKernel`] has a signature (its buffers and scalars in the order of the kernel's parameters), a launch
//! geometry, source code in one or several languages, and a Rust function for the CPU. Launching it on tensors creates
//! ordinary nodes: lazy, planned with the rest, shown by `explain`, replayed by captured functions. It must be a pure
//! function: equal inputs and scalars give equal outputs, and it writes nothing else.
//!
//! ```
//! use phynexus::{DType, Tensor, custom::CustomKernel, oracle::reference_device};
//!
//! let square_plus_one = CustomKernel::builder("square_plus_one")
//!     .input("x", DType::F32, "shape..")
//!     .output("y", DType::F32, "shape..")
//!     // For GPUs, `source` adds a source in a language that the crate of a device declares.
//!     .cpu(|mut call| {
//!         let x = call.inputs[0].values::<f32>()?;
//!         let y = call.outputs[0].values::<f32>()?;
//!         y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x + 1.0);
//!         Ok(())
//!     })
//!     .build()?;
//! // A test device, which runs the CPU function.
//! let x = Tensor::from_slice(&[1f32, 2.0, -3.0], &[3], reference_device())?;
//! let y = square_plus_one.call(&[&x], &[])?;
//! assert_eq!(y.to_vec::<f32>()?, [2.0, 5.0, 10.0]);
//! # Ok::<(), phynexus::Error>(())
//! ```
//!
//! The definition of a kernel, as stored in the graph's operations, is in `op/custom`. This module applies it to
//! tensors.
//!
//! | file | subject |
//! |---|---|
//! | `launch` | compiling a kernel, and launching it on tensors |
//! | `gradient` | the derivative as tensor code |

mod gradient;
mod launch;
#[cfg(test)]
mod tests;

pub use crate::{
    dtype::{Elements, ElementsMut},
    op::custom::{
        CustomCall, CustomKernel, CustomKernelBuilder, HostCall, HostInput, HostOutput, OutputShape,
        Parameter, ParameterKind, Source, SourceLanguage, diagnostics,
    },
};
pub use gradient::GradientCall;
