//! Runs graphs: records the operations of each node.

use std::collections::{HashMap, HashSet};

use phynexus::Device;

use super::{Action, Call, Environment, Graph, Node};
use crate::{Error, Result, Value};

/// The values of a graph's names while it runs, and those of the graphs around it.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    values: HashMap<&'a str, Value>,
    /// The names of initializers.
    constants: HashSet<&'a str>,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).or_else(|| self.outer?.get(name))
    }

    /// Whether the file has the value of this name.
    pub(super) fn is_constant(&self, name: &str) -> bool {
        match self.values.contains_key(name) {
            true => self.constants.contains(name),
            false => self.outer.is_some_and(|outer| outer.is_constant(name)),
        }
    }
}

/// Runs the graph of a network. An input that is not given takes its initializer's value; values of `replaced` are
/// those of other initializers. Returns its outputs, as plain tensors.
pub(crate) fn run<'a>(
    graph: &'a Graph,
    inputs: Vec<Option<Value>>,
    replaced: HashMap<&'a str, Value>,
    outer: Option<&'a Scope<'a>>,
    environment: Environment<'_>,
) -> Result<Vec<Value>> {
    let values = run_within(graph, inputs, replaced, outer, environment)?;
    Ok(values.into_iter().map(Value::plain).collect())
}

/// [`run`] for a graph within another one or the body of a function. Its outputs keep the integers that they stand for.
pub(super) fn run_within<'a>(
    graph: &'a Graph,
    inputs: Vec<Option<Value>>,
    replaced: HashMap<&'a str, Value>,
    outer: Option<&'a Scope<'a>>,
    environment: Environment<'_>,
) -> Result<Vec<Value>> {
    if inputs.len() > graph.inputs.len() {
        return Err(Error::invalid(format!(
            "{} inputs were given, the graph has {}",
            inputs.len(),
            graph.inputs.len()
        )));
    }
    let constants = graph.initializers.iter().map(|(name, _)| name.as_str()).chain(replaced.keys().copied());
    let mut scope = Scope { values: HashMap::new(), constants: constants.collect(), outer };
    scope.values.extend(graph.initializers.iter().map(|(name, value)| (name.as_str(), value.clone())));
    scope.values.extend(replaced);
    for (name, value) in graph.inputs.iter().zip(inputs) {
        if let Some(value) = value {
            scope.constants.remove(name.as_str());
            scope.values.insert(name, value);
        }
    }
    for node in &graph.nodes {
        let results = compute(node, &scope, environment)
            .map_err(|source| Error::Node { node: node.describe(), source: Box::new(source) })?;
        let named = node.outputs.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        if results.len() < named {
            let message = format!("it names {named} outputs, but has {}", results.len());
            return Err(Error::Node { node: node.describe(), source: Box::new(Error::invalid(message)) });
        }
        scope.values.extend(
            node.outputs.iter().map(String::as_str).zip(results).filter(|(name, _)| !name.is_empty()),
        );
        node.released.iter().for_each(|name| drop(scope.values.remove(name.as_str())));
    }
    let output = |name: &String| {
        let value = scope.get(name).cloned();
        value.ok_or_else(|| Error::invalid(format!("the output {name:?} has no value")))
    };
    graph.outputs.iter().map(output).collect()
}

/// Computes a node's results.
pub(crate) fn compute(node: &Node, scope: &Scope<'_>, environment: Environment<'_>) -> Result<Vec<Value>> {
    let input = |name: &String| match name.is_empty() {
        true => None,
        false => scope.get(name).cloned(),
    };
    let mut inputs: Vec<Option<Value>> = node.inputs.iter().map(input).collect();
    match &node.action {
        Action::Function(body) => run_within(body, inputs, HashMap::new(), None, environment),
        Action::Compute(operator) => {
            while inputs.last().is_some_and(Option::is_none) {
                inputs.pop();
            }
            let on_cpu =
                |value: &Value| value.tensor().map_or(true, |tensor| tensor.device().name() == "cpu");
            let device = match !inputs.is_empty() && inputs.iter().flatten().all(on_cpu) {
                true => Device::find("cpu")?,
                false => environment.device,
            };
            operator(&Call { node, inputs, environment, scope, device })
        }
    }
}
