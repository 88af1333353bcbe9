//! The traced network, in two sizes at once, simplified for its translation.

use phynexus::{
    DType, Scalar, Tensor,
    op::{
        Binary, Cat, Combine, Composite, Constant, Geometry, Op, Pad, Permute, Pool, PoolKind, Reduce, Slice,
        composite::{Attention, Cell, InPrecision, Recurrent},
    },
    schedule::trace::Traced,
    shape::Dims,
};

use crate::{Error, Result};

/// A size in the first network and in the second. Equal ones do not vary.
pub(super) type Extent = [i64; 2];

/// How a node is translated, where that is not by its own operation and operands.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// By its operation.
    Own,
    /// It is this other node.
    Alias(usize),
    /// An elementwise operator.
    Function { operator: &'static str, x: usize },
    /// The mean of `x` over axes, which become size 1 or are removed.
    Mean { x: usize, axes: Vec<usize> },
    /// The mean of each window.
    AveragePool { x: usize, geometry: Geometry },
    /// The product of an operand of any rank and a matrix.
    Product { a: usize, b: usize },
    /// The rows of a table of any rank, by an index of any rank.
    Take { table: usize, index: usize },
    /// A part of the packed result of a composite.
    Part { of: usize, part: usize },
}

/// An operation in both networks.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) op: [Op; 2],
    pub(super) dtype: DType,
    pub(super) shape: Vec<Extent>,
    pub(super) inputs: Vec<usize>,
    pub(super) task: Task,
}

/// Both networks.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// The leaves' nodes. The first leaves are the inputs.
    pub(super) leaves: Vec<usize>,
    pub(super) tensors: Vec<Tensor>,
    pub(super) outputs: Vec<usize>,
}

/// Whether composites stay whole. Others are exported by their bodies.
pub(super) fn keeps(composite: &Composite) -> bool {
    match composite {
        Composite::Softmax(_)
        | Composite::Gelu(_)
        | Composite::Silu(_)
        | Composite::Mish(_)
        | Composite::GroupNorm(_)
        | Composite::Recurrent(_)
        | Composite::QuantizeLinear(_)
        | Composite::DequantizeLinear(_) => true,
        // Beyond the threshold the function is the identity; here it is that to the last bits of float32.
        Composite::Softplus(softplus) => softplus.threshold.as_f64() >= 20.0,
        Composite::LayerNorm(norm) => norm.centred || !norm.bias,
        Composite::BatchNorm(norm) => !norm.training,
        Composite::Attention(attention) => attention.dropout == 0,
        _ => false,
    }
}

/// The extents of a shape in both networks.
fn extents(first: &[usize], second: &[usize]) -> Vec<Extent> {
    first.iter().zip(second).map(|(&a, &b)| [a as i64, b as i64]).collect()
}

/// The number of elements.
pub(super) fn count(shape: &[Extent]) -> Extent {
    shape.iter().fold([1, 1], |[a, b], [c, d]| [a.saturating_mul(*c), b.saturating_mul(*d)])
}

/// Whether two operations do the same but for sizes that a file can compute.
fn is_same(first: &Op, second: &Op) -> bool {
    match (first, second) {
        (Op::Constant(_), Op::Constant(_)) => true,
        (Op::Slice(a), Op::Slice(b)) => a.step == b.step,
        (Op::Pad(a), Op::Pad(b)) => a.value == b.value,
        (
            Op::Composite(Composite::InPrecision(InPrecision { op: a, .. })),
            Op::Composite(Composite::InPrecision(InPrecision { op: b, .. })),
        ) => a == b,
        _ => first == second,
    }
}

