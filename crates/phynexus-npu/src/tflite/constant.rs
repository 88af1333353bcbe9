//! Constants of a network, and how values are quantized.

use neurenix_onnx::{Element, edit::integer_of, proto::NodeProto};
use phynexus::DType;

use super::{
    graph::Quantization,
    port::shift,
    schema::Kind,
    writer::{Scheme, Writer, plain_kind, refusal},
};
use crate::Result;

/// A constant of the network.
pub(crate) struct Constant {
    pub(crate) shape: Vec<usize>,
    pub(crate) numbers: Numbers,
}

/// The elements of a constant.
pub(crate) enum Numbers {
    Floats(Vec<f32>),
    Integers(Vec<i64>, Kind),
    Quantized(Vec<i64>, Scheme),
}

impl Constant {
    /// The real numbers that it stands for.
    pub(crate) fn real(&self) -> Vec<f64> {
        match &self.numbers {
            Numbers::Floats(numbers) => numbers.iter().map(|&x| x.into()).collect(),
            Numbers::Integers(numbers, _) => numbers.iter().map(|&x| x as f64).collect(),
            Numbers::Quantized(numbers, scheme) => {
                let Quantization { scales, zeros, axis } = &scheme.quantization;
                let inner: usize = self.shape.iter().skip(axis + 1).product();
                let real = |(at, &q): (usize, &i64)| {
                    let channel = at / inner.max(1) % scales.len();
                    (q - zeros[channel]) as f64 * f64::from(scales[channel])
                };
                numbers.iter().enumerate().map(real).collect()
            }
        }
    }
}

impl Writer<'_> {
    /// A stored tensor, or one that `DequantizeLinear` makes of a stored one.
    pub(crate) fn constant(&self, value: &str) -> Result<Option<Constant>> {
        if let Some(stored) = self.network.value(value)? {
            let shape = stored.shape()?.to_vec();
            self.check_size(value, &shape)?;
            let element = stored.element().unwrap_or(Element::String);
            let tensor = stored.tensor()?;
            let numbers = match element {
                Element::Float => Numbers::Floats(tensor.to_vec::<f32>()?),
                _ => {
                    let kind = plain_kind(element)
                        .ok_or_else(|| self.refuse(format!("{value:?} is of type {element:?}")))?;
                    Numbers::Integers(tensor.to_dtype(DType::I64)?.to_vec::<i64>()?, kind)
                }
            };
            return Ok(Some(Constant { shape, numbers }));
        }
        let Some(&maker) = self.links.maker.get(value) else { return Ok(None) };
        let node = &self.network.graph.node[maker];
        let source = node.input.first().map(String::as_str).unwrap_or_default();
        let stored = match node.op_type.as_str() {
            "DequantizeLinear" => self.network.value(source)?,
            _ => None,
        };
        let Some(stored) = stored else { return Ok(None) };
        self.check_size(source, stored.shape()?)?;
        let element = stored.element().unwrap_or(Element::String);
        let scheme = self.scheme(node, element)?;
        let shift = shift(element);
        let integers = stored.tensor()?.to_dtype(DType::I64)?.to_vec::<i64>()?;
        let integers = integers.into_iter().map(|q| q - shift).collect();
        Ok(Some(Constant { shape: stored.shape()?.to_vec(), numbers: Numbers::Quantized(integers, scheme) }))
    }

    /// How a node that quantizes or dequantizes does it; `element` is the quantized type.
    pub(crate) fn scheme(&self, node: &NodeProto, element: Element) -> Result<Scheme> {
        let refuse = |why: String| refusal(&format!("{} ({}): {why}", node.name, node.op_type));
        let kind = match element {
            Element::Int8 | Element::Uint8 | Element::Int4 | Element::Uint4 => Kind::I8,
            Element::Int16 | Element::Uint16 => Kind::I16,
            Element::Int32 => Kind::I32,
            other => return Err(refuse(format!("TFLite does not quantize to {other:?}"))),
        };
        let input = |position: usize| node.input.get(position).filter(|name| !name.is_empty());
        let scale = input(1).map(|name| self.network.floats(name)).transpose()?.flatten();
        let (shape, scales) = scale.ok_or_else(|| refuse("the scale is not a stored float32".to_owned()))?;
        if shape.len() > 1 {
            return Err(refuse("scales by block have no form in TFLite".to_owned()));
        }
        let zeros = match input(2) {
            None => vec![0; scales.len()],
            Some(name) => {
                let value = self.network.value(name)?;
                let value = value.ok_or_else(|| refuse("the zero point is not stored".to_owned()))?;
                value.tensor()?.to_dtype(DType::I64)?.to_vec::<i64>()?
            }
        };
        if zeros.len() != scales.len() || scales.is_empty() {
            return Err(refuse(format!("{} scales, {} zero points", scales.len(), zeros.len())));
        }
        let zeros: Vec<i64> = zeros.into_iter().map(|zero| zero - shift(element)).collect();
        if kind == Kind::I16 && zeros.iter().any(|&zero| zero != 0) {
            return Err(refuse("16 bits are symmetric in TFLite; quantize symmetrically".to_owned()));
        }
        let given = integer_of(node, "axis", 1);
        let value = node.output.first().map(String::as_str).unwrap_or_default();
        let rank = self.types.get(value).map_or(0, |value| value.shape.len());
        let axis = if given < 0 { given + rank as i64 } else { given };
        let axis = if scales.len() == 1 { 0 } else { axis.max(0) as usize };
        Ok(Scheme { kind, quantization: Quantization { scales, zeros, axis } })
    }

    /// How all readers of a value quantize it, if they do so alike and nothing else reads it.
    pub(crate) fn quantized_by_readers(&self, value: &str) -> Option<Scheme> {
        let readers = self.links.readers.get(value).filter(|_| !self.links.kept.contains(value))?;
        let mut schemes = readers.iter().map(|&(at, _)| {
            let node = &self.network.graph.node[at];
            let element = self.types.get(node.output.first()?)?.element;
            let scheme = (node.op_type == "QuantizeLinear").then(|| self.scheme(node, element).ok())??;
            scheme.quantization.single().map(|_| scheme)
        });
        let first = schemes.next()??;
        schemes.all(|scheme| scheme.as_ref() == Some(&first)).then_some(first)
    }

    /// The limits of a `Clip` that are constant.
    pub(crate) fn limits(&self, node: &NodeProto) -> Result<Option<(f32, f32)>> {
        let limit = |position: usize, attribute: &str, default: f32| -> Result<Option<f32>> {
            let old = node.attribute.iter().find(|known| known.name == attribute).map(|known| known.f());
            match node.input.get(position).filter(|name| !name.is_empty()) {
                None => Ok(Some(old.unwrap_or(default))),
                Some(name) => Ok(self.constant(name)?.and_then(|c| c.real().first().map(|&x| x as f32))),
            }
        };
        let (least, most) = (limit(1, "min", f32::NEG_INFINITY)?, limit(2, "max", f32::INFINITY)?);
        Ok(least.zip(most))
    }

    /// The integers of a constant input; `None` if the input is missing.
    pub(crate) fn constant_input(&self, position: usize) -> Result<Option<Vec<i64>>> {
        let Some(name) = self.name(position) else { return Ok(None) };
        match self.constant(name)?.map(|constant| constant.numbers) {
            Some(Numbers::Integers(numbers, _)) => Ok(Some(numbers)),
            _ => Err(self.refuse(format!("{name:?} is not a constant of integers"))),
        }
    }
}
