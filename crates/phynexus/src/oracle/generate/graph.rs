//! Random graphs: chains of operations on a few leaves, with error-prone shapes (empty, size one, broadcast, strided)
//! and every dtype.

mod products;

use smallvec::{SmallVec, smallvec};

use super::{
    Case, CaseLeaf,
    random::{Choice, Distribution, random_array, random_index, random_sorted},
};
use crate::{
    DType, Scalar,
    op::{
        ArgReduce, ArgSort, Axes, Binary, Cat, Combine, Constant, Conv, ConvKind, Gather, Geometry,
        IndexRange, Iota, Op, Pad, Permute, Pool, PoolKind, Reduce, Scan, Scatter, ScatterMode, SearchSorted,
        Slice, Unary,
    },
    oracle::OracleArray,
    shape::{Dims, element_count},
};

/// The maximum number of elements of a node, which keeps the oracle fast.
const GREATEST: usize = 6000;

/// A graph of up to `operations` operations, determined by the seed.
pub fn random_case(seed: u64, operations: usize) -> Case {
    random(seed, operations, &DType::FLOATS, false)
}

/// As [`random_case`], but most leaves have these dtypes, and there are matrices with many rows and columns and
/// reshapes whose sizes do not nest. (Some compilers take minutes for the indices that many such reshapes produce.)
pub fn random_case_of(seed: u64, operations: usize, dtypes: &'static [DType]) -> Case {
    random(seed, operations, dtypes, true)
}

fn random(seed: u64, operations: usize, dtypes: &'static [DType], crosses: bool) -> Case {
    let mut builder = Builder {
        case: Case::new(format!("seed {seed}")),
        choice: Choice::new(seed),
        values: Distribution::Tame,
        dtypes,
        crosses,
    };
    builder.values = builder.choice.of(&[
        Distribution::Tame,
        Distribution::Tame,
        Distribution::Positive,
        Distribution::Special,
    ]);
    let shape = builder.shape();
    let dtype = builder.dtype();
    builder.leaf(dtype, &shape);
    let operations = 1 + builder.choice.below(operations);
    for _ in 0..operations {
        builder.grow();
    }
    builder.choose_outputs();
    builder.case.pruned()
}

struct Builder {
    case: Case,
    choice: Choice,
    values: Distribution,
    dtypes: &'static [DType],
    /// True for matrices with many rows and columns, and reshapes whose sizes do not nest.
    crosses: bool,
}

impl Builder {
    fn dtype(&mut self) -> DType {
        if self.choice.one_in(3) { self.choice.of(&DType::COMPUTED) } else { self.choice.of(self.dtypes) }
    }

    fn shape(&mut self) -> Dims {
        // On a GPU, several invocations share each sum over either of the last two axes.
        match self.choice.below(if self.crosses { 14 } else { 12 }) {
            0 => smallvec![],
            1 => smallvec![0],
            2 => smallvec![3, 0, 2],
            3 => smallvec![1],
            4 => smallvec![1, 1, 1],
            5 => smallvec![2, 1030],
            6 => smallvec![4100],
            7 => smallvec![16, 16, 16],
            12 => smallvec![130, 37],
            13 => smallvec![33, 150],
            _ => (0..1 + self.choice.below(4)).map(|_| 1 + self.choice.below(7)).collect(),
        }
    }

    fn add_leaf(&mut self, values: OracleArray) -> u32 {
        let leaf = if self.choice.one_in(3) {
            CaseLeaf::scattered(values, &mut self.choice)
        } else {
            CaseLeaf::contiguous(values)
        };
        self.case.leaf(leaf)
    }

    fn leaf(&mut self, dtype: DType, shape: &[usize]) -> u32 {
        let values = random_array(&mut self.choice, self.values, dtype, shape);
        self.add_leaf(values)
    }

    fn push(&mut self, op: Op, dtype: DType, shape: &[usize], inputs: &[u32]) -> u32 {
        self.case.ir.push(op, dtype, shape.into(), inputs.iter().copied())
    }

    fn dtype_of(&self, id: u32) -> DType {
        self.case.ir.node(id).dtype
    }

