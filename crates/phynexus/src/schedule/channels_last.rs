//! Keeps images channels last in memory around convolutions, on devices that copy pieces of channels to their matrix
//! units. Permutations that do so sink through elementwise operations, pooling, concatenation and reductions, so that a
//! network permutes its input and its output only.

use smallvec::SmallVec;

use crate::{
    Scalar,
    kernel::lower::Target,
    op::{
        Axes, Cat, Composite, Conv, ConvKind, Geometry, Op, Pad, Permute, Pool, PoolKind, Reduce, Slice,
        composite::MaxPoolGradient,
        ir::{Id, Ir, IrNode},
    },
    shape::Dims,
};

/// Channels that are copied together: 16 bytes of 16-bit floats.
const PIECE: usize = 8;
/// Products of a convolution for which permuting its operands pays off.
const LEAST: usize = 1 << 20;

/// Rewrites the graph, if it has such convolutions and the device gains from it.
pub(super) fn keep_channels_last(ir: Ir, target: Option<&Target>) -> Ir {
    let gains = target.is_some_and(Target::multiplies_panels);
    let suited: Vec<bool> = ir.nodes.iter().map(|node| gains && suits(&ir, node)).collect();
    if !suited.contains(&true) {
        return ir;
    }
    let kept = kept(&ir, &suited);
    let mut rewriter = Rewriter {
        from: &ir,
        kept,
        out: Ir::default(),
        plain: Vec::new(),
        last: Vec::new(),
        padded: Vec::new(),
    };
    for (id, suited) in suited.into_iter().enumerate() {
        rewriter.add(id as Id, suited);
    }
    rewriter.out.outputs = ir.outputs.iter().map(|&output| rewriter.plain(output)).collect();
    rewriter.out
}

/// A convolution's input and output: their positions among the operands, `None` for the result.
fn images(kind: ConvKind) -> [Option<usize>; 2] {
    match kind {
        ConvKind::Forward => [Some(0), None],
        ConvKind::InputGradient => [None, Some(0)],
        ConvKind::FilterGradient => [Some(0), Some(1)],
    }
}

/// Whether it is a convolution that is faster with channels last, even if its operands have to be permuted.
fn suits(ir: &Ir, node: &IrNode) -> bool {
    let Op::Conv(Conv(kind, geometry)) = &node.op else { return false };
    let operands = [0, 1].map(|at| ir.node(node.inputs[at]));
    let image = |position: Option<usize>| position.map_or(node, |at| operands[at]);
    let [x, y] = images(*kind).map(image);
    let (inputs, outputs) = (x.shape[1], y.shape[1]);
    let products = y.len().saturating_mul(inputs).saturating_mul(geometry.kernel.iter().product());
    let is_padded = inputs < PIECE && *kind != ConvKind::InputGradient;
    operands.iter().all(|operand| operand.dtype.is_float() && operand.dtype.size() == 2)
        && geometry.groups == 1
        && outputs.is_multiple_of(PIECE)
        && (inputs.is_multiple_of(PIECE) || is_padded)
        && products >= LEAST
}

/// Which nodes are computed channels last.
fn kept(ir: &Ir, suited: &[bool]) -> Vec<bool> {
    let mut kept = vec![false; ir.nodes.len()];
    // Filters are permuted where they are made, but what else reads them is not.
    let mut filters = vec![false; ir.nodes.len()];
    for (id, node) in ir.nodes.iter().enumerate().filter(|(id, _)| suited[*id]) {
        let Op::Conv(Conv(kind, _)) = &node.op else { continue };
        for position in images(*kind) {
            let image = position.map_or(id as Id, |at| node.inputs[at]);
            kept[image as usize] |= position.is_none() || sinks(ir.node(image));
        }
        if *kind != ConvKind::FilterGradient {
            filters[node.inputs[1] as usize] |= sinks(ir.node(node.inputs[1]));
        }
    }
    loop {
        let before = kept.clone();
        for (id, node) in ir.nodes.iter().enumerate() {
            let follows = |&input: &Id| kept[input as usize] && !ir.node(input).is_empty();
            kept[id] |= sinks(node) && node.inputs.iter().any(follows);
        }
        for all in [&mut kept, &mut filters] {
            for (id, node) in ir.nodes.iter().enumerate().rev() {
                if all[id] && sinks(node) {
                    node.inputs.iter().for_each(|&input| all[input as usize] |= sinks(ir.node(input)));
                }
            }
        }
        if kept == before {
            break;
        }
    }
    kept.iter().zip(filters).map(|(&kept, filter)| kept || filter).collect()
}

/// Whether a permutation can be moved from the node's result to its operands.
fn sinks(node: &IrNode) -> bool {
    let spatial = node.shape.len().saturating_sub(2);
    spatial > 0
        && match &node.op {
            // The channels become one more spatial dimension.
            Op::Pool(Pool(kind, _)) => *kind != PoolKind::ArgMax && spatial < 3,
            Op::Composite(Composite::MaxPoolGradient(_)) => spatial < 3,
            Op::Cat(_) => true,
            op => op.is_elementwise(),
        }
}

