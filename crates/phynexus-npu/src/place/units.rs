//! What is placed as one: an operator, with the nodes that quantize its results and dequantize its inputs.

use std::collections::{BTreeSet, HashMap};

use neurenix_onnx::{
    edit::{self, Links, Network, ValueType},
    proto::{GraphProto, NodeProto},
};

use crate::{Error, Result};

/// An operator and the nodes that stay with it.
#[derive(Debug, Default)]
pub(super) struct Unit {
    /// Its own nodes: operators, and the nodes that quantize their results.
    pub(super) nodes: Vec<usize>,
    /// Nodes that dequantize what it reads. Each unit that reads them has copies, so that what passes between units is
    /// quantized.
    pub(super) copies: BTreeSet<usize>,
    /// The units whose results it reads.
    pub(super) after: BTreeSet<usize>,
    /// What it reads from others, and the network's inputs.
    pub(super) reads: BTreeSet<String>,
}

/// All units of a network, in an order in which each follows those that it reads.
#[derive(Debug)]
pub(super) struct Units<'n> {
    network: &'n Network,
    links: Links,
    pub(super) all: Vec<Unit>,
    /// The unit of each node; `None` for nodes that have only copies.
    owner: Vec<Option<usize>>,
}

impl<'n> Units<'n> {
    /// The units of a network whose nodes are in order.
    pub(super) fn new(network: &'n Network) -> Units<'n> {
        let links = network.links();
        let nodes = &network.graph.node;
        let mut units = Units { network, links, all: Vec::new(), owner: vec![None; nodes.len()] };
        for (at, node) in nodes.iter().enumerate() {
            if is_dequantize(node) && units.is_only_copied(at) {
                continue;
            }
            let unit = units.quantized_by(at).unwrap_or_else(|| {
                units.all.push(Unit::default());
                units.all.len() - 1
            });
            units.all[unit].nodes.push(at);
            units.owner[at] = Some(unit);
        }
        for unit in 0..units.all.len() {
            units.connect(unit);
        }
        units
    }

    /// Whether a node that dequantizes is needed only by other nodes, which have copies.
    fn is_only_copied(&self, at: usize) -> bool {
        let output = self.network.graph.node[at].output.first();
        output.is_some_and(|name| !self.links.kept.contains(name) && self.links.readers.contains_key(name))
    }

    /// The unit whose result a node quantizes, if its scale and zero point are stored.
    fn quantized_by(&self, at: usize) -> Option<usize> {
        let node = &self.network.graph.node[at];
        let is_fixed = |name: &String| name.is_empty() || self.network.stored(name).is_some();
        if !is_quantize(node) || !node.input.iter().skip(1).all(is_fixed) {
            return None;
        }
        let maker = *self.links.maker.get(node.input.first()?)?;
        let is_operator = |node: &NodeProto| !is_quantize(node) && !is_dequantize(node);
        self.owner[maker].filter(|_| is_operator(&self.network.graph.node[maker]))
    }

    /// Finds what a unit reads.
    fn connect(&mut self, unit: usize) {
        let nodes = &self.network.graph.node;
        let mut copies = BTreeSet::new();
        for &at in &self.all[unit].nodes {
            let makers = nodes[at].input.iter().filter_map(|name| self.links.maker.get(name));
            copies.extend(
                makers.filter(|&&maker| is_dequantize(&nodes[maker]) && self.owner[maker] != Some(unit)),
            );
        }
        let (mut after, mut reads) = (BTreeSet::new(), BTreeSet::new());
        for &at in self.all[unit].nodes.iter().chain(&copies) {
            for name in names(&nodes[at]) {
                match self.links.maker.get(&name) {
                    Some(maker) if copies.contains(maker) => continue,
                    Some(&maker) => match self.owner[maker] {
                        Some(other) if other != unit => _ = after.insert(other),
                        _ => continue,
                    },
                    None if self.network.stored(&name).is_some() => continue,
                    None => {}
                }
                reads.insert(name);
            }
        }
        let unit = &mut self.all[unit];
        (unit.copies, unit.after, unit.reads) = (copies, after, reads);
    }

    /// Whether a unit only quantizes or dequantizes. Runtimes take that with operators beside it, not alone.
    pub(super) fn is_format(&self, unit: usize) -> bool {
        let is_format = |&at: &usize| {
            let node = &self.network.graph.node[at];
            is_quantize(node) || is_dequantize(node)
        };
        self.all[unit].nodes.iter().all(is_format)
    }

    /// Whether one of two units reads the other.
    pub(super) fn are_neighbours(&self, one: usize, other: usize) -> bool {
        self.all[one].after.contains(&other) || self.all[other].after.contains(&one)
    }

    /// Units that are connected by values that are not quantized, as sets: between them lie the quantized values.
    pub(super) fn islands(&self) -> Vec<Vec<usize>> {
        let mut sets = Sets::new(self.all.len());
        for (unit, own) in self.all.iter().enumerate() {
            for name in &own.reads {
                let Some(&maker) = self.links.maker.get(name) else { continue };
                if let Some(other) =
                    self.owner[maker].filter(|_| !is_quantize(&self.network.graph.node[maker]))
                {
                    sets.join(unit, other);
                }
            }
        }
        sets.all()
    }

    /// The nodes of some units, in order, and the copies that they need.
    pub(super) fn nodes(&self, units: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let own: BTreeSet<usize> = units.iter().flat_map(|&unit| &self.all[unit].nodes).copied().collect();
        let copies = units.iter().flat_map(|&unit| &self.all[unit].copies).copied();
        let copies: BTreeSet<usize> = copies.filter(|at| !own.contains(at)).collect();
        (own.into_iter().collect(), copies.into_iter().collect())
    }

    /// Some units as a network of their own.
    pub(super) fn part(&self, some: &[usize], types: &HashMap<String, ValueType>) -> Result<Network> {
        let (own, copies) = self.nodes(some);
        let all: BTreeSet<usize> = own.iter().chain(&copies).copied().collect();
        let mut part = self.network.part(&all.into_iter().collect::<Vec<_>>(), types)?;
        // What others read, of which they may have copies of what dequantizes it.
        let others = (0..self.all.len()).filter(|unit| !some.contains(unit));
        let read: BTreeSet<&String> = others.flat_map(|unit| &self.all[unit].reads).collect();
        let made: BTreeSet<&String> =
            own.iter().flat_map(|&at| &self.network.graph.node[at].output).collect();
        let outputs = made.into_iter().filter(|name| self.links.kept.contains(*name) || read.contains(name));
        let port = |name: &String| {
            let value = types.get(name);
            let value = value.ok_or_else(|| Error::Invalid(format!("the type of {name:?} is not known")))?;
            Ok(edit::info(name, value.element, &value.shape))
        };
        part.graph.output = outputs.map(port).collect::<Result<_>>()?;
        Ok(part)
    }
}

/// Disjoint sets of numbers.
pub(super) struct Sets(Vec<usize>);

impl Sets {
    /// Each number below `count` in a set of its own.
    pub(super) fn new(count: usize) -> Sets {
        Sets((0..count).collect())
    }

