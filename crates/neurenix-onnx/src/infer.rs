//! The types of a file's values, without its weights.

use std::collections::BTreeSet;

use phynexus::Device;

use crate::{
    Error, Result,
    build::Builder,
    data::Reader,
    proto::{
        DimensionKind, FunctionProto, GraphProto, ModelProto, OperatorSetIdProto, TensorProto,
        TensorShapeProto, TensorTypeProto, TypeKind, TypeProto, ValueInfoProto,
    },
    shapes::{SMALL, types},
    types::Types,
};

/// The type of every value of a network. Operators that are not known give unknown types.
///
/// The tensors of the file are not read, except for small ones, which may be shapes.
/// Extents take sizes to be at least what slices and pads remove from them. Errors do not.
///
/// # Errors
/// If the file is not valid, or no sizes of the inputs could make a node work: then the error names the node.
pub fn infer(network: &ModelProto) -> Result<Types> {
    let graph = network.graph.as_ref().ok_or_else(|| Error::invalid("the file has no graph"))?;
    infer_graph(graph, &network.opset_import, &network.functions)
}

/// [`infer`] for the parts of a file.
pub(crate) fn infer_graph(
    graph: &GraphProto,
    opsets: &[OperatorSetIdProto],
    functions: &[FunctionProto],
) -> Result<Types> {
    let reader = Reader { folder: None, device: Device::find("cpu")? };
    types(&Builder::new(reader, functions).graph(&without_weights(graph), opsets)?, &[])
}

/// The graph with large tensors as inputs: their elements do not matter for types.
pub(crate) fn without_weights(graph: &GraphProto) -> GraphProto {
    let is_small = |tensor: &&TensorProto| {
        let count = tensor.dims.iter().try_fold(1i64, |count, &size| count.checked_mul(size));
        tensor.external_data.is_empty() && count.is_some_and(|count| (0..=SMALL as i64).contains(&count))
    };
    let (small, large): (Vec<&TensorProto>, Vec<&TensorProto>) = graph.initializer.iter().partition(is_small);
    let names: BTreeSet<&str> = large.iter().map(|tensor| tensor.name.as_str()).collect();
    let mut input: Vec<ValueInfoProto> =
        graph.input.iter().filter(|input| !names.contains(input.name.as_str())).cloned().collect();
    input.extend(large.into_iter().map(stored_type));
    GraphProto {
        node: graph.node.clone(),
        name: graph.name.clone(),
        initializer: small.into_iter().cloned().collect(),
        input,
        output: graph.output.clone(),
        value_info: graph.value_info.clone(),
        sparse_initializer: graph.sparse_initializer.clone(),
    }
}

/// A stored tensor's type.
fn stored_type(tensor: &TensorProto) -> ValueInfoProto {
    let dim = tensor
        .dims
        .iter()
        .map(|&size| crate::proto::DimensionProto { value: Some(DimensionKind::Value(size)) });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let kind = TypeKind::Tensor(TensorTypeProto { elem_type: tensor.data_type, shape });
    ValueInfoProto { name: tensor.name.clone(), r#type: Some(TypeProto { value: Some(kind) }) }
}
