//! The graph: the op set, nodes, rewrites, composites and gradients.

pub mod composite;
pub mod op;
