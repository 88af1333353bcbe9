//! Files of older opsets: what they lack is written in other ways, or refused.

use std::{
    collections::{BTreeSet, HashMap},
    ops::RangeInclusive,
};

use phynexus::op::Composite;

use super::{
    graph,
    writer::{integer, integers},
};
use crate::{
    Element, Error, Result,
    proto::{GraphProto, NodeProto, TypeKind, ValueInfoProto},
};

/// The opsets that can be written.
pub(super) const OPSETS: RangeInclusive<i64> = 17..=21;

/// The version of the file format that came with an opset.
pub(super) fn file_version(opset: i64) -> i64 {
    match opset {
        ..=18 => 8,
        19 | 20 => 9,
        _ => 10,
    }
}

/// Whether composites stay whole: the opset has an operator for them. Others are exported by their bodies.
pub(super) fn keeps(composite: &Composite, opset: i64) -> bool {
    let since = match composite {
        Composite::Gelu(_) => 20,
        Composite::Mish(_) => 18,
        // Before, a group had one scale and bias for all of its channels.
        Composite::GroupNorm(_) => 21,
        _ => *OPSETS.start(),
    };
    opset >= since && graph::keeps(composite)
}

/// Changes a graph of opset 21 to an older one.
///
/// # Errors
/// If the older opset lacks an operator or an element type of one: the error names all of that.
pub(super) fn lower(graph: &mut GraphProto, opset: i64) -> Result<()> {
    let types = types(graph);
    let element = |name: &String| types.get(name).copied();
    let mut missing = BTreeSet::new();
    let mut nodes = Vec::with_capacity(graph.node.len());
    for mut node in std::mem::take(&mut graph.node) {
        let mut lacks = |what: String| {
            missing.insert(format!("{what} in opset {opset} (node {:?})", node.name));
        };
        match node.op_type.as_str() {
            "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "BitwiseNot" if opset < 18 => {
                lacks(node.op_type.clone());
            }
            "QuantizeLinear" | "DequantizeLinear" if opset < 21 => {
                let given = node.input.iter().chain(&node.output).filter_map(element);
                for kind in given.filter(|kind| matches!(kind, Element::Int16 | Element::Uint16)) {
                    lacks(format!("{} of {kind:?}", node.op_type));
                }
            }
            _ => {}
        }
        // Before opset 21, few operators took 8-bit floats, and before 19 none did.
        let small = node
            .input
            .iter()
            .chain(&node.output)
            .filter_map(element)
            .find(|kind| kind.bits() == 8 && is_float(*kind));
        let takes = matches!(
            node.op_type.as_str(),
            "Cast" | "Identity" | "Reshape" | "Shape" | "QuantizeLinear" | "DequantizeLinear"
        );
        if let Some(kind) = small.filter(|_| opset < 19 || opset < 21 && !takes) {
            lacks(format!("{} of {kind:?}", node.op_type));
        }
        match node.op_type.as_str() {
            "ReduceMax" | "ReduceMean" | "ReduceMin" | "ReduceProd" if opset < 18 => {
                match axes(graph, &node) {
                    Some(axes) => {
                        node.input.truncate(1);
                        node.attribute.push(integers("axes", axes));
                    }
                    None => lacks(format!("{} over axes that are computed", node.op_type)),
                }
            }
            "IsInf" if opset < 20 && node.input.first().and_then(element) == Some(Element::Float16) => {
                let wide = format!("{}_wide", node.name);
                nodes.push(NodeProto {
                    input: node.input.clone(),
                    output: vec![wide.clone()],
                    name: wide.clone(),
                    op_type: "Cast".to_owned(),
                    attribute: vec![integer("to", Element::Float as i64)],
                    ..NodeProto::default()
                });
                node.input = vec![wide];
            }
            _ => {}
        }
        nodes.push(node);
    }
    graph.node = nodes;
    if !missing.is_empty() {
        return Err(Error::Unsupported(missing.into_iter().collect()));
    }
    let read: BTreeSet<&String> = graph.node.iter().flat_map(|node| &node.input).collect();
    // Axes that became attributes; tensors with names of the network's state stay.
    let is_constant = |name: &str| name.starts_with("constant_");
    graph.initializer.retain(|tensor| !is_constant(&tensor.name) || read.contains(&tensor.name));
    Ok(())
}

fn is_float(element: Element) -> bool {
    element.dtype().is_some_and(|dtype| dtype.is_float())
}

/// The element types of a graph's values.
fn types(graph: &GraphProto) -> HashMap<String, Element> {
    let of_info = |info: &ValueInfoProto| match info.r#type.as_ref()?.value.as_ref()? {
        TypeKind::Tensor(tensor) => {
            Some((info.name.clone(), Element::of_number(i64::from(tensor.elem_type))?))
        }
        _ => None,
    };
    let infos = graph.input.iter().chain(&graph.output).chain(&graph.value_info).filter_map(of_info);
    let stored = graph.initializer.iter();
    let stored =
        stored.filter_map(|tensor| Some((tensor.name.clone(), Element::of_number(tensor.data_type.into())?)));
    infos.chain(stored).collect()
}

/// The axes of a reduction, which its second input stores.
fn axes(graph: &GraphProto, node: &NodeProto) -> Option<Vec<i64>> {
    let name = node.input.get(1)?;
    let stored = graph.initializer.iter().find(|tensor| tensor.name == *name)?;
    let number = |bytes: &[u8]| bytes.try_into().map(i64::from_le_bytes).ok();
    stored.raw_data.chunks(8).map(number).collect()
}
