//! Writes pairs of `QuantizeLinear` and `DequantizeLinear` into a network.

mod weights;

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    Element,
    edit::{Network, floats as stored_floats, integer_attribute, integers, node as new_node},
    proto::{AttributeProto, NodeProto},
};

use crate::{
    Format, Options, Result,
    plan::{Plan, Planned, Weight, is_normalization},
    prepare::floats,
    scheme::{Channels, Names, Packed, Range, Scheme, bias_scale, check_finite, pack},
};
use weights::{Scaled, scale};

/// Writes the pairs of a plan into a network. `ranges` has the calibrated values.
pub(crate) fn insert(
    network: &Network,
    plan: &Plan,
    ranges: &HashMap<String, Range>,
    options: &Options,
) -> Result<Network> {
    let mut schemes = schemes(plan, ranges, options);
    fuse_rectifiers(plan, &mut schemes, options.activations);
    let scaled = scale(network, plan, &schemes)?;
    let mut writer = Writer {
        network: network.clone(),
        taken: taken(network),
        nodes: Vec::new(),
        parameters: HashMap::new(),
        format: options.activations,
        symmetric: options.symmetric_activations,
    };
    let mut readable = HashMap::new();
    for (value, group) in &plan.activations {
        let Some(&scheme) = schemes.get(value) else { continue };
        readable.insert(value.clone(), writer.pair(value, group, scheme)?);
    }
    let mut weights: HashMap<&Weight, String> = HashMap::new();
    let links = network.links();
    for (at, (node, planned)) in network.graph.node.iter().zip(&plan.nodes).enumerate() {
        for (input, name) in node.input.iter().enumerate() {
            let reads = match (planned, links.maker.get(name)) {
                (Some(planned), _) if planned.inputs.contains(&input) => true,
                // What integers made is read as such, so that nothing needs the floats.
                (_, Some(&maker)) => plan.nodes[maker].is_some(),
                (_, None) => false,
            };
            if let (true, Some(new)) = (reads, readable.get(name)) {
                writer.network.graph.node[at].input[input].clone_from(new);
            }
        }
        let Some(Planned { weight: Some(weight), has_bias, .. }) = planned else { continue };
        let Some(own) = scaled.get(weight) else { continue };
        let name = match weights.get(weight) {
            Some(name) => name.clone(),
            None => writer.weight(weight, own)?,
        };
        writer.network.graph.node[at].input[1].clone_from(&name);
        weights.insert(weight, name);
        if let (true, Some(input)) = (has_bias, node.input.first().and_then(|name| schemes.get(name)))
            && let Some(name) = writer.bias(node, *input, own)?
        {
            writer.network.graph.node[at].input[2] = name;
        }
    }
    let made: HashSet<&String> = (network.graph.node.iter().zip(&plan.nodes))
        .filter(|(_, planned)| planned.is_some())
        .flat_map(|(node, _)| &node.output)
        .collect();
    for output in &network.graph.output {
        if let (true, Some(new)) = (made.contains(&output.name), readable.get(&output.name)) {
            writer.expose(&output.name, new);
        }
    }
    let mut network = writer.network;
    network.graph.node.append(&mut writer.nodes);
    network.sort()?;
    network.prune();
    Ok(network)
}

/// The scheme of each value: that of the union of its group's ranges.
fn schemes(plan: &Plan, ranges: &HashMap<String, Range>, options: &Options) -> HashMap<String, Scheme> {
    let mut groups: HashMap<&String, Range> = HashMap::new();
    for (value, group) in &plan.activations {
        let Some(&range) = plan.known.get(value).or_else(|| ranges.get(value)) else { continue };
        let known = groups.entry(group).or_insert(range);
        *known = known.union(range);
    }
    let scheme = |range| Scheme::of_range(range, options.activations, options.symmetric_activations);
    let own = |(value, group): &(String, String)| Some((value.clone(), scheme(*groups.get(group)?)));
    plan.activations.iter().filter_map(own).collect()
}

/// Drops the schemes of results that go to a rectifier whose own scheme saturates where the rectifier does: runtimes
/// then compute layer, rectifier and rounding at once. Other rectifiers need integers as input.
fn fuse_rectifiers(plan: &Plan, schemes: &mut HashMap<String, Scheme>, format: Format) {
    let (lowest, highest) = format.range();
    for (value, rectified) in &plan.rectified {
        let Some(own) = schemes.get(&rectified.value) else { continue };
        let is_within = |limit: f32| own.scale * (highest - lowest) as f32 <= limit;
        let saturates = own.zero_point as f64 == lowest && rectified.limit.is_none_or(is_within);
        if format.is_float() || saturates {
            schemes.remove(value);
        }
    }
}

fn taken(network: &Network) -> HashSet<String> {
    let graph = &network.graph;
    (graph.node.iter())
        .flat_map(|node| node.output.iter().chain(&node.input).chain([&node.name]))
        .chain(graph.initializer.iter().map(|tensor| &tensor.name))
        .chain(graph.input.iter().chain(&graph.output).map(|port| &port.name))
        .cloned()
        .collect()
}

/// A network to which pairs are added.
struct Writer {
    network: Network,
    taken: HashSet<String>,
    /// The nodes to add.
    nodes: Vec<NodeProto>,
    /// The names of each group's scale and zero point.
    parameters: HashMap<String, (String, String)>,
    format: Format,
    symmetric: bool,
}

