//! Dynamic quantization: integer weights, and activations whose scale follows from their range at run time.

use std::collections::HashMap;

use neurenix_onnx::{
    Element,
    edit::{Network, floats, integer_attribute, integers, node},
    proto::NodeProto,
};

use crate::{
    Error, Format, Layer, Options, Quantized, Report, Result,
    linear::{Arrangement, Linear, float_of},
    prepare::check_float,
    scheme::{Channels, Range, Scheme, check_finite},
    static_::kept,
    stored_bytes,
};

/// Replaces `MatMul`, `Gemm` and `Conv` nodes with stored weights by `DynamicQuantizeLinear`, `MatMulInteger` or
/// `ConvInteger`, `Cast`, and `Mul` with the scales, as ONNX Runtime's `quantize_dynamic` does. Needs no samples.
///
/// Of the options, `weights`, which is `Int8` or `Uint8`, `per_channel`, `excluded` and `operators` apply. Recurrent
/// layers stay float: ONNX has no integer form of them. The report has no differences, because there are no samples;
/// [`Report::compare`] adds them.
///
/// # Errors
/// [`Error::Option`] for formats other than those above, or activations other than `Uint8`; [`Error::Opset`] below
/// opset 11; [`Error::Quantized`]; an unknown name in `excluded` or `operators`; a stored tensor that is not valid;
/// [`Error::NotFinite`] for a weight with NaN or an infinity.
pub fn quantize_dynamically(network: &Network, options: &Options) -> Result<Quantized> {
    let wrong = |option, expected: &str, given: Format| {
        Err(Error::Option { option, expected: expected.to_owned(), given: given.to_string() })
    };
    if !matches!(options.weights, Format::Int8 | Format::Uint8) {
        return wrong("weights", "int8 or uint8", options.weights);
    }
    if options.activations != Format::Uint8 {
        return wrong("activations", "uint8, which DynamicQuantizeLinear makes", options.activations);
    }
    if network.opset() < 11 {
        let feature = "dynamic quantization".to_owned();
        return Err(Error::Opset { feature, needed: 11, opset: network.opset() });
    }
    check_float(network)?;
    let excluded = kept(network, options)?;
    let float_bytes = stored_bytes(network);
    let mut writer =
        Writer { network: network.clone(), options, activations: HashMap::new(), weights: HashMap::new() };
    writer.network.fix_defaults();
    writer.network.fold()?;
    let mut report = Report { float_bytes, ..Report::default() };
    for at in 0..writer.network.graph.node.len() {
        let Some(node) = writer.network.graph.node.get(at).cloned() else { continue };
        let reason = match (excluded.get(&node.name), Linear::find(&writer.network, at)) {
            (Some(reason), _) => reason_for(&node, Some(reason)),
            (None, Some(layer)) if node.op_type != "ConvTranspose" => {
                match writer.replace(at, &node, &layer)? {
                    true => {
                        report.layers.push(Layer {
                            node: node.name,
                            operator: node.op_type,
                            activations: Some(Format::Uint8),
                            weights: Some(options.weights),
                            output: None,
                        });
                        continue;
                    }
                    false if layer.has_images() => Some("its bias is computed at run time".to_owned()),
                    false => Some("its bias has a factor and is computed at run time".to_owned()),
                }
            }
            _ => reason_for(&node, None),
        };
        report.kept_in_float.extend(reason.map(|reason| (node.name, reason)));
    }
    let mut network = writer.network;
    network.sort()?;
    network.prune();
    report.quantized_bytes = stored_bytes(&network);
    Ok(Quantized { network, report })
}

/// Why a node that could have integer weights stays float.
fn reason_for(node: &NodeProto, excluded: Option<&String>) -> Option<String> {
    let reason = match node.op_type.as_str() {
        "LSTM" | "GRU" | "RNN" => "ONNX has no integer form of recurrent layers",
        "ConvTranspose" => "ONNX has no integer form of transposed convolutions",
        "MatMul" | "Gemm" | "Conv" => "its weight is not a stored matrix or stack of kernels of float32",
        _ => return None,
    };
    Some(excluded.cloned().unwrap_or_else(|| reason.to_owned()))
}

