//! The tests of the framework that can share a process.

mod capture;
mod complex;
mod conformance;
mod custom_kernels;
mod evaluation;
mod files;
mod labels;
mod layers;
mod losses;
mod losses_by_formula;
mod modules;
mod no_panic_layers;
mod optimizers;
mod replay;
