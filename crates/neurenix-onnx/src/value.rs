//! The values that flow through an ONNX graph.

use std::sync::Arc;

use phynexus::{DType, Device, Tensor};

use crate::{Element, Error, Result};

/// A value of an ONNX graph.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor.
    Tensor(Tensor),
    /// A tensor of an element type that the engine lacks, such as `int4`. The tensor has [`Element::dtype`] and holds
    /// only values of the type.
    Narrow(Tensor, Element),
    /// A tensor of strings.
    Text(Text),
    /// A sequence. Its copies share the parts.
    Sequence(Arc<Vec<Value>>),
    /// A value or nothing.
    Optional(Option<Box<Value>>),
}

/// A tensor of strings in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    /// The extents.
    pub shape: Vec<usize>,
    /// The strings.
    pub values: Vec<String>,
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

impl Value {
    /// A sequence of these parts: tensors, strings or optionals.
    ///
    /// # Errors
    /// If a part is a sequence.
    pub fn of_parts(parts: Vec<Value>) -> Result<Value> {
        match parts.iter().any(|part| part.sequence().is_ok()) {
            true => Err(Error::invalid("a sequence cannot hold sequences")),
            false => Ok(Value::Sequence(Arc::new(parts))),
        }
    }

    /// A tensor of this element type, whose values `tensor` holds.
    pub fn of_element(tensor: Tensor, element: Element) -> Value {
        if element.is_narrow() { Value::Narrow(tensor, element) } else { Value::Tensor(tensor) }
    }

    /// The tensor, also of a narrow type.
    ///
    /// # Errors
    /// If it is not a tensor of numbers.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Value::Tensor(tensor) | Value::Narrow(tensor, _) => Ok(tensor),
            Value::Optional(Some(inner)) => inner.tensor(),
            other => Err(Error::invalid(format!("expected a tensor of numbers, got {}", other.kind()))),
        }
    }

    /// The strings.
    ///
    /// # Errors
    /// If it is not a tensor of strings.
    pub fn text(&self) -> Result<&Text> {
        match self {
            Value::Text(text) => Ok(text),
            Value::Optional(Some(inner)) => inner.text(),
            other => Err(Error::invalid(format!("expected strings, got {}", other.kind()))),
        }
    }

    /// The parts of a sequence.
    ///
    /// # Errors
    /// If it is not a sequence.
    pub fn sequence(&self) -> Result<&[Value]> {
        match self {
            Value::Sequence(parts) => Ok(parts),
            Value::Optional(Some(inner)) => inner.sequence(),
            other => Err(Error::invalid(format!("expected a sequence, got {}", other.kind()))),
        }
    }

    /// The element type of a tensor.
    pub fn element(&self) -> Option<Element> {
        match self {
            Value::Tensor(tensor) => Some(Element::of_dtype(tensor.dtype())),
            Value::Narrow(_, element) => Some(*element),
            Value::Text(_) => Some(Element::String),
            Value::Optional(Some(inner)) => inner.element(),
            Value::Sequence(_) | Value::Optional(None) => None,
        }
    }

    /// The shape of a tensor of numbers or strings.
    ///
    /// # Errors
    /// If it is not a tensor.
    pub fn shape(&self) -> Result<&[usize]> {
        match self {
            Value::Text(text) => Ok(&text.shape),
            other => Ok(other.tensor()?.shape()),
        }
    }

    /// In words.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Tensor(_) | Value::Narrow(..) => "a tensor",
            Value::Text(_) => "strings",
            Value::Sequence(_) => "a sequence",
            Value::Optional(Some(_)) => "an optional",
            Value::Optional(None) => "nothing",
        }
    }

    /// The same value on a device.
    ///
    /// # Errors
    /// If a copy fails.
    pub fn to_device(&self, device: Device) -> Result<Value> {
        Ok(match self {
            Value::Tensor(tensor) => Value::Tensor(tensor.to_device(device)?),
            Value::Narrow(tensor, element) => Value::Narrow(tensor.to_device(device)?, *element),
            Value::Text(text) => Value::Text(text.clone()),
            Value::Sequence(parts) => {
                let parts = parts.iter().map(|part| part.to_device(device)).collect::<Result<_>>()?;
                Value::Sequence(Arc::new(parts))
            }
            Value::Optional(inner) => Value::Optional(match inner {
                Some(inner) => Some(Box::new(inner.to_device(device)?)),
                None => None,
            }),
        })
    }
}

/// The numbers of a tensor of integers or booleans.
pub(crate) fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    if tensor.dtype().is_float() {
        return Err(Error::invalid(format!("expected integers, got {}", tensor.dtype())));
    }
    Ok(tensor.to_dtype(DType::I64)?.to_vec::<i64>()?)
}

/// The numbers of a tensor.
pub(crate) fn floats(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.to_dtype(DType::F64)?.to_vec::<f64>()?)
}
