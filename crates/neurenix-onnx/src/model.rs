//! A network that was read from an ONNX file.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use phynexus::{DType, Device, Tensor, tensor::Generator, text::show_shape};

use crate::{
    Element, Error, Result, Value,
    build::Builder,
    data::{Reader, is_for_shapes, stays_on_cpu},
    graph::{Environment, Graph, run},
    proto::{self, DimensionKind, ModelProto, TypeKind, ValueInfoProto},
    shapes,
    types::{Extent, Type, Types},
};

/// An input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The element type of a tensor; `None` for sequences and optionals.
    pub element: Option<Element>,
    /// The extents of a tensor, if the file states them.
    pub shape: Option<Vec<Extent>>,
}

/// A network that was read from an ONNX file.
#[derive(Clone, Debug)]
pub struct Model {
    graph: Arc<Graph>,
    /// The tensors of the file: its initializers and constants.
    constants: Vec<(String, Value)>,
    /// The floats among them that training changes.
    trainable: HashSet<String>,
    /// The scales of quantized numbers among them.
    scales: HashSet<String>,
    device: Device,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
}

impl Model {
    /// Reads a file. Its tensors go to `device`.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid, or needs what is not supported; then the error names all of that.
    pub fn load(path: &Path, device: Device) -> Result<Model> {
        let proto = proto::read(path)?;
        let folder =
            path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
        Model::of(&proto, folder, device)
    }

    /// Reads the bytes of a file. Tensors in other files are searched in `folder`.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn parse(bytes: &[u8], folder: Option<&Path>, device: Device) -> Result<Model> {
        Model::of(&proto::decode(bytes)?, folder, device)
    }

    /// The network of a file's message. Tensors in other files are searched in `folder`.
    ///
    /// # Errors
    /// As for [`Model::load`].
    pub fn of(proto: &ModelProto, folder: Option<&Path>, device: Device) -> Result<Model> {
        let graph = proto.graph.as_ref().ok_or_else(|| Error::invalid("the file has no graph"))?;
        let reader = Reader { folder, device };
        let mut builder = Builder::new(reader, &proto.functions);
        let mut built = builder.graph(graph, &proto.opset_import)?;
        if !builder.missing.is_empty() {
            return Err(Error::Unsupported(builder.missing.into_iter().collect()));
        }
        let constants = std::mem::take(&mut built.initializers);
        let stored: HashSet<&str> = constants.iter().map(|(name, _)| name.as_str()).collect();
        let own = |input: &&ValueInfoProto| !stored.contains(input.name.as_str());
        let inputs = graph.input.iter().filter(own).map(port).collect();
        let mut outputs: Vec<Port> = graph.output.iter().map(port).collect();
        // Sizes that cannot be are for the run to report, if it comes to that node.
        if let Ok(types) = shapes::types(&built, &constants) {
            outputs.iter_mut().for_each(|output| output.refine(types.get(&output.name)));
        }
        let named: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
        let statistics = read_from(&built, &["BatchNormalization"], 3);
        let scales = read_from(&built, &["QuantizeLinear", "DequantizeLinear"], 1);
        let is_trainable = |(name, value): &&(String, Value)| {
            let is_weight = |tensor: &Tensor| {
                tensor.dtype().is_float() && tensor.dtype().float8().is_none() && !tensor.shape().is_empty()
            };
            named.contains(name.as_str())
                && !statistics.contains(name.as_str())
                && !scales.contains(name.as_str())
                && matches!(value, Value::Tensor(tensor) if is_weight(tensor))
        };
        let trainable = constants.iter().filter(is_trainable).map(|(name, _)| name.clone()).collect();
        let scales = scales.into_iter().map(str::to_owned).collect();
        Ok(Model { graph: Arc::new(built), constants, trainable, scales, device, inputs, outputs })
    }

    /// The same network on another device.
    ///
    /// # Errors
    /// If a copy fails.
    pub fn to_device(&self, device: Device) -> Result<Model> {
        let moved = |(name, value): &(String, Value)| {
            let value = if stays_on_cpu(value) { value.clone() } else { value.to_device(device)? };
            Ok((name.clone(), value))
        };
        let constants = self.constants.iter().map(moved).collect::<Result<_>>()?;
        Ok(Model {
            graph: self.graph.to_device(device, &mut HashMap::new())?,
            constants,
            device,
            ..self.clone()
        })
    }

    /// The inputs that must be given.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// The type of every value, by name; without those within branches, loops and functions.
    ///
    /// # Errors
    /// If no sizes of the inputs could make a node work: then the error names the node.
    pub fn value_types(&self) -> Result<Types> {
        shapes::types(&self.graph, &self.constants)
    }

    /// The outputs. Extents that the file does not state are inferred from those of the inputs, as far as that is
    /// possible.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Whether nodes quantize numbers, or compute with quantized ones.
    pub fn is_quantized(&self) -> bool {
        self.graph.nodes.iter().any(|node| quantizes(&node.operator))
    }

    /// Where it computes.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The tensors of floats in the file, by name, and whether training changes them: those with at least one dimension
    /// do, except for those of `Constant` nodes and the statistics of batch normalisations. Without the scales of
    /// quantized numbers, which stay as they are in the file.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Tensor, bool)> {
        self.constants.iter().filter_map(|(name, value)| match value {
            Value::Tensor(tensor) if tensor.dtype().is_float() && !self.scales.contains(name) => {
                Some((name.as_str(), tensor, self.trainable.contains(name)))
            }
            _ => None,
        })
    }

    /// Computes the outputs, in order. `given` has a value for each input, and may have others in place of the file's
    /// own tensors, such as weights that are trained.
    ///
    /// # Errors
    /// If an input is missing or unknown, or a node fails.
    pub fn run(&self, mut given: HashMap<String, Value>, generator: &Generator) -> Result<Vec<Value>> {
        let missing = self.inputs.iter().find(|input| !given.contains_key(&input.name));
        if let Some(missing) = missing {
            return Err(Error::invalid(format!("the input {:?} is missing", missing.name)));
        }
        for input in &self.inputs {
            let Some(value) = given.get_mut(&input.name) else { continue };
            // A tensor holds the values of a type that the engine lacks.
            if let (Some(element), Value::Tensor(tensor)) = (input.element.filter(|e| e.is_narrow()), &*value)
            {
                *value = Value::Narrow(tensor.clone(), element);
            }
            input.check(value)?;
            if !is_for_shapes(value) {
                *value = value.to_device(self.device)?;
            }
        }
        let inputs: Vec<Option<Value>> = self.graph.inputs.iter().map(|name| given.remove(name)).collect();
        let mut constants: HashMap<&str, Value> = HashMap::new();
        let mut changed = HashSet::new();
        for (name, value) in &self.constants {
            let other = given.remove(name);
            if other.is_some() {
                changed.insert(name.as_str());
            }
            constants.insert(name, other.unwrap_or_else(|| value.clone()));
        }
        if let Some(unknown) = given.keys().next() {
            let known: Vec<&str> = self.inputs.iter().map(|input| input.name.as_str()).collect();
            return Err(Error::invalid(format!(
                "there is no input {unknown:?}; there are {}",
                known.join(", ")
            )));
        }
        let environment = Environment { device: self.device, generator };
        run(&self.graph, inputs, constants, &changed, environment)
    }
}

