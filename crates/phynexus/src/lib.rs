//! Phynexus: lazy tensors, one graph, one kernel language, devices behind one trait.
//!
//! Methods of [`Tensor`] check their operands and record nodes. Reading a value makes the pending graph run: it is
//! rewritten, grouped into few kernels, planned once and executed by a device.
//!
//! ```
//! use phynexus::{DType, Tensor, oracle::reference_device};
//!
//! // A device for tests. Programs register one from a device crate and ask for `Device::default_device()`.
//! let device = reference_device();
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device)?;
//! let y = (&x * 2.0)?.exp()?.sum(&[1], false)?;
//! assert!(!y.is_evaluated());
//!
//! let plan = y.explain()?.expect("the work is pending");
//! assert_eq!(plan.steps.len(), 1);
//! assert_eq!((y.shape(), y.dtype()), (&[2][..], DType::F32));
//! let first = y.to_vec::<f32>()?[0];
//! assert!((first - (2f32.exp() + 4f32.exp())).abs() < 1e-3);
//!
//! // Errors are reported where they occur, with what would fit.
//! let error = x.reshape(&[3]).unwrap_err();
//! assert!(matches!(error, phynexus::Error::Shape { .. }));
//! # Ok::<(), phynexus::Error>(())
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`tensor`] | the methods of [`Tensor`] |
//! | [`op`] | the op set, composites, gradient rules |
//! | [`graph`] | nodes and the handles to them |
//! | [`gradient`] | the sweep from a loss to its leaves |
//! | [`schedule`] | from a pending graph to a plan, and from a plan to data |
//! | [`kernel`] | the fused specification, index expressions, loop trees and their printers |
//! | [`device`] | the trait a device implements, the registry |
//! | [`pool`] | the memory pool that device crates put over their allocator |
//! | [`custom`] | kernels written by users |
//! | `linalg` | decompositions of matrices, on the host |
//! | [`gpu`] | the part of the engine that all GPU families share |
//! | [`distributed`] | groups of processes, and what connects them |
//! | [`host_memory`] | host memory of user-controlled size |
//! | [`interrupt`] | interrupting a long computation |
//! | [`profile`] | what ran where, how often and for how long |
//! | [`oracle`] | exact reference definitions of every operation |
//!
//! The engine names no vendor and knows nothing of layers or files.

// Tests shared with device crates refer to this crate by name.
#[cfg(test)]
extern crate self as phynexus;

pub mod custom;
pub mod device;
pub mod distributed;
pub mod dtype;
pub mod error;
pub mod gpu;
pub mod gradient;
pub mod graph;
mod hash;
pub mod host_memory;
pub mod interrupt;
pub mod kernel;
mod linalg;
pub mod op;
pub mod oracle;
mod peaks;
pub mod pool;
pub mod profile;
mod random;
pub mod schedule;
pub mod shape;
pub mod tensor;
pub mod text;

pub use device::Device;
pub use dtype::{
    DType, DTypeKind, Element, Scalar,
    float8::{F8E4M3, F8E5M2, Float8},
};
pub use error::{Error, Result};
pub use gradient::{GradientMode, Gradients, no_grad};
pub use graph::Tensor;
pub use op::composite::{
    MatmulPrecision, float32_matmul_precision, set_float32_matmul_precision, set_thread_matmul_precision,
};
