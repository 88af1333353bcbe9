//! Quantized networks: integers in place of floats, from networks in ONNX's form.
//!
//! A quantized network is an ONNX network with pairs of `QuantizeLinear` and `DequantizeLinear`, which every runtime
//! knows. The engine runs them on its integer kernels.
#![forbid(unsafe_code)]

mod accuracy;
mod aware;
mod bias_correction;
mod calibrate;
mod dequantized;
mod dynamic;
mod equalize;
mod error;
mod format;
mod insert;
mod linear;
mod masks;
mod options;
mod plan;
mod prepare;
mod report;
mod rounding;
mod scheme;
mod smooth;
mod static_;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;
mod walk;
mod weight_only;

use std::collections::HashMap;

pub use accuracy::{Accuracy, quantize_within};
pub use aware::{finish_training, prepare_training};
pub use dynamic::quantize_dynamically;
pub use error::{Error, Result};
pub use format::Format;
pub use options::{Calibrator, Options, Rounding};
pub(crate) use report::stored_bytes;
pub use report::{Difference, Layer, Report};
pub(crate) use static_::excluded;
pub use static_::quantize;
pub use weight_only::{WeightOnly, quantize_weights};

/// A batch of a network's inputs, by name.
pub type Sample = HashMap<String, neurenix_onnx::Value>;

/// A quantized network, and what quantization did to it.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// The network, with `QuantizeLinear` and `DequantizeLinear`. Its nodes have the names that they have in the float
    /// network.
    pub network: neurenix_onnx::edit::Network,
    /// What changed.
    pub report: Report,
}
