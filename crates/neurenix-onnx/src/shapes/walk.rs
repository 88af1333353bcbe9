//! Goes through a graph and infers the type of each value.

use std::{cell::Cell, collections::HashMap};

use phynexus::shape::MAX_RANK;

use super::{
    Size, Type, Types, control, elementwise,
    fact::Known,
    image, layers, movement, numbers, reductions, selection, sequences, signal,
    site::{Rows, Rule, Site},
    windows,
};
use crate::{
    Error, Result, Value,
    graph::{Action, Graph, Node},
};

const ALL: &[Rows] = &[
    control::ROWS,
    elementwise::ROWS,
    image::ROWS,
    layers::ROWS,
    movement::ROWS,
    reductions::ROWS,
    selection::ROWS,
    sequences::ROWS,
    signal::ROWS,
    windows::ROWS,
];

/// The rule of the operator of this name.
pub(super) fn find(name: &str) -> Option<Rule> {
    ALL.iter().flat_map(|rows| rows.iter()).find(|(own, _)| *own == name).map(|(_, rule)| *rule)
}

/// The most nodes that are looked at. Bodies of loops are looked at several times, and loops within them more often.
const VISITS: usize = 4_000_000;

/// The most elements of tensors that are followed.
const NUMBERS: usize = 4_000_000;

/// The values of a graph's names, and those of the graphs around it.
#[derive(Default)]
pub(super) struct Scope<'a> {
    values: HashMap<&'a str, Known>,
    outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    fn get(&self, name: &str) -> Option<&Known> {
        self.values.get(name).or_else(|| self.outer?.get(name))
    }
}

/// An inference of a network.
pub(super) struct Inference {
    /// The number of unknown sizes so far.
    sizes: Cell<usize>,
    visits: Cell<usize>,
    /// How many more elements may be followed.
    numbers: Cell<usize>,
    /// Whether sizes are taken to be at least what slices and pads remove from them.
    pub(super) assumes: bool,
}

impl Inference {
    pub(super) fn new(assumes: bool) -> Inference {
        Inference { sizes: Cell::new(0), visits: Cell::new(0), numbers: Cell::new(NUMBERS), assumes }
    }

    /// A size that is not known.
    pub(super) fn fresh(&self) -> Size {
        let number = self.sizes.get();
        self.sizes.set(number + 1);
        Size::unknown(number)
    }

    /// Whether so many more elements may be followed.
    pub(super) fn may_follow(&self, count: usize) -> bool {
        let left = self.numbers.get().checked_sub(count);
        self.numbers.set(left.unwrap_or(0));
        left.is_some()
    }

    /// The types of all values of a whole graph.
    pub(super) fn whole(&self, graph: &Graph, stored: &[(String, Value)]) -> Result<Types> {
        let mut scope = Scope::default();
        let stored = stored.iter().map(|(name, value)| (name.as_str(), Known::of_value(value)));
        scope.values.extend(stored);
        let inputs = vec![None; graph.inputs.len()];
        self.fill(graph, inputs, &mut scope)?;
        Ok(scope.values.into_iter().map(|(name, known)| (name.to_owned(), known.to_type())).collect())
    }

    /// The types of what a body computes. `outer` are the values around it that it reads.
    pub(super) fn body(
        &self,
        graph: &Graph,
        inputs: Vec<Known>,
        outer: HashMap<&str, Known>,
    ) -> Result<Vec<Type>> {
        let outer = Scope { values: outer, outer: None };
        Ok(self.graph(graph, inputs, Some(&outer))?.iter().map(Known::to_type).collect())
    }

    /// What is known of a graph's outputs.
    pub(super) fn graph(
        &self,
        graph: &Graph,
        inputs: Vec<Known>,
        outer: Option<&Scope<'_>>,
    ) -> Result<Vec<Known>> {
        let mut scope = Scope { values: HashMap::new(), outer };
        self.fill(graph, inputs.into_iter().map(Some).collect(), &mut scope)?;
        let output = |name: &String| {
            let known = scope.get(name).cloned().unwrap_or_default();
            self.refined(graph, name, known)
        };
        Ok(graph.outputs.iter().map(output).collect())
    }

