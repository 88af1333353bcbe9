//! Messages of files: tensors, nodes, attributes, declarations.

use phynexus::Tensor;

use crate::{
    Element, Result,
    proto::{
        AttributeProto, DimensionKind, DimensionProto, NodeProto, TensorProto, TensorShapeProto,
        TensorTypeProto, TypeKind, TypeProto, ValueInfoProto, attribute_type,
    },
};

/// A tensor of the engine under this name.
///
/// # Errors
/// If its elements cannot be read.
pub fn stored(name: &str, tensor: &Tensor) -> Result<TensorProto> {
    Ok(TensorProto {
        dims: tensor.shape().iter().map(|&size| size as i64).collect(),
        data_type: Element::of_dtype(tensor.dtype()) as i32,
        name: name.to_owned(),
        raw_data: tensor.to_bytes()?,
        ..Default::default()
    })
}

/// A tensor of `float32` under this name.
pub fn floats(name: &str, shape: &[usize], numbers: &[f32]) -> TensorProto {
    TensorProto {
        dims: shape.iter().map(|&size| size as i64).collect(),
        data_type: Element::Float as i32,
        name: name.to_owned(),
        raw_data: numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
        ..Default::default()
    }
}

/// A tensor of integers of at most 64 bits, of `element`, which holds them; those of 4 and 2 bits are packed.
pub fn integers(name: &str, element: Element, shape: &[usize], numbers: &[i64]) -> TensorProto {
    let bits = element.bits();
    let raw_data = match bits < 8 {
        false => numbers.iter().flat_map(|x| x.to_le_bytes()[..bits / 8].to_vec()).collect(),
        true => {
            let byte = |group: &[i64]| {
                let at =
                    |(place, x): (usize, &i64)| (((*x as u64) & ((1 << bits) - 1)) << (place * bits)) as u8;
                group.iter().enumerate().map(at).fold(0, |byte, part| byte | part)
            };
            numbers.chunks(8 / bits).map(byte).collect()
        }
    };
    TensorProto {
        dims: shape.iter().map(|&size| size as i64).collect(),
        data_type: element as i32,
        name: name.to_owned(),
        raw_data,
        ..Default::default()
    }
}

/// A node of ONNX's own operators. An empty input is left out.
pub fn node(
    operator: &str,
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
) -> NodeProto {
    let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect();
    NodeProto {
        input: names(inputs),
        output: names(outputs),
        name: name.to_owned(),
        op_type: operator.to_owned(),
        attribute: attributes,
        ..Default::default()
    }
}

/// An attribute that is an integer.
pub fn integer_attribute(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        i: Some(value),
        r#type: attribute_type::INT,
        ..Default::default()
    }
}

/// An attribute that is a list of integers.
pub fn integers_attribute(name: &str, values: Vec<i64>) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ints: values, r#type: attribute_type::INTS, ..Default::default() }
}

/// An attribute that is a float, rounded to `float32`.
pub fn float_attribute(name: &str, value: f64) -> AttributeProto {
    let f = Some(value as f32);
    AttributeProto { name: name.to_owned(), f, r#type: attribute_type::FLOAT, ..Default::default() }
}

/// An attribute that is a string.
pub fn text_attribute(name: &str, value: &str) -> AttributeProto {
    let s = value.as_bytes().to_vec();
    AttributeProto { name: name.to_owned(), s, r#type: attribute_type::STRING, ..Default::default() }
}

/// An attribute that is a list of strings.
pub fn texts_attribute(name: &str, values: &[&str]) -> AttributeProto {
    let strings = values.iter().map(|value| value.as_bytes().to_vec()).collect();
    AttributeProto { name: name.to_owned(), strings, r#type: attribute_type::STRINGS, ..Default::default() }
}

/// The declaration of an input or output of fixed shape.
pub fn info(name: &str, element: Element, shape: &[usize]) -> ValueInfoProto {
    let dim = |&size: &usize| DimensionProto { value: Some(DimensionKind::Value(size as i64)) };
    let shape = TensorShapeProto { dim: shape.iter().map(dim).collect() };
    let tensor = TensorTypeProto { elem_type: element as i32, shape: Some(shape) };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto { value: Some(TypeKind::Tensor(tensor)) }),
    }
}

/// An integer attribute of a node, or its default.
pub fn integer_of(node: &NodeProto, name: &str, default: i64) -> i64 {
    node.attribute.iter().find(|attribute| attribute.name == name).map_or(default, AttributeProto::i)
}

/// A list of integers among a node's attributes.
pub fn integers_of<'n>(node: &'n NodeProto, name: &str) -> Option<&'n [i64]> {
    node.attribute.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.ints[..])
}
