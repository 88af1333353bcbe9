//! The parts of the command `neurenix` that tests reach without a process: the report of a run.

pub mod report;