    fn shape_of(&self, id: u32) -> Dims {
        self.case.ir.node(id).shape.clone()
    }

    fn len_of(&self, id: u32) -> usize {
        self.case.ir.node(id).len()
    }

    /// A random node that all operations take, most often a recent one.
    fn any(&mut self) -> u32 {
        let taken = |&id: &u32| self.dtype_of(id).float8().is_none();
        let taken: Vec<u32> = (0..self.case.ir.nodes.len() as u32).filter(taken).collect();
        let count = taken.len();
        let back =
            if self.choice.one_in(2) { self.choice.below(count.min(3)) } else { self.choice.below(count) };
        taken[count - 1 - back]
    }

    /// A node of this dtype and shape: an existing one, broadcast if needed, otherwise a constant or a leaf.
    fn partner(&mut self, dtype: DType, shape: &[usize]) -> u32 {
        let fits = |node: &crate::op::ir::IrNode| {
            let rank = node.shape.len();
            rank == shape.len() && node.shape.iter().zip(shape).all(|(&a, &b)| a == b || a == 1)
        };
        let nodes = self.case.ir.nodes.iter().enumerate();
        let known: Vec<u32> =
            nodes.filter(|(_, n)| n.dtype == dtype && fits(n)).map(|(id, _)| id as u32).collect();
        match self.choice.below(6) {
            0 => {
                let value = if dtype.is_float() {
                    Scalar::Float(self.choice.of(&[1.5, 2.0]))
                } else {
                    Scalar::Int(3)
                };
                self.push(Op::Constant(Constant(value.cast(dtype))), dtype, shape, &[])
            }
            1 => self.leaf(dtype, shape),
            _ if known.is_empty() => {
                let source: Dims =
                    shape.iter().map(|&d| if self.choice.one_in(3) && d > 0 { 1 } else { d }).collect();
                let leaf = self.leaf(dtype, &source);
                self.expanded(leaf, shape)
            }
            _ => {
                let id = self.choice.of(&known);
                self.expanded(id, shape)
            }
        }
    }

    fn expanded(&mut self, id: u32, shape: &[usize]) -> u32 {
        if self.shape_of(id).as_slice() == shape {
            return id;
        }
        let dtype = self.dtype_of(id);
        self.push(Op::Expand, dtype, shape, &[id])
    }

    fn reshaped(&mut self, id: u32, shape: &[usize]) -> u32 {
        let dtype = self.dtype_of(id);
        self.push(Op::Reshape, dtype, shape, &[id])
    }

    fn choose_outputs(&mut self) {
        let mut used = vec![false; self.case.ir.nodes.len()];
        self.case.ir.nodes.iter().flat_map(|n| &n.inputs).for_each(|&i| used[i as usize] = true);
        for (id, node) in self.case.ir.nodes.iter().enumerate() {
            if node.op != Op::Buffer && (!used[id] || self.choice.one_in(6)) {
                self.case.ir.outputs.push(id as u32);
            }
        }
        if self.case.ir.outputs.is_empty() {
            let x = self.any();
            let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
            let copy = self.push(Op::Contiguous, dtype, &shape, &[x]);
            self.case.ir.outputs.push(copy);
        }
    }

    fn grow(&mut self) {
        let x = self.any();
        match self.choice.below(24) {
            0..=4 => self.unary(x),
            5..=9 => self.binary(x),
            10 => self.select(x),
            11 => self.convert(x),
            12..=14 => self.reduce(x),
            15..=18 => self.view(x),
            19 => self.order(x),
            20 => self.rows(x),
            21 => {
                self.product(x);
                self.follow();
            }
            22 => {
                self.window(x);
                self.follow();
            }
            _ => self.source(),
        };
    }

    fn unary(&mut self, x: u32) {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let accepted: Vec<Unary> = Unary::ALL.into_iter().filter(|u| u.accepts(dtype)).collect();
        if let Some(&op) = accepted.get(self.choice.below(accepted.len())) {
            self.push(Op::Unary(op), op.result(dtype), &shape, &[x]);
        }
    }

