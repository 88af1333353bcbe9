//! Makes graphs of a file's messages.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::RangeInclusive,
    sync::Arc,
};

use phynexus::{Device, interrupt, tensor::Generator};

use crate::{
    Error, Result, Value,
    data::{Reader, stays_on_cpu},
    graph::{Action, Attribute, Environment, Graph, Node, Scope, compute},
    ops,
    proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, attribute_type},
    types::declared,
};

/// The greatest depth of graphs and functions within one another.
pub(crate) const DEPTH: usize = 64;

/// The greatest number of nodes, with those of a function once for each of its calls.
const NODES: usize = 1_000_000;

/// The versions of ONNX's own operators. Those before 7 are read as 7, which most operators leave as they were.
const OPSETS: RangeInclusive<i64> = 1..=28;

/// Makes graphs of messages. Collects what is not supported instead of stopping at the first.
pub(crate) struct Builder<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) functions: &'a [FunctionProto],
    pub(crate) missing: BTreeSet<String>,
    /// The number of nodes so far.
    pub(crate) count: usize,
    /// The greatest depth so far.
    deepest: usize,
    /// Bodies of functions that are the same for every call, by the function's position.
    bodies: HashMap<usize, Body>,
}

/// A function's body.
#[derive(Clone)]
struct Body {
    graph: Arc<Graph>,
    /// The number of its nodes, with those of functions once for each of their calls.
    nodes: usize,
    /// How deep graphs and functions are nested in it.
    height: usize,
}

