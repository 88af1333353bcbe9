//! The layer that all GPUs share, tested on a host driver that fails on request: faults, recoverable failures, copies,
//! profiles, and spilling to the host.

mod copies;
mod driver;
mod failures;
mod faults;
mod memory;
mod profiles;
mod spilling;
mod training;