impl Port {
    /// Adds what was inferred where the file does not state it.
    pub(crate) fn refine(&mut self, inferred: Option<&Type>) {
        let Some(inferred @ Type::Tensor { .. }) = inferred else { return };
        self.element = self.element.or(inferred.element());
        let Some(extents) = inferred.extents() else { return };
        match &mut self.shape {
            None => self.shape = Some(extents),
            Some(own) if own.len() == extents.len() => {
                let unknown = own.iter_mut().zip(extents).filter(|(own, _)| **own == Extent::Unknown);
                unknown.for_each(|(own, extent)| *own = extent);
            }
            Some(_) => {}
        }
    }

    /// Checks a value against what the file declares. Floats of any size are taken for floats: parameters may have been
    /// converted, too.
    fn check(&self, value: &Value) -> Result<()> {
        let (Some(declared), Some(given)) = (self.element, value.element()) else { return Ok(()) };
        let is_float = |element: Element| element.dtype().is_some_and(DType::is_float);
        let shape = value.shape()?;
        let fits = self.shape.as_ref().is_none_or(|declared| {
            let same = |(declared, &given): (&Extent, &usize)| {
                !matches!(declared, Extent::Fixed(size) if *size != given)
            };
            declared.len() == shape.len() && declared.iter().zip(shape).all(same)
        });
        if fits && (declared == given || is_float(declared) && is_float(given)) {
            return Ok(());
        }
        let extent = |extent: &Extent| match extent {
            Extent::Fixed(size) => size.to_string(),
            Extent::Symbol(name) => name.clone(),
            Extent::Unknown => "?".to_owned(),
        };
        let declared_shape = self.shape.as_ref().map_or("any shape".to_owned(), |shape| {
            format!("shape ({})", shape.iter().map(extent).collect::<Vec<_>>().join(", "))
        });
        Err(Error::invalid(format!(
            "the input {:?} must be {declared:?} of {declared_shape}, got {given:?} of shape {}",
            self.name,
            show_shape(shape)
        )))
    }
}

pub(crate) fn port(info: &ValueInfoProto) -> Port {
    let tensor = match info.r#type.as_ref().and_then(|t| t.value.as_ref()) {
        Some(TypeKind::Tensor(tensor)) => Some(tensor),
        _ => None,
    };
    let extent = |dimension: &crate::proto::DimensionProto| match &dimension.value {
        Some(DimensionKind::Value(size)) => usize::try_from(*size).map_or(Extent::Unknown, Extent::Fixed),
        Some(DimensionKind::Parameter(name)) if !name.is_empty() => Extent::Symbol(name.clone()),
        _ => Extent::Unknown,
    };
    Port {
        name: info.name.clone(),
        element: tensor.and_then(|tensor| Element::of_number(i64::from(tensor.elem_type))),
        shape: tensor.and_then(|tensor| Some(tensor.shape.as_ref()?.dim.iter().map(extent).collect())),
    }
}

/// Whether an operator quantizes numbers, or computes with quantized ones.
pub(crate) fn quantizes(operator: &str) -> bool {
    matches!(operator, "DynamicQuantizeLinear" | "ConvInteger" | "MatMulInteger")
        || matches!(operator, "QuantizeLinear" | "DequantizeLinear" | "QLinearConv" | "QLinearMatMul")
}

/// The names that nodes of these operators read from the input `first` on.
fn read_from<'g>(graph: &'g Graph, operators: &[&str], first: usize) -> HashSet<&'g str> {
    let nodes = graph.nodes.iter().filter(|node| operators.contains(&node.operator.as_str()));
    nodes.flat_map(|node| node.inputs.iter().skip(first).map(String::as_str)).collect()
}
