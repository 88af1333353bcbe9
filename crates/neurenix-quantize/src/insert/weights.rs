//! Scales of stored weights.

use std::collections::HashMap;

use neurenix_onnx::edit::Network;

use crate::{
    Format, Result,
    plan::{Plan, Weight, is_normalization},
    prepare::floats,
    scheme::{Channels, Range, Scheme, check_finite},
};

/// The greatest integer of a bias, with room for rounding in `float32`.
const BIAS_LIMIT: f64 = i32::MAX as f64 / 1.0001;

/// A weight's numbers and its schemes.
pub(super) struct Scaled {
    pub(super) shape: Vec<usize>,
    pub(super) numbers: Vec<f32>,
    pub(super) channels: Channels,
    pub(super) schemes: Vec<Scheme>,
    pub(super) symmetric: bool,
}

/// The schemes of all weights of a plan. `activations` has those of the values.
pub(super) fn scale(
    network: &Network,
    plan: &Plan,
    activations: &HashMap<String, Scheme>,
) -> Result<HashMap<Weight, Scaled>> {
    let mut all: HashMap<Weight, Scaled> = HashMap::new();
    for (node, planned) in network.graph.node.iter().zip(&plan.nodes) {
        let Some((planned, weight)) = planned.as_ref().and_then(|p| Some((p, p.weight.as_ref()?))) else {
            continue;
        };
        if !all.contains_key(weight) {
            let Some((shape, numbers)) = floats(network, Some(&weight.name))? else { continue };
            check_finite(&weight.name, &numbers)?;
            all.insert(weight.clone(), scaled(shape, numbers, weight));
        }
        let is_product = planned.has_bias && !is_normalization(&node.op_type);
        let (Some(own), true) = (all.get_mut(weight), is_product) else { continue };
        let input = node.input.first().and_then(|name| activations.get(name));
        let bias = floats(network, node.input.get(2))?;
        if let (Some(input), Some((_, bias))) = (input, bias) {
            own.make_room(input.scale, &bias);
        }
    }
    Ok(all)
}

fn scaled(shape: Vec<usize>, numbers: Vec<f32>, weight: &Weight) -> Scaled {
    // Runtimes take zero points other than that of the middle for one scale only.
    let symmetric = !weight.format.is_unsigned() || weight.axis.is_some();
    let channels = Channels::of(&shape, weight.axis);
    let parts = channels.split(&numbers);
    let ranges: Vec<Range> = parts.iter().map(|part| range(part, weight.format, symmetric)).collect();
    // Any scale is exact for a channel of zeros, but a small or a large one would spoil its bias.
    let greatest = ranges.iter().map(|range| range.magnitude()).fold(0.0, f64::max);
    let schemes = ranges.into_iter().map(|range| {
        let is_zero = range.magnitude() == 0.0;
        let range = if is_zero { Range { least: -greatest, greatest } } else { range };
        Scheme::of_range(range, weight.format, symmetric)
    });
    let schemes = schemes.collect();
    Scaled { shape, numbers, channels, schemes, symmetric }
}

/// The range of a channel's weights: all of them, or, in 4 bits, where each step counts, the one with the least sum of
/// squared errors.
fn range(numbers: &[f32], format: Format, symmetric: bool) -> Range {
    const SHARES: u32 = 50;
    let full = Range::of(numbers);
    if format.bits() > 4 {
        return full;
    }
    let at = |step: u32| {
        let share = f64::from(step) / f64::from(SHARES);
        Range { least: share * full.least, greatest: share * full.greatest }
    };
    let error = |range: &Range| -> f64 {
        let scheme = Scheme::of_range(*range, format, symmetric);
        let restored = |x: f32| {
            f64::from(scheme.scale) * (scheme.quantize(x, format, symmetric) - scheme.zero_point) as f64
        };
        numbers.iter().map(|&x| (f64::from(x) - restored(x)).powi(2)).sum()
    };
    let candidates = (SHARES / 4..=SHARES).map(|step| (error(&at(step)), at(step)));
    candidates.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(full, |(_, range)| range)
}

impl Scaled {
    /// Raises scales until biases, whose scale is that of the input times that of the weight, fit into 32 bits.
    fn make_room(&mut self, input_scale: f32, bias: &[f32]) {
        let count = self.schemes.len();
        for (channel, scheme) in self.schemes.iter_mut().enumerate() {
            let own = bias.iter().enumerate().filter(|(at, _)| count == 1 || *at == channel);
            let greatest = own.map(|(_, x)| f64::from(x.abs())).fold(0.0, f64::max);
            let product = (greatest / BIAS_LIMIT).max(f64::from(f32::MIN_POSITIVE));
            let least = (product / f64::from(input_scale)) as f32;
            if scheme.scale < least {
                scheme.scale = least;
            }
        }
    }
}
