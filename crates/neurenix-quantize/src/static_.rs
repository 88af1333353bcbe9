//! Post-training static quantization.

use std::collections::{HashMap, HashSet};

use neurenix_onnx::{Value, edit::Network, proto::NodeProto};

use crate::{
    Calibrator, Error, Layer, Options, Quantized, Report, Result, Sample,
    bias_correction::correct_biases,
    calibrate::calibrate,
    equalize,
    insert::insert,
    masks::masked,
    plan::{Plan, Planned, plan},
    prepare,
    report::stored_bytes,
    rounding::round_adaptively,
    smooth,
};

/// Quantizes a float network, with the ranges of activations from samples: batches of typical inputs.
///
/// Constants and batch normalizations are folded first. Every operator that is quantized reads dequantized integers and
/// its result is quantized; stored weights are integers with a scale for each output channel or one, biases 32-bit
/// integers at the product of the scales of input and weight. With float formats, biases stay float. Operators that
/// only move numbers share one scale between input and output. A layer and a rectifier that follows round once, after
/// the rectifier, if the rectifier's scheme saturates at zero. Masks and the `Softmax` after them stay float: a scheme
/// that reaches to a mask has no steps left for what it masks.
///
/// # Errors
/// If there are no samples, one has no rows, a value is NaN or infinite, the network is quantized already, its opset is
/// too old for the formats, an option is not valid, an excluded name or an input is not known, or the network cannot be
/// run.
pub fn quantize(network: &Network, samples: &[Sample], options: &Options) -> Result<Quantized> {
    let Paired { float, plan, mut quantized } = pair(network, samples, options)?;
    if let Some(rounding) = &options.adaptive_rounding {
        round_adaptively(&float, &mut quantized, samples, rounding)?;
    }
    if options.bias_correction {
        correct_biases(&float, &mut quantized, samples)?;
    }
    let layer = |(node, planned): (&NodeProto, &Option<Planned>)| {
        let weights = planned.as_ref()?.weight.as_ref().map(|weight| weight.format);
        let (node, operator) = (node.name.clone(), node.op_type.clone());
        Some(Layer { node, operator, activations: Some(options.activations), weights, output: None })
    };
    let mut report = Report {
        layers: float.graph.node.iter().zip(&plan.nodes).filter_map(layer).collect(),
        float_bytes: stored_bytes(network),
        quantized_bytes: stored_bytes(&quantized),
        kept_in_float: plan.kept,
        ..Report::default()
    };
    let compared = samples.get(..options.report_samples).unwrap_or(samples);
    report.compare_prepared(network, Some(&float), &quantized, compared)?;
    Ok(Quantized { network: quantized, report })
}

/// A network before and after pairs were inserted.
pub(crate) struct Paired {
    /// The prepared float network.
    pub(crate) float: Network,
    pub(crate) plan: Plan,
    /// With each weight at its nearest integers.
    pub(crate) quantized: Network,
}

/// Prepares and calibrates a network, and inserts pairs.
pub(crate) fn pair(network: &Network, samples: &[Sample], options: &Options) -> Result<Paired> {
    let first = samples.first().ok_or(Error::NoSamples)?;
    check(network, options)?;
    check_inputs(network, samples)?;
    let mut excluded = kept(network, options)?;
    let named = self::excluded(network, &options.excluded)?;
    let mut float = prepare::prepare(network, first, &excluded.keys().cloned().collect(), &named)?;
    if options.equalize {
        equalize::equalize(&mut float)?;
    }
    if let Some(alpha) = options.smooth {
        let added = smooth::smooth(&mut float, samples, alpha)?;
        let reason = "it divides channels with outliers before they are rounded";
        excluded.extend(added.into_iter().map(|node| (node, reason.to_owned())));
    }
    let types = prepare::types(&float, first)?;
    for (node, reason) in masked(&float, &types, samples)? {
        excluded.entry(node).or_insert(reason);
    }
    let plan = plan(&float, &types, options, &excluded)?;
    let values: Vec<String> = plan.activations.iter().map(|(value, _)| value.clone()).collect();
    let values: Vec<String> = values.into_iter().filter(|value| !plan.known.contains_key(value)).collect();
    let (calibrator, symmetric) = (options.calibrator, options.symmetric_activations);
    let ranges = calibrate(&float, &values, samples, calibrator, options.activations, symmetric)?;
    let quantized = insert(&float, &plan, &ranges, options)?;
    Ok(Paired { float, plan, quantized })
}

