//! What the opsets have. All that ONNX got after the oldest opset that can be written is a row of [`SINCE`]; `lower.rs`
//! has the definitions for older opsets.

use std::ops::RangeInclusive;

use phynexus::{DType, op::Composite};

use super::{graph, writer::Request};

/// The opsets that can be written.
pub(super) const OPSETS: RangeInclusive<i64> = 13..=28;

/// What a row of the table is about.
enum Part {
    /// The operator.
    Whole,
    /// An attribute.
    Attribute(&'static str),
    /// A value of an attribute.
    Choice(&'static str, &'static str),
    /// The input at this place.
    Input(usize),
    /// Operands and results of these dtypes.
    Of(&'static [DType]),
}
use Part::{Attribute, Choice, Input, Of, Whole};

const SMALL: &[DType] = &[DType::F8E4M3, DType::F8E5M2];
const SHORT: &[DType] = &[DType::I16, DType::U16];

/// Operators, a part of each, and the first opset that has it.
const SINCE: [(&str, Part, i64); 29] = [
    ("Attention", Whole, 23),
    ("AveragePool", Attribute("dilations"), 19),
    ("BitwiseAnd", Whole, 18),
    ("BitwiseNot", Whole, 18),
    ("BitwiseOr", Whole, 18),
    ("BitwiseXor", Whole, 18),
    ("CumProd", Whole, 26),
    ("DequantizeLinear", Of(SHORT), 21),
    ("Gelu", Whole, 20),
    // In opsets 18 to 20, a group has one scale and bias for all of its channels.
    ("GroupNormalization", Whole, 21),
    ("IsInf", Of(&[DType::F16]), 20),
    ("LayerNormalization", Whole, 17),
    ("Mish", Whole, 18),
    ("QuantizeLinear", Of(SHORT), 21),
    ("RMSNormalization", Whole, 23),
    ("ReduceMax", Input(1), 18),
    ("ReduceMean", Input(1), 18),
    ("ReduceMin", Input(1), 18),
    ("ReduceProd", Input(1), 18),
    ("Reshape", Attribute("allowzero"), 14),
    ("ScatterND", Choice("reduction", "add"), 16),
    ("ScatterND", Choice("reduction", "mul"), 16),
    ("ScatterND", Choice("reduction", "max"), 18),
    ("ScatterND", Choice("reduction", "min"), 18),
    ("Shape", Attribute("start"), 15),
    ("Squeeze", Of(SMALL), 21),
    ("Transpose", Of(SMALL), 21),
    ("Unsqueeze", Of(SMALL), 21),
    ("Where", Of(&[DType::BF16]), 16),
];

/// The first opset with 8-bit floats.
const SMALL_FLOATS: i64 = 19;

impl Part {
    /// How an error names the part, if the node has it.
    fn of(&self, node: &Request) -> Option<String> {
        let operator = node.operator;
        let attribute = |name| node.attributes.iter().find(|attribute| attribute.name == name);
        match *self {
            Whole => Some(operator.to_owned()),
            Attribute(name) => attribute(name).map(|_| format!("{operator} with {name}")),
            Choice(name, value) => attribute(name)
                .filter(|attribute| attribute.s == value.as_bytes())
                .map(|_| format!("{operator} with {name}={value}")),
            Input(place) => {
                node.inputs.get(place)?.as_ref().map(|_| format!("{operator} with input {place}"))
            }
            Of(dtypes) => {
                let inputs = node.inputs.iter().flatten().map(|value| value.dtype);
                let mut all = inputs.chain(node.outputs.iter().map(|(dtype, _)| *dtype));
                all.find(|dtype| dtypes.contains(dtype)).map(|dtype| format!("{operator} of {dtype}"))
            }
        }
    }
}

/// Something that an opset lacks, and the remedy.
fn lacks(what: &str, first: i64, opset: i64) -> String {
    format!(
        "{what}, which ONNX has since opset {first}: export for opset {first} or newer instead of {opset}"
    )
}

/// What the opset lacks of the node.
pub(super) fn missing(node: &Request, opset: i64) -> Option<String> {
    let newer = SINCE.iter().filter(|(operator, _, first)| *operator == node.operator && *first > opset);
    newer.filter_map(|(_, part, first)| Some(lacks(&part.of(node)?, *first, opset))).next()
}

/// Whether the opset lacks values of the dtype.
pub(super) fn missing_dtype(dtype: DType, opset: i64) -> Option<String> {
    let is_missing = opset < SMALL_FLOATS && SMALL.contains(&dtype);
    is_missing.then(|| lacks(&format!("values of {dtype}"), SMALL_FLOATS, opset))
}

/// Whether the opset has the operator.
pub(super) fn has(operator: &str, opset: i64) -> bool {
    !SINCE.iter().any(|(name, part, first)| *name == operator && matches!(part, Whole) && *first > opset)
}

/// Whether composites stay whole: the opset has an operator for them. Others are exported by their bodies.
pub(super) fn keeps(composite: &Composite, opset: i64) -> bool {
    let operator = match composite {
        Composite::Gelu(_) => "Gelu",
        Composite::Mish(_) => "Mish",
        Composite::GroupNorm(_) => "GroupNormalization",
        Composite::LayerNorm(norm) if norm.centred => "LayerNormalization",
        Composite::LayerNorm(_) => "RMSNormalization",
        _ => return graph::keeps(composite),
    };
    has(operator, opset) && graph::keeps(composite)
}

/// The version of the file format that came with an opset.
pub(super) fn file_version(opset: i64) -> i64 {
    match opset {
        ..=14 => 7,
        15..=18 => 8,
        19 | 20 => 9,
        21 | 22 => 10,
        23 => 11,
        24 => 12,
        25..=27 => 13,
        _ => 14,
    }
}
