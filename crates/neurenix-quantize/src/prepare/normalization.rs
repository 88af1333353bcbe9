//! Batch normalizations with stored statistics.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    edit::{Network, ValueType, floats as stored_floats, integer_attribute, integer_of, node as new_node},
    proto::NodeProto,
};

use super::floats;
use crate::{Result, linear::Linear};

/// A batch normalization as `factor x + offset` for each channel.
struct Affine {
    factors: Vec<f64>,
    offsets: Vec<f64>,
}

impl Affine {
    /// Of a node whose statistics are stored; `None` for others.
    fn of(network: &Network, node: &NodeProto) -> Result<Option<Affine>> {
        let others = node.output.iter().skip(1).any(|name| !name.is_empty());
        if node.op_type != "BatchNormalization"
            || !node.domain.is_empty()
            || others
            || integer_of(node, "training_mode", 0) != 0
        {
            return Ok(None);
        }
        let vector = |input: usize| floats(network, node.input.get(input));
        let all = (vector(1)?, vector(2)?, vector(3)?, vector(4)?);
        let (Some((_, scale)), Some((_, bias)), Some((_, mean)), Some((_, variance))) = all else {
            return Ok(None);
        };
        let epsilon = node.attribute.iter().find(|attribute| attribute.name == "epsilon");
        let epsilon = f64::from(epsilon.map_or(1e-5, |attribute| attribute.f()));
        if [bias.len(), mean.len(), variance.len()].iter().any(|&count| count != scale.len()) {
            return Ok(None);
        }
        let factors: Vec<f64> = (scale.iter().zip(&variance))
            .map(|(&scale, &variance)| f64::from(scale) / (f64::from(variance) + epsilon).sqrt())
            .collect();
        let offsets = (bias.iter().zip(&mean).zip(&factors))
            .map(|((&bias, &mean), factor)| f64::from(bias) - f64::from(mean) * factor)
            .collect();
        Ok(Some(Affine { factors, offsets }))
    }
}

/// Folds normalizations into the layers before them, where nothing else reads what the layer makes, and neither node is
/// in `excluded`.
pub(super) fn fold(
    network: &mut Network,
    types: &HashMap<String, ValueType>,
    excluded: &HashSet<String>,
) -> Result<()> {
    let links = network.links();
    let mut dropped = HashSet::new();
    for at in 0..network.graph.node.len() {
        let node = network.graph.node[at].clone();
        let Some(affine) = Affine::of(network, &node)? else { continue };
        let Some(&maker) = node.input.first().and_then(|name| links.maker.get(name)) else { continue };
        let Some(layer) = Linear::find(network, maker) else { continue };
        let before = network.graph.node[maker].clone();
        if [&node, &before].iter().any(|node| excluded.contains(&node.name)) {
            continue;
        }
        let Some(value) = before.output.first() else { continue };
        // The channels of a product are on the last axis, those of a normalization on axis 1.
        let rank = types.get(value).map_or(0, |known| known.shape.len());
        let fits = layer.outputs == affine.factors.len() && (layer.has_images() || rank == 2);
        let Some(weight) = layer.numbers(network)? else { continue };
        if !fits || links.only_reader(value) != Some(at) {
            continue;
        }
        let bias = match before.input.get(2).filter(|name| !name.is_empty()) {
            None => vec![0.0; layer.outputs],
            name => match floats(network, name)? {
                Some((_, numbers)) if numbers.len() == layer.outputs => numbers,
                _ => continue,
            },
        };
        let scaled: Vec<f32> = (weight.iter().enumerate())
            .map(|(element, &x)| (f64::from(x) * affine.factors[layer.channels(element).1]) as f32)
            .collect();
        let moved: Vec<f32> = (bias.iter().zip(&affine.factors).zip(&affine.offsets))
            .map(|((&x, factor), offset)| (f64::from(x) * factor + offset) as f32)
            .collect();
        let weight_name = network.fresh(&format!("{}_folded", layer.weight));
        network.store(stored_floats(&weight_name, &layer.shape, &scaled));
        let bias_name = network.fresh(&format!("{}_bias_folded", before.name));
        network.store(stored_floats(&bias_name, &[layer.outputs], &moved));
        let into = &mut network.graph.node[maker];
        if into.op_type == "MatMul" {
            "Gemm".clone_into(&mut into.op_type);
        }
        into.input.resize(3, String::new());
        into.input[1] = weight_name;
        into.input[2] = bias_name;
        into.output.clone_from(&node.output);
        dropped.insert(at);
    }
    network.remove_nodes(&dropped);
    network.prune();
    Ok(())
}

/// Makes other nodes of the normalizations that remain, which runtimes compute with integers: a convolution of each
/// channel with one number for images, a product and a sum for vectors. Those in `float` stay, and those of a layer in
/// `excluded`.
pub(super) fn replace(
    network: &mut Network,
    types: &HashMap<String, ValueType>,
    float: &HashSet<String>,
    excluded: &HashSet<String>,
) -> Result<()> {
    let nodes = network.graph.node.clone();
    let links = network.links();
    for (at, node) in nodes.iter().enumerate() {
        let Some(affine) = Affine::of(network, node)? else { continue };
        let (Some(input), Some(output)) = (node.input.first(), node.output.first()) else { continue };
        let rank = types.get(output).map_or(0, |known| known.shape.len());
        let is_of_excluded = links.maker.get(input).is_some_and(|&maker| {
            let layer = nodes.get(maker).filter(|layer| excluded.contains(&layer.name));
            layer.is_some() && Linear::find(network, maker).is_some()
        });
        if float.contains(&node.name) || is_of_excluded || !(2..=5).contains(&rank) {
            continue;
        }
        let channels = affine.factors.len();
        let narrow = |numbers: &[f64]| numbers.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let factors = network.fresh(&format!("{}_factors", node.name));
        let mut shape = vec![1; rank];
        shape[if rank == 2 { 1 } else { 0 }] = channels;
        network.store(stored_floats(&factors, &shape, &narrow(&affine.factors)));
        let offsets = network.fresh(&format!("{}_offsets", node.name));
        network.store(stored_floats(&offsets, &[channels], &narrow(&affine.offsets)));
        if rank > 2 {
            let group = integer_attribute("group", channels as i64);
            network.graph.node[at] =
                new_node("Conv", &node.name, &[input, &factors, &offsets], &[output], vec![group]);
        } else {
            let product = network.fresh(&format!("{}_product", node.name));
            network.graph.node[at] = new_node("Mul", &node.name, &[input, &factors], &[&product], Vec::new());
            let name = network.fresh(&format!("{}_sum", node.name));
            let sum = new_node("Add", &name, &[&product, &offsets], &[output], Vec::new());
            network.graph.node.push(sum);
        }
    }
    Ok(())
}
