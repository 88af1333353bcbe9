//! Tests of the command.

mod browser;
mod command;
mod devices;
mod documents;
mod imports;
mod launch;
mod quantize;
mod report;
mod run_folders;
mod tables;
