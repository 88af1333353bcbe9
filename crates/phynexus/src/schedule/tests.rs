//! Tests of what becomes one kernel.

mod channels_last;
mod epilogues;
mod memory;

use super::{build, group};
use crate::{
    DType, Scalar,
    device::Support,
    hash::FastMap,
    kernel::fused::Fusion,
    op::{
        Axes, Binary, Combine, Constant, Op, Permute, Reduce, Unary,
        ir::{Id, Ir},
    },
    schedule::answers::Answers,
    shape::{Dims, Layout},
};

/// A handwritten graph.
#[derive(Default)]
struct Graph(Ir);

impl Graph {
    fn add(&mut self, op: Op, shape: &[usize], inputs: &[Id]) -> Id {
        self.0.push(op, DType::F32, Dims::from(shape), inputs.iter().copied())
    }
    fn leaf(&mut self, shape: &[usize]) -> Id {
        self.add(Op::Buffer, shape, &[])
    }
    fn shape(&self, id: Id) -> Dims {
        self.0.node(id).shape.clone()
    }
    fn unary(&mut self, op: Unary, a: Id) -> Id {
        let shape = self.shape(a);
        self.add(Op::Unary(op), &shape, &[a])
    }
    /// Adds a binary operation. The right operand is broadcast to the left one's shape.
    fn binary(&mut self, op: Binary, a: Id, b: Id) -> Id {
        let shape = self.shape(a);
        let b = if self.shape(b) == shape { b } else { self.add(Op::Expand, &shape, &[b]) };
        self.add(Op::Binary(op), &shape, &[a, b])
    }
    fn reduce(&mut self, combine: Combine, a: Id, axis: usize) -> Id {
        let mut shape = self.shape(a);
        shape[axis] = 1;
        self.add(Op::Reduce(Reduce { combine, axes: Axes::of([axis]) }), &shape, &[a])
    }
    fn constant(&mut self, value: f64, shape: &[usize]) -> Id {
        self.add(Op::Constant(Constant(Scalar::Float(value))), shape, &[])
    }
    fn softmax(&mut self, x: Id, axis: usize) -> (Id, Id) {
        let max = self.reduce(Combine::Max, x, axis);
        let shifted = self.binary(Binary::Sub, x, max);
        let e = self.unary(Unary::Exp, shifted);
        let sum = self.reduce(Combine::Sum, e, axis);
        (self.binary(Binary::Div, e, sum), sum)
    }
    /// Returns the fused kernels for these outputs, without library operations.
    fn kernels(self, outputs: &[Id]) -> Vec<Fusion> {
        self.kernels_without(None, outputs)
    }
    /// The same, on a device that lacks the function `missing`.
    fn kernels_without(mut self, missing: Option<Unary>, outputs: &[Id]) -> Vec<Fusion> {
        self.0.outputs = outputs.to_vec();
        let layouts: Vec<Layout> =
            self.0.leaves.iter().map(|&l| Layout::contiguous(&self.0.node(l).shape)).collect();
        let answers = Answers::by(&self.0, |node, _| match missing {
            Some(missing) if node.op == Op::Unary(missing) => Support::Unsupported("missing".to_owned()),
            _ => Support::usual(&node.op),
        });
        let limits = group::Limits {
            binding_limit: 64,
            epilogue: &|_| false,
            donatable: &|_| false,
            answers: &answers,
        };
        let grouping = group::group(&self.0, &layouts, limits).unwrap();
        let by_id: FastMap<Id, Layout> = self.0.leaves.iter().copied().zip(layouts).collect();
        (0..grouping.groups.len())
            .filter(|&g| grouping.groups[g].library.is_none())
            .map(|g| build::build(&self.0, &grouping, g as u32, &by_id).unwrap().kernel)
            .collect()
    }
}

fn loads(kernel: &Fusion) -> usize {
    kernel.parameters.iter().filter(|p| !p.written).count()
}

#[test]
fn softmax_is_one_kernel_that_loads_once() {
    for axis in [0, 1] {
        let mut g = Graph::default();
        let x = g.leaf(&[32, 1000]);
        let (y, _) = g.softmax(x, axis);
        let kernels = g.kernels(&[y]);
        assert_eq!(kernels.len(), 1, "{kernels:?}");
        assert_eq!(
            (kernels[0].rows.to_vec(), kernels[0].columns.to_vec()),
            match axis {
                0 => (vec![1000], vec![32]),
                _ => (vec![32], vec![1000]),
            }
        );
        assert_eq!((loads(&kernels[0]), kernels[0].stores.len()), (1, 1));
    }
}

