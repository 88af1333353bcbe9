//! The CPU device.

pub mod conv;
mod device;
pub mod fused;
pub mod gemm;
mod library;
pub mod ops;
pub mod pool;
pub mod pooling;
pub mod vector;

pub use device::register;

#[cfg(test)]
mod test_values;
