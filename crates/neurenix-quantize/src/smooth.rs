//! SmoothQuant: channels of activations with outliers are divided by factors that the weights take over.
//!
//! Xiao, Lin, Seznec, Wu, Demouth, Han, "SmoothQuant: Accurate and efficient post-training quantization for large
//! language models", 2022.

use std::collections::HashMap;

use neurenix_onnx::{
    Element,
    edit::{Links, Network, floats, node},
};
use phynexus::{DType, Device, tensor::Generator};

use crate::{
    Result, Sample,
    equalize::own_vector,
    linear::{Linear, float_of},
};

/// The least factor and the inverse of the greatest.
const LEAST: f32 = 1e-5;

/// Divides each channel `j` of the input of `MatMul` and `Gemm` nodes by `s_j = max|X_j|^alpha / max|W_j|^(1 -
/// alpha)` and multiplies the weights by it (formula 4 of the paper). All layers that read the same value share `s`.
/// The network's function stays the same, up to rounding. Returns the names of the nodes that it adds, which must
/// stay float.
///
/// If the layers alone read the value, `1 / s` goes into what makes it: the scale and bias of a normalization over the
/// last axis, a product with and a sum of stored vectors, or the `MatMul` or `Gemm` before a rectifier. An input of the
/// network is divided by a `Mul` node. Other values stay as they are: they are rounded where they are made, and a
/// division after that would come too late. `alpha` is from 0 to 1: the share of an activation's range that moves into
/// the weights.
///
/// # Errors
/// If the network cannot compute a sample, or a stored tensor is not valid.
pub(crate) fn smooth(network: &mut Network, samples: &[Sample], alpha: f32) -> Result<Vec<String>> {
    let links = network.links();
    let mut groups: Vec<(String, Vec<Linear>)> = Vec::new();
    for layer in Linear::all(network) {
        let operand = network.graph.node.get(layer.node).and_then(|node| node.input.first()).cloned();
        let is_activation = |value: &String| {
            network.stored(value).is_none() && !layer.has_images() && layer.owns_weight(&links)
        };
        let Some(operand) = operand.filter(is_activation) else { continue };
        match groups.iter_mut().find(|(value, _)| *value == operand) {
            Some((_, group)) => group.push(layer),
            None => groups.push((operand, vec![layer])),
        }
    }
    let names: Vec<String> = groups.iter().map(|(value, _)| value.clone()).collect();
    let greatest = greatest(network, samples, &names)?;
    let mut added = Vec::new();
    for (value, group) in &groups {
        let Some(activations) = greatest.get(value) else { continue };
        let mut weights = vec![0f32; activations.len()];
        for layer in group {
            let numbers = layer.numbers(network)?.unwrap_or_default();
            let own = layer.greatest(&numbers, true);
            weights.iter_mut().zip(own).for_each(|(known, own)| *known = known.max(own));
        }
        let factor = |(&x, &w): (&f32, &f32)| match x.powf(alpha) / w.powf(1.0 - alpha) {
            factor if x > 0.0 && w > 0.0 && factor.is_finite() => factor.clamp(LEAST, LEAST.recip()),
            _ => 1.0,
        };
        let factors: Vec<f32> = activations.iter().zip(&weights).map(factor).collect();
        if factors.iter().all(|&factor| factor == 1.0) || !group.iter().all(|l| l.inputs == factors.len()) {
            continue;
        }
        if !divide(network, &links, value, group, &factors, &mut added)? {
            continue;
        }
        for layer in group {
            let Some(mut numbers) = layer.numbers(network)? else { continue };
            for (element, number) in numbers.iter_mut().enumerate() {
                *number *= factors.get(layer.channels(element).0).copied().unwrap_or(1.0);
            }
            network.store(floats(&layer.weight, &layer.shape, &numbers));
        }
    }
    network.sort()?;
    Ok(added)
}

