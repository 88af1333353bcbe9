//! Files of TensorFlow Lite, written from networks.
//!
//! LiteRT, Vela, the Edge TPU's compiler and Arm NN read them. A network whose values are quantized by pairs of
//! `QuantizeLinear` and `DequantizeLinear` becomes a file that computes on integers: 8 bits, or 16 bits with weights of
//! 8. Unsigned values become signed: they and their zero points are moved by half of the range. Images have their
//! channels last in a file; the border of the file, not an operator in it, moves inputs and outputs ([`Port`]).
//!
//! Source of the rules for integers: TFLite's 8-bit quantization specification
//! (<https://ai.google.dev/edge/litert/conversion/tensorflow/quantization/quantization_spec>).

mod constant;
mod convert;
mod elementwise;
mod graph;
mod layout;
mod linear;
mod movement;
mod normalization;
mod pool;
mod port;
mod schema;
mod window;
mod writer;

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    Element, Value,
    edit::{Network, ValueType},
    proto::{DimensionKind, TypeKind, ValueInfoProto},
};
use phynexus::{Device, Tensor};

pub use port::Port;
pub(crate) use schema::{Code, Kind};

use self::{
    graph::{Graph, Quantization},
    layout::Layout,
    writer::{Held, Scheme, Writer, plain_kind, refusal},
};
use crate::{Accepts, Error, Place, Placed, Result};

const DEQUANTIZE: &str = "DequantizeLinear";

/// A file of TensorFlow Lite.
#[derive(Clone, Debug)]
pub struct File {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The inputs, in the order of the network's.
    pub inputs: Vec<Port>,
    /// The outputs, in the order of the network's.
    pub outputs: Vec<Port>,
    /// The operators, in the order of the file.
    pub operators: Vec<FileOperator>,
    /// What generated names of tensors stand for.
    pub(crate) names: HashMap<String, String>,
}

/// An operator of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOperator {
    /// The name in TFLite's schema, such as `CONV_2D`.
    pub operator: &'static str,
    /// The node of the network that it belongs to.
    pub node: String,
    /// The name of the tensor that it makes.
    pub output: String,
}

/// Writes a network of fixed shapes as a file.
///
/// # Errors
/// [`Error::Runtime`] if a node has no form in TFLite, which names it; if the network is not valid.
pub fn write(network: &Network) -> Result<File> {
    let types = value_types(network)?;
    write_with(network, &types, Dialect::default())
}

/// Which of several forms an operator gets, where readers of the files differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// Whether `FULLY_CONNECTED` has one scale for all weights, and matrices as inputs: other products are convolutions
    /// of one pixel.
    pub(crate) plain_products: bool,
    /// Whether operators compute values of 16 bits as real numbers, which are limited before they are quantized: where
    /// results of 16 bits wrap around instead of saturating.
    pub(crate) real_words: bool,
    /// Whether tensors other than inputs have generated names, such as `t17`, where a report does not quote names.
    pub(crate) generated_names: bool,
}

/// As [`write`](fn@write), with the types of all values and a dialect.
///
/// # Errors
/// As for [`write`](fn@write).
pub(crate) fn write_with(
    network: &Network,
    types: &HashMap<String, ValueType>,
    dialect: Dialect,
) -> Result<File> {
    let mut writer = Writer::new(network, types, dialect);
    for at in 0..network.graph.node.len() {
        writer.at = at;
        writer.check_sizes()?;
    }
    let mut inputs = Vec::new();
    for input in &network.graph.input {
        if network.stored(&input.name).is_none() {
            inputs.push(writer.border(&input.name)?);
        }
    }
    for at in 0..network.graph.node.len() {
        writer.at = at;
        if !writer.absorbed.contains(&at) {
            writer.write_node()?;
        }
    }
    let mut outputs = Vec::new();
    for output in &network.graph.output {
        outputs.push(writer.output_port(&output.name)?);
    }
    let mut graph = without_unused(writer.graph);
    let names = if dialect.generated_names { graph.generate_names() } else { HashMap::new() };
    let operators = (graph.steps.iter())
        .map(|step| FileOperator {
            operator: step.code.name(),
            node: step.node.clone(),
            output: step.outputs.first().map_or(String::new(), |&at| graph.tensors[at as usize].name.clone()),
        })
        .collect();
    Ok(File { bytes: graph.encode(), inputs, outputs, operators, names })
}

