//! Methods beyond plain static quantization, on networks where each must help, and against direct formulas.

mod accuracy;
mod dynamic;
mod improvement;
#[path = "../support/mod.rs"]
mod support;
mod training;
mod weight_only;

use std::collections::HashMap;

use neurenix_onnx::{Value, edit::Network};
use neurenix_quantize::{Options, quantize};
use phynexus::DType;

use support::{input, network, normal, plain, sqnr, weight};

type Sample = HashMap<String, Value>;

/// Signal to noise of a quantization.
fn gain(float: &Network, samples: &[Sample], options: &Options) -> f64 {
    sqnr(float, &quantize(float, samples, options).unwrap().network, samples)
}

/// The numbers of a stored tensor as they are.
fn stored(network: &Network, name: &str) -> Vec<i64> {
    let value = network.value(name).unwrap().unwrap_or_else(|| panic!("{name} is not stored"));
    value.tensor().unwrap().to_dtype(DType::I64).unwrap().to_vec().unwrap()
}

fn count(network: &Network, operator: &str) -> usize {
    network.graph.node.iter().filter(|node| node.op_type == operator).count()
}

/// Two products with a rectifier between, 24 to 32 to 10, without biases.
fn perceptron(seed: u64) -> Network {
    let nodes = vec![
        plain("Gemm", &["x", "w1", "b1"], "h"),
        plain("Relu", &["h"], "r"),
        plain("Gemm", &["r", "w2"], "y"),
    ];
    let tensors =
        vec![weight("w1", &[24, 32], seed), weight("b1", &[32], seed + 1), weight("w2", &[32, 10], seed + 2)];
    network(nodes, tensors, &[8, 24], &[8, 10])
}

/// Inputs whose channels depend on each other, as real ones do: 24 mixtures of 6 numbers, all at least 0.
fn mixtures(count: u64) -> Vec<Sample> {
    let mix = normal(&[6, 24], 500);
    let one = |seed| {
        let source = normal(&[8, 6], 600 + seed);
        let at = |row: usize, column: usize| {
            (0..6).map(|k| source[row * 6 + k] * mix[k * 24 + column]).sum::<f32>().max(0.0)
        };
        let numbers: Vec<f32> = (0..8 * 24).map(|at_| at(at_ / 24, at_ % 24)).collect();
        input(&[8, 24], &numbers)
    };
    (0..count).map(one).collect()
}