/// The greatest absolute number of each channel, on the last axis, over all samples.
fn greatest(network: &Network, samples: &[Sample], names: &[String]) -> Result<HashMap<String, Vec<f32>>> {
    let mut part = network.with_outputs(names);
    part.prune();
    let model = part.model(Device::find("cpu")?)?;
    let mut greatest: HashMap<String, Vec<f32>> = HashMap::new();
    for sample in samples {
        let values = model.run(sample.clone(), &Generator::new(0))?;
        for (name, value) in names.iter().zip(&values) {
            let tensor = value.tensor()?;
            let Some(&channels) = tensor.shape().last().filter(|_| !tensor.is_empty()) else { continue };
            let rows = tensor.to_dtype(DType::F32)?.abs()?.reshape(&[tensor.len() / channels, channels])?;
            let own = rows.max(&[0], false)?.to_vec::<f32>()?;
            let known = greatest.entry(name.clone()).or_insert_with(|| vec![0.0; channels]);
            known.iter_mut().zip(own).for_each(|(known, own)| *known = known.max(own));
        }
    }
    Ok(greatest)
}

/// Divides the channels of what these layers read; returns whether that can be done before the value is rounded.
fn divide(
    network: &mut Network,
    links: &Links,
    value: &str,
    group: &[Linear],
    factors: &[f32],
    added: &mut Vec<String>,
) -> Result<bool> {
    let Some(&maker) = links.maker.get(value) else {
        added.push(multiply(network, value, group, factors));
        return Ok(true);
    };
    let readers = links.readers.get(value).into_iter().flatten();
    let is_own = |&(at, input): &(usize, usize)| input == 0 && group.iter().any(|layer| layer.node == at);
    if links.kept.contains(value) || !readers.into_iter().all(is_own) {
        return Ok(false);
    }
    let fits = |&(at, input): &(usize, usize)| is_vector(network, at, input, factors.len());
    let places = vectors(network, links, maker).filter(|places| places.iter().all(fits));
    let Some(places) = places else { return divide_layer(network, links, maker, factors) };
    for (at, input) in places {
        let Some(name) = network.graph.node.get(at).and_then(|node| node.input.get(input)).cloned() else {
            continue;
        };
        let Some((shape, mut numbers)) = network.floats(&name)? else { continue };
        numbers.iter_mut().zip(factors).for_each(|(number, factor)| *number /= factor);
        // Others may read the vector, or this node twice.
        let is_own =
            !links.kept.contains(&name) && links.readers.get(&name).is_some_and(|all| all.len() == 1);
        let own = if is_own { name } else { network.fresh(&format!("{name}_smooth")) };
        network.store(floats(&own, &shape, &numbers));
        if let Some(place) = network.graph.node.get_mut(at).and_then(|node| node.input.get_mut(input)) {
            *place = own;
        }
    }
    Ok(true)
}

/// Multiplies a value by `1 / s` for these layers. Returns the name of the node.
fn multiply(network: &mut Network, value: &str, group: &[Linear], factors: &[f32]) -> String {
    let inverse: Vec<f32> = factors.iter().map(|factor| factor.recip()).collect();
    let [scale, smoothed, name] =
        ["scale", "value", "Mul"].map(|part| network.fresh(&format!("{value}_smooth_{part}")));
    network.store(floats(&scale, &[inverse.len()], &inverse));
    for layer in group {
        let input = network.graph.node.get_mut(layer.node).and_then(|node| node.input.first_mut());
        if let Some(input) = input {
            smoothed.clone_into(input);
        }
    }
    // It goes to the end, so that positions in `links` stay valid; the caller sorts.
    network.graph.node.push(node("Mul", &name, &[value, &scale], &[&smoothed], Vec::new()));
    name
}

/// Divides the output channels of the layer whose result, rectified, this node makes; returns whether there is one.
fn divide_layer(network: &mut Network, links: &Links, maker: usize, factors: &[f32]) -> Result<bool> {
    let Some((layer, biases)) = layer_before(network, links, maker, factors.len()) else { return Ok(false) };
    let Some(mut numbers) = layer.numbers(network)? else { return Ok(false) };
    for (element, number) in numbers.iter_mut().enumerate() {
        *number /= factors.get(layer.channels(element).1).copied().unwrap_or(1.0);
    }
    network.store(floats(&layer.weight, &layer.shape, &numbers));
    for name in biases {
        let Some((shape, mut numbers)) = network.floats(&name)? else { continue };
        numbers.iter_mut().zip(factors).for_each(|(number, factor)| *number /= factor);
        network.store(floats(&name, &shape, &numbers));
    }
    Ok(true)
}

