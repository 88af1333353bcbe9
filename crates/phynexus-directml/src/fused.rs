//! Elementwise kernels as graphs.

use phynexus::{
    DType, Scalar,
    kernel::fused::{FusedOp, Fusion},
    op::{Binary, Unary},
};

use crate::{
    graph::{Edge, Graph, Node, Part, Tensor, Value},
    operator::{self, Row},
};

/// Elementwise kernels of fewer elements are better as one launch of a kernel than as operators of DirectML.
const LEAST: usize = 1 << 12;

/// The graph of a kernel, if DirectML has all of its operations.
pub(crate) fn graph(fusion: &Fusion) -> Option<Graph> {
    if fusion.row_count() < LEAST {
        return None;
    }
    let mut graph = Graph::default();
    append(&mut graph, fusion, None, 0)?;
    Some(graph)
}

/// A value: where it comes from, and how an operator sees it.
type Seen = (Edge, Tensor);

/// Appends a kernel to a graph. If there is a `result`, it is what parameter 0 holds, and the bindings of the others
/// begin at `first`.
pub(crate) fn append(graph: &mut Graph, fusion: &Fusion, result: Option<Edge>, first: usize) -> Option<()> {
    let rows: &[usize] = &fusion.rows;
    let whole = |dtype| Tensor::new(dtype, rows, None);
    let binding = |parameter: u16| match result {
        Some(_) => Some(first + usize::from(parameter).checked_sub(1)?),
        None => Some(first + usize::from(parameter)),
    };
    if !fusion.columns.is_empty() {
        return None;
    }
    let mut values: Vec<Seen> = Vec::with_capacity(fusion.instructions.len());
    for instruction in &fusion.instructions {
        let dtype = instruction.dtype;
        let is_truth = matches!(instruction.operation, FusedOp::Binary(Binary::Eq | Binary::Lt, ..));
        if dtype != if is_truth { DType::Bool } else { DType::F32 } {
            return None;
        }
        let apply = |graph: &mut Graph, row: &'static Row, operands: &[u32], values: &[Seen]| {
            let inputs = operands.iter().map(|&at| values.get(at as usize).cloned()).collect();
            let output = whole(dtype)?;
            let edge = graph.node(Node { row, inputs, output: output.clone(), values: Vec::new() });
            Some((edge, output))
        };
        let value = match &instruction.operation {
            FusedOp::Load { parameter, index, mask: None, .. } => {
                let part = |binding| {
                    let (offset, strides) = index.strides(rows.len())?;
                    let bytes = u64::try_from(offset).ok()?.checked_mul(dtype.size() as u64)?;
                    let kept = fusion.parameters[usize::from(*parameter)].dtype == dtype;
                    kept.then_some(Part {
                        binding,
                        offset: bytes,
                        tensor: Tensor::new(dtype, rows, Some(&strides))?,
                    })
                };
                match result {
                    // The kernel reads it at each element's own position.
                    Some(edge) if *parameter == 0 => (edge, whole(dtype)?),
                    _ => {
                        let part = part(binding(*parameter)?)?;
                        let seen = part.tensor.clone();
                        (graph.input(part), seen)
                    }
                }
            }
            FusedOp::Constant(value) => constant(graph, *value, whole(dtype)?)?,
            FusedOp::Unary(function, a) => apply(graph, unary(*function)?, &[*a], &values)?,
            FusedOp::Binary(function, a, b) => apply(graph, binary(*function)?, &[*a, *b], &values)?,
            FusedOp::Select(condition, then, otherwise) => {
                apply(graph, &operator::IF, &[*condition, *then, *otherwise], &values)?
            }
            _ => return None,
        };
        values.push(value);
    }
    for store in &fusion.stores {
        let (offset, strides) = store.index.strides(rows.len())?;
        let (edge, seen) = values.get(store.value as usize)?.clone();
        let tensor = Tensor::new(seen.dtype, rows, Some(&strides))?;
        // DirectML may write before it has read everything.
        let plain = offset == 0 && tensor.strides.is_none() && store.replaces.is_none();
        if !plain
            || seen.dtype != DType::F32
            || fusion.parameters[usize::from(store.parameter)].dtype != DType::F32
        {
            return None;
        }
        graph.store(edge, seen, Part { binding: binding(store.parameter)?, offset: 0, tensor });
    }
    Some(())
}

fn constant(graph: &mut Graph, value: Scalar, tensor: Tensor) -> Option<Seen> {
    /// `DML_TENSOR_DATA_TYPE_FLOAT32`.
    const FLOAT32: u32 = 1;
    let Scalar::Float(value) = value else { return None };
    let bits = u64::from((value as f32).to_bits());
    let values = vec![Value::Number(FLOAT32), Value::Scalar(bits)];
    let edge = graph.node(Node { row: &operator::FILL, inputs: Vec::new(), output: tensor.clone(), values });
    Some((edge, tensor))
}

fn unary(function: Unary) -> Option<&'static Row> {
    match function {
        Unary::Abs => Some(&operator::ABS),
        Unary::Ceil => Some(&operator::CEIL),
        Unary::Floor => Some(&operator::FLOOR),
        Unary::Sqrt => Some(&operator::SQRT),
        _ => None,
    }
}

fn binary(function: Binary) -> Option<&'static Row> {
    match function {
        Binary::Add => Some(&operator::ADD),
        Binary::Sub => Some(&operator::SUBTRACT),
        Binary::Mul => Some(&operator::MULTIPLY),
        Binary::Eq => Some(&operator::EQUAL),
        Binary::Lt => Some(&operator::LESS),
        _ => None,
    }
}
