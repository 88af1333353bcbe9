//! What the errors of a device's number formats do to a part's results: the part computed otherwise.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{
    Element,
    edit::{self, Links, Network, ValueType},
    proto::NodeProto,
};

use crate::place::{is_dequantize, is_quantize};

/// Scale and zero point of a quantized value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantity {
    pub(super) scale: f64,
    pub(super) zero: f64,
}

impl Quantity {
    /// The parameters of a node that quantizes or dequantizes; of one with several scales, the largest, without a zero
    /// point.
    pub(super) fn of(part: &Network, node: &NodeProto) -> Option<Quantity> {
        let numbers = |at: usize| {
            let value = part.value(node.input.get(at).filter(|name| !name.is_empty())?).ok()??;
            value.tensor().ok()?.to_dtype(phynexus::DType::F64).ok()?.to_vec::<f64>().ok()
        };
        let scale = numbers(1)?.into_iter().fold(0.0, f64::max);
        let zero = match numbers(2).as_deref() {
            Some(&[zero]) => zero,
            _ => 0.0,
        };
        Some(Quantity { scale, zero })
    }
}

/// The part with other errors of quantization. Values are not rounded when they are quantized, only limited to the
/// range of their type, and not even that for functions of bounded range in 16 bits: there ONNX Runtime's QNN provider
/// takes a scale of its own, for the whole range. Results that are quantized stay real numbers. Weights, whose rounding
/// cannot be undone, move by up to half a step, as rounding moved them. `None` if nothing is quantized.
pub(super) fn without_quantization(part: &Network) -> Option<Network> {
    let links = part.links();
    let mut shadow = part.clone();
    let mut real: HashSet<String> = HashSet::new();
    let mut limits = Vec::new();
    for node in &mut shadow.graph.node {
        let output = node.output.first().cloned().unwrap_or_default();
        if is_quantize(node) {
            let name = node.name.clone();
            let from = node.input.first().cloned().unwrap_or_default();
            *node = match limit(part, &links, node) {
                Some((least, greatest)) => {
                    let names = [format!("{output}:least"), format!("{output}:greatest")];
                    limits.push(edit::floats(&names[0], &[], &[least]));
                    limits.push(edit::floats(&names[1], &[], &[greatest]));
                    edit::node("Clip", &name, &[&from, &names[0], &names[1]], &[&output], vec![])
                }
                None => edit::node("Identity", &name, &[&from], &[&output], vec![]),
            };
            real.insert(output);
        } else if is_dequantize(node) && node.input.first().is_some_and(|name| real.contains(name)) {
            let from = node.input.first().cloned().unwrap_or_default();
            *node = edit::node("Identity", &node.name, &[&from], &[&output], vec![]);
        } else if !is_dequantize(node) && node.input.first().is_some_and(|name| real.contains(name)) {
            // An operator on quantized numbers, such as a pooling.
            real.extend(node.output.iter().cloned());
        }
    }
    limits.into_iter().for_each(|tensor| shadow.store(tensor));
    move_weights(part, &mut shadow);
    (!real.is_empty()).then(|| bare(&shadow))
}

/// Adds up to half a step to each stored number of at most 16 bits that is dequantized.
fn move_weights(part: &Network, shadow: &mut Network) {
    let mut nodes = Vec::new();
    for mut node in std::mem::take(&mut shadow.graph.node) {
        let Some(steps) = is_dequantize(&node).then(|| weight_errors(part, &node)).flatten() else {
            nodes.push(node);
            continue;
        };
        let output = node.output.first().cloned().unwrap_or_default();
        let names = [format!("{output}:rounded"), format!("{output}:error")];
        node.output = vec![names[0].clone()];
        let sum = edit::node("Add", &format!("{output}:add"), &[&names[0], &names[1]], &[&output], vec![]);
        nodes.extend([node, sum]);
        shadow.graph.initializer.push(edit::floats(&names[1], &steps.0, &steps.1));
    }
    shadow.graph.node = nodes;
}

