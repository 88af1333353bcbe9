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

use phynexus::{DType, Device, Tensor};

use crate::{Error, Result, graph::Operator};

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

/// The operator of this name. One that only moves elements does so with the integers that floats stand for.
pub(crate) fn find(name: &str) -> Option<Operator> {
    if quantized::passing::moves(name) { Some(quantized::passing::compute) } else { plain(name) }
}

/// The operator of this name, for values of any kind.
fn plain(name: &str) -> Option<Operator> {
    ALL.iter().flat_map(|rows| rows.iter()).find(|(own, _)| *own == name).map(|(_, operator)| *operator)
}

/// The most numbers of a table that the host computes, such as the places of samples along an axis. A file can name any
/// size, and no limit of a device's memory covers these tables.
const TABLE: usize = 1 << 26;

/// A size of such a table.
fn table_size(size: usize) -> Result<usize> {
    match size <= TABLE {
        true => Ok(size),
        false => Err(Error::unsupported(format!("an axis of {size} computed elements, more than {TABLE}"))),
    }
}

/// The integers from 0 to `count`, exclusive.
fn counted(count: usize, device: Device) -> Result<Tensor> {
    Ok(Tensor::arange(0, count as i64, 1, DType::I64, device)?)
}

/// A tensor in the dtype in which its elements are computed: 16-bit floats are computed in `float32`.
fn widened(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.to_dtype(tensor.dtype().compute())?)
}

/// The names of all operators.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().flat_map(|rows| rows.iter()).map(|(name, _)| *name)
}