/// Where the nodes of a file run, from where its operators do: on the CPU if one of theirs does.
pub(crate) fn placed(file: &File, network: &Network, place: impl Fn(&FileOperator) -> Place) -> Vec<Placed> {
    let kinds: HashMap<&str, &str> =
        network.graph.node.iter().map(|node| (node.name.as_str(), node.op_type.as_str())).collect();
    let mut placed: Vec<Placed> = Vec::new();
    for operator in &file.operators {
        let place = place(operator);
        match placed.iter_mut().find(|known| known.node == operator.node) {
            Some(known) if place != Place::Device => known.place = place,
            Some(_) => {}
            None => placed.push(Placed {
                node: operator.node.clone(),
                operator: kinds.get(operator.node.as_str()).copied().unwrap_or_default().to_owned(),
                place,
            }),
        }
    }
    placed
}

/// Whether a node has a form in TFLite that a runtime `knows`: it is written alone, with the nodes around it that
/// quantize.
pub(crate) fn accepts(
    network: &Network,
    node: usize,
    types: &HashMap<String, ValueType>,
    dialect: Dialect,
    knows: impl Fn(&FileOperator) -> Accepts,
) -> Accepts {
    if dequantizes_constant(network, node) {
        // It is no operator of the file. Alone it could not be written: an output has one scale.
        return Accepts::Yes;
    }
    match surrounded(network, node, types).and_then(|part| write_with(&part, types, dialect)) {
        Ok(file) => {
            let mut answers = file.operators.iter().map(knows);
            answers.find(|answer| *answer != Accepts::Yes).unwrap_or(Accepts::Yes)
        }
        Err(Error::Runtime { message, .. }) => Accepts::No(message),
        Err(error) => Accepts::No(error.to_string()),
    }
}

/// Whether a node dequantizes what is stored: what reads it reads a constant.
fn dequantizes_constant(network: &Network, node: usize) -> bool {
    network.graph.node.get(node).is_some_and(|node| {
        node.op_type == DEQUANTIZE && node.input.first().is_some_and(|name| network.stored(name).is_some())
    })
}

/// A node alone, with those that dequantize what it reads and quantize what it makes.
pub(crate) fn surrounded(
    network: &Network,
    node: usize,
    types: &HashMap<String, ValueType>,
) -> Result<Network> {
    let proto = network.graph.node.get(node);
    let proto = proto.ok_or_else(|| Error::Invalid(format!("there is no node {node}")))?;
    let links = network.links();
    let is = |at: usize, operator: &str| network.graph.node[at].op_type == operator;
    let mut nodes: Vec<usize> = (proto.input.iter())
        .filter_map(|name| links.maker.get(name).copied())
        .filter(|&maker| is(maker, DEQUANTIZE))
        .collect();
    let readers = proto.output.iter().filter_map(|name| links.readers.get(name)).flatten();
    nodes.extend(readers.map(|&(reader, _)| reader).filter(|&reader| is(reader, "QuantizeLinear")));
    nodes.push(node);
    nodes.sort_unstable();
    nodes.dedup();
    let mut part = network.part(&nodes, types)?;
    if proto.op_type != DEQUANTIZE {
        // Other nodes may read what dequantizes this one's inputs: for them there are copies.
        let copied: HashSet<&String> = (nodes.iter().filter(|&&at| is(at, DEQUANTIZE)))
            .flat_map(|&at| &network.graph.node[at].output)
            .collect();
        part.graph.output.retain(|output| !copied.contains(&output.name));
    }
    Ok(part)
}

