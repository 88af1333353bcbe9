//! Convolutions with separate code: depthwise ones, and filters of 3 by 3.

use super::*;

#[test]
fn depthwise_of_every_geometry() {
    check_all(&Case::new(2, [20, 20], 20, &[5, 6], &[3, 3]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(1, [17, 17], 17, &[7, 8], &[5, 5]).stride(&[2, 3]).padding(&[(2, 1), (0, 3)]));
    check_all(&Case::new(3, [33, 33], 33, &[2, 2], &[3, 3]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(2, [16, 16], 16, &[40], &[4]).stride(&[5]).dilation(&[2]));
    check_all(&Case::new(1, [6, 6], 6, &[4, 5, 6], &[2, 3, 1]).stride(&[1, 2, 1]).dilation(&[2, 1, 1]));
    // Several bands, and more phases than taps.
    check(
        &Case::new(1, [3, 3], 3, &[150, 160], &[7, 7]).padding(&[(3, 3), (3, 3)]),
        DType::F32,
        InstructionSet::best(),
    );
    check_all(&Case::new(2, [18, 18], 18, &[11, 11], &[2, 2]).stride(&[4, 3]));
    // An axis of one position, but of several elements of the input.
    check_all(&Case::new(1, [16, 16], 16, &[2, 70], &[3, 3]).stride(&[2, 1]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(1, [5, 5], 5, &[3, 4, 90], &[3, 3, 1]).stride(&[4, 4, 1]).padding(&[
        (1, 1),
        (1, 1),
        (0, 0),
    ]));
}

#[test]
fn winograd_of_every_size() {
    for size in [[2, 2], [3, 3], [4, 7], [5, 8], [11, 12]] {
        let case = Case::new(2, [34, 36], 1, &size, &[3, 3]);
        for set in available() {
            check(&case.clone().padding(&[(1, 1), (1, 1)]), DType::F32, set);
        }
        check(&case.clone().padding(&[(1, 1), (1, 1)]), DType::BF16, InstructionSet::best());
        if size[0] > 4 {
            check(&case.padding(&[(0, 2), (1, 0)]), DType::F64, InstructionSet::best());
        }
    }
    let groups = Case::new(2, [64, 66], 2, &[6, 6], &[3, 3]).padding(&[(1, 1), (1, 1)]);
    check(&groups, DType::F32, InstructionSet::best());
    // Many channels: several blocks of a product.
    let case = Case::new(9, [330, 32], 1, &[2, 3], &[3, 3]).padding(&[(1, 1), (1, 1)]);
    check(&case, DType::F32, InstructionSet::best());
    check(&Case { channels: [32, 330], ..case }, DType::F64, InstructionSet::best());
}

/// An infinity or NaN reaches the results that depend on it, and no others.
#[test]
fn winograd_leaves_what_is_not_finite_to_others() {
    let case = Case::new(2, [32, 32], 1, &[8, 8], &[3, 3]).padding(&[(1, 1), (1, 1)]);
    let output = case.output().unwrap();
    for special in [f32::NAN, f32::INFINITY, 1e38] {
        let mut x = vec![1.0f32; 2 * 32 * 64];
        x[3 * 64 + 2 * 8 + 2] = special;
        let w = vec![0.5f32; 32 * 32 * 9];
        let mut y = vec![0.0f32; x.len()];
        // SAFETY: the vectors hold the tensors.
        unsafe {
            let (x, w, y) = (x.as_ptr().cast(), w.as_ptr().cast(), y.as_mut_ptr().cast());
            let shape = case.shape(&output);
            convolution(ConvKind::Forward, [DType::F32; 2], DType::F32, &shape, x, w, y, None).unwrap();
        }
        for (i, value) in y.iter().enumerate() {
            let (image, row, column) = (i / (32 * 64), i / 8 % 8, i % 8);
            let depends = image == 0 && row.abs_diff(2) <= 1 && column.abs_diff(2) <= 1;
            let count =
                32 * [row, column].map(|at| if at % 7 == 0 { 2 } else { 3 }).iter().product::<usize>();
            let expected = if depends { special * 0.5 } else { count as f32 * 0.5 };
            assert!(
                *value == expected || value.is_nan() && expected.is_nan(),
                "{i}: {value}, not {expected}"
            );
        }
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let around = [(1, 1), (1, 1)];
    for case in [
        Case::new(5, [6, 20], 1, &[18, 20], &[3, 3]).stride(&[1, 2]).padding(&around),
        Case::new(2, [18, 18], 18, &[7, 9], &[3, 3]).stride(&[2, 1]).padding(&around),
        Case::new(3, [40, 35], 1, &[9, 6], &[3, 3]).padding(&around),
        Case::new(4, [64, 48], 1, &[4, 4], &[1, 1]),
        // Padding that cuts an image into boxes.
        Case::new(1, [64, 8], 1, &[2, 2], &[3, 3]).padding(&[(290, 289), (300, 280)]),
    ] {
        same_for_any_threads(&case);
    }
}

fn same_for_any_threads(case: &Case) {
    let [x, w, y] = case.sizes();
    let values =
        |count: usize| -> Vec<f32> { (0..count).map(|i| ((i * 7919) % 1013) as f32 / 997.0).collect() };
    let tensors = [values(x), values(w), values(y)];
    let output = case.output().unwrap();
    let shape = case.shape(&output);
    let bits = |threads: usize| {
        crate::pool::set_threads(threads);
        let mut all = Vec::new();
        for (kind, l, r, size) in [
            (ConvKind::Forward, 0, 1, y),
            (ConvKind::InputGradient, 2, 1, x),
            (ConvKind::FilterGradient, 0, 2, w),
        ] {
            let mut out = vec![0f32; size];
            let (l, r) = (tensors[l].as_ptr().cast(), tensors[r].as_ptr().cast());
            // SAFETY: the vectors hold the tensors.
            unsafe {
                convolution(kind, [DType::F32; 2], DType::F32, &shape, l, r, out.as_mut_ptr().cast(), None)
                    .unwrap()
            };
            all.extend(out.into_iter().map(f32::to_bits));
        }
        all
    };
    let expected = bits(1);
    for threads in [2, 3, 7, 0] {
        assert_eq!(bits(threads), expected, "{case:?}: {threads} threads");
    }
}
