//! Weight-only quantization: stored weights become integers, activations stay float.

use std::collections::HashSet;

use neurenix_onnx::{
    Element,
    edit::{Links, Network, floats, integer_attribute, integers, node},
    proto::NodeProto,
};

use crate::{
    Error, Format, Layer, Quantized, Report, Result, excluded,
    linear::{Arrangement, Linear, count, extents},
    prepare::check_float,
    scheme::{Range, Scheme, check_finite},
    stored_bytes,
};

/// How weights are stored as integers.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightOnly {
    /// Bits of a weight: 16, 8 or 4.
    pub bits: usize,
    /// The number of adjacent weights of an output that share a scale, such as 32, 64 or 128; `None` for all of them.
    /// The last group of an output may be smaller.
    pub group: Option<usize>,
    /// Signed integers without zero points; otherwise unsigned ones with a zero point for each group.
    pub symmetric: bool,
    /// Looks for the scale of each group with the least squared error, in place of the one that covers its range.
    pub search: bool,
    /// Names of nodes, or types of operators, whose weights stay float. What is the name of a node means this node
    /// alone.
    pub excluded: Vec<String>,
}

impl Default for WeightOnly {
    /// 4 bits, symmetric, in groups of 32, with the search.
    fn default() -> WeightOnly {
        WeightOnly { bits: 4, group: Some(32), symmetric: true, search: true, excluded: Vec::new() }
    }
}

impl WeightOnly {
    fn format(&self) -> Result<Format> {
        match (self.bits, self.symmetric) {
            (16, true) => Ok(Format::Int16),
            (16, false) => Ok(Format::Uint16),
            (8, true) => Ok(Format::Int8),
            (8, false) => Ok(Format::Uint8),
            (4, true) => Ok(Format::Int4),
            (4, false) => Ok(Format::Uint4),
            (bits, _) => Err(Error::Option {
                option: "bits",
                expected: "16, 8 or 4".to_owned(),
                given: bits.to_string(),
            }),
        }
    }
}

/// Stores the `float32` weights of `MatMul`, `Gemm` and `Conv` nodes and tables of `Gather` nodes as integers, which a
/// `DequantizeLinear` node turns into floats.
///
/// Groups lie along the axis over which a product sums, and along the rows of a table; `block_size` says how many
/// weights they have. The kernels of a `Conv` are stored as a matrix `[outputs, inputs * window]`, which `Reshape`
/// turns back. The report has no differences, because there are no samples; [`Report::compare`] adds them.
///
/// # Errors
/// [`Error::Option`] for bits other than 16, 8 and 4 or an empty group, [`Error::UnknownName`] for a name in `excluded`
/// that is not there, [`Error::Opset`] if the network's opset is below 21 (13 for 8 bits and whole rows),
/// [`Error::Quantized`], [`Error::NotFinite`] for a weight with NaN or an infinity, and if a stored tensor is not
/// valid.
pub fn quantize_weights(network: &Network, options: &WeightOnly) -> Result<Quantized> {
    let format = options.format()?;
    if options.group == Some(0) {
        let (expected, given) = ("at least 1".to_owned(), "0".to_owned());
        return Err(Error::Option { option: "group", expected, given });
    }
    let needed = if options.group.is_some() { 21 } else { format.opset() };
    if network.opset() < needed {
        let feature = format!("{format} weights{}", if options.group.is_some() { " in groups" } else { "" });
        return Err(Error::Opset { feature, needed, opset: network.opset() });
    }
    check_float(network)?;
    let mut network = network.clone();
    let excluded = excluded(&network, &options.excluded)?;
    let float_bytes = stored_bytes(&network);
    network.fix_defaults();
    network.fold()?;
    network.sort()?;
    let mut report = Report { float_bytes, ..Report::default() };
    let links = network.links();
    let weights: Vec<(String, Vec<usize>)> = network
        .graph
        .initializer
        .iter()
        .filter(|tensor| tensor.data_type == Element::Float as i32)
        .filter_map(|tensor| Some((tensor.name.clone(), extents(tensor)?)))
        .collect();
    let mut dequantized = Vec::new();
    let mut changed: HashSet<usize> = HashSet::new();
    for (name, shape) in weights {
        let Some(readers) = links.readers.get(&name) else { continue };
        match layout(&network, &links, &name, &shape, &excluded) {
            Ok(Some(layout)) => {
                dequantized.push((name.clone(), layout, shape));
                changed.extend(readers.iter().map(|&(at, _)| at));
            }
            Ok(None) => {}
            Err(reason) => {
                for &(at, _) in readers {
                    let Some(node) = network.graph.node.get(at) else { continue };
                    report.kept_in_float.push((node.name.clone(), reason.clone()));
                }
            }
        }
    }
    for at in 0..network.graph.node.len() {
        let Some(node) = network.graph.node.get(at).filter(|_| changed.contains(&at)) else { continue };
        let (node, operator) = (node.name.clone(), node.op_type.clone());
        report.layers.push(Layer { node, operator, activations: None, weights: Some(format), output: None });
    }
    for (name, layout, shape) in dequantized {
        let Some((_, numbers)) = network.floats(&name)? else { continue };
        check_finite(&name, &numbers)?;
        let value = write(&mut network, &name, &numbers, &shape, &layout, options, format);
        for reader in &mut network.graph.node {
            reader.input.iter_mut().filter(|input| **input == name).for_each(|input| value.clone_into(input));
        }
    }
    network.sort()?;
    network.prune();
    report.quantized_bytes = stored_bytes(&network);
    Ok(Quantized { network, report })
}