/// What the parts of a graph depend on.
#[derive(Clone, Copy)]
struct Context<'c> {
    opsets: &'c [OperatorSetIdProto],
    /// The attributes of the call, within a function.
    given: Option<&'c HashMap<String, Attribute>>,
    depth: usize,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(reader: Reader<'a>, functions: &'a [FunctionProto]) -> Builder<'a> {
        Builder { reader, functions, missing: BTreeSet::new(), count: 0, deepest: 0, bodies: HashMap::new() }
    }

    /// The graph of a file.
    pub(crate) fn graph(&mut self, proto: &GraphProto, opsets: &[OperatorSetIdProto]) -> Result<Graph> {
        let graph = self.part(proto, Context { opsets, given: None, depth: 0 })?;
        let mut free: Vec<&String> = graph.free.iter().collect();
        free.sort();
        match free.first() {
            Some(name) => Err(Error::invalid(format!(
                "nothing makes the value {name:?}, which a node or an output reads"
            ))),
            None => Ok(graph),
        }
    }

    fn part(&mut self, proto: &GraphProto, context: Context<'_>) -> Result<Graph> {
        self.reach(context.depth)?;
        let cpu = Reader { device: Device::find("cpu")?, ..self.reader };
        let mut initializers = Vec::with_capacity(proto.initializer.len());
        for tensor in &proto.initializer {
            initializers.push((tensor.name.clone(), self.placed(cpu.value(tensor)?)?));
        }
        for sparse in &proto.sparse_initializer {
            let name = sparse.values.as_ref().map_or("", |values| &values.name);
            initializers.push((name.to_owned(), self.reader.sparse(sparse)?));
        }
        let inputs = proto.input.iter().map(|input| input.name.clone()).collect();
        let outputs = proto.output.iter().map(|output| output.name.clone()).collect();
        let mut graph = self.assembled(inputs, outputs, initializers, &proto.node, context)?;
        graph.declared = declared(proto.input.iter().chain(&proto.output).chain(&proto.value_info));
        Ok(graph)
    }

    /// A constant on the network's device, or on the CPU if its numbers are read.
    fn placed(&self, value: Value) -> Result<Value> {
        if stays_on_cpu(&value) { Ok(value) } else { value.to_device(self.reader.device) }
    }

    /// A graph of these parts: puts the nodes in order and finds out what each releases.
    fn assembled(
        &mut self,
        inputs: Vec<String>,
        outputs: Vec<String>,
        mut initializers: Vec<(String, Value)>,
        nodes: &[NodeProto],
        context: Context<'_>,
    ) -> Result<Graph> {
        let nodes = nodes.iter().map(|node| self.node(node, context)).collect::<Result<Vec<_>>>()?;
        let (constants, mut nodes): (Vec<_>, Vec<_>) =
            nodes.into_iter().partition(|node| node.operator == "Constant");
        for node in &constants {
            let value =
                constant(node).map_err(|e| Error::Node { node: node.describe(), source: Box::new(e) })?;
            let name = node.outputs.first().filter(|_| node.outputs.len() == 1);
            let name = name.ok_or_else(|| Error::invalid("a constant must have one output"))?;
            initializers.push((name.clone(), self.placed(value)?));
        }
        let twice = |name: &str| Error::invalid(format!("the value {name:?} is made twice"));
        let mut own: HashSet<&str> = HashSet::new();
        for (name, _) in &initializers {
            if !own.insert(name) {
                return Err(twice(name));
            }
        }
        // An input may have an initializer, its default.
        let mut unset: HashSet<&str> = HashSet::new();
        for name in &inputs {
            if !unset.insert(name) {
                return Err(twice(name));
            }
        }
        own.extend(unset);
        for name in nodes.iter().flat_map(|node| &node.outputs).filter(|name| !name.is_empty()) {
            if !own.insert(name) {
                return Err(twice(name));
            }
        }
        let own: HashSet<String> = own.into_iter().map(str::to_owned).collect();
        nodes = in_order(nodes)?;
        let read: Vec<HashSet<String>> = nodes.iter().map(Node::reads).collect();
        let free = read
            .iter()
            .flatten()
            .chain(&outputs)
            .filter(|name| !name.is_empty() && !own.contains(name.as_str()));
        let free: HashSet<String> = free.cloned().collect();
        // Backwards: who reads a value first is its last reader.
        let mut kept: HashSet<String> = outputs.iter().cloned().collect();
        for (node, read) in nodes.iter_mut().zip(&read).rev() {
            let here =
                read.iter().chain(&node.outputs).filter(|name| !name.is_empty() && !free.contains(*name));
            let released: Vec<String> = here.filter(|name| kept.insert((*name).clone())).cloned().collect();
            node.released = released;
        }
        Ok(Graph { inputs, outputs, initializers, nodes, free, declared: HashMap::new() })
    }

    fn node(&mut self, proto: &NodeProto, context: Context<'_>) -> Result<Node> {
        interrupt::check()?;
        self.add_nodes(1)?;
        let mut attributes = HashMap::new();
        for attribute in &proto.attribute {
            if !attribute.ref_attr_name.is_empty() {
                // An attribute that the call leaves out is left out here, too.
                let given = context.given.and_then(|given| given.get(&attribute.ref_attr_name));
                attributes.extend(given.map(|value| (attribute.name.clone(), value.clone())));
                continue;
            }
            attributes.insert(attribute.name.clone(), self.attribute(attribute, context)?);
        }
        let domain = if proto.domain == "ai.onnx" { "" } else { proto.domain.as_str() };
        let opset =
            context.opsets.iter().find(|o| (if o.domain == "ai.onnx" { "" } else { &o.domain }) == domain);
        let opset = opset.map_or(1, |opset| opset.version);
        let operator = match domain {
            "" => proto.op_type.clone(),
            _ => format!("{domain}.{}", proto.op_type),
        };
        let mut lacks = |what: String| {
            let name = if proto.name.is_empty() { &proto.output.join(", ") } else { &proto.name };
            self.missing.insert(format!("{what} (node {name:?})"));
        };
        if domain.is_empty() && !OPSETS.contains(&opset) {
            let (first, last) = OPSETS.into_inner();
            lacks(format!("opset {opset}, of those from {first} to {last}"));
        }
        let function = self.functions.iter().enumerate().find(|(_, f)| {
            (f.domain == proto.domain || f.domain == domain)
                && f.name == proto.op_type
                && f.overload == proto.overload
        });
        let action = match (function, ops::find(&operator)) {
            (Some(function), _) => Action::Function(self.function(function, proto, &attributes, context)?),
            (None, Some(operator)) => Action::Compute(operator),
            (None, None) => {
                lacks(format!("the operator {operator} of opset {opset}"));
                Action::Compute(|call| {
                    Err(Error::unsupported(format!("the operator {}", call.node.operator)))
                })
            }
        };
        Ok(Node {
            name: proto.name.clone(),
            operator,
            opset,
            inputs: proto.input.clone(),
            outputs: proto.output.clone(),
            attributes,
            action,
            released: Vec::new(),
        })
    }

    /// A function's body for one call. Calls share it if it does not depend on their attributes.
    fn function(
        &mut self,
        (place, function): (usize, &FunctionProto),
        call: &NodeProto,
        attributes: &HashMap<String, Attribute>,
        context: Context<'_>,
    ) -> Result<Arc<Graph>> {
        let mut given = HashMap::new();
        for default in &function.attribute_proto {
            given.insert(default.name.clone(), self.attribute(default, context)?);
        }
        given.extend(attributes.iter().map(|(name, value)| (name.clone(), value.clone())));
        if call.input.len() > function.input.len() {
            return Err(Error::invalid(format!(
                "the function {:?} has {} inputs, but it is called with {}",
                function.name,
                function.input.len(),
                call.input.len()
            )));
        }
        let inner = Context { opsets: &function.opset_import, given: Some(&given), depth: context.depth + 1 };
        if let Some(body) = self.bodies.get(&place).cloned() {
            self.reach(context.depth + body.height)?;
            self.add_nodes(body.nodes)?;
            return Ok(body.graph);
        }
        let (before, deepest) = (self.count, std::mem::replace(&mut self.deepest, 0));
        self.reach(inner.depth)?;
        let graph = self.assembled(
            function.input.clone(),
            function.output.clone(),
            Vec::new(),
            &function.node,
            inner,
        )?;
        let graph = match graph.free.iter().next() {
            Some(name) => {
                return Err(Error::invalid(format!(
                    "in the function {:?}, nothing makes {name:?}",
                    function.name
                )));
            }
            None => Arc::new(graph),
        };
        if !function.node.iter().any(depends_on_call) {
            let (nodes, height) = (self.count - before, self.deepest - context.depth);
            self.bodies.insert(place, Body { graph: graph.clone(), nodes, height });
        }
        self.deepest = self.deepest.max(deepest);
        Ok(graph)
    }

    /// Counts nodes.
    fn add_nodes(&mut self, count: usize) -> Result<()> {
        self.count = self.count.saturating_add(count);
        match self.count > NODES {
            true => Err(Error::invalid(format!(
                "the network has more than {NODES} nodes, with those of functions"
            ))),
            false => Ok(()),
        }
    }

    /// Notes a depth.
    fn reach(&mut self, depth: usize) -> Result<()> {
        self.deepest = self.deepest.max(depth);
        match depth > DEPTH {
            true => Err(Error::invalid(format!("graphs or functions are nested more than {DEPTH} deep"))),
            false => Ok(()),
        }
    }

    fn attribute(&mut self, proto: &AttributeProto, context: Context<'_>) -> Result<Attribute> {
        let bad = |what: &str| Error::invalid(format!("the attribute {:?} {what}", proto.name));
        let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).map_err(|_| bad("is not UTF-8"));
        Ok(match proto.r#type {
            attribute_type::FLOAT => Attribute::Float(proto.f()),
            attribute_type::INT => Attribute::Int(proto.i()),
            attribute_type::STRING => Attribute::Text(text(&proto.s)?),
            attribute_type::TENSOR => {
                let tensor = proto.t.as_ref().ok_or_else(|| bad("has no tensor"))?;
                let cpu = Reader { device: Device::find("cpu")?, ..self.reader };
                Attribute::Tensor(cpu.value(tensor)?)
            }
            attribute_type::SPARSE_TENSOR => {
                let tensor = proto.sparse_tensor.as_ref().ok_or_else(|| bad("has no tensor"))?;
                Attribute::Tensor(self.reader.sparse(tensor)?)
            }
            attribute_type::GRAPH => {
                let graph = proto.g.as_ref().ok_or_else(|| bad("has no graph"))?;
                Attribute::Graph(Arc::new(self.part(graph, Context { depth: context.depth + 1, ..context })?))
            }
            attribute_type::FLOATS => Attribute::Floats(proto.floats.clone()),
            attribute_type::INTS => Attribute::Ints(proto.ints.clone()),
            attribute_type::STRINGS => {
                Attribute::Texts(proto.strings.iter().map(text).collect::<Result<_>>()?)
            }
            attribute_type::TYPE_PROTO => Attribute::Type,
            other => return Err(bad(&format!("has the type {other}, which is not supported"))),
        })
    }
}

