//! Training by several processes.

mod data_parallel;

pub use data_parallel::{DataParallel, DataParallelOptions, broadcast};
