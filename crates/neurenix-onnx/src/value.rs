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
    /// A tensor of floats that integers stand for.
    Dequantized(Arc<Dequantized>),
    /// A tensor of integers that stand for floats with a gradient.
    Quantized(Arc<Quantized>),
    /// A tensor of strings.
    Text(Text),
    /// A sequence. Its copies share the parts.
    Sequence(Arc<Vec<Value>>),
    /// A value or nothing.
    Optional(Option<Box<Value>>),
}

/// The result of `DequantizeLinear`: floats, and the integers that they come from. Operators with integer kernels read
/// the integers; all others read the floats, which are not computed unless something reads them.
#[derive(Clone, Debug)]
pub struct Dequantized {
    /// The floats, `(integers - zero_point) * scale`.
    pub tensor: Tensor,
    /// The integers, of the same shape.
    pub integers: Tensor,
    /// Their type, of at most 16 bits.
    pub element: Element,
    /// Whether the file has the integers, so that they are the same in every run.
    pub is_constant: bool,
    /// The numbers that they stand for.
    pub quantization: Quantization,
}

/// What relates integers to numbers: `number = (integer - zero_point) * scale`.
#[derive(Clone, Debug)]
pub struct Quantization {
    /// One number, or a vector with a number for each index of `axis`.
    pub scale: Tensor,
    /// The numbers of the scale, if they can be read without waiting.
    pub scales: Option<Arc<[f64]>>,
    /// The integers that stand for 0, like `scale`. Without them, 0 does.
    pub zero_point: Option<Tensor>,
    /// The number that all zero points are, if the file says so.
    pub zero: Option<i64>,
    /// The axis along which the scale and the zero point change.
    pub axis: Option<usize>,
}

/// The result of `QuantizeLinear` if gradients flow through it.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// The integers, or floats of few bits.
    pub tensor: Tensor,
    /// Their type.
    pub element: Element,
    /// What they were rounded from: numbers over the scale, plus the zero point. Those that do not round to a number of
    /// the type are limited to its range.
    pub steps: Tensor,
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
            Value::Dequantized(dequantized) => Ok(&dequantized.tensor),
            Value::Quantized(quantized) => Ok(&quantized.tensor),
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
            Value::Dequantized(dequantized) => Some(Element::of_dtype(dequantized.tensor.dtype())),
            Value::Quantized(quantized) => Some(quantized.element),
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
            Value::Tensor(_) | Value::Narrow(..) | Value::Dequantized(_) | Value::Quantized(_) => "a tensor",
            Value::Text(_) => "strings",
            Value::Sequence(_) => "a sequence",
            Value::Optional(Some(_)) => "an optional",
            Value::Optional(None) => "nothing",
        }
    }

    /// The value without what an integer kernel or a gradient needs: a tensor is [`Value::Tensor`] or
    /// [`Value::Narrow`].
    pub fn plain(self) -> Value {
        match self {
            Value::Dequantized(dequantized) => Value::Tensor(dequantized.tensor.clone()),
            Value::Quantized(quantized) => Value::of_element(quantized.tensor.clone(), quantized.element),
            Value::Sequence(parts) if parts.iter().any(Value::is_quantization) => {
                Value::Sequence(Arc::new(parts.iter().cloned().map(Value::plain).collect()))
            }
            Value::Optional(Some(inner)) => Value::Optional(Some(Box::new(inner.plain()))),
            other => other,
        }
    }

    fn is_quantization(&self) -> bool {
        match self {
            Value::Dequantized(_) | Value::Quantized(_) => true,
            Value::Optional(Some(inner)) => inner.is_quantization(),
            _ => false,
        }
    }

    /// The same value on a device. A tensor becomes [`plain`](Value::plain).
    ///
    /// # Errors
    /// If a copy fails.
    pub fn to_device(&self, device: Device) -> Result<Value> {
        Ok(match self {
            Value::Tensor(tensor) => Value::Tensor(tensor.to_device(device)?),
            Value::Narrow(tensor, element) => Value::Narrow(tensor.to_device(device)?, *element),
            Value::Dequantized(dequantized) => Value::Tensor(dequantized.tensor.to_device(device)?),
            Value::Quantized(quantized) => {
                Value::of_element(quantized.tensor.to_device(device)?, quantized.element)
            }
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
