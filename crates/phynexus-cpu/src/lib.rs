//! The CPU device.

pub mod conv;
pub mod gemm;
pub mod ops;
pub mod pool;
pub mod pooling;
pub mod vector;

#[cfg(test)]
mod test_values;
