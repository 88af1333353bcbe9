//! The engine's tests that can share a process.

mod definitions;
mod edges;
mod long_chains;
mod loop_trees;
mod lowering;
mod modules;
mod neural;
mod trial;