/// The layer that makes a value through rectifiers and sums with stored vectors, with the names of these.
fn layer_before(
    network: &Network,
    links: &Links,
    mut at: usize,
    channels: usize,
) -> Option<(Linear, Vec<String>)> {
    let mut biases = Vec::new();
    loop {
        let node = network.graph.node.get(at)?;
        let input = match node.op_type.as_str() {
            "Relu" => node.input.first()?,
            "LeakyRelu" if float_of(node, "alpha", 0.01) >= 0.0 => node.input.first()?,
            "Add" => {
                let bias = node.input.iter().find_map(|name| own_vector(network, links, name, channels))?;
                let input = node.input.iter().find(|name| **name != bias)?;
                biases.push(bias);
                input
            }
            _ => {
                let layer = Linear::find(network, at).filter(|layer| {
                    !layer.has_images() && layer.outputs == channels && layer.owns_weight(links)
                })?;
                if let Some(bias) = node.input.get(2).filter(|name| !name.is_empty()) {
                    biases.push(own_vector(network, links, bias, channels)?);
                }
                return Some((layer, biases));
            }
        };
        links.only_reader(input)?;
        at = *links.maker.get(input)?;
    }
}

/// The inputs, as node and position, by which this node's result is multiplied, channel by channel.
fn vectors(network: &Network, links: &Links, maker: usize) -> Option<Vec<(usize, usize)>> {
    let node = network.graph.node.get(maker)?;
    let stored = |node: &neurenix_onnx::proto::NodeProto| {
        (0..2).find(|&input| node.input.get(input).is_some_and(|name| network.stored(name).is_some()))
    };
    match node.op_type.as_str() {
        "LayerNormalization" => {
            let has_bias = node.input.get(2).is_some_and(|name| !name.is_empty());
            Some([(maker, 1)].into_iter().chain(has_bias.then_some((maker, 2))).collect())
        }
        "RMSNormalization" | "SimplifiedLayerNormalization" => Some(vec![(maker, 1)]),
        // Normalizations that are written as primitive operators end like this.
        "Mul" => Some(vec![(maker, stored(node)?)]),
        "Add" => {
            let bias = stored(node)?;
            let product = node.input.get(1 - bias)?;
            let before = *links.maker.get(product)?;
            let inner = network.graph.node.get(before).filter(|inner| inner.op_type == "Mul")?;
            links.only_reader(product)?;
            Some(vec![(before, stored(inner)?), (maker, bias)])
        }
        _ => None,
    }
}

