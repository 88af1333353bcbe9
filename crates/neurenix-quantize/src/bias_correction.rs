//! Bias correction: the mean error of each layer's outputs moves into its bias.
//!
//! Nagel, van Baalen, Blankevoort, Welling, "Data-free quantization through weight equalization and bias correction",
//! 2019, section 4.2, with means over samples (appendix D).

use std::collections::HashSet;

use neurenix_onnx::{
    Element,
    edit::{Network, floats, integer_attribute, integers, node},
};
use phynexus::{DType, Tensor};

use crate::{
    Format, Result, Sample,
    dequantized::{Dequantized, whole},
    linear::{Linear, float_of},
    plan::is_normalization,
    scheme::bias_scale,
    walk::Walk,
};

/// Adds to the bias of each `Conv`, `ConvTranspose` and `Gemm` the mean over samples and positions of the float
/// network's result less the quantized network's, for each output channel. The layers come in the order in which they
/// run: a correction takes those before it into account. A layer without a bias gets one; `MatMul` has none.
///
/// `float` is the network that was quantized: its nodes have the same names. A bias that is computed at run time stays
/// as it is.
///
/// # Errors
/// If a network cannot compute a sample, or a stored tensor is not valid.
pub(crate) fn correct_biases(float: &Network, quantized: &mut Network, samples: &[Sample]) -> Result<()> {
    let mut float = float.clone();
    float.sort()?;
    quantized.sort()?;
    let pairs = pairs(&float, quantized);
    let kept: HashSet<String> = pairs.iter().map(|pair| pair.target.clone()).collect();
    let (mut before, mut after) = (Walk::new(samples, kept), Walk::new(samples, HashSet::new()));
    for pair in pairs {
        let Some(at) = quantized.graph.node.iter().position(|node| node.name == pair.node) else { continue };
        let Some(output) = quantized.graph.node.get(at).and_then(|node| node.output.first()).cloned() else {
            continue;
        };
        before.advance(&float, pair.layer.node + 1)?;
        after.advance(quantized, at)?;
        let wanted = before.tensors(&float, &pair.target)?;
        let found = after.tensors(quantized, &output)?;
        before.release(&pair.target);
        let error = mean_error(&pair.layer, &wanted, &found)?;
        if error.iter().any(|&error| error != 0.0) {
            add_to_bias(quantized, at, &error)?;
        }
    }
    Ok(())
}

/// A layer of both networks.
pub(crate) struct Pair {
    /// The layer in the float network.
    pub(crate) layer: Linear,
    /// The node's name in both.
    pub(crate) node: String,
    /// The name of its result in the float network.
    pub(crate) target: String,
}

/// The layers of the float network that the quantized network has too, in the order of the latter.
pub(crate) fn pairs(float: &Network, quantized: &Network) -> Vec<Pair> {
    let layers = Linear::all(float);
    let pair = |node: &neurenix_onnx::proto::NodeProto| {
        let own = |layer: &&Linear| {
            let known = float.graph.node.get(layer.node);
            known.is_some_and(|known| known.name == node.name && known.op_type == node.op_type)
        };
        let layer = layers.iter().find(own)?.clone();
        let target = float.graph.node.get(layer.node)?.output.first()?.clone();
        Some(Pair { layer, node: node.name.clone(), target })
    };
    quantized.graph.node.iter().filter_map(pair).collect()
}

/// The mean of `wanted - found` for each output channel.
fn mean_error(layer: &Linear, wanted: &[Tensor], found: &[Tensor]) -> Result<Vec<f64>> {
    let mut sums = vec![0f64; layer.outputs];
    let mut count = 0;
    for (wanted, found) in wanted.iter().zip(found).filter(|(wanted, _)| !wanted.is_empty()) {
        let error = wanted.to_dtype(DType::F64)?.sub(&found.to_dtype(DType::F64)?)?;
        let axis = if layer.has_images() { 1 } else { error.rank() - 1 };
        let others: Vec<i64> = (0..error.rank()).filter(|&at| at != axis).map(|at| at as i64).collect();
        let own = match others.is_empty() {
            true => error.to_vec::<f64>()?,
            false => error.sum(&others, false)?.to_vec::<f64>()?,
        };
        sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        count += wanted.len() / layer.outputs;
    }
    Ok(sums.into_iter().map(|sum| sum / count.max(1) as f64).collect())
}

