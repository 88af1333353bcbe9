//! Order statistics, counts, differences and integrals. Values are from NumPy 2 (the calls are in the tests) or worked
//! out by hand, computed on the reference device. Gradients are checked by finite differences.

use crate::{
    DType, Element, Error, Result, Tensor,
    gradient::tests::harness::{check, values},
    oracle::reference_device,
    tensor::QuantileMethod,
};

const NAN: f64 = f64::NAN;
const X: [f64; 8] = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];

fn array<T: Element>(values: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, reference_device()).unwrap()
}

fn vector(values: &[f64]) -> Tensor {
    array(values, &[values.len()])
}

#[track_caller]
fn is(result: Result<Tensor>, expected: &[f64]) {
    let result = result.unwrap().to_vec::<f64>().unwrap();
    let close =
        |(&a, &e): (&f64, &f64)| a.is_nan() && e.is_nan() || (a - e).abs() <= 1e-12 * e.abs().max(1.0);
    let same = result.len() == expected.len() && result.iter().zip(expected).all(close);
    assert!(same, "{result:?} instead of {expected:?}");
}

#[track_caller]
fn are(result: Result<(Tensor, Tensor)>, values: &[f64], places: &[i64]) {
    let (value, place) = result.unwrap();
    is(Ok(value), values);
    assert_eq!(place.to_vec::<i64>().unwrap(), places);
}

#[test]
fn medians_modes_and_ranks() {
    let x = vector(&X);
    are(x.median(0, false), &[3.0], &[0]);
    are(x.kthvalue(7, 0, true), &[6.0], &[7]);
    are(x.mode(0, false), &[1.0], &[3]);
    let rows = array(&[2.0, NAN, 1.0, 3.0, 5.0, 4.0], &[2, 3]);
    are(rows.median(1, false), &[NAN, 4.0], &[1, 2]);
    are(rows.nanmedian(1, true), &[1.0, 4.0], &[2, 2]);
    are(rows.nanmedian(0, false), &[2.0, 5.0, 1.0], &[0, 1, 0]);
    are(vector(&[NAN, NAN]).nanmedian(0, false), &[NAN], &[0]);
    are(array(&[2.0, 2.0, 3.0, 3.0, 1.0, 4.0], &[3, 2]).mode(0, false), &[1.0, 2.0], &[2, 0]);
    are(array(&[7.0], &[]).median(-1, false), &[7.0], &[0]);
    let integers = array(&[5i32, -1, 3], &[3]).median(0, false).unwrap().0;
    assert_eq!((integers.dtype(), integers.to_vec::<i32>().unwrap()), (DType::I32, vec![3]));
    for function in [Tensor::median, Tensor::nanmedian, Tensor::mode] {
        let nothing = Tensor::zeros(&[2, 0], DType::F64, reference_device()).unwrap();
        assert!(matches!(function(&nothing, 1, false), Err(Error::Shape { .. })));
        assert_eq!(function(&nothing, 0, false).unwrap().0.shape(), &[0]);
        assert!(matches!(function(&rows, 2, false), Err(Error::Axis { .. })));
        check(&[values(&[3, 4], -1.0, 1.0)], 1, &|x| Ok(function(&x[0], 0, false)?.0));
    }
    are(array(&[7.0], &[]).kthvalue(1, 0, false), &[7.0], &[0]);
    for (x, k) in [(&x, 0), (&x, 9), (&array(&[7.0], &[]), 2)] {
        assert!(matches!(x.kthvalue(k, 0, false), Err(Error::Argument { .. })));
    }
}

