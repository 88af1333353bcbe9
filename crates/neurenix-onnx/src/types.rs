//! Types of values before a network runs: element types and extents, which may be symbols and expressions of them.

mod size;

use std::collections::{BTreeMap, HashMap};

pub use self::size::Size;
use crate::{
    Element,
    proto::{DimensionKind, TypeKind, TypeProto, ValueInfoProto},
};

/// An extent of an input or output.
#[derive(Clone, Debug, PartialEq)]
pub enum Extent {
    /// A number.
    Fixed(usize),
    /// A name, such as `batch`, or an expression of names, such as `4*batch`. Extents of one name are equal.
    Symbol(String),
    /// The file does not say.
    Unknown,
}

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
