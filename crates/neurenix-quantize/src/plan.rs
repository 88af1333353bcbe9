//! Which values of a network are quantized, and which share a scheme.

mod operators;

use std::collections::HashMap;

use neurenix_onnx::{
    Element,
    edit::{Links, Network, ValueType},
    proto::NodeProto,
};

use crate::{
    Format, Options, Result,
    linear::Linear,
    prepare::floats,
    scheme::{Range, check_finite},
};
pub(crate) use operators::is_normalization;
use operators::{Role, is_rectified, rectifier, role, weight_format};

/// Which values of a network are quantized.
pub(crate) struct Plan {
    /// What is done to each node; `None` for those that stay float.
    pub(crate) nodes: Vec<Option<Planned>>,
    /// The values with activations' schemes, stored ones among them, each with its group: the first value of those that
    /// share a scheme.
    pub(crate) activations: Vec<(String, String)>,
    /// Results of layers that only a rectifier reads, with what it makes of them.
    pub(crate) rectified: HashMap<String, Rectified>,
    /// The ranges of values that are known without samples.
    pub(crate) known: HashMap<String, Range>,
    /// Nodes of floats that stay so, with the reason.
    pub(crate) kept: Vec<(String, String)>,
}

/// The result of a rectifier.
pub(crate) struct Rectified {
    /// Its name.
    pub(crate) value: String,
    /// Its greatest number, if the rectifier has a limit.
    pub(crate) limit: Option<f32>,
}

/// A node that is quantized.
#[derive(Default)]
pub(crate) struct Planned {
    /// The positions of its inputs that are activations.
    pub(crate) inputs: Vec<usize>,
    pub(crate) weight: Option<Weight>,
    /// Whether input 2 is a stored bias that becomes integers.
    pub(crate) has_bias: bool,
}

/// A stored weight: input 1 of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Weight {
    pub(crate) name: String,
    /// The axis with a scale for each index.
    pub(crate) axis: Option<usize>,
    pub(crate) format: Format,
}

/// Plans the quantization of a prepared network. `excluded` has nodes that stay float, with reasons.
pub(crate) fn plan(
    network: &Network,
    types: &HashMap<String, ValueType>,
    options: &Options,
    excluded: &HashMap<String, String>,
) -> Result<Plan> {
    let links = network.links();
    let graph = &network.graph;
    let is_stored = |name: &String| network.stored(name).is_some();
    let stored: HashMap<&str, i32> =
        graph.initializer.iter().map(|tensor| (tensor.name.as_str(), tensor.data_type)).collect();
    let is_float = |name: &String| match stored.get(name.as_str()) {
        Some(&data_type) => data_type == Element::Float as i32,
        None => types.get(name).is_some_and(|known| known.element == Element::Float),
    };
    let mut roles: Vec<Option<Role>> = Vec::with_capacity(graph.node.len());
    let mut kept = Vec::new();
    for node in &graph.node {
        let element = node.output.iter().find_map(|name| types.get(name)).map(|known| known.element);
        let is_number = element.is_none_or(|element| element.dtype().is_some_and(|dtype| dtype.is_float()));
        let found = match (excluded.get(&node.name), element) {
            (Some(reason), _) => Err(reason.clone()),
            (None, Some(Element::Float) | None) => role(network, node, options)?,
            (None, Some(other)) => Err(format!("its numbers are {other:?}")),
        };
        roles.push(match found {
            Ok(role) => Some(role),
            Err(reason) => {
                if is_number {
                    kept.push((node.name.clone(), reason));
                }
                None
            }
        });
    }
    drop_lonely(&graph.node, &links, &mut roles);
    let mut nodes = Vec::with_capacity(graph.node.len());
    for (at, node) in graph.node.iter().enumerate() {
        nodes.push(match roles[at] {
            Some(role) => Some(planned(network, node, at, role, options, &is_float, &is_stored)?),
            None => None,
        });
    }
    let (activations, rectified, known) = Default::default();
    let mut plan = Plan { nodes, activations, rectified, known, kept };
    plan.share(network, &links, &roles, &is_float)?;
    Ok(plan)
}

/// Leaves nodes float that only move numbers between nodes that stay float.
fn drop_lonely(nodes: &[NodeProto], links: &Links, roles: &mut [Option<Role>]) {
    let moves = |role: Option<Role>| matches!(role, Some(Role::Moves { .. }));
    let mut reached: Vec<bool> = roles.iter().map(|&role| role.is_some() && !moves(role)).collect();
    let mut next: Vec<usize> = (0..nodes.len()).filter(|&at| reached[at]).collect();
    while let Some(at) = next.pop() {
        let makers = nodes[at].input.iter().filter_map(|name| links.maker.get(name));
        let readers = nodes[at].output.iter().filter_map(|name| links.readers.get(name)).flatten();
        for &other in makers.chain(readers.map(|(reader, _)| reader)) {
            if !reached[other] && moves(roles[other]) {
                reached[other] = true;
                next.push(other);
            }
        }
    }
    roles.iter_mut().zip(reached).filter(|(_, reached)| !reached).for_each(|(role, _)| *role = None);
}

