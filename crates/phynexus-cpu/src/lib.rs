//! The CPU device.

pub mod conv;
pub mod gemm;
pub mod pool;
pub mod pooling;
pub mod vector;
