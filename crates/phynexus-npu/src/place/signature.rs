//! What decides whether a runtime takes a part of a network.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write,
};

use neurenix_onnx::{
    Element,
    edit::Network,
    proto::{NodeProto, TensorProto, TypeKind},
};
use prost::Message;

use super::units::{is_dequantize, is_quantize};
use crate::cache;

/// Operators, attributes, types, and constants as far as they may be parameters; not the names.
pub(super) fn signature(part: &Network) -> String {
    let graph = &part.graph;
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let mut text = format!("opset {}\n", part.opset());
    for port in graph.input.iter().chain(&graph.output) {
        let tensor = port.r#type.as_ref().and_then(|port| match &port.value {
            Some(TypeKind::Tensor(tensor)) => Some(tensor),
            _ => None,
        });
        let next = numbers.len();
        let number = *numbers.entry(&port.name).or_insert(next);
        let _ = writeln!(text, "port {number} {tensor:?}");
    }
    let parameters = parameters(part);
    for constant in &graph.initializer {
        let mut value = constant.clone();
        value.name.clear();
        if !parameters.contains(constant.name.as_str()) {
            value.raw_data = Vec::new();
            (value.float_data, value.int32_data, value.int64_data) = Default::default();
        }
        let next = numbers.len();
        let number = *numbers.entry(&constant.name).or_insert(next);
        let _ = writeln!(text, "constant {number} {value:?}");
    }
    for node in &graph.node {
        let _ = write!(text, "{} {} {:?}", node.domain, node.op_type, node.attribute);
        for name in node.input.iter().chain(&node.output) {
            let next = numbers.len();
            let _ = write!(text, " {}", numbers.entry(name).or_insert(next));
        }
        text.push('\n');
    }
    cache::key(&[text.as_bytes()])
}

/// The constants whose numbers may decide, such as axes, pads, limits and zero points. Those of weights and of scales
/// do not.
fn parameters(part: &Network) -> HashSet<&str> {
    let links = part.links();
    let nodes = &part.graph.node;
    let readers = |name: &str| links.readers.get(name).map_or(&[][..], Vec::as_slice);
    // Whether nothing but layers reads a value, as the weight or the bias, directly or dequantized.
    let is_weight = |name: &str| {
        let by_layer = |&(reader, at): &(usize, usize)| {
            at > 0 && matches!(&*nodes[reader].op_type, "Conv" | "ConvTranspose" | "Gemm" | "MatMul")
        };
        !readers(name).is_empty() && readers(name).iter().all(by_layer)
    };
    let dequantized = |&(reader, at): &(usize, usize)| {
        at == 0 && is_dequantize(&nodes[reader]) && nodes[reader].output.iter().all(|name| is_weight(name))
    };
    // The scale of a limit, for example, decides as the limit itself does.
    let is_computed = |node: &NodeProto| {
        let own = |name: &String| part.stored(name).is_some_and(is_small);
        let is_parameter =
            node.input.first().is_some_and(own) && !node.output.iter().all(|name| is_weight(name));
        !(is_dequantize(node) && is_parameter)
    };
    let scales = |&(reader, at): &(usize, usize)| {
        let node = &nodes[reader];
        at == 1 && (is_quantize(node) || is_dequantize(node)) && is_computed(node)
    };
    let is_parameter = |constant: &&TensorProto| {
        let name = &*constant.name;
        let is_dequantized_weight = !readers(name).is_empty() && readers(name).iter().all(dequantized);
        let is_scale = constant.data_type == Element::Float as i32
            && !readers(name).is_empty()
            && readers(name).iter().all(scales);
        is_small(constant) && !is_weight(name) && !is_dequantized_weight && !is_scale
    };
    part.graph.initializer.iter().filter(is_parameter).map(|constant| &*constant.name).collect()
}

/// Whether a tensor is as small as parameters are.
fn is_small(tensor: &TensorProto) -> bool {
    tensor.encoded_len() <= 128
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::{
        edit,
        proto::{GraphProto, ModelProto, OperatorSetIdProto},
    };

    use super::*;

    fn part(nodes: Vec<NodeProto>, constants: Vec<TensorProto>) -> String {
        let graph = GraphProto {
            node: nodes,
            input: vec![edit::info("x", Element::Float, &[1, 4])],
            output: vec![edit::info("y", Element::Float, &[1, 4])],
            initializer: constants,
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
        let proto = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..Default::default() };
        signature(&Network::new(proto).unwrap())
    }

    fn node(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
        edit::node(operator, output, inputs, &[output], vec![])
    }

    #[test]
    fn limits_decide_and_weights_and_scales_do_not() {
        let clip = |least: f32, most: f32| {
            let constants = vec![edit::floats("least", &[], &[least]), edit::floats("most", &[], &[most])];
            part(vec![node("Clip", &["x", "least", "most"], "y")], constants)
        };
        assert_eq!(clip(0.0, 6.0), clip(0.0, 6.0));
        assert_ne!(clip(0.0, 6.0), clip(-3.0, 3.0));

        let layer = |scale: f32, zero: i64, weight: i64| {
            let constants = vec![
                edit::floats("scale", &[], &[scale]),
                edit::integers("zero", Element::Int8, &[], &[zero]),
                edit::floats("w_scale", &[], &[scale * 3.0]),
                edit::integers("w_zero", Element::Int8, &[], &[0]),
                edit::integers("w", Element::Int8, &[4, 4], &[weight; 16]),
            ];
            let nodes = vec![
                node("QuantizeLinear", &["x", "scale", "zero"], "xq"),
                node("DequantizeLinear", &["xq", "scale", "zero"], "xd"),
                node("DequantizeLinear", &["w", "w_scale", "w_zero"], "wd"),
                node("MatMul", &["xd", "wd"], "y"),
            ];
            part(nodes, constants)
        };
        assert_eq!(layer(0.1, 0, 1), layer(0.2, 0, 2));
        assert_ne!(layer(0.1, 0, 1), layer(0.1, 5, 1));

        let quantized_limit = |scale: f32| {
            let constants = vec![
                edit::floats("scale", &[], &[scale]),
                edit::integers("least", Element::Int8, &[], &[-3]),
            ];
            let nodes = vec![
                node("DequantizeLinear", &["least", "scale"], "limit"),
                node("Clip", &["x", "limit"], "y"),
            ];
            part(nodes, constants)
        };
        assert_ne!(quantized_limit(0.1), quantized_limit(1.0));
    }
}
