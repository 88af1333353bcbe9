//! The tests of printed and translated kernels, which need no device.

mod sources;
mod translation;
