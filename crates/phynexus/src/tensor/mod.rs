//! The user's API: tensors. Methods check shapes and dtypes immediately and add nodes to the graph. Nothing is computed
//! until a value is read.

#[cfg(test)]
mod advanced_tests;
pub mod batch;
#[cfg(test)]
mod batch_tests;
mod binary;
mod blend;
mod collective;
mod convert;
#[cfg(test)]
mod core_tests;
mod count;
mod create;
mod decomposition;
mod default_dtype;
mod difference;
mod einsum;
#[cfg(test)]
mod golden;
mod index;
mod join;
#[cfg(test)]
mod mathematics_tests;
mod matrix;
mod matrix_norm;
mod movement;
mod neural;
#[cfg(test)]
mod null;
#[cfg(test)]
pub(crate) use null::null_device;
mod operands;
mod operators;
mod overwrite;
mod position;
mod print;
mod product;
mod random;
mod rank;
#[cfg(test)]
mod rank_tests;
mod read;
mod reduce;
mod repeat;
mod represent;
mod scan;
mod select;
mod sort;
mod sparse;
#[cfg(test)]
mod sparse_tests;
mod special;
mod unary;

pub use crate::random::{Generator, GeneratorState, threefry2x32};
pub use default_dtype::{default_dtype, set_default_dtype};
pub use index::IndexSpec;
pub use matrix_norm::MatrixNorm;
pub use random::manual_seed;
pub use rank::QuantileMethod;
pub use read::Reading;
pub use sort::Unique;

pub use neural::{
    AttentionOptions, CrossEntropyOptions, GeluApproximation, Interpolation, RecurrentOutput,
    RecurrentWeights, Reduction,
};
