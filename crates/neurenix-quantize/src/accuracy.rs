//! Accuracy-controlled quantization: layers stay float whose quantization costs too much.

use neurenix_onnx::edit::Network;

use crate::{Error, Options, Quantized, Result, Sample, quantize};

/// What an accuracy-controlled quantization may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// The greatest drop of the measure, in its own units: of 0.98, with 0.003, at least 0.977 remains.
    pub max_drop: f64,
    /// The greatest number of measurements, which are usually the expensive part; at least 3.
    pub measurements: usize,
}

impl Default for Accuracy {
    /// A drop of 0.003, 0.3 points of a share of right answers, and 64 measurements.
    fn default() -> Accuracy {
        Accuracy { max_drop: 0.003, measurements: 64 }
    }
}

/// Quantizes as many nodes as the accuracy allows.
///
/// `measure` returns the accuracy of a network: greater is better. If quantizing everything costs more than
/// [`Accuracy::max_drop`], the nodes are ranked by the noise that each alone causes in the outputs. The worst ones
/// stay float, as few as a bisection over the ranking finds; then each of them is quantized again if the accuracy
/// allows. The report has the accuracy before and after, and each node that stays float with the reason.
///
/// # Errors
/// As for [`quantize`], and what `measure` returns. [`Error::Option`] if a bound makes no sense, and
/// [`Error::Accuracy`] if no selection of nodes keeps the accuracy.
pub fn quantize_within(
    network: &Network,
    samples: &[Sample],
    options: &Options,
    accuracy: &Accuracy,
    measure: &mut dyn FnMut(&Network) -> Result<f64>,
) -> Result<Quantized> {
    check(accuracy)?;
    let before = measure(network)?;
    let mut search =
        Search { network, samples, options, before, accuracy, measure, left: accuracy.measurements - 1 };
    let (all, after) = search.trial(&[])?;
    if search.is_enough(after) {
        return Ok(finish(all, (before, after), &[]));
    }
    let ranking = search.ranking(&all)?;
    // The worst `fewest` nodes are too few, the worst `enough` are enough.
    let (mut fewest, mut enough) = (0, ranking.len());
    let (mut best, mut best_accuracy) = search.trial(&ranking)?;
    if !search.is_enough(best_accuracy) {
        return Err(Error::Accuracy { before, after: best_accuracy, max_drop: accuracy.max_drop });
    }
    while enough - fewest > 1 && search.left > 0 {
        let middle = fewest.midpoint(enough);
        let (trial, after) = search.trial(ranking.get(..middle).unwrap_or_default())?;
        if search.is_enough(after) {
            (best, best_accuracy, enough) = (trial, after, middle);
        } else {
            fewest = middle;
        }
    }
    let mut kept: Vec<Kept> = ranking.into_iter().take(enough).collect();
    // From the least noisy to the noisiest: the bisection found that the last one is needed with those before it.
    for at in (0..kept.len()).rev() {
        if search.left == 0 || kept.len() == 1 {
            break;
        }
        let mut fewer = kept.clone();
        let back = fewer.remove(at);
        let (trial, after) = search.trial(&fewer)?;
        match search.is_enough(after) {
            true => (best, best_accuracy, kept) = (trial, after, fewer),
            false => {
                if let Some(known) = kept.iter_mut().find(|known| known.node == back.node) {
                    known.accuracy = Some(after);
                }
            }
        }
    }
    if let [only] = &mut kept[..] {
        only.accuracy.get_or_insert(after);
    }
    Ok(finish(best, (before, best_accuracy), &kept))
}

fn check(accuracy: &Accuracy) -> Result<()> {
    let wrong = |option, expected: &str, given: String| {
        Err(Error::Option { option, expected: expected.to_owned(), given })
    };
    if accuracy.max_drop.is_nan() || accuracy.max_drop < 0.0 {
        return wrong("max_drop", "a number of at least 0", accuracy.max_drop.to_string());
    }
    if accuracy.measurements < 3 {
        return wrong("measurements", "at least 3", accuracy.measurements.to_string());
    }
    Ok(())
}

