//! 2:4 sparsity: what is kept, its compression, and products, compared with brute force on the reference device. Finite
//! differences and other dtypes are tested with the samples of the composite.

use crate::{DType, Error, Tensor, oracle::reference_device};

const NAN: f64 = f64::NAN;
const INFINITY: f64 = f64::INFINITY;

fn array(values: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, reference_device()).unwrap()
}

/// Numbers of both signs, all different.
fn scattered(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f64> =
        (0..count).map(|i| (i * 37 % 101) as f64 * 0.25 - 12.0 + i as f64 / 1024.0).collect();
    array(&values, shape)
}

fn bits(tensor: &Tensor) -> Vec<u64> {
    tensor.to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect()
}

/// `x W^T` by its definition, of rows `[M, K]` and `[N, K]`.
fn product(x: &Tensor, weight: &Tensor) -> Vec<f64> {
    let inner = weight.shape()[1];
    let (x, weight) = (x.to_vec::<f64>().unwrap(), weight.to_vec::<f64>().unwrap());
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum::<f64>();
    x.chunks(inner).flat_map(|row| weight.chunks(inner).map(move |column| dot(row, column))).collect()
}

#[test]
fn the_two_greatest_of_each_four_are_kept() {
    for (given, expected) in [
        ([1.0, -3.0, 2.0, 0.5], [0.0, -3.0, 2.0, 0.0]),
        ([5.0, 1.0, 1.0, -7.0], [5.0, 0.0, 0.0, -7.0]),
        // The first of equal magnitudes.
        ([1.0, -1.0, 1.0, 1.0], [1.0, -1.0, 0.0, 0.0]),
        ([0.5, 2.0, -2.0, 2.0], [0.0, 2.0, -2.0, 0.0]),
        ([1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]),
        ([INFINITY, NAN, -INFINITY, 1.0], [INFINITY, NAN, 0.0, 0.0]),
        ([1.0, NAN, INFINITY, NAN], [0.0, NAN, 0.0, NAN]),
        ([NAN, NAN, NAN, NAN], [NAN, NAN, 0.0, 0.0]),
    ] {
        let kept = array(&given, &[4]).keep_two_of_four().unwrap();
        assert_eq!(bits(&kept), bits(&array(&expected, &[4])), "{given:?}");
    }
    let many = scattered(&[3, 2, 8]);
    let kept = many.keep_two_of_four().unwrap();
    assert_eq!(kept.shape(), many.shape());
    let (many, kept) = (many.to_vec::<f64>().unwrap(), kept.to_vec::<f64>().unwrap());
    for (given, kept) in many.chunks(4).zip(kept.chunks(4)) {
        let mut sizes: Vec<f64> = given.iter().map(|x| x.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let expected: Vec<f64> = given.iter().map(|&x| if x.abs() >= sizes[2] { x } else { 0.0 }).collect();
        assert_eq!(kept, expected);
    }
    let nothing = Tensor::zeros(&[3, 0], DType::F32, reference_device()).unwrap();
    assert_eq!(nothing.keep_two_of_four().unwrap().shape(), [3, 0]);
}

#[test]
fn places_have_two_bits_each() {
    // Places 0 and 3, then the first zeros, 0 and 1: 0b01_00_11_00.
    let (values, places) =
        array(&[0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0], &[1, 8]).compress_two_of_four().unwrap();
    assert_eq!((values.dtype(), values.shape()), (DType::F64, &[1, 4][..]));
    assert_eq!(values.to_vec::<f64>().unwrap(), [0.0, 5.0, 0.0, 0.0]);
    assert_eq!((places.dtype(), places.shape()), (DType::U8, &[1, 1][..]));
    assert_eq!(places.to_vec::<u8>().unwrap(), [0b0100_1100]);
    // Places 1 and 2, then 2 and 3: 0b11_10_10_01.
    let (values, places) =
        array(&[0.0, 1.0, 2.0, 0.0, 0.0, 0.0, 3.0, 4.0], &[1, 8]).compress_two_of_four().unwrap();
    assert_eq!(values.to_vec::<f64>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(places.to_vec::<u8>().unwrap(), [0b1110_1001]);
}

#[test]
fn what_was_compressed_comes_back() {
    let mut numbers = scattered(&[5, 24]).keep_two_of_four().unwrap().to_vec::<f64>().unwrap();
    // Fours with special numbers, and with fewer than two.
    numbers[..4].copy_from_slice(&[0.0, NAN, 0.0, -INFINITY]);
    numbers[4..8].copy_from_slice(&[-0.0, 0.0, 0.0, 3.0]);
    numbers[8..12].fill(0.0);
    let weight = array(&numbers, &[5, 24]);
    for weight in [weight.clone(), weight.t().unwrap().contiguous().unwrap().t().unwrap()] {
        let (values, places) = weight.compress_two_of_four().unwrap();
        assert_eq!((values.shape(), places.shape()), (&[5, 12][..], &[5, 3][..]));
        assert_eq!(bits(&values.decompress_two_of_four(&places).unwrap()), bits(&weight));
    }
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let weight = weight.to_dtype(dtype).unwrap();
        let (values, places) = weight.compress_two_of_four().unwrap();
        let back = values.decompress_two_of_four(&places).unwrap();
        assert_eq!((values.dtype(), back.dtype()), (dtype, dtype));
        assert_eq!(back.to_bytes().unwrap(), weight.to_bytes().unwrap(), "{dtype}");
    }
    for shape in [[0, 16], [3, 0]] {
        let (values, places) = array(&[], &shape).compress_two_of_four().unwrap();
        assert_eq!(values.decompress_two_of_four(&places).unwrap().shape(), shape);
    }
}

#[test]
fn products_are_those_of_the_matrix() {
    let weight = scattered(&[7, 40]).keep_two_of_four().unwrap();
    let (values, places) = weight.compress_two_of_four().unwrap();
    let shapes: [(&[usize], &[usize]); 6] = [
        (&[40], &[7]),
        (&[1, 40], &[1, 7]),
        (&[1, 1, 40], &[1, 1, 7]),
        (&[5, 40], &[5, 7]),
        (&[2, 3, 40], &[2, 3, 7]),
        (&[0, 40], &[0, 7]),
    ];
    for (shape, result) in shapes {
        let x = scattered(shape);
        let found = x.matmul_sparse(&values, &places).unwrap();
        assert_eq!((found.dtype(), found.shape()), (DType::F64, result));
        let (found, expected) = (found.to_vec::<f64>().unwrap(), product(&x, &weight));
        assert_eq!(found.len(), expected.len());
        let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9;
        assert!(found.iter().zip(&expected).all(is_close), "{shape:?}: {found:?} instead of {expected:?}");
    }
}

#[test]
fn what_is_not_kept_is_a_zero_or_left_out() {
    let weight = array(&[1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &[1, 8]);
    let (values, places) = weight.compress_two_of_four().unwrap();
    for rows in [1, 2] {
        let mut x = vec![1.0; rows * 8];
        x[7] = INFINITY;
        let found = array(&x, &[rows, 8]).matmul_sparse(&values, &places).unwrap().to_vec::<f64>().unwrap();
        // One row leaves out what is not kept; otherwise it is an infinity times zero.
        assert_eq!(found[0].is_nan(), rows > 1);
        assert_eq!(found[rows - 1], 3.0);
    }
}

#[test]
fn of_equal_places_the_first_counts() {
    let device = reference_device();
    let places = Tensor::from_slice(&[0u8], &[1, 1], device).unwrap();
    let dense = array(&[1.0, 2.0, 3.0, 4.0], &[1, 4]).decompress_two_of_four(&places).unwrap();
    assert_eq!(dense.to_vec::<f64>().unwrap(), [1.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]);
}

#[test]
fn floats_are_promoted() {
    let (values, places) = scattered(&[3, 16]).keep_two_of_four().unwrap().compress_two_of_four().unwrap();
    let found = scattered(&[2, 16]).matmul_sparse(&values.to_dtype(DType::F32).unwrap(), &places).unwrap();
    assert_eq!(found.dtype(), DType::F64);
}

#[test]
fn what_does_not_fit_is_refused() {
    let weight = scattered(&[3, 16]);
    let error = weight.compress_two_of_four().err().unwrap();
    assert!(
        matches!(error, Error::Argument { .. }) && error.to_string().contains("keep_two_of_four"),
        "{error}"
    );
    let kept = weight.keep_two_of_four().unwrap();
    let (values, places) = kept.compress_two_of_four().unwrap();
    for shape in [&[][..], &[6], &[4, 0, 2]] {
        let found = scattered(shape).keep_two_of_four();
        assert!(matches!(found, Err(Error::Shape { .. })), "{shape:?}");
    }
    for shape in [&[][..], &[8], &[2, 12], &[2, 2, 8]] {
        let found = Tensor::zeros(shape, DType::F64, reference_device()).unwrap().compress_two_of_four();
        assert!(matches!(found, Err(Error::Shape { .. })), "{shape:?}");
    }
    for dtype in [DType::I32, DType::Bool, DType::F8E4M3] {
        let wrong = Tensor::zeros(&[8, 8], dtype, reference_device()).unwrap();
        assert!(matches!(wrong.keep_two_of_four(), Err(Error::DType { .. })), "{dtype}");
        assert!(matches!(wrong.compress_two_of_four(), Err(Error::DType { .. })), "{dtype}");
    }
    let x = scattered(&[2, 16]);
    let wide = places.to_dtype(DType::I32).unwrap();
    let narrow = values.to_dtype(DType::F8E4M3).unwrap();
    assert!(matches!(x.matmul_sparse(&values, &wide), Err(Error::DType { .. })));
    assert!(matches!(x.matmul_sparse(&narrow, &places), Err(Error::DType { .. })));
    assert!(matches!(values.decompress_two_of_four(&wide), Err(Error::DType { .. })));
    let short = places.narrow(1, 0, 1).unwrap();
    assert!(matches!(x.matmul_sparse(&values, &short), Err(Error::Shape { .. })));
    assert!(matches!(values.decompress_two_of_four(&short), Err(Error::Shape { .. })));
    for shape in [&[][..], &[8], &[2, 8], &[16, 2]] {
        let found = scattered(shape).matmul_sparse(&values, &places);
        assert!(matches!(found, Err(Error::Shape { .. })), "{shape:?}");
    }
}
