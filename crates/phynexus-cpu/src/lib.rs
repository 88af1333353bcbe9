//! The CPU device.

pub mod gemm;
pub mod pool;
pub mod vector;
