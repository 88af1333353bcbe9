//! Generated kernels as graphs: an operator for each of their operations, over all rows and columns at once.

use phynexus::{
    DType, Scalar,
    kernel::{
        Index,
        fused::{FusedOp, Fusion},
        index::Atom,
        view::Mask,
    },
    op::Binary,
};

use crate::{
    elementwise::{binary, cast, constant, reduce, select, sequence, unary},
    graph::{Graph, Part, Seen, Tensor, Value},
    operator,
};

/// The graph of a kernel, if DirectML has all of its operations.
pub(crate) fn graph(fusion: &Fusion) -> Option<Graph> {
    let mut graph = Graph::default();
    append(&mut graph, fusion, None, 0)?;
    Some(graph)
}

/// Appends a kernel to a graph. If there is a `result`, it is what parameter 0 holds, and the bindings of the others
/// begin at `first`.
pub(crate) fn append(graph: &mut Graph, fusion: &Fusion, result: Option<Seen>, first: usize) -> Option<()> {
    let space = Space::new(fusion)?;
    let binding = |parameter: u16| match result {
        Some(_) => Some(first + usize::from(parameter).checked_sub(1)?),
        None => Some(first + usize::from(parameter)),
    };
    let mut values: Vec<Seen> = Vec::with_capacity(fusion.instructions.len());
    for instruction in &fusion.instructions {
        let dtype = instruction.dtype;
        let value = |at: &u32| values.get(*at as usize).cloned();
        let made = match &instruction.operation {
            FusedOp::Load { parameter, index, mask, fill } => {
                let kept = fusion.parameters[usize::from(*parameter)].dtype == dtype;
                match &result {
                    // The kernel reads it at each element's own position.
                    Some(result) if *parameter == 0 && kept && mask.is_none() => space.all(result)?,
                    _ if kept => {
                        space.load(graph, binding(*parameter)?, dtype, index, mask.as_ref(), *fill)?
                    }
                    _ => return None,
                }
            }
            FusedOp::Constant(value) => constant(graph, *value, dtype)?,
            FusedOp::Coordinate(index) => space.coordinate(graph, dtype, index)?,
            FusedOp::Unary(function, a) => unary(graph, *function, value(a)?)?,
            FusedOp::Binary(function, a, b) => binary(graph, *function, value(a)?, value(b)?)?,
            FusedOp::Select(condition, then, otherwise) => {
                select(graph, value(condition)?, value(then)?, value(otherwise)?)?
            }
            FusedOp::Cast(a) => cast(graph, value(a)?, dtype)?,
            FusedOp::Reduce(combine, a) => {
                // Every column counts, also if all have the same value.
                let a = value(a)?;
                let tensor = a.tensor.broadcast(&space.sizes);
                reduce(graph, *combine, Seen { tensor, edge: a.edge }, &space.axes)?
            }
            FusedOp::Bitcast(_) | FusedOp::Call(..) => return None,
        };
        if made.tensor.dtype != dtype {
            return None;
        }
        values.push(made);
    }
    for store in &fusion.stores {
        let value = values.get(store.value as usize)?.clone();
        // DirectML may write before it has read everything.
        if store.replaces.is_some()
            || fusion.parameters[usize::from(store.parameter)].dtype != value.tensor.dtype
        {
            return None;
        }
        let per_column = fusion.instructions[store.value as usize].per_column;
        space.store(graph, binding(store.parameter)?, &store.index, per_column, value)?;
    }
    Some(())
}

/// The rows and columns of a kernel as the dimensions of tensors.
struct Space {
    /// The extents of all ranges.
    shape: Vec<usize>,
    /// The number of ranges that are rows.
    rows: usize,
    /// The extents of a tensor over all ranges.
    sizes: Vec<u32>,
    /// The dimensions of the columns.
    axes: Vec<u32>,
}

impl Space {
    fn new(fusion: &Fusion) -> Option<Space> {
        let shape: Vec<usize> = fusion.rows.iter().chain(&fusion.columns).copied().collect();
        let sizes = Tensor::new(DType::F32, &shape, None)?.sizes;
        let axes = (sizes.len() - fusion.columns.len()..sizes.len()).map(|axis| axis as u32).collect();
        Some(Space { shape, rows: fusion.rows.len(), sizes, axes })
    }

    /// A value over all rows, given with another shape.
    fn all(&self, value: &Seen) -> Option<Seen> {
        let tensor = Tensor::new(value.tensor.dtype, &self.shape, None)?;
        let same = value.tensor.strides.is_none() && value.tensor.bytes() == tensor.bytes();
        same.then_some(Seen { edge: value.edge, tensor })
    }

