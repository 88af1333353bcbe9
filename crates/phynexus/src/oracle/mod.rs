//! The oracle: a plain interpreter of the graph. It defines what every op means and how accurately a device must
//! compute it.
//!
//! Integers are exact and wrap. A float is an interval: the value computed in `f64`, and the least and greatest results
//! that a correct device may give. Tolerances therefore follow from the computation rather than from hand-picked
//! constants:
//!
//! - Leaves and constants are exact.
//! - Arithmetic and square roots are correctly rounded. Other functions are within the ULP bounds of the OpenCL full
//!   profile. Sums and products are within Higham's bounds for every order of their terms.
//! - `f16` and `bf16` are computed in `f32`, and every result is immediately rounded to 16 bits.
//! - Discontinuous operations (comparisons, rounding, sorting, conversion to integers) are [`Number::Undetermined`] if
//!   the bounds of their operands straddle a step. So are overflows that depend on the order of a sum. [`compare`]
//!   skips and counts them.
//!
//! The sign of a zero is checked only where it is unique: not after a sum, a minimum or maximum of both zeros, a
//! remainder, a sign or a composite.

mod accumulate;
mod array;
mod compare;
mod device;
mod elementwise;
mod float;
pub mod generate;
mod integer;
pub mod interpret;
mod kernel;
mod lowered;
mod movement;
mod number;
mod order;
mod random_bits;
mod scalar;
mod window;

pub use array::OracleArray;
pub use compare::{Comparison, Mismatch, compare};
pub use device::{lowered_device, reference_device};
pub use number::{Interval, Number, ulp};

pub(crate) use array::from_scalar;
pub(crate) use elementwise::{binary, cast, unary};

use accumulate::Accumulator;
use array::{counted, every_coordinate};

use crate::dtype::read_scalars;
use crate::{
    DType, Error, Result,
    op::custom::CustomCall,
    op::{
        Composite, Op, TensorType,
        check::check,
        ir::{Ir, IrNode},
    },
};

/// Evaluates the outputs of a graph for these leaf values.
///
/// # Errors
/// For a graph that violates the rules of [`check`], leaves whose shapes or dtypes differ from the graph's, and an
/// index out of range.
pub fn evaluate(ir: &Ir, leaves: &[OracleArray]) -> Result<Vec<OracleArray>> {
    let nodes = evaluate_nodes(ir, leaves)?;
    Ok(ir.outputs.iter().map(|&id| nodes[id as usize].clone()).collect())
}

/// Evaluates every node of a graph, in order.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_nodes(ir: &Ir, leaves: &[OracleArray]) -> Result<Vec<OracleArray>> {
    check(ir)?;
    if leaves.len() != ir.leaves.len() {
        let message = format!("got {} leaves for a graph with {}", leaves.len(), ir.leaves.len());
        return Err(Error::argument("oracle", message));
    }
    let mut nodes: Vec<OracleArray> = Vec::with_capacity(ir.nodes.len());
    let mut bound: Vec<Option<&OracleArray>> = vec![None; ir.nodes.len()];
    for (&id, leaf) in ir.leaves.iter().zip(leaves) {
        bound[id as usize] = Some(leaf);
    }
    for (node, leaf) in ir.nodes.iter().zip(bound) {
        let result = match leaf {
            Some(leaf) if leaf.dtype == node.dtype && leaf.shape == node.shape => leaf.clone(),
            Some(leaf) => {
                return Err(Error::shape(
                    "oracle",
                    &[&leaf.shape, &node.shape],
                    "a leaf differs from its node",
                ));
            }
            None => {
                let inputs: Vec<&OracleArray> = node.inputs.iter().map(|&i| &nodes[i as usize]).collect();
                OracleArray {
                    dtype: node.dtype,
                    shape: node.shape.clone(),
                    elements: elements(node, &inputs)?,
                }
            }
        };
        nodes.push(result);
    }
    Ok(nodes)
}

