//! A call of an operator: its inputs and attributes, as the functions of [`crate::ops`] see them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use phynexus::{Device, Tensor, schedule::capture, tensor::Generator};

use super::{Attribute, Graph, Node, Scope, run::run_within};
use crate::{
    Element, Error, Result, Text, Value,
    value::{floats, integers},
};

/// What all nodes of a run share.
#[derive(Clone, Copy)]
pub(crate) struct Environment<'a> {
    /// Where the network computes.
    pub(crate) device: Device,
    /// Draws random numbers.
    pub(crate) generator: &'a Generator,
}

/// Computes the results of a node. Fewer results than the node names outputs are fine if the missing ones are optional.
pub(crate) type Operator = fn(&Call<'_>) -> Result<Vec<Value>>;

/// A node with its inputs.
pub(crate) struct Call<'a> {
    pub(crate) node: &'a Node,
    pub(crate) inputs: Vec<Option<Value>>,
    pub(crate) environment: Environment<'a>,
    pub(crate) scope: &'a Scope<'a>,
    /// Where the node computes: the CPU if all of its inputs are there, such as shapes.
    pub(crate) device: Device,
}

impl Call<'_> {
    /// The version of the operator's domain that the file asks for.
    pub(crate) fn opset(&self) -> i64 {
        self.node.opset
    }

    /// The number of inputs, with those that are left out.
    pub(crate) fn count(&self) -> usize {
        self.inputs.len()
    }

    /// Whether the node names this output.
    pub(crate) fn wants(&self, output: usize) -> bool {
        self.node.outputs.get(output).is_some_and(|name| !name.is_empty())
    }

    /// Whether this input is given.
    pub(crate) fn has(&self, input: usize) -> bool {
        self.inputs.get(input).is_some_and(Option::is_some)
    }

    /// Whether the file has the value of this input, so that it is the same in every run.
    pub(crate) fn is_constant(&self, input: usize) -> bool {
        self.node.inputs.get(input).is_some_and(|name| self.scope.is_constant(name))
    }

    /// An input of any kind.
    pub(crate) fn value(&self, input: usize) -> Result<&Value> {
        let given = self.inputs.get(input).and_then(Option::as_ref);
        given.ok_or_else(|| Error::invalid(format!("input {input} is missing")))
    }

    /// A tensor of numbers, on the node's device.
    pub(crate) fn tensor(&self, input: usize) -> Result<Tensor> {
        Ok(self.value(input)?.tensor()?.to_device(self.device)?)
    }

    /// A tensor of numbers on the node's device, if given.
    pub(crate) fn optional(&self, input: usize) -> Result<Option<Tensor>> {
        if self.has(input) { self.tensor(input).map(Some) } else { Ok(None) }
    }

    /// All inputs as tensors of numbers on the node's device.
    pub(crate) fn tensors(&self) -> Result<Vec<Tensor>> {
        (0..self.count()).map(|input| self.tensor(input)).collect()
    }

    /// Strings.
    pub(crate) fn text(&self, input: usize) -> Result<&Text> {
        self.value(input)?.text()
    }

    /// Reads an input. What follows from shapes alone can be read while a function is captured.
    fn read<T>(&self, input: usize, numbers: impl FnOnce(&Tensor) -> Result<T>) -> Result<T> {
        let tensor = self.value(input)?.tensor()?;
        let is_fixed = self.node.inputs.get(input).is_some_and(|name| self.scope.is_fixed(name));
        if is_fixed { capture::outside(|| numbers(tensor)) } else { numbers(tensor) }
    }

    /// The numbers of an input of integers or booleans. Reads them.
    pub(crate) fn integers(&self, input: usize) -> Result<Vec<i64>> {
        self.read(input, integers)
    }

    /// The numbers of an input of integers, if given.
    pub(crate) fn optional_integers(&self, input: usize) -> Result<Option<Vec<i64>>> {
        if self.has(input) { self.integers(input).map(Some) } else { Ok(None) }
    }

    /// The numbers of an input. Reads them.
    pub(crate) fn floats(&self, input: usize) -> Result<Vec<f64>> {
        self.read(input, floats)
    }

    /// The one number of an input. Reads it.
    pub(crate) fn number(&self, input: usize) -> Result<f64> {
        match self.floats(input)?[..] {
            [number] => Ok(number),
            ref all => Err(Error::invalid(format!("input {input} must be one number, it has {}", all.len()))),
        }
    }

    /// Whether the attribute is given.
    pub(crate) fn has_attribute(&self, name: &str) -> bool {
        self.node.attributes.contains_key(name)
    }

    fn attribute<T>(
        &self,
        name: &str,
        kind: &str,
        get: impl Fn(&Attribute) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(attribute) = self.node.attributes.get(name) else { return Ok(None) };
        let wrong = || Error::invalid(format!("attribute {name:?} must be {kind}"));
        get(attribute).map(Some).ok_or_else(wrong)
    }

    /// An attribute that is one integer.
    pub(crate) fn int(&self, name: &str) -> Result<Option<i64>> {
        self.attribute(name, "an integer", |a| if let Attribute::Int(i) = a { Some(*i) } else { None })
    }

    /// An attribute that is one integer, or its default.
    pub(crate) fn int_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An attribute that is one float.
    pub(crate) fn float(&self, name: &str) -> Result<Option<f64>> {
        self.attribute(
            name,
            "a float",
            |a| if let Attribute::Float(f) = a { Some(f64::from(*f)) } else { None },
        )
    }

    /// An attribute that is one float, or its default.
    pub(crate) fn float_or(&self, name: &str, default: f64) -> Result<f64> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    /// An attribute that is a list of integers.
    pub(crate) fn ints(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.attribute(name, "a list of integers", |a| match a {
            Attribute::Ints(all) => Some(all.clone()),
            _ => None,
        })
    }

    /// An attribute that is a list of floats.
    pub(crate) fn float_list(&self, name: &str) -> Result<Option<Vec<f32>>> {
        self.attribute(name, "a list of floats", |a| match a {
            Attribute::Floats(all) => Some(all.clone()),
            _ => None,
        })
    }

    /// An attribute that is a string, or its default.
    pub(crate) fn string_or<'s>(&'s self, name: &str, default: &'s str) -> Result<&'s str> {
        match self.node.attributes.get(name) {
            None => Ok(default),
            Some(Attribute::Text(text)) => Ok(text),
            Some(_) => Err(Error::invalid(format!("attribute {name:?} must be a string"))),
        }
    }

    /// An attribute that is a list of strings.
    pub(crate) fn strings(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.attribute(name, "a list of strings", |a| match a {
            Attribute::Texts(all) => Some(all.clone()),
            _ => None,
        })
    }

    /// An attribute that is a tensor.
    pub(crate) fn tensor_attribute(&self, name: &str) -> Result<Option<Value>> {
        self.attribute(name, "a tensor", |a| match a {
            Attribute::Tensor(value) => Some(value.clone()),
            _ => None,
        })
    }

    /// An attribute that is the number of an element type, such as `to` of `Cast`.
    pub(crate) fn element(&self, name: &str) -> Result<Option<Element>> {
        let Some(number) = self.int(name)? else { return Ok(None) };
        let unknown = || Error::invalid(format!("attribute {name:?}: there is no element type {number}"));
        Element::of_number(number).map(Some).ok_or_else(unknown)
    }

    /// An attribute that is a graph.
    pub(crate) fn graph(&self, name: &str) -> Result<Arc<Graph>> {
        let graph = self.attribute(name, "a graph", |a| match a {
            Attribute::Graph(graph) => Some(graph.clone()),
            _ => None,
        })?;
        graph.ok_or_else(|| Error::invalid(format!("attribute {name:?} is missing")))
    }

    /// Runs a graph of an attribute, which sees the names around this node.
    pub(crate) fn run(&self, graph: &Graph, inputs: Vec<Option<Value>>) -> Result<Vec<Value>> {
        run_within(graph, inputs, HashMap::new(), &HashSet::new(), Some(self.scope), self.environment)
    }

    /// A vector of integers on the CPU, for results that other nodes read as shapes.
    pub(crate) fn shape_vector(&self, numbers: &[i64]) -> Result<Value> {
        let cpu = Device::find("cpu")?;
        Ok(Value::Tensor(Tensor::from_slice(numbers, &[numbers.len()], cpu)?))
    }

    /// A scalar `int64` on the CPU.
    pub(crate) fn shape_number(&self, number: i64) -> Result<Value> {
        Ok(Value::Tensor(Tensor::scalar(number, Device::find("cpu")?)?))
    }

    /// An axis as an index from 0, for a tensor of this rank.
    pub(crate) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_zero = if axis < 0 { axis + rank as i64 } else { axis };
        match usize::try_from(from_zero) {
            Ok(place) if place < rank => Ok(place),
            _ => Err(Error::invalid(format!("axis {axis} is out of range for {rank} dimensions"))),
        }
    }

    /// A generator for the node's `seed`, or that of the run.
    pub(crate) fn with_generator<T>(&self, draw: impl FnOnce(&Generator) -> Result<T>) -> Result<T> {
        match self.float("seed")? {
            Some(seed) => draw(&Generator::new(u64::from((seed as f32).to_bits()))),
            None => draw(self.environment.generator),
        }
    }
}

/// One result.
pub(crate) fn one(tensor: impl Into<Value>) -> Result<Vec<Value>> {
    Ok(vec![tensor.into()])
}