    fn binary(&mut self, x: u32) {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let y = self.partner(dtype, &shape);
        let accepted: Vec<Binary> = Binary::ALL.into_iter().filter(|b| b.accepts(dtype)).collect();
        let common = [Binary::Add, Binary::Sub, Binary::Mul].map(|b| b.accepts(dtype).then_some(b));
        let op = match self.choice.of(&common) {
            Some(op) if self.choice.one_in(2) => op,
            _ => self.choice.of(&accepted),
        };
        let inputs = if self.choice.one_in(2) { [x, y] } else { [y, x] };
        self.push(Op::Binary(op), op.result(dtype), &shape, &inputs);
    }

    /// Elementwise operations on the latest node, including reshapes that do not nest.
    fn follow(&mut self) {
        for _ in 0..self.choice.below(if self.crosses { 5 } else { 4 }) {
            let latest = self.case.ir.nodes.len() as u32 - 1;
            match self.choice.below(if self.crosses { 6 } else { 3 }) {
                0 => self.unary(latest),
                1 if self.crosses => self.unary(latest),
                2 if self.crosses => {
                    let shape = self.shape_of(latest);
                    let shape = self.split_or_merge(&shape);
                    self.reshaped(latest, &shape);
                }
                _ => self.binary(latest),
            }
        }
    }

    fn select(&mut self, x: u32) {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let y = self.partner(dtype, &shape);
        let less = self.push(Op::Binary(Binary::Lt), DType::Bool, &shape, &[x, y]);
        let z = self.partner(dtype, &shape);
        self.push(Op::Where, dtype, &shape, &[less, x, z]);
    }

    fn convert(&mut self, x: u32) {
        let shape = self.shape_of(x);
        // Other operations do not take 8-bit floats.
        let mut x = x;
        if self.dtype_of(x).is_float() && self.choice.one_in(4) {
            let low = self.choice.of(&[DType::F8E4M3, DType::F8E5M2]);
            x = self.push(Op::Cast, low, &shape, &[x]);
        }
        let (dtype, to) = (self.dtype_of(x), self.dtype());
        let bits = dtype.size() == to.size() && to != DType::Bool && self.choice.one_in(3);
        self.push(if bits { Op::Bitcast } else { Op::Cast }, to, &shape, &[x]);
    }

    /// A reduction, often combined with its operand again as in softmax and norms.
    fn reduce(&mut self, x: u32) {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let combine =
            self.choice.of(&[Combine::Sum, Combine::Sum, Combine::Max, Combine::Min, Combine::Prod]);
        if !combine.binary().accepts(dtype) || shape.is_empty() {
            return;
        }
        let axes = match self.choice.below(3) {
            0 => Axes::of([shape.len() - 1]),
            1 => Axes::of(0..shape.len()),
            _ => Axes((self.choice.bits() & ((1 << shape.len()) - 1)).max(1)),
        };
        let small: Dims =
            shape.iter().enumerate().map(|(a, &d)| if axes.contains(a) { 1 } else { d }).collect();
        let sum = self.push(Op::Reduce(Reduce { combine, axes }), dtype, &small, &[x]);
        if self.choice.one_in(2) && !shape.contains(&0) {
            let back = self.expanded(sum, &shape);
            let op =
                if dtype == DType::Bool { Binary::And } else { self.choice.of(&[Binary::Sub, Binary::Mul]) };
            self.push(Op::Binary(op), dtype, &shape, &[x, back]);
        }
    }

