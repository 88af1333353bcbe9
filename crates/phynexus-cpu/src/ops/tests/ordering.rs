//! Positions of extremes, sorting, searching.

use std::cmp::Ordering;

use phynexus::{DType, Scalar};

use crate::ops::{Axis, arg_reduce, arg_sort, search_sorted};
use crate::test_values::{to_bytes, values};

/// NaN is the greatest and equal to itself, zeros are equal.
fn compare(a: Scalar, b: Scalar) -> Ordering {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        (Scalar::UInt(a), Scalar::UInt(b)) => a.cmp(&b),
        (a, b) => a.as_i64().cmp(&b.as_i64()),
    }
}

fn is_nan(x: Scalar) -> bool {
    x.as_f64().is_nan()
}

/// Values with repetitions.
fn repeating(dtype: DType, n: usize, seed: u64) -> Vec<Scalar> {
    let few = values(dtype, n / 3 + 1, seed);
    values(DType::U32, n, seed + 1).into_iter().map(|r| few[r.as_u64() as usize % few.len()]).collect()
}

#[test]
fn extremes_are_found_at_their_first_place() {
    for dtype in DType::COMPUTED {
        for (outer, n, inner) in [
            (1, 1, 1),
            (3, 70, 1),
            (2, 5, 3),
            (1, 200, 130),
            (2, 129, 65),
            (0, 4, 2),
            (2, 0, 3),
            (500, 300, 1),
        ] {
            let axis = Axis { outer, n, inner };
            let x = repeating(dtype, outer * n * inner, 5);
            let bytes = to_bytes(&x, dtype);
            for least in [false, true] {
                let mut y = vec![-1i64; outer * inner];
                // SAFETY: buffers of the sizes of the axis.
                unsafe { arg_reduce(dtype, least, axis, bytes.as_ptr(), y.as_mut_ptr()) };
                for (line, &got) in y.iter().enumerate() {
                    let at = |i: usize| x[(line / inner * n + i) * inner + line % inner];
                    let expected = (0..n).reduce(|best, i| {
                        let order = compare(at(i), at(best));
                        let better = if least && !is_nan(at(i)) && !is_nan(at(best)) {
                            order.reverse()
                        } else {
                            order
                        };
                        if better == Ordering::Greater { i } else { best }
                    });
                    assert_eq!(got, expected.unwrap_or(0) as i64, "{dtype} {axis:?} {least}");
                }
            }
        }
    }
}

#[test]
fn sorting_is_stable_with_nan_as_the_greatest() {
    for dtype in DType::COMPUTED {
        for (rows, n) in [(1, 0), (1, 1), (4, 7), (3, 512), (3, 513), (2, 3000), (1, 150_000), (70, 700)] {
            let x = repeating(dtype, rows * n, 9);
            let bytes = to_bytes(&x, dtype);
            for descending in [false, true] {
                let mut y = vec![-1i64; rows * n];
                // SAFETY: buffers of rows * n elements.
                unsafe { arg_sort(dtype, descending, rows, n, bytes.as_ptr(), y.as_mut_ptr()) };
                for r in 0..rows {
                    let row = &x[r * n..(r + 1) * n];
                    let mut expected: Vec<i64> = (0..n as i64).collect();
                    expected.sort_by(|&i, &j| {
                        let (a, b) = (row[i as usize], row[j as usize]);
                        let order = compare(a, b);
                        if descending { order.reverse() } else { order }
                    });
                    assert!(y[r * n..(r + 1) * n] == expected, "{dtype} {rows} {n} {descending}");
                }
            }
        }
    }
}

#[test]
fn searching_finds_the_boundaries() {
    for dtype in DType::COMPUTED {
        for (n, m) in [(0, 3), (1, 10), (100, 70), (1000, 20_000)] {
            let mut sorted = repeating(dtype, n, 3);
            sorted.sort_by(|a, b| compare(*a, *b));
            let x = repeating(dtype, m, 3);
            let (sorted_bytes, bytes) = (to_bytes(&sorted, dtype), to_bytes(&x, dtype));
            for right in [false, true] {
                let mut y = vec![-1i64; m];
                // SAFETY: buffers of n and m elements.
                unsafe {
                    search_sorted(dtype, right, sorted_bytes.as_ptr(), n, bytes.as_ptr(), m, y.as_mut_ptr())
                };
                for (&x, &got) in x.iter().zip(&y) {
                    let before = |s: &&Scalar| {
                        let order = compare(**s, x);
                        order == Ordering::Less || right && order == Ordering::Equal
                    };
                    assert_eq!(got, sorted.iter().filter(before).count() as i64, "{dtype} {right} {x}");
                }
            }
        }
    }
}
