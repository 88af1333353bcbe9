//! Quantization-aware training: the network computes with quantized numbers, and its weights stay floats that learn.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    Value,
    edit::{Network, integers, node, stored},
};
use phynexus::{DType, Device, tensor::Generator};

use crate::{
    Options, Result, Sample,
    bias_correction::store_bias,
    dequantized::Dequantized,
    scheme::check_finite,
    static_::{Paired, pair},
};

/// A network for training whose results have the errors of quantization.
///
/// It is the quantized network that [`crate::quantize`] makes, with calibrated pairs on activations, but each stored
/// weight is a float that `QuantizeLinear` and `DequantizeLinear` round when the network runs, at the scales of the
/// untrained weights. Biases are floats and not rounded. Loaded as a model, it trains: gradients pass the pairs
/// straight through. Weights have the names of the prepared float network, in which batch normalizations are folded.
/// Keep the scales fixed during training.
///
/// `bias_correction` and `adaptive_rounding` of the options do not apply: training does what they are for.
///
/// # Errors
/// As for [`crate::quantize`].
pub fn prepare_training(network: &Network, samples: &[Sample], options: &Options) -> Result<Network> {
    let Paired { float, mut quantized, .. } = pair(network, samples, options)?;
    let links = quantized.links();
    let nodes: HashMap<String, Vec<String>> =
        quantized.graph.node.iter().map(|node| (node.name.clone(), node.input.clone())).collect();
    let mut rounded: HashSet<String> = HashSet::new();
    for layer in &float.graph.node {
        let inputs = nodes.get(&layer.name).into_iter().flatten();
        for (position, (name, value)) in layer.input.iter().zip(inputs).enumerate() {
            let Some(tensor) = float.stored(name) else { continue };
            let Some(known) = Dequantized::find(&quantized, &links, value) else { continue };
            if quantized.stored(&known.values).is_none() {
                continue;
            }
            quantized.store(tensor.clone());
            if known.format(&quantized).is_none() {
                // A bias, of 32-bit integers.
                let reader = quantized.graph.node.iter_mut().find(|node| node.name == layer.name);
                if let Some(input) = reader.and_then(|reader| reader.input.get_mut(position)) {
                    input.clone_from(name);
                }
            } else if rounded.insert(known.values.clone()) {
                round(&mut quantized, name, &known);
            }
        }
    }
    quantized.sort()?;
    quantized.prune();
    Ok(quantized)
}

/// Lets a `DequantizeLinear` node read what `QuantizeLinear` makes of a stored float tensor.
fn round(network: &mut Network, float: &str, known: &Dequantized) {
    let Some(dequantize) = network.graph.node.get(known.node).cloned() else { return };
    let value = network.fresh(&format!("{float}_rounded"));
    let name = network.fresh(&format!("{float}_QuantizeLinear"));
    let mut inputs = vec![float, &known.scale];
    inputs.extend(known.zero_point.as_deref());
    let quantize = node("QuantizeLinear", &name, &inputs, &[&value], dequantize.attribute);
    if let Some(input) = network.graph.node.get_mut(known.node).and_then(|node| node.input.first_mut()) {
        *input = value;
    }
    network.graph.node.push(quantize);
}

/// The quantized network of a trained one: weights are stored as the integers with which it trained, and biases as
/// 32-bit integers at the product of the scales of input and weight.
///
/// The scales stay those of training, so that the network computes what it computed in training, apart from the
/// rounding of biases. A bias too large for 32 bits stays float.
///
/// # Errors
/// If the network is not one that [`prepare_training`] made and training changed, or a weight is not finite.
pub fn finish_training(network: &Network) -> Result<Network> {
    let mut network = network.clone();
    store_weights(&mut network)?;
    network.sort()?;
    const BIASED: [&str; 5] =
        ["Conv", "ConvTranspose", "Gemm", "InstanceNormalization", "LayerNormalization"];
    let biased = network.graph.node.iter().filter(|node| BIASED.contains(&node.op_type.as_str()));
    let biased: Vec<String> = biased.map(|node| node.name.clone()).collect();
    for name in biased {
        let Some(at) = network.graph.node.iter().position(|node| node.name == name) else { continue };
        let bias = network.graph.node.get(at).and_then(|node| node.input.get(2)).cloned().unwrap_or_default();
        let Some((shape, numbers)) = network.floats(&bias)? else { continue };
        check_finite(&bias, &numbers)?;
        if shape.len() == 1 {
            let numbers: Vec<f64> = numbers.into_iter().map(f64::from).collect();
            store_bias(&mut network, at, &numbers, &bias)?;
        }
    }
    network.prune();
    Ok(network)
}

/// Stores what `QuantizeLinear` makes of stored floats, in place of the nodes.
fn store_weights(network: &mut Network) -> Result<()> {
    let is_weight = |node: &&neurenix_onnx::proto::NodeProto| {
        node.op_type == "QuantizeLinear" && node.input.iter().all(|name| network.stored(name).is_some())
    };
    let weights: Vec<_> = network.graph.node.iter().filter(is_weight).cloned().collect();
    let values: Vec<String> = weights.iter().filter_map(|node| node.output.first()).cloned().collect();
    for name in weights.iter().filter_map(|node| node.input.first()) {
        let (_, numbers) = network.floats(name)?.unwrap_or_default();
        check_finite(name, &numbers)?;
    }
    let part = network.between(&HashSet::new(), &values)?;
    let found = part.model(Device::find("cpu")?)?.run(HashMap::new(), &Generator::new(0))?;
    for (name, value) in values.iter().zip(found) {
        let tensor = match value {
            Value::Narrow(tensor, element) => {
                let whole = tensor.to_dtype(DType::I64)?.to_vec::<i64>()?;
                integers(name, element, tensor.shape(), &whole)
            }
            other => stored(name, other.tensor()?)?,
        };
        network.store(tensor);
    }
    network.graph.node.retain(|node| !node.output.first().is_some_and(|name| values.contains(name)));
    Ok(())
}
