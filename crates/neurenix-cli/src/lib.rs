//! The `neurenix` command as a library, so that tests can call its parts in process.

#![forbid(unsafe_code)]

pub mod commands;
pub mod models;
pub mod report;