/// Whether a node of a function, or one within its graphs, has an attribute of the call.
fn depends_on_call(node: &NodeProto) -> bool {
    node.attribute.iter().any(|attribute| {
        !attribute.ref_attr_name.is_empty()
            || attribute.g.as_ref().is_some_and(|graph| graph.node.iter().any(depends_on_call))
    })
}

/// The value of a node without inputs.
fn constant(node: &Node) -> Result<Value> {
    let environment = Environment { device: Device::find("cpu")?, generator: &Generator::new(0) };
    let values = compute(node, &Scope::default(), environment)?;
    values.into_iter().next().ok_or_else(|| Error::invalid("it has no value"))
}

/// Puts nodes in an order in which each follows those whose outputs it reads.
fn in_order(nodes: Vec<Node>) -> Result<Vec<Node>> {
    let makers: HashMap<&str, usize> = nodes
        .iter()
        .enumerate()
        .flat_map(|(at, node)| node.outputs.iter().map(move |o| (o.as_str(), at)))
        .collect();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut waits = vec![0usize; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        for name in node.reads() {
            if let Some(&maker) = makers.get(name.as_str()) {
                readers[maker].push(at);
                waits[at] += 1;
            }
        }
    }
    let mut ready: BTreeSet<usize> = (0..nodes.len()).filter(|&at| waits[at] == 0).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(at) = ready.pop_first() {
        order.push(at);
        for &reader in &readers[at] {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.insert(reader);
            }
        }
    }
    if order.len() < nodes.len() {
        let stuck = nodes
            .iter()
            .zip(&waits)
            .find(|(_, waits)| **waits > 0)
            .map_or(String::new(), |(n, _)| n.describe());
        return Err(Error::invalid(format!("the graph has a cycle: {stuck} waits for its own output")));
    }
    let mut place = vec![0; nodes.len()];
    order.iter().enumerate().for_each(|(position, &at)| place[at] = position);
    let mut numbered: Vec<(usize, Node)> = place.into_iter().zip(nodes).collect();
    numbered.sort_by_key(|(position, _)| *position);
    Ok(numbered.into_iter().map(|(_, node)| node).collect())
}
