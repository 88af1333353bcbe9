//! The state of writing: which tensor of the file holds which value of the network.

use std::collections::{HashMap, HashSet};

use super::{
    Dialect,
    constant::Numbers,
    graph::{Graph, Quantization, Step, Stored},
    layout::Layout,
    schema::{Activation, Code, Kind, Options},
};
use crate::{Error, Result};
use neurenix_onnx::{
    Element,
    edit::{Links, Network, ValueType},
    proto::NodeProto,
};

/// A value of the network in the file. If the tensor is quantized and the value real, the value is what the tensor
/// stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) tensor: i32,
    pub(crate) layout: Layout,
}

/// A quantized type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scheme {
    pub(crate) kind: Kind,
    pub(crate) quantization: Quantization,
}

/// What a node's operator computes, with what the file's operator does at once: an activation, and quantizing.
#[derive(Clone, Debug)]
pub(crate) struct Goal {
    /// The value of the network.
    pub(crate) name: String,
    pub(crate) activation: Activation,
    /// How its only readers quantize it.
    pub(crate) scheme: Option<Scheme>,
}

pub(crate) struct Writer<'n> {
    pub(crate) network: &'n Network,
    pub(crate) types: &'n HashMap<String, ValueType>,
    pub(crate) dialect: Dialect,
    pub(crate) links: Links,
    pub(crate) graph: Graph,
    /// The node that is being written.
    pub(crate) at: usize,
    values: HashMap<String, Held>,
    /// Values in another layout, or as real numbers.
    pub(crate) converted: HashMap<(Held, Option<Layout>), Held>,
    /// Nodes that an operator of another node computes.
    pub(crate) absorbed: HashSet<usize>,
}

