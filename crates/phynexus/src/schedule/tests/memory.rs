//! Tests of what is stored between kernels, and where.

use super::{
    epilogues::{donors, planned},
    *,
};
use crate::{
    op::{Permute, Scatter, Slice},
    oracle::{
        self,
        generate::{CaseLeaf, Choice, Distribution, random_array},
        reference_device,
    },
    schedule::{
        plan::{self, Allocation, Leaf, Plan},
        slots::Slots,
    },
    shape::Layout,
};

fn swapped(g: &mut Graph, x: Id) -> Id {
    let mut shape = g.shape(x);
    shape.swap(0, 1);
    g.add(Op::Permute(Permute([1u8, 0].as_slice().into())), &shape, &[x])
}

fn names(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| step.step.name()).collect()
}

/// Runs the plan on data and compares its results with the reference.
fn check(g: &Graph, plan: &Plan) {
    let mut choice = Choice::new(11);
    let values: Vec<_> = (g.0.leaves.iter())
        .map(|&leaf| random_array(&mut choice, Distribution::Tame, DType::F32, &g.0.node(leaf).shape))
        .collect();
    let leaves: Vec<_> = (values.iter())
        .map(|v| CaseLeaf::contiguous(v.clone()).upload(reference_device()).unwrap().storage().unwrap())
        .collect();
    let results = plan.run(&leaves.iter().collect::<Vec<_>>(), &|_| true, &Default::default()).unwrap();
    for (expected, actual) in oracle::evaluate(&g.0, &values).unwrap().iter().zip(results) {
        let tensor = crate::Tensor::from_storage(reference_device(), DType::F32, actual);
        let compared = oracle::compare(expected, &tensor.to_bytes().unwrap(), DType::F32);
        assert!(compared.passed(), "{compared}");
    }
}

#[test]
fn of_an_activation_only_what_the_rest_follows_from_is_stored() {
    // A smooth activation after a product and a bias, and a gradient that needs its parts again.
    let mut g = Graph::default();
    let (x, w, v) = (g.leaf(&[32, 48]), g.leaf(&[48, 64]), g.leaf(&[64, 48]));
    let product = g.dot(x, w);
    let bias = g.leaf(&[64]);
    let bias = g.add(Op::Reshape, &[1, 64], &[bias]);
    let h = g.binary(Binary::Add, product, bias);
    let half = g.constant(0.5, &[32, 64]);
    let scaled = g.binary(Binary::Mul, h, half);
    let cube = g.binary(Binary::Mul, scaled, h);
    let tanh = g.unary(Unary::Tanh, cube);
    let shifted = g.binary(Binary::Add, tanh, half);
    let y = g.binary(Binary::Mul, scaled, shifted);
    let next = g.dot(y, v);
    let transposed = swapped(&mut g, v);
    let dy = g.dot(next, transposed);
    let derivative = g.binary(Binary::Mul, scaled, tanh);
    let derivative = g.binary(Binary::Add, derivative, shifted);
    let dh = g.binary(Binary::Mul, dy, derivative);
    let turned = swapped(&mut g, x);
    let dw = g.dot(turned, dh);
    let kernels = g.epilogues(&[dw, next], 64);
    let forward = kernels[0].as_ref().unwrap();
    assert_eq!(forward.stores.len(), 2, "the biased product and the activation: {forward}");
}

/// The same where products are rounded to 16 bits, and the parameters with them.
#[test]
fn of_a_rounded_activation_only_what_the_rest_follows_from_is_stored() {
    let mut g = Graph::default();
    let (x, w, v) = (g.leaf(&[32, 48]), g.leaf(&[48, 64]), g.leaf(&[64, 48]));
    let cast = |g: &mut Graph, input: Id, dtype: DType| {
        let shape = g.0.node(input).shape.clone();
        g.0.push(Op::Cast, dtype, shape, [input])
    };
    let rounded = |g: &mut Graph, input: Id| {
        let narrow = cast(g, input, DType::BF16);
        cast(g, narrow, DType::F32)
    };
    let [x, w, v] = [x, w, v].map(|input| rounded(&mut g, input));
    let product = g.dot(x, w);
    let product = rounded(&mut g, product);
    let bias = g.leaf(&[64]);
    let bias = rounded(&mut g, bias);
    let bias = g.add(Op::Reshape, &[1, 64], &[bias]);
    let h = g.binary(Binary::Add, product, bias);
    let h = rounded(&mut g, h);
    let half = g.constant(0.5, &[32, 64]);
    let scaled = g.binary(Binary::Mul, h, half);
    let cube = g.binary(Binary::Mul, scaled, h);
    let cube = g.binary(Binary::Mul, cube, h);
    let inner = g.binary(Binary::Add, cube, h);
    let inner = g.binary(Binary::Mul, inner, half);
    let tanh = g.unary(Unary::Tanh, inner);
    let shifted = g.binary(Binary::Add, tanh, half);
    let y = g.binary(Binary::Mul, scaled, shifted);
    let y = rounded(&mut g, y);
    let next = g.dot(y, v);
    let transposed = swapped(&mut g, v);
    let dy = g.dot(next, transposed);
    let slope = g.binary(Binary::Mul, tanh, tanh);
    let slope = g.binary(Binary::Sub, half, slope);
    let square = g.binary(Binary::Mul, h, h);
    let slope = g.binary(Binary::Mul, slope, square);
    let derivative = g.binary(Binary::Mul, scaled, slope);
    let derivative = g.binary(Binary::Add, derivative, shifted);
    let dh = g.binary(Binary::Mul, dy, derivative);
    let dh = rounded(&mut g, dh);
    let turned = swapped(&mut g, x);
    let dw = g.dot(turned, dh);
    let kernels = g.epilogues(&[dw, next], 64);
    let forward = kernels.iter().flatten().next().unwrap();
    assert_eq!(forward.stores.len(), 2, "the biased product and the activation: {forward}");
}

