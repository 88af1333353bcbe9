//! The command `neurenix`, as a library so that tests reach its parts without a process.

pub mod commands;
pub mod models;
pub mod report;
