//! Graphs of files that programs change: quantizers, and runtimes that take a part of a graph.

mod messages;
mod parts;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use phynexus::Device;

use crate::{
    Element, Error, Model, Result, Value,
    data::Reader,
    infer,
    model::quantizes,
    proto::{self, AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto},
    types::Types,
};

pub use messages::{
    float_attribute, floats, info, integer_attribute, integer_of, integers, integers_attribute, integers_of,
    node, stored, text_attribute, texts_attribute,
};

/// A file's graph that is being changed. Every node has a name of its own, and constants are initializers.
#[derive(Clone, Debug)]
pub struct Network {
    /// The graph.
    pub graph: GraphProto,
    /// The file's message without it.
    rest: ModelProto,
}

/// The type and the extents of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueType {
    /// The element type.
    pub element: Element,
    /// The extents.
    pub shape: Vec<usize>,
}

/// The nodes that make and read each value, as positions in [`GraphProto::node`].
#[derive(Clone, Debug, Default)]
pub struct Links {
    /// The node that makes a value.
    pub maker: HashMap<String, usize>,
    /// The nodes that read a value, with the input's position; not those in bodies of control flow.
    pub readers: HashMap<String, Vec<(usize, usize)>>,
    /// The outputs of the network, and what bodies of control flow read.
    pub kept: HashSet<String>,
}

impl Links {
    /// Whether nothing but this node reads the value.
    pub fn is_only_for(&self, value: &str, node: usize) -> bool {
        !self.kept.contains(value)
            && self.readers.get(value).is_some_and(|readers| readers.iter().all(|&(at, _)| at == node))
    }

    /// The only node that reads the value, if nothing else does.
    pub fn only_reader(&self, value: &str) -> Option<usize> {
        let &(node, _) = self.readers.get(value)?.first()?;
        self.is_only_for(value, node).then_some(node)
    }
}

impl Network {
    /// The graph of a file's message.
    ///
    /// # Errors
    /// If it has no graph.
    pub fn new(mut proto: ModelProto) -> Result<Network> {
        let graph = proto.graph.take().ok_or_else(|| Error::invalid("the file has no graph"))?;
        let mut network = Network { graph, rest: proto };
        network.store_constants()?;
        network.name_nodes();
        Ok(network)
    }

    /// Reads a file, with the tensors in other files.
    ///
    /// # Errors
    /// If a file cannot be read or is not valid.
    pub fn load(path: &Path) -> Result<Network> {
        let folder =
            path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        Network::read(proto::read(path)?, folder)
    }

    /// Reads the bytes of a file. Tensors in other files are searched in `folder`.
    ///
    /// # Errors
    /// If the file, or another that it names, is not valid or cannot be read.
    pub fn parse(bytes: &[u8], folder: Option<&Path>) -> Result<Network> {
        Network::read(proto::decode(bytes)?, folder)
    }

    fn read(mut proto: ModelProto, folder: Option<&Path>) -> Result<Network> {
        let reader = Reader { folder, device: Device::find("cpu")? };
        for tensor in proto.graph.iter_mut().flat_map(|graph| &mut graph.initializer) {
            if !tensor.external_data.is_empty() {
                let value = reader.value(tensor)?;
                let element = value.element().unwrap_or(Element::Float);
                if element.is_narrow() {
                    return Err(Error::unsupported(format!("{element:?} in another file")));
                }
                *tensor = stored(&tensor.name, value.tensor()?)?;
            }
        }
        Network::new(proto)
    }

    /// The message of a file with this graph.
    pub fn to_proto(&self) -> ModelProto {
        ModelProto { graph: Some(self.graph.clone()), ..self.rest.clone() }
    }

