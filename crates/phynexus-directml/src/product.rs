//! Matrix products as graphs.

use phynexus::{DType, kernel::step::Operand, op::ir::IrNode};

use crate::{
    graph::{Graph, Seen, Tensor, Value, strides},
    operator,
};

/// The most dimensions of a product's operands.
const RANK: usize = 4;

pub(crate) fn product(graph: &mut Graph, a: &Operand, b: &Operand, of: &IrNode) -> Option<Seen> {
    if of.shape.len() > RANK {
        return None;
    }
    let output = Tensor::new(of.dtype, &of.shape, None)?;
    let is = |operand: &Operand, dtypes: &[DType]| dtypes.contains(&operand.dtype);
    match of.dtype {
        DType::F32 | DType::F16 if is(a, &[of.dtype]) && is(b, &[of.dtype]) => {
            let (a, a_transposed) = factor(graph, 0, a)?;
            let (b, b_transposed) = factor(graph, 1, b)?;
            let number = |transposed| Value::Number(u32::from(transposed));
            let factors = [1.0f32, 0.0].map(|factor| Value::Float(factor.to_bits()));
            let values = [number(a_transposed), number(b_transposed)].into_iter().chain(factors).collect();
            Some(graph.result(&operator::GEMM, vec![Some(a), Some(b), None], output, values))
        }
        DType::I32 if is(a, &[DType::I8, DType::U8]) && is(b, &[DType::I8, DType::U8]) => {
            let a = graph.operand(0, a.dtype, &a.layout.shape, &strides(a))?;
            let b = graph.operand(1, b.dtype, &b.layout.shape, &strides(b))?;
            let inputs = vec![Some(a), None, Some(b), None];
            Some(graph.result(&operator::MATRIX_MULTIPLY_INTEGER, inputs, output, Vec::new()))
        }
        _ => None,
    }
}

/// A factor, and whether it is given transposed, so that the elements of a row are neighbours.
fn factor(graph: &mut Graph, binding: usize, of: &Operand) -> Option<(Seen, bool)> {
    let (mut shape, mut steps) = (of.layout.shape.to_vec(), strides(of));
    let last = shape.len().checked_sub(1)?;
    let row = last.checked_sub(1)?;
    let transposed = steps[last] != 1 && steps[row] == 1;
    if transposed {
        shape.swap(row, last);
        steps.swap(row, last);
    }
    Some((graph.operand(binding, of.dtype, &shape, &steps)?, transposed))
}
