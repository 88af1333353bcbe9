//! Tests of what the sweep visits, releases and refuses.

use super::harness::{Program, placeholder, variable};
use crate::{
    DType, Error, Tensor, no_grad,
    op::{Axes, Op, formula::Formula},
    oracle::{OracleArray, reference_device},
};

fn scalar(value: f64) -> OracleArray {
    OracleArray::from_bytes(&value.to_le_bytes(), DType::F64, &[]).unwrap()
}

fn value(leaf: &Tensor, at: f64, of: &Tensor) -> f64 {
    Program::new(std::slice::from_ref(leaf), of).run(&[scalar(at)])[0]
}

#[test]
fn gradients_add_up_in_leaves() {
    let x = Tensor::scalar(3.0, reference_device()).unwrap().with_grad().unwrap();
    let loss = (Formula::of(&x) * Formula::of(&x)).tensor().unwrap();
    loss.backward_retain().unwrap();
    let first = x.grad().unwrap();
    assert!(!first.is_evaluated());
    loss.backward().unwrap();
    assert!(
        first.is_evaluated() && loss.is_evaluated(),
        "what was collected is computed, and the loss beside it"
    );
    assert_eq!(x.grad().unwrap().item::<f64>().unwrap(), 12.0);
    assert!(!x.grad().unwrap().requires_grad());
}

#[test]
fn a_released_graph_is_refused() {
    let x = variable(&[]);
    let loss = Formula::of(&x).exp().tensor().unwrap();
    loss.backward().unwrap();
    let error = loss.backward().unwrap_err();
    assert!(matches!(error, Error::NoGradient { op: "a graph that was released", .. }), "{error}");
    assert!(error.to_string().contains("backward_retain"), "{error}");
}

#[test]
fn gradients_leave_the_graph_and_the_leaves_alone() {
    let x = variable(&[]);
    let y = Formula::of(&x).exp().tensor().unwrap();
    let unrelated = variable(&[2]);
    let found = y.gradients(&[&x, &unrelated]).unwrap();
    assert_eq!(value(&x, 0.0, &found[0]), 1.0);
    assert_eq!(found[1].shape(), [2]);
    assert!(matches!(found[1].node().op(), Op::Constant(_)));
    assert!(x.grad().is_none());
    y.gradients(&[&x]).unwrap();
}

#[test]
fn intermediate_results_have_gradients() {
    let x = variable(&[]);
    let y = Formula::of(&x).exp().tensor().unwrap();
    let z = (Formula::of(&y) * Formula::of(&y)).tensor().unwrap();
    let found = z.gradients(&[&y, &x]).unwrap();
    assert_eq!(value(&x, 0.0, &found[0]), 2.0);
    assert_eq!(value(&x, 0.0, &found[1]), 2.0);
}

#[test]
fn third_order() {
    let x = variable(&[]);
    let mut y = (Formula::of(&x) * Formula::of(&x) * Formula::of(&x) * Formula::of(&x)).tensor().unwrap();
    for _ in 0..3 {
        y = y.gradients_create_graph(&[&x]).unwrap().remove(0);
    }
    assert_eq!(value(&x, 2.0, &y), 48.0);
}

#[test]
fn paths_without_gradients() {
    let x = variable(&[]);
    let outside = {
        let _guard = no_grad();
        Formula::of(&x).exp().tensor().unwrap()
    };
    assert!(matches!(outside.backward(), Err(Error::NoGradient { op: "this tensor", .. })));
    let detached = Formula::of(&x).tensor().unwrap().detach().unwrap();
    assert!(!detached.requires_grad());
    // A product with a constant. No gradient is computed for the constant.
    let y = (Formula::of(&x) * Formula::of(&outside)).tensor().unwrap();
    assert_eq!(value(&x, 0.0, &y.gradients(&[&x]).unwrap()[0]), 1.0);
    let fixed = placeholder(DType::F64, &[]);
    assert!(matches!(y.gradients(&[&fixed]), Err(Error::NoGradient { .. })));
}

#[test]
fn refusals() {
    let x = variable(&[2]);
    let y = Formula::of(&x).exp().tensor().unwrap();
    let told = y.backward().unwrap_err().to_string();
    assert!(
        told.starts_with("backward: ") && told.contains("pass the output gradient with backward_from()"),
        "{told}"
    );
    let told = y.gradients(&[&x]).unwrap_err().to_string();
    assert!(told.starts_with("gradients: ") && told.contains("vector_jacobian_product()"), "{told}");
    assert!(matches!(y.backward_from(&variable(&[3]), false), Err(Error::Shape { .. })));
    let bits = Tensor::record(Op::Bitcast, DType::F64, [2].as_slice().into(), &[&x]).unwrap();
    assert!(matches!(bits.backward_from(&y, false), Err(Error::NoGradient { op: "bitcast", .. })));
    // `bitcast` is not on the path to the target, so it is not an error.
    let other = variable(&[2]);
    let sum = (Formula::of(&bits) + Formula::of(&other)).tensor().unwrap();
    sum.vector_jacobian_product(&y, &[&other], false).unwrap();
}

