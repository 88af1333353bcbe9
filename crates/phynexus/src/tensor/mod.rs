//! What a user holds: tensors. Methods check shapes and types at once and add nodes to the graph; nothing is computed
//! until somebody reads.

#[cfg(test)]
mod advanced_tests;
mod binary;
mod convert;
#[cfg(test)]
mod core_tests;
mod create;
mod decomposition;
mod einsum;
#[cfg(test)]
mod golden;
mod index;
mod join;
mod matrix;
mod movement;
mod neural;
#[cfg(test)]
mod null;
#[cfg(test)]
pub(crate) use null::null_device;
mod operands;
mod operators;
mod overwrite;
mod print;
mod product;
mod random;
mod read;
mod reduce;
mod repeat;
mod scan;
mod select;
mod sort;
mod unary;

pub use crate::random::{Generator, GeneratorState};
pub use index::IndexSpec;
pub use random::manual_seed;
pub use read::Reading;
pub use sort::Unique;

pub use neural::{
    AttentionOptions, CrossEntropyOptions, GeluApproximation, Interpolation, RecurrentOutput,
    RecurrentWeights, Reduction,
};
