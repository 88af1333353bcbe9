//! CPU tests that can share a process.

mod consistency;
mod neural;
mod tensor_golden;