/// The shape of a stored tensor that a node dequantizes, and a number within half a step for each of its elements.
fn weight_errors(part: &Network, node: &NodeProto) -> Option<(Vec<usize>, Vec<f32>)> {
    let value = part.value(node.input.first()?).ok()??;
    if value.element()?.bits() > 16 {
        return None;
    }
    let shape = value.shape().ok()?.to_vec();
    let scales = part.value(node.input.get(1)?).ok()??;
    let scales = scales.tensor().ok()?.to_dtype(phynexus::DType::F32).ok()?.to_vec::<f32>().ok()?;
    let axis = edit::integer_of(node, "axis", 1);
    let axis = usize::try_from(if axis < 0 { axis + shape.len() as i64 } else { axis }).ok()?;
    let inner: usize = shape.iter().skip(axis + 1).product();
    // A multiplicative generator (Numerical Recipes): any numbers will do that are the same at each call.
    let mut state = 1u32;
    let mut within_half = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let error = |at: usize| {
        let channel = if scales.len() == 1 { 0 } else { at / inner.max(1) % scales.len() };
        Some(scales.get(channel)? * within_half())
    };
    let errors = (0..shape.iter().product()).map(error).collect::<Option<Vec<f32>>>()?;
    Some((shape, errors))
}

/// The least and the greatest number that a node's type has, if its scale is one number.
fn limit(part: &Network, links: &Links, node: &NodeProto) -> Option<(f32, f32)> {
    let scales = part.value(node.input.get(1)?).ok()??;
    if scales.tensor().ok()?.len() != 1 {
        return None;
    }
    let quantity = Quantity::of(part, node)?;
    let element = match node.input.get(2).filter(|name| !name.is_empty()) {
        Some(name) => part.value(name).ok()??.element()?,
        None => Element::of_number(edit::integer_of(node, "output_dtype", Element::Uint8 as i64))?,
    };
    let maker = links.maker.get(node.input.first()?).map(|&at| &*part.graph.node[at].op_type);
    if element.bits() == 16 && matches!(maker, Some("Sigmoid" | "Tanh")) {
        return None;
    }
    let count = (1u64 << element.bits().min(32)) as f64;
    let least = match element {
        Element::Uint8 | Element::Uint16 | Element::Uint4 => 0.0,
        Element::Int8 | Element::Int16 | Element::Int4 => -count / 2.0,
        _ => return None,
    };
    let number = |code: f64| ((code - quantity.zero) * quantity.scale) as f32;
    Some((number(least), number(least + count - 1.0)))
}

/// The part with every number of floating-point arithmetic rounded to 16 bits. `None` if it has none: an operator whose
/// results are only quantized counts among the integer arithmetic.
pub(super) fn in_half_precision(part: &Network, types: &HashMap<String, ValueType>) -> Option<Network> {
    let links = part.links();
    let made = |name: &str| types.get(name).is_some_and(|value| value.element == Element::Float);
    let is_float = |node: &NodeProto| {
        !is_quantize(node)
            && !is_dequantize(node)
            && node.output.iter().any(|name| made(name) && !is_only_quantized(part, &links, name))
    };
    if !part.graph.node.iter().any(is_float) {
        return None;
    }
    let mut shadow = part.clone();
    let mut rounded: HashMap<String, String> = HashMap::new();
    let mut nodes = Vec::new();
    for mut node in std::mem::take(&mut shadow.graph.node) {
        if is_quantize(&node) || is_dequantize(&node) {
            nodes.push(node);
            continue;
        }
        for name in &mut node.input {
            let is_stored = part.stored(name).is_some_and(|tensor| tensor.data_type == Element::Float as i32);
            let is_given = !links.maker.contains_key(name.as_str()) && made(name);
            if !is_stored && !is_given {
                continue;
            }
            let half = rounded.entry(name.clone()).or_insert_with(|| {
                let half = format!("{name}:rounded");
                nodes.extend(round(name, &half));
                half
            });
            name.clone_from(half);
        }
        let mut after = Vec::new();
        for name in &mut node.output {
            if made(name) && !is_only_quantized(part, &links, name) {
                let exact = format!("{name}:exact");
                after.extend(round(&exact, name));
                *name = exact;
            }
        }
        nodes.push(node);
        nodes.extend(after);
    }
    shadow.graph.node = nodes;
    Some(bare(&shadow))
}

