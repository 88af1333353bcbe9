//! The CPU as a device of Phynexus.
//!
//! ```
//! use phynexus::{Device, Tensor};
//!
//! let device = phynexus_cpu::register();
//! assert_eq!(device, Device::find("cpu")?);
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device)?;
//! assert_eq!(x.matmul(&x)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
//! # Ok::<(), phynexus::Error>(())
//! ```
//!
//! [`fused`] executes fused kernels tile by tile with the functions of [`vector`]. [`gemm`], [`conv`], [`pooling`] and
//! [`ops`] implement library steps. [`pool`] manages the threads. Vector code is compiled for every instruction set and
//! selected at run time ([`vector::InstructionSet`]). Results do not depend on the number of threads.

mod by_dtype;
pub mod conv;
mod device;
pub mod fused;
pub mod gemm;
mod library;
pub mod ops;
pub mod pool;
pub mod pooling;
mod system_memory;
pub mod vector;
mod working_memory;

pub use device::register;

#[cfg(test)]
mod test_values;