/// A node that stays float.
#[derive(Clone, Debug)]
struct Kept {
    node: String,
    /// The ratio of signal to noise of the outputs, in decibels, if nothing but this node is quantized.
    sqnr: f64,
    /// The accuracy if it is quantized, too.
    accuracy: Option<f64>,
}

struct Search<'s> {
    network: &'s Network,
    samples: &'s [Sample],
    options: &'s Options,
    before: f64,
    accuracy: &'s Accuracy,
    measure: &'s mut dyn FnMut(&Network) -> Result<f64>,
    /// The measurements that may follow.
    left: usize,
}

impl Search<'_> {
    fn is_enough(&self, after: f64) -> bool {
        self.before - after <= self.accuracy.max_drop
    }

    /// The network with these nodes in float, and its accuracy.
    fn trial(&mut self, kept: &[Kept]) -> Result<(Quantized, f64)> {
        let mut options = self.options.clone();
        options.excluded.extend(kept.iter().map(|kept| kept.node.clone()));
        let quantized = quantize(self.network, self.samples, &options)?;
        self.left = self.left.saturating_sub(1);
        let accuracy = (self.measure)(&quantized.network)?;
        Ok((quantized, accuracy))
    }

    /// The quantized nodes, the noisiest first.
    fn ranking(&self, all: &Quantized) -> Result<Vec<Kept>> {
        // Preparation adds nodes of its own, which options cannot name.
        let own = |name: &&String| self.network.graph.node.iter().any(|node| node.name == **name);
        let nodes: Vec<&String> = all.report.layers.iter().map(|layer| &layer.node).filter(own).collect();
        // Noise is compared, not removed: what corrects it costs time for each node.
        let mut options = self.options.clone();
        (options.bias_correction, options.adaptive_rounding) = (false, None);
        let samples = self.samples.get(..options.report_samples.max(1)).unwrap_or(self.samples);
        let mut ranking = Vec::with_capacity(nodes.len());
        for &node in &nodes {
            let others = nodes.iter().filter(|&&other| other != node).map(|&other| other.clone());
            let excluded = self.options.excluded.iter().cloned().chain(others).collect();
            let alone = quantize(self.network, samples, &Options { excluded, ..options.clone() })?;
            let outputs = alone.report.outputs.iter().map(|output| output.sqnr_db);
            let sqnr =
                outputs.fold(f64::INFINITY, |least, sqnr| if sqnr.is_nan() { sqnr } else { least.min(sqnr) });
            ranking.push(Kept { node: node.clone(), sqnr, accuracy: None });
        }
        // NaN, a network that quantization breaks, is the worst.
        let order = |sqnr: f64| if sqnr.is_nan() { f64::NEG_INFINITY } else { sqnr };
        ranking.sort_by(|a, b| order(a.sqnr).total_cmp(&order(b.sqnr)));
        Ok(ranking)
    }
}

/// Adds the accuracy and the reasons to the report.
fn finish(mut quantized: Quantized, accuracy: (f64, f64), kept: &[Kept]) -> Quantized {
    quantized.report.accuracy = Some(accuracy);
    for kept in kept {
        let noise = format!("quantizing it alone gives an SQNR of {:.1} dB", kept.sqnr);
        let reason = match kept.accuracy {
            Some(after) => {
                format!("with it quantized, the accuracy falls from {} to {after}; {noise}", accuracy.0)
            }
            None => format!("the accuracy; {noise}"),
        };
        let known = quantized.report.kept_in_float.iter_mut().find(|(node, _)| *node == kept.node);
        match known {
            Some((_, known)) => *known = reason,
            None => quantized.report.kept_in_float.push((kept.node.clone(), reason)),
        }
    }
    quantized
}
