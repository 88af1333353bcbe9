//! The oracle: a plain interpreter of the graph. It defines what every op means and how accurately a device must
//! compute it.
//!
//! Integers are exact and wrap. A float is an interval: the value computed in `f64`, and the least and greatest results
//! that a correct device may give. Tolerances therefore follow from the computation rather than from hand-picked
//! constants:
//!
//! - Leaves and constants are exact.
//! - Arithmetic and square roots are correctly rounded. Other functions are within the ULP bounds of the OpenCL full
//!   profile. Sums and products are within Higham's bounds for every order of their terms.
//! - `f16` and `bf16` are computed in `f32`, and every result is immediately rounded to 16 bits.
//! - Discontinuous operations (comparisons, rounding, sorting, conversion to integers) are [`Number::Undetermined`] if
//!   the bounds of their operands straddle a step. So are overflows that depend on the order of a sum. [`compare`]
//!   skips and counts them.
//!
//! The sign of a zero is checked only where it is unique: not after a sum, a minimum or maximum of both zeros, a
//! remainder, a sign or a composite.

mod compare;
mod device;
pub mod generate;
pub mod interpret;
mod kernel;
mod lowered;
mod scalar;

pub use crate::op::reference::{Interval, Number, OracleArray, evaluate, evaluate_nodes, ulp};
pub use compare::{Comparison, Mismatch, compare};
pub use device::{lowered_device, reference_device};

#[cfg(test)]
mod tests;
