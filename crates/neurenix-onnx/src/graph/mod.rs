//! A graph as it is run: nodes in order, with their operators, attributes and the values that each lets go; and calls of
//! operators.

mod call;
mod run;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

pub(crate) use call::{Call, Environment, Operator, one};
pub(crate) use run::{Scope, compute, run};

use crate::Value;

/// A graph of nodes.
#[derive(Debug)]
pub(crate) struct Graph {
    /// The names of its inputs.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) initializers: Vec<(String, Value)>,
    /// Each follows the nodes whose outputs it reads.
    pub(crate) nodes: Vec<Node>,
    /// The names that it takes from the graphs around it.
    pub(crate) free: HashSet<String>,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) operator: String,
    pub(crate) opset: i64,
    /// Empty for an input that is left out.
    pub(crate) inputs: Vec<String>,
    /// Empty for an output that nothing reads.
    pub(crate) outputs: Vec<String>,
    pub(crate) attributes: HashMap<String, Attribute>,
    pub(crate) action: Action,
    /// The names that no later node reads.
    pub(crate) released: Vec<String>,
}

/// What a node does.
pub(crate) enum Action {
    Compute(Operator),
    /// Runs the body of a function.
    Function(Arc<Graph>),
}

impl std::fmt::Debug for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Action::Compute(_)) { "Compute" } else { "Function" })
    }
}

/// The value of an attribute.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    Float(f32),
    Int(i64),
    Text(String),
    Tensor(Value),
    Graph(Arc<Graph>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<String>),
    /// A type, which no operator needs: values know theirs.
    Type,
}

impl Node {
    /// The names that it reads, also within its graphs.
    pub(crate) fn reads(&self) -> HashSet<String> {
        let mut names: HashSet<String> =
            self.inputs.iter().filter(|name| !name.is_empty()).cloned().collect();
        for attribute in self.attributes.values() {
            if let Attribute::Graph(graph) = attribute {
                names.extend(graph.free.iter().cloned());
            }
        }
        names
    }

    /// In an error message.
    pub(crate) fn describe(&self) -> String {
        match self.name.is_empty() {
            true => self.operator.clone(),
            false => format!("{} {:?}", self.operator, self.name),
        }
    }
}