/// Checks options, and whether the network's opset has what they need.
fn check(network: &Network, options: &Options) -> Result<()> {
    let wrong = |option, expected: &str, given: String| {
        Err(Error::Option { option, expected: expected.to_owned(), given })
    };
    if let Calibrator::Percentile(percentage) = options.calibrator
        && !(percentage > 50.0 && percentage <= 100.0)
    {
        return wrong("calibrator", "a percentage above 50, at most 100", percentage.to_string());
    }
    if let Some(alpha) = options.smooth
        && !(0.0..=1.0).contains(&alpha)
    {
        return wrong("smooth", "a number from 0 to 1", alpha.to_string());
    }
    if options.report_samples == 0 {
        return wrong("report_samples", "at least 1", "0".to_owned());
    }
    for (format, what) in [(options.activations, "activations"), (options.weights, "weights")] {
        if network.opset() < format.opset() {
            let feature = match format.opset() {
                13 => "quantization with scales per channel".to_owned(),
                _ => format!("{format} for {what}"),
            };
            return Err(Error::Opset { feature, needed: format.opset(), opset: network.opset() });
        }
    }
    Ok(())
}

/// Checks that each sample has the network's inputs, which are those that are not stored, and rows.
fn check_inputs(network: &Network, samples: &[Sample]) -> Result<()> {
    let inputs = network.graph.input.iter().map(|input| &input.name);
    let mut expected: Vec<String> = inputs.filter(|name| network.stored(name).is_none()).cloned().collect();
    expected.sort();
    for (sample, values) in samples.iter().enumerate() {
        let mut given: Vec<String> = values.keys().cloned().collect();
        given.sort();
        if given != expected {
            return Err(Error::Inputs { sample, expected, given });
        }
        // Other inputs may be empty along other axes, such as the past of a language model.
        let is_empty = |value: &Value| value.shape().is_ok_and(|shape| shape.first() == Some(&0));
        if let Some((input, _)) =
            values.iter().filter(|(_, value)| is_empty(value)).min_by_key(|(name, _)| *name)
        {
            return Err(Error::EmptySample { sample, input: input.clone() });
        }
    }
    Ok(())
}

/// The nodes that the options keep in float, with the reason.
pub(crate) fn kept(network: &Network, options: &Options) -> Result<HashMap<String, String>> {
    let mut reasons = HashMap::new();
    if let Some(chosen) = &options.operators {
        check_names(network, chosen)?;
        for node in network.graph.node.iter().filter(|node| !chosen.contains(&node.op_type)) {
            let reason = format!("{} is not among the operators that the options choose", node.op_type);
            reasons.insert(node.name.clone(), reason);
        }
    }
    let excluded = excluded(network, &options.excluded)?;
    reasons.extend(excluded.into_iter().map(|name| (name, "the options exclude it".to_owned())));
    Ok(reasons)
}

/// The names of the nodes that these names of nodes and types of operators exclude. What is the name of a node means
/// this node alone, even if it is a type of operators, too.
pub(crate) fn excluded(network: &Network, names: &[String]) -> Result<HashSet<String>> {
    check_names(network, names)?;
    let nodes = &network.graph.node;
    let is_type = |name: &&String| !nodes.iter().any(|node| node.name == **name);
    let types: HashSet<&String> = names.iter().filter(is_type).collect();
    let is_named = |node: &&NodeProto| names.contains(&node.name) || types.contains(&node.op_type);
    Ok(nodes.iter().filter(is_named).map(|node| node.name.clone()).collect())
}

/// Checks that there are nodes or operators of these names.
fn check_names(network: &Network, names: &[String]) -> Result<()> {
    let nodes = &network.graph.node;
    let is_known = |name: &&String| nodes.iter().any(|node| node.name == **name || node.op_type == **name);
    let Some(name) = names.iter().find(|name| !is_known(name)) else { return Ok(()) };
    let mut operators: Vec<String> = nodes.iter().map(|node| node.op_type.clone()).collect();
    operators.sort();
    operators.dedup();
    let nodes = nodes.iter().map(|node| node.name.clone()).collect();
    Err(Error::UnknownName { name: name.clone(), nodes, operators })
}
