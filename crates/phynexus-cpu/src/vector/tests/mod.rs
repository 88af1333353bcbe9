//! Every kernel on every available instruction set against plain references.

mod accuracy;
mod casts;
mod definitions;
mod elementwise;
mod reductions;
mod references;