#[test]
fn a_function_that_the_device_lacks_is_a_kernel_by_itself() {
    let mut g = Graph::default();
    let x = g.leaf(&[32, 1000]);
    let (y, _) = g.softmax(x, 1);
    let kernels = g.kernels_without(Some(Unary::Exp), &[y]);
    // Maxima and differences, exponentials, sums and quotients.
    assert_eq!(kernels.len(), 3, "{kernels:?}");
    let alone = kernels.iter().filter(|k| k.columns.is_empty()).collect::<Vec<_>>();
    assert_eq!(alone.len(), 1, "{kernels:?}");
    assert_eq!((loads(alone[0]), alone[0].stores.len()), (1, 1));
}

#[test]
fn layer_norm_with_weights_is_one_kernel() {
    let mut g = Graph::default();
    let (x, gamma, beta) = (g.leaf(&[64, 256]), g.leaf(&[1, 256]), g.leaf(&[1, 256]));
    let scale = g.constant(1.0 / 256.0, &[64, 1]);
    let sum = g.reduce(Combine::Sum, x, 1);
    let mean = g.binary(Binary::Mul, sum, scale);
    let centered = g.binary(Binary::Sub, x, mean);
    let square = g.binary(Binary::Mul, centered, centered);
    let sum = g.reduce(Combine::Sum, square, 1);
    let variance = g.binary(Binary::Mul, sum, scale);
    let rstd = g.unary(Unary::Rsqrt, variance);
    let normal = g.binary(Binary::Mul, centered, rstd);
    let scaled = g.binary(Binary::Mul, normal, gamma);
    let y = g.binary(Binary::Add, scaled, beta);
    let kernels = g.kernels(&[y, mean, rstd]);
    assert_eq!(kernels.len(), 1);
    assert_eq!((loads(&kernels[0]), kernels[0].stores.len()), (3, 3));
}

#[test]
fn the_sum_of_a_softmax_stays_with_it_for_other_readers() {
    // Cross-entropy: the gradient's kernel also stores the row sums that the mean loss needs.
    let mut g = Graph::default();
    let x = g.leaf(&[128, 10]);
    let (probabilities, sum) = g.softmax(x, 1);
    let log = g.unary(Unary::Log, sum);
    let loss = g.reduce(Combine::Sum, log, 0);
    let kernels = g.kernels(&[probabilities, loss]);
    assert_eq!(kernels.len(), 2);
    let rows = kernels.iter().find(|k| k.columns.as_slice() == [10]).unwrap();
    assert_eq!(rows.stores.len(), 2);
}

#[test]
fn reductions_of_what_both_read_are_one_kernel() {
    // Cross-entropy: the sum of exponentials and the target's value, which the mean over rows reads.
    let mut g = Graph::default();
    let (x, hit) = (g.leaf(&[128, 10]), g.leaf(&[128, 10]));
    let max = g.reduce(Combine::Max, x, 1);
    let shifted = g.binary(Binary::Sub, x, max);
    let e = g.unary(Unary::Exp, shifted);
    let sum = g.reduce(Combine::Sum, e, 1);
    let log = g.unary(Unary::Log, sum);
    let masked = g.binary(Binary::Mul, shifted, hit);
    let picked = g.reduce(Combine::Sum, masked, 1);
    let losses = g.binary(Binary::Sub, log, picked);
    let loss = g.reduce(Combine::Sum, losses, 0);
    let kernels = g.kernels(&[loss]);
    assert_eq!(kernels.len(), 2, "{kernels:?}");
    let rows = kernels.iter().find(|k| k.columns.as_slice() == [10]).unwrap();
    assert_eq!((loads(rows), rows.stores.len()), (2, 2));
}

#[test]
fn a_softmax_keeps_its_rows_from_reductions_along_others() {
    let mut g = Graph::default();
    let x = g.leaf(&[128, 10]);
    let max = g.reduce(Combine::Max, x, 1);
    let shifted = g.binary(Binary::Sub, x, max);
    let e = g.unary(Unary::Exp, shifted);
    let sum = g.reduce(Combine::Sum, e, 1);
    let by_class = g.reduce(Combine::Sum, e, 0);
    let y = g.binary(Binary::Div, e, sum);
    let kernels = g.kernels(&[y, by_class]);
    let rows = kernels.iter().find(|k| k.columns.as_slice() == [10]).unwrap();
    assert!(rows.stores.iter().any(|s| rows.instructions[s.value as usize].per_column), "{kernels:?}");
}

