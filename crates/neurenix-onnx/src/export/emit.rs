//! The translation of each operation.

use std::collections::BTreeSet;

use phynexus::{
    DType, Scalar,
    op::{Composite, Op},
};

use super::{
    graph::{Extent, Graph, Node, Task},
    symbols::varies,
    writer::{STORED_INDICES, Value, Writer, integer},
};
use crate::{Error, Result};

/// Translates the nodes of a graph in their order.
///
/// A node's value may have fewer elements than the node: it stretches to the node's shape by ONNX's rules of
/// broadcasting, which operators that broadcast need no node for.
pub(super) struct Emitter<'a> {
    pub(super) graph: &'a Graph,
    pub(super) writer: Writer,
    values: Vec<Option<Value>>,
    missing: BTreeSet<String>,
}

/// The dtype in which ONNX's operators, and their implementations, compute integers; 16-bit floats of less than
/// `float16`'s precision are computed in `float32`.
pub(super) fn carrier(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 => DType::I32,
        DType::U32 => DType::I64,
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => DType::F32,
        other => other,
    }
}

/// The same for operations that round: the engine computes these in `float32`.
pub(super) fn wide(dtype: DType) -> DType {
    if dtype == DType::F16 { DType::F32 } else { carrier(dtype) }
}

/// A dtype that operators which move elements take. Others are exact in it.
pub(super) fn movable(dtype: DType) -> DType {
    if dtype.float8().is_some() { DType::F16 } else { dtype }
}

/// Whether every axis of a value stretches.
pub(super) fn is_number(value: &Value) -> bool {
    value.shape.iter().all(|extent| *extent == [1, 1])
}

/// A shape without the ones before it.
fn core(shape: &[Extent]) -> &[Extent] {
    let first = shape.iter().position(|extent| *extent != [1, 1]).unwrap_or(shape.len());
    &shape[first..]
}