/// The types of all values of a network of fixed shapes: the CPU computes it once, from zeros.
///
/// # Errors
/// If an input has no fixed shape, or a node fails.
pub(crate) fn value_types(network: &Network) -> Result<HashMap<String, ValueType>> {
    let device = Device::find("cpu")?;
    let mut inputs = HashMap::new();
    for input in &network.graph.input {
        if network.stored(&input.name).is_some() {
            continue;
        }
        let value = declared(input).ok_or_else(|| {
            Error::Invalid(format!("the input {:?} has no fixed shape of numbers", input.name))
        })?;
        let dtype = value.element.dtype().unwrap_or(phynexus::DType::F32);
        let zeros = Tensor::zeros(&value.shape, dtype, device)?;
        inputs.insert(input.name.clone(), Value::of_element(zeros, value.element));
    }
    Ok(network.observe(inputs, device, |_| false)?.0)
}

/// The type of an input that is a tensor of fixed shape.
pub(crate) fn declared(input: &ValueInfoProto) -> Option<ValueType> {
    let Some(TypeKind::Tensor(tensor)) = &input.r#type.as_ref()?.value else { return None };
    let element = Element::of_number(tensor.elem_type.into())?;
    let dims = tensor.shape.as_ref()?.dim.iter();
    let shape = dims.map(|dim| match dim.value {
        Some(DimensionKind::Value(extent)) => usize::try_from(extent).ok(),
        _ => None,
    });
    Some(ValueType { element, shape: shape.collect::<Option<_>>()? })
}

impl Writer<'_> {
    /// The tensor and port of an input.
    fn border(&mut self, name: &str) -> Result<Port> {
        let value = self.types.get(name).cloned();
        let value = value.ok_or_else(|| refusal(&format!("the type of {name:?} is not known")))?;
        let scheme = match value.element {
            Element::Float => self.quantized_by_readers(name),
            element => self.dequantized_by_readers(name, element)?,
        };
        let is_image = value.shape.len() > 2 && self.reaches_image(name);
        let layout = if is_image { Layout::ChannelsLast } else { Layout::Network };
        let (kind, quantization) = match scheme {
            Some(scheme) => (Some(scheme.kind), Some(scheme.quantization)),
            None => (plain_kind(value.element), None),
        };
        let kind =
            kind.ok_or_else(|| refusal(&format!("the input {name:?} is of type {:?}", value.element)))?;
        let tensor = self.tensor(name, &value.shape, &layout, kind, quantization);
        self.graph.inputs.push(tensor);
        self.bind(name, Held { tensor, layout: layout.clone() });
        Ok(Port::new(name, &value, &self.graph.tensors[tensor as usize], &layout))
    }

    /// The port of an output.
    fn output_port(&mut self, name: &str) -> Result<Port> {
        let value = self.types.get(name).cloned();
        let value = value.ok_or_else(|| refusal(&format!("the type of {name:?} is not known")))?;
        let mut held = self.held(name)?;
        let is_made = self.graph.steps.iter().any(|step| step.outputs.contains(&held.tensor));
        if !is_made || self.graph.outputs.contains(&held.tensor) {
            // An input or another output has the tensor already: the output is a copy.
            self.at = self.links.maker.get(name).copied().unwrap_or(self.at);
            let like = self.stored(&held).clone();
            let shape = like.shape.clone();
            let copy = self.push(graph::Stored { name: format!("{name}/copy"), data: None, ..like });
            let extents = self.integers(&shape);
            self.step(Code::RESHAPE, vec![held.tensor, extents], copy, schema::reshape(shape));
            held.tensor = copy;
        }
        self.graph.outputs.push(held.tensor);
        let tensor = self.stored(&held);
        let is_single = tensor.quantization.as_ref().is_none_or(|q| Quantization::single(q).is_some());
        match is_single {
            true => Ok(Port::new(name, &value, tensor, &held.layout)),
            false => Err(refusal(&format!("the output {name:?} has several scales"))),
        }
    }

    /// How the readers of quantized integers dequantize them, if all do so alike.
    fn dequantized_by_readers(&self, name: &str, element: Element) -> Result<Option<Scheme>> {
        let readers = self.links.readers.get(name).into_iter().flatten();
        let mut schemes = readers
            .map(|&(at, _)| &self.network.graph.node[at])
            .filter(|node| node.op_type == "DequantizeLinear")
            .map(|node| self.scheme(node, element));
        let Some(first) = schemes.next().transpose()? else { return Ok(None) };
        Ok(Some(first).filter(|scheme| scheme.quantization.single().is_some()))
    }

    /// Whether an operator on images reads the value, through others that compute element by element.
    fn reaches_image(&self, name: &str) -> bool {
        const IMAGES: [&str; 6] =
            ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "Resize"];
        const PASS: [&str; 7] =
            ["QuantizeLinear", "DequantizeLinear", "Relu", "Clip", "Pad", "Identity", "Sigmoid"];
        // A list instead of recursion: a file may have a chain of any length.
        let mut names = vec![name];
        let mut seen = HashSet::new();
        while let Some(name) = names.pop() {
            for &(at, _) in self.links.readers.get(name).into_iter().flatten() {
                let node = &self.network.graph.node[at];
                let operator = node.op_type.as_str();
                if IMAGES.contains(&operator) {
                    return true;
                }
                if PASS.contains(&operator) && seen.insert(at) {
                    names.extend(node.output.iter().map(String::as_str));
                }
            }
        }
        false
    }

    /// Refuses values that a file cannot have, or that its readers do not take: numbers in files have 32 bits.
    fn check_sizes(&self) -> Result<()> {
        for name in self.node().input.iter().chain(&self.node().output) {
            if let Some(value) = self.types.get(name) {
                self.check_size(name, &value.shape)?;
                if value.shape.contains(&0) {
                    return Err(self.refuse(format!("{name:?} is empty")));
                }
            }
        }
        Ok(())
    }

    fn write_node(&mut self) -> Result<()> {
        if !matches!(self.node().domain.as_str(), "" | "ai.onnx") {
            return Err(self.refuse("it has no form in TFLite"));
        }
        match self.node().op_type.as_str() {
            "QuantizeLinear" => self.quantize(),
            "DequantizeLinear" => self.dequantize(),
            "Conv" => self.convolution(),
            "ConvTranspose" => self.transposed_convolution(),
            "Gemm" | "MatMul" => self.product(),
            "Add" => self.binary(Code::ADD),
            "Sub" => self.binary(Code::SUB),
            "Mul" => self.binary(Code::MUL),
            "Div" => self.binary(Code::DIV),
            "Max" => self.binary(Code::MAXIMUM),
            "Min" => self.binary(Code::MINIMUM),
            "Pow" => self.binary(Code::POW),
            "Clip" => self.clip(),
            "Softmax" => self.softmax(),
            "LayerNormalization" => self.layer_normalization(),
            "MaxPool" => self.pool(true),
            "AveragePool" => self.pool(false),
            "GlobalAveragePool" | "ReduceMean" => self.mean(),
            "Resize" => self.resize(),
            "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => self.reshape(),
            "Identity" | "Dropout" => self.identity(),
            "Transpose" => self.transpose(),
            "Concat" => self.concatenate(),
            "Pad" => self.pad(),
            "Slice" => self.slice(),
            "Gather" => self.gather(),
            _ => self.unary(),
        }
    }
}