#[test]
fn an_optimiser_takes_gradients_out() {
    let (x, w) = (variable(&[]), variable(&[]));
    let loss = (Formula::of(&x) * Formula::of(&w)).tensor().unwrap();
    let mut gradients = loss.leaf_gradients().unwrap();
    assert_eq!(gradients.len(), 2);
    assert!(gradients.get(&w).is_some());
    assert!(gradients.take(&w).is_some() && gradients.take(&w).is_none());
    assert_eq!(gradients.len(), 1);
    assert!(x.grad().is_none());
    let loss = (Formula::of(&x) * Formula::of(&w)).tensor().unwrap();
    loss.backward().unwrap();
    assert_eq!(crate::gradient::Gradients::take_from(&[&x, &w]).len(), 2);
    assert!(x.grad().is_none() && w.grad().is_none());
}

/// Returns the gradient of a weighted sum of slices of a tensor. Slices are `(axis, start, count)`; the weights are 1,
/// 2, 3 ...
fn of_slices(shape: &[usize], slices: &[(usize, usize, usize)]) -> (Tensor, Vec<f64>) {
    let x = variable(shape);
    let mut loss = Formula::of(&variable(&[]));
    let count = shape.iter().product();
    let mut expected = vec![0.0; count];
    for (number, &(axis, start, length)) in slices.iter().enumerate() {
        let weight = number as f64 + 1.0;
        let slice = Formula::of(&x).narrow(axis, start, length);
        let all = Axes::of(0..shape.len());
        loss = loss + (slice * weight).sum(all).reshape(&[]);
        let stride: usize = shape[axis + 1..].iter().product();
        for (at, expected) in expected.iter_mut().enumerate() {
            if (start..start + length).contains(&(at / stride % shape[axis])) {
                *expected += weight;
            }
        }
    }
    let gradient = loss.tensor().unwrap().gradients(&[&x]).unwrap().remove(0);
    assert_eq!(gradient.shape(), shape);
    let zeros = vec![0u8; 8 * count];
    let found =
        Program::new(&[x], &gradient).run(&[OracleArray::from_bytes(&zeros, DType::F64, shape).unwrap()]);
    assert_eq!(found, expected, "{slices:?}");
    (gradient, expected)
}

#[test]
fn gradients_of_slices_are_put_side_by_side() {
    let is_cat = |t: &Tensor| matches!(t.node().op(), Op::Cat(_));
    // Slices that tile the tensor, in any order.
    assert!(is_cat(&of_slices(&[7, 4], &[(0, 3, 2), (0, 0, 3), (0, 5, 2)]).0));
    assert!(is_cat(&of_slices(&[2, 3, 4], &[(2, 2, 2), (2, 0, 2)]).0));
    // Zeros remain at the ends or in between.
    assert!(matches!(of_slices(&[7], &[(0, 1, 2), (0, 3, 1)]).0.node().op(), Op::Pad(_)));
    of_slices(&[7, 2], &[(0, 0, 2), (0, 5, 2)]);
    of_slices(&[9], &[(0, 0, 2), (0, 2, 1), (0, 5, 2), (0, 7, 2)]);
    // Overlapping slices are added.
    of_slices(&[7, 2], &[(0, 0, 4), (0, 3, 4), (0, 3, 4), (0, 0, 3)]);
    of_slices(&[3, 4], &[(0, 0, 1), (1, 0, 2), (0, 1, 2), (1, 2, 2), (0, 0, 3)]);
}

#[test]
fn gradients_that_lie_side_by_side_already_are_one_slice() {
    let x = variable(&[3, 2, 4]);
    let of_result = variable(&[29]);
    let mut parts = vec![Formula::of(&variable(&[5]))];
    parts.extend((0..3).map(|part| Formula::of(&x).narrow(0, part, 1).reshape(&[8])));
    let result = Formula::cat(&parts, 0).tensor().unwrap();
    let gradient = result.vector_jacobian_product(&of_result, &[&x], false).unwrap().remove(0);
    let numbers: Vec<u8> = (0..29).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let of_x = OracleArray::from_bytes(&[0; 192], DType::F64, &[3, 2, 4]).unwrap();
    let numbers = OracleArray::from_bytes(&numbers, DType::F64, &[29]).unwrap();
    let found = Program::new(&[x, of_result], &gradient).run(&[of_x, numbers]);
    assert_eq!(found, (5..29).map(f64::from).collect::<Vec<_>>());
    assert!(!matches!(gradient.node().op(), Op::Cat(_)));
}

#[test]
fn leaves_are_those_that_gradients_reach() {
    let (x, y) = (variable(&[]), variable(&[]));
    let product = (Formula::of(&x) * Formula::of(&y.detach().unwrap())).tensor().unwrap();
    let leaves = product.gradient_leaves().unwrap();
    assert!(leaves.len() == 1 && leaves[0].is_same(&x) && !leaves[0].is_same(&y));
    assert!(y.detach().unwrap().gradient_leaves().unwrap().is_empty());
    product.backward().unwrap();
    assert!(product.gradient_leaves().is_err());
}

#[test]
fn a_replaced_leaf_is_refused_until_it_is_back() {
    let x = variable(&[]);
    let loss = Formula::of(&x).exp().tensor().unwrap();
    x.set_replaced(true);
    let error = loss.backward_retain().unwrap_err();
    assert!(matches!(error, Error::NoGradient { .. }) && error.to_string().contains("replaced"), "{error}");
    assert!(x.grad().is_none());
    x.set_replaced(false);
    loss.backward().unwrap();
    assert!(x.grad().is_some());
}
