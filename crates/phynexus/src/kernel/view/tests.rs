use proptest::{prelude::*, test_runner::RngSeed};

use super::super::index::tests::points;
use super::*;
use crate::Scalar;
use crate::op::{Pad, Permute, Slice};
use crate::shape::{Dims, contiguous_strides};

/// A random view and its output's shape, for any input shape.
fn view_of(shape: &[usize], kind: u8, seeds: &[usize]) -> (Op, Vec<usize>) {
    let seed = |i: usize| seeds[i % seeds.len()];
    match kind % 5 {
        0 => {
            // Another factorisation: all primes of the size, grouped at random, plus some ones.
            let mut size: usize = shape.iter().product();
            let (mut output, mut i) = (vec![1], 0);
            let mut prime = 2;
            while size > 1 {
                while !size.is_multiple_of(prime) {
                    prime += 1;
                }
                size /= prime;
                if seed(i) % 2 == 0 {
                    output.push(1);
                }
                if let Some(last) = output.last_mut() {
                    *last *= prime;
                }
                i += 1;
            }
            (Op::Reshape, output)
        }
        1 => {
            let mut order: Vec<u8> = (0..shape.len() as u8).collect();
            order.sort_by_key(|&axis| seed(usize::from(axis)));
            let output = order.iter().map(|&axis| shape[usize::from(axis)]).collect();
            (Op::Permute(Permute(order.into_iter().collect())), output)
        }
        2 => {
            let stretched = |(i, &n): (usize, &usize)| if n == 1 { 1 + seed(i) % 3 } else { n };
            (Op::Expand, shape.iter().enumerate().map(stretched).collect())
        }
        3 => {
            let (mut start, mut steps, mut output) = (Dims::new(), SmallVec::new(), Vec::new());
            for (i, &n) in shape.iter().enumerate() {
                let step = [1isize, 2, -1, -2, 3][seed(i) % 5];
                let count = 1 + seed(i + 1) % n.div_ceil(step.unsigned_abs());
                let span = (count - 1) * step.unsigned_abs();
                let first = if step > 0 { seed(i + 2) % (n - span) } else { span + seed(i + 2) % (n - span) };
                start.push(first);
                steps.push(step);
                output.push(count);
            }
            (Op::Slice(Slice { start, step: steps }), output)
        }
        _ => {
            let padding: SmallVec<[(usize, usize); 4]> =
                (0..shape.len()).map(|i| (seed(i) % 3, seed(i + 1) % 3)).collect();
            let output = shape.iter().zip(&padding).map(|(n, (a, b))| n + a + b).collect();
            (Op::Pad(Pad { padding, value: Scalar::Int(-1) }), output)
        }
    }
}

