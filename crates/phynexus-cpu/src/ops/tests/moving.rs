//! Rows by index, joins, random words.

use phynexus::{DType, Scalar};

use crate::ops::{Indices, Part, cat, gather, random_bits};
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
            let unsigned = index_dtype.kind() == phynexus::Kind::Unsigned;
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

/// Random123's `tests/kat_vectors`, the rows `threefry2x32 20`.
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
    // The counter passes 2^32 on the way.
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
