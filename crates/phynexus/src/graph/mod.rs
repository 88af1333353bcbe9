//! The graph: the op set, nodes, rewrites, composites and gradients.

pub mod check;
pub mod composite;
pub(crate) mod formula;
pub mod gradient;
pub mod ir;
pub(crate) mod node;
pub mod op;
pub(crate) mod rewrite;

pub use composite::Composite;
pub use gradient::{Gradients, no_grad};
