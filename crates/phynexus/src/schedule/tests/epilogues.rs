//! Tests of what becomes an epilogue and what must not.

use super::*;
use crate::{
    device::Storage,
    device::Support,
    op::{Pad, Permute, Reduce, Scan, Slice},
    oracle::{
        self,
        generate::{CaseLeaf, Choice, Distribution, random_array},
        reference_device,
    },
    schedule::{
        answers::Answers,
        plan::{self, Leaf, Plan},
        slots::Slots,
    },
};

impl Graph {
    pub(super) fn dot(&mut self, a: Id, b: Id) -> Id {
        let (mut shape, right) = (self.shape(a), self.shape(b));
        let last = shape.len() - 1;
        shape[last] = right[last];
        self.add(Op::Dot, &shape, &[a, b])
    }
    pub(super) fn bias(&mut self, x: Id) -> Id {
        let mut shape = self.shape(x);
        let last = shape.len() - 1;
        shape[..last].fill(1);
        let bias = self.leaf(&shape);
        self.binary(Binary::Add, x, bias)
    }
    /// Returns the library operations' epilogues, in the order of the operations.
    pub(super) fn epilogues(&mut self, outputs: &[Id], binding_limit: usize) -> Vec<Option<Fusion>> {
        self.0.outputs = outputs.to_vec();
        let layouts: Vec<Layout> =
            self.0.leaves.iter().map(|&l| Layout::contiguous(&self.0.node(l).shape)).collect();
        let takes = |node: &crate::op::ir::IrNode| node.op == Op::Dot;
        let answers = Answers::by(&self.0, |node, _| Support::usual(&node.op));
        let limits =
            group::Limits { binding_limit, epilogue: &takes, donatable: &|_| false, answers: &answers };
        let grouping = group::group(&self.0, &layouts, limits).unwrap();
        let by_id: FastMap<Id, Layout> = self.0.leaves.iter().copied().zip(layouts).collect();
        let mut found: Vec<(Id, Option<Fusion>)> = Vec::new();
        for (at, group) in grouping.groups.iter().enumerate() {
            if let Some(id) = group.library {
                let built = || build::build(&self.0, &grouping, at as u32, &by_id).unwrap().kernel;
                found.push((id, (!group.roots.is_empty()).then(built)));
            }
        }
        found.sort_by_key(|(id, _)| *id);
        found.into_iter().map(|(_, kernel)| kernel).collect()
    }
    fn formed(&mut self, outputs: &[Id]) -> Vec<bool> {
        self.epilogues(outputs, 64).iter().map(Option::is_some).collect()
    }
}

#[test]
fn bias_and_activation_are_an_epilogue_that_stores_nothing_else() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[32, 48]), g.leaf(&[48, 64]));
    let product = g.dot(x, w);
    let biased = g.bias(product);
    let y = g.unary(Unary::Tanh, biased);
    let [Some(kernel)] = &g.epilogues(&[y], 64)[..] else { panic!("no epilogue") };
    assert_eq!((kernel.rows.as_slice(), kernel.columns.len()), (&[32, 64][..], 0));
    assert_eq!((loads(kernel), kernel.stores.len()), (2, 1));
    assert!(!kernel.parameters[0].written);
}

#[test]
fn a_result_with_other_readers_is_stored_by_the_epilogue_too() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[32, 48]), g.leaf(&[48, 64]));
    let product = g.dot(x, w);
    let y = g.bias(product);
    let v = g.leaf(&[64, 16]);
    let other = g.dot(product, v);
    let kernels = g.epilogues(&[y, other], 64);
    assert_eq!(kernels[0].as_ref().map(|k| k.stores.len()), Some(2));
    assert!(kernels[1].is_none());
}

#[test]
fn a_path_through_another_step_forbids_an_epilogue() {
    // The sum waits for the second product, which waits for the first. Only the second can store it.
    let mut g = Graph::default();
    let (x, w, v) = (g.leaf(&[32, 32]), g.leaf(&[32, 32]), g.leaf(&[32, 32]));
    let first = g.dot(x, w);
    let second = g.dot(first, v);
    let sum = g.binary(Binary::Add, first, second);
    let kernels = g.epilogues(&[sum], 64);
    assert!(kernels[0].is_none() && kernels[1].as_ref().is_some_and(|k| loads(k) == 2));
    // The path leads through a scan, which takes no epilogue, and through a kernel with other ranges.
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[32, 32]), g.leaf(&[32, 32]));
    let product = g.dot(x, w);
    let scan =
        g.add(Op::Scan(Scan { combine: Combine::Sum, axis: 0, reverse: false }), &[32, 32], &[product]);
    let sum = g.binary(Binary::Add, product, scan);
    assert_eq!(g.formed(&[sum]), [false, false]);
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[32, 32]), g.leaf(&[32, 32]));
    let product = g.dot(x, w);
    let total =
        g.add(Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes::of([0, 1]) }), &[1, 1], &[product]);
    let sum = g.binary(Binary::Add, product, total);
    assert_eq!(g.formed(&[sum]), [false]);
}

