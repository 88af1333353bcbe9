//! The tests of `rnn` that can share a process.

mod bad_input;
mod batch_norm;
mod configuration;
mod custom_kernels;
mod document;
mod environment;
mod files;
mod formulas;
mod gpu;
mod gradients;
mod methods;
mod optimizers;
mod profiler;
mod refused;
mod runs;
mod sequences;
mod utils;
mod workers;