    /// The elements of a binding at an index. Where the mask does not hold, there are none.
    fn load(
        &self,
        graph: &mut Graph,
        binding: usize,
        dtype: DType,
        index: &Index,
        mask: Option<&Mask>,
        fill: Scalar,
    ) -> Option<Seen> {
        let (mut offset, strides) = index.strides(self.shape.len())?;
        let mut shape: Vec<usize> =
            self.shape.iter().zip(&strides).map(|(&size, &step)| if step == 0 { 1 } else { size }).collect();
        let mut padding = vec![(0, 0); shape.len()];
        for condition in mask.map_or(&[][..], Mask::conditions) {
            // Of the dimension, only this part has elements.
            let Some(&Atom::Range(range)) = condition.index.as_atom() else { return None };
            let range = usize::from(range);
            let size = *self.shape.get(range)?;
            let (low, high) = (condition.low.max(0) as usize, size.min(condition.high.max(0) as usize));
            shape[range] = high.checked_sub(low).filter(|size| *size > 0)?;
            padding[range] = (low as u32, (size - high) as u32);
            offset += low as i64 * strides[range];
        }
        let offset = u64::try_from(offset).ok()?.checked_mul(dtype.size() as u64)?;
        let tensor = Tensor::new(dtype, &shape, Some(&strides))?;
        let loaded = graph.input(Part { binding, offset, tensor });
        if padding.iter().all(|sides| *sides == (0, 0)) {
            Some(loaded)
        } else {
            pad(graph, loaded, &padding, fill)
        }
    }

    /// The values of an index.
    fn coordinate(&self, graph: &mut Graph, dtype: DType, index: &Index) -> Option<Seen> {
        let (offset, strides) = index.strides(self.shape.len())?;
        let mut sum = None;
        for (axis, &step) in strides.iter().enumerate().filter(|(_, step)| **step != 0) {
            let mut shape = vec![1; self.shape.len()];
            shape[axis] = self.shape[axis];
            let first = if sum.is_none() { offset } else { 0 };
            let term = sequence(graph, dtype, &shape, first, step)?;
            sum = Some(match sum {
                Some(sum) => binary(graph, Binary::Add, sum, term)?,
                None => term,
            });
        }
        sum.or_else(|| constant(graph, Scalar::Int(offset), dtype))
    }

    /// Stores a value for every row, or for every column of each.
    fn store(
        &self,
        graph: &mut Graph,
        binding: usize,
        index: &Index,
        per_column: bool,
        value: Seen,
    ) -> Option<()> {
        let (offset, strides) = index.strides(self.shape.len())?;
        let ranges = if per_column { self.shape.len() } else { self.rows };
        let mut shape = self.shape.clone();
        shape[ranges..].fill(1);
        let tensor = Tensor::new(value.tensor.dtype, &shape, Some(&strides))?;
        // What lies between the elements must stay.
        if tensor.strides.is_some() {
            return None;
        }
        let offset = u64::try_from(offset).ok()?.checked_mul(tensor.dtype.size() as u64)?;
        let seen = value.tensor.broadcast(&tensor.sizes);
        graph.store(Seen { edge: value.edge, tensor: seen }, Part { binding, offset, tensor });
        Some(())
    }
}

/// Surrounds a value with elements that equal `fill`.
fn pad(graph: &mut Graph, value: Seen, padding: &[(u32, u32)], fill: Scalar) -> Option<Seen> {
    /// `DML_PADDING_MODE_CONSTANT`.
    const CONSTANT: u32 = 0;
    // The value is given as a float.
    let is_exact = match fill {
        Scalar::Float(fill) => f64::from(fill as f32) == fill || fill.is_nan(),
        Scalar::Int(fill) => fill.unsigned_abs() <= 1 << f32::MANTISSA_DIGITS,
        Scalar::UInt(fill) => fill <= 1 << f32::MANTISSA_DIGITS,
        Scalar::Bool(_) => true,
    };
    if !is_exact {
        return None;
    }
    let fill = fill.as_f64();
    let lacking = value.tensor.sizes.len() - padding.len();
    let side = |of: &dyn Fn(&(u32, u32)) -> u32| -> Vec<u32> {
        std::iter::repeat_n(0, lacking).chain(padding.iter().map(of)).collect()
    };
    let (before, after) = (side(&|sides| sides.0), side(&|sides| sides.1));
    let mut output = value.tensor.like(value.tensor.dtype);
    for ((size, before), after) in output.sizes.iter_mut().zip(&before).zip(&after) {
        *size += before + after;
    }
    let values = vec![
        Value::Number(CONSTANT),
        Value::Float((fill as f32).to_bits()),
        Value::Number(output.sizes.len() as u32),
        Value::List(before),
        Value::List(after),
    ];
    Some(graph.apply(&operator::PADDING, [value], output, values))
}
