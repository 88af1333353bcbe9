//! Quantized networks: integers in place of floats, from networks in ONNX's form.
//!
//! A quantized network is an ONNX network with pairs of `QuantizeLinear` and `DequantizeLinear`, which every runtime
//! knows. The engine runs them on its integer kernels.
#![forbid(unsafe_code)]