    /// The network as the engine computes it.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn model(&self, device: Device) -> Result<Model> {
        Model::of(&self.to_proto(), None, device)
    }

    /// The type of every value, with symbols and expressions of them as extents: see [`crate::infer`].
    ///
    /// # Errors
    /// If the graph is not valid, or no sizes of the inputs could make a node work: then the error names the node.
    pub fn types(&self) -> Result<Types> {
        infer::infer_graph(&self.graph, &self.rest.opset_import, &self.rest.functions)
    }

    /// The version of ONNX's own operators that the graph uses.
    pub fn opset(&self) -> i64 {
        let own = self.rest.opset_import.iter().find(|set| set.domain.is_empty() || set.domain == "ai.onnx");
        own.map_or(1, |set| set.version)
    }

    /// The first node that quantizes numbers, or computes with quantized ones.
    pub fn quantizing_node(&self) -> Option<&NodeProto> {
        self.graph.node.iter().find(|node| quantizes(&node.op_type))
    }

    /// Who makes and who reads each value.
    pub fn links(&self) -> Links {
        let mut links = Links::default();
        links.kept.extend(self.graph.output.iter().map(|output| output.name.clone()));
        for (at, node) in self.graph.node.iter().enumerate() {
            links
                .maker
                .extend(node.output.iter().filter(|name| !name.is_empty()).map(|name| (name.clone(), at)));
            for (input, name) in node.input.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                links.readers.entry(name.clone()).or_default().push((at, input));
            }
            node.attribute
                .iter()
                .filter_map(|a| a.g.as_deref())
                .for_each(|body| reads(body, &mut links.kept));
        }
        links
    }

    /// A stored tensor.
    pub fn stored(&self, name: &str) -> Option<&TensorProto> {
        self.graph.initializer.iter().find(|tensor| tensor.name == name)
    }

    /// A stored tensor's elements as the engine has them; `None` if nothing is stored under this name.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn value(&self, name: &str) -> Result<Option<Value>> {
        let reader = Reader { folder: None, device: Device::find("cpu")? };
        self.stored(name).map(|proto| reader.value(proto)).transpose()
    }

    /// The shape and the numbers of a stored tensor of floats; `None` if nothing is stored under this name, or another
    /// type is.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn floats(&self, name: &str) -> Result<Option<(Vec<usize>, Vec<f32>)>> {
        let Some(value) = self.value(name)? else { return Ok(None) };
        let Ok(tensor) = value.tensor() else { return Ok(None) };
        if !tensor.dtype().is_float() {
            return Ok(None);
        }
        let numbers = tensor.to_dtype(phynexus::DType::F32)?.to_vec::<f32>()?;
        Ok(Some((tensor.shape().to_vec(), numbers)))
    }

    /// Stores a tensor, in place of one of its name.
    pub fn store(&mut self, tensor: TensorProto) {
        match self.graph.initializer.iter_mut().find(|known| known.name == tensor.name) {
            Some(known) => *known = tensor,
            None => self.graph.initializer.push(tensor),
        }
    }

    /// Drops inputs that are stored tensors, too: defaults, which a caller could replace. They become constants.
    pub fn fix_defaults(&mut self) {
        let GraphProto { input, initializer, .. } = &mut self.graph;
        let stored: HashSet<&str> = initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        input.retain(|input| !stored.contains(input.name.as_str()));
    }

    /// A name for a value or node that is not in use: `stem`, or `stem` with a number.
    pub fn fresh(&self, stem: &str) -> String {
        let graph = &self.graph;
        let taken: HashSet<&str> = (graph.node.iter())
            .flat_map(|node| node.output.iter().chain([&node.name]))
            .chain(graph.initializer.iter().map(|tensor| &tensor.name))
            .chain(graph.input.iter().map(|input| &input.name))
            .map(String::as_str)
            .collect();
        let numbered = (1usize..).map(|number| format!("{stem}_{number}"));
        std::iter::once(stem.to_owned())
            .chain(numbered)
            .find(|name| !taken.contains(name.as_str()))
            .unwrap_or_default()
    }

    /// Puts nodes in an order in which each follows the nodes whose outputs it reads.
    ///
    /// # Errors
    /// If there is a cycle.
    pub fn sort(&mut self) -> Result<()> {
        let links = self.links();
        let mut waits: Vec<usize> = Vec::with_capacity(self.graph.node.len());
        let mut next: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, node) in self.graph.node.iter().enumerate() {
            let mut names: HashSet<String> = node.input.iter().cloned().collect();
            node.attribute.iter().filter_map(|a| a.g.as_deref()).for_each(|body| reads(body, &mut names));
            let makers: HashSet<usize> =
                names.iter().filter_map(|name| links.maker.get(name).copied()).collect();
            waits.push(makers.len());
            makers.into_iter().for_each(|maker| next.entry(maker).or_default().push(at));
        }
        let mut ready: std::collections::BTreeSet<usize> =
            waits.iter().enumerate().filter(|(_, count)| **count == 0).map(|(at, _)| at).collect();
        let mut order = Vec::with_capacity(waits.len());
        while let Some(at) = ready.pop_first() {
            order.push(at);
            for &reader in next.get(&at).into_iter().flatten() {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.insert(reader);
                }
            }
        }
        if order.len() != waits.len() {
            return Err(Error::invalid("the graph has a cycle"));
        }
        let mut nodes: Vec<Option<NodeProto>> =
            std::mem::take(&mut self.graph.node).into_iter().map(Some).collect();
        self.graph.node = order.into_iter().filter_map(|at| nodes[at].take()).collect();
        Ok(())
    }

    /// Drops nodes whose results nothing reads, and stored tensors that nothing reads.
    pub fn prune(&mut self) {
        loop {
            let links = self.links();
            let is_read = |name: &String| links.kept.contains(name) || links.readers.contains_key(name);
            let before = self.graph.node.len();
            self.graph.node.retain(|node| node.output.iter().any(&is_read));
            if self.graph.node.len() == before {
                self.graph.initializer.retain(|tensor| is_read(&tensor.name));
                let made: HashSet<&String> = self.graph.node.iter().flat_map(|node| &node.output).collect();
                self.graph.value_info.retain(|info| made.contains(&info.name));
                return;
            }
        }
    }

    /// Drops the nodes at these places.
    pub fn remove_nodes(&mut self, places: &HashSet<usize>) {
        let nodes = std::mem::take(&mut self.graph.node).into_iter().enumerate();
        self.graph.node = nodes.filter(|(at, _)| !places.contains(at)).map(|(_, node)| node).collect();
    }

    fn store_constants(&mut self) -> Result<()> {
        let nodes = std::mem::take(&mut self.graph.node);
        for node in nodes {
            let tensor = match &node.attribute[..] {
                [attribute] if node.op_type == "Constant" => constant(attribute),
                _ => None,
            };
            match (tensor, &node.output[..]) {
                (Some(tensor), [name]) => self.store(TensorProto { name: name.clone(), ..tensor }),
                _ => self.graph.node.push(node),
            }
        }
        Ok(())
    }

    fn name_nodes(&mut self) {
        let mut taken: HashSet<String> = self.graph.node.iter().map(|node| node.name.clone()).collect();
        let mut seen = HashSet::new();
        for (at, node) in self.graph.node.iter_mut().enumerate() {
            // Of several nodes with the same name, the first keeps it.
            if node.name.is_empty() || !seen.insert(node.name.clone()) {
                node.name = format!("{}_{at}", node.op_type);
                while !taken.insert(node.name.clone()) {
                    node.name.push('_');
                }
            }
        }
    }
}

