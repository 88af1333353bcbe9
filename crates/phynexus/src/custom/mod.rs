//! Custom kernels: a user's own source as an operation of the graph.
//!
//! A [`CustomKernel`] has a signature (its buffers and scalars in the order of the kernel's parameters), a launch
//! geometry, source in one language or several, and, for the CPU, a function in Rust. Launched on tensors it gives nodes
//! like any other: lazy, planned with the rest, shown by `explain`, replayed by captured functions. It is a function:
//! from the same inputs and scalars it must make the same outputs, and it may write nothing else.
//!
//! ```
//! use phynexus::{DType, Tensor, custom::{CustomKernel, SourceLanguage}, oracle::reference_device};
//!
//! let square_plus_one = CustomKernel::builder("square_plus_one")
//!     .input("x", DType::F32, "shape..")
//!     .output("y", DType::F32, "shape..")
//!     .scalar("n", DType::I32)
//!     .source(SourceLanguage::CudaC, r#"
//!         extern "C" __global__ void square_plus_one(const float* x, float* y, int n) {
//!             int i = blockIdx.x * blockDim.x + threadIdx.x;
//!             if (i < n) y[i] = x[i] * x[i] + 1.0f;
//!         }"#)
//!     .cpu(|mut call| {
//!         let x = call.inputs[0].values::<f32>()?;
//!         let y = call.outputs[0].values::<f32>()?;
//!         y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x + 1.0);
//!         Ok(())
//!     })
//!     .build()?;
//! // A device for tests, which runs the function.
//! let x = Tensor::from_slice(&[1f32, 2.0, -3.0], &[3], reference_device())?;
//! let y = square_plus_one.call(&[&x], &[3.into()])?;
//! assert_eq!(y.to_vec::<f32>()?, [2.0, 5.0, 10.0]);
//! # Ok::<(), phynexus::Error>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `kernel` | the kernel and its launch |
//! | `builder` | making one, and what is checked then |
//! | `pattern` | shapes of parameters as patterns of names and numbers |
//! | `arguments` | tensors and numbers against the signature |
//! | `parameters` | what machine code takes against the signature |
//! | `host` | the function for the CPU |
//! | `gradient` | the derivative, as another kernel or as tensor code |
//! | `diagnostics` | a compiler's messages with the source's lines |

mod arguments;
mod builder;
pub mod diagnostics;
mod gradient;
mod host;
mod kernel;
mod parameters;
mod pattern;
#[cfg(test)]
mod tests;

pub use crate::dtype::{Elements, ElementsMut};
pub use builder::{CustomKernelBuilder, OutputShape};
pub use gradient::GradientCall;
pub use host::{HostCall, HostInput, HostOutput};
pub use kernel::{CustomCall, CustomKernel, Parameter, ParameterKind, Source, SourceLanguage};

pub(crate) use gradient::input_gradients;