/// Applies the view to an array directly by its definition in the op set.
fn apply(op: &Op, shape: &[usize], data: &[i64], output: &[usize]) -> Vec<i64> {
    let strides = contiguous_strides(shape);
    let read = |at: &[i64]| {
        let inside = at.iter().zip(shape).all(|(&i, &n)| (0..n as i64).contains(&i));
        inside.then(|| data[at.iter().zip(&strides).map(|(i, &s)| *i as usize * s as usize).sum::<usize>()])
    };
    let every = Ranges::of(output);
    points(&every)
        .enumerate()
        .map(|(flat, point)| {
            let point: Vec<i64> = point.into_iter().map(|p| p as i64).collect();
            match op {
                Op::Reshape => data[flat],
                Op::Permute(Permute(permutation)) => {
                    let mut at = vec![0; shape.len()];
                    for (i, &axis) in permutation.iter().enumerate() {
                        at[usize::from(axis)] = point[i];
                    }
                    read(&at).unwrap()
                }
                Op::Expand => {
                    let at: Vec<i64> =
                        point.iter().zip(shape).map(|(&p, &n)| if n == 1 { 0 } else { p }).collect();
                    read(&at).unwrap()
                }
                Op::Slice(Slice { start, step }) => {
                    let at: Vec<i64> =
                        (0..shape.len()).map(|i| start[i] as i64 + step[i] as i64 * point[i]).collect();
                    read(&at).unwrap()
                }
                Op::Pad(Pad { padding, value }) => {
                    let at: Vec<i64> = (0..shape.len()).map(|i| point[i] - padding[i].0 as i64).collect();
                    read(&at).unwrap_or(value.as_i64())
                }
                _ => unreachable!(),
            }
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(3000) })]

    /// Chains of views, traced by indices from the result back to the source, read the same values as the arrays. So do
    /// the indices rewritten on split ranges.
    #[test]
    fn chains_of_views_read_what_arrays_hold(
        shape in prop::collection::vec(1usize..6, 0..4),
        chain in prop::collection::vec((any::<u8>(), prop::collection::vec(0usize..1000, 5)), 1..5),
    ) {
        let mut shapes = vec![shape.clone()];
        let mut data: Vec<i64> = (0..shape.iter().product::<usize>() as i64).collect();
        let mut ops = Vec::new();
        for (kind, seeds) in &chain {
            let input = shapes.last().unwrap();
            let (op, output) = view_of(input, *kind, seeds);
            if output.iter().product::<usize>() > 2000 {
                continue;
            }
            data = apply(&op, input, &data, &output);
            ops.push(op);
            shapes.push(output);
        }
        let ranges = Ranges::of(shapes.last().unwrap());
        let mut coordinates = ranges.coordinates();
        let mut mask = Mask::default();
        for (i, op) in ops.iter().enumerate().rev() {
            let (inner, reads) = through(op, &shapes[i], &shapes[i + 1], &coordinates, &ranges).unwrap();
            coordinates = inner;
            mask = mask.and(&reads.unwrap_or_default());
        }
        let index = flat(&coordinates, &contiguous_strides(&shape), 0);
        for (point, expected) in points(&ranges).zip(&data) {
            let value = if mask.evaluate(&point) { index.evaluate(&point) } else { -1 };
            prop_assert_eq!(value, *expected, "{} at {:?} of {:?}", index, point, ops);
        }
        if let Some(split) = splits([&index], &ranges) {
            let (index, mask) = (split.index(&index), split.mask(&mask));
            for (point, expected) in points(&split.ranges).zip(&data) {
                let value = if mask.evaluate(&point) { index.evaluate(&point) } else { -1 };
                prop_assert_eq!(value, *expected, "split {} at {:?}", index, point);
            }
        }
    }

    #[test]
    fn masks_are_the_conjunction(
        conditions in prop::collection::vec((-3i64..4, -3i64..4, -9i64..9, -9i64..12, -9i64..12), 0..4),
        probe in (-5i64..6, -5i64..6, -5i64..6),
    ) {
        let ranges = Ranges::of(&[4, 5]);
        let (a, b) = (Index::range(0, &ranges), Index::range(1, &ranges));
        let mut mask = Mask::default();
        for &(x, y, c, low, high) in &conditions {
            mask = mask.and(&Mask::within(&a.scale(x).add(&b.scale(y)).shift(c), low, high, &ranges));
        }
        for point in points(&ranges) {
            let holds = conditions.iter().all(|&(x, y, c, low, high)| {
                (low..high).contains(&(x * point[0] as i64 + y * point[1] as i64 + c))
            });
            prop_assert_eq!(mask.evaluate(&point), holds);
            if let Some(negation) = mask.negation(&ranges) {
                prop_assert_eq!(negation.evaluate(&point), !holds);
            }
        }
        let divided = a.scale(5).add(&b).scale(1 + probe.0.abs()).shift(probe.2).quotient(3, &ranges);
        let index = a.scale(probe.0).add(&b.scale(probe.1)).add(&divided).shift(probe.2);
        let (low, high) = mask.bounds_of(&index, &ranges);
        for point in points(&ranges).filter(|point| mask.evaluate(point)) {
            let value = index.evaluate(&point);
            prop_assert!(low <= value && value <= high, "{} = {} outside {:?}", index, value, (low, high));
        }
    }

    #[test]
    fn conditions_on_quotients_and_remainders_bound_what_they_divide(
        conditions in prop::collection::vec(
            (0i64..4, 1i64..7, -3i64..4, any::<bool>(), 2i64..7, -2i64..9, -2i64..12), 1..3),
        probe in (-5i64..6, -5i64..6, 1i64..6, 2i64..9),
    ) {
        let ranges = Ranges::of(&[4, 6]);
        let (a, b) = (Index::range(0, &ranges), Index::range(1, &ranges));
        let mut mask = Mask::default();
        for &(x, y, c, remainder, k, low, high) in &conditions {
            let sum = a.scale(x * y).add(&b.scale(y)).shift(c).quotient(2, &ranges).add(&a);
            let divided = if remainder { sum.remainder(k, &ranges) } else { sum.quotient(k, &ranges) };
            mask = mask.and(&Mask::within(&divided, low, high, &ranges));
        }
        let index = a.scale(probe.0).add(&b.scale(probe.1));
        let index = index.add(&a.scale(6).add(&b).scale(probe.2).remainder(probe.3, &ranges));
        let (low, high) = mask.bounds_of(&index, &ranges);
        for point in points(&ranges).filter(|point| mask.evaluate(point)) {
            let value = index.evaluate(&point);
            prop_assert!(low <= value && value <= high, "{} = {} outside {:?}", index, value, (low, high));
        }
    }
}