    fn view(&mut self, x: u32) {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let rank = shape.len();
        match self.choice.below(7) {
            0 => {
                let mut order: SmallVec<[u8; 8]> = (0..rank as u8).collect();
                (1..rank).for_each(|i| order.swap(i, self.choice.below(i + 1)));
                let moved: Dims = order.iter().map(|&p| shape[usize::from(p)]).collect();
                self.push(Op::Permute(Permute(order)), dtype, &moved, &[x]);
            }
            1 => {
                let shape = self.split_or_merge(&shape);
                self.reshaped(x, &shape);
            }
            2 | 3 => {
                let (mut start, mut step, mut size) = (Dims::new(), SmallVec::new(), Dims::new());
                for &d in &shape {
                    let (s, n, t) = self.slice_of(d);
                    start.push(s);
                    size.push(n);
                    step.push(t);
                }
                self.push(Op::Slice(Slice { start, step }), dtype, &size, &[x]);
            }
            4 => {
                let padding: SmallVec<[(usize, usize); 4]> =
                    shape.iter().map(|_| (self.choice.below(3), self.choice.below(3))).collect();
                let grown: Dims = shape.iter().zip(&padding).map(|(d, (a, b))| a + d + b).collect();
                if element_count(&grown) <= GREATEST {
                    let value = Scalar::Int(1).cast(dtype);
                    self.push(Op::Pad(Pad { padding, value }), dtype, &grown, &[x]);
                }
            }
            5 => {
                let wide: Dims =
                    shape.iter().map(|&d| if d == 1 { 1 + self.choice.below(5) } else { d }).collect();
                if element_count(&wide) <= GREATEST {
                    self.push(Op::Expand, dtype, &wide, &[x]);
                }
            }
            _ if rank > 0 => {
                let axis = self.choice.below(rank);
                let y = self.partner(dtype, &shape);
                let mut joined = shape.clone();
                joined[axis] *= 2;
                if element_count(&joined) <= GREATEST {
                    self.push(Op::Cat(Cat { axis }), dtype, &joined, &[x, y]);
                }
            }
            _ => {}
        }
    }

    /// A random slice of an axis of `d` elements: start, size and step.
    fn slice_of(&mut self, d: usize) -> (usize, usize, isize) {
        if d == 0 || self.choice.one_in(8) {
            return (0, 0, 1);
        }
        let step: isize = self.choice.of(&[1, 1, 1, 2, 3, -1, -2]);
        let start = if step > 0 { self.choice.below(d.min(3)) } else { d - 1 - self.choice.below(d.min(3)) };
        let ahead = if step > 0 { d - 1 - start } else { start };
        let room = ahead / step.unsigned_abs() + 1;
        (start, room - self.choice.below(room.min(2)), step)
    }

    fn split_or_merge(&mut self, shape: &[usize]) -> Dims {
        let count = element_count(shape);
        match self.choice.below(if self.crosses { 5 } else { 3 }) {
            0 => smallvec![count],
            // [4, 6] becomes [3, 8]: no axis is a product or a factor of the others.
            1 | 2 if self.crosses && count > 1 => {
                let divisors: SmallVec<[usize; 32]> =
                    (1..=count).filter(|d| count.is_multiple_of(*d)).collect();
                let first = self.choice.of(&divisors);
                smallvec![first, count / first]
            }
            1 | 3 if count > 0 && count.is_multiple_of(2) => smallvec![count / 2, 1, 2],
            _ => {
                let mut merged: Dims = shape.into();
                merged.insert(self.choice.below(shape.len() + 1), 1);
                merged
            }
        }
    }

    fn order(&mut self, x: u32) {
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        if shape.is_empty() || element_count(&shape) == 0 {
            return;
        }
        let axis = self.choice.below(shape.len());
        match self.choice.below(4) {
            0 => {
                let combine = self.choice.of(&[Combine::Max, Combine::Min]);
                let mut small = shape.clone();
                small[axis] = 1;
                self.push(Op::ArgReduce(ArgReduce { combine, axis }), DType::I64, &small, &[x]);
            }
            1 => {
                let combine = self.choice.of(&[Combine::Sum, Combine::Max, Combine::Min, Combine::Prod]);
                if combine.binary().accepts(dtype) {
                    let reverse = self.choice.one_in(2);
                    self.push(Op::Scan(Scan { combine, axis, reverse }), dtype, &shape, &[x]);
                }
            }
            2 => {
                let descending = self.choice.one_in(2);
                // The bounds of computed floats in long rows overlap, which would leave the order undetermined.
                if shape.last().is_some_and(|&width| width <= 64) {
                    self.push(Op::ArgSort(ArgSort { descending }), DType::I64, &shape, &[x]);
                }
            }
            _ => {
                let count = 1 + self.choice.below(9);
                let sorted = random_sorted(&mut self.choice, dtype, count);
                let sorted = self.add_leaf(sorted);
                let flat = self.reshaped(x, &[element_count(&shape)]);
                let right = self.choice.one_in(2);
                let op = Op::SearchSorted(SearchSorted { right });
                self.push(op, DType::I64, &[element_count(&shape)], &[sorted, flat]);
            }
        }
    }

