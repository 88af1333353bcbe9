//! Networks for the tests: small ones of floats, and their quantized forms.

pub mod digits;

use std::collections::HashMap;

use neurenix_onnx::{
    Element, Value,
    edit::{self, Network},
    proto::{AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, attribute_type},
};
use phynexus::{Device, Tensor};

/// Numbers that look random, of mean 0 and deviation `size`.
pub fn numbers(seed: u32, count: usize, size: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 16_777_216.0 - 0.5
    };
    (0..count).map(|_| (0..6).map(|_| next()).sum::<f32>() * 1.414 * size).collect()
}

/// An empty network with one input, `x`, and one output.
pub fn network(shape: &[usize], output: (&str, &[usize])) -> Network {
    let graph = GraphProto {
        name: "test".to_owned(),
        input: vec![edit::info("x", Element::Float, shape)],
        output: vec![edit::info(output.0, Element::Float, output.1)],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 21 };
    let proto =
        ModelProto { ir_version: 10, graph: Some(graph), opset_import: vec![opset], ..Default::default() };
    Network::new(proto).unwrap()
}

pub fn integers_attribute(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        ints: values.to_vec(),
        r#type: attribute_type::INTS,
        ..Default::default()
    }
}

/// Appends a node whose name is that of its output.
pub fn add(
    network: &mut Network,
    operator: &str,
    inputs: &[&str],
    output: &str,
    attributes: Vec<AttributeProto>,
) {
    network.graph.node.push(edit::node(operator, output, inputs, &[output], attributes));
}

/// Appends a layer with random weights and a bias.
pub fn layer(
    network: &mut Network,
    operator: &str,
    from: &str,
    to: &str,
    shape: &[usize],
    attributes: Vec<AttributeProto>,
) {
    let seed = to.bytes().map(u32::from).sum();
    let outputs = if operator == "Gemm" { shape[1] } else { shape[0] };
    let count: usize = shape.iter().product();
    let spread = ((count / outputs) as f32).sqrt().recip();
    let (weight, bias) = (format!("{to}_w"), format!("{to}_b"));
    network.store(edit::floats(&weight, shape, &numbers(seed, count, spread)));
    network.store(edit::floats(&bias, &[outputs], &numbers(seed + 1, outputs, 0.1)));
    add(network, operator, &[from, &weight, &bias], to, attributes);
}

/// Three layers, 64 numbers to 10.
pub fn mlp(batch: usize) -> Network {
    let mut net = network(&[batch, 64], ("y", &[batch, 10]));
    layer(&mut net, "Gemm", "x", "a", &[64, 64], vec![]);
    add(&mut net, "Relu", &["a"], "a_relu", vec![]);
    layer(&mut net, "Gemm", "a_relu", "b", &[64, 32], vec![]);
    add(&mut net, "Relu", &["b"], "b_relu", vec![]);
    layer(&mut net, "Gemm", "b_relu", "y", &[32, 10], vec![]);
    net
}

/// Convolutions, one of them depthwise, and a pooling before the last layer.
pub fn cnn() -> Network {
    let mut net = network(&[1, 3, 16, 16], ("y", &[1, 10]));
    let same = || integers_attribute("pads", &[1, 1, 1, 1]);
    layer(&mut net, "Conv", "x", "a", &[8, 3, 3, 3], vec![same()]);
    add(&mut net, "Relu", &["a"], "a_relu", vec![]);
    let groups = edit::integer_attribute("group", 8);
    layer(&mut net, "Conv", "a_relu", "b", &[8, 1, 3, 3], vec![same(), groups]);
    add(&mut net, "Relu", &["b"], "b_relu", vec![]);
    layer(&mut net, "Conv", "b_relu", "c", &[16, 8, 1, 1], vec![]);
    add(&mut net, "GlobalAveragePool", &["c"], "pooled", vec![]);
    add(&mut net, "Flatten", &["pooled"], "flat", vec![]);
    layer(&mut net, "Gemm", "flat", "y", &[16, 10], vec![]);
    net
}

/// Two layers with an error function between them, which the HTP lacks.
pub fn with_erf() -> Network {
    let mut net = network(&[1, 16], ("y", &[1, 10]));
    layer(&mut net, "Gemm", "x", "a", &[16, 32], vec![]);
    add(&mut net, "Erf", &["a"], "erf", vec![]);
    layer(&mut net, "Gemm", "erf", "y", &[32, 10], vec![]);
    net
}

/// A block of a transformer: attention of one head, and two layers.
pub fn transformer() -> Network {
    let mut net = network(&[1, 8, 32], ("y", &[1, 8, 32]));
    let product = |net: &mut Network, from: &str, to: &str, shape: [usize; 2]| {
        let weight = format!("{to}_w");
        let spread = (shape[0] as f32).sqrt().recip();
        let seed = to.bytes().map(u32::from).sum();
        net.store(edit::floats(&weight, &shape, &numbers(seed, shape[0] * shape[1], spread)));
        add(net, "MatMul", &[from, &weight], to, vec![]);
    };
    for name in ["query", "key", "value"] {
        product(&mut net, "x", name, [32, 32]);
    }
    add(&mut net, "Transpose", &["key"], "turned", vec![integers_attribute("perm", &[0, 2, 1])]);
    add(&mut net, "MatMul", &["query", "turned"], "scores", vec![]);
    add(&mut net, "Softmax", &["scores"], "shares", vec![]);
    add(&mut net, "MatMul", &["shares", "value"], "attended", vec![]);
    product(&mut net, "attended", "projected", [32, 32]);
    add(&mut net, "Add", &["x", "projected"], "sum", vec![]);
    net.store(edit::floats("gain", &[32], &[1.0; 32]));
    net.store(edit::floats("shift", &[32], &numbers(5, 32, 0.1)));
    add(&mut net, "LayerNormalization", &["sum", "gain", "shift"], "normal", vec![]);
    product(&mut net, "normal", "up", [32, 64]);
    add(&mut net, "Gelu", &["up"], "act", vec![]);
    product(&mut net, "act", "down", [64, 32]);
    add(&mut net, "Add", &["sum", "down"], "y", vec![]);
    net
}