/// How a weight is stored.
struct Layout {
    /// The shape of the stored integers.
    shape: Vec<usize>,
    /// The axis of its outputs, or of a table's rows.
    outputs: usize,
    /// The axis along which groups lie.
    reduced: usize,
}

/// The layout of a stored tensor that nodes read as a weight or a table; `None` if none does, or the reason why it
/// stays float.
fn layout(
    network: &Network,
    links: &Links,
    name: &str,
    shape: &[usize],
    excluded: &HashSet<String>,
) -> Result<Option<Layout>, String> {
    const WEIGHTED: [&str; 4] = ["MatMul", "Gemm", "Conv", "ConvTranspose"];
    let readers = links.readers.get(name).map(Vec::as_slice).unwrap_or_default();
    let nodes: Vec<(&NodeProto, usize, usize)> =
        readers.iter().filter_map(|&(at, input)| Some((network.graph.node.get(at)?, at, input))).collect();
    let is_weight = |node: &NodeProto, input: usize| match node.op_type.as_str() {
        "Gather" => input == 0,
        operator => WEIGHTED.contains(&operator) && input == 1,
    };
    if !nodes.iter().any(|&(node, _, input)| is_weight(node, input)) {
        return Ok(None);
    }
    // Indices and masks are tables, too.
    if nodes.iter().all(|(node, ..)| node.op_type == "Gather") && shape.len() < 2 {
        return Ok(None);
    }
    if let Some((node, ..)) = nodes.iter().find(|(node, ..)| excluded.contains(&node.name)) {
        return Err(format!("the node {:?} is excluded", node.name));
    }
    if links.kept.contains(name) || !nodes.iter().all(|&(node, _, input)| is_weight(node, input)) {
        return Err(format!("other nodes read {name:?} as floats"));
    }
    let own = nodes.iter().find_map(|&(node, at, _)| match node.op_type.as_str() {
        "Gather" => {
            let axis = neurenix_onnx::edit::integer_of(node, "axis", 0);
            let is_table = shape.len() == 2 && (axis == 0 || axis == -2);
            is_table.then(|| Layout { shape: shape.to_vec(), outputs: 0, reduced: 1 })
        }
        _ => match Linear::find(network, at)?.arrangement {
            Arrangement::Columns => Some(Layout { shape: shape.to_vec(), outputs: 1, reduced: 0 }),
            Arrangement::Rows => Some(Layout { shape: shape.to_vec(), outputs: 0, reduced: 1 }),
            Arrangement::Convolution { .. } => {
                let outputs = *shape.first()?;
                let row = count(shape.get(1..)?)?;
                Some(Layout { shape: vec![outputs, row], outputs: 0, reduced: 1 })
            }
            Arrangement::Transposed { .. } => None,
        },
    });
    match own {
        Some(layout) if !shape.contains(&0) => Ok(Some(layout)),
        _ => Err(format!("weights of the shape {shape:?} that are read like this have no groups of outputs")),
    }
}

