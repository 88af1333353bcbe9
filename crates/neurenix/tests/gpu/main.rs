//! The layer that all GPUs share, on a driver of the host's that fails when it is told to: faults, profiles,
//! and tensors that are moved to the host where the device is full.

mod driver;
mod faults;
mod profiles;
mod spilling;
