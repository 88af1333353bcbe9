//! The `neurenix` command as a library, so that tests can call its parts in process.

pub mod commands;
pub mod models;
pub mod report;