/// Stores a weight's integers, and adds the nodes that dequantize it. Returns the name of their result.
fn write(
    network: &mut Network,
    name: &str,
    numbers: &[f32],
    shape: &[usize],
    layout: &Layout,
    options: &WeightOnly,
    format: Format,
) -> String {
    let extent = layout.shape.get(layout.reduced).copied().unwrap_or(1).max(1);
    let block = options.group.filter(|&group| group < extent);
    let (groups, place) = places(layout, block.unwrap_or(extent), extent);
    let mut parts: Vec<Vec<f32>> = vec![Vec::new(); groups];
    for (element, &x) in numbers.iter().enumerate() {
        if let Some(part) = parts.get_mut(place(element)) {
            part.push(x);
        }
    }
    let schemes: Vec<Scheme> = parts.iter().map(|part| scheme(part, format, options)).collect();
    let whole = |(element, &x): (usize, &f32)| {
        let scheme = schemes.get(place(element));
        scheme.map_or(0, |scheme| scheme.quantize(x, format, options.symmetric))
    };
    let whole: Vec<i64> = numbers.iter().enumerate().map(whole).collect();
    let scales: Vec<f32> = schemes.iter().map(|scheme| scheme.scale).collect();
    let zeros: Vec<i64> = schemes.iter().map(|scheme| scheme.zero_point).collect();
    let mut parameter_shape = layout.shape.clone();
    match block {
        Some(block) => {
            if let Some(size) = parameter_shape.get_mut(layout.reduced) {
                *size = extent.div_ceil(block);
            }
        }
        None => parameter_shape = vec![groups],
    }
    let is_matrix = layout.shape != shape;
    let fresh = |network: &Network, part: &str| network.fresh(&format!("{name}_{part}"));
    let (quantized, scale) = (fresh(network, "quantized"), fresh(network, "scale"));
    network.store(integers(&quantized, format.element(), &layout.shape, &whole));
    network.store(floats(&scale, &parameter_shape, &scales));
    let zero_point = if options.symmetric { String::new() } else { fresh(network, "zero_point") };
    if !options.symmetric {
        network.store(integers(&zero_point, format.element(), &parameter_shape, &zeros));
    }
    let axis = if block.is_some() { layout.reduced } else { layout.outputs };
    let mut attributes = vec![integer_attribute("axis", axis as i64)];
    attributes.extend(block.map(|block| integer_attribute("block_size", block as i64)));
    let value = fresh(network, "dequantized");
    let mut inputs = vec![quantized.as_str(), scale.as_str()];
    if !options.symmetric {
        inputs.push(&zero_point);
    }
    let operator = "DequantizeLinear";
    let own = node(operator, &fresh(network, operator), &inputs, &[&value], attributes);
    network.graph.node.push(own);
    if !is_matrix {
        return value;
    }
    let (kernels, sizes) = (fresh(network, "kernels"), fresh(network, "shape"));
    let extents: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
    network.store(integers(&sizes, Element::Int64, &[extents.len()], &extents));
    let own = node("Reshape", &fresh(network, "Reshape"), &[&value, &sizes], &[&kernels], Vec::new());
    network.graph.node.push(own);
    kernels
}

/// The number of groups of a matrix, and the group of each element, in the order of the stored scales.
fn places(layout: &Layout, block: usize, extent: usize) -> (usize, impl Fn(usize) -> usize) {
    let (rows_are_outputs, columns) = (layout.outputs == 0, layout.shape.get(1).copied().unwrap_or(1).max(1));
    let along = extent.div_ceil(block);
    let outputs = layout.shape.get(layout.outputs).copied().unwrap_or(1);
    let place = move |element: usize| {
        let (row, column) = (element / columns, element % columns);
        match rows_are_outputs {
            true => row * along + column / block,
            false => row / block * columns + column,
        }
    };
    (outputs * along, place)
}

/// The scheme of a group.
fn scheme(numbers: &[f32], format: Format, options: &WeightOnly) -> Scheme {
    /// How much the search shrinks a range at most, and in how many steps.
    const STEPS: u32 = 40;
    const SHRINK: f64 = 0.5;
    let range = Range::of(numbers);
    let full = Scheme::of_range(range, format, options.symmetric);
    if !options.search {
        return full;
    }
    let error = |scheme: Scheme| -> f64 {
        let own = |&x: &f32| {
            let whole = scheme.quantize(x, format, options.symmetric) - scheme.zero_point;
            (f64::from(x) - f64::from(scheme.scale) * whole as f64).powi(2)
        };
        numbers.iter().map(own).sum()
    };
    let shrunk = (1..=STEPS).map(|step| {
        let share = 1.0 - SHRINK * f64::from(step) / f64::from(STEPS);
        let range = Range { least: share * range.least, greatest: share * range.greatest };
        Scheme::of_range(range, format, options.symmetric)
    });
    let mut best = (error(full), full);
    for scheme in shrunk {
        let own = error(scheme);
        if own < best.0 {
            best = (own, scheme);
        }
    }
    best.1
}