#[test]
fn quotients_are_bounded_by_conditions_on_what_they_divide() {
    let ranges = Ranges::of(&[4, 64]);
    let flat = Index::range(0, &ranges).scale(64).add(&Index::range(1, &ranges));
    let mask = Mask::within(&flat, 0, 250, &ranges);
    for (times, divisor) in [(1, 5), (1, 10), (4, 10), (4, 100), (2, 3)] {
        let quotient = flat.scale(times).quotient(divisor, &ranges);
        let (low, high) = mask.bounds_of(&quotient.scale(7).shift(1), &ranges);
        assert_eq!((low, high), (1, 249 * times / divisor * 7 + 1), "{quotient}");
    }
}

#[test]
fn splitting_makes_reshapes_affine() {
    // [6, 4] permuted to [4, 6], then flattened: the flat range of 24 splits into 4 and 6.
    let ranges = Ranges::of(&[24]);
    let (rows, _) = through(&Op::Reshape, &[4, 6], &[24], &ranges.coordinates(), &ranges).unwrap();
    let permute = Op::Permute(Permute(SmallVec::from_slice(&[1, 0])));
    let (source, _) = through(&permute, &[6, 4], &[4, 6], &rows, &ranges).unwrap();
    let index = flat(&source, &[4, 1], 0);
    assert_eq!(index.strides(1), None);
    let split = splits([&index], &ranges).unwrap();
    assert_eq!(split.ranges, Ranges::of(&[4, 6]));
    assert_eq!(split.parts.as_slice(), &[2]);
    assert_eq!(split.index(&index).strides(2), Some((0, SmallVec::from_slice(&[1, 4]))));
}

#[test]
fn divisors_that_do_not_nest_leave_a_range_whole() {
    let ranges = Ranges::of(&[12]);
    let r = Index::range(0, &ranges);
    assert_eq!(splits([&r.quotient(4, &ranges), &r.remainder(6, &ranges)], &ranges), None);
    assert_eq!(splits([&r.quotient(5, &ranges)], &ranges), None);
    assert_eq!(splits([&r], &ranges), None);
}

#[test]
fn padding_masks_are_bounds() {
    let ranges = Ranges::of(&[5]);
    let pad = Op::Pad(Pad { padding: SmallVec::from_slice(&[(2, 0)]), value: Scalar::Float(0.0) });
    let (inner, mask) = through(&pad, &[3], &[5], &ranges.coordinates(), &ranges).unwrap();
    assert_eq!(inner[0].to_string(), "r0 - 2");
    let mask = mask.unwrap();
    assert_eq!(mask.conditions(), &[Condition { index: Index::range(0, &ranges), low: 2, high: 5 }]);
    // Reading only existing elements leaves no mask.
    let slice = Op::Slice(Slice { start: SmallVec::from_slice(&[2]), step: SmallVec::from_slice(&[1]) });
    let three = Ranges::of(&[3]);
    let (padded, _) = through(&slice, &[5], &[3], &three.coordinates(), &three).unwrap();
    assert_eq!(through(&pad, &[3], &[5], &padded, &three).unwrap(), (three.coordinates(), None));
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let ranges = Ranges::of(&[6]);
    assert!(through(&Op::Reshape, &[4], &[6], &ranges.coordinates(), &ranges).is_err());
    assert!(through(&Op::Expand, &[1, 1], &[6], &ranges.coordinates(), &ranges).is_err());
    assert!(through(&Op::Where, &[6], &[6], &ranges.coordinates(), &ranges).is_err());
}