/// The graph without tensors that no operator uses.
fn without_unused(mut graph: Graph) -> Graph {
    let mut used = vec![false; graph.tensors.len()];
    let steps = graph.steps.iter().flat_map(|step| step.inputs.iter().chain(&step.outputs));
    for &tensor in steps.chain(&graph.inputs).chain(&graph.outputs) {
        used[tensor as usize] = true;
    }
    let mut places = Vec::with_capacity(used.len());
    let mut next = 0;
    for &is_used in &used {
        places.push(next);
        next += i32::from(is_used);
    }
    let mut kept = used.iter();
    graph.tensors.retain(|_| kept.next().copied().unwrap_or(false));
    let steps = graph.steps.iter_mut().flat_map(|step| step.inputs.iter_mut().chain(&mut step.outputs));
    for tensor in steps.chain(&mut graph.inputs).chain(&mut graph.outputs) {
        *tensor = places[*tensor as usize];
    }
    graph
}

#[cfg(test)]
mod tests {
    use neurenix_onnx::{
        edit,
        proto::{AttributeProto, GraphProto, ModelProto, OperatorSetIdProto, attribute_type},
    };

    use super::*;

    #[test]
    fn long_chains_are_written() {
        const COUNT: usize = 50_000;
        let shape = [1, 1, 1, 1];
        let value = |at: usize| format!("v{at}");
        let nodes = (0..COUNT).map(|at| {
            let name = value(at + 1);
            edit::node("Relu", &name, &[&value(at)], &[&name], vec![])
        });
        let graph = GraphProto {
            node: nodes.collect(),
            input: vec![edit::info(&value(0), Element::Float, &shape)],
            output: vec![edit::info(&value(COUNT), Element::Float, &shape)],
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
        let model = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..Default::default() };
        let network = Network::new(model).unwrap();
        let of = |at: usize| (value(at), ValueType { element: Element::Float, shape: shape.to_vec() });
        let types = (0..=COUNT).map(of).collect();
        let file = write_with(&network, &types, Dialect::default()).unwrap();
        assert_eq!(file.operators.len(), COUNT);
    }