impl<'a> Emitter<'a> {
    pub(super) fn new(graph: &'a Graph, writer: Writer) -> Emitter<'a> {
        let values = vec![None; graph.nodes.len()];
        Emitter { graph, writer, values, missing: BTreeSet::new() }
    }

    /// Sets the value of a leaf.
    pub(super) fn set(&mut self, id: usize, value: Value) {
        self.values[id] = Some(value);
    }

    /// Translates everything, and returns the outputs' values.
    pub(super) fn run(mut self) -> Result<(Writer, Vec<Value>)> {
        let live = self.graph.live();
        for (id, node) in self.graph.nodes.iter().enumerate() {
            if !live[id] || self.values[id].is_some() || matches!(node.task, Task::Alias(_)) {
                continue;
            }
            let value = match self.emit(node) {
                Err(Error::Unsupported(what)) => {
                    self.missing.extend(what);
                    self.writer.missing(node.dtype, &node.shape)
                }
                other => other?,
            };
            debug_assert_eq!(value.dtype, node.dtype, "{node:?}");
            self.values[id] = Some(value);
        }
        self.missing.append(&mut self.writer.take_lacking());
        if !self.missing.is_empty() {
            return Err(Error::Unsupported(self.missing.into_iter().collect()));
        }
        let outputs = self.graph.outputs.iter().map(|&id| self.full(id)).collect::<Result<_>>()?;
        Ok((self.writer, outputs))
    }

    /// The node's value, which may have to be stretched.
    pub(super) fn compact(&self, id: usize) -> Result<Value> {
        let lost = || Error::invalid("an operation of the network precedes its operands");
        self.values[id].clone().ok_or_else(lost)
    }

    /// The node's value in its own shape.
    pub(super) fn full(&mut self, id: usize) -> Result<Value> {
        let value = self.compact(id)?;
        self.stretched(&value, &self.graph.nodes[id].shape)
    }

    /// The value in this shape, which it stretches to.
    pub(super) fn stretched(&mut self, value: &Value, shape: &[Extent]) -> Result<Value> {
        if value.shape == shape {
            return Ok(value.clone());
        }
        if core(&value.shape) == core(shape) && value.shape.len() < shape.len() {
            return Ok(self.with_rank(value, shape.len()));
        }
        let moved = self.writer.cast(value, movable(value.dtype));
        let target = self.writer.shape(shape, &[])?;
        let expanded =
            self.writer.node("Expand", &[&moved, &target], Vec::new(), moved.dtype, shape.to_vec());
        Ok(self.writer.cast(&expanded, value.dtype))
    }

    /// The value with axes of size 1 before the others.
    pub(super) fn with_rank(&mut self, value: &Value, rank: usize) -> Value {
        let Some(added) = rank.checked_sub(value.shape.len()).filter(|&added| added > 0) else {
            return value.clone();
        };
        let axes: Vec<i64> = (0..added as i64).collect();
        let axes = self.writer.vector(&axes);
        let shape = [&vec![[1, 1]; added][..], &value.shape].concat();
        self.writer.node("Unsqueeze", &[value, &axes], Vec::new(), value.dtype, shape)
    }

    /// An operand in a dtype, in its own shape.
    pub(super) fn operand(&mut self, id: usize, dtype: DType) -> Result<Value> {
        let value = self.full(id)?;
        Ok(self.writer.cast(&value, dtype))
    }

    fn emit(&mut self, node: &Node) -> Result<Value> {
        match &node.task {
            Task::Own => self.own(node),
            Task::Alias(other) => self.compact(*other),
            Task::Function { operator, x } => {
                let x = self.compact(*x)?;
                let x = self.writer.cast(&x, wide(x.dtype));
                let y = self.writer.each(operator, &[&x]);
                Ok(self.writer.cast(&y, node.dtype))
            }
            Task::Mean { x, axes } => self.mean(node, *x, axes),
            Task::AveragePool { x, geometry } => self.average_pool(node, *x, geometry),
            Task::Product { a, b } => self.product(node, *a, *b),
            Task::Take { table, index } => self.take(node, *table, *index),
            Task::Part { of, part } => self.part(node, *of, *part),
        }
    }

    fn own(&mut self, node: &Node) -> Result<Value> {
        match &node.op[0] {
            Op::Unary(function) => self.unary(node, *function),
            Op::Binary(function) => self.binary(node, *function),
            Op::Where => self.choose(node),
            Op::Cast => {
                let value = self.compact(node.inputs[0])?;
                Ok(self.writer.cast(&value, node.dtype))
            }
            Op::Constant(constant) => match &node.op[1] {
                Op::Constant(other) => self.number(node.dtype, [constant.0, other.0]),
                _ => Ok(self.writer.scalar(node.dtype, constant.0)),
            },
            Op::Iota(iota) => self.iota(node, iota.axis),
            Op::Copy | Op::Contiguous | Op::Expand => self.compact(node.inputs[0]),
            Op::Reshape => self.reshape(node),
            Op::Permute(permute) => self.permute(node, &permute.0),
            Op::Slice(_) => self.slice(node),
            Op::Pad(_) => self.pad(node),
            Op::Cat(cat) => self.cat(node, cat.axis),
            Op::Gather(_) => self.take(node, node.inputs[0], node.inputs[1]),
            Op::Scatter(scatter) => self.scatter(node, scatter.0),
            Op::Reduce(reduce) => self.reduce(node, reduce),
            Op::ArgReduce(reduce) => self.arg_reduce(node, reduce),
            Op::Scan(scan) => self.scan(node, scan),
            Op::ArgSort(sort) => self.arg_sort(node, sort.descending),
            Op::SearchSorted(search) => self.search_sorted(node, search.right),
            Op::Dot => self.product(node, node.inputs[0], node.inputs[1]),
            Op::Conv(conv) => self.convolution(node, conv),
            Op::Pool(pool) => self.pool(node, pool),
            Op::Composite(composite) => self.composite(node, composite),
            Op::Custom(_) => Err(Error::unsupported("kernels written by users")),
            Op::Collective(_) => Err(Error::unsupported("collectives of several processes")),
            Op::RandomBits => Err(Error::unsupported(
                "random numbers (call eval() on layers such as dropout, and evaluate() on tensors that were drawn before)",
            )),
            other => Err(Error::unsupported(format!("{} of {}", other.name(), node.dtype))),
        }
    }

    /// A number that may follow from the sizes of the inputs.
    fn number(&mut self, dtype: DType, numbers: [Scalar; 2]) -> Result<Value> {
        if numbers[0] == numbers[1] {
            return Ok(self.writer.scalar(dtype, numbers[0]));
        }
        let values = numbers.map(Scalar::as_f64);
        let unclear = || {
            Error::invalid(format!(
                "a number of the network is {} in one case and {} in the other, and how it follows from the sizes of \
                 the inputs is not clear",
                values[0], values[1]
            ))
        };
        let is_size = |value: &f64| value.fract() == 0.0 && value.abs() < 1e15;
        let inverse = values.map(|value| (1.0 / value).round());
        let is_inverse = |n: usize| is_size(&inverse[n]) && (values[n] * inverse[n] - 1.0).abs() < 1e-6;
        let (sizes, inverted) = if values.iter().all(is_size) {
            (values, false)
        } else if dtype.is_float() && (0..2).all(is_inverse) {
            (inverse, true)
        } else {
            return Err(unclear());
        };
        let size = self.writer.size(sizes.map(|size| size as i64), &[])?;
        let size = self.reshaped(&size, &[])?;
        let number = self.writer.cast(&size, if inverted { wide(dtype) } else { dtype });
        let number = if inverted { self.writer.each("Reciprocal", &[&number]) } else { number };
        Ok(self.writer.cast(&number, dtype))
    }

    fn iota(&mut self, node: &Node, axis: usize) -> Result<Value> {
        let size = node.shape[axis];
        let ones = vec![[1, 1]; node.shape.len() - axis - 1];
        let shape = [&[size][..], &ones].concat();
        if !varies(size) && size[0] <= STORED_INDICES {
            let numbers: Vec<Scalar> = (0..size[0]).map(|n| Scalar::Int(n).cast(node.dtype)).collect();
            let shape: Vec<i64> = shape.iter().map(|extent| extent[0]).collect();
            return Ok(self.writer.constant(node.dtype, &shape, &numbers));
        }
        let range = self.writer.places(size)?;
        let range = self.reshaped(&range, &shape)?;
        Ok(self.writer.cast(&range, node.dtype))
    }

    fn reshape(&mut self, node: &Node) -> Result<Value> {
        let source = self.graph.shapes_of(node.inputs[0]).last().copied().unwrap_or(node.inputs[0]);
        let value = self.compact(source)?;
        let from = &self.graph.nodes[source].shape;
        if is_number(&value) {
            let fits = value.shape.len() <= node.shape.len();
            return if fits { Ok(value) } else { self.reshaped(&value, &[]) };
        }
        let is_large = |extent: &&Extent| **extent != [1, 1];
        let only_ones_differ = from.iter().filter(is_large).eq(node.shape.iter().filter(is_large));
        if !only_ones_differ {
            let value = self.stretched(&value, from)?;
            return self.reshaped(&value, &node.shape);
        }
        // Axes that stretch stay so.
        let padded = [&vec![[1, 1]; from.len() - value.shape.len()][..], &value.shape].concat();
        let mut own = padded.iter().zip(from).filter(|(_, from)| **from != [1, 1]).map(|(own, _)| *own);
        let mut next =
            |extent: &Extent| if *extent == [1, 1] { [1, 1] } else { own.next().unwrap_or([1, 1]) };
        let target: Vec<Extent> = node.shape.iter().map(&mut next).collect();
        if core(&target) == core(&value.shape) && value.shape.len() <= target.len() {
            return Ok(value);
        }
        self.reshaped(&value, &target)
    }

    /// The value in another shape of as many elements.
    pub(super) fn reshaped(&mut self, value: &Value, shape: &[Extent]) -> Result<Value> {
        if value.shape == shape {
            return Ok(value.clone());
        }
        if value.shape.iter().any(|&extent| varies(extent)) {
            if let Some(axes) = added_ones(&value.shape, shape) {
                let axes = self.writer.vector(&axes);
                return Ok(self.writer.node(
                    "Unsqueeze",
                    &[value, &axes],
                    Vec::new(),
                    value.dtype,
                    shape.to_vec(),
                ));
            }
            if let Some(axes) = added_ones(shape, &value.shape) {
                let axes = self.writer.vector(&axes);
                return Ok(self.writer.node(
                    "Squeeze",
                    &[value, &axes],
                    Vec::new(),
                    value.dtype,
                    shape.to_vec(),
                ));
            }
        }
        // 0 copies a size of the operand, and -1 is computed. Neither goes with tensors that are empty.
        let is_empty = value.shape.iter().chain(shape).any(|extent| extent.contains(&0));
        let copied = |axis: usize| varies(shape[axis]) && value.shape.get(axis) == Some(&shape[axis]);
        let varying: Vec<usize> = (0..shape.len()).filter(|&axis| varies(shape[axis])).collect();
        let computed = match varying[..] {
            [only] => Some(only),
            _ => varying.iter().copied().find(|&axis| !copied(axis)),
        };
        let simple = varying.iter().all(|&axis| computed == Some(axis) || copied(axis)) && !is_empty;
        let (target, attributes) = if simple {
            let size = |axis: usize| match () {
                () if computed == Some(axis) => -1,
                () if varies(shape[axis]) => 0,
                () => shape[axis][0],
            };
            let sizes: Vec<i64> = (0..shape.len()).map(size).collect();
            (self.writer.vector(&sizes), Vec::new())
        } else {
            let zero = if is_empty { vec![integer("allowzero", 1)] } else { Vec::new() };
            (self.writer.shape(shape, &[value])?, zero)
        };
        Ok(self.writer.node("Reshape", &[value, &target], attributes, value.dtype, shape.to_vec()))
    }

    fn composite(&mut self, node: &Node, composite: &Composite) -> Result<Value> {
        match composite {
            Composite::Attention(_) => Err(Error::unsupported("the denominators of attention's softmax")),
            Composite::Recurrent(_) => {
                Err(Error::unsupported("the gates of a recurrent layer (trace it in no_grad)"))
            }
            _ => self.neural(node, composite),
        }
    }
}

/// The axes of size 1 that the larger shape has and the smaller one lacks, if that is all the difference.
fn added_ones(smaller: &[Extent], larger: &[Extent]) -> Option<Vec<i64>> {
    let mut left = smaller.iter().peekable();
    let mut axes = Vec::new();
    for (axis, extent) in larger.iter().enumerate() {
        if left.next_if_eq(&extent).is_none() {
            (*extent == [1, 1]).then_some(())?;
            axes.push(axis as i64);
        }
    }
    left.next().is_none().then_some(axes)
}
