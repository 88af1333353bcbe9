//! Runs graphs: records the operations of each node.

use std::collections::{HashMap, HashSet};

use phynexus::{Device, schedule::capture};

use super::{Action, Call, Environment, Graph, Node};
use crate::{Error, Result, Value, data::is_for_shapes};

/// The values of a graph's names while it runs, and those of the graphs around it.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    values: HashMap<&'a str, Value>,
    /// The names of initializers.
    constants: HashSet<&'a str>,
    /// The names of integers that follow from the file and the shapes of inputs alone.
    fixed: HashSet<&'a str>,
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

    /// Whether the value of this name follows from the file and the shapes of inputs alone. It may be computed and read
    /// while a function is captured.
    pub(super) fn is_fixed(&self, name: &str) -> bool {
        match self.values.contains_key(name) {
            true => self.fixed.contains(name),
            false => self.outer.is_some_and(|outer| outer.is_fixed(name)),
        }
    }

    /// Whether the results of a node are such values.
    fn fixes(&self, node: &Node) -> bool {
        let mut given = node.inputs.iter().filter(|name| !name.is_empty()).peekable();
        match node.operator.as_str() {
            "Shape" | "Size" => true,
            // Random numbers are drawn in each run.
            operator
                if operator.starts_with("Random") || ["Bernoulli", "Multinomial"].contains(&operator) =>
            {
                false
            }
            _ => given.peek().is_some() && given.all(|name| self.is_fixed(name)),
        }
    }
}

/// Runs the graph of a network. An input that is not given takes its initializer's value; values of `replaced` are
/// those of other initializers, of which `given` are not the file's own. Returns its outputs, as plain tensors.
pub(crate) fn run<'a>(
    graph: &'a Graph,
    inputs: Vec<Option<Value>>,
    replaced: HashMap<&'a str, Value>,
    given: &HashSet<&str>,
    environment: Environment<'_>,
) -> Result<Vec<Value>> {
    let values = run_within(graph, inputs, replaced, given, None, environment)?;
    Ok(values.into_iter().map(Value::plain).collect())
}

/// [`run`] for a graph within another one or the body of a function. Its outputs keep the integers that they stand for.
pub(super) fn run_within<'a>(
    graph: &'a Graph,
    inputs: Vec<Option<Value>>,
    replaced: HashMap<&'a str, Value>,
    given: &HashSet<&str>,
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
    let constants = constants.filter(|name| !given.contains(name));
    let stored = graph.initializers.iter().map(|(name, value)| (name.as_str(), value));
    let stored = stored.chain(replaced.iter().map(|(name, value)| (*name, value)));
    let is_fixed = |(name, value): &(&'a str, &Value)| is_for_shapes(value) && !given.contains(name);
    let fixed = stored.filter(is_fixed).map(|(name, _)| name).collect();
    let mut scope = Scope { values: HashMap::new(), constants: constants.collect(), fixed, outer };
    scope.values.extend(graph.initializers.iter().map(|(name, value)| (name.as_str(), value.clone())));
    scope.values.extend(replaced);
    for (name, value) in graph.inputs.iter().zip(inputs) {
        if let Some(value) = value {
            scope.constants.remove(name.as_str());
            scope.fixed.remove(name.as_str());
            scope.values.insert(name, value);
        }
    }
    for node in &graph.nodes {
        let is_fixed = scope.fixes(node);
        let results = match is_fixed {
            true => capture::outside(|| compute(node, &scope, environment)),
            false => compute(node, &scope, environment),
        };
        let results =
            results.map_err(|source| Error::Node { node: node.describe(), source: Box::new(source) })?;
        let named = node.outputs.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
        if results.len() < named {
            let message = format!("it names {named} outputs, but has {}", results.len());
            return Err(Error::Node { node: node.describe(), source: Box::new(Error::invalid(message)) });
        }
        let named = node.outputs.iter().map(String::as_str).zip(results).filter(|(name, _)| !name.is_empty());
        for (name, value) in named {
            if is_fixed && is_for_shapes(&value) {
                scope.fixed.insert(name);
            }
            scope.values.insert(name, value);
        }
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
        Action::Function(body) => {
            run_within(body, inputs, HashMap::new(), &HashSet::new(), None, environment)
        }
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