#[test]
fn quantiles_are_those_of_numpy() {
    // np.quantile(X, Q, method=...)
    const Q: [f64; 6] = [0.0, 0.1, 0.25, 0.5, 0.9, 1.0];
    for (method, expected) in [
        (QuantileMethod::Linear, [1.0, 1.0, 1.75, 3.5, 6.9, 9.0]),
        (QuantileMethod::Lower, [1.0, 1.0, 1.0, 3.0, 6.0, 9.0]),
        (QuantileMethod::Higher, [1.0, 1.0, 2.0, 4.0, 9.0, 9.0]),
        (QuantileMethod::Midpoint, [1.0, 1.0, 1.5, 3.5, 7.5, 9.0]),
        (QuantileMethod::Nearest, [1.0, 1.0, 2.0, 4.0, 6.0, 9.0]),
    ] {
        is(vector(&X).quantile(&Q, None, false, method), &expected);
    }
    let rows = array(&[1.0, 3.0, NAN, 0.0], &[2, 2]);
    let linear = QuantileMethod::Linear;
    is(rows.quantile(&[0.5, 1.0], Some(1), false, linear), &[2.0, NAN, 3.0, NAN]);
    assert_eq!(rows.quantile(&[0.5], Some(-1), true, linear).unwrap().shape(), &[1, 2, 1]);
    assert_eq!(rows.quantile(&[0.5], None, true, linear).unwrap().shape(), &[1, 1, 1]);
    for q in [&[1.5][..], &[-0.1], &[NAN], &[]] {
        assert!(rows.quantile(q, None, false, linear).is_err());
    }
    assert!(vector(&[]).quantile(&[0.5], None, false, linear).is_err());
    assert_eq!(array(&[1i32, 2], &[2]).quantile(&[0.0], None, false, linear).unwrap().dtype(), DType::F32);
    check(&[values(&[5], -1.0, 1.0)], 1, &|x| x[0].quantile(&[0.3, 0.55], None, false, linear));
}

