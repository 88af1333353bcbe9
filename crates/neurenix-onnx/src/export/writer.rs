//! The file that is being written: nodes, tensors, and the values between them.

use std::collections::{BTreeSet, HashMap, HashSet};

use phynexus::{DType, Scalar, Tensor, dtype::scalar_bytes};
use prost::Message;

use super::{
    graph::Extent,
    lower::lower,
    opset,
    symbols::{Symbols, varies},
};
pub(super) use crate::edit::{
    float_attribute as float, integer_attribute as integer, integers_attribute as integers,
    text_attribute as text, texts_attribute as texts,
};
use crate::{
    Element, Error, Result,
    proto::{
        AttributeProto, DimensionProto, GraphProto, NodeProto, TensorProto, TensorShapeProto,
        TensorTypeProto, TypeKind, TypeProto, ValueInfoProto,
    },
};

/// Extents above this make a tensor of indices that is computed rather than stored.
pub(super) const STORED_INDICES: i64 = 4096;

/// A value between nodes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    /// Its number.
    pub(super) id: usize,
    pub(super) dtype: DType,
    pub(super) shape: Vec<Extent>,
}

/// A node that is wanted, with the dtypes and shapes of its outputs.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operator: &'static str,
    pub(super) inputs: Vec<Option<Value>>,
    pub(super) attributes: Vec<AttributeProto>,
    pub(super) outputs: Vec<(DType, Vec<Extent>)>,
}

/// A node before values have names.
#[derive(Debug)]
struct Draft {
    operator: &'static str,
    inputs: Vec<Option<usize>>,
    outputs: Vec<usize>,
    attributes: Vec<AttributeProto>,
}

/// A node's operator, inputs, attributes, and how many outputs it has.
type Key = (&'static str, Vec<Option<usize>>, Vec<u8>, usize);

/// The elements of a tensor in the file.
#[derive(Debug)]
enum Stored {
    Tensor(Tensor),
    Bytes(Vec<u8>),
}

/// Nodes, tensors and values.
#[derive(Debug)]
pub(super) struct Writer {
    /// Dtype, shape, and the name if it has one already.
    values: Vec<(DType, Vec<Extent>, Option<String>)>,
    drafts: Vec<Draft>,
    tensors: Vec<(usize, Stored)>,
    inputs: Vec<usize>,
    /// Nodes that are there already, by what they compute.
    made: HashMap<Key, Vec<usize>>,
    constants: HashMap<(DType, Vec<Extent>, Vec<u8>), usize>,
    pub(super) symbols: Symbols,
    opset: i64,
    /// What the opset lacks of what the network needs.
    lacking: BTreeSet<String>,
}

/// The shape of operands that are broadcast against each other.
pub(super) fn broadcast(shapes: &[&[Extent]]) -> Vec<Extent> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let extent = |back: usize| {
        let all = shapes.iter().filter_map(|shape| shape.len().checked_sub(back).map(|axis| shape[axis]));
        all.fold([1, 1], |extent, other| if extent == [1, 1] { other } else { extent })
    };
    (1..=rank).rev().map(extent).collect()
}

impl Writer {
    pub(super) fn new(symbols: Symbols, opset: i64) -> Writer {
        Writer {
            values: Vec::new(),
            drafts: Vec::new(),
            tensors: Vec::new(),
            inputs: Vec::new(),
            made: HashMap::new(),
            constants: HashMap::new(),
            symbols,
            opset,
            lacking: BTreeSet::new(),
        }
    }

    /// Whether the file's opset has the operator.
    pub(super) fn has(&self, operator: &str) -> bool {
        opset::has(operator, self.opset)
    }

