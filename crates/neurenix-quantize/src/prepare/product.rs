//! Matrix products and their biases.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    edit::{Network, ValueType, floats as stored_floats, integer_of},
    proto::AttributeProto,
};

use super::floats;
use crate::Result;

/// Multiplies the stored weights and biases of `Gemm` by its factors `alpha` and `beta`, and gives biases the shape
/// `[outputs]` where they have one number for each output: integers have no factors.
pub(super) fn fold_factors(network: &mut Network) -> Result<()> {
    for at in 0..network.graph.node.len() {
        let node = network.graph.node[at].clone();
        if node.op_type != "Gemm" || !node.domain.is_empty() {
            continue;
        }
        let Some((shape, numbers)) = floats(network, node.input.get(1))? else { continue };
        let &[rows, columns] = &shape[..] else { continue };
        let outputs = if integer_of(&node, "transB", 0) != 0 { rows } else { columns };
        let bias = floats(network, node.input.get(2))?;
        let has_bias = node.input.get(2).is_some_and(|name| !name.is_empty());
        let (alpha, beta) = (factor(&node.attribute, "alpha"), factor(&node.attribute, "beta"));
        if has_bias && bias.is_none() {
            continue;
        }
        if alpha != 1.0 {
            let name = network.fresh(&format!("{}_scaled", node.input[1]));
            let scaled: Vec<f32> = numbers.iter().map(|x| alpha * x).collect();
            network.store(stored_floats(&name, &shape, &scaled));
            network.graph.node[at].input[1] = name;
        }
        if let Some((shape, numbers)) = bias {
            let fits = is_vector(&shape, numbers.len(), outputs);
            if beta != 1.0 || fits && shape != [outputs] {
                let name = network.fresh(&format!("{}_scaled", node.input[2]));
                let scaled = numbers.iter().map(|x| beta * x);
                let tensor = match fits {
                    true => {
                        let all: Vec<f32> = scaled.cycle().take(outputs).collect();
                        stored_floats(&name, &[outputs], &all)
                    }
                    false => stored_floats(&name, &shape, &scaled.collect::<Vec<_>>()),
                };
                network.store(tensor);
                network.graph.node[at].input[2] = name;
            }
        }
        network.graph.node[at]
            .attribute
            .retain(|attribute| !["alpha", "beta"].contains(&attribute.name.as_str()));
    }
    Ok(())
}

fn factor(attributes: &[AttributeProto], name: &str) -> f32 {
    attributes.iter().find(|attribute| attribute.name == name).map_or(1.0, AttributeProto::f)
}

/// Whether a tensor has one number for each of the outputs, or one for all, and no other axis.
fn is_vector(shape: &[usize], count: usize, outputs: usize) -> bool {
    (count == outputs && shape.last().is_none_or(|&last| last == outputs) || count == 1) && shape.len() <= 2
}

/// Makes `Gemm` of a `MatMul` of rank 2 by a stored matrix and the `Add` of a stored vector that follows.
pub(super) fn fuse_biases(
    network: &mut Network,
    types: &HashMap<String, ValueType>,
    excluded: &HashSet<String>,
) -> Result<()> {
    let links = network.links();
    let mut dropped = HashSet::new();
    for at in 0..network.graph.node.len() {
        let product = network.graph.node[at].clone();
        let is_matrix = |name: Option<&String>| {
            name.and_then(|name| types.get(name)).is_some_and(|known| known.shape.len() == 2)
        };
        if product.op_type != "MatMul" || !product.domain.is_empty() || !is_matrix(product.input.first()) {
            continue;
        }
        let Some((shape, _)) = floats(network, product.input.get(1))? else { continue };
        let (&[_, outputs], Some(value)) = (&shape[..], product.output.first()) else { continue };
        let Some(reader) = links.only_reader(value) else { continue };
        let sum = network.graph.node[reader].clone();
        let is_free = |name: &String| !excluded.contains(name);
        if sum.op_type != "Add"
            || !sum.domain.is_empty()
            || !is_free(&sum.name)
            || !is_free(&product.name)
            || dropped.contains(&reader)
        {
            continue;
        }
        let Some(other) = sum.input.iter().find(|name| *name != value) else { continue };
        let Some((shape, numbers)) = floats(network, Some(other))? else { continue };
        if !is_vector(&shape, numbers.len(), outputs) {
            continue;
        }
        let mut bias = other.clone();
        if shape != [outputs] {
            bias = network.fresh(&format!("{other}_vector"));
            let all: Vec<f32> = numbers.iter().copied().cycle().take(outputs).collect();
            network.store(stored_floats(&bias, &[outputs], &all));
        }
        let node = &mut network.graph.node[at];
        "Gemm".clone_into(&mut node.op_type);
        node.input.push(bias);
        node.output.clone_from(&sum.output);
        dropped.insert(reader);
    }
    network.remove_nodes(&dropped);
    Ok(())
}
