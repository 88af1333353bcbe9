//! Parts of networks: what can be computed in advance, what values are, and cutting a part out.

use std::collections::{BTreeSet, HashMap, HashSet};

use phynexus::{Device, Tensor, tensor::Generator};

use super::{Network, ValueType, info, reads, stored};
use crate::{
    Error, Result, Value,
    proto::{GraphProto, NodeProto, TensorProto, ValueInfoProto},
};

impl Network {
    /// Computes nodes whose inputs are all stored, and stores their results instead. Nodes that draw random numbers
    /// stay, and so do those that dequantize: their inputs are what a file should store.
    ///
    /// # Errors
    /// If a node fails.
    pub fn fold(&mut self) -> Result<()> {
        const STAYS: [&str; 4] = ["Random", "Bernoulli", "Multinomial", "DequantizeLinear"];
        let mut known: HashSet<String> =
            self.graph.initializer.iter().map(|tensor| tensor.name.clone()).collect();
        let mut constant = Vec::new();
        for (at, node) in self.graph.node.iter().enumerate() {
            let is_fixed = !node.input.is_empty()
                && !STAYS.iter().any(|stays| node.op_type.starts_with(stays))
                && node.attribute.iter().all(|attribute| attribute.g.is_none())
                && node.input.iter().all(|name| name.is_empty() || known.contains(name));
            if is_fixed {
                known.extend(node.output.iter().cloned());
                constant.push(at);
            }
        }
        let links = self.links();
        let outer = |name: &&String| {
            let readers = links.readers.get(*name).into_iter().flatten();
            !name.is_empty()
                && (links.kept.contains(*name) || readers.into_iter().any(|(at, _)| !constant.contains(at)))
        };
        let wanted: Vec<String> =
            constant.iter().flat_map(|&at| &self.graph.node[at].output).filter(outer).cloned().collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let part = GraphProto {
            node: constant.iter().map(|&at| self.graph.node[at].clone()).collect(),
            initializer: self.graph.initializer.clone(),
            output: wanted.iter().map(|name| ValueInfoProto { name: name.clone(), r#type: None }).collect(),
            ..Default::default()
        };
        let part = Network { graph: part, rest: self.rest.clone() };
        let values = part.model(Device::find("cpu")?)?.run(HashMap::new(), &Generator::new(0))?;
        let outputs: HashSet<&str> = self.graph.output.iter().map(|output| output.name.as_str()).collect();
        let mut stored_tensors = Vec::new();
        let mut skipped: HashSet<&str> = HashSet::new();
        for (name, value) in wanted.iter().zip(&values) {
            match value {
                Value::Tensor(tensor) if !outputs.contains(name.as_str()) => {
                    stored_tensors.push(stored(name, tensor)?)
                }
                _ => _ = skipped.insert(name),
            }
        }
        let replaced: HashSet<usize> = (constant.iter().copied())
            .filter(|&at| !self.graph.node[at].output.iter().any(|name| skipped.contains(name.as_str())))
            .collect();
        // What a node that stays reads must stay, too: `prune` drops the others.
        let made: HashSet<&String> = stored_tensors.iter().map(|tensor| &tensor.name).collect();
        let is_stored = |at: &usize| self.graph.node[*at].output.iter().any(|name| made.contains(name));
        let dropped: HashSet<usize> = replaced.into_iter().filter(is_stored).collect();
        self.remove_nodes(&dropped);
        stored_tensors.into_iter().for_each(|tensor| self.store(tensor));
        self.prune();
        Ok(())
    }

    /// The type and shape of every value that is a tensor of numbers, for these inputs, and the values if `keeps` says
    /// so.
    ///
    /// # Errors
    /// If a node fails.
    pub fn observe(
        &self,
        inputs: HashMap<String, Value>,
        device: Device,
        keeps: impl Fn(&str) -> bool,
    ) -> Result<(HashMap<String, ValueType>, HashMap<String, Tensor>)> {
        let mut names: Vec<String> = inputs.keys().cloned().collect();
        let outputs = self.graph.node.iter().flat_map(|node| &node.output);
        names.extend(outputs.filter(|name| !name.is_empty()).cloned());
        let mut types = HashMap::new();
        let mut kept = HashMap::new();
        let values = self.with_outputs(&names).model(device)?.run(inputs, &Generator::new(0))?;
        for (name, value) in names.into_iter().zip(values) {
            let (Some(element), Ok(tensor)) = (value.element(), value.tensor()) else { continue };
            types.insert(name.clone(), ValueType { element, shape: tensor.shape().to_vec() });
            if keeps(&name) {
                kept.insert(name, tensor.clone());
            }
        }
        Ok((types, kept))
    }

    /// The same network with other outputs: values of any of its nodes.
    pub fn with_outputs(&self, names: &[String]) -> Network {
        let output = names.iter().map(|name| ValueInfoProto { name: name.clone(), r#type: None }).collect();
        let mut network = self.clone();
        network.graph.output = output;
        network
    }

    /// A part of the network: these nodes in their order. Its inputs are what they read from others, its outputs what
    /// others read of them, of the types in `types`.
    ///
    /// # Errors
    /// If a type is missing.
    pub fn part(&self, nodes: &[usize], types: &HashMap<String, ValueType>) -> Result<Network> {
        let links = self.links();
        let inside: HashSet<usize> = nodes.iter().copied().collect();
        let own: Vec<&NodeProto> = nodes.iter().map(|&at| &self.graph.node[at]).collect();
        let made: HashSet<&String> = own.iter().flat_map(|node| &node.output).collect();
        let mut read = HashSet::new();
        for node in &own {
            read.extend(node.input.iter().filter(|name| !name.is_empty()).cloned());
            node.attribute.iter().filter_map(|a| a.g.as_deref()).for_each(|body| reads(body, &mut read));
        }
        let initializer: Vec<TensorProto> =
            self.graph.initializer.iter().filter(|tensor| read.contains(&tensor.name)).cloned().collect();
        let stored: HashSet<&String> = initializer.iter().map(|tensor| &tensor.name).collect();
        let known = |name: &String| {
            let value = types
                .get(name)
                .ok_or_else(|| Error::invalid(format!("the type of {name:?} is not known")))?;
            Ok(info(name, value.element, &value.shape))
        };
        let mut outside: Vec<&String> =
            read.iter().filter(|name| !made.contains(name) && !stored.contains(name)).collect();
        outside.sort();
        let is_output = |name: &&&String| {
            let readers = links.readers.get(**name).into_iter().flatten();
            !name.is_empty()
                && (links.kept.contains(**name) || readers.into_iter().any(|(at, _)| !inside.contains(at)))
        };
        let mut outputs: Vec<&String> = made.iter().filter(is_output).copied().collect();
        outputs.sort();
        let graph = GraphProto {
            name: self.graph.name.clone(),
            node: own.into_iter().cloned().collect(),
            input: outside.into_iter().map(known).collect::<Result<_>>()?,
            output: outputs.into_iter().map(known).collect::<Result<_>>()?,
            initializer,
            ..Default::default()
        };
        Ok(Network { graph, rest: self.rest.clone() })
    }

    /// The part of the network that computes `outputs` from `inputs` and stored tensors. Its inputs are those of
    /// `inputs` that it reads; their types are not declared.
    ///
    /// # Errors
    /// If it needs a value that is neither among `inputs` nor stored nor made by a node.
    pub fn between(&self, inputs: &HashSet<String>, outputs: &[String]) -> Result<Network> {
        let links = self.links();
        let (mut nodes, mut read) = (BTreeSet::new(), HashSet::new());
        let mut wanted: Vec<String> = outputs.to_vec();
        while let Some(name) = wanted.pop() {
            if name.is_empty() || !read.insert(name.clone()) || inputs.contains(&name) {
                continue;
            }
            let Some(&maker) = links.maker.get(&name) else {
                if self.stored(&name).is_some() {
                    continue;
                }
                return Err(Error::invalid(format!("nothing makes the value {name:?}")));
            };
            let Some(node) = self.graph.node.get(maker).filter(|_| nodes.insert(maker)) else { continue };
            wanted.extend(node.input.iter().cloned());
            let mut inner = HashSet::new();
            node.attribute.iter().filter_map(|a| a.g.as_deref()).for_each(|body| reads(body, &mut inner));
            // A body reads values that it makes itself, too.
            wanted.extend(inner.into_iter().filter(|name| {
                inputs.contains(name) || links.maker.contains_key(name) || self.stored(name).is_some()
            }));
        }
        let untyped = |name: &String| ValueInfoProto { name: name.clone(), r#type: None };
        let mut given: Vec<&String> = inputs.iter().filter(|name| read.contains(*name)).collect();
        given.sort();
        let is_read = |tensor: &&TensorProto| read.contains(&tensor.name) && !inputs.contains(&tensor.name);
        let graph = GraphProto {
            name: self.graph.name.clone(),
            node: nodes.iter().filter_map(|&at| self.graph.node.get(at).cloned()).collect(),
            input: given.into_iter().map(untyped).collect(),
            output: outputs.iter().map(untyped).collect(),
            initializer: self.graph.initializer.iter().filter(is_read).cloned().collect(),
            ..Default::default()
        };
        Ok(Network { graph, rest: self.rest.clone() })
    }
}