fn planned(
    network: &Network,
    node: &NodeProto,
    at: usize,
    role: Role,
    options: &Options,
    is_float: &dyn Fn(&String) -> bool,
    is_stored: &dyn Fn(&String) -> bool,
) -> Result<Planned> {
    let named = |input: &usize| node.input.get(*input).is_some_and(|name| !name.is_empty() && is_float(name));
    let all: Vec<usize> = (0..node.input.len()).filter(named).collect();
    let first: Vec<usize> = [0].into_iter().filter(named).collect();
    let mut planned = Planned::default();
    match role {
        Role::Computes(None) | Role::Moves { all: true } => planned.inputs = all,
        Role::Computes(Some(inputs)) => planned.inputs = inputs.iter().copied().filter(named).collect(),
        Role::Bounded(..) | Role::Moves { all: false } => planned.inputs = first,
        Role::Weighs => {
            planned.inputs = first;
            if let Some(name) = node.input.get(1).filter(|_| named(&1)) {
                if is_stored(name) {
                    planned.weight = Some(weight(network, node, at, name, options));
                } else {
                    planned.inputs.push(1);
                }
            }
            if let Some(name) = node.input.get(2).filter(|_| named(&2)) {
                let is_vector = floats(network, Some(name))?.is_some_and(|(shape, _)| shape.len() == 1);
                let sums_floats = options.activations.is_float() || options.weights.is_float();
                planned.has_bias = is_vector && !sums_floats && planned.weight.is_some();
                if !is_stored(name) {
                    planned.inputs.push(2);
                }
            }
        }
    }
    Ok(planned)
}

fn weight(network: &Network, node: &NodeProto, at: usize, name: &str, options: &Options) -> Weight {
    let format = weight_format(&node.op_type, options);
    // The output channels of a transposed convolution with groups are on no single axis.
    let has_axis = |layer: &Linear| {
        node.op_type != "ConvTranspose" || layer.shape.get(1).is_some_and(|&size| size == layer.outputs)
    };
    let layer = Linear::find(network, at).filter(|layer| options.per_channel && has_axis(layer));
    Weight { name: name.to_owned(), axis: layer.map(|layer| layer.output_axis()), format }
}

impl Plan {
    /// Finds the values with activations' schemes and joins those that share one.
    fn share(
        &mut self,
        network: &Network,
        links: &Links,
        roles: &[Option<Role>],
        is_float: &dyn Fn(&String) -> bool,
    ) -> Result<()> {
        let mut order: Vec<String> = Vec::new();
        let mut parent: HashMap<String, String> = HashMap::new();
        for (at, node) in network.graph.node.iter().enumerate() {
            if let (Some(_), Some(value)) = (&self.nodes[at], node.output.first())
                && is_rectified(&node.op_type)
                && let Some(reader) = links.only_reader(value)
                && self.nodes[reader].is_some()
                && let Some(rectified) = rectifier(network, &network.graph.node[reader])?
            {
                self.rectified.insert(value.clone(), rectified);
            }
        }
        for ((node, planned), role) in network.graph.node.iter().zip(&self.nodes).zip(roles) {
            let (Some(planned), Some(role)) = (planned, role) else { continue };
            let inputs: Vec<&String> = planned.inputs.iter().map(|&input| &node.input[input]).collect();
            // Later outputs of other operators are statistics of training, or positions.
            let count = if node.op_type == "Split" { node.output.len() } else { 1 };
            let outputs = node.output.iter().take(count).filter(|name| !name.is_empty() && is_float(name));
            let outputs: Vec<&String> = outputs.collect();
            for name in inputs.iter().chain(&outputs) {
                if !parent.contains_key(*name) {
                    parent.insert((*name).clone(), (*name).clone());
                    order.push((*name).clone());
                }
            }
            match role {
                Role::Bounded(least, greatest) => {
                    let range = Range { least: *least, greatest: *greatest };
                    self.known.extend(outputs.iter().map(|name| ((*name).clone(), range)));
                }
                Role::Moves { all } if !all || self.can_share(&parent, &inputs) => {
                    let mut all = inputs.iter().chain(&outputs);
                    let Some(first) = all.next() else { continue };
                    for other in all {
                        let (first, other) = (root(&parent, first), root(&parent, other));
                        parent.insert(other, first);
                    }
                }
                Role::Moves { .. } | Role::Computes(_) | Role::Weighs => {}
            }
        }
        for name in &order {
            if let Some((_, numbers)) = floats(network, Some(name))? {
                check_finite(name, &numbers)?;
                self.known.insert(name.clone(), Range::of(&numbers));
            }
        }
        self.activations = order
            .into_iter()
            .map(|name| {
                let group = root(&parent, &name);
                (name, group)
            })
            .collect();
        Ok(())
    }

    /// Whether the inputs of a `Concat` share a scheme: not if some come from rectifiers and others do not, or a
    /// rectifier has a limit, because its scheme would no longer saturate where it does. Runtimes then convert the
    /// integers of each input.
    fn can_share(&self, parent: &HashMap<String, String>, inputs: &[&String]) -> bool {
        let own = |input: &&&String| {
            let group = root(parent, input);
            self.rectified.values().find(|rectified| root(parent, &rectified.value) == group)
        };
        let rectified: Vec<&Rectified> = inputs.iter().filter_map(|input| own(&input)).collect();
        rectified.is_empty()
            || rectified.len() == inputs.len() && rectified.iter().all(|rectified| rectified.limit.is_none())
    }
}

/// The value that stands for a value's group.
fn root(parent: &HashMap<String, String>, name: &str) -> String {
    let mut name = name.to_owned();
    while let Some(next) = parent.get(&name)
        && *next != name
    {
        name.clone_from(next);
    }
    name
}
