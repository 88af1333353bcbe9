//! Scans and scatters.

use phynexus::op::{Combine, ScatterMode};
use phynexus::{DType, Scalar};

use crate::ops::{Axis, Indices, scan, scatter};
use crate::test_values::{combine_reference, from_bytes, round_to, same, to_bytes, values};

const COMBINES: [Combine; 4] = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min];

/// The type in which combinations are rounded.
fn accumulated(dtype: DType) -> DType {
    dtype.compute()
}

#[test]
fn scans_run_in_order() {
    for dtype in DType::COMPUTED {
        for combine in COMBINES {
            for (outer, n, inner) in
                [(1, 1, 1), (2, 300, 1), (3, 7, 5), (1, 40, 200), (0, 3, 3), (2, 0, 3), (600, 200, 1)]
            {
                let axis = Axis { outer, n, inner };
                let x = values(dtype, outer * n * inner, 13);
                for reverse in [false, true] {
                    let mut bytes = to_bytes(&x, dtype);
                    let pointer = bytes.as_mut_ptr();
                    // SAFETY: a buffer of the axis's size, in place.
                    let done = unsafe { scan(combine, dtype, axis, reverse, pointer, pointer) };
                    let meaningful = dtype != DType::Bool || matches!(combine, Combine::Max | Combine::Min);
                    assert_eq!(done, meaningful);
                    if !meaningful {
                        continue;
                    }
                    let got = from_bytes(&bytes, dtype);
                    for line in 0..outer * inner {
                        let mut total: Option<Scalar> = None;
                        for i in 0..n {
                            let i = if reverse { n - 1 - i } else { i };
                            let place = (line / inner * n + i) * inner + line % inner;
                            let value = x[place];
                            total = Some(total.map_or(value, |t| {
                                let wide = if dtype.is_float() { DType::F64 } else { dtype };
                                combine_reference(combine, t, value, wide)
                            }));
                            let expected = round_to(total.unwrap_or(value), dtype);
                            assert!(
                                same(got[place], expected),
                                "{dtype} {combine:?} {axis:?}: {} {expected}",
                                got[place]
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn scatters_update_in_index_order() {
    for dtype in DType::COMPUTED {
        for (rows, width, m) in
            [(5, 1, 40), (3, 9, 20), (300, 3, 7), (40, 300, 250), (1, 2, 0), (1000, 1, 20_000), (4, 0, 3)]
        {
            let x = values(dtype, rows * width, 3);
            let updates = values(dtype, m * width, 4);
            let wrapped = |i: usize| (i * 37 + i * i) % rows;
            let index: Vec<i32> =
                (0..m).map(|i| wrapped(i) as i32 - if i % 2 == 1 { rows as i32 } else { 0 }).collect();
            let (x_bytes, updates_bytes) = (to_bytes(&x, dtype), to_bytes(&updates, dtype));
            let modes = COMBINES.map(ScatterMode::Combine).into_iter().chain([ScatterMode::Set]);
            for mode in modes {
                let mut out = vec![0u8; x_bytes.len()];
                // SAFETY: buffers of the sizes given.
                let result = unsafe {
                    let indices = Indices::new(DType::I32, index.as_ptr().cast(), m).unwrap();
                    scatter(
                        mode,
                        dtype,
                        [rows, width],
                        x_bytes.as_ptr(),
                        indices,
                        updates_bytes.as_ptr(),
                        out.as_mut_ptr(),
                    )
                };
                assert_eq!(result, Ok(()));
                let mut expected = x.clone();
                for (i, &row) in index.iter().enumerate() {
                    for c in 0..width {
                        let place = &mut expected[row.rem_euclid(rows as i32) as usize * width + c];
                        let update = updates[i * width + c];
                        *place = match mode {
                            ScatterMode::Set => update,
                            ScatterMode::Combine(Combine::Sum | Combine::Prod) if dtype == DType::Bool => {
                                *place
                            }
                            ScatterMode::Combine(combine) => {
                                combine_reference(combine, *place, update, accumulated(dtype))
                            }
                        };
                    }
                }
                for (got, expected) in from_bytes(&out, dtype).into_iter().zip(&expected) {
                    assert!(
                        same(got, round_to(*expected, dtype)),
                        "{dtype} {mode:?} {rows} {width} {m}: {got} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn many_updates_of_few_elements() {
    let index: Vec<u16> = (0..100_003).map(|i: usize| (i * i + i / 7) as u16 % 10).collect();
    for (dtype, width) in [(DType::F16, 1), (DType::F32, 1), (DType::F64, 3), (DType::I8, 1), (DType::U64, 2)]
    {
        check_exact_sums(&index, 10, dtype, width);
    }
}

#[test]
fn many_updates_of_few_rows() {
    // Most updates target one row; some groups begin or end at a piece boundary.
    let skewed: Vec<u16> =
        (0..3001).map(|i: usize| if i % 5 < 3 { 4 } else { (i * i % 700) as u16 }).collect();
    let in_pieces: Vec<u16> = (0..2560).map(|i| (i / 256) as u16).collect();
    let in_two: Vec<u16> = (0..20_000).map(|i: usize| (i % 2) as u16).collect();
    for (dtype, width) in [(DType::F16, 9), (DType::F32, 300), (DType::I16, 1), (DType::F64, 5)] {
        check_exact_sums(&skewed, 700, dtype, width);
        check_exact_sums(&in_pieces, 5000, dtype, width);
        check_exact_sums(&in_two, 2, dtype, width.max(8));
    }
    check_exact_sums(&[1; 1200], 3, DType::F32, 600);
}

/// Integer updates, so that sums are exact in any order.
fn check_exact_sums(index: &[u16], rows: usize, dtype: DType, width: usize) {
    let m = index.len();
    let start: Vec<Scalar> = (0..rows * width).map(|i| Scalar::Int(i as i64 % 90).cast(dtype)).collect();
    let update = |i: usize| i64::from(i % 5 != 3) - 2 * i64::from(i.is_multiple_of(3));
    let updates: Vec<Scalar> = (0..m * width).map(|i| Scalar::Int(update(i)).cast(dtype)).collect();
    let (start_bytes, updates_bytes) = (to_bytes(&start, dtype), to_bytes(&updates, dtype));
    for combine in [Combine::Sum, Combine::Max, Combine::Min] {
        let mut expected = start.clone();
        for (i, &row) in index.iter().enumerate() {
            for c in 0..width {
                let place = &mut expected[usize::from(row) * width + c];
                *place = combine_reference(combine, *place, updates[i * width + c], accumulated(dtype));
            }
        }
        for threads in [1, 3, 0] {
            crate::pool::set_threads(threads);
            let mut out = vec![0u8; start_bytes.len()];
            // SAFETY: buffers of the sizes given.
            let result = unsafe {
                let indices = Indices::new(DType::U16, index.as_ptr().cast(), m).unwrap();
                let (x, updates) = (start_bytes.as_ptr(), updates_bytes.as_ptr());
                let mode = ScatterMode::Combine(combine);
                scatter(mode, dtype, [rows, width], x, indices, updates, out.as_mut_ptr())
            };
            assert_eq!(result, Ok(()));
            for (got, expected) in from_bytes(&out, dtype).into_iter().zip(&expected) {
                let expected = round_to(*expected, dtype);
                assert!(same(got, expected), "{dtype} {combine:?} {width}: {got} {expected}");
            }
        }
    }
}

#[test]
fn sums_into_few_elements_do_not_depend_on_threads() {
    let m = 70_000;
    let index: Vec<i64> = (0..m).map(|i: i64| i * i % 7 - 7 * (i % 2)).collect();
    let updates: Vec<f32> = (0..m).map(|i| ((i * 7919) % 1013) as f32 / 997.0).collect();
    let sums = |threads: usize| {
        crate::pool::set_threads(threads);
        let mut sums = [-0.0f32; 7];
        let p: *mut u8 = sums.as_mut_ptr().cast();
        // SAFETY: buffers of the sizes given, in place.
        unsafe {
            let indices = Indices::new(DType::I64, index.as_ptr().cast(), m as usize).unwrap();
            let mode = ScatterMode::Combine(Combine::Sum);
            scatter(mode, DType::F32, [7, 1], p, indices, updates.as_ptr().cast(), p).unwrap();
        }
        sums
    };
    let expected = sums(1);
    let mut exact = [0f64; 7];
    index.iter().zip(&updates).for_each(|(&i, &x)| exact[i.rem_euclid(7) as usize] += f64::from(x));
    let close = |(&found, x): (&f32, f64)| (f64::from(found) - x).abs() <= 1e-4 * x;
    assert!(expected.iter().zip(exact).all(close), "{expected:?} {exact:?}");
    for threads in [2, 5, 0] {
        assert_eq!(sums(threads).map(f32::to_bits), expected.map(f32::to_bits), "{threads} threads");
    }
}

#[test]
fn a_bad_index_leaves_everything_as_it_was() {
    let (x, updates, index) = ([1f32, 2.0], [5f32, 6.0, 7.0], [0i64, 1, 2]);
    let mut out = [9f32; 2];
    // SAFETY: buffers of the sizes given.
    let result = unsafe {
        let indices = Indices::new(DType::I64, index.as_ptr().cast(), 3).unwrap();
        let (x, updates, out) = (x.as_ptr().cast(), updates.as_ptr().cast(), out.as_mut_ptr().cast());
        scatter(ScatterMode::Combine(Combine::Sum), DType::F32, [2, 1], x, indices, updates, out)
    };
    assert_eq!((result, out), (Err(2), [9.0; 2]));
}