/// The elements of one node.
fn elements(node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
    let dtype = node.dtype;
    let pairs = || inputs[0].elements.iter().zip(&inputs[1].elements);
    Ok(match &node.op {
        Op::Constant(scalar) => OracleArray::filled(*scalar, dtype, &node.shape).elements,
        Op::Buffer => return Err(Error::internal("oracle", "a leaf without a value")),
        Op::Iota { axis } => every_coordinate(&node.shape).map(|at| counted(at[*axis], dtype)).collect(),
        Op::RandomBits => random_bits(node, inputs[0]),
        Op::Reshape => inputs[0].elements.clone(),
        Op::Permute(_) | Op::Expand | Op::Pad { .. } | Op::Slice { .. } | Op::Cat { .. } => {
            movement::moved(node, inputs)
        }
        Op::Unary(op) => {
            let operand = inputs[0].dtype;
            inputs[0].elements.iter().map(|&x| elementwise::unary(*op, x, operand)).collect()
        }
        Op::Binary(op) => {
            let operand = inputs[0].dtype;
            pairs().map(|(&a, &b)| elementwise::binary(*op, a, b, operand)).collect()
        }
        Op::Where => {
            let branches = inputs[1].elements.iter().zip(&inputs[2].elements);
            let select = |(&c, (&a, &b))| elementwise::select(c, a, b);
            inputs[0].elements.iter().zip(branches).map(select).collect()
        }
        Op::Cast | Op::Bitcast if inputs[0].dtype == dtype => inputs[0].elements.clone(),
        Op::Cast => inputs[0].elements.iter().map(|&x| elementwise::cast(x, dtype)).collect(),
        Op::Bitcast => {
            let from = inputs[0].dtype;
            inputs[0].elements.iter().map(|&x| elementwise::bitcast(x, from, dtype)).collect()
        }
        Op::Reduce { combine, .. } => window::reduce(*combine, node, inputs[0], dtype),
        Op::ArgReduce { combine, axis } => order::arg_reduce(node, inputs[0], *combine, *axis),
        Op::Scan { combine, axis, reverse } => order::map_lines(inputs[0], *axis, |line| {
            let mut running = Accumulator::new(*combine, dtype);
            let mut step = |x: &Number| {
                running.push(*x);
                running.result()
            };
            if *reverse {
                let mut out: Vec<Number> = line.iter().rev().map(&mut step).collect();
                out.reverse();
                out
            } else {
                line.iter().map(&mut step).collect()
            }
        }),
        Op::Gather(_) => movement::gather(inputs[0], inputs[1])?,
        Op::Scatter(mode, _) => movement::scatter(*mode, node, inputs)?,
        Op::ArgSort { descending } => order::arg_sort(inputs[0], *descending),
        Op::SearchSorted { right } => order::search_sorted(inputs[0], inputs[1], *right),
        Op::Dot => window::dot(node, inputs[0], inputs[1]),
        Op::Conv(kind, geometry) => window::conv(*kind, geometry, node, inputs[0], inputs[1]),
        Op::Pool(kind, geometry) => window::pool(*kind, geometry, node, inputs[0]),
        Op::Composite(composite) => opened(composite, inputs)?,
        Op::Custom(call) => custom(call, inputs, dtype)?,
        Op::Copy | Op::Contiguous => elementwise::stored(inputs[0]),
    })
}

/// A composite is evaluated through its body, except that the signs of zeros are open: a device's own kernel may
/// compute them differently.
fn opened(composite: &Composite, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
    let types: Vec<TensorType> = inputs.iter().map(|i| TensorType::new(i.dtype, &i.shape)).collect();
    let body = composite.draft(&types)?;
    let mut operands: Vec<OracleArray> = inputs.iter().copied().cloned().collect();
    if let Composite::Tf32(_) = composite {
        operands.iter_mut().flat_map(|operand| &mut operand.elements).for_each(float::round_to_tf32);
    }
    let outputs = evaluate(&body, &operands)?;
    let unsigned = |number: Number| match number {
        Number::Float(x) if x.low == 0.0 && x.high == 0.0 => {
            Number::Float(Interval { low: -0.0, high: 0.0, ..x })
        }
        other => other,
    };
    Ok(outputs.into_iter().next().into_iter().flat_map(|output| output.elements).map(unsigned).collect())
}

/// A custom kernel is defined by its CPU function on exact inputs.
fn custom(call: &CustomCall, inputs: &[&OracleArray], dtype: DType) -> Result<Vec<Number>> {
    if inputs.iter().flat_map(|input| &input.elements).any(|x| matches!(x, Number::Undetermined)) {
        return Ok(vec![Number::Undetermined; call.packing()?.1]);
    }
    let bytes: Vec<Vec<u8>> = inputs.iter().map(|input| input.to_bytes()).collect();
    let inputs: Vec<(&[usize], &[u8])> =
        inputs.iter().zip(&bytes).map(|(input, bytes)| (&input.shape[..], &bytes[..])).collect();
    let result = call.run_on_bytes(&inputs, "reference")?;
    Ok(read_scalars(&result, dtype).into_iter().map(from_scalar).collect())
}

fn random_bits(node: &IrNode, state: &OracleArray) -> Vec<Number> {
    let word = |number: &Number| match number {
        Number::Integer(x) => Some(*x as u32),
        _ => None,
    };
    let words: Option<Vec<u32>> = state.elements.iter().map(word).collect();
    match words.as_deref() {
        Some(&[key_low, key_high, low, high]) => (0..node.len())
            .map(|i| Number::Integer(random_bits::word([key_low, key_high, low, high], i).into()))
            .collect(),
        _ => vec![Number::Undetermined; node.len()],
    }
}

#[cfg(test)]
mod tests;