/// A value at run time: its integers, scale and zero point.
#[derive(Clone)]
struct Activation {
    quantized: String,
    scale: String,
    zero_point: String,
}

/// A stored weight: its integers, scale, and zero point if it is not zero.
#[derive(Clone)]
struct Weight {
    quantized: String,
    scale: String,
    zero_point: Option<String>,
}

struct Writer<'o> {
    network: Network,
    options: &'o Options,
    activations: HashMap<String, Activation>,
    /// By the name of the float weight, whether rows and columns are exchanged, the rank of its scale, and a factor.
    weights: HashMap<(String, bool, usize, u32), Weight>,
}

impl Writer<'_> {
    /// Replaces a layer; returns whether it can be.
    fn replace(&mut self, at: usize, layer: &NodeProto, linear: &Linear) -> Result<bool> {
        let (Some(x), Some(output)) = (layer.input.first(), layer.output.first()) else { return Ok(false) };
        let is_gemm = layer.op_type == "Gemm";
        let factor = |name: &str| if is_gemm { float_of(layer, name, 1.0) } else { 1.0 };
        let bias = match layer.input.get(2).filter(|name| !name.is_empty()) {
            Some(name) => match self.bias(name, linear, factor("beta"))? {
                Some(bias) => Some(bias),
                None => return Ok(false),
            },
            None => None,
        };
        let Some(weight) = self.weight(linear, factor("alpha"))? else { return Ok(false) };
        let activation = self.activation(x);
        let (sum, wide, scales) =
            (self.fresh(output, "integers"), self.fresh(output, "cast"), self.fresh(output, "scale"));
        let operator = if linear.has_images() { "ConvInteger" } else { "MatMulInteger" };
        let mut inputs = vec![&*activation.quantized, &*weight.quantized, &*activation.zero_point];
        inputs.extend(weight.zero_point.as_deref());
        let attributes = if linear.has_images() { layer.attribute.clone() } else { Vec::new() };
        self.add(operator, &inputs, &sum, attributes);
        self.add("Cast", &[&sum], &wide, vec![integer_attribute("to", Element::Float as i64)]);
        self.add("Mul", &[&activation.scale, &weight.scale], &scales, Vec::new());
        let last = match &bias {
            Some(bias) => {
                let product = self.fresh(output, "product");
                self.add("Mul", &[&wide, &scales], &product, Vec::new());
                node("Add", &layer.name, &[&product, bias], &[output], Vec::new())
            }
            None => node("Mul", &layer.name, &[&wide, &scales], &[output], Vec::new()),
        };
        if let Some(place) = self.network.graph.node.get_mut(at) {
            *place = last;
        }
        Ok(true)
    }

    fn fresh(&self, stem: &str, part: &str) -> String {
        self.network.fresh(&format!("{stem}_{part}"))
    }

    /// Adds a node at the end of the graph, which is sorted later.
    fn add(
        &mut self,
        operator: &str,
        inputs: &[&str],
        output: &str,
        attributes: Vec<neurenix_onnx::proto::AttributeProto>,
    ) {
        let name = self.fresh(output, operator);
        self.network.graph.node.push(node(operator, &name, inputs, &[output], attributes));
    }

    fn activation(&mut self, x: &str) -> Activation {
        if let Some(known) = self.activations.get(x) {
            return known.clone();
        }
        let own = Activation {
            quantized: self.fresh(x, "quantized"),
            scale: self.fresh(x, "scale"),
            zero_point: self.fresh(x, "zero_point"),
        };
        let name = self.fresh(x, "DynamicQuantizeLinear");
        let outputs = [&*own.quantized, &*own.scale, &*own.zero_point];
        self.network.graph.node.push(node("DynamicQuantizeLinear", &name, &[x], &outputs, Vec::new()));
        self.activations.insert(x.to_owned(), own.clone());
        own
    }

    /// The integers of a layer's weight, times a factor.
    fn weight(&mut self, linear: &Linear, factor: f32) -> Result<Option<Weight>> {
        let is_rows = linear.arrangement == Arrangement::Rows;
        let window = if linear.has_images() { linear.shape.len() - 2 } else { 0 };
        let key = (linear.weight.clone(), is_rows, window, factor.to_bits());
        if let Some(known) = self.weights.get(&key) {
            return Ok(Some(known.clone()));
        }
        let Some(mut numbers) = linear.numbers(&self.network)? else { return Ok(None) };
        let mut shape = linear.shape.clone();
        if is_rows {
            // MatMulInteger has no transposed form.
            let (inputs, outputs) = (linear.inputs, linear.outputs);
            let transposed = (0..numbers.len()).map(|at| at % outputs * inputs + at / outputs);
            numbers = transposed.map(|at| numbers.get(at).copied().unwrap_or_default()).collect();
            shape = vec![inputs, outputs];
        }
        numbers.iter_mut().for_each(|number| *number *= factor);
        check_finite(&linear.weight, &numbers)?;
        let format = self.options.weights;
        let axis = if linear.has_images() { 0 } else { 1 };
        let channels = Channels::of(&shape, self.options.per_channel.then_some(axis));
        let symmetric = !format.is_unsigned() || self.options.per_channel;
        let ranges = channels.split(&numbers).into_iter().map(|part| Range::of(&part));
        let schemes: Vec<Scheme> = ranges.map(|range| Scheme::of_range(range, format, symmetric)).collect();
        let whole = |(at, &x): (usize, &f32)| {
            let scheme = schemes.get(channels.of_element(at));
            scheme.map_or(0, |scheme| scheme.quantize(x, format, symmetric))
        };
        let whole: Vec<i64> = numbers.iter().enumerate().map(whole).collect();
        let scales: Vec<f32> = schemes.iter().map(|scheme| scheme.scale).collect();
        let zeros: Vec<i64> = schemes.iter().map(|scheme| scheme.zero_point).collect();
        // Scales multiply results: they broadcast to the channels of images.
        let (scale_shape, zeros) = match schemes.len() {
            1 => (Vec::new(), zeros),
            // Runtimes want one zero point where all are equal.
            count => {
                let shape = [count].into_iter().chain(vec![1; window]).collect();
                let all_equal = zeros.iter().all(|zero| Some(zero) == zeros.first());
                (shape, if all_equal { zeros.into_iter().take(1).collect() } else { zeros })
            }
        };
        let zero_shape: &[usize] = if zeros.len() == 1 { &[] } else { &[zeros.len()] };
        let own = Weight {
            quantized: self.fresh(&linear.weight, "quantized"),
            scale: self.fresh(&linear.weight, "scale"),
            zero_point: zeros.iter().any(|&zero| zero != 0).then(|| self.fresh(&linear.weight, "zero_point")),
        };
        self.network.store(integers(&own.quantized, format.element(), &shape, &whole));
        self.network.store(floats(&own.scale, &scale_shape, &scales));
        if let Some(name) = &own.zero_point {
            self.network.store(integers(name, format.element(), zero_shape, &zeros));
        }
        self.weights.insert(key, own.clone());
        Ok(Some(own))
    }

    /// The name of a bias in a shape that broadcasts to the result; `None` if that would have to be made at run time.
    fn bias(&mut self, name: &str, linear: &Linear, factor: f32) -> Result<Option<String>> {
        if factor == 1.0 && !linear.has_images() {
            return Ok(Some(name.to_owned()));
        }
        let Some((mut shape, mut numbers)) = self.network.floats(name)? else { return Ok(None) };
        numbers.iter_mut().for_each(|number| *number *= factor);
        if linear.has_images() {
            shape.extend(vec![1; linear.shape.len() - 2]);
        }
        let own = self.fresh(name, "broadcast");
        self.network.store(floats(&own, &shape, &numbers));
        Ok(Some(own))
    }
}
