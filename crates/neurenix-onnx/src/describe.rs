//! What is in a file, also if it needs what is not supported.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

use phynexus::Device;

use crate::{
    Element, Error, Port, Result,
    build::Builder,
    data::Reader,
    infer,
    model::port,
    proto::{self, GraphProto, ModelProto, TensorProto},
    shapes,
};

/// What is in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    /// The program that wrote it, with its version.
    pub producer: String,
    /// The versions of operators, by domain; ONNX's own is `ai.onnx`.
    pub opsets: BTreeMap<String, i64>,
    /// The inputs that must be given.
    pub inputs: Vec<Port>,
    /// The outputs. Extents that the file does not state are inferred.
    pub outputs: Vec<Port>,
    /// The number of stored tensors of floats, with those of branches and loops.
    pub parameters: usize,
    /// The number of their elements.
    pub elements: u64,
    /// The bytes of all stored tensors, also of those in other files.
    pub bytes: u64,
    /// How often each operator and function is there, with those of branches, loops and bodies of functions.
    pub operators: BTreeMap<String, usize>,
    /// What [`crate::Model::load`] would refuse: all of it.
    pub unsupported: Vec<String>,
    /// Why no sizes of the inputs could make the network work, if that is so.
    pub contradiction: Option<String>,
}

/// Reads what is in a file. Tensors in other files are not read.
///
/// # Errors
/// If the file cannot be read or is not valid. What is not supported is part of the description.
pub fn describe(path: &Path) -> Result<Description> {
    Description::of(&proto::read(path)?)
}

impl Description {
    /// The description of a file's message.
    ///
    /// # Errors
    /// If it is not valid.
    pub fn of(proto: &ModelProto) -> Result<Description> {
        let graph = proto.graph.as_ref().ok_or_else(|| Error::invalid("the file has no graph"))?;
        let stored: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let inputs = graph.input.iter().filter(|input| !stored.contains(input.name.as_str())).map(port);
        let domain = |domain: &str| if domain.is_empty() { "ai.onnx".to_owned() } else { domain.to_owned() };
        let mut description = Description {
            producer: format!("{} {}", proto.producer_name, proto.producer_version).trim().to_owned(),
            opsets: proto.opset_import.iter().map(|set| (domain(&set.domain), set.version)).collect(),
            inputs: inputs.collect(),
            outputs: graph.output.iter().map(port).collect(),
            parameters: 0,
            elements: 0,
            bytes: 0,
            operators: BTreeMap::new(),
            unsupported: Vec::new(),
            contradiction: None,
        };
        description.count(graph, 0)?;
        for function in &proto.functions {
            let body = GraphProto { node: function.node.clone(), ..GraphProto::default() };
            description.count(&body, 0)?;
        }
        let reader = Reader { folder: None, device: Device::find("cpu")? };
        let mut builder = Builder::new(reader, &proto.functions);
        match builder.graph(&infer::without_weights(graph), &proto.opset_import) {
            Ok(built) => match shapes::types(&built, &[]) {
                Ok(types) => {
                    description.outputs.iter_mut().for_each(|output| output.refine(types.get(&output.name)));
                }
                Err(error) => description.contradiction = Some(error.to_string()),
            },
            Err(Error::Unsupported(what)) => description.unsupported.extend(what),
            Err(error) => return Err(error),
        }
        description.unsupported.extend(builder.missing);
        description.unsupported.sort();
        description.unsupported.dedup();
        Ok(description)
    }

    /// Adds the nodes and tensors of a graph and of those within it.
    fn count(&mut self, graph: &GraphProto, depth: usize) -> Result<()> {
        if depth > crate::build::DEPTH {
            return Err(Error::invalid("graphs are nested too deep"));
        }
        graph.initializer.iter().for_each(|tensor| self.tensor(tensor));
        let values = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        values.for_each(|tensor| self.tensor(tensor));
        for node in &graph.node {
            let name = match node.domain.as_str() {
                "" | "ai.onnx" => node.op_type.clone(),
                domain => format!("{domain}.{}", node.op_type),
            };
            *self.operators.entry(name).or_default() += 1;
            for attribute in &node.attribute {
                attribute.t.iter().for_each(|tensor| self.tensor(tensor));
                attribute.g.iter().try_for_each(|inner| self.count(inner, depth + 1))?;
            }
        }
        Ok(())
    }

    fn tensor(&mut self, tensor: &TensorProto) {
        let element = Element::of_number(i64::from(tensor.data_type));
        let size = |size: &i64| u64::try_from(*size).unwrap_or(0);
        let count = tensor.dims.iter().map(size).fold(1u64, u64::saturating_mul);
        match element.map(|element| (element, element.dtype())) {
            Some((element, Some(dtype))) => {
                self.bytes =
                    self.bytes.saturating_add(count.saturating_mul(element.bits() as u64).div_ceil(8));
                if dtype.is_float() {
                    self.parameters += 1;
                    self.elements = self.elements.saturating_add(count);
                }
            }
            Some((Element::String, None)) => {
                self.bytes += tensor.string_data.iter().map(|text| text.len() as u64).sum::<u64>();
            }
            Some((element, None)) => {
                self.unsupported.push(format!("elements of type {element:?} (tensor {:?})", tensor.name));
            }
            None => {}
        }
    }
}
