//! Networks and samples for tests.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]

use std::collections::HashMap;

use neurenix_onnx::{
    Element, Value,
    edit::{Network, floats, info, node},
    proto::{
        AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, attribute_type,
    },
};
use phynexus::{DType, Device, Tensor, tensor::Generator};

pub fn cpu() -> Device {
    phynexus_cpu::register();
    Device::find("cpu").expect("the CPU is registered")
}

/// A network of opset 21 from `x`, of this shape, to `y`.
pub fn network(
    nodes: Vec<NodeProto>,
    tensors: Vec<TensorProto>,
    input: &[usize],
    output: &[usize],
) -> Network {
    cpu();
    let graph = GraphProto {
        node: nodes,
        name: "test".to_owned(),
        initializer: tensors,
        input: vec![info("x", Element::Float, input)],
        output: vec![info("y", Element::Float, output)],
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
    Network::new(ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..ModelProto::default() })
        .expect("the network has a graph")
}

/// A node without attributes, named like its result.
pub fn plain(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    node(operator, output, inputs, &[output], Vec::new())
}

pub fn with(mut node: NodeProto, attribute: AttributeProto) -> NodeProto {
    node.attribute.push(attribute);
    node
}

pub fn whole(name: &str, value: i64) -> AttributeProto {
    neurenix_onnx::edit::integer_attribute(name, value)
}

pub fn list(name: &str, values: &[i64]) -> AttributeProto {
    let (name, ints) = (name.to_owned(), values.to_vec());
    AttributeProto { name, ints, r#type: attribute_type::INTS, ..AttributeProto::default() }
}

/// Normal numbers.
pub fn normal(shape: &[usize], seed: u64) -> Vec<f32> {
    let tensor = Generator::new(seed).randn(shape, DType::F32, cpu()).expect("a shape");
    tensor.to_vec().expect("numbers")
}

pub fn weight(name: &str, shape: &[usize], seed: u64) -> TensorProto {
    floats(name, shape, &normal(shape, seed))
}

/// The input `x` with these numbers.
pub fn input(shape: &[usize], numbers: &[f32]) -> HashMap<String, Value> {
    let tensor = Tensor::from_slice(numbers, shape, cpu()).expect("numbers of the shape");
    HashMap::from([("x".to_owned(), tensor.into())])
}

/// So many samples of normal numbers.
pub fn samples(count: u64, shape: &[usize]) -> Vec<HashMap<String, Value>> {
    (0..count).map(|seed| input(shape, &normal(shape, 1000 + seed))).collect()
}

/// The first output.
pub fn run(network: &Network, sample: &HashMap<String, Value>) -> Vec<f32> {
    let model = network.model(cpu()).expect("a network that can be run");
    let values = model.run(sample.clone(), &Generator::new(0)).expect("a result");
    values[0].tensor().expect("numbers").to_vec().expect("float32")
}

/// Signal to noise in decibels, over samples.
pub fn sqnr(float: &Network, other: &Network, samples: &[HashMap<String, Value>]) -> f64 {
    let (mut signal, mut noise) = (0.0, 0.0);
    for sample in samples {
        for (x, q) in run(float, sample).into_iter().zip(run(other, sample)) {
            signal += f64::from(x).powi(2);
            noise += (f64::from(x) - f64::from(q)).powi(2);
        }
    }
    10.0 * (signal / noise).log10()
}

/// The greatest error relative to the greatest number.
pub fn relative_error(x: &[f32], y: &[f32]) -> f32 {
    assert_eq!(x.len(), y.len());
    let greatest = x.iter().fold(0f32, |greatest, x| greatest.max(x.abs()));
    assert!(greatest > 0.0 && y.iter().all(|y| y.is_finite()));
    x.iter().zip(y).fold(0f32, |error, (x, y)| error.max((x - y).abs())) / greatest
}

/// Convolutions 3 to 8, depthwise 8 and 8 to 4 with rectifiers and pooling between, and a product. The channels of the
/// first two have scales from 0.01 to 100 that cancel.
pub fn badly_scaled(seed: u64) -> Network {
    let scale = |channel: usize| 10f32.powf(channel as f32 * 4.0 / 7.0 - 2.0);
    let scaled = |name: &str, shape: &[usize], seed: u64, inverse: bool| {
        let window: usize = shape[1..].iter().product();
        let mut numbers = normal(shape, seed);
        for (at, x) in numbers.iter_mut().enumerate() {
            *x *= if inverse { scale(at / window).recip() } else { scale(at / window) };
        }
        floats(name, shape, &numbers)
    };
    network(
        vec![
            plain("Conv", &["x", "w1", "b1"], "c1"),
            plain("Relu", &["c1"], "r1"),
            with(plain("Conv", &["r1", "w2", "b2"], "c2"), whole("group", 8)),
            plain("Relu", &["c2"], "r2"),
            with(plain("MaxPool", &["r2"], "p2"), list("kernel_shape", &[2, 2])),
            plain("Conv", &["p2", "w3"], "c3"),
            plain("Relu", &["c3"], "r3"),
            plain("Flatten", &["r3"], "f"),
            plain("Gemm", &["f", "w4", "b4"], "y"),
        ],
        vec![
            scaled("w1", &[8, 3, 3, 3], seed, false),
            scaled("b1", &[8], seed + 1, false),
            scaled("w2", &[8, 1, 3, 3], seed + 2, true),
            weight("b2", &[8], seed + 3),
            weight("w3", &[4, 8, 1, 1], seed + 4),
            weight("w4", &[4 * 3 * 3, 5], seed + 5),
            weight("b4", &[5], seed + 6),
        ],
        &[2, 3, 8, 8],
        &[2, 5],
    )
}