/// The names that a body reads from the graphs around it, and more: those that it makes itself.
fn reads(body: &GraphProto, names: &mut HashSet<String>) {
    names.extend(body.output.iter().map(|output| output.name.clone()));
    for node in &body.node {
        names.extend(node.input.iter().filter(|name| !name.is_empty()).cloned());
        node.attribute.iter().filter_map(|a| a.g.as_deref()).for_each(|inner| reads(inner, names));
    }
}

/// The tensor of a `Constant` node's attribute, if it is one of numbers.
fn constant(attribute: &AttributeProto) -> Option<TensorProto> {
    let numbers = |dims: &[i64], element: Element, raw_data: Vec<u8>| TensorProto {
        dims: dims.to_vec(),
        data_type: element as i32,
        raw_data,
        ..Default::default()
    };
    match (attribute.name.as_str(), attribute.t.as_deref()) {
        ("value", Some(tensor)) => Some(tensor.clone()),
        ("value_float", _) => Some(numbers(&[], Element::Float, attribute.f().to_le_bytes().to_vec())),
        ("value_int", _) => Some(numbers(&[], Element::Int64, attribute.i().to_le_bytes().to_vec())),
        ("value_floats", _) => {
            let raw = attribute.floats.iter().flat_map(|x| x.to_le_bytes()).collect();
            Some(numbers(&[attribute.floats.len() as i64], Element::Float, raw))
        }
        ("value_ints", _) => {
            let raw = attribute.ints.iter().flat_map(|x| x.to_le_bytes()).collect();
            Some(numbers(&[attribute.ints.len() as i64], Element::Int64, raw))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_stay() {
        let named = |name: &str| node("Add", name, &["x", "x"], &["y"], Vec::new());
        let names = ["", "Add_0", "Add_0", "Add_2_", "Add"];
        let graph = GraphProto { node: names.map(named).to_vec(), ..GraphProto::default() };
        let network = Network::new(ModelProto { graph: Some(graph), ..ModelProto::default() }).unwrap();
        let found: Vec<&str> = network.graph.node.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(found, ["Add_0_", "Add_0", "Add_2", "Add_2_", "Add"]);
    }
}
