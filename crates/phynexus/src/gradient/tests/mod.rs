//! Every rule against finite differences, in `f64` on the oracle, so that no device takes part.

mod composites;
pub(crate) mod harness;
mod primitives;
mod sweep;
