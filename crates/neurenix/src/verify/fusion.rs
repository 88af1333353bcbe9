//! Graphs that compile to one or more fused kernels.

use phynexus::{
    DType, Scalar,
    op::{
        Axes, Binary, Combine, Constant, Conv, ConvKind, Geometry, Iota, Op, Pad, Permute, Reduce, Slice,
        Unary,
    },
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array, random_index},
};

use super::Entry;

/// The fused graphs, for every float dtype.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for dtype in DType::FLOATS {
        for (name, chain) in CHAINS {
            for shape in [[1, 1], [4, 7], [5, 260], [300, 3], [2, 4100]] {
                entries.push(Entry::new(*name, dtype.name(), move || {
                    let mut graph = Graph::new(format!("shape {shape:?}"), dtype);
                    chain(&mut graph, &shape);
                    graph.case
                }));
            }
        }
    }
    entries
}

/// A case under construction; methods add operations with the required shapes.
struct Graph {
    case: Case,
    dtype: DType,
    choice: Choice,
}

impl Graph {
    fn new(name: String, dtype: DType) -> Graph {
        Graph { case: Case::new(name), dtype, choice: Choice::new(11) }
    }
    fn shape(&self, x: u32) -> Vec<usize> {
        self.case.ir.node(x).shape.to_vec()
    }
    fn leaf(&mut self, shape: &[usize]) -> u32 {
        self.leaf_of(shape, Distribution::Tame)
    }
    fn leaf_of(&mut self, shape: &[usize], values: Distribution) -> u32 {
        let array = random_array(&mut self.choice, values, self.dtype, shape);
        self.case.leaf(CaseLeaf::contiguous(array))
    }
    fn index(&mut self, rows: usize, count: usize) -> u32 {
        let array = random_index(&mut self.choice, rows, count, DType::U8);
        self.case.leaf(CaseLeaf::contiguous(array))
    }
    fn constant(&mut self, value: f64, shape: &[usize]) -> u32 {
        let scalar = Scalar::Float(value).cast(self.dtype);
        self.case.ir.push(Op::Constant(Constant(scalar)), self.dtype, shape.into(), [])
    }
    fn unary(&mut self, op: Unary, x: u32) -> u32 {
        let (shape, dtype) = (self.shape(x), op.result(self.dtype));
        self.case.ir.push(Op::Unary(op), dtype, shape.as_slice().into(), [x])
    }
    fn binary(&mut self, op: Binary, x: u32, y: u32) -> u32 {
        let shape = self.shape(x);
        let y = self.expand(y, &shape);
        self.case.ir.push(Op::Binary(op), op.result(self.dtype), shape.as_slice().into(), [x, y])
    }
    fn scaled(&mut self, op: Binary, x: u32, value: f64) -> u32 {
        let shape = self.shape(x);
        let y = self.constant(value, &shape);
        self.binary(op, x, y)
    }
    fn expand(&mut self, x: u32, shape: &[usize]) -> u32 {
        let (own, dtype) = (self.shape(x), self.case.ir.node(x).dtype);
        if own == shape { x } else { self.case.ir.push(Op::Expand, dtype, shape.into(), [x]) }
    }
    fn reduce(&mut self, combine: Combine, x: u32, axis: usize) -> u32 {
        let mut shape = self.shape(x);
        shape[axis] = 1;
        let op = Op::Reduce(Reduce { combine, axes: Axes::of([axis]) });
        self.case.ir.push(op, self.dtype, shape.as_slice().into(), [x])
    }
    fn output(&mut self, x: u32) {
        self.case.ir.outputs.push(x);
    }
}

type Chain = fn(&mut Graph, &[usize; 2]);