impl Graph {
    /// Puts two networks of the same structure together.
    pub(super) fn merge(first: Traced, second: &Traced) -> Result<Graph> {
        let differs = |at: usize, first: &str, second: &str| {
            Error::invalid(format!(
                "the network depends on the sizes of its inputs: operation {at} is {first} with some and {second} \
                 with others"
            ))
        };
        let mut nodes = Vec::with_capacity(first.ir.nodes.len());
        for (at, (a, b)) in first.ir.nodes.iter().zip(&second.ir.nodes).enumerate() {
            if a.op.name() != b.op.name() {
                return Err(differs(at, a.op.name(), b.op.name()));
            }
            if !is_same(&a.op, &b.op)
                || a.inputs != b.inputs
                || a.dtype != b.dtype
                || a.shape.len() != b.shape.len()
            {
                return Err(differs(at, &format!("one {}", a.op.name()), "another one"));
            }
            nodes.push(Node {
                op: [a.op.clone(), b.op.clone()],
                dtype: a.dtype,
                shape: extents(&a.shape, &b.shape),
                inputs: a.inputs.iter().map(|&id| id as usize).collect(),
                task: Task::Own,
            });
        }
        if first.ir.nodes.len() != second.ir.nodes.len() || first.ir.outputs != second.ir.outputs {
            return Err(differs(nodes.len(), "there", "not there"));
        }
        let positions = |ids: &[u32]| ids.iter().map(|&id| id as usize).collect::<Vec<usize>>();
        let (leaves, outputs) = (positions(&first.ir.leaves), positions(&first.ir.outputs));
        Ok(Graph { nodes, leaves, tensors: first.leaves, outputs })
    }

    /// The node that this one is.
    pub(super) fn resolve(&self, mut id: usize) -> usize {
        while let Task::Alias(other) = self.nodes[id].task {
            id = other;
        }
        id
    }

    /// The number of which all elements are, in both networks.
    pub(super) fn number(&self, mut id: usize) -> Option<[Scalar; 2]> {
        loop {
            let node = &self.nodes[self.resolve(id)];
            match (&node.op, &node.task) {
                ([Op::Constant(Constant(a)), Op::Constant(Constant(b))], Task::Own) => {
                    return Some([a.cast(node.dtype), b.cast(node.dtype)]);
                }
                ([Op::Expand | Op::Reshape, _], Task::Own) => id = *node.inputs.first()?,
                _ => return None,
            }
        }
    }

    /// The node, if it is translated by its own operation.
    pub(super) fn own(&self, id: usize) -> Option<(&Op, &Node)> {
        let node = self.nodes.get(id)?;
        matches!(node.task, Task::Own).then(|| (&node.op[0], node))
    }

    /// The node, and those with the same elements in other shapes that it is made of.
    pub(super) fn shapes_of(&self, id: usize) -> Vec<usize> {
        let mut shapes = vec![id];
        let mut next = id;
        while let Some((Op::Reshape, node)) = self.own(next)
            && let Some(&input) = node.inputs.first()
        {
            shapes.push(input);
            next = input;
        }
        shapes
    }

    /// Leaves out what does nothing, and finds what ONNX has one operator for.
    pub(super) fn simplify(&mut self) {
        for id in 0..self.nodes.len() {
            let inputs: Vec<usize> = self.nodes[id].inputs.iter().map(|&input| self.resolve(input)).collect();
            self.nodes[id].inputs = inputs;
            while let Some(task) = self.simpler(id) {
                self.nodes[id].task = task;
                if !matches!(self.nodes[id].task, Task::Own) {
                    break;
                }
            }
        }
        let outputs = self.outputs.iter().map(|&id| self.resolve(id)).collect();
        self.outputs = outputs;
    }

    /// Another way to get the node. `Own` if its operands were exchanged for earlier ones.
    fn simpler(&mut self, id: usize) -> Option<Task> {
        let node = &self.nodes[id];
        let (op, &first) = (&node.op, node.inputs.first()?);
        let source = &self.nodes[first];
        let same_shape = node.shape == source.shape;
        match &op[0] {
            Op::Copy | Op::Contiguous => Some(Task::Alias(first)),
            Op::Cast if node.dtype == source.dtype => Some(Task::Alias(first)),
            Op::Expand if same_shape => Some(Task::Alias(first)),
            Op::Permute(Permute(order))
                if order.iter().enumerate().all(|(at, &axis)| at == usize::from(axis)) =>
            {
                Some(Task::Alias(first))
            }
            Op::Pad(Pad { padding, .. }) if same_shape && padding.iter().all(|sides| *sides == (0, 0)) => {
                Some(Task::Alias(first))
            }
            Op::Slice(Slice { step, .. }) if same_shape && step.iter().all(|&step| step == 1) => {
                Some(Task::Alias(first))
            }
            Op::Slice(_) => self.slice_of_parts(id),
            Op::Reshape => self.reshape(id),
            Op::Where => self.relu(id),
            Op::Binary(Binary::Div) => self.mean(id).or_else(|| self.sigmoid(id)),
            _ => None,
        }
    }