    /// Infers all values of a graph. An input that is not given has its declared type.
    fn fill<'g>(&self, graph: &'g Graph, inputs: Vec<Option<Known>>, scope: &mut Scope<'g>) -> Result<()> {
        let initializers =
            graph.initializers.iter().map(|(name, value)| (name.as_str(), Known::of_value(value)));
        scope.values.extend(initializers);
        let given = inputs.into_iter().chain(std::iter::repeat(None));
        for (name, given) in graph.inputs.iter().zip(given) {
            match given {
                Some(known) => drop(scope.values.insert(name, self.refined(graph, name, known))),
                // A default has the type of what may be given, but not its elements.
                None => {
                    let default = scope.values.remove(name.as_str()).unwrap_or_default();
                    scope.values.insert(name, self.refined(graph, name, default.without_numbers()));
                }
            }
        }
        for node in &graph.nodes {
            let results = self
                .node(node, scope)
                .map_err(|source| Error::Node { node: node.describe(), source: Box::new(source) })?;
            let results = results.into_iter().chain(std::iter::repeat(Known::Nothing));
            for (name, known) in node.outputs.iter().zip(results).filter(|(name, _)| !name.is_empty()) {
                scope.values.insert(name, self.refined(graph, name, known));
            }
            // Types stay, elements that nothing reads any more do not.
            for name in &node.released {
                if let Some(known) = scope.values.get_mut(name.as_str()) {
                    *known = std::mem::take(known).without_numbers();
                }
            }
        }
        Ok(())
    }

    /// With what the file declares where nothing better is known.
    fn refined(&self, graph: &Graph, name: &str, mut known: Known) -> Known {
        if let Known::Tensor(fact) = &mut known {
            fact.shape = fact.shape.take().filter(|shape| shape.len() <= MAX_RANK);
        }
        match graph.declared.get(name) {
            Some(declared) => known.refined(declared, &mut || self.fresh()),
            None => known,
        }
    }

    /// What is known of a node's results.
    fn node(&self, node: &Node, scope: &Scope<'_>) -> Result<Vec<Known>> {
        phynexus::interrupt::check()?;
        self.visits.set(self.visits.get() + 1);
        if self.visits.get() > VISITS {
            return Ok(Vec::new());
        }
        let input = |name: &String| match name.is_empty() {
            true => Known::Nothing,
            false => scope.get(name).cloned().unwrap_or_default(),
        };
        let inputs: Vec<Known> = node.inputs.iter().map(input).collect();
        if let Action::Function(body) = &node.action {
            // An input that is left out is nothing within the function, too.
            return self.graph(body, inputs, None);
        }
        let Some(rule) = find(&node.operator) else { return Ok(Vec::new()) };
        let site = Site { node, inputs, inference: self, scope };
        let results = rule(&site)?;
        Ok(numbers::followed(&site, results))
    }
}

#[cfg(test)]
mod tests {
    /// Each operator has exactly one rule.
    #[test]
    fn all_operators_have_a_rule() {
        let rules: Vec<&str> =
            super::ALL.iter().flat_map(|rows| rows.iter()).map(|(name, _)| *name).collect();
        let operators: Vec<&str> = crate::ops::names().collect();
        let missing: Vec<&&str> = operators.iter().filter(|name| !rules.contains(name)).collect();
        assert!(missing.is_empty(), "without a rule: {missing:?}");
        let unknown: Vec<&&str> = rules.iter().filter(|name| !operators.contains(name)).collect();
        assert!(unknown.is_empty(), "rules of unknown operators: {unknown:?}");
        let mut sorted = rules.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), rules.len(), "rules that are there twice");
    }
}