const CHAINS: &[(&str, Chain)] = &[
    ("fused elementwise", elementwise),
    ("fused softmax", softmax_rows),
    ("fused softmax columns", softmax_columns),
    ("fused norm", norm),
    ("fused cross entropy", cross_entropy),
    ("fused optimiser", optimiser),
    ("fused reductions", reductions),
    ("fused transposes", transposes),
    ("fused product", product),
    ("fused residual", residual),
    ("fused convolution", convolution),
    ("fused padding", padding),
];

/// gelu(a * b + c) * d with broadcast operands.
fn elementwise(g: &mut Graph, &[rows, columns]: &[usize; 2]) {
    let (a, b) = (g.leaf(&[rows, columns]), g.leaf(&[1, columns]));
    let (c, d) = (g.leaf(&[rows, 1]), g.leaf(&[1, 1]));
    let x = g.binary(Binary::Mul, a, b);
    let x = g.binary(Binary::Add, x, c);
    let half = g.scaled(Binary::Mul, x, std::f64::consts::FRAC_1_SQRT_2);
    let erf = g.unary(Unary::Erf, half);
    let one = g.scaled(Binary::Add, erf, 1.0);
    let gelu = g.binary(Binary::Mul, x, one);
    let result = g.binary(Binary::Mul, gelu, d);
    g.output(result);
}

fn softmax(g: &mut Graph, shape: &[usize; 2], axis: usize) {
    let x = g.leaf(shape);
    let greatest = g.reduce(Combine::Max, x, axis);
    let shifted = g.binary(Binary::Sub, x, greatest);
    let powers = g.unary(Unary::Exp, shifted);
    let sum = g.reduce(Combine::Sum, powers, axis);
    let result = g.binary(Binary::Div, powers, sum);
    g.output(result);
}

fn softmax_rows(g: &mut Graph, shape: &[usize; 2]) {
    softmax(g, shape, 1);
}

fn softmax_columns(g: &mut Graph, shape: &[usize; 2]) {
    softmax(g, shape, 0);
}

/// Layer norm with weight and bias; the mean is an output too.
fn norm(g: &mut Graph, shape: &[usize; 2]) {
    let (x, weight, bias) = (g.leaf(shape), g.leaf(&[1, shape[1]]), g.leaf(&[1, shape[1]]));
    let count = shape[1] as f64;
    let sum = g.reduce(Combine::Sum, x, 1);
    let mean = g.scaled(Binary::Div, sum, count);
    let centred = g.binary(Binary::Sub, x, mean);
    let square = g.binary(Binary::Mul, centred, centred);
    let sum = g.reduce(Combine::Sum, square, 1);
    let variance = g.scaled(Binary::Div, sum, count);
    let safe = g.scaled(Binary::Add, variance, 0.5);
    let inverse = g.unary(Unary::Rsqrt, safe);
    let normal = g.binary(Binary::Mul, centred, inverse);
    let scaled = g.binary(Binary::Mul, normal, weight);
    let result = g.binary(Binary::Add, scaled, bias);
    g.output(mean);
    g.output(result);
}

/// The mean over rows of `-log(softmax)` at the target, and its gradient.
fn cross_entropy(g: &mut Graph, shape: &[usize; 2]) {
    let x = g.leaf(shape);
    let target = g.index(shape[1].min(100), shape[0]);
    let greatest = g.reduce(Combine::Max, x, 1);
    let shifted = g.binary(Binary::Sub, x, greatest);
    let powers = g.unary(Unary::Exp, shifted);
    let sum = g.reduce(Combine::Sum, powers, 1);
    let logarithm = g.unary(Unary::Log, sum);
    let log_softmax = g.binary(Binary::Sub, shifted, logarithm);
    let dims = shape.as_slice();
    let class = g.case.ir.push(Op::Iota(Iota { axis: 1 }), DType::U8, dims.into(), []);
    let column = g.case.ir.push(Op::Reshape, DType::U8, [shape[0], 1].as_slice().into(), [target]);
    let wide = g.expand(column, dims);
    // Classes above 255 wrap, here as on every device.
    let hit = g.case.ir.push(Op::Binary(Binary::Eq), DType::Bool, dims.into(), [class, wide]);
    let zero = g.constant(0.0, dims);
    let dtype = g.dtype;
    let picked = g.case.ir.push(Op::Where, dtype, dims.into(), [hit, log_softmax, zero]);
    let rows = g.reduce(Combine::Sum, picked, 1);
    let total = g.reduce(Combine::Sum, rows, 0);
    let loss = g.scaled(Binary::Div, total, -(shape[0] as f64));
    let softmax = g.binary(Binary::Div, powers, sum);
    let one_hot = g.case.ir.push(Op::Cast, dtype, dims.into(), [hit]);
    let gradient = g.binary(Binary::Sub, softmax, one_hot);
    g.output(loss);
    g.output(gradient);
}