    fn reshape(&mut self, id: usize) -> Option<Task> {
        let node = &self.nodes[id];
        let &first = node.inputs.first()?;
        if node.shape == self.nodes[first].shape {
            return Some(Task::Alias(first));
        }
        if let Task::Part { of, part } = self.nodes[first].task {
            return (self.part_shape(of, part)? == node.shape).then_some(Task::Part { of, part });
        }
        match self.own(first)? {
            // A packed result with one part.
            (Op::Composite(Composite::Recurrent(_)), packed) => {
                let shape = self.part_shape(first, 0)?;
                (shape == node.shape && count(&shape) == count(&packed.shape))
                    .then_some(Task::Part { of: first, part: 0 })
            }
            (Op::Reshape, _) => {
                let back =
                    self.shapes_of(first).into_iter().find(|&other| self.nodes[other].shape == node.shape);
                back.map(Task::Alias)
            }
            (Op::Dot, product) => {
                let &[folded, b] = &product.inputs[..] else { return None };
                let &[inner, columns] = &self.nodes[b].shape[..] else { return None };
                let (last, batch) = node.shape.split_last()?;
                let unfolded = [batch, &[inner]].concat();
                let has_shape = |a: &usize| self.nodes[*a].shape == unfolded;
                let a = self.shapes_of(folded).into_iter().find(has_shape)?;
                (*last == columns && !batch.is_empty()).then_some(Task::Product { a, b })
            }
            (Op::Gather(_), gather) => {
                let &[table, index] = &gather.inputs[..] else { return None };
                let fits = |(&table, &index): (&usize, &usize)| {
                    let expected = [&self.nodes[index].shape[..], self.nodes[table].shape.get(1..)?].concat();
                    let same_rows =
                        self.nodes[table].shape.first() == self.nodes[gather.inputs[0]].shape.first();
                    (same_rows && expected == node.shape).then_some(Task::Take { table, index })
                };
                let (tables, indices) = (self.shapes_of(table), self.shapes_of(index));
                tables
                    .iter()
                    .rev()
                    .flat_map(|table| indices.iter().map(move |index| (table, index)))
                    .find_map(fits)
            }
            _ => None,
        }
    }

    /// A slice of packed or concatenated results, from the part that it lies in.
    fn slice_of_parts(&mut self, id: usize) -> Option<Task> {
        let node = &self.nodes[id];
        let &first = node.inputs.first()?;
        let [Op::Slice(a), Op::Slice(b)] = &node.op else { return None };
        let (source_op, source) = self.own(first)?;
        let axis = match source_op {
            Op::Cat(Cat { axis }) => *axis,
            Op::Composite(Composite::Recurrent(_) | Composite::Attention(_)) => 0,
            _ => return None,
        };
        let whole =
            |other: usize| node.shape.get(other) == source.shape.get(other) && a.step.get(other) == Some(&1);
        if a.step.get(axis) != Some(&1) || !(0..node.shape.len()).all(|other| other == axis || whole(other)) {
            return None;
        }
        let start = [*a.start.get(axis)? as i64, *b.start.get(axis)? as i64];
        let size = *node.shape.get(axis)?;
        let end = [start[0] + size[0], start[1] + size[1]];
        let parts: Vec<Extent> = match source_op {
            Op::Cat(_) => source
                .inputs
                .iter()
                .map(|&part| self.nodes[part].shape.get(axis).copied())
                .collect::<Option<_>>()?,
            _ => (0..2).map_while(|part| self.part_shape(first, part)).map(|shape| count(&shape)).collect(),
        };
        let mut begin = [0, 0];
        for (at, part) in parts.iter().enumerate() {
            let next = [begin[0] + part[0], begin[1] + part[1]];
            if (0..2).all(|n| begin[n] <= start[n] && end[n] <= next[n]) {
                let is_whole = size == *part;
                if !matches!(source_op, Op::Cat(_)) {
                    return is_whole.then_some(Task::Part { of: first, part: at });
                }
                let operand = *source.inputs.get(at)?;
                if is_whole {
                    return Some(Task::Alias(operand));
                }
                let mut moved = [a.clone(), b.clone()];
                for (n, slice) in moved.iter_mut().enumerate() {
                    let mut starts = Dims::from_slice(&slice.start);
                    *starts.get_mut(axis)? = usize::try_from(start[n] - begin[n]).ok()?;
                    slice.start = starts;
                }
                self.nodes[id].inputs = vec![operand];
                self.nodes[id].op = moved.map(Op::Slice);
                return Some(Task::Own);
            }
            begin = next;
        }
        None
    }

