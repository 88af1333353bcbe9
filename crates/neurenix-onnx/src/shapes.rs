//! Element types and extents of the values of a network, before it runs.
//!
//! Extents may be symbols of the file, such as `batch`, and expressions of them. Numbers that a network computes from
//! extents (`Shape`, `Gather`, `Concat`, `Mul`, ...) are followed, too, so that a `Reshape` to them has known extents.

mod control;
mod elementwise;
mod fact;
mod image;
mod layers;
mod movement;
mod numbers;
mod reductions;
mod selection;
mod sequences;
mod signal;
mod site;
mod size;
mod walk;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use phynexus::Device;

pub use self::size::Size;
use self::{fact::Known, walk::Inference};
use crate::{
    Element, Error, Extent, Result, Value,
    build::Builder,
    data::Reader,
    graph::Graph,
    proto::{
        DimensionKind, FunctionProto, GraphProto, ModelProto, OperatorSetIdProto, TensorProto,
        TensorShapeProto, TensorTypeProto, TypeKind, TypeProto, ValueInfoProto,
    },
};

/// The types of a network's values, by name; without those within branches, loops and functions.
pub type Types = BTreeMap<String, Type>;

/// The type of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// A tensor.
    Tensor {
        /// The element type; `None` if it is not known.
        element: Option<Element>,
        /// The extents; `None` if their number is not known.
        shape: Option<Vec<Option<Size>>>,
    },
    /// A sequence of values of a type.
    Sequence(Box<Type>),
    /// A value of a type, or nothing.
    Optional(Box<Type>),
    /// Nothing is known of the value.
    Unknown,
}

impl Type {
    /// The element type of a tensor, if it is known.
    pub fn element(&self) -> Option<Element> {
        match self {
            Type::Tensor { element, .. } => *element,
            _ => None,
        }
    }

    /// The extents of a tensor as those of inputs and outputs, if their number is known.
    pub fn extents(&self) -> Option<Vec<Extent>> {
        let Type::Tensor { shape, .. } = self else { return None };
        let extent = |size: &Option<Size>| match size {
            Some(size) => match (size.as_number(), size.as_extent()) {
                (_, Some(extent)) => Extent::Fixed(extent),
                (Some(_), None) => Extent::Unknown,
                (None, _) => Extent::Symbol(size.to_string()),
            },
            None => Extent::Unknown,
        };
        Some(shape.as_ref()?.iter().map(extent).collect())
    }

    /// The extents of a tensor, if all are numbers.
    pub fn fixed(&self) -> Option<Vec<usize>> {
        let Type::Tensor { shape, .. } = self else { return None };
        shape.as_ref()?.iter().map(|size| size.as_ref()?.as_extent()).collect()
    }

    /// What a file declares.
    fn declared(proto: &TypeProto) -> Type {
        let inner = |element: &crate::proto::ElementTypeProto| {
            Box::new(element.elem_type.as_deref().map_or(Type::Unknown, Type::declared))
        };
        match &proto.value {
            Some(TypeKind::Tensor(tensor) | TypeKind::SparseTensor(tensor)) => {
                let size = |dimension: &crate::proto::DimensionProto| match &dimension.value {
                    Some(DimensionKind::Value(size)) if *size >= 0 => Some(Size::number(*size)),
                    Some(DimensionKind::Parameter(name)) if !name.is_empty() => Some(Size::symbol(name)),
                    _ => None,
                };
                let shape = tensor.shape.as_ref().map(|shape| shape.dim.iter().map(size).collect());
                Type::Tensor { element: Element::of_number(i64::from(tensor.elem_type)), shape }
            }
            Some(TypeKind::Sequence(element)) => Type::Sequence(inner(element)),
            Some(TypeKind::Optional(element)) => Type::Optional(inner(element)),
            None => Type::Unknown,
        }
    }
}

/// The declared types of these values, by name.
pub(crate) fn declared<'a>(infos: impl Iterator<Item = &'a ValueInfoProto>) -> HashMap<String, Type> {
    infos
        .filter_map(|info| Some((info.name.clone(), Type::declared(info.r#type.as_ref()?))))
        .filter(|(_, known)| *known != Type::Unknown)
        .collect()
}

/// The type of every value of a network. Operators that are not known give unknown types.
///
/// The tensors of the file are not read, except for small ones, which may be shapes.
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

/// The most elements of a tensor whose numbers are followed.
const SMALL: usize = 256;

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

/// The types of a graph's values. `stored` are the tensors of the file that are not part of it.
pub(crate) fn types(graph: &Graph, stored: &[(String, Value)]) -> Result<Types> {
    Inference::new().whole(graph, stored)
}

/// The types of what a body computes for such inputs, without running it. What the body declares of its outputs is all
/// that is known if it cannot run for these. `outer` has the values around it.
pub(crate) fn of_body<'v>(
    graph: &Graph,
    inputs: &[Value],
    outer: impl Fn(&str) -> Option<&'v Value>,
) -> Vec<Type> {
    let known = |value: &Value| Known::of_value(value).without_numbers();
    let free = graph.free.iter().filter_map(|name| Some((name.as_str(), known(outer(name)?))));
    match Inference::new().body(graph, inputs.iter().map(known).collect(), free.collect()) {
        Ok(types) => types,
        Err(_) => {
            let declared = |name: &String| graph.declared.get(name).cloned().unwrap_or(Type::Unknown);
            graph.outputs.iter().map(declared).collect()
        }
    }
}