/// A value of this shape for the input `x`.
pub fn sample(seed: u32, shape: &[usize]) -> HashMap<String, Value> {
    let cpu = phynexus_cpu::register();
    let tensor = Tensor::from_slice(&numbers(seed, shape.iter().product(), 1.0), shape, cpu).unwrap();
    HashMap::from([("x".to_owned(), Value::Tensor(tensor))])
}

/// The scale and the zero point of values in this range.
fn parameters(numbers: &[f32], element: Element) -> (f32, i64) {
    let bits = element.bits();
    let least = numbers.iter().copied().fold(0.0, f32::min);
    let greatest = numbers.iter().copied().fold(0.0, f32::max);
    match element {
        Element::Uint8 | Element::Uint16 => {
            let scale = ((greatest - least) / ((1i64 << bits) - 1) as f32).max(1e-6);
            (scale, (-least / scale).round() as i64)
        }
        _ => ((greatest.max(-least) / ((1i64 << (bits - 1)) - 1) as f32).max(1e-6), 0),
    }
}

/// The network with values quantized as `activation`, weights as `int8` and biases as `int32`, with ranges of a sample.
pub fn quantized(network: &Network, inputs: &HashMap<String, Value>, activation: Element) -> Network {
    let cpu = Device::find("cpu").unwrap();
    let (_, values) = network.observe(inputs.clone(), cpu, |_| true).unwrap();
    let mut net = network.clone();
    let nodes = std::mem::take(&mut net.graph.node);
    net.graph.initializer.clear();
    let outputs: Vec<String> = net.graph.output.iter().map(|output| output.name.clone()).collect();
    let mut scales: HashMap<String, f32> = HashMap::new();
    quantize(&mut net, "x", "x", &values["x"].to_vec().unwrap(), activation, &mut scales, "x_dq");
    for node in nodes {
        let mut read = Vec::new();
        for (at, name) in node.input.iter().enumerate() {
            let dq = format!("{name}_dq");
            if let Some((shape, numbers)) = network.floats(name).unwrap() {
                let (scale, element) = match at {
                    1 => (parameters(&numbers, Element::Int8).0, Element::Int8),
                    _ => (scales[&node.input[0]] * scales[&node.input[1]], Element::Int32),
                };
                let whole: Vec<i64> = numbers.iter().map(|x| (x / scale).round() as i64).collect();
                scales.insert(name.clone(), scale);
                net.store(edit::integers(&format!("{name}_q"), element, &shape, &whole));
                dequantize(&mut net, name, element, scale, 0, &dq);
            }
            read.push(dq);
        }
        let name = node.output[0].clone();
        let raw = format!("{name}_raw");
        net.graph.node.push(NodeProto { input: read, output: vec![raw.clone()], ..node });
        let last = if outputs.contains(&name) { name.clone() } else { format!("{name}_dq") };
        let numbers: Vec<f32> = values[&name].to_vec().unwrap();
        quantize(&mut net, &raw, &name, &numbers, activation, &mut scales, &last);
    }
    net
}

/// Appends the quantization of `from` and its opposite, which makes `last`.
fn quantize(
    net: &mut Network,
    from: &str,
    name: &str,
    numbers: &[f32],
    element: Element,
    scales: &mut HashMap<String, f32>,
    last: &str,
) {
    let (scale, zero) = parameters(numbers, element);
    scales.insert(name.to_owned(), scale);
    let names = [format!("{name}_scale"), format!("{name}_zero"), format!("{name}_q")];
    net.store(edit::floats(&names[0], &[], &[scale]));
    net.store(edit::integers(&names[1], element, &[], &[zero]));
    let inputs = [from, &names[0], &names[1]];
    let node = edit::node("QuantizeLinear", &format!("{name}_quantize"), &inputs, &[&names[2]], vec![]);
    net.graph.node.push(node);
    dequantize(net, name, element, scale, zero, last);
}

fn dequantize(net: &mut Network, name: &str, element: Element, scale: f32, zero: i64, last: &str) {
    let names = [format!("{name}_q"), format!("{name}_scale"), format!("{name}_zero")];
    net.store(edit::floats(&names[1], &[], &[scale]));
    net.store(edit::integers(&names[2], element, &[], &[zero]));
    let inputs = [&*names[0], &names[1], &names[2]];
    let node = edit::node("DequantizeLinear", &format!("{name}_dequantize"), &inputs, &[last], vec![]);
    net.graph.node.push(node);
}

/// Makes the first extent of the input and of the output a symbol.
pub fn symbolic(network: &mut Network, name: &str) {
    use neurenix_onnx::proto::{DimensionKind, TypeKind};
    for port in network.graph.input.iter_mut().chain(&mut network.graph.output) {
        let Some(TypeKind::Tensor(tensor)) = port.r#type.as_mut().and_then(|port| port.value.as_mut()) else {
            panic!("{port:?}")
        };
        tensor.shape.as_mut().unwrap().dim[0].value = Some(DimensionKind::Parameter(name.to_owned()));
    }
}