#[test]
fn counts_and_sums_without_nan() {
    let x = array(&[1.0, NAN, 0.0, 2.0], &[2, 2]);
    is(x.nansum(&[], false), &[3.0]);
    is(x.nansum(&[1], true), &[1.0, 2.0]);
    is(x.nanmean(&[0], false), &[0.5, 2.0]);
    is(vector(&[NAN]).nanmean(&[], false), &[NAN]);
    is(vector(&[]).nansum(&[], false), &[0.0]);
    assert_eq!(x.count_nonzero(&[], false).unwrap().to_vec::<i64>().unwrap(), [3]);
    assert_eq!(x.count_nonzero(&[1], false).unwrap().to_vec::<i64>().unwrap(), [2, 1]);
    assert!(matches!(array(&[1i32], &[1]).nanmean(&[], false), Err(Error::DType { .. })));
    check(&[values(&[2, 3], -1.0, 1.0)], 1, &|x| x[0].nanmean(&[1], false));

    let labels = array(&[3u8, 0, 3], &[3]);
    assert_eq!(labels.bincount(None, 0).unwrap().to_vec::<i64>().unwrap(), [1, 0, 0, 2]);
    is(labels.bincount(Some(&vector(&[0.5, 2.0, 0.25])), 6), &[2.0, 0.0, 0.0, 0.75, 0.0, 0.0]);
    assert_eq!(array::<i64>(&[], &[0]).bincount(None, 2).unwrap().to_vec::<i64>().unwrap(), [0, 0]);
    assert!(matches!(array(&[-1i32], &[1]).bincount(None, 0), Err(Error::Argument { .. })));
    assert!(matches!(vector(&[1.0]).bincount(None, 0), Err(Error::Argument { .. })));
    // np.histogram(..., 4, (0, 4)) and np.histogram(..., 3)
    is(vector(&[0.0, 0.5, 1.0, 1.0, 2.0, 3.0, 4.0]).histc(4, 0, 4), &[2.0, 2.0, 1.0, 2.0]);
    is(vector(&[-1.0, 0.5, 2.5, 3.0]).histc(3, 0, 0), &[1.0, 1.0, 2.0]);
    is(vector(&[5.0, -5.0, 0.1]).histc(2, -1, 1), &[0.0, 1.0]);
    is(vector(&[]).histc(2, 0, 0), &[0.0, 0.0]);
    // As PyTorch's CUDA kernel, in float32: 0.1 is below 0.1 in float16, and 10 times it would round to 1.
    let tenths: Vec<f32> = (1..10).map(|i| i as f32 / 10.0).collect();
    let counts = array(&tenths, &[9]).to_dtype(DType::F16).unwrap().histc(10, 0, 1).unwrap();
    assert_eq!(counts.dtype(), DType::F16);
    is(counts.to_dtype(DType::F64), &[1.0, 1.0, 0.0, 2.0, 0.0, 1.0, 1.0, 2.0, 1.0, 0.0]);
    // Differences beyond the dtype of integers.
    let counts = array(&[100i8, -100], &[2]).histc(2, -100, 100).unwrap();
    assert_eq!(counts.to_vec::<i8>().unwrap(), [1, 1]);
    // In float32, the element would round to 20,000,000, where the next bin begins.
    let counts = array(&[19_999_999i64], &[1]).histc(10, 0, 100_000_000).unwrap();
    assert_eq!(counts.to_vec::<i64>().unwrap(), [0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(vector(&[1.0]).histc(0, 0, 1), Err(Error::Argument { .. })));
    assert!(matches!(vector(&[1.0]).histc(2, 1, 0), Err(Error::Argument { .. })));
    assert!(matches!(vector(&[NAN]).histc(2, 0, 0), Err(Error::Argument { .. })));
}

#[test]
fn differences_and_integrals_are_those_of_numpy() {
    let y = array(&[1.0, 2.0, 4.0, 8.0, 0.0, -1.0, 3.0, 5.0], &[2, 4]);
    is(y.diff(2, -1), &[1.0, 2.0, 5.0, -2.0]);
    is(y.diff(0, 0), &[1.0, 2.0, 4.0, 8.0, 0.0, -1.0, 3.0, 5.0]);
    assert_eq!(y.diff(9, 1).unwrap().shape(), &[2, 0]);
    assert_eq!(
        array(&[true, true, false], &[3]).diff(1, 0).unwrap().to_vec::<bool>().unwrap(),
        [false, true]
    );
    assert!(matches!(array(&[1.0], &[]).diff(1, 0), Err(Error::Axis { .. })));
    is(y.trapezoid(0.5, 1), &[5.25, 2.25]);
    is(y.trapezoid(2.0, 0), &[1.0, 1.0, 7.0, 13.0]);
    let x = vector(&[0.0, 1.0, 1.5, 4.0]);
    is(y.trapezoid_at(&x, 1), &[18.0, 10.0]);
    is(y.trapezoid_at(&x.unsqueeze(0).unwrap(), -1), &[18.0, 10.0]);
    is(vector(&[7.0]).trapezoid(1.0, 0), &[0.0]);
    is(vector(&[]).trapezoid(1.0, 0), &[0.0]);
    is(vector(&[]).trapezoid_at(&x, 0), &[0.0]);
    assert!(matches!(y.trapezoid_at(&vector(&[0.0, 1.0]), 1), Err(Error::Argument { .. })));
    assert!(matches!(array(&[1.0], &[]).trapezoid(1.0, 0), Err(Error::Axis { .. })));
    check(&[values(&[2, 4], -1.0, 1.0)], 1, &|x| x[0].diff(2, 1));
    check(&[values(&[2, 4], -1.0, 1.0), values(&[4], 0.0, 3.0)], 2, &|x| x[0].trapezoid_at(&x[1], 1));
}

#[test]
fn diagonals_and_rotations() {
    let cube = array(&(0..12).map(f64::from).collect::<Vec<_>>(), &[2, 2, 3]);
    is(cube.diagonal(0, 1, 2), &[0.0, 4.0, 6.0, 10.0]);
    is(cube.diagonal(1, -2, -1), &[1.0, 5.0, 7.0, 11.0]);
    is(cube.diagonal(0, 0, 1), &[0.0, 9.0, 1.0, 10.0, 2.0, 11.0]);
    is(cube.diagonal(-1, 0, 2), &[6.0, 9.0]);
    assert_eq!(cube.diagonal(i64::MIN, 0, 1).unwrap().shape(), &[3, 0]);
    assert!(matches!(cube.diagonal(0, 1, -2), Err(Error::Argument { .. })));
    is(vector(&[1.0, 2.0]).diag_embed(0, -2, -1), &[1.0, 0.0, 0.0, 2.0]);
    is(vector(&[1.0]).diag_embed(1, 0, 1), &[0.0, 1.0, 0.0, 0.0]);
    is(vector(&[1.0]).diag_embed(1, 1, 0), &[0.0, 0.0, 1.0, 0.0]);
    is(vector(&[1.0]).diag_embed(-1, 0, 1), &[0.0, 0.0, 1.0, 0.0]);
    assert_eq!(array(&[0.0; 6], &[2, 3]).diag_embed(0, 0, 2).unwrap().shape(), &[3, 2, 3]);
    assert_eq!(vector(&[]).diag_embed(0, 0, 1).unwrap().shape(), &[0, 0]);
    assert!(vector(&[1.0]).diag_embed(i64::MAX, 0, 1).is_err());
    let square = array(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    is(square.rot90(1, [0, 1]), &[2.0, 4.0, 1.0, 3.0]);
    is(square.rot90(-1, [0, 1]), &[3.0, 1.0, 4.0, 2.0]);
    is(square.rot90(2, [0, 1]), &[4.0, 3.0, 2.0, 1.0]);
    is(square.rot90(4, [0, 1]), &[1.0, 2.0, 3.0, 4.0]);
    assert!(matches!(square.rot90(1, [1, -1]), Err(Error::Argument { .. })));
    check(&[values(&[2, 3, 3], -1.0, 1.0)], 1, &|x| x[0].diagonal(1, 2, 0));
    check(&[values(&[2, 3], -1.0, 1.0)], 1, &|x| x[0].diag_embed(-1, 0, 2));
}

#[test]
fn slices_and_masked_elements_are_written() {
    let x = array(&[0.0; 6], &[2, 3]);
    let index = array(&[2i64, 0], &[2]);
    let source = array(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    is(x.index_copy(1, &index, &source), &[2.0, 0.0, 1.0, 4.0, 0.0, 3.0]);
    is(x.index_fill(-1, &index, 7), &[7.0, 0.0, 7.0, 7.0, 0.0, 7.0]);
    assert!(matches!(x.index_copy(2, &index, &source), Err(Error::Axis { .. })));
    assert!(matches!(x.index_fill(0, &index, 7), Err(Error::Index { .. })));
    assert!(matches!(x.index_fill(1, &vector(&[1.0]), 7), Err(Error::DType { .. })));
    assert!(matches!(x.index_fill(1, &source, 7), Err(Error::Shape { .. })));
    let mask = array(&[true, false, true], &[3]);
    is(x.masked_scatter(&mask, &vector(&[1.0, 2.0, 3.0, 4.0, 5.0])), &[1.0, 0.0, 2.0, 3.0, 0.0, 4.0]);
    is(x.masked_scatter(&array(&[false], &[1]), &vector(&[])), &[0.0; 6]);
    assert!(matches!(x.masked_scatter(&mask, &vector(&[1.0])), Err(Error::Argument { .. })));
    let found = vector(&[1.0, NAN, 2.0, 9.0]).isin(&array(&[2.0, NAN, 0.0, 1.0], &[2, 2])).unwrap();
    assert_eq!(found.to_vec::<bool>().unwrap(), [true, false, true, false]);
    assert_eq!(vector(&[1.0]).isin(&vector(&[])).unwrap().to_vec::<bool>().unwrap(), [false]);
    check(&[values(&[2, 3], -1.0, 1.0), values(&[2, 2], -1.0, 1.0)], 1, &|x| {
        let device = x[0].device();
        x[0].index_copy(1, &Tensor::arange(0, 2, 1, DType::I64, device)?, &x[1])
    });
}

#[test]
fn integers_do_not_wrap() {
    let is = |result: Result<Tensor>, expected: &[f64]| {
        let result = result.unwrap().to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap();
        assert!((result[0] - expected[0]).abs() <= 1e-6 * expected[0].abs(), "{result:?}, not {expected:?}");
    };
    // np.quantile, np.trapezoid, scipy.spatial.distance and np.hypot of the same integers as floats.
    let bytes = array(&[-128i8, 127], &[2]);
    is(bytes.quantile(&[0.5], None, false, QuantileMethod::Linear), &[-0.5]);
    is(array(&[100i8, 100], &[2]).trapezoid(1.0, 0), &[100.0]);
    is(array(&[-128i8], &[1]).hypot(&array(&[0i8], &[1])), &[128.0]);
    is(array(&[1u8], &[1]).logaddexp(&array(&[2u8], &[1])), &[2.313_261_687_518_222_6]);
    is(array(&[3u8], &[1]).lerp_scalar(&array(&[1u8], &[1]), 0.5), &[2.0]);
    is(array(&[1u8, 9], &[2]).dist(&array(&[3u8, 4], &[2]), 1.0), &[7.0]);
    let (a, b) = (array(&[1u8, 200], &[1, 2]), array(&[201u8, 100], &[1, 2]));
    for (p, expected) in [(1.0, 300.0), (0.0, 2.0), (f64::INFINITY, 200.0)] {
        is(a.cdist(&b, p), &[expected]);
    }
    for p in [-1.0, NAN] {
        assert!(matches!(a.cdist(&b, p), Err(Error::Argument { .. })));
    }
}
