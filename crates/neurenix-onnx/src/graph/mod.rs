//! A graph as it is run: nodes in order, with their operators, attributes and the values that each lets go; and calls
//! of operators.

mod call;
mod run;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use phynexus::Device;

pub(crate) use call::{Call, Environment, Operator, one};
pub(crate) use run::{Scope, compute, run};

use crate::{Result, Value, data::is_for_shapes, types::Type};

/// A graph of nodes.
#[derive(Clone, Debug)]
pub(crate) struct Graph {
    /// The names of its inputs.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) initializers: Vec<(String, Value)>,
    /// Each follows the nodes whose outputs it reads.
    pub(crate) nodes: Vec<Node>,
    /// The names that it takes from the graphs around it.
    pub(crate) free: HashSet<String>,
    /// The types that the file declares, by the names of values.
    pub(crate) declared: HashMap<String, Type>,
}

/// A node.
#[derive(Clone, Debug)]
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
#[derive(Clone)]
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

impl Graph {
    /// The same graph with its constants, and those of the graphs within it, on a device; those that may be shapes
    /// stay. What has none is shared. `moved` are the graphs that are there already, by their addresses: calls of a
    /// function share its body.
    pub(crate) fn to_device(
        self: &Arc<Graph>,
        device: Device,
        moved: &mut HashMap<usize, Arc<Graph>>,
    ) -> Result<Arc<Graph>> {
        let address = Arc::as_ptr(self).addr();
        if let Some(graph) = moved.get(&address) {
            return Ok(graph.clone());
        }
        let has_inner = self.nodes.iter().any(|node| {
            matches!(node.action, Action::Function(_))
                || node.attributes.values().any(|attribute| matches!(attribute, Attribute::Graph(_)))
        });
        if self.initializers.is_empty() && !has_inner {
            return Ok(self.clone());
        }
        let mut graph = Graph::clone(self);
        for (_, value) in &mut graph.initializers {
            if !is_for_shapes(value) {
                *value = value.to_device(device)?;
            }
        }
        for node in &mut graph.nodes {
            if let Action::Function(body) = &mut node.action {
                *body = body.to_device(device, moved)?;
            }
            for attribute in node.attributes.values_mut() {
                if let Attribute::Graph(inner) = attribute {
                    *inner = inner.to_device(device, moved)?;
                }
            }
        }
        let graph = Arc::new(graph);
        moved.insert(address, graph.clone());
        Ok(graph)
    }
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
