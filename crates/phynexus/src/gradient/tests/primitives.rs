//! Functions of elements, by their tables, and special cases of primitives that their samples leave out.

use super::harness::{check, check_with, fixed, values};
use crate::{
    DType, Tensor,
    op::term::Term,
    op::{
        Axes, Binary, Class, Combine, Conv, ConvKind, Geometry, IndexRange, Op, Pool, PoolKind, ScatterMode,
        Slice, Unary, formula::Formula,
    },
    shape::Dims,
};

#[test]
fn functions_of_one_element() {
    for function in Unary::ALL {
        if matches!(function.row().class, Class::bits | Class::tests) {
            continue;
        }
        let (low, high) = function.domain();
        // A common offset would put an element on a step of `round`.
        check(&[values(&[7], low + 0.013, high)], 2, &|x| Formula::of(&x[0]).unary(function).tensor());
    }
}

#[test]
fn sinc_around_0() {
    // The series on both sides of its boundary, and at 0, differentiated twice.
    for low in [-0.05, -0.001, 0.0] {
        check(&[values(&[5], low, low + 0.1)], 2, &|x| Formula::of(&x[0]).unary(Unary::Sinc).tensor());
    }
}

#[test]
fn functions_of_two_elements() {
    for function in Binary::ALL {
        use Binary::*;
        if function.is_comparison() || !function.accepts(DType::F64) {
            continue;
        }
        let [(low, high), (other_low, other_high)] = function.domain();
        let first = values(&[2, 3], low, high);
        let second = values(&[2, 3, 1], other_low, other_high);
        let order = if function == Remainder || function == FloorDiv { 1 } else { 2 };
        check(&[first.clone(), (second.0, vec![2, 3])], order, &|x| {
            Formula::of(&x[0]).binary(function, &Formula::of(&x[1])).tensor()
        });
        // Broadcast operands, and one tensor as both operands.
        check(&[first.clone(), values(&[1, 3], other_low + 0.1, other_high - 0.3)], order, &|x| {
            Formula::of(&x[0]).binary(function, &Formula::of(&x[1])).tensor()
        });
        if function.is_smooth() {
            check(&[first], order, &|x| Formula::of(&x[0]).binary(function, &Formula::of(&x[0])).tensor());
        }
    }
}

#[test]
fn slices_with_any_step() {
    for (shape, start, step, result) in [
        ([7, 5], [1, 0], [2, 1], [3, 5]),
        ([7, 5], [6, 4], [-3, -1], [3, 5]),
        ([7, 5], [0, 1], [3, 3], [3, 2]),
        ([7, 5], [3, 4], [1, -4], [1, 2]),
        ([7, 5], [2, 2], [-5, 9], [1, 1]),
        ([7, 5], [2, 2], [1, 1], [0, 2]),
    ] {
        check(&[values(&shape, -1.0, 1.0)], 2, &|x| {
            let op = Op::Slice(Slice { start: Dims::from_slice(&start), step: step.into_iter().collect() });
            let sliced =
                Formula::from(Term::record(op, DType::F64, Dims::from_slice(&result), &[&x[0].term()]));
            (&sliced * &sliced).tensor()
        });
    }
}

#[test]
fn reductions_along_any_axes() {
    for combine in Combine::ALL {
        for axes in [&[][..], &[0], &[1]] {
            check(&[values(&[2, 3, 2], 0.5, 1.4)], 2, &|x| {
                let y = Formula::of(&x[0]).reduce(combine, Axes::of(axes.iter().copied()));
                (&y * &y).tensor()
            });
        }
    }
}

#[test]
fn scans_along_the_first_and_the_last_axis() {
    for combine in Combine::ALL {
        for (axis, reverse) in [(0, false), (0, true), (2, false), (2, true)] {
            check(&[values(&[2, 3, 2], 0.5, 1.4)], 2, &|x| {
                let y = Formula::of(&x[0]).scan(combine, axis, reverse);
                (&y * &y).tensor()
            });
        }
    }
}