#[test]
fn of_two_products_in_a_sum_the_last_takes_it() {
    let mut g = Graph::default();
    let (x, w, v) = (g.leaf(&[32, 32]), g.leaf(&[32, 32]), g.leaf(&[32, 32]));
    let (first, second) = (g.dot(x, w), g.dot(x, v));
    let sum = g.binary(Binary::Add, second, first);
    assert_eq!(g.formed(&[sum]), [false, true]);
}

#[test]
fn reshapes_and_permutations_are_followed() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[48, 16]), g.leaf(&[16, 64]));
    let product = g.dot(x, w);
    let split = g.add(Op::Reshape, &[6, 8, 64], &[product]);
    let y = g.bias(split);
    let turned = g.add(Op::Permute(Permute([1u8, 0, 2].as_slice().into())), &[8, 6, 64], &[y]);
    let y = g.add(Op::Contiguous, &[8, 6, 64], &[turned]);
    let [Some(kernel)] = &g.epilogues(&[y], 64)[..] else { panic!("no epilogue") };
    assert_eq!(kernel.rows.as_slice(), [48, 64]);
    // Row r of the product is row (r % 8) * 6 + r / 8 of the result.
    for (row, column) in [(0, 0), (1, 5), (8, 63), (47, 1)] {
        let expected = ((row % 8) * 6 + row / 8) * 64 + column;
        assert_eq!(kernel.stores[0].index.evaluate(&[row, column]), expected as i64);
    }
}

#[test]
fn results_read_elsewhere_than_at_the_own_element_have_no_epilogue() {
    let product = |g: &mut Graph| {
        let (x, w) = (g.leaf(&[32, 16]), g.leaf(&[16, 32]));
        g.dot(x, w)
    };
    let mut g = Graph::default();
    let p = product(&mut g);
    let turned = g.add(Op::Permute(Permute([1u8, 0].as_slice().into())), &[32, 32], &[p]);
    let both = g.binary(Binary::Add, p, turned);
    assert_eq!(g.formed(&[both]), [false], "read at two places");
    let mut g = Graph::default();
    let p = product(&mut g);
    let slice = Op::Slice(Slice { start: [0, 16].as_slice().into(), step: [1, 1].as_slice().into() });
    let half = g.add(slice, &[32, 16], &[p]);
    let y = g.unary(Unary::Exp, half);
    assert_eq!(g.formed(&[y]), [false], "a part");
    let mut g = Graph::default();
    let p = product(&mut g);
    let row = g.add(Op::Reshape, &[1, 32, 32], &[p]);
    let wide = g.add(Op::Expand, &[4, 32, 32], &[row]);
    let x = g.leaf(&[4, 32, 32]);
    let y = g.binary(Binary::Mul, x, wide);
    assert_eq!(g.formed(&[y]), [false], "repeated");
    let mut g = Graph::default();
    let p = product(&mut g);
    let pad = Op::Pad(Pad { padding: [(1, 0), (0, 0)].as_slice().into(), value: Scalar::Float(0.0) });
    let padded = g.add(pad, &[33, 32], &[p]);
    let y = g.unary(Unary::Exp, padded);
    assert_eq!(g.formed(&[y]), [false], "padded");
}

#[test]
fn bindings_and_results_are_limited() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[32, 16]), g.leaf(&[16, 32]));
    let mut y = g.dot(x, w);
    for _ in 0..4 {
        let residual = g.leaf(&[32, 32]);
        y = g.binary(Binary::Add, y, residual);
    }
    assert!(g.epilogues(&[y], 8)[0].is_some());
    assert!(g.epilogues(&[y], 7)[0].is_none());
}

#[test]
fn an_epilogue_stores_what_a_norm_reads() {
    let mut g = Graph::default();
    let (x, y, w) = (g.leaf(&[64, 32]), g.leaf(&[64, 16]), g.leaf(&[16, 32]));
    let product = g.dot(y, w);
    let sum = g.binary(Binary::Add, x, product);
    let (normal, _) = g.softmax(sum, 1);
    let [Some(kernel)] = &g.epilogues(&[sum, normal], 64)[..] else { panic!("no epilogue") };
    assert_eq!(kernel.stores.len(), 1);
    // A norm that is the only reader computes it.
    assert_eq!(g.formed(&[normal]), [false]);
}

