//! The borders of a file: what goes into and comes out of its graph.

use neurenix_onnx::{Element, edit::ValueType};
use phynexus::{DType, Device, Tensor};

use super::{
    graph::{Quantization, Stored},
    layout::Layout,
    schema::Kind,
};
use crate::{Error, Result};

/// An input or output of the network, and its tensor in the file.
///
/// The file may hold it quantized while the network has real numbers, and with its channels last.
#[derive(Clone, Debug)]
pub struct Port {
    /// The name in the network.
    pub name: String,
    /// The type and extents in the network.
    pub value: ValueType,
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<i32>,
    pub(crate) layout: Layout,
    pub(crate) quantization: Option<(f32, i64)>,
}

impl Port {
    pub(crate) fn new(name: &str, value: &ValueType, tensor: &Stored, layout: &Layout) -> Port {
        Port {
            name: name.to_owned(),
            value: value.clone(),
            kind: tensor.kind,
            shape: tensor.shape.clone(),
            layout: layout.clone(),
            quantization: tensor.quantization.as_ref().and_then(Quantization::single),
        }
    }

    /// The extents in the file.
    pub fn shape(&self) -> &[i32] {
        &self.shape
    }

    /// The bytes of the tensor in the file.
    pub fn bytes(&self) -> usize {
        self.value.shape.iter().product::<usize>() * self.kind.size()
    }

    /// The bytes of the file's tensor for a value of the network, which is on the CPU.
    ///
    /// Real numbers become `clamp(round(x / scale) + zero)`, rounded half to even, as `QuantizeLinear` defines.
    ///
    /// # Errors
    /// If the value has another type or shape.
    pub fn encode(&self, value: &Tensor) -> Result<Vec<u8>> {
        if Element::of_dtype(value.dtype()) != self.value.element || value.shape() != self.value.shape {
            let (name, expected) = (&self.name, &self.value);
            return Err(Error::Invalid(format!(
                "{name}: expected {:?} {:?}, got {:?} {:?}",
                expected.element,
                expected.shape,
                value.dtype(),
                value.shape()
            )));
        }
        match (self.kind, self.quantization) {
            (Kind::F32, _) => {
                let numbers = self.layout.to_stored(&value.to_vec::<f32>()?, &self.value.shape);
                Ok(numbers.into_iter().flat_map(f32::to_le_bytes).collect())
            }
            (kind, Some((scale, zero))) if self.value.element == Element::Float => {
                let (least, most) = kind.range();
                let quantize =
                    |x: f32| ((x / scale).round_ties_even() as f64 + zero as f64).clamp(least, most);
                let numbers = self.layout.to_stored(&value.to_vec::<f32>()?, &self.value.shape);
                Ok(kind.bytes(numbers.into_iter().map(|x| quantize(x) as i64)))
            }
            (kind, _) => {
                let numbers = value.to_dtype(DType::I64)?.to_vec::<i64>()?;
                let numbers = self.layout.to_stored(&numbers, &self.value.shape);
                let shift = shift(self.value.element);
                Ok(kind.bytes(numbers.into_iter().map(|number| number - shift)))
            }
        }
    }

    /// The value of the network that these bytes of the file's tensor stand for, on the CPU.
    ///
    /// # Errors
    /// If their number is wrong.
    pub fn decode(&self, bytes: &[u8]) -> Result<Tensor> {
        let count: usize = self.value.shape.iter().product();
        let bytes = bytes.get(..count * self.kind.size()).ok_or_else(|| {
            Error::Invalid(format!("{}: the runtime returned {} bytes", self.name, bytes.len()))
        })?;
        let device = Device::find("cpu")?;
        let shape = &self.value.shape;
        if self.kind == Kind::F32 {
            let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
            return Ok(Tensor::from_slice(&self.layout.to_network(&numbers, shape), shape, device)?);
        }
        let integers: Vec<i64> = bytes.chunks_exact(self.kind.size()).map(integer).collect();
        let integers = self.layout.to_network(&integers, shape);
        if let (Some((scale, zero)), Element::Float) = (self.quantization, self.value.element) {
            let numbers: Vec<f32> = integers.iter().map(|&q| (q - zero) as f32 * scale).collect();
            return Ok(Tensor::from_slice(&numbers, shape, device)?);
        }
        let shift = shift(self.value.element);
        let integers: Vec<i64> = integers.iter().map(|q| q + shift).collect();
        let dtype = Element::dtype(self.value.element).unwrap_or(DType::I64);
        Ok(Tensor::from_slice(&integers, shape, device)?.to_dtype(dtype)?)
    }
}

/// What unsigned types are moved by to be signed.
pub(crate) fn shift(element: Element) -> i64 {
    match element {
        Element::Uint8 => 128,
        Element::Uint16 => 1 << 15,
        _ => 0,
    }
}

/// A signed integer of at most 8 bytes, little-endian.
pub(crate) fn integer(bytes: &[u8]) -> i64 {
    let sign = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut whole = if sign { [0xff; 8] } else { [0; 8] };
    whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    i64::from_le_bytes(whole)
}
