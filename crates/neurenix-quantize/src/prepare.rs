//! Rewrites a network before quantization, without changing what it computes: fewer nodes mean fewer roundings.

mod normalization;
mod product;

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    Element,
    edit::{Network, ValueType},
};
use phynexus::Device;

use crate::{Error, Result, Sample};

/// The network with constants folded, nodes that do nothing dropped, products with their biases as one node, and batch
/// normalizations folded into the layers before them. Nodes in `float`, by name, are not fused; those of them in
/// `excluded`, which a caller named, keep batch normalizations apart from layers, too.
pub(crate) fn prepare(
    network: &Network,
    sample: &Sample,
    float: &HashSet<String>,
    excluded: &HashSet<String>,
) -> Result<Network> {
    check_float(network)?;
    let mut network = network.clone();
    network.sort()?;
    // A stored tensor that a caller could replace would have to stay float.
    let stored: HashSet<String> =
        network.graph.initializer.iter().map(|tensor| tensor.name.clone()).collect();
    network.graph.input.retain(|input| !stored.contains(&input.name));
    network.fold()?;
    drop_idle(&mut network)?;
    let types = types(&network, sample)?;
    product::fold_factors(&mut network)?;
    product::fuse_biases(&mut network, &types, float)?;
    normalization::fold(&mut network, &types, excluded)?;
    normalization::replace(&mut network, &types, float, excluded)?;
    network.sort()?;
    network.prune();
    Ok(network)
}

/// Refuses a network that is quantized already: another rounding of its numbers would only add errors.
pub(crate) fn check_float(network: &Network) -> Result<()> {
    match network.quantizing_node() {
        Some(node) => Err(Error::Quantized { node: node.name.clone() }),
        None => Ok(()),
    }
}

/// The types of all tensors for a sample.
pub(crate) fn types(network: &Network, sample: &Sample) -> Result<HashMap<String, ValueType>> {
    Ok(network.observe(sample.clone(), Device::find("cpu")?, |_| false)?.0)
}

/// A stored tensor of `float32`.
pub(crate) fn floats(network: &Network, name: Option<&String>) -> Result<Option<(Vec<usize>, Vec<f32>)>> {
    let Some(tensor) = name.and_then(|name| network.stored(name)) else { return Ok(None) };
    match tensor.data_type == Element::Float as i32 {
        true => Ok(network.floats(&tensor.name.clone())?),
        false => Ok(None),
    }
}

/// Drops nodes that return their input: `Identity`, and `Dropout` outside training.
fn drop_idle(network: &mut Network) -> Result<()> {
    loop {
        let links = network.links();
        let mut found = None;
        for (at, node) in network.graph.node.iter().enumerate() {
            let (Some(input), Some(output)) = (node.input.first(), node.output.first()) else { continue };
            let mask = node.output.get(1).filter(|mask| !mask.is_empty());
            let is_idle = match node.op_type.as_str() {
                "Identity" => true,
                "Dropout" => {
                    mask.is_none_or(|mask| !links.readers.contains_key(mask) && !links.kept.contains(mask))
                        && !trains(network, node.input.get(2))?
                }
                _ => false,
            };
            if !is_idle || !(node.domain.is_empty() || node.domain == "ai.onnx") {
                continue;
            }
            if !links.kept.contains(output) {
                found = Some((at, output.clone(), input.clone(), None));
                break;
            }
            // An output of the network keeps its name: the node before takes it over.
            if let Some(&maker) = links.maker.get(input)
                && links.is_only_for(input, at)
            {
                found = Some((at, input.clone(), output.clone(), Some(maker)));
                break;
            }
        }
        let Some((at, old, new, maker)) = found else { return Ok(()) };
        if let Some(maker) = maker {
            let outputs = &mut network.graph.node[maker].output;
            outputs.iter_mut().filter(|name| **name == old).for_each(|name| name.clone_from(&new));
        } else {
            let inputs = network.graph.node.iter_mut().flat_map(|node| &mut node.input);
            inputs.filter(|name| **name == old).for_each(|name| name.clone_from(&new));
        }
        network.graph.node.remove(at);
    }
}

/// Whether the input `training_mode` of a `Dropout` may be true.
fn trains(network: &Network, name: Option<&String>) -> Result<bool> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(false) };
    let Some(value) = network.value(name)? else { return Ok(true) };
    Ok(value.tensor()?.to_bytes()?.iter().any(|&byte| byte != 0))
}
