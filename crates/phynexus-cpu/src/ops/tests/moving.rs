//! Rows by index, concatenation, layouts, random words.

use phynexus::{DType, Scalar};

use crate::ops::{Indices, Part, cat, copy_strided, gather, random_bits};
use crate::test_values::{from_bytes, same, to_bytes, values};
use crate::vector::{InstructionSet, random_bits_for};

#[test]
fn rows_are_gathered() {
    for index_dtype in DType::INTEGERS {
        for (dtype, width) in [
            (DType::U8, 1),
            (DType::F16, 1),
            (DType::F32, 1),
            (DType::F32, 3),
            (DType::F64, 200),
            (DType::I64, 0),
        ] {
            let (rows, m) = (50, 3000);
            let x = values(dtype, rows * width, 1);
            let unsigned = index_dtype.kind() == phynexus::DTypeKind::Unsigned;
            let index: Vec<i64> = (0..m as i64)
                .map(|i| (i * i * 31 + 7) % 50 - if unsigned { 0 } else { (i % 2) * 50 })
                .collect();
            let scalars: Vec<Scalar> = index.iter().map(|&i| Scalar::Int(i)).collect();
            let (bytes, index_bytes) = (to_bytes(&x, dtype), to_bytes(&scalars, index_dtype));
            let mut out = vec![0u8; m * width * dtype.size()];
            // SAFETY: buffers of the sizes given.
            let result = unsafe {
                let indices = Indices::new(index_dtype, index_bytes.as_ptr(), m).unwrap();
                gather(bytes.as_ptr(), rows, width * dtype.size(), indices, out.as_mut_ptr())
            };
            assert_eq!(result, Ok(()));
            let got = from_bytes(&out, dtype);
            for (i, &row) in index.iter().enumerate() {
                let row = row.rem_euclid(50) as usize;
                for c in 0..width {
                    assert!(same(got[i * width + c], x[row * width + c]));
                }
            }
        }
    }
}

#[test]
fn indices_out_of_range_are_named() {
    let x = [1f32, 2.0, 3.0];
    for (index, expected) in
        [(vec![0i64, -3, 2], Ok(())), (vec![2, 3, -4], Err(3)), (vec![1, i64::MIN], Err(i64::MIN))]
    {
        let mut y = vec![0f32; index.len()];
        // SAFETY: buffers of the sizes given.
        let result = unsafe {
            let indices = Indices::new(DType::I64, index.as_ptr().cast(), index.len()).unwrap();
            gather(x.as_ptr().cast(), 3, 4, indices, y.as_mut_ptr().cast())
        };
        assert_eq!(result, expected);
    }
    let huge = [0u64, u64::MAX];
    let mut y = [0f32; 2];
    // SAFETY: buffers of the sizes given.
    unsafe {
        let indices = Indices::new(DType::U64, huge.as_ptr().cast(), 2).unwrap();
        assert_eq!(gather(x.as_ptr().cast(), 3, 4, indices, y.as_mut_ptr().cast()), Err(i64::MAX));
        assert!(Indices::new(DType::F32, huge.as_ptr().cast(), 2).is_none());
    }
}

#[test]
fn parts_are_joined() {
    for (outer, inner) in [(1, 1), (1, 70_000), (3, 5), (700, 64), (0, 3)] {
        let extents = [2usize, 0, 3, 1];
        let sources: Vec<Vec<u16>> = extents
            .iter()
            .enumerate()
            .map(|(p, n)| (0..outer * n * inner).map(|i| (i * 4 + p) as u16).collect())
            .collect();
        let parts: Vec<Part> =
            sources.iter().zip(extents).map(|(s, n)| Part { start: s.as_ptr().cast(), n }).collect();
        let mut out = vec![0u16; outer * 6 * inner];
        // SAFETY: buffers of the sizes given.
        unsafe { cat(&parts, outer, inner * 2, out.as_mut_ptr().cast()) };
        let mut expected = Vec::new();
        for row in 0..outer {
            for (source, n) in sources.iter().zip(extents) {
                expected.extend_from_slice(&source[row * n * inner..(row + 1) * n * inner]);
            }
        }
        assert!(out == expected);
    }
}

