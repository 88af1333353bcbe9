//! Datasets: arrays in host memory, file formats, datasets and batches.
//!
//! ```
//! use neurenix::data::{BatchOptions, Batches, digits_split};
//!
//! let (train, test) = digits_split()?;
//! let options = BatchOptions { batch_size: 100, shuffle_seed: Some(42), epoch: 3, ..BatchOptions::default() };
//! for batch in Batches::new(&train, &options)? {
//!     let batch = batch?;
//!     assert_eq!(batch.inputs.shape()[1..], [1, 8, 8]);
//!     assert_eq!(batch.inputs.rows(), batch.targets.rows());
//! }
//! assert_eq!(test.all()?.targets.shape(), [360]);
//! # Ok::<(), neurenix::Error>(())
//! ```

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

pub use crate::array::{HostArray, byte_count};
pub use batches::{Batch, BatchOptions, Batches};
pub use cifar::cifar10;
pub use csv::{CsvOptions, CsvTask, FeatureColumns, LabelColumn, read_csv, read_csv_features};
pub use dataset::{Columns, Dataset, Normalization};
pub use digits::{DIGITS_SPLIT_SEED, digits, digits_split};
pub use idx::{mnist, read_idx, write_idx};
pub use npy::{read_npy, write_npy};
pub use npz::{Compression, read_npz, write_npz};