#[test]
fn one_tensor_concatenated_with_itself() {
    check(&[values(&[2, 3], -1.0, 1.0)], 2, &|x| {
        let part = Formula::of(&x[0]);
        let y = Formula::cat(&[part.clone(), part], 1);
        (&y * &y).tensor()
    });
}

#[test]
fn products_with_zeros() {
    for zeros in [vec![1], vec![0, 2], vec![0, 1, 2], vec![3]] {
        let mut x = values(&[2, 4], 0.5, 1.4);
        zeros.iter().for_each(|&place| x.0[place] = 0.0);
        for reverse in [false, true] {
            check(&[x.clone()], 2, &|x| Formula::of(&x[0]).scan(Combine::Prod, 1, reverse).tensor());
        }
        check(&[x.clone()], 2, &|x| Formula::of(&x[0]).reduce(Combine::Prod, Axes::of([1])).tensor());
        check(&[x], 2, &|x| Formula::of(&x[0]).reduce(Combine::Prod, Axes::of([0, 1])).tensor());
    }
}

#[test]
fn products_with_zeros_among_updates() {
    let index = fixed(&[0i64, 0, 1, 1], &[4]);
    let (mut target, mut updates) = (values(&[3, 1], 0.5, 1.0), values(&[4, 1], 0.5, 1.3));
    (target.0[1], updates.0[0]) = (0.0, 0.0);
    check_with(&[target, updates], &[index], 1, &|x| {
        Formula::of(&x[0])
            .scatter(
                (ScatterMode::Combine(Combine::Prod), IndexRange::Unknown),
                &Formula::of(&x[2]),
                &Formula::of(&x[1]),
            )
            .tensor()
    });
}

#[test]
fn a_product_of_one_tensor_with_itself() {
    check(&[values(&[2, 3, 3], -1.0, 1.0)], 2, &|x| {
        let x = Formula::of(&x[0]);
        x.dot(&x.transpose()).tensor()
    });
}

fn geometry(
    kernel: &[usize],
    stride: &[usize],
    dilation: &[usize],
    padding: &[(usize, usize)],
    groups: usize,
) -> Geometry {
    Geometry {
        kernel: kernel.into(),
        stride: stride.into(),
        dilation: dilation.into(),
        padding: padding.into(),
        groups,
    }
}

#[test]
fn convolutions_in_two_dimensions() {
    let g = geometry(&[2, 3], &[2, 1], &[1, 2], &[(1, 0), (1, 2)], 2);
    let (x, w) = ([2, 4, 4, 5], [6, 2, 2, 3]);
    let spatial = [4, 5].iter().enumerate().map(|(d, &size)| g.output_size(d, size).unwrap());
    let y: Vec<usize> = [2, 6].into_iter().chain(spatial).collect();
    for (kind, first, second, result) in [
        (ConvKind::Forward, &x[..], &w[..], &y[..]),
        (ConvKind::InputGradient, &y, &w, &x),
        (ConvKind::FilterGradient, &x, &y, &w),
    ] {
        check(&[values(first, -1.0, 1.0), values(second, -1.0, 1.0)], 1, &|x| {
            Tensor::record(Op::Conv(Conv(kind, g.clone())), DType::F64, result.into(), &[&x[0], &x[1]])
        });
    }
}

#[test]
fn pooling_in_two_dimensions() {
    let g = geometry(&[2, 3], &[1, 2], &[2, 1], &[(1, 1), (0, 1)], 1);
    let x = [2, 2, 4, 5];
    let spatial = [4, 5].iter().enumerate().map(|(d, &size)| g.output_size(d, size).unwrap());
    let y: Vec<usize> = [2, 2].into_iter().chain(spatial).collect();
    for (kind, from, to) in
        [(PoolKind::Max, &x[..], &y[..]), (PoolKind::Sum, &x, &y), (PoolKind::SumBackward, &y, &x)]
    {
        check(&[values(from, -1.0, 1.0)], 1, &|x| {
            let y = Formula::from(Term::record(
                Op::Pool(Pool(kind, g.clone())),
                DType::F64,
                to.into(),
                &[&x[0].term()],
            ));
            (&y * &y).tensor()
        });
    }
}
