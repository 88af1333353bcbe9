//! What quantization makes of each operator.

use neurenix_onnx::{edit::Network, proto::NodeProto};

use super::Rectified;
use crate::{Format, Options, Result, prepare::floats};

/// How an operator is quantized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// Computes: each of its values has a range of its own. These inputs are activations, all of them if `None`.
    Computes(Option<&'static [usize]>),
    /// Computes numbers of a range that is known.
    Bounded(f64, f64),
    /// Multiplies its first input by its second, a weight, and adds its third, a bias.
    Weighs,
    /// Its outputs hold numbers of its first input, or of all inputs: one scheme for all.
    Moves { all: bool },
}

/// Operators with the reason why they stay float.
const FLOAT: [(&[&str], &str); 4] = [
    (
        &["LSTM", "GRU", "RNN"],
        "its state would add up rounding errors, and runtimes have integer forms of their own for recurrent operators",
    ),
    (
        &["BatchNormalization"],
        "it is neither part of a quantized layer nor a factor and an offset for each channel",
    ),
    (&["If", "Loop", "Scan"], "it runs other graphs, which stay as they are"),
    (
        &["Attention", "LinearAttention", "RotaryEmbedding", "RMSNormalization", "GroupNormalization"],
        "no runtime computes the composite with integers; export it as its parts to quantize them",
    ),
];

/// How a node is quantized, or why it stays float.
pub(super) fn role(network: &Network, node: &NodeProto, options: &Options) -> Result<Result<Role, String>> {
    if !(node.domain.is_empty() || node.domain == "ai.onnx") {
        return Ok(Err(format!("operators of the domain {:?} are not quantized", node.domain)));
    }
    let operator = node.op_type.as_str();
    if let Some((_, reason)) = FLOAT.iter().find(|(operators, _)| operators.contains(&operator)) {
        return Ok(Err((*reason).to_owned()));
    }
    let is_chosen =
        options.operators.as_ref().is_some_and(|chosen| chosen.iter().any(|name| name == operator));
    let is_coarse = options.activations.bits() < 16 && !options.activations.is_float() && !is_chosen;
    let is_stored =
        |input: usize| Ok::<bool, crate::Error>(floats(network, node.input.get(input))?.is_some());
    Ok(Ok(match operator {
        "Conv" | "ConvTranspose" | "Gemm" | "MatMul" | "InstanceNormalization" | "LayerNormalization" => {
            Role::Weighs
        }
        "Add" | "Sub" | "Mul" | "Min" | "Max" | "PRelu" | "Where" => Role::Computes(None),
        "Div" if !is_chosen && !is_stored(1)? => {
            return Ok(Err("its divisor is computed, and could be zero once quantized".to_owned()));
        }
        "Div" => Role::Computes(None),
        "Sqrt" | "Pow" | "Reciprocal" | "Exp" | "Log" if is_coarse => {
            return Ok(Err(format!("{} activations are too coarse for it", options.activations)));
        }
        "Relu" | "LeakyRelu" | "Clip" | "Tanh" | "HardSwish" | "Gelu" | "Elu" | "Celu" | "Selu" | "Mish"
        | "Swish" | "Softplus" | "Softsign" | "Erf" | "Abs" | "Neg" | "Sqrt" | "Pow" | "Reciprocal"
        | "Exp" | "Log" | "AveragePool" | "GlobalAveragePool" | "ReduceMean" | "ReduceSum" | "Resize"
        | "Upsample"
            if operator != "Resize" || !is_nearest(node) =>
        {
            Role::Computes(Some(&[0]))
        }
        "Sigmoid" | "HardSigmoid" | "Softmax" => Role::Bounded(0.0, 1.0),
        "Concat" => Role::Moves { all: true },
        "Reshape" | "Transpose" | "Flatten" | "Squeeze" | "Unsqueeze" | "Slice" | "MaxPool"
        | "GlobalMaxPool" | "ReduceMax" | "ReduceMin" | "Gather" | "GatherElements" | "Resize" | "Pad"
        | "Split" | "DepthToSpace" | "SpaceToDepth" | "Expand" | "Tile" | "Identity" => {
            Role::Moves { all: false }
        }
        _ => return Ok(Err(format!("{operator} is not among the operators that are quantized"))),
    }))
}

fn is_nearest(node: &NodeProto) -> bool {
    let mode = node.attribute.iter().find(|attribute| attribute.name == "mode");
    mode.is_none_or(|mode| mode.s == b"nearest")
}

/// Whether the operator's result can go to a following rectifier without a rounding between.
pub(super) fn is_rectified(operator: &str) -> bool {
    ["Conv", "ConvTranspose", "Gemm", "MatMul", "Add"].contains(&operator)
}

/// What a node makes if it is a rectifier: `Relu`, or `Clip` from 0.
pub(super) fn rectifier(network: &Network, node: &NodeProto) -> Result<Option<Rectified>> {
    let Some(value) = node.output.first().cloned() else { return Ok(None) };
    let number = |input: usize| -> Result<Option<f32>> {
        Ok(floats(network, node.input.get(input))?.and_then(|(_, numbers)| numbers.first().copied()))
    };
    Ok(match node.op_type.as_str() {
        "Relu" => Some(Rectified { value, limit: None }),
        "Clip" if number(1)? == Some(0.0) => {
            let is_limited = node.input.get(2).is_some_and(|name| !name.is_empty());
            let limit = number(2)?;
            (limit.is_some() || !is_limited).then_some(Rectified { value, limit })
        }
        _ => None,
    })
}

/// Whether the operator divides its input by its spread, so that its result and its bias have nothing to do with the
/// input's scale.
pub(crate) fn is_normalization(operator: &str) -> bool {
    ["InstanceNormalization", "LayerNormalization"].contains(&operator)
}

/// The format of a weight. Scales of normalizations have at least 8 bits, for there are few of them, and the sign of
/// activations, as QNN's provider needs them.
pub(super) fn weight_format(operator: &str, options: &Options) -> Format {
    let (weights, is_unsigned) = (options.weights, options.activations.is_unsigned());
    match (weights.bits(), is_unsigned) {
        _ if !is_normalization(operator) || weights.is_float() => weights,
        (16, true) => Format::Uint16,
        (16, false) => Format::Int16,
        (_, true) => Format::Uint8,
        (_, false) => Format::Int8,
    }
}
