//! Attention and its gradient against the composite's body.

use phynexus::{
    Scalar,
    op::composite::{Attention, AttentionGradient},
};

use crate::library::against_body::{Given, agree, given};

/// Batch, heads, queries, keys, features, values.
type Shape = [usize; 6];

/// Queries, keys and values.
fn operands([b, h, l, s, e, v]: Shape) -> Vec<Given> {
    vec![given(&[b, h, l, e], 1), given(&[b, h, s, e], 2), given(&[b, h, s, v], 3)]
}

/// Attention and its gradient.
fn check(shape: Shape, causal: bool, operands: Vec<Given>) {
    check_rows(shape, causal, operands, 0);
}

/// The same with elements between the rows of the output's gradient.
fn check_rows([b, h, l, _, _, v]: Shape, causal: bool, operands: Vec<Given>, gap: usize) {
    let mask = operands.len() > 3;
    let attention = Attention { causal, scale: Scalar::Float(0.75), mask, dropout: 0 };
    let packed = agree(&attention.into(), &operands);
    let (output, logarithms) = packed.split_at(b * h * l * v);
    let mut gradient = given(&[b, h, l, v], 4);
    gradient.gap = gap;
    let delta =
        (0..b * h * l).map(|row| (row * v..(row + 1) * v).map(|i| output[i] * gradient.values[i]).sum());
    let delta = delta.collect();
    let mut operands = operands;
    operands.push(Given::new(&[b, h, l], logarithms.to_vec()));
    operands.push(gradient);
    operands.push(Given::new(&[b, h, l], delta));
    agree(&AttentionGradient(attention).into(), &operands);
}

const SHAPES: [Shape; 6] = [
    [1, 1, 1, 1, 1, 1],
    [2, 3, 5, 7, 3, 2],
    [1, 2, 57, 33, 33, 65],
    [2, 1, 130, 300, 8, 5],
    [1, 1, 300, 130, 5, 8],
    [1, 2, 3, 600, 16, 16],
];

#[test]
fn without_mask() {
    for shape in SHAPES {
        for causal in [false, true] {
            check(shape, causal, operands(shape));
        }
    }
}

#[test]
fn operands_with_strides() {
    let shape = [2, 2, 60, 70, 9, 11];
    for which in 0..4 {
        let mut operands = operands(shape);
        operands.push(given(&[2, 2, 60, 70], 5));
        operands[which].transposed = true;
        check(shape, which % 2 == 0, operands);
    }
    for shape in SHAPES {
        let mut operands = operands(shape);
        operands.iter_mut().enumerate().for_each(|(at, operand)| operand.gap = 3 * at + 1);
        check_rows(shape, true, operands, 2);
    }
}

#[test]
fn masks_that_are_added() {
    for shape in SHAPES {
        let [b, h, l, s, ..] = shape;
        let mut mask = given(&[b, h, l, s], 6);
        // Some entries are minus infinity, including a whole row.
        for (at, value) in mask.values.iter_mut().enumerate() {
            if at % 5 == 1 || at / s == 1 {
                *value = f32::NEG_INFINITY;
            }
        }
        for causal in [false, true] {
            let mut operands = operands(shape);
            operands.push(Given::new(&mask.shape, mask.values.clone()));
            check(shape, causal, operands);
        }
    }
}

#[test]
fn masks_of_what_takes_part_and_rows_of_nothing() {
    for shape in SHAPES {
        let [b, h, l, s, ..] = shape;
        for causal in [false, true] {
            let mut operands = operands(shape);
            let taken = (0..b * h * l * s).map(|at| f32::from(u8::from(at / s % 3 != 1 && at % 7 != 0)));
            let mut mask = Given::new(&[b, h, l, s], taken.collect());
            mask.is_bool = true;
            operands.push(mask);
            check(shape, causal, operands);
        }
    }
}

#[test]
fn no_queries_no_keys_no_features() {
    for shape in [[1, 2, 0, 3, 4, 5], [1, 2, 3, 0, 4, 5], [0, 2, 3, 3, 4, 5], [1, 2, 3, 4, 0, 5]] {
        check(shape, false, operands(shape));
    }
}

#[test]
fn great_scores_and_nan() {
    let shape = [1, 1, 3, 4, 2, 2];
    let mut great = operands(shape);
    // Integers, whose products are exact, and exponentials that overflow.
    great[0].values.iter_mut().for_each(|x| *x = (*x * 300.0).round());
    great[1].values.iter_mut().for_each(|x| *x = (*x * 3.0).round());
    let attention = Attention { causal: false, scale: Scalar::Float(1.0), mask: false, dropout: 0 };
    agree(&attention.into(), &great);
    let mut nan = operands(shape);
    nan[0].values[2] = f32::NAN;
    let packed = agree(&attention.into(), &nan);
    assert!(packed[2].is_nan() && packed[0].is_finite() && packed[7].is_nan());
}