impl Writer {
    /// A name that is not in use.
    fn name(&mut self, stem: &str, part: &str) -> String {
        let mut name = format!("{stem}_{part}");
        while !self.taken.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// Adds the pair of a value, or stores integers if the value is stored. Returns the dequantized value's name.
    fn pair(&mut self, value: &str, group: &str, scheme: Scheme) -> Result<String> {
        let quantized = self.name(value, "quantized");
        let dequantized = self.name(value, "dequantized");
        let known = self.parameters.get(group).cloned();
        let is_new = known.is_none();
        let (scale, zero_point) = match known {
            Some(known) => known,
            None => (self.name(group, "scale"), self.name(group, "zero_point")),
        };
        let (shape, numbers) =
            floats(&self.network, Some(&value.to_owned()))?.unwrap_or_else(|| (vec![0], Vec::new()));
        let is_stored = self.network.stored(value).is_some();
        let names = Names { numbers: &quantized, scale: &scale, zero_point: &zero_point };
        let channels = Channels::of(&shape, None);
        let packed = pack(&names, &shape, &numbers, channels, self.format, &[scheme], self.symmetric)?;
        if is_stored {
            self.network.graph.initializer.push(packed.numbers);
        } else {
            let name = self.name(value, "QuantizeLinear");
            let inputs = [value, &scale, &zero_point];
            self.nodes.push(new_node("QuantizeLinear", &name, &inputs, &[&quantized], Vec::new()));
        }
        if is_new {
            self.network.graph.initializer.extend([packed.scale, packed.zero_point]);
            self.parameters.insert(group.to_owned(), (scale.clone(), zero_point.clone()));
        }
        self.dequantize(value, &[&quantized, &scale, &zero_point], &dequantized, Vec::new());
        Ok(dequantized)
    }

    fn dequantize(&mut self, value: &str, inputs: &[&str; 3], output: &str, attributes: Vec<AttributeProto>) {
        let name = self.name(value, "DequantizeLinear");
        self.nodes.push(new_node("DequantizeLinear", &name, inputs, &[output], attributes));
    }

    /// Stores a weight's integers. Returns the dequantized value's name.
    fn weight(&mut self, weight: &Weight, own: &Scaled) -> Result<String> {
        let [quantized, scale, zero_point, dequantized] =
            ["quantized", "scale", "zero_point", "dequantized"].map(|part| self.name(&weight.name, part));
        let names = Names { numbers: &quantized, scale: &scale, zero_point: &zero_point };
        let Scaled { shape, numbers, channels, schemes, symmetric } = own;
        let axis = weight.axis.filter(|_| schemes.len() > 1).map(|axis| axis_attribute(axis, shape.len()));
        let Packed { numbers, scale: scales, zero_point: zero_points } =
            pack(&names, shape, numbers, *channels, weight.format, schemes, *symmetric)?;
        self.network.graph.initializer.extend([numbers, scales, zero_points]);
        self.dequantize(
            &weight.name,
            &[&quantized, &scale, &zero_point],
            &dequantized,
            axis.into_iter().collect(),
        );
        Ok(dequantized)
    }

    /// Stores a node's bias as integers whose scale is the product of those of input and weight, or its own for
    /// normalizations. Returns the name of the dequantized value.
    fn bias(&mut self, node: &NodeProto, input: Scheme, weight: &Scaled) -> Result<Option<String>> {
        let Some((shape, numbers)) = floats(&self.network, node.input.get(2))? else { return Ok(None) };
        let stem = node.input[2].clone();
        check_finite(&stem, &numbers)?;
        let scales: Vec<f32> = match is_normalization(&node.op_type) {
            true => vec![bias_scale(&numbers)],
            false => weight.schemes.iter().map(|own| own.scale * input.scale).collect(),
        };
        let is_vector = scales.len() > 1;
        if is_vector && scales.len() != numbers.len() {
            return Ok(None);
        }
        let whole: Vec<i64> = (numbers.iter().enumerate())
            .map(|(at, &x)| {
                let scale = scales.get(if is_vector { at } else { 0 }).copied().unwrap_or(1.0);
                (f64::from(x) / f64::from(scale)).round_ties_even() as i64
            })
            .collect();
        let [quantized, scale, zero_point, dequantized] =
            ["quantized", "scale", "zero_point", "dequantized"].map(|part| self.name(&stem, part));
        let parameter_shape: &[usize] = if is_vector { &[scales.len()] } else { &[] };
        let zeros = vec![0; scales.len()];
        self.network.graph.initializer.extend([
            integers(&quantized, Element::Int32, &shape, &whole),
            stored_floats(&scale, parameter_shape, &scales),
            integers(&zero_point, Element::Int32, parameter_shape, &zeros),
        ]);
        let axis = is_vector.then(|| axis_attribute(0, shape.len()));
        let inputs = [quantized.as_str(), &scale, &zero_point];
        self.dequantize(&stem, &inputs, &dequantized, axis.into_iter().collect());
        Ok(Some(dequantized))
    }

    /// Gives an output of the network the name of its dequantized value, and the value before it another.
    fn expose(&mut self, output: &str, dequantized: &str) {
        let before = self.name(output, "float");
        for node in &mut self.network.graph.node {
            node.output.iter_mut().filter(|name| *name == output).for_each(|name| name.clone_from(&before));
        }
        let rename = |name: &mut String| {
            if name == dequantized {
                output.clone_into(name);
            } else if *name == output {
                name.clone_from(&before);
            }
        };
        let own = self.network.graph.node.iter_mut().flat_map(|node| &mut node.input);
        let added = self.nodes.iter_mut().flat_map(|node| node.input.iter_mut().chain(&mut node.output));
        own.chain(added).for_each(rename);
    }
}

/// The attribute `axis`, counted from the end: QNN's provider does not see an attribute that is 0, which our messages
/// leave out.
fn axis_attribute(axis: usize, rank: usize) -> AttributeProto {
    integer_attribute("axis", axis as i64 - rank as i64)
}
