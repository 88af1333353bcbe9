//! A node whose results' types are wanted, as the rules see it.

use super::{
    Size,
    fact::{Fact, Known},
    walk::{Inference, Scope},
};
use crate::{
    Element, Error, Result, Value,
    graph::{Attribute, Graph, Node},
};

/// The extents of a tensor, if their number is known.
pub(super) type Shape = Option<Vec<Size>>;

/// The types of a node's results. Those that are missing are unknown.
pub(super) type Rule = fn(&Site<'_>) -> Result<Vec<Known>>;

/// The rules of operators, by name.
pub(super) type Rows = &'static [(&'static str, Rule)];

/// A node with what is known of its inputs.
pub(super) struct Site<'a> {
    pub(super) node: &'a Node,
    pub(super) inputs: Vec<Known>,
    pub(super) inference: &'a Inference,
    pub(super) scope: &'a Scope<'a>,
}

impl Site<'_> {
    pub(super) fn opset(&self) -> i64 {
        self.node.opset
    }

    /// The number of inputs, with those that are left out.
    pub(super) fn count(&self) -> usize {
        self.node.inputs.len()
    }

    /// Whether this input is given.
    pub(super) fn has(&self, input: usize) -> bool {
        self.node.inputs.get(input).is_some_and(|name| !name.is_empty())
    }

    pub(super) fn known(&self, input: usize) -> &Known {
        self.inputs.get(input).unwrap_or(&Known::Nothing)
    }

    pub(super) fn fact(&self, input: usize) -> Option<&Fact> {
        self.known(input).fact()
    }

    pub(super) fn element(&self, input: usize) -> Option<Element> {
        self.fact(input)?.element
    }

    pub(super) fn shape(&self, input: usize) -> Option<&[Size]> {
        self.fact(input)?.shape.as_deref()
    }

    pub(super) fn rank(&self, input: usize) -> Option<usize> {
        self.shape(input).map(<[Size]>::len)
    }

    /// The elements of an input of integers, as far as they are known.
    pub(super) fn numbers(&self, input: usize) -> Option<Vec<Size>> {
        self.fact(input)?.numbers()
    }

    /// The elements of an input of integers, if all are numbers.
    pub(super) fn integers(&self, input: usize) -> Option<Vec<i64>> {
        self.fact(input)?.integers()
    }

    /// The one element of an input of integers.
    pub(super) fn number(&self, input: usize) -> Option<Size> {
        let numbers = self.numbers(input)?;
        if numbers.len() == 1 { numbers.into_iter().next() } else { None }
    }

    pub(super) fn int(&self, name: &str) -> Option<i64> {
        match self.node.attributes.get(name)? {
            Attribute::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn int_or(&self, name: &str, default: i64) -> i64 {
        self.int(name).unwrap_or(default)
    }

    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.node.attributes.get(name)? {
            Attribute::Ints(numbers) => Some(numbers),
            _ => None,
        }
    }

    pub(super) fn floats(&self, name: &str) -> Option<&[f32]> {
        match self.node.attributes.get(name)? {
            Attribute::Floats(numbers) => Some(numbers),
            _ => None,
        }
    }

    pub(super) fn text_or<'s>(&'s self, name: &str, default: &'s str) -> &'s str {
        match self.node.attributes.get(name) {
            Some(Attribute::Text(text)) => text,
            _ => default,
        }
    }

    pub(super) fn texts(&self, name: &str) -> Option<&[String]> {
        match self.node.attributes.get(name)? {
            Attribute::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    pub(super) fn tensor_attribute(&self, name: &str) -> Option<&Value> {
        match self.node.attributes.get(name)? {
            Attribute::Tensor(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn graph(&self, name: &str) -> Option<&Graph> {
        match self.node.attributes.get(name)? {
            Attribute::Graph(graph) => Some(graph),
            _ => None,
        }
    }

    /// An attribute that is the number of an element type; 0 is none.
    pub(super) fn element_attribute(&self, name: &str) -> Option<Element> {
        Element::of_number(self.int(name)?)
    }

    /// A size that is not known.
    pub(super) fn fresh(&self) -> Size {
        self.inference.fresh()
    }

    /// The size, or one that is not known.
    pub(super) fn or_fresh(&self, size: Option<Size>) -> Size {
        size.unwrap_or_else(|| self.fresh())
    }

    /// So many sizes that are not known.
    pub(super) fn unknown(&self, rank: usize) -> Vec<Size> {
        (0..rank).map(|_| self.fresh()).collect()
    }

    /// An axis as an index from 0.
    pub(super) fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let from_zero = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
        match usize::try_from(from_zero) {
            Ok(place) if place < rank => Ok(place),
            _ => Err(Error::invalid(format!("axis {axis} is out of range for {rank} dimensions"))),
        }
    }

    /// Axes as indices from 0.
    pub(super) fn axes(&self, axes: &[i64], rank: usize) -> Result<Vec<usize>> {
        axes.iter().map(|&axis| self.axis(axis, rank)).collect()
    }

    /// Integers that are an attribute before opset `since`, an input from then on. The outer option is whether they are
    /// given, the inner one whether they are known.
    pub(super) fn integers_since(&self, since: i64, name: &str, input: usize) -> Option<Option<Vec<i64>>> {
        match self.opset() < since {
            true => self.ints(name).map(|all| Some(all.to_vec())),
            false => self.has(input).then(|| self.integers(input)),
        }
    }

    /// The size that both must be.
    pub(super) fn same(&self, a: &Size, b: &Size, what: &str) -> Result<Size> {
        if a.contradicts(b) {
            return Err(Error::invalid(format!("{what} must be equal, they are {a} and {b}")));
        }
        let is_better = b.as_number().is_some() && a.as_number().is_none() || b.is_known() && !a.is_known();
        Ok(if is_better { b.clone() } else { a.clone() })
    }

    /// That an input has so many dimensions, if that is known.
    pub(super) fn of_rank(&self, input: usize, rank: usize) -> Result<Option<&[Size]>> {
        match self.shape(input) {
            Some(shape) if shape.len() != rank => Err(Error::invalid(format!(
                "input {input} must have {rank} dimensions, it has the shape {}",
                shown(shape)
            ))),
            shape => Ok(shape),
        }
    }

    /// The shape of tensors that are broadcast against each other.
    pub(super) fn broadcast(&self, shapes: &[Option<&[Size]>]) -> Result<Shape> {
        let Some(shapes) = shapes.iter().copied().collect::<Option<Vec<&[Size]>>>() else { return Ok(None) };
        let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
        let mut common = vec![Size::number(1); rank];
        for shape in &shapes {
            for (own, size) in common.iter_mut().rev().zip(shape.iter().rev()) {
                *own = match (own.as_number(), size.as_number()) {
                    _ if own == size => continue,
                    (Some(1), _) => size.clone(),
                    (_, Some(1)) => continue,
                    (Some(a), Some(b)) => {
                        let all: Vec<String> = shapes.iter().map(|shape| shown(shape)).collect();
                        let all = all.join(" and ");
                        return Err(Error::invalid(format!(
                            "the shapes {all} do not broadcast: {a} and {b} differ"
                        )));
                    }
                    (Some(_), None) => continue,
                    (None, Some(_)) => size.clone(),
                    (None, None) => self.fresh(),
                };
            }
        }
        Ok(Some(common))
    }

    /// The shape that all inputs from `first` on are broadcast to.
    pub(super) fn broadcast_inputs(&self, inputs: impl Iterator<Item = usize>) -> Result<Shape> {
        self.broadcast(&inputs.map(|input| self.shape(input)).collect::<Vec<_>>())
    }
}

/// A tensor of this type.
pub(super) fn tensor(element: Option<Element>, shape: Shape) -> Known {
    Known::Tensor(Fact { element, shape, ..Fact::default() })
}

/// One result.
pub(super) fn one(element: Option<Element>, shape: Shape) -> Result<Vec<Known>> {
    Ok(vec![tensor(element, shape)])
}

/// The product of sizes; `None` if it is too large an expression.
pub(super) fn product(sizes: &[Size]) -> Option<Size> {
    sizes.iter().try_fold(Size::number(1), |product, size| product.times(size))
}

/// A shape in an error message.
pub(super) fn shown(shape: &[Size]) -> String {
    let sizes: Vec<String> = shape.iter().map(Size::to_string).collect();
    format!("({})", sizes.join(", "))
}