#[test]
fn a_view_that_strides_cannot_say_is_stored_once_for_its_transpose_too() {
    let mut g = Graph::default();
    let (x, a, b) = (g.leaf(&[4, 6, 8]), g.leaf(&[32, 5]), g.leaf(&[6, 5]));
    let sines = g.unary(Unary::Sin, x);
    let heads = g.add(Op::Permute(Permute([1u8, 0, 2].as_slice().into())), &[6, 4, 8], &[sines]);
    let rows = g.add(Op::Reshape, &[6, 32], &[heads]);
    let product = g.dot(rows, a);
    let columns = swapped(&mut g, rows);
    let other = g.dot(columns, b);
    let plan = planned(&mut g, &[product, other]);
    assert_eq!(names(&plan), ["elementwise", "dot", "dot"]);
    assert_eq!(plan.steps[0].parameters.iter().filter(|p| p.written).count(), 1);
    check(&g, &plan);
}

#[test]
fn intermediate_results_take_the_place_of_what_is_read_for_the_last_time() {
    let mut g = Graph::default();
    let (x, w, v) = (g.leaf(&[16, 8]), g.leaf(&[8, 32]), g.leaf(&[32, 4]));
    let scores = g.dot(x, w);
    let (weights, _) = g.softmax(scores, 1);
    let y = g.dot(weights, v);
    let plan = planned(&mut g, &[y]);
    assert_eq!(
        (names(&plan), plan.arena_bytes),
        (vec!["dot".into(), "rows".into(), "dot".into()], 16 * 32 * 4)
    );
    check(&g, &plan);
    // Not if it is read again later, nor if it is read at another position.
    let both = g.dot(scores, v);
    let plan = planned(&mut g, &[y, both]);
    assert_eq!(plan.arena_bytes, 2 * 16 * 32 * 4);
    check(&g, &plan);
    let mut g = Graph::default();
    let (x, w, v) = (g.leaf(&[16, 8]), g.leaf(&[8, 32]), g.leaf(&[32, 4]));
    let scores = g.dot(x, w);
    let backwards = Op::Slice(Slice { start: [15, 0].as_slice().into(), step: [-1, 1].as_slice().into() });
    let turned = g.add(backwards, &[16, 32], &[scores]);
    let (weights, _) = g.softmax(turned, 1);
    let y = g.dot(weights, v);
    let plan = planned(&mut g, &[y]);
    assert_eq!(plan.arena_bytes, 2 * 16 * 32 * 4);
    check(&g, &plan);
}

#[test]
fn what_is_made_of_leaves_alone_is_made_when_it_is_needed() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[4, 64]), g.leaf(&[64, 8]));
    let index = g.0.push(Op::Buffer, DType::I64, Dims::from_slice(&[4]), []);
    let table = g.constant(0.0, &[16, 8]);
    let updates = g.dot(x, w);
    let y = g.add(
        Op::Scatter(Scatter(crate::op::ScatterMode::Set, crate::op::IndexRange::Unknown)),
        &[16, 8],
        &[table, index, updates],
    );
    let plan = planned(&mut g, &[y]);
    assert_eq!(names(&plan), ["dot", "elementwise", "scatter"]);
    assert_eq!(donors(&plan), [None]);
    assert!(
        plan.steps[2].parameters.iter().all(|p| !matches!(p.allocation, Allocation::Arena(_)) || !p.written)
    );
}

/// A copy of what is row-major in memory already is left out before a routine, but not if somebody wants it.
#[test]
fn row_major_leaves_are_not_copied() {
    let mut g = Graph::default();
    let (x, w) = (g.leaf(&[16, 8]), g.leaf(&[16, 8]));
    let turned = swapped(&mut g, x);
    let stored = g.add(Op::Contiguous, &[8, 16], &[turned]);
    let product = g.dot(stored, w);
    let plan_of = |mut g: Graph, outputs: &[Id], strides: [isize; 2]| {
        g.0.outputs.extend(outputs);
        let layout = |leaf: Id| {
            let mut layout = Layout::contiguous(&g.0.node(leaf).shape);
            if leaf == x {
                layout.strides = strides.into_iter().collect();
            }
            layout
        };
        let leaves: Vec<Leaf> =
            g.0.leaves.iter().map(|&leaf| Leaf { layout: layout(leaf), donatable: false }).collect();
        names(&plan::plan(g.0.clone(), &leaves, Slots::default(), reference_device()).unwrap())
    };
    let graph = || Graph(g.0.clone());
    assert_eq!(plan_of(graph(), &[product], [1, 16]).len(), 1);
    assert_eq!(plan_of(graph(), &[product], [8, 1]).len(), 2);
    assert_eq!(plan_of(graph(), &[product, stored], [1, 16]).len(), 2);
}