    /// The shape of a part of a packed result that ONNX's operators have, too.
    pub(super) fn part_shape(&self, of: usize, part: usize) -> Option<Vec<Extent>> {
        let node = self.nodes.get(of)?;
        let shape = |operand: usize| Some(&self.nodes[*node.inputs.get(operand)?].shape[..]);
        match (&node.op[0], part) {
            (Op::Composite(Composite::Attention(Attention { .. })), 0) => {
                let (&[batch, heads, queries, _], &[.., width]) = (shape(0)?, shape(2)?) else { return None };
                Some(vec![batch, heads, queries, width])
            }
            (Op::Composite(Composite::Recurrent(_)), 0) => {
                let (&[steps, ..], &[batch, hidden]) = (shape(0)?, shape(1)?) else { return None };
                Some(vec![steps, batch, hidden])
            }
            (Op::Composite(Composite::Recurrent(Recurrent { cell: Cell::Lstm, .. })), 1) => {
                Some(shape(1)?.to_vec())
            }
            _ => None,
        }
    }

    /// A sum divided by the number of its elements.
    fn mean(&self, id: usize) -> Option<Task> {
        let &[sum, divisor] = &self.nodes[id].inputs[..] else { return None };
        let [a, b] = self.number(divisor)?.map(Scalar::as_f64);
        let is_divisor = |count: Extent| a == count[0] as f64 && b == count[1] as f64;
        match self.own(*self.shapes_of(sum).last()?)? {
            (Op::Reduce(Reduce { combine: Combine::Sum, axes }), reduce) => {
                let &x = reduce.inputs.first()?;
                let reduced: Vec<Extent> =
                    axes.iter().filter_map(|axis| self.nodes[x].shape.get(axis).copied()).collect();
                let axes = axes.iter().collect();
                (is_divisor(count(&reduced)) && reduce.dtype.is_float()).then_some(Task::Mean { x, axes })
            }
            (Op::Pool(Pool(PoolKind::Sum, geometry)), pool) if self.own(sum)?.0 == &pool.op[0] => {
                let whole = geometry.kernel.iter().product::<usize>() as i64;
                let &x = pool.inputs.first()?;
                let is_mean = is_divisor([whole, whole]) && pool.dtype.is_float();
                is_mean.then(|| Task::AveragePool { x, geometry: geometry.clone() })
            }
            _ => None,
        }
    }

    /// The nodes whose values the node's translation reads.
    fn reads(&self, id: usize) -> Vec<usize> {
        let node = &self.nodes[id];
        match &node.task {
            Task::Own => node.inputs.clone(),
            Task::Alias(x)
            | Task::Function { x, .. }
            | Task::Mean { x, .. }
            | Task::AveragePool { x, .. } => vec![*x],
            Task::Product { a, b } => vec![*a, *b],
            Task::Take { table, index } => vec![*table, *index],
            Task::Part { of, .. } => self.nodes[*of].inputs.clone(),
        }
    }

    /// Which nodes' values the outputs need.
    pub(super) fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        for &output in &self.outputs {
            live[output] = true;
        }
        for id in (0..self.nodes.len()).rev() {
            if live[id] {
                self.reads(id).into_iter().for_each(|read| live[read] = true);
            }
        }
        live
    }
}
