//! Neural processing units, through the runtimes of their vendors.
//!
//! A runtime takes a whole graph in ONNX's form, compiles what it can and runs it. This crate finds the installed
//! runtimes, splits a graph between one of them and the CPU, compares the result with the CPU's, and reports what ran
//! where. Libraries are loaded at run time: the crate builds and works without any of them.
//!
//! Each kind of runtime is a module that implements [`Runtime`] and [`Program`] and has a function
//! `find(&Search) -> Found`, which `devices.rs` lists in `FINDERS`.

pub mod armnn;
mod cache;
mod compiled;
mod devices;
mod error;
mod file;
mod find;
mod library;
pub mod litert;
mod onnxruntime;
pub mod openvino;
mod place;
mod runtime;
pub mod tflite;
mod tool;
pub mod vela;
pub mod vendors;

pub use cache::cache_folder;
pub use compiled::{Compiled, Memory, PartReport, Report};
pub use devices::{Device, default_device, devices, missing};
pub use error::{Error, Result};
pub use file::{compile_file, file_targets, is_file_target};
pub use find::Search;
pub use runtime::{
    Accepts, CompiledFile, FileMemory, Found, Options, Place, Placed, Program, Properties, Runtime,
};
