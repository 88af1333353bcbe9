//! Cross-layer equalization: channels between two layers get similar ranges of weights in both.
//!
//! Nagel, van Baalen, Blankevoort, Welling, "Data-free quantization through weight equalization and bias correction",
//! 2019, section 4.1.

use neurenix_onnx::{
    Element,
    edit::{Links, Network, floats, integer_of},
};

use crate::{
    Result,
    linear::{Linear, count, extents, float_of},
};

/// Rounds over all pairs. A scale of one round is that of the round before to a power below 1, so few are needed.
const ROUNDS: usize = 100;

/// Rounds end when no scale differs from 1 by more than this.
const TOLERANCE: f32 = 1e-3;

/// The greatest scale, and the inverse of the least: an all but dead channel must not overflow its partner.
const GREATEST: f32 = 1e4;

/// Two layers with what is between them: channel `i` of the first is the input channel `i` of the second, or the
/// `repeats` channels from `i * repeats` on, after `Flatten`.
#[derive(Debug)]
struct Pair {
    first: Linear,
    second: Linear,
    repeats: usize,
    /// The names of the vectors that are added to the first one's channels.
    biases: Vec<String>,
}

/// Scales the channels between adjacent layers so that their greatest weights in both layers are equal. The network's
/// function stays the same, up to rounding.
///
/// The pairs are `Conv`, `ConvTranspose`, `Gemm` or `MatMul` nodes of which the second alone reads the first one's
/// result, possibly through `Relu`, `LeakyRelu`, pooling, `Flatten`, or the addition of a stored vector. A `Clip`
/// between them is no pair: scaling would move its bounds.
///
/// # Errors
/// If a stored tensor is not valid.
pub(crate) fn equalize(network: &mut Network) -> Result<()> {
    let pairs = pairs(network);
    for _ in 0..ROUNDS {
        let mut change = 0f32;
        for pair in &pairs {
            change = change.max(pair.equalize(network)?);
        }
        if change <= TOLERANCE {
            break;
        }
    }
    Ok(())
}

impl Pair {
    /// Divides the first one's channels by `s` and multiplies the second one's by it; returns the greatest `|s - 1|`.
    fn equalize(&self, network: &mut Network) -> Result<f32> {
        let (Some(mut first), Some(mut second)) =
            (self.first.numbers(network)?, self.second.numbers(network)?)
        else {
            return Ok(0.0);
        };
        let outgoing = self.first.greatest(&first, false);
        let mut incoming = vec![0f32; outgoing.len()];
        for (channel, greatest) in self.second.greatest(&second, true).into_iter().enumerate() {
            if let Some(known) = incoming.get_mut(channel / self.repeats) {
                *known = known.max(greatest);
            }
        }
        // Formula 11 of the paper: s = sqrt(r1 r2) / r2. A channel without weights on one side has no scale.
        let scale = |(&r1, &r2): (&f32, &f32)| match (r1 / r2).sqrt() {
            scale if r1 > 0.0 && r2 > 0.0 && scale.is_finite() => scale.clamp(GREATEST.recip(), GREATEST),
            _ => 1.0,
        };
        let scales: Vec<f32> = outgoing.iter().zip(&incoming).map(scale).collect();
        let change = scales.iter().fold(0f32, |change, scale| change.max((scale - 1.0).abs()));
        if change <= TOLERANCE {
            return Ok(change);
        }
        let at = |channel: usize| scales.get(channel).copied().unwrap_or(1.0);
        for (element, number) in first.iter_mut().enumerate() {
            *number /= at(self.first.channels(element).1);
        }
        for (element, number) in second.iter_mut().enumerate() {
            *number *= at(self.second.channels(element).0 / self.repeats);
        }
        for name in &self.biases {
            let Some((shape, mut numbers)) = network.floats(name)? else { continue };
            numbers.iter_mut().enumerate().for_each(|(channel, number)| *number /= at(channel));
            network.store(floats(name, &shape, &numbers));
        }
        network.store(floats(&self.first.weight, &self.first.shape, &first));
        network.store(floats(&self.second.weight, &self.second.shape, &second));
        Ok(change)
    }
}

fn pairs(network: &Network) -> Vec<Pair> {
    let links = network.links();
    let layers = Linear::all(network);
    layers.iter().filter_map(|first| pair(network, &links, &layers, first)).collect()
}

/// The pair that begins with this layer.
fn pair(network: &Network, links: &Links, layers: &[Linear], first: &Linear) -> Option<Pair> {
    if !first.owns_weight(links) {
        return None;
    }
    let mut biases = Vec::new();
    let mut node = network.graph.node.get(first.node)?;
    if let Some(bias) = node.input.get(2).filter(|name| !name.is_empty()) {
        biases.push(own_vector(network, links, bias, first.outputs)?);
    }
    let mut is_flat = !first.has_images();
    loop {
        let value = node.output.first()?;
        let at = links.only_reader(value)?;
        node = network.graph.node.get(at)?;
        if let Some(second) = layers.iter().find(|layer| layer.node == at) {
            let repeats = second.inputs / first.outputs;
            let fits = is_flat != second.has_images()
                && repeats * first.outputs == second.inputs
                && (repeats == 1 || (first.has_images() && is_flat))
                && node.input.first() == Some(value)
                && second.owns_weight(links);
            return fits.then(|| Pair { first: first.clone(), second: second.clone(), repeats, biases });
        }
        match node.op_type.as_str() {
            "Relu" => {}
            "LeakyRelu" if float_of(node, "alpha", 0.01) >= 0.0 => {}
            // Behind a product, the axes that pooling reduces have the channels among them.
            "MaxPool" | "AveragePool" | "GlobalMaxPool" | "GlobalAveragePool"
                if first.has_images() && node.output.len() == 1 => {}
            "Flatten" if integer_of(node, "axis", 1) == 1 && !is_flat => is_flat = true,
            "Add" if !first.has_images() => {
                let other = node.input.iter().find(|&name| name != value)?;
                biases.push(own_vector(network, links, other, first.outputs)?);
            }
            _ => return None,
        }
    }
}