    fn root(&self, mut of: usize) -> usize {
        while self.0[of] != of {
            of = self.0[of];
        }
        of
    }

    /// Makes one set of two numbers' sets.
    pub(super) fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.root(one), self.root(other));
        self.0[one.max(other)] = one.min(other);
    }

    /// The sets, each in order.
    pub(super) fn all(&self) -> Vec<Vec<usize>> {
        let mut sets: Vec<Vec<usize>> = vec![Vec::new(); self.0.len()];
        (0..self.0.len()).for_each(|number| sets[self.root(number)].push(number));
        sets.retain(|set| !set.is_empty());
        sets
    }
}

/// Whether a node quantizes.
pub(crate) fn is_quantize(node: &NodeProto) -> bool {
    node.op_type == "QuantizeLinear" && is_standard(node)
}

/// Whether a node dequantizes.
pub(crate) fn is_dequantize(node: &NodeProto) -> bool {
    node.op_type == "DequantizeLinear" && is_standard(node)
}

fn is_standard(node: &NodeProto) -> bool {
    matches!(&*node.domain, "" | "ai.onnx" | "com.microsoft")
}

/// What a node reads, also in the bodies of control flow. Names that a body makes itself are among them.
fn names(node: &NodeProto) -> Vec<String> {
    fn of_body(body: &GraphProto, all: &mut Vec<String>) {
        all.extend(body.output.iter().map(|output| output.name.clone()));
        body.node.iter().for_each(|node| all.extend(names(node)));
    }
    let mut all: Vec<String> = node.input.iter().filter(|name| !name.is_empty()).cloned().collect();
    let bodies = node.attribute.iter().filter_map(|attribute| attribute.g.as_deref());
    bodies.for_each(|body| of_body(body, &mut all));
    all
}