    /// A gather or scatter of matrix rows.
    fn rows(&mut self, x: u32) {
        let (dtype, len) = (self.dtype_of(x), self.len_of(x));
        if len == 0 {
            return;
        }
        let width = if len % 2 == 0 { 2 } else { 1 };
        let rows = len / width;
        let count = self.choice.below(7);
        let matrix = self.reshaped(x, &[rows, width]);
        let index_dtype = self.choice.of(&DType::INTEGERS);
        let index = random_index(&mut self.choice, rows, count, index_dtype);
        let index = self.add_leaf(index);
        if self.choice.one_in(2) {
            self.push(Op::Gather(Gather(IndexRange::Unknown)), dtype, &[count, width], &[matrix, index]);
            return;
        }
        let updates = self.leaf(dtype, &[count, width]);
        let combine = ScatterMode::Combine(self.choice.of(&[Combine::Sum, Combine::Max, Combine::Prod]));
        let mode = self.choice.of(&[ScatterMode::Set, combine]);
        if !matches!(mode, ScatterMode::Combine(c) if !c.binary().accepts(dtype)) {
            let op = Op::Scatter(Scatter(mode, IndexRange::Unknown));
            self.push(op, dtype, &[rows, width], &[matrix, index, updates]);
        }
    }

    /// A convolution or pooling of the operand as a single plane.
    fn window(&mut self, x: u32) {
        let (dtype, len) = (self.dtype_of(x), self.len_of(x));
        if len == 0 || len > 1500 || dtype == DType::Bool {
            return;
        }
        let channels = if len % 2 == 0 { 2 } else { 1 };
        let size = len / channels;
        let geometry = Geometry {
            kernel: smallvec![1 + self.choice.below(3)],
            stride: smallvec![1 + self.choice.below(2)],
            dilation: smallvec![1 + self.choice.below(2)],
            padding: smallvec![(self.choice.below(2), self.choice.below(2))],
            groups: 1,
        };
        let Some(out) = geometry.output_size(0, size) else { return };
        let plane = self.reshaped(x, &[1, channels, size]);
        match self.choice.below(5) {
            kind @ 0..3 => {
                let kind = [PoolKind::Max, PoolKind::Sum, PoolKind::ArgMax][kind];
                let dtype = if kind == PoolKind::ArgMax { DType::I64 } else { dtype };
                self.push(Op::Pool(Pool(kind, geometry)), dtype, &[1, channels, out], &[plane])
            }
            3 => {
                let y = self.leaf(dtype, &[1, channels, out]);
                self.push(Op::Pool(Pool(PoolKind::SumBackward, geometry)), dtype, &[1, channels, size], &[y])
            }
            _ => {
                let filter = [3, channels, geometry.kernel[0]];
                let w = self.leaf(dtype, &filter);
                let forward = Op::Conv(Conv(ConvKind::Forward, geometry.clone()));
                let y = self.push(forward, dtype, &[1, 3, out], &[plane, w]);
                let gradient = Op::Conv(Conv(ConvKind::InputGradient, geometry.clone()));
                let back = self.push(gradient, dtype, &[1, channels, size], &[y, w]);
                self.push(Op::Conv(Conv(ConvKind::FilterGradient, geometry)), dtype, &filter, &[back, y])
            }
        };
    }

    fn source(&mut self) {
        let shape = self.shape();
        if self.choice.one_in(2) {
            let state = random_array(&mut self.choice, Distribution::Special, DType::U32, &[4]);
            let state = self.add_leaf(state);
            self.push(Op::RandomBits, DType::U32, &shape, &[state]);
        } else if !shape.is_empty() {
            let dtype = self.choice.of(&DType::COMPUTED[1..]);
            let axis = self.choice.below(shape.len());
            self.push(Op::Iota(Iota { axis }), dtype, &shape, &[]);
        }
    }
}