/// The name of a stored vector with a number for each channel, which only one node reads.
pub(crate) fn own_vector(network: &Network, links: &Links, name: &str, channels: usize) -> Option<String> {
    let tensor = network.stored(name)?;
    links.only_reader(name)?;
    let is_vector = count(&extents(tensor)?) == Some(channels)
        && tensor.dims.last() == Some(&(channels as i64))
        && tensor.data_type == Element::Float as i32;
    is_vector.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{
        badly_scaled, list, network, plain, relative_error, run, samples, weight, whole, with,
    };

    #[test]
    fn the_function_stays_and_ranges_become_equal() -> Result<()> {
        let float = badly_scaled(1);
        let mut equal = float.clone();
        equalize(&mut equal)?;
        for sample in samples(3, &[2, 3, 8, 8]) {
            assert!(relative_error(&run(&float, &sample), &run(&equal, &sample)) < 1e-5);
        }
        let found = pairs(&equal);
        let kinds: Vec<_> = found.iter().map(|pair| (&*pair.first.weight, &*pair.second.weight)).collect();
        assert_eq!(kinds, [("w1", "w2"), ("w2", "w3"), ("w3", "w4")]);
        for pair in found {
            let (first, second) =
                (pair.first.numbers(&equal)?.unwrap(), pair.second.numbers(&equal)?.unwrap());
            let outgoing = pair.first.greatest(&first, false);
            let incoming = pair.second.greatest(&second, true);
            for (channel, &own) in outgoing.iter().enumerate() {
                let partner = &incoming[channel * pair.repeats..(channel + 1) * pair.repeats];
                let partner = partner.iter().copied().fold(0f32, f32::max);
                assert!((own / partner - 1.0).abs() < 0.01, "{own} and {partner}");
            }
        }
        Ok(())
    }

    #[test]
    fn groups_transposed_kernels_and_added_vectors_are_scaled_alike() -> Result<()> {
        let grouped =
            |operator, inputs: &[&str], output| with(plain(operator, inputs, output), whole("group", 2));
        let pool = with(plain("AveragePool", &["l2"], "p"), list("kernel_shape", &[2, 2]));
        let nodes = vec![
            grouped("ConvTranspose", &["x", "w1", "b1"], "c1"),
            plain("LeakyRelu", &["c1"], "l1"),
            grouped("Conv", &["l1", "w2"], "c2"),
            plain("Relu", &["c2"], "l2"),
            pool,
            plain("ConvTranspose", &["p", "w3"], "c3"),
            plain("Flatten", &["c3"], "f"),
            plain("MatMul", &["f", "w4"], "m"),
            plain("Add", &["b4", "m"], "a"),
            plain("Relu", &["a"], "r"),
            with(plain("Gemm", &["r", "w5"], "y"), whole("transB", 1)),
        ];
        let tensors = vec![
            weight("w1", &[4, 3, 2, 2], 1),
            weight("b1", &[6], 2),
            weight("w2", &[8, 3, 3, 3], 3),
            weight("w3", &[8, 2, 1, 1], 4),
            weight("w4", &[18, 10], 5),
            weight("b4", &[10], 6),
            weight("w5", &[3, 10], 7),
        ];
        let float = network(nodes, tensors, &[2, 4, 5, 5], &[2, 3]);
        assert_eq!(pairs(&float).len(), 4);
        let mut equal = float.clone();
        equalize(&mut equal)?;
        for name in ["w1", "b1", "w2", "w3", "w4", "b4", "w5"] {
            assert_ne!(float.floats(name)?, equal.floats(name)?, "{name}");
        }
        for sample in samples(2, &[2, 4, 5, 5]) {
            assert!(relative_error(&run(&float, &sample), &run(&equal, &sample)) < 1e-5);
        }
        Ok(())
    }

    #[test]
    fn clips_and_second_readers_break_pairs() {
        let tensors = || vec![weight("w1", &[4, 4], 1), weight("w2", &[4, 4], 2)];
        let through = |middle| {
            let nodes = vec![plain("MatMul", &["x", "w1"], "h"), middle, plain("MatMul", &["r", "w2"], "y")];
            pairs(&network(nodes, tensors(), &[2, 4], &[2, 4])).len()
        };
        assert_eq!(through(plain("Relu", &["h"], "r")), 1);
        assert_eq!(through(plain("Clip", &["h", "", "six"], "r")), 0);
        assert_eq!(through(plain("Add", &["h", "x"], "r")), 0);
        // It would take the greatest of adjacent channels.
        let pool = with(plain("MaxPool", &["h"], "r"), list("kernel_shape", &[3]));
        assert_eq!(through(pool), 0);
        let twice = vec![
            plain("MatMul", &["x", "w1"], "h"),
            plain("MatMul", &["h", "w2"], "z"),
            plain("Add", &["h", "z"], "y"),
        ];
        assert_eq!(pairs(&network(twice, tensors(), &[2, 4], &[2, 4])).len(), 0);
        let shared = vec![plain("MatMul", &["x", "w1"], "h"), plain("MatMul", &["h", "w1"], "y")];
        assert_eq!(pairs(&network(shared, tensors(), &[2, 4], &[2, 4])).len(), 0);
    }
}