#[test]
fn a_reduction_does_not_join_a_kernel_that_waits_for_it() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[128, 10]), g.leaf(&[1, 1]));
    let first = g.reduce(Combine::Sum, x, 1);
    let product = g.add(Op::Dot, &[128, 1], &[first, w]);
    let shifted = g.binary(Binary::Sub, x, product);
    let second = g.reduce(Combine::Max, shifted, 1);
    assert_eq!(g.kernels(&[second]).len(), 2);
}

#[test]
fn an_optimiser_update_is_one_kernel_with_three_results() {
    let mut g = Graph::default();
    let (p, grad, m) = (g.leaf(&[512, 784]), g.leaf(&[512, 784]), g.leaf(&[512, 784]));
    let m2 = g.binary(Binary::Add, m, grad);
    let square = g.binary(Binary::Mul, grad, grad);
    let root = g.unary(Unary::Sqrt, square);
    let step = g.binary(Binary::Div, m2, root);
    let p2 = g.binary(Binary::Sub, p, step);
    let kernels = g.kernels(&[p2, m2, root]);
    assert_eq!(kernels.len(), 1);
    assert_eq!(kernels[0].stores.len(), 3);
}

#[test]
fn results_that_depend_on_each_other_through_a_library_operation_are_apart() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[64, 64]), g.leaf(&[64, 64]));
    let a = g.unary(Unary::Exp, x);
    let product = g.add(Op::Dot, &[64, 64], &[a, w]);
    let b = g.binary(Binary::Add, product, a);
    // `a` cannot be a second result of the kernel that makes `b`, because `b` waits for the product of `a`.
    assert_eq!(g.kernels(&[a, b]).len(), 2);
}

#[test]
fn expensive_work_behind_a_broadcast_is_done_once() {
    let mut g = Graph::default();
    let (x, v) = (g.leaf(&[1000, 64]), g.leaf(&[1, 64]));
    let e = g.unary(Unary::Exp, v);
    let y = g.binary(Binary::Mul, x, e);
    assert_eq!(g.kernels(&[y]).len(), 2);
}

#[test]
fn transposed_uses_are_recomputed_when_cheap_and_stored_when_not() {
    let build = |expensive: bool| {
        let mut g = Graph::default();
        let x = g.leaf(&[64, 64]);
        let mut a = g.unary(Unary::Neg, x);
        for _ in 0..if expensive { 4 } else { 0 } {
            a = g.unary(Unary::Sin, a);
        }
        let transposed = g.add(Op::Permute(Permute([1u8, 0].as_slice().into())), &[64, 64], &[a]);
        let y = g.binary(Binary::Add, a, transposed);
        g.kernels(&[y]).len()
    };
    assert_eq!((build(false), build(true)), (1, 2));
}

#[test]
fn a_constant_counts_once_for_each_column_when_summed() {
    let mut g = Graph::default();
    let x = g.leaf(&[8, 1]);
    let wide = g.add(Op::Expand, &[8, 5], &[x]);
    let y = g.reduce(Combine::Sum, wide, 1);
    let kernels = g.kernels(&[y]);
    let reduced = kernels[0].instructions.iter().find_map(|i| match i.operation {
        crate::kernel::fused::FusedOp::Reduce(_, v) => Some(v),
        _ => None,
    });
    assert!(kernels[0].instructions[reduced.unwrap() as usize].per_column);
}

#[test]
fn long_chains_are_cut_into_kernels_of_bounded_size() {
    let mut g = Graph::default();
    let mut x = g.leaf(&[16]);
    for _ in 0..1000 {
        x = g.unary(Unary::Sin, x);
    }
    let kernels = g.kernels(&[x]);
    assert!(kernels.len() >= 1000 / 161 && kernels.iter().all(|k| k.instructions.len() <= 170));
}

#[test]
fn the_sum_of_a_softmax_gradient_does_not_tear_the_softmax_apart() {
    // A bias gradient sums over the batch what the softmax kernel makes along the classes.
    let mut g = Graph::default();
    let x = g.leaf(&[128, 10]);
    let w = g.leaf(&[10, 4]);
    let (y, _) = g.softmax(x, 1);
    let product = g.add(Op::Dot, &[128, 4], &[y, w]);
    let bias = g.reduce(Combine::Sum, y, 0);
    let kernels = g.kernels(&[product, bias]);
    assert_eq!(kernels.len(), 2);
    assert!(kernels.iter().any(|k| k.columns.as_slice() == [10]));
}