/// Adam's update: three results over the same elements.
fn optimiser(g: &mut Graph, shape: &[usize; 2]) {
    let (parameter, gradient, first) = (g.leaf(shape), g.leaf(shape), g.leaf(shape));
    let second = g.leaf_of(shape, Distribution::Positive);
    let kept = g.scaled(Binary::Mul, first, 0.875);
    let fresh = g.scaled(Binary::Mul, gradient, 0.125);
    let moment = g.binary(Binary::Add, kept, fresh);
    let kept = g.scaled(Binary::Mul, second, 0.75);
    let square = g.binary(Binary::Mul, gradient, gradient);
    let fresh = g.scaled(Binary::Mul, square, 0.25);
    let spread = g.binary(Binary::Add, kept, fresh);
    let root = g.unary(Unary::Sqrt, spread);
    let safe = g.scaled(Binary::Add, root, 0.01);
    let step = g.binary(Binary::Div, moment, safe);
    let step = g.scaled(Binary::Mul, step, 0.1);
    let next = g.binary(Binary::Sub, parameter, step);
    for output in [moment, spread, next] {
        g.output(output);
    }
}

/// Reductions of reductions, along both axes.
fn reductions(g: &mut Graph, shape: &[usize; 2]) {
    let x = g.leaf(shape);
    let rows = g.reduce(Combine::Sum, x, 1);
    let columns = g.reduce(Combine::Max, x, 0);
    let both = g.reduce(Combine::Min, rows, 0);
    let scaled = g.binary(Binary::Mul, x, both);
    let centred = g.binary(Binary::Sub, scaled, columns);
    let last = g.reduce(Combine::Sum, centred, 1);
    for output in [rows, columns, both, last] {
        g.output(output);
    }
}

/// A value used both directly and transposed.
fn transposes(g: &mut Graph, shape: &[usize; 2]) {
    let x = g.leaf(shape);
    let y = g.unary(Unary::Tanh, x);
    let turned = [shape[1], shape[0]];
    let dtype = g.dtype;
    let permutation = Op::Permute(Permute([1u8, 0].as_slice().into()));
    let t = g.case.ir.push(permutation.clone(), dtype, turned.as_slice().into(), [y]);
    let z = g.leaf(&turned);
    let sum = g.binary(Binary::Add, t, z);
    let back = g.case.ir.push(permutation, dtype, shape.as_slice().into(), [sum]);
    let result = g.binary(Binary::Mul, back, y);
    let row = g.reduce(Combine::Sum, sum, 1);
    g.output(result);
    g.output(row);
}

/// `relu(x w + b)` plus the row sums of x, with a transposed weight.
fn product(g: &mut Graph, &[rows, inner]: &[usize; 2]) {
    let (x, w, bias) = (g.leaf(&[rows, inner]), g.leaf(&[6, inner]), g.leaf(&[1, 6]));
    let dtype = g.dtype;
    let permutation = Op::Permute(Permute([1u8, 0].as_slice().into()));
    let turned = g.case.ir.push(permutation, dtype, [inner, 6].as_slice().into(), [w]);
    let dot = g.case.ir.push(Op::Dot, dtype, [rows, 6].as_slice().into(), [x, turned]);
    let biased = g.binary(Binary::Add, dot, bias);
    let positive = g.scaled(Binary::Max, biased, 0.0);
    let sums = g.reduce(Combine::Sum, x, 1);
    let result = g.binary(Binary::Add, positive, sums);
    g.output(result);
    g.output(dot);
}

