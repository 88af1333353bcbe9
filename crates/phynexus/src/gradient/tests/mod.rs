//! Tests every gradient rule against finite differences in `f64`, on the oracle and without a device.

mod composites;
pub(crate) mod harness;
mod primitives;
mod samples;
mod sweep;
