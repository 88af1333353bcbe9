//! Every kernel on every available instruction set against plain references.

mod accuracy;
mod casts;
mod elementwise;
mod reductions;
mod references;
