//! Biases as inputs of the nodes that they belong to, and `Gemm` for products with a matrix that is transposed first:
//! as other programs write linear layers and convolutions.

use std::collections::{HashMap, HashSet};

use crate::{
    Element, Result,
    edit::{Links, Network, integer_attribute, integer_of, integers_of},
    proto::{NodeProto, TypeKind},
};

/// Changes the nodes of a network that was written.
pub(super) fn fuse(network: &mut Network) -> Result<()> {
    let ranks = ranks(network);
    let links = network.links();
    let mut dropped = HashSet::new();
    for at in 0..network.graph.node.len() {
        let node = network.graph.node[at].clone();
        let changed = match node.op_type.as_str() {
            "Conv" | "ConvTranspose" if node.input.len() == 2 => convolution(network, &links, &node)?,
            "MatMul" => product(network, &links, &ranks, &node),
            _ => None,
        };
        if let Some(Changed { node, without }) = changed {
            network.graph.node[at] = node;
            dropped.extend(without);
        }
    }
    network.remove_nodes(&dropped);
    // A bias may be declared by a node that came after the layer.
    network.sort()?;
    network.prune();
    Ok(())
}

/// A node in another form, and a node that it makes superfluous.
struct Changed {
    node: NodeProto,
    without: Option<usize>,
}

/// The number of dimensions of values that are declared.
fn ranks(network: &Network) -> HashMap<String, usize> {
    let graph = &network.graph;
    let declared = graph.value_info.iter().chain(&graph.input).chain(&graph.output);
    let rank = |info: &crate::proto::ValueInfoProto| match info.r#type.as_ref()?.value.as_ref()? {
        TypeKind::Tensor(tensor) => Some((info.name.clone(), tensor.shape.as_ref()?.dim.len())),
        _ => None,
    };
    declared.filter_map(rank).collect()
}

/// The `Add` that alone reads this node's result, and its other operand.
fn addition<'n>(network: &'n Network, links: &Links, node: &NodeProto) -> Option<(usize, &'n str)> {
    let value = node.output.first()?;
    let at = links.only_reader(value)?;
    let sum = network.graph.node.get(at).filter(|sum| sum.op_type == "Add")?;
    let [a, b] = &sum.input[..] else { return None };
    (a != b).then_some((at, if a == value { b } else { a }))
}

/// A convolution with the vector that is added to its channels.
fn convolution(network: &Network, links: &Links, node: &NodeProto) -> Result<Option<Changed>> {
    let Some((at, other)) = addition(network, links, node) else { return Ok(None) };
    let Some(weight) = node.input.get(1).and_then(|name| network.stored(name)) else { return Ok(None) };
    let reshape = links.maker.get(other).and_then(|&maker| network.graph.node.get(maker));
    let Some([bias, shape]) = reshape.filter(|node| node.op_type == "Reshape").map(|node| &node.input[..])
    else {
        return Ok(None);
    };
    let Some(Ok(target)) =
        network.value(shape)?.map(|value| value.tensor()?.to_vec::<i64>().map_err(crate::Error::from))
    else {
        return Ok(None);
    };
    let Some(&[channels]) = network.stored(bias).map(|tensor| &tensor.dims[..]) else { return Ok(None) };
    let groups = integer_of(node, "group", 1);
    let outputs = match node.op_type.as_str() {
        "Conv" => weight.dims.first().copied(),
        _ => weight.dims.get(1).map(|each| each * groups),
    };
    // Counted from the end, the channels are before the spatial axes.
    let after = weight.dims.len().saturating_sub(2);
    let place = target.len().checked_sub(after + 1);
    let is_of_channels = place.is_some_and(|place| {
        target.iter().enumerate().all(|(axis, &size)| size == if axis == place { channels } else { 1 })
    });
    // With more dimensions than the result, the sum would have more, too.
    let is_wider = target.len() > weight.dims.len();
    if outputs != Some(channels) || !is_of_channels || is_wider {
        return Ok(None);
    }
    let mut node = node.clone();
    node.input.push(bias.clone());
    node.output.clone_from(&network.graph.node[at].output);
    Ok(Some(Changed { node, without: Some(at) }))
}

/// `Gemm` for a product of matrices of which the second is stored, with the vector that is added to its rows.
fn product(
    network: &Network,
    links: &Links,
    ranks: &HashMap<String, usize>,
    node: &NodeProto,
) -> Option<Changed> {
    let [x, matrix] = &node.input[..] else { return None };
    if ranks.get(x) != Some(&2) {
        return None;
    }
    let maker = links.maker.get(matrix).and_then(|&at| network.graph.node.get(at));
    let transposed =
        maker.filter(|node| node.op_type == "Transpose" && integers_of(node, "perm") == Some(&[1, 0]));
    let weight = transposed.and_then(|node| node.input.first()).unwrap_or(matrix);
    let stored = network.stored(weight)?;
    let &[rows, columns] = &stored.dims[..] else { return None };
    // Runtimes have `Gemm` for floats.
    Element::of_number(i64::from(stored.data_type))?.dtype().filter(|dtype| dtype.is_float())?;
    let outputs = if transposed.is_some() { rows } else { columns };
    let bias = addition(network, links, node)
        .filter(|(_, other)| network.stored(other).is_some_and(|tensor| tensor.dims == [outputs]));
    if bias.is_none() && transposed.is_none() {
        return None;
    }
    let mut node = node.clone();
    "Gemm".clone_into(&mut node.op_type);
    node.name = network.fresh(&node.name.replace("MatMul", "Gemm"));
    node.input[1].clone_from(weight);
    if transposed.is_some() {
        node.attribute.push(integer_attribute("transB", 1));
    }
    if let Some((at, bias)) = bias {
        node.input.push(bias.to_owned());
        node.output.clone_from(&network.graph.node[at].output);
    }
    Some(Changed { node, without: bias.map(|(at, _)| at) })
}
