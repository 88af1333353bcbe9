//! ONNX files as networks: reading, running, training.
//!
//! [`Model`] reads a file and computes its outputs with the operations of [`phynexus`], on any device. Opset 7 to 28.

#![forbid(unsafe_code)]

mod build;
mod data;
mod describe;
pub mod edit;
mod element;
mod error;
mod export;
mod graph;
mod infer;
mod model;
mod ops;
#[allow(missing_docs, reason = "ONNX documents its format")]
pub mod proto;
mod shapes;
mod types;
mod value;

pub use describe::{Description, describe};
pub use element::Element;
pub use error::{Error, Result};
pub use export::{Export, OPSET, export, export_as, export_with, save, to_bytes};
pub use infer::infer;
pub use model::{Model, Port};
pub use types::{Extent, Size, Type, Types};
pub use value::{Dequantized, Quantization, Quantized, Text, Value};
