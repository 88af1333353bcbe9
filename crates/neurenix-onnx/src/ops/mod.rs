//! ONNX's operators, as operations of the engine. A file has the operators of a subject; its `ROWS` name them.

mod control;
mod elementwise;
mod image;
mod learning;
mod linear;
mod movement;
mod network;
mod pooling;
mod quantized;
mod random;
mod recurrent;
mod reductions;
mod selection;
mod sequence;
mod signal;
mod text;

use crate::graph::Operator;

/// The operators of a file, by name; those of other domains than ONNX's own begin with the domain, as in
/// `ai.onnx.ml.Binarizer`.
type Rows = &'static [(&'static str, Operator)];

const ALL: &[Rows] = &[
    control::ROWS,
    elementwise::ROWS,
    image::ROWS,
    learning::ROWS,
    linear::ROWS,
    movement::ROWS,
    network::ROWS,
    pooling::ROWS,
    quantized::ROWS,
    random::ROWS,
    recurrent::ROWS,
    reductions::ROWS,
    selection::ROWS,
    sequence::ROWS,
    signal::ROWS,
    text::ROWS,
];

/// The operator of this name.
pub(crate) fn find(name: &str) -> Option<Operator> {
    ALL.iter().flat_map(|rows| rows.iter()).find(|(own, _)| *own == name).map(|(_, operator)| *operator)
}
