//! CPU tests that can share a process.

mod consistency;
mod in_place;
mod neural;
mod tensor_golden;