    /// The error of writing a node that reads `x` and a stored `w`, with values of these shapes.
    fn refused(operator: &str, attributes: &[(&str, &[i64])], [x, w, y]: [&[usize]; 3]) -> String {
        let attribute = |(name, numbers): &(&str, &[i64])| match *name {
            "axis" => edit::integer_attribute(name, numbers[0]),
            _ => AttributeProto {
                name: (*name).to_owned(),
                ints: numbers.to_vec(),
                r#type: attribute_type::INTS,
                ..Default::default()
            },
        };
        let attributes = attributes.iter().map(attribute).collect();
        let graph = GraphProto {
            node: vec![edit::node(operator, "node", &["x", "w"], &["y"], attributes)],
            input: vec![edit::info("x", Element::Float, x)],
            output: vec![edit::info("y", Element::Float, y)],
            ..Default::default()
        };
        let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 21 }];
        let model = ModelProto { ir_version: 10, graph: Some(graph), opset_import, ..Default::default() };
        let mut network = Network::new(model).unwrap();
        network.store(edit::floats("w", w, &vec![1.0; w.iter().product()]));
        let of = |name: &str, shape: &[usize]| {
            (name.to_owned(), ValueType { element: Element::Float, shape: shape.to_vec() })
        };
        let types = HashMap::from([of("x", x), of("y", y)]);
        write_with(&network, &types, Dialect::default()).unwrap_err().to_string()
    }

    #[test]
    fn what_32_bits_do_not_hold_and_what_is_empty_is_refused() {
        phynexus_cpu::register();
        const MUCH: i64 = 1 << 30;
        let filter: &[usize] = &[1, 1, 3, 3];
        let image: &[usize] = &[1, 1, 4, 4];
        let wide: &[usize] = &[1, 1, 1 << 20, 1 << 20];
        type Case<'a> = (&'a str, &'a [(&'a str, &'a [i64])], [&'a [usize]; 3], &'a str);
        let cases: [Case<'_>; 8] = [
            (
                "Conv",
                &[("pads", &[MUCH; 4]), ("strides", &[MUCH; 2])],
                [image, filter, &[1, 1, 3, 3]],
                "32 bits",
            ),
            ("Conv", &[("pads", &[1 << 40; 4])], [image, filter, image], "32 bits"),
            ("Conv", &[("dilations", &[MUCH; 2])], [image, filter, image], "32 bits"),
            (
                "Conv",
                &[("pads", &[1 << 20; 4]), ("strides", &[1 << 20; 2])],
                [image, filter, filter],
                "counts",
            ),
            ("ConvTranspose", &[("strides", &[MUCH; 2])], [image, filter, image], "32 bits"),
            ("Add", &[], [wide, filter, wide], "\"x\" has more elements than a file counts"),
            ("Concat", &[("axis", &[1])], [&[1, 4], &[1, 0], &[1, 4]], "\"w\" is empty"),
            ("MatMul", &[], [&[1, 0], &[0, 4], &[1, 4]], "\"x\" is empty"),
        ];
        for (operator, attributes, shapes, reason) in cases {
            let error = refused(operator, attributes, shapes);
            assert!(error.contains(&format!("node ({operator})")) && error.contains(reason), "{error}");
        }
    }
}
