//! Tests every kernel on every available instruction set against simple references.

mod accuracy;
mod casts;
mod definitions;
mod elementwise;
mod reductions;
mod references;