/// Plans a graph whose leaves are all donatable.
pub(super) fn planned(g: &mut Graph, outputs: &[Id]) -> Plan {
    g.0.outputs = outputs.to_vec();
    let leaf = |&id: &Id| Leaf { layout: Layout::contiguous(&g.0.node(id).shape), donatable: true };
    let leaves: Vec<Leaf> = g.0.leaves.iter().map(leaf).collect();
    plan::plan(g.0.clone(), &leaves, Slots::default(), reference_device()).unwrap()
}

pub(super) fn donors(plan: &Plan) -> Vec<Option<usize>> {
    plan.owned.iter().map(|o| o.donor).collect()
}

#[test]
fn updates_stay_kernels_of_their_own_and_are_stored_in_place() {
    let update = |g: &mut Graph| {
        let (x, dy, p) = (g.leaf(&[16, 16]), g.leaf(&[16, 16]), g.leaf(&[16, 16]));
        let gradient = g.dot(x, dy);
        g.binary(Binary::Sub, p, gradient)
    };
    let mut g = Graph::default();
    let p = update(&mut g);
    let plan = planned(&mut g, &[p]);
    assert_eq!((plan.steps.len(), donors(&plan)), (2, vec![Some(2)]));
    // A result that another step reads becomes an epilogue and overwrites nothing.
    let mut g = Graph::default();
    let p = update(&mut g);
    let w = g.leaf(&[16, 8]);
    let y = g.dot(p, w);
    let plan = planned(&mut g, &[p, y]);
    assert_eq!((plan.steps.len(), donors(&plan)), (2, vec![None, None]));
    // Leaves that are held elsewhere are not overwritten.
    let mut g = Graph::default();
    let p = update(&mut g);
    assert_eq!(g.formed(&[p]), [true]);
}

/// Plans the graph with donatable leaves, checks the donors, and compares the results with the oracle's.
fn check_donations(mut g: Graph, outputs: &[Id], expected_donors: &[Option<usize>]) {
    let plan = planned(&mut g, outputs);
    assert_eq!(donors(&plan), expected_donors);
    let mut choice = Choice::new(5);
    let shape = |id: &Id| g.shape(*id);
    let values: Vec<_> = (g.0.leaves.iter().map(shape))
        .map(|shape| random_array(&mut choice, Distribution::Tame, DType::F32, &shape))
        .collect();
    let leaves: Vec<Storage> = (values.iter())
        .map(|v| CaseLeaf::contiguous(v.clone()).upload(reference_device()).unwrap().storage().unwrap())
        .collect();
    // A second handle to each leaf, as the plan's caller would have.
    let held = leaves.clone();
    let results = plan.run(&leaves.iter().collect::<Vec<_>>(), &|_| true, &Default::default()).unwrap();
    let expected = oracle::evaluate(&g.0, &values).unwrap();
    for ((expected, actual), donor) in expected.iter().zip(results).zip(expected_donors) {
        assert!(donor.is_none_or(|donor| actual.buffer.is_same(&held[donor].buffer)));
        let tensor = crate::Tensor::from_storage(reference_device(), DType::F32, actual);
        let compared = oracle::compare(expected, &tensor.to_bytes().unwrap(), DType::F32);
        assert!(compared.passed(), "{compared}");
    }
}

#[test]
fn plans_with_donations_compute_what_the_graph_means() {
    let mut g = Graph::default();
    let (x, w, r) = (g.leaf(&[5, 7]), g.leaf(&[7, 6]), g.leaf(&[5, 6]));
    let product = g.dot(x, w);
    let y = g.binary(Binary::Add, product, r);
    check_donations(g, &[y, product], &[Some(2), None]);
}

#[test]
fn a_sum_is_stored_over_what_only_its_rows_read() {
    // A bias minus the sum of its gradients.
    let mut g = Graph::default();
    let (dy, bias) = (g.leaf(&[5, 7]), g.leaf(&[1, 7]));
    let sum = g.reduce(Combine::Sum, dy, 0);
    let updated = g.binary(Binary::Sub, bias, sum);
    check_donations(g, &[updated], &[Some(1)]);
    // Here the columns read the bias, too.
    let mut g = Graph::default();
    let (dy, bias) = (g.leaf(&[5, 7]), g.leaf(&[1, 7]));
    let scaled = g.binary(Binary::Mul, dy, bias);
    let sum = g.reduce(Combine::Sum, scaled, 0);
    let updated = g.binary(Binary::Sub, bias, sum);
    check_donations(g, &[updated], &[None]);
}
