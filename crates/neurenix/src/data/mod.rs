//! Data: arrays in host memory, the file formats they come in, data sets and their batches.

mod array;
mod batches;
mod cifar;
mod csv;
mod dataset;
mod digits;
mod idx;
mod npy;
mod npz;
pub mod random;
#[cfg(test)]
pub(crate) mod test_support;

pub use array::{HostArray, byte_count};
pub use batches::{Batch, BatchOptions, Batches};
pub use cifar::cifar10;
pub use csv::{CsvOptions, CsvTask, LabelColumn, read_csv};
pub use dataset::{Dataset, Normalization};
pub use digits::{DIGITS_SPLIT_SEED, digits, digits_split};
pub use idx::{mnist, read_idx, write_idx};
pub use npy::{read_npy, write_npy};
pub use npz::{Compression, read_npz, write_npz};