impl<'n> Writer<'n> {
    pub(crate) fn new(
        network: &'n Network,
        types: &'n HashMap<String, ValueType>,
        dialect: Dialect,
    ) -> Writer<'n> {
        Writer {
            network,
            types,
            dialect,
            links: network.links(),
            graph: Graph::default(),
            at: 0,
            values: HashMap::new(),
            converted: HashMap::new(),
            absorbed: HashSet::new(),
        }
    }

    pub(crate) fn node(&self) -> &'n NodeProto {
        &self.network.graph.node[self.at]
    }

    /// An error that names the node.
    pub(crate) fn refuse(&self, why: impl std::fmt::Display) -> Error {
        let node = self.node();
        refusal(&format!("{} ({}): {why}", node.name, node.op_type))
    }

    /// The node's input at this position, if it is there.
    pub(crate) fn name(&self, position: usize) -> Option<&'n str> {
        self.node().input.get(position).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// The node's input at this position.
    pub(crate) fn input(&self, position: usize) -> Result<&'n str> {
        self.name(position).ok_or_else(|| self.refuse(format!("input {position} is missing")))
    }

    /// The node's first output.
    pub(crate) fn output(&self) -> &'n str {
        self.node().output.first().map(String::as_str).unwrap_or_default()
    }

    /// Refuses a value with more elements than 32 bits count.
    pub(crate) fn check_size(&self, value: &str, shape: &[usize]) -> Result<()> {
        let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
        // An empty value may have any other extents.
        let fits = |extent: usize| i32::try_from(extent).is_ok();
        match count.is_some_and(fits) && shape.iter().all(|&extent| fits(extent)) {
            true => Ok(()),
            false => Err(self.refuse(format!("{value:?} has more elements than a file counts"))),
        }
    }

    pub(crate) fn shape(&self, value: &str) -> Result<&'n [usize]> {
        let known = self.types.get(value).map(|value| &value.shape[..]);
        known.ok_or_else(|| self.refuse(format!("the shape of {value:?} is not known")))
    }

    pub(crate) fn stored(&self, held: &Held) -> &Stored {
        &self.graph.tensors[held.tensor as usize]
    }

    /// A new tensor for a value of this shape in the network.
    pub(crate) fn tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        layout: &Layout,
        kind: Kind,
        quantization: Option<Quantization>,
    ) -> i32 {
        self.push(Stored {
            name: name.to_owned(),
            shape: layout.shape(shape),
            kind,
            quantization,
            data: None,
        })
    }

    pub(crate) fn push(&mut self, tensor: Stored) -> i32 {
        self.graph.tensors.push(tensor);
        self.graph.tensors.len() as i32 - 1
    }

    /// A constant tensor of integers that an operator wants.
    pub(crate) fn integers(&mut self, numbers: &[i32]) -> i32 {
        let name = format!("{}/constant{}", self.node().name, self.graph.tensors.len());
        let data = Some(Kind::I32.bytes(numbers.iter().map(|&x| x.into())));
        let shape = vec![numbers.len() as i32];
        self.push(Stored { name, shape, kind: Kind::I32, quantization: None, data })
    }

    pub(crate) fn step(&mut self, code: Code, inputs: Vec<i32>, output: i32, options: Options) {
        let kind = |tensor: i32| self.graph.tensors[tensor as usize].kind;
        let version = match code {
            Code::DEQUANTIZE => code.version(kind(inputs[0])),
            // From real numbers to 8 bits is the oldest.
            Code::QUANTIZE if kind(inputs[0]) == Kind::F32 && kind(output) == Kind::I8 => 1,
            _ => code.version(kind(output)),
        };
        let node = self.node().name.clone();
        self.graph.steps.push(Step { code, version, inputs, outputs: vec![output], options, node });
    }

    /// From now on, the tensor is this value of the network.
    pub(crate) fn bind(&mut self, value: &str, held: Held) {
        self.values.insert(value.to_owned(), held);
    }

    /// The tensor of a value. Constants are written when they are first asked for.
    pub(crate) fn held(&mut self, value: &str) -> Result<Held> {
        if let Some(held) = self.values.get(value) {
            return Ok(held.clone());
        }
        let constant = self.constant(value)?.ok_or_else(|| self.refuse(format!("{value:?} is not known")))?;
        if constant.shape.contains(&0) {
            return Err(self.refuse(format!("{value:?} is empty")));
        }
        let (kind, quantization, data) = match constant.numbers {
            Numbers::Floats(numbers) => {
                (Kind::F32, None, numbers.into_iter().flat_map(f32::to_le_bytes).collect())
            }
            Numbers::Integers(numbers, kind) => (kind, None, kind.bytes(numbers)),
            Numbers::Quantized(numbers, Scheme { kind, quantization }) => {
                (kind, Some(quantization), kind.bytes(numbers))
            }
        };
        let shape = Layout::Network.shape(&constant.shape);
        let tensor =
            self.push(Stored { name: value.to_owned(), shape, kind, quantization, data: Some(data) });
        let held = Held { tensor, layout: Layout::Network };
        self.bind(value, held.clone());
        Ok(held)
    }

    /// What the node's operator computes. With `fuses`, an activation that alone reads the result is a part of it.
    pub(crate) fn goal(&mut self, fuses: bool) -> Result<Goal> {
        self.goal_of(self.output().to_owned(), fuses)
    }

    /// As [`Writer::goal`], for a value that follows the node's output.
    pub(crate) fn goal_of(&mut self, mut name: String, fuses: bool) -> Result<Goal> {
        let mut activation = Activation::None;
        if let Some(reader) = self.links.only_reader(&name).filter(|_| fuses) {
            let node = &self.network.graph.node[reader];
            if let Some(found) = self.activation(node)? {
                activation = found;
                self.absorbed.insert(reader);
                name = node.output.first().cloned().unwrap_or_default();
            }
        }
        let scheme = self.quantized_by_readers(&name);
        Ok(Goal { name, activation, scheme })
    }

    /// The activation that a node is, if operators can do it at once.
    pub(crate) fn activation(&self, node: &NodeProto) -> Result<Option<Activation>> {
        if node.op_type == "Relu" {
            return Ok(Some(Activation::Relu));
        }
        if node.op_type != "Clip" {
            return Ok(None);
        }
        let limits = self.limits(node)?;
        Ok(match limits {
            Some((0.0, 6.0)) => Some(Activation::Relu6),
            Some((-1.0, 1.0)) => Some(Activation::ReluN1To1),
            Some((0.0, most)) if most == f32::INFINITY || most == f32::MAX => Some(Activation::Relu),
            _ => None,
        })
    }

    /// The type in which an operator with these inputs computes on integers: all are quantized so, and so is the
    /// result.
    pub(crate) fn quantized_kind(&mut self, inputs: &[&str], goal: &Goal) -> Result<Option<Kind>> {
        let Some(kind) = goal.scheme.as_ref().map(|scheme| scheme.kind).filter(|kind| *kind != Kind::I32)
        else {
            return Ok(None);
        };
        if kind == Kind::I16 && self.dialect.real_words {
            return Ok(None);
        }
        for name in inputs {
            let held = self.held(name)?;
            let tensor = self.stored(&held);
            if tensor.kind != kind || tensor.quantization.as_ref().is_none_or(|q| q.single().is_none()) {
                return Ok(None);
            }
        }
        Ok(Some(kind))
    }

    /// A value's tensor in this layout, quantized as it is.
    pub(crate) fn value_in(&mut self, value: &str, layout: &Layout) -> Result<Held> {
        let held = self.held(value)?;
        let shape = self.shape_of(value, &held)?;
        self.in_layout(held, &shape, layout)
    }

    /// A value's tensor in this layout, as real numbers.
    pub(crate) fn real_in(&mut self, value: &str, layout: &Layout) -> Result<Held> {
        let held = self.value_in(value, layout)?;
        self.real(held)
    }

    /// A value's tensor in this layout: quantized, or as real numbers.
    pub(crate) fn operand(&mut self, value: &str, layout: &Layout, quantized: bool) -> Result<Held> {
        if quantized { self.value_in(value, layout) } else { self.real_in(value, layout) }
    }

    /// The shape in the network.
    pub(crate) fn shape_of(&self, value: &str, held: &Held) -> Result<Vec<usize>> {
        match self.types.get(value) {
            Some(known) => Ok(known.shape.clone()),
            None => Ok(self.stored(held).shape.iter().map(|&extent| extent as usize).collect()),
        }
    }

    /// The tensor of the result of an operator, which is bound to its value.
    pub(crate) fn result(&mut self, goal: &Goal, layout: &Layout, quantized: bool) -> Result<i32> {
        let shape = self.shape(&goal.name)?;
        let (kind, quantization) = match goal.scheme.clone().filter(|_| quantized) {
            Some(scheme) => (scheme.kind, Some(scheme.quantization)),
            None => (self.kind_of(&goal.name)?, None),
        };
        let tensor = self.tensor(&goal.name, shape, layout, kind, quantization);
        self.bind(&goal.name, Held { tensor, layout: layout.clone() });
        Ok(tensor)
    }

    /// The tensor of a result that has the type and quantization of `like`, which is bound to the node's output.
    pub(crate) fn result_like(&mut self, like: &Held, layout: &Layout) -> Result<i32> {
        let name = self.output();
        let shape = self.shape(name)?;
        let (kind, quantization) = (self.stored(like).kind, self.stored(like).quantization.clone());
        let tensor = self.tensor(name, shape, layout, kind, quantization);
        self.bind(name, Held { tensor, layout: layout.clone() });
        Ok(tensor)
    }

    /// The type in the file of a value that is not quantized.
    pub(crate) fn kind_of(&self, value: &str) -> Result<Kind> {
        let element = self.types.get(value).map(|known| known.element);
        let element = element.ok_or_else(|| self.refuse(format!("the type of {value:?} is not known")))?;
        plain_kind(element).ok_or_else(|| self.refuse(format!("{value:?} is of type {element:?}")))
    }
}

/// The type in a file of a type of the network that is not quantized.
pub(crate) fn plain_kind(element: Element) -> Option<Kind> {
    match element {
        Element::Float => Some(Kind::F32),
        Element::Int32 => Some(Kind::I32),
        Element::Int64 => Some(Kind::I64),
        Element::Bool => Some(Kind::Bool),
        _ => None,
    }
}

/// An error of the writer.
pub(crate) fn refusal(why: &str) -> Error {
    Error::Runtime { runtime: "TFLite".to_owned(), message: why.to_owned() }
}
