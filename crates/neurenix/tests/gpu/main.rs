//! The layer that all GPUs share, on a driver of the host's that fails when it is told to: faults, failures that pass, copies, profiles,
//! and tensors that are moved to the host where the device is full.

mod copies;
mod driver;
mod failures;
mod faults;
mod profiles;
mod spilling;
