//! Element types and extents of the values of a network, before it runs.
//!
//! Extents may be symbols of the file, such as `batch`, and expressions of them. Numbers that a network computes from
//! extents (`Shape`, `Gather`, `Concat`, `Mul`, ...) are followed, too, so that a `Reshape` to them has known extents.

mod control;
mod elementwise;
mod fact;
mod image;
mod layers;
mod movement;
mod numbers;
mod reductions;
mod selection;
mod sequences;
mod signal;
mod site;
mod walk;
mod windows;

use self::{fact::Known, walk::Inference};
use crate::{
    Result, Value,
    graph::Graph,
    types::{Size, Type, Types},
};

/// The most elements of a tensor whose numbers are followed.
pub(crate) const SMALL: usize = 256;

/// The types of a graph's values. `stored` are the tensors of the file that are not part of it.
pub(crate) fn types(graph: &Graph, stored: &[(String, Value)]) -> Result<Types> {
    // A contradiction that needs the assumption is none: smaller sizes may work.
    Inference::new(true).whole(graph, stored).or_else(|_| Inference::new(false).whole(graph, stored))
}

/// The types of what a body computes for such inputs, without running it. What the body declares of its outputs is all
/// that is known if it cannot run for these. `outer` has the values around it.
pub(crate) fn of_body<'v>(
    graph: &Graph,
    inputs: &[Value],
    outer: impl Fn(&str) -> Option<&'v Value>,
) -> Vec<Type> {
    let known = |value: &Value| Known::of_value(value).without_numbers();
    let free = graph.free.iter().filter_map(|name| Some((name.as_str(), known(outer(name)?))));
    match Inference::new(true).body(graph, inputs.iter().map(known).collect(), free.collect()) {
        Ok(types) => types,
        Err(_) => {
            let declared = |name: &String| graph.declared.get(name).cloned().unwrap_or(Type::Unknown);
            graph.outputs.iter().map(declared).collect()
        }
    }
}