/// Whether a node's input is a stored vector of so many `float32`.
fn is_vector(network: &Network, at: usize, input: usize, size: usize) -> bool {
    let tensor = network
        .graph
        .node
        .get(at)
        .and_then(|node| node.input.get(input))
        .and_then(|name| network.stored(name));
    tensor.is_some_and(|tensor| tensor.dims == [size as i64] && tensor.data_type == Element::Float as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{input, network, normal, plain, relative_error, run, weight, whole, with};

    /// Channel 3 of the input is 50 times as large as the others.
    fn outliers(seed: u64) -> Sample {
        let mut numbers = normal(&[2, 5, 8], seed);
        numbers.iter_mut().skip(3).step_by(8).for_each(|x| *x *= 50.0);
        input(&[2, 5, 8], &numbers)
    }

    #[test]
    fn the_function_stays_and_normalizations_take_the_factors() -> Result<()> {
        let nodes = vec![
            plain("MatMul", &["x", "w0"], "h"),
            with(plain("LayerNormalization", &["h", "s", "b"], "n"), whole("axis", -1)),
            plain("MatMul", &["n", "w1"], "q"),
            plain("MatMul", &["n", "w2"], "k"),
            plain("Mul", &["q", "k"], "y"),
        ];
        let tensors = vec![
            weight("w0", &[8, 8], 1),
            weight("s", &[8], 2),
            weight("b", &[8], 3),
            weight("w1", &[8, 6], 4),
            weight("w2", &[8, 6], 5),
        ];
        let float = network(nodes, tensors, &[2, 5, 8], &[2, 5, 6]);
        let samples = [outliers(6), outliers(7)];
        let mut smoothed = float.clone();
        let added = smooth(&mut smoothed, &samples, 0.5)?;
        for sample in &samples {
            assert!(relative_error(&run(&float, sample), &run(&smoothed, sample)) < 1e-5);
        }
        // `x`, which nothing makes, gets a product; the normalization takes the factors of `n`.
        assert_eq!(added, ["x_smooth_Mul"]);
        assert_eq!(smoothed.graph.node.len(), float.graph.node.len() + 1);
        let greatest = |of: &[f32], channel: usize, step: usize| {
            let own = of.iter().skip(channel).step_by(step);
            own.fold(0f32, |greatest, x| greatest.max(x.abs()))
        };
        // Formula 4 with alpha 0.5, for channel 2 of `n`.
        let n = float.with_outputs(&["n".to_owned()]);
        let activation = samples.iter().map(|sample| greatest(&run(&n, sample), 2, 8)).fold(0f32, f32::max);
        let weights = ["w1", "w2"].map(|name| {
            let numbers = float.floats(name).unwrap().unwrap().1;
            numbers[12..18].iter().fold(0f32, |greatest, x| greatest.max(x.abs()))
        });
        let factor = (activation / weights[0].max(weights[1])).sqrt();
        for (name, at, expected) in [("s", 2, factor.recip()), ("b", 2, factor.recip()), ("w2", 12, factor)] {
            let (before, after) = (float.floats(name)?.unwrap().1[at], smoothed.floats(name)?.unwrap().1[at]);
            assert!((after / before / expected - 1.0).abs() < 1e-5, "{name}: {after} from {before}");
        }
        Ok(())
    }

    #[test]
    fn products_and_sums_with_vectors_take_the_factors() -> Result<()> {
        // Another node reads the vector `s`, and nothing else may change for it.
        let nodes = vec![
            plain("Mul", &["x", "s"], "m"),
            plain("Add", &["b", "m"], "a"),
            plain("MatMul", &["a", "w1"], "h"),
            plain("MatMul", &["s", "w1_"], "z"),
            plain("Mul", &["h", "g"], "n"),
            plain("MatMul", &["n", "w2"], "o"),
            plain("Add", &["o", "z"], "y"),
        ];
        let tensors = vec![
            weight("s", &[8], 1),
            weight("b", &[8], 2),
            weight("w1", &[8, 6], 3),
            weight("w1_", &[8, 4], 4),
            weight("g", &[6], 5),
            weight("w2", &[6, 4], 6),
        ];
        let float = network(nodes, tensors, &[2, 5, 8], &[2, 5, 4]);
        let samples = [outliers(6), outliers(7)];
        let mut smoothed = float.clone();
        smooth(&mut smoothed, &samples, 0.5)?;
        for sample in &samples {
            assert!(relative_error(&run(&float, sample), &run(&smoothed, sample)) < 1e-5);
        }
        assert_eq!(smoothed.graph.node.len(), float.graph.node.len());
        assert_eq!(float.floats("s")?, smoothed.floats("s")?);
        for name in ["b", "g", "w1", "w2"] {
            assert_ne!(float.floats(name)?, smoothed.floats(name)?, "{name}");
        }
        Ok(())
    }

    #[test]
    fn layers_before_rectifiers_take_the_factors_and_rounded_values_stay() -> Result<()> {
        let nodes = vec![
            plain("MatMul", &["x", "w1"], "h"),
            plain("Add", &["b1", "h"], "a"),
            plain("Relu", &["a"], "r"),
            plain("MatMul", &["r", "w2"], "o"),
            plain("Gelu", &["o"], "g"),
            plain("MatMul", &["g", "w3"], "p"),
            plain("Relu", &["p"], "q"),
            plain("MatMul", &["q", "w4"], "s"),
            plain("Add", &["q", "s"], "y"),
        ];
        let tensors = vec![
            weight("w1", &[8, 6], 1),
            weight("b1", &[6], 2),
            weight("w2", &[6, 7], 3),
            weight("w3", &[7, 4], 4),
            weight("w4", &[4, 4], 5),
        ];
        let float = network(nodes, tensors, &[2, 5, 8], &[2, 5, 4]);
        let samples = [outliers(6), outliers(7)];
        let mut smoothed = float.clone();
        assert_eq!(smooth(&mut smoothed, &samples, 0.5)?, ["x_smooth_Mul"]);
        for sample in &samples {
            assert!(relative_error(&run(&float, sample), &run(&smoothed, sample)) < 1e-5);
        }
        for (name, stays) in [("w1", false), ("b1", false), ("w2", false), ("w3", true), ("w4", true)] {
            assert_eq!(float.floats(name)? == smoothed.floats(name)?, stays, "{name}");
        }
        Ok(())
    }
}
