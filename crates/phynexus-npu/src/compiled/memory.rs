//! The memory that a network needs.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::edit::{Network, ValueType};

use crate::{
    place::{is_dequantize, is_quantize},
    runtime::bytes,
};

/// The memory of a compiled network, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The most that values between nodes need at the same time, by the planner's estimate.
    pub activations: u64,
    /// The stored tensors: weights and parameters.
    pub weights: u64,
    /// What the runtimes have allocated for tensors, as far as they say.
    pub allocated: Option<u64>,
}

/// The stored tensors.
pub(super) fn weights(network: &Network) -> u64 {
    let size = |tensor: &neurenix_onnx::proto::TensorProto| {
        let element = neurenix_onnx::Element::of_number(i64::from(tensor.data_type));
        let bits = element.map_or(0, |element| element.bits()) as u64;
        let extents = tensor.dims.iter().map(|&extent| u64::try_from(extent).unwrap_or(0));
        // A file states the extents.
        extents.fold(bits, u64::saturating_mul).div_ceil(8)
    };
    network.graph.initializer.iter().map(size).fold(0, u64::saturating_add)
}

/// The most that values need at the same time if nodes run in their order. What is dequantized, or about to be
/// quantized, is computed where it is read and needs nothing.
pub(super) fn peak(network: &Network, types: &HashMap<String, ValueType>) -> u64 {
    let links = network.links();
    let nodes = &network.graph.node;
    let outputs: HashSet<&str> = network.graph.output.iter().map(|output| &*output.name).collect();
    let size = |name: &str| {
        let maker = links.maker.get(name).map(|&at| &nodes[at]);
        let readers = links.readers.get(name).map_or(&[][..], |readers| readers);
        let is_fused = maker.is_some_and(is_dequantize)
            || !readers.is_empty() && readers.iter().all(|&(at, _)| is_quantize(&nodes[at]));
        match types.get(name) {
            Some(value) if outputs.contains(name) || !is_fused => bytes(value),
            _ => 0,
        }
    };
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        node.input.iter().for_each(|name| _ = last.insert(name, at));
    }
    // A fused value is read where what reads it runs: its source lives as long.
    for node in nodes.iter().rev().filter(|node| is_dequantize(node) || is_quantize(node)) {
        let until = node.output.iter().filter_map(|name| last.get(&**name)).max().copied();
        if let (Some(until), Some(source)) = (until, node.input.first())
            && let Some(known) = last.get_mut(&**source)
        {
            *known = until.max(*known);
        }
    }
    let given = network.graph.input.iter().map(|input| &*input.name);
    let mut live: HashMap<&str, u64> = given.map(|name| (name, size(name))).collect();
    let mut most = live.values().fold(0, |sum: u64, size| sum.saturating_add(*size));
    for (at, node) in nodes.iter().enumerate() {
        live.extend(node.output.iter().filter(|name| !name.is_empty()).map(|name| (&**name, size(name))));
        most = most.max(live.values().fold(0, |sum, size| sum.saturating_add(*size)));
        live.retain(|name, _| outputs.contains(name) || last.get(name).is_some_and(|&until| until > at));
    }
    most
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::proto::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto};

    use super::*;

    #[test]
    fn sizes_that_no_memory_has_do_not_overflow() {
        let tensor = |dims: &[i64]| TensorProto { dims: dims.to_vec(), data_type: 1, ..Default::default() };
        let graph = GraphProto {
            initializer: vec![tensor(&[i64::MAX, i64::MAX]), tensor(&[i64::MAX]), tensor(&[3])],
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
        let model = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..Default::default() };
        let network = Network::new(model).unwrap();
        // Bits are counted up to the most that there is.
        assert!(weights(&network) >= u64::MAX / 8);
    }
}