/// The axes of a tensor of this rank, channels last.
fn channels_to_end(rank: usize) -> SmallVec<[u8; 8]> {
    let axes = 0..rank as u8;
    axes.clone().take(1).chain(axes.skip(2)).chain([1]).collect()
}

/// The axes of a tensor that is channels last, in their usual order.
fn channels_to_front(rank: usize) -> SmallVec<[u8; 8]> {
    let axes = 0..rank as u8;
    axes.clone().take(1).chain([rank as u8 - 1]).chain(axes.skip(1).take(rank - 2)).collect()
}

/// The position of an axis if the channels come last.
fn axis_at_end(axis: usize, rank: usize) -> usize {
    match axis {
        0 => 0,
        1 => rank - 1,
        axis => axis - 1,
    }
}

struct Rewriter<'a> {
    from: &'a Ir,
    /// Which nodes are computed channels last.
    kept: Vec<bool>,
    out: Ir,
    /// Nodes in the usual order, and channels last: what is computed, or a view of it.
    plain: Vec<Option<Id>>,
    last: Vec<Option<Id>>,
    /// Operands with channels that were added: the node, their number, and the view.
    padded: Vec<(Id, usize, Id)>,
}

impl Rewriter<'_> {
    fn permuted(&mut self, id: Id, axes: SmallVec<[u8; 8]>) -> Id {
        let node = self.out.node(id);
        let shape: Dims = axes.iter().map(|&axis| node.shape[usize::from(axis)]).collect();
        self.out.push(Op::Permute(Permute(axes)), node.dtype, shape, [id])
    }

    fn plain(&mut self, id: Id) -> Id {
        let at = id as usize;
        if let (None, Some(last)) = (self.plain[at], self.last[at]) {
            let axes = channels_to_front(self.from.node(id).shape.len());
            self.plain[at] = Some(self.permuted(last, axes));
        }
        self.plain[at].unwrap_or_default()
    }

    fn last(&mut self, id: Id) -> Id {
        let at = id as usize;
        if let (Some(plain), None) = (self.plain[at], self.last[at]) {
            let axes = channels_to_end(self.from.node(id).shape.len());
            self.last[at] = Some(self.permuted(plain, axes));
        }
        self.last[at].unwrap_or_default()
    }

    /// Adds a node of the old graph.
    fn add(&mut self, id: Id, suited: bool) {
        let node = self.from.node(id);
        let (mut plain, mut last) = (None, None);
        match &node.op {
            Op::Conv(conv) if suited => match self.conv(node, conv) {
                result if conv.0 == ConvKind::FilterGradient => plain = Some(result),
                result => {
                    let axes = channels_to_end(node.shape.len());
                    let permuted = self.permuted(result, axes);
                    last = Some(if self.is_followed(id) { permuted } else { self.stored(permuted) });
                }
            },
            Op::Pool(Pool(kind, geometry)) if self.kept[id as usize] => {
                last = Some(self.pool(node, Op::Pool(Pool(*kind, with_channels(geometry)))));
            }
            Op::Composite(Composite::MaxPoolGradient(MaxPoolGradient(geometry)))
                if self.kept[id as usize] =>
            {
                let op = Op::Composite(MaxPoolGradient(with_channels(geometry)).into());
                last = Some(self.pool(node, op));
            }
            // Kernels that reduce several such tensors read them in one order.
            Op::Reduce(Reduce { combine, axes }) if self.sinks_below(node, *axes) => {
                let axes = Axes::of(axes.iter().map(|axis| axis_at_end(axis, node.shape.len())));
                let input = self.last(node.inputs[0]);
                let op = Op::Reduce(Reduce { combine: *combine, axes });
                last = Some(self.out.push(op, node.dtype, ended(&node.shape), [input]));
            }
            op if self.kept[id as usize] => {
                let op = match op {
                    Op::Cat(Cat { axis }) => Op::Cat(Cat { axis: axis_at_end(*axis, node.shape.len()) }),
                    other => other.clone(),
                };
                let inputs: SmallVec<[Id; 3]> = node.inputs.iter().map(|&input| self.last(input)).collect();
                last = Some(self.out.push(op, node.dtype, ended(&node.shape), inputs));
            }
            op => {
                let inputs: SmallVec<[Id; 3]> = node.inputs.iter().map(|&input| self.plain(input)).collect();
                plain = Some(self.out.push(op.clone(), node.dtype, node.shape.clone(), inputs));
            }
        }
        self.plain.push(plain);
        self.last.push(last);
    }

    /// Whether a reduction can read its operand channels last and still combine the same elements in the same order.
    fn sinks_below(&self, node: &IrNode, axes: Axes) -> bool {
        let input = node.inputs[0];
        let shape = &self.from.node(input).shape;
        let mut spatial = axes.iter().filter(|&axis| axis > 1 && shape[axis] != 1);
        self.kept[input as usize] && (!axes.contains(1) || shape[1] == 1 || spatial.next().is_none())
    }

    /// Whether the only reader of a convolution's result is an operation that is stored in its place. Of several
    /// convolutions with the same reader, that is the last one.
    fn is_followed(&self, id: Id) -> bool {
        let mut readers = (self.from.nodes.iter().enumerate()).filter(|(_, node)| node.inputs.contains(&id));
        let (Some((reader, node)), None) = (readers.next(), readers.next()) else { return false };
        let is_elementwise = node.op.is_elementwise() && !matches!(node.op, Op::Cast);
        let is_last = |&input: &Id| input <= id || !suits(self.from, self.from.node(input));
        is_elementwise
            && self.kept[reader]
            && !self.from.outputs.contains(&id)
            && node.inputs.iter().all(is_last)
    }

    /// Gives a view memory of its own.
    fn stored(&mut self, id: Id) -> Id {
        let IrNode { dtype, shape, .. } = self.out.node(id).clone();
        self.out.push(Op::Contiguous, dtype, shape, [id])
    }

    /// An operand of a convolution, with this many channels: a view of memory that is channels last.
    fn operand(&mut self, id: Id, channels: usize) -> Id {
        let lacks = channels - self.from.node(id).shape[1];
        let known = |(node, count, _): &&(Id, usize, Id)| (*node, *count) == (id, channels);
        if let Some(&(.., view)) = self.padded.iter().find(known) {
            return view;
        }
        let is_made = self.kept[id as usize];
        let mut last = self.last(id);
        if lacks > 0 {
            let IrNode { dtype, mut shape, .. } = self.out.node(last).clone();
            let axis = shape.len() - 1;
            let mut padding: SmallVec<[(usize, usize); 4]> = shape.iter().map(|_| (0, 0)).collect();
            (shape[axis], padding[axis]) = (channels, (0, lacks));
            last = self.out.push(
                Op::Pad(Pad { padding, value: Scalar::Int(0).cast(dtype) }),
                dtype,
                shape,
                [last],
            );
        } else if is_made {
            return self.plain(id);
        }
        let last = self.stored(last);
        let view = self.permuted(last, channels_to_front(self.from.node(id).shape.len()));
        if lacks == 0 {
            // The next convolution reads the same memory.
            let at = id as usize;
            (self.plain[at], self.last[at], self.kept[at]) = (Some(view), Some(last), true);
        } else {
            self.padded.push((id, channels, view));
        }
        view
    }

    /// The convolution in the usual order of axes. Its operands are views of memory that is channels last.
    fn conv(&mut self, node: &IrNode, conv: &Conv) -> Id {
        let Conv(kind, _) = conv;
        let [a, b] = [0, 1].map(|at| self.from.node(node.inputs[at]).shape[1]);
        // Channels of the input and, of a filter, what it takes.
        let padded = |channels: usize| channels.next_multiple_of(PIECE);
        let channels = match kind {
            ConvKind::Forward => [padded(a), padded(b)],
            ConvKind::FilterGradient => [padded(a), b],
            ConvKind::InputGradient => [a, b],
        };
        let [a, b] = [0, 1].map(|at| self.operand(node.inputs[at], channels[at]));
        let mut shape = node.shape.clone();
        if *kind == ConvKind::FilterGradient {
            shape[1] = channels[0];
        }
        let result = self.out.push(Op::Conv(conv.clone()), node.dtype, shape.clone(), [a, b]);
        if shape == node.shape {
            return result;
        }
        let slice =
            Slice { start: shape.iter().map(|_| 0).collect(), step: shape.iter().map(|_| 1).collect() };
        self.out.push(Op::Slice(slice), node.dtype, node.shape.clone(), [result])
    }

    /// Pooling by an operation whose windows include the channels.
    fn pool(&mut self, node: &IrNode, op: Op) -> Id {
        let planar =
            |shape: &[usize]| -> Dims { shape[..1].iter().chain(&[1]).chain(&shape[1..]).copied().collect() };
        let inputs: SmallVec<[Id; 3]> = (node.inputs.iter())
            .map(|&input| {
                let last = self.last(input);
                let IrNode { dtype, shape, .. } = self.out.node(last).clone();
                self.out.push(Op::Reshape, dtype, planar(&shape), [last])
            })
            .collect();
        let shape = ended(&node.shape);
        let pooled = self.out.push(op, node.dtype, planar(&shape), inputs);
        self.out.push(Op::Reshape, node.dtype, shape, [pooled])
    }
}

/// A geometry with one more dimension, the channels, along which windows are single elements.
fn with_channels(geometry: &Geometry) -> Geometry {
    let with = |extents: &[usize]| extents.iter().copied().chain([1]).collect::<Dims>();
    Geometry {
        kernel: with(&geometry.kernel),
        stride: with(&geometry.stride),
        dilation: with(&geometry.dilation),
        padding: geometry.padding.iter().copied().chain([(0, 0)]).collect(),
        groups: 1,
    }
}

/// A shape, channels last.
fn ended(shape: &[usize]) -> Dims {
    shape[..1].iter().chain(&shape[2..]).chain(&shape[1..2]).copied().collect()
}
