//! Small networks and their values.

use std::collections::HashMap;

use neurenix_onnx::{
    Element, Value,
    edit::{Network, info, integer_attribute, node},
    proto::{GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto},
};
use neurenix_quantize::{Options, Quantized, Sample, quantize};
use phynexus::{DType, Device, Tensor, tensor::Generator};

pub(crate) fn cpu() -> Device {
    phynexus_cpu::register();
    Device::find("cpu").expect("the CPU is registered")
}

/// A network from `x`, of this shape after the batch axis.
pub(crate) fn network(
    row: &[usize],
    nodes: Vec<NodeProto>,
    initializer: Vec<TensorProto>,
    outputs: &[&str],
    opset: i64,
) -> Network {
    cpu();
    let mut input = info("x", Element::Float, &[&[1], row].concat());
    if let Some(neurenix_onnx::proto::TypeKind::Tensor(tensor)) =
        input.r#type.as_mut().and_then(|kind| kind.value.as_mut())
    {
        tensor.shape.iter_mut().for_each(|shape| shape.dim[0].value = None);
    }
    let output = |name: &&str| ValueInfoProto { name: (*name).to_owned(), r#type: None };
    let graph = GraphProto {
        node: nodes,
        name: "test".to_owned(),
        initializer,
        input: vec![input],
        output: outputs.iter().map(output).collect(),
        ..GraphProto::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: opset }];
    let proto = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..ModelProto::default() };
    Network::new(proto).expect("the network has a graph")
}

/// `Gemm` with a weight `[outputs, inputs]`.
pub(crate) fn gemm(name: &str, inputs: &[&str], output: &str) -> NodeProto {
    node("Gemm", name, inputs, &[output], vec![integer_attribute("transB", 1)])
}

/// A node without attributes.
pub(crate) fn plain(operator: &str, name: &str, inputs: &[&str], output: &str) -> NodeProto {
    node(operator, name, inputs, &[output], Vec::new())
}

pub(crate) fn with_int(mut node: NodeProto, name: &str, value: i64) -> NodeProto {
    node.attribute.push(integer_attribute(name, value));
    node
}

/// The input `x`.
pub(crate) fn batch(shape: &[usize], numbers: &[f32]) -> Sample {
    let tensor = Tensor::from_slice(numbers, shape, cpu()).expect("numbers of the shape");
    HashMap::from([("x".to_owned(), Value::Tensor(tensor))])
}

/// Normal numbers.
pub(crate) fn normal(count: usize, seed: u64) -> Vec<f32> {
    let tensor = Generator::new(seed).randn(&[count], DType::F32, cpu()).expect("a shape");
    tensor.to_vec().expect("numbers")
}

/// The first output.
pub(crate) fn run(network: &Network, sample: &Sample) -> Vec<f32> {
    let model = network.model(cpu()).expect("a network that can be run");
    let values = model.run(sample.clone(), &Generator::new(0)).expect("a result");
    values[0].tensor().expect("numbers").to_vec().expect("float32")
}

/// A stored number.
pub(crate) fn scalar(network: &Network, name: &str) -> f32 {
    let (_, numbers) = network.floats(name).expect("a valid tensor").expect("floats");
    assert_eq!(numbers.len(), 1);
    numbers[0]
}

/// Stored integers.
pub(crate) fn integers_of(network: &Network, name: &str) -> Vec<i64> {
    let value = network.value(name).expect("a valid tensor").expect("a stored tensor");
    let tensor = value.tensor().expect("numbers").to_dtype(DType::I64).expect("integers");
    tensor.to_vec().expect("integers")
}

pub(crate) fn count(network: &Network, operator: &str) -> usize {
    network.graph.node.iter().filter(|node| node.op_type == operator).count()
}

/// What a node reads.
pub(crate) fn inputs<'n>(network: &'n Network, name: &str) -> &'n [String] {
    &network.graph.node.iter().find(|node| node.name == name).expect("the node is there").input
}

pub(crate) fn options() -> Options {
    Options::default()
}

pub(crate) fn quantized(network: &Network, samples: &[Sample], options: &Options) -> Quantized {
    quantize(network, samples, options).expect("the network is quantized")
}
