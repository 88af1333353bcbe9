//! Tests of printed and translated kernels. They need no device.

mod sources;
mod translation;