/// A residual block: a wide product with bias and activation, then a product that is added to the input. For even
/// `rows`, the result of the first product is an output too.
fn residual(g: &mut Graph, &[rows, inner]: &[usize; 2]) {
    let inner = inner.min(300);
    let (x, up, down) = (g.leaf(&[rows, inner]), g.leaf(&[inner, 70]), g.leaf(&[70, inner]));
    let (bias, offset) = (g.leaf(&[1, 70]), g.leaf(&[1, inner]));
    let dtype = g.dtype;
    let hidden = g.case.ir.push(Op::Dot, dtype, [rows, 70].as_slice().into(), [x, up]);
    let biased = g.binary(Binary::Add, hidden, bias);
    let active = g.unary(Unary::Tanh, biased);
    let back = g.case.ir.push(Op::Dot, dtype, [rows, inner].as_slice().into(), [active, down]);
    let biased = g.binary(Binary::Add, back, offset);
    let sum = g.binary(Binary::Add, x, biased);
    let max = g.reduce(Combine::Max, sum, 1);
    let norm = g.binary(Binary::Sub, sum, max);
    for output in [active, sum, norm] {
        g.output(output);
    }
    if rows % 2 == 0 {
        g.output(hidden);
    }
}

/// A convolution with bias and activation.
fn convolution(g: &mut Graph, &[rows, columns]: &[usize; 2]) {
    let geometry = Geometry {
        kernel: [3, 3].as_slice().into(),
        stride: [2, 1].as_slice().into(),
        dilation: [1, 1].as_slice().into(),
        padding: [(1, 1), (1, 1)].as_slice().into(),
        groups: 1,
    };
    let (Some(height), Some(width)) = (geometry.output_size(0, rows), geometry.output_size(1, columns))
    else {
        return;
    };
    let (x, w, bias) = (g.leaf(&[1, 2, rows, columns]), g.leaf(&[3, 2, 3, 3]), g.leaf(&[1, 3, 1, 1]));
    let dtype = g.dtype;
    let shape = [1, 3, height, width];
    let conv =
        g.case.ir.push(Op::Conv(Conv(ConvKind::Forward, geometry)), dtype, shape.as_slice().into(), [x, w]);
    let biased = g.binary(Binary::Add, conv, bias);
    let result = g.unary(Unary::Tanh, biased);
    g.output(result);
}

/// Elements outside a padded, sliced or reversed input must not be read out of bounds.
fn padding(g: &mut Graph, &[rows, columns]: &[usize; 2]) {
    let x = g.leaf(&[rows, columns]);
    let dtype = g.dtype;
    let y = g.unary(Unary::Exp, x);
    let wide = [rows + 3, columns + 2];
    let pad =
        Op::Pad(Pad { padding: [(1, 2), (2, 0)].as_slice().into(), value: Scalar::Float(-1.0).cast(dtype) });
    let padded = g.case.ir.push(pad, dtype, wide.as_slice().into(), [y]);
    let slice =
        Op::Slice(Slice { start: [0, columns + 1].as_slice().into(), step: [2, -1].as_slice().into() });
    let shape = [wide[0].div_ceil(2), wide[1]];
    let sliced = g.case.ir.push(slice, dtype, shape.as_slice().into(), [padded]);
    let scaled = g.scaled(Binary::Mul, sliced, 3.0);
    let rows = g.reduce(Combine::Sum, scaled, 1);
    g.output(padded);
    g.output(scaled);
    g.output(rows);
}