/// The part with its floats of 16 bits as `float32`: the other way around. `None` if no node makes such floats, or one
/// has them as an attribute.
pub(super) fn in_single_precision(part: &Network, types: &HashMap<String, ValueType>) -> Option<Network> {
    let is_half = |name: &str| types.get(name).is_some_and(|value| value.element == Element::Float16);
    let nodes = &part.graph.node;
    let has_tensor = |node: &NodeProto| node.attribute.iter().any(|attribute| attribute.t.is_some());
    if !nodes.iter().any(|node| node.output.iter().any(|name| is_half(name))) || nodes.iter().any(has_tensor)
    {
        return None;
    }
    let mut shadow = part.clone();
    for tensor in &mut shadow.graph.initializer {
        if tensor.data_type == Element::Float16 as i32 {
            let value = part.value(&tensor.name).ok()??;
            *tensor = edit::stored(&tensor.name, &value.tensor().ok()?.to_dtype(phynexus::DType::F32).ok()?)
                .ok()?;
        }
    }
    for node in &mut shadow.graph.node {
        for name in &mut node.input {
            if part.graph.input.iter().any(|input| input.name == *name) && is_half(name) {
                *name = format!("{name}:single");
            }
        }
        if node.op_type == "Cast" && node.output.iter().any(|name| is_half(name)) {
            node.attribute = vec![edit::integer_attribute("to", Element::Float as i64)];
        }
    }
    let given = part.graph.input.iter().map(|input| &*input.name).filter(|name| is_half(name));
    let casts = given.map(|name| cast(name, &format!("{name}:single"), Element::Float));
    shadow.graph.node.splice(..0, casts);
    Some(bare(&shadow))
}

/// Whether a part computes with floats: a node other than those of quantization reads one that is given, or makes one
/// that is not only quantized.
pub(super) fn computes_floats(part: &Network, types: &HashMap<String, ValueType>) -> bool {
    let links = part.links();
    let is_float = |name: &String| {
        types.get(name).and_then(|value| value.element.dtype()).is_some_and(phynexus::DType::is_float)
    };
    let is_given = |name: &String| part.graph.input.iter().any(|input| input.name == *name);
    part.graph.node.iter().filter(|node| !is_quantize(node) && !is_dequantize(node)).any(|node| {
        node.input.iter().any(|name| is_float(name) && is_given(name))
            || node.output.iter().any(|name| is_float(name) && !is_only_quantized(part, &links, name))
    })
}

/// Whether nothing but quantization reads a value.
fn is_only_quantized(part: &Network, links: &Links, name: &str) -> bool {
    let readers = links.readers.get(name).map_or(&[][..], |readers| readers);
    let by_quantization = |&(at, _): &(usize, usize)| is_quantize(&part.graph.node[at]);
    !links.kept.contains(name) && readers.iter().all(by_quantization)
}

/// The nodes that round `from` to 16 bits.
fn round(from: &str, to: &str) -> [NodeProto; 2] {
    let half = format!("{to}:half");
    [cast(from, &half, Element::Float16), cast(&half, to, Element::Float)]
}

fn cast(from: &str, to: &str, element: Element) -> NodeProto {
    let attributes = vec![edit::integer_attribute("to", element as i64)];
    edit::node("Cast", &format!("{to}:cast"), &[from], &[to], attributes)
}

/// The network with outputs whose types are not stated: those of quantized results are others now.
fn bare(network: &Network) -> Network {
    let names: Vec<String> = network.graph.output.iter().map(|output| output.name.clone()).collect();
    network.with_outputs(&names)
}