/// Adds to the bias of a node.
fn add_to_bias(network: &mut Network, at: usize, error: &[f64]) -> Result<()> {
    let links = network.links();
    let Some(layer) = network.graph.node.get(at).cloned() else { return Ok(()) };
    let factor = if layer.op_type == "Gemm" { f64::from(float_of(&layer, "beta", 1.0)) } else { 1.0 };
    let has_bias = matches!(layer.op_type.as_str(), "Conv" | "ConvTranspose" | "Gemm");
    if !has_bias || factor == 0.0 {
        return Ok(());
    }
    let error: Vec<f64> = error.iter().map(|error| error / factor).collect();
    let name = layer.input.get(2).filter(|name| !name.is_empty()).cloned();
    let Some(name) = name else { return create_bias(network, at, &error) };
    if let Some(known) = Dequantized::find(network, &links, &name) {
        let scales = known.scales(network)?.unwrap_or_default();
        let Some(numbers) = whole(network, &known.values)? else { return Ok(()) };
        let (own, all) = (links.is_only_for(&name, at), links.is_only_for(&known.values, known.node));
        if !own || !all || numbers.len() != error.len() {
            return Ok(());
        }
        let scale =
            |channel: usize| f64::from(scales.get(channel).or(scales.first()).copied().unwrap_or(1.0));
        let moved = numbers.iter().zip(&error).enumerate();
        let moved: Vec<i64> = moved
            .map(|(channel, (number, error))| saturated(*number as f64 + error / scale(channel)))
            .collect();
        network.store(integers(&known.values, Element::Int32, &[moved.len()], &moved));
    } else if let Some((_, numbers)) = network.floats(&name)? {
        let all = numbers.iter().copied().cycle().take(error.len());
        if numbers.len() != 1 && numbers.len() != error.len() {
            return Ok(());
        }
        let moved: Vec<f32> =
            all.zip(&error).map(|(number, error)| (f64::from(number) + error) as f32).collect();
        let own =
            if links.is_only_for(&name, at) { name } else { network.fresh(&format!("{name}_corrected")) };
        network.store(floats(&own, &[moved.len()], &moved));
        set_bias(network, at, &own);
    }
    Ok(())
}

/// Gives a node a bias.
fn create_bias(network: &mut Network, at: usize, bias: &[f64]) -> Result<()> {
    let stem = network.graph.node.get(at).map(|node| format!("{}_bias", node.name)).unwrap_or_default();
    let stem = network.fresh(&stem);
    if !store_bias(network, at, bias, &stem)? {
        let bias: Vec<f32> = bias.iter().map(|&bias| bias as f32).collect();
        network.store(floats(&stem, &[bias.len()], &bias));
        set_bias(network, at, &stem);
    }
    Ok(())
}

/// Stores a node's bias as integers, if its operands are quantized and the integers have 32 bits; returns whether they
/// are. `stem` begins the names.
pub(crate) fn store_bias(network: &mut Network, at: usize, bias: &[f64], stem: &str) -> Result<bool> {
    let Some(mut scales) = product_scales(network, at, bias.len())? else { return Ok(false) };
    if network.graph.node.get(at).is_some_and(|node| is_normalization(&node.op_type)) {
        let numbers: Vec<f32> = bias.iter().map(|&bias| bias as f32).collect();
        scales = vec![bias_scale(&numbers); bias.len()];
    }
    let quotients: Vec<f64> =
        bias.iter().zip(&scales).map(|(bias, &scale)| bias / f64::from(scale)).collect();
    if quotients.iter().any(|quotient| quotient.abs() > f64::from(i32::MAX)) {
        return Ok(false);
    }
    let whole: Vec<i64> = quotients.into_iter().map(saturated).collect();
    let [values, scale, result, name] = ["quantized", "scale", "dequantized", "DequantizeLinear"]
        .map(|part| network.fresh(&format!("{stem}_{part}")));
    network.store(integers(&values, Element::Int32, &[bias.len()], &whole));
    network.store(floats(&scale, &[bias.len()], &scales));
    let axis = vec![integer_attribute("axis", 0)];
    set_bias(network, at, &result);
    network.graph.node.insert(at, node("DequantizeLinear", &name, &[&values, &scale], &[&result], axis));
    Ok(true)
}

/// The scale of each of a layer's outputs, which is that of its input times that of its weight; `None` unless both are
/// quantized, the input with one scale.
fn product_scales(network: &Network, at: usize, outputs: usize) -> Result<Option<Vec<f32>>> {
    let links = network.links();
    let operand = |input: usize| {
        let name = network.graph.node.get(at).and_then(|node| node.input.get(input));
        name.and_then(|name| Dequantized::find(network, &links, name))
    };
    let (Some(input), Some(weight)) = (operand(0), operand(1)) else { return Ok(None) };
    // Integer sums are for integer factors.
    if weight.format(network).is_none_or(Format::is_float) {
        return Ok(None);
    }
    let (Some(input), Some(weight)) = (input.scales(network)?, weight.scales(network)?) else {
        return Ok(None);
    };
    let (&[input], true) = (&input[..], weight.len() == 1 || weight.len() == outputs) else {
        return Ok(None);
    };
    let scales: Vec<f32> = weight.iter().cycle().take(outputs).map(|weight| input * weight).collect();
    Ok(scales.iter().all(|&scale| scale > 0.0).then_some(scales))
}

/// Replaces the third input of a node.
fn set_bias(network: &mut Network, at: usize, name: &str) {
    if let Some(node) = network.graph.node.get_mut(at) {
        node.input.resize(node.input.len().max(3), String::new());
        if let Some(input) = node.input.get_mut(2) {
            name.clone_into(input);
        }
    }
}

/// The nearest integer of 32 bits.
fn saturated(number: f64) -> i64 {
    number.round_ties_even().clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i64
}