    /// What the opset lacks of what was written, which it takes.
    pub(super) fn take_lacking(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.lacking)
    }

    fn value(&mut self, dtype: DType, shape: Vec<Extent>, name: Option<String>) -> Value {
        self.lacking.extend(opset::missing_dtype(dtype, self.opset));
        let id = self.values.len();
        self.values.push((dtype, shape.clone(), name));
        Value { id, dtype, shape }
    }

    /// An input of the network.
    pub(super) fn input(&mut self, name: &str, dtype: DType, shape: Vec<Extent>) -> Value {
        let value = self.value(dtype, shape, Some(name.to_owned()));
        self.inputs.push(value.id);
        self.symbols.see(&value);
        value
    }

    /// A tensor of the file, with this name if there is one.
    pub(super) fn tensor(&mut self, name: Option<&str>, tensor: &Tensor) -> Value {
        let shape = tensor.shape().iter().map(|&size| [size as i64; 2]).collect();
        let value = self.value(tensor.dtype(), shape, name.map(str::to_owned));
        self.tensors.push((value.id, Stored::Tensor(tensor.clone())));
        value
    }

    /// A small tensor of the file.
    pub(super) fn constant(&mut self, dtype: DType, shape: &[i64], numbers: &[Scalar]) -> Value {
        let bytes: Vec<u8> = numbers.iter().flat_map(|&number| scalar_bytes(number, dtype)).collect();
        let shape: Vec<Extent> = shape.iter().map(|&size| [size; 2]).collect();
        if let Some(&id) = self.constants.get(&(dtype, shape.clone(), bytes.clone())) {
            return Value { id, dtype, shape };
        }
        let value = self.value(dtype, shape.clone(), None);
        self.constants.insert((dtype, shape, bytes.clone()), value.id);
        self.tensors.push((value.id, Stored::Bytes(bytes)));
        value
    }

    /// A number, of no dimensions.
    pub(super) fn scalar(&mut self, dtype: DType, number: impl Into<Scalar>) -> Value {
        self.constant(dtype, &[], &[number.into().cast(dtype)])
    }

    /// A vector of `int64`.
    pub(super) fn vector(&mut self, numbers: &[i64]) -> Value {
        let scalars: Vec<Scalar> = numbers.iter().map(|&number| Scalar::Int(number)).collect();
        self.constant(DType::I64, &[numbers.len() as i64], &scalars)
    }

    /// The numbers of a stored vector of `int64`.
    pub(super) fn numbers(&self, value: &Value) -> Option<Vec<i64>> {
        let (_, stored) = self.tensors.iter().find(|(id, _)| *id == value.id)?;
        let Stored::Bytes(bytes) = stored else { return None };
        let number = |bytes: &[u8]| bytes.try_into().map(i64::from_le_bytes).ok();
        bytes.chunks(8).map(number).collect()
    }

    /// A value that stands for one that cannot be computed.
    pub(super) fn missing(&mut self, dtype: DType, shape: &[Extent]) -> Value {
        self.value(dtype, shape.to_vec(), None)
    }

    /// A node with several outputs, or with inputs that are left out. Equal nodes are there once. What the opset lacks
    /// is written in another way, or refused at the end.
    pub(super) fn nodes(
        &mut self,
        operator: &'static str,
        inputs: &[Option<&Value>],
        attributes: Vec<AttributeProto>,
        outputs: Vec<(DType, Vec<Extent>)>,
    ) -> Vec<Value> {
        let inputs = inputs.iter().map(|input| input.cloned()).collect();
        let request = Request { operator, inputs, attributes, outputs };
        if let Some(what) = opset::missing(&request, self.opset) {
            if let Some(values) = lower(self, &request) {
                return values;
            }
            self.lacking.insert(what);
        }
        let Request { operator, inputs, attributes, outputs } = request;
        let ids: Vec<Option<usize>> =
            inputs.iter().map(|input| input.as_ref().map(|value| value.id)).collect();
        let bytes = attributes.iter().flat_map(Message::encode_length_delimited_to_vec).collect();
        let key = (operator, ids.clone(), bytes, outputs.len());
        let named = |ids: &[usize], outputs: Vec<(DType, Vec<Extent>)>| {
            ids.iter().zip(outputs).map(|(&id, (dtype, shape))| Value { id, dtype, shape }).collect()
        };
        if let Some(made) = self.made.get(&key) {
            return named(made, outputs);
        }
        let mut made = Vec::with_capacity(outputs.len());
        for (dtype, shape) in &outputs {
            let value = self.value(*dtype, shape.clone(), None);
            self.symbols.see(&value);
            made.push(value.id);
        }
        self.drafts.push(Draft { operator, inputs: ids, outputs: made.clone(), attributes });
        let values = named(&made, outputs);
        self.made.insert(key, made);
        values
    }

    /// A node with one output of this dtype and shape.
    pub(super) fn node(
        &mut self,
        operator: &'static str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
        dtype: DType,
        shape: Vec<Extent>,
    ) -> Value {
        let inputs: Vec<Option<&Value>> = inputs.iter().copied().map(Some).collect();
        let mut made = self.nodes(operator, &inputs, attributes, vec![(dtype, shape.clone())]);
        made.pop().unwrap_or(Value { id: 0, dtype, shape })
    }

    /// An elementwise node, whose operands are broadcast.
    pub(super) fn each(&mut self, operator: &'static str, inputs: &[&Value]) -> Value {
        self.each_with(operator, inputs, Vec::new())
    }

    /// An elementwise node with attributes.
    pub(super) fn each_with(
        &mut self,
        operator: &'static str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        let dtype = match operator {
            "Less" | "LessOrEqual" | "Equal" | "IsNaN" | "IsInf" => DType::Bool,
            "Where" => inputs.get(1).map_or(DType::F32, |value| value.dtype),
            _ => inputs.first().map_or(DType::F32, |value| value.dtype),
        };
        let shapes: Vec<&[Extent]> = inputs.iter().map(|value| &value.shape[..]).collect();
        self.node(operator, inputs, attributes, dtype, broadcast(&shapes))
    }

    /// The value in another dtype.
    pub(super) fn cast(&mut self, value: &Value, dtype: DType) -> Value {
        if value.dtype == dtype {
            return value.clone();
        }
        let mut attributes = vec![integer("to", Element::of_dtype(dtype) as i64)];
        if dtype.float8().is_some() {
            // Numbers that are too large become NaN or infinite.
            attributes.push(integer("saturate", 0));
        }
        self.node("Cast", &[value], attributes, dtype, value.shape.clone())
    }

    /// The numbers from 0 to a size, `int64`.
    pub(super) fn places(&mut self, size: Extent) -> Result<Value> {
        if !varies(size) && size[0] <= STORED_INDICES {
            let numbers: Vec<i64> = (0..size[0]).collect();
            return Ok(self.vector(&numbers));
        }
        let (end, axes) = (self.size(size, &[])?, self.vector(&[0]));
        let end = self.node("Squeeze", &[&end, &axes], Vec::new(), DType::I64, Vec::new());
        let (start, step) = (self.scalar(DType::I64, 0i64), self.scalar(DType::I64, 1i64));
        Ok(self.node("Range", &[&start, &end, &step], Vec::new(), DType::I64, vec![size]))
    }

    /// The message. `outputs` are the network's, with their names.
    pub(super) fn finish(mut self, name: &str, outputs: &[(String, Value)]) -> Result<GraphProto> {
        if !self.lacking.is_empty() {
            return Err(Error::Unsupported(self.lacking.into_iter().collect()));
        }
        let outputs = self.name_outputs(outputs);
        let mut used: HashSet<usize> = outputs.iter().copied().collect();
        let mut kept = Vec::new();
        for draft in std::mem::take(&mut self.drafts).into_iter().rev() {
            if draft.outputs.iter().any(|output| used.contains(output)) {
                used.extend(draft.inputs.iter().flatten());
                kept.push(draft);
            }
        }
        kept.reverse();
        let mut names = Names { taken: self.values.iter().filter_map(|(_, _, name)| name.clone()).collect() };
        let mut graph = GraphProto { name: name.to_owned(), ..Default::default() };
        let tensors: Vec<(usize, Stored)> =
            std::mem::take(&mut self.tensors).into_iter().filter(|(id, _)| used.contains(id)).collect();
        for (id, stored) in tensors {
            let raw_data = match stored {
                Stored::Tensor(tensor) => tensor.to_bytes()?,
                Stored::Bytes(bytes) => bytes,
            };
            let given = self.values[id].2.take();
            let name = given.unwrap_or_else(|| names.fresh("constant"));
            let (dtype, shape, _) = &self.values[id];
            graph.initializer.push(TensorProto {
                dims: shape.iter().map(|extent| extent[0]).collect(),
                data_type: Element::of_dtype(*dtype) as i32,
                name: name.clone(),
                raw_data,
                ..Default::default()
            });
            self.values[id].2 = Some(name);
        }
        for draft in kept {
            let name = names.fresh(draft.operator);
            for (at, &output) in draft.outputs.iter().enumerate() {
                if self.values[output].2.is_none() {
                    let suffix =
                        if draft.outputs.len() == 1 { "output".to_owned() } else { format!("output_{at}") };
                    self.values[output].2 = Some(names.fresh(&format!("{name}_{suffix}")));
                    if used.contains(&output) {
                        graph.value_info.push(self.info(output));
                    }
                }
            }
            let name_of = |id: &usize| self.values[*id].2.clone().unwrap_or_default();
            graph.node.push(NodeProto {
                input: draft
                    .inputs
                    .iter()
                    .map(|input| input.as_ref().map(name_of).unwrap_or_default())
                    .collect(),
                output: draft.outputs.iter().map(name_of).collect(),
                name,
                op_type: draft.operator.to_owned(),
                attribute: draft.attributes,
                ..Default::default()
            });
        }
        graph.input = self.inputs.iter().map(|&id| self.info(id)).collect();
        graph.output = outputs.iter().map(|&id| self.info(id)).collect();
        Ok(graph)
    }

    /// Gives the outputs their names: each is the result of a node that nothing else names.
    fn name_outputs(&mut self, outputs: &[(String, Value)]) -> Vec<usize> {
        let mut named = Vec::with_capacity(outputs.len());
        for (name, value) in outputs {
            let is_free = self.values[value.id].2.is_none()
                && self.drafts.iter().any(|d| d.outputs.contains(&value.id));
            let id = match is_free {
                true => value.id,
                false => {
                    let copy = self.value(value.dtype, value.shape.clone(), None);
                    self.drafts.push(Draft {
                        operator: "Identity",
                        inputs: vec![Some(value.id)],
                        outputs: vec![copy.id],
                        attributes: Vec::new(),
                    });
                    copy.id
                }
            };
            self.values[id].2 = Some(name.clone());
            named.push(id);
        }
        named
    }

    fn info(&self, id: usize) -> ValueInfoProto {
        let (dtype, shape, name) = &self.values[id];
        let dim =
            shape.iter().map(|&extent| DimensionProto { value: self.symbols.describe(extent) }).collect();
        let tensor = TensorTypeProto {
            elem_type: Element::of_dtype(*dtype) as i32,
            shape: Some(TensorShapeProto { dim }),
        };
        ValueInfoProto {
            name: name.clone().unwrap_or_default(),
            r#type: Some(TypeProto { value: Some(TypeKind::Tensor(tensor)) }),
        }
    }
}

/// The names that are in use.
struct Names {
    taken: HashSet<String>,
}

impl Names {
    /// The wanted name if it is free, and does not come with numbers; else with a number.
    fn fresh(&mut self, wanted: &str) -> String {
        let plain = wanted.ends_with("output") || wanted.contains("output_");
        let mut name = if plain { wanted.to_owned() } else { format!("{wanted}_0") };
        let mut number = 0usize;
        while !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{wanted}_{number}");
        }
        name
    }
}
