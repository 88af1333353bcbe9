//! The numbers of the oracle, and what operations are defined with.

mod accumulate;
mod array;
pub(crate) mod elementwise;
mod evaluate;
mod float;
mod integer;
mod number;
pub(crate) mod order;

pub(crate) use accumulate::Accumulator;
pub use array::OracleArray;
pub(crate) use array::{counted, every_coordinate, flat_index, from_scalar};
pub use evaluate::{evaluate, evaluate_nodes};
pub(crate) use float::round_to_tf32;
pub(crate) use integer::wrap;
pub use number::{Interval, Number, ulp};
pub(crate) use number::{greatest, least_normal, round};
pub(crate) use order::first_extreme;