/// The elements in row-major order, computed one by one.
fn strided_reference(x: &[u64], origin: isize, shape: &[usize], strides: &[isize]) -> Vec<u64> {
    let count: usize = shape.iter().product();
    (0..count)
        .map(|mut i| {
            let mut place = origin;
            for (&n, &stride) in shape.iter().zip(strides).rev() {
                place += (i % n) as isize * stride;
                i /= n;
            }
            x[place as usize]
        })
        .collect()
}

#[test]
fn layouts_become_row_major() {
    let x: Vec<u64> = (0..200_000).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let cases: [(&[usize], &[isize], isize); 15] = [
        (&[], &[], 5),
        (&[0, 3], &[3, 1], 0),
        (&[7, 11], &[11, 1], 0),
        (&[70, 110], &[1, 70], 0),
        (&[300, 301], &[1, 300], 0),
        (&[33, 31], &[1, 33], 4),
        (&[33, 65], &[-1, -33], 33 * 65 - 1),
        (&[5, 40, 50], &[2000, 1, 40], 0),
        (&[40, 5, 50], &[1, 2000, 40], 0),
        (&[6, 1000], &[0, 3], 0),
        (&[1000, 6], &[3, 0], 0),
        (&[50, 3, 60], &[60, 0, -1], 59),
        (&[2, 3, 4, 5, 2, 3, 2, 3], &[1, 2, 6, 24, 120, 240, 720, 1440], 0),
        (&[1, 100_000, 1], &[9, 2, 9], 0),
        (&[64, 96, 2], &[2, 128, 1], 0),
    ];
    for (shape, strides, origin) in cases {
        let expected = strided_reference(&x, origin, shape, strides);
        macro_rules! check {
            ($t:ty) => {
                let narrow: Vec<$t> = x.iter().map(|&x| x as $t).collect();
                let mut out = vec![0 as $t; expected.len()];
                // SAFETY: the layout lies within x, and out has as many elements.
                unsafe {
                    let start = narrow.as_ptr().offset(origin);
                    copy_strided(size_of::<$t>(), shape, strides, start.cast(), out.as_mut_ptr().cast());
                }
                assert!(out.iter().zip(&expected).all(|(a, b)| *a == *b as $t), "{shape:?} {strides:?}");
            };
        }
        check!(u8);
        check!(u16);
        check!(u32);
        check!(u64);
    }
}

/// Random123's `tests/kat_vectors`, rows `threefry2x32 20`.
#[test]
fn random_words_match_the_published_vectors() {
    for set in InstructionSet::available() {
        let two = |state: [u32; 4]| {
            let mut words = [0u32; 2];
            // SAFETY: two elements.
            unsafe { random_bits_for(set)(&state, 0, words.as_mut_ptr(), 2) };
            words
        };
        assert_eq!(two([0, 0, 0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(two([u32::MAX; 4]), [0x1cb9_96fc, 0xbb00_2be7]);
        let pi = [0x1319_8a2e, 0x0370_7344, 0x243f_6a88, 0x85a3_08d3];
        assert_eq!(two(pi), [0xc492_3a9c, 0x483d_f7a0]);
    }
}

#[test]
fn random_words_do_not_depend_on_the_cut() {
    // The counter crosses 2^32 on the way.
    let state = [7, 8, u32::MAX - 100, 3];
    let mut all = vec![0u32; 100_001];
    // SAFETY: as many elements as the vector has.
    unsafe { random_bits(state, all.len(), all.as_mut_ptr()) };
    for set in InstructionSet::available() {
        for (first, n) in [(0, 1), (1, 1), (3, 200), (64, 64), (199, 5), (200, 7000)] {
            let mut words = vec![0u32; n];
            // SAFETY: n elements.
            unsafe { random_bits_for(set)(&state, first as u64, words.as_mut_ptr(), n) };
            assert!(words == all[first..first + n]);
        }
    }
}
