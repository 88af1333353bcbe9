//! The layer that all GPUs share, on a driver of the host's that fails when it is told to: faults, profiles, memory.

mod driver;
mod faults;
mod profiles;
