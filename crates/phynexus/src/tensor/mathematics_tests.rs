//! Special functions, representations, interpolation, products and distances. Values are from mpmath (40 digits), NumPy
//! 2 and SciPy, computed on the reference device in `float64`. Gradients are checked by finite differences.

use std::f64::consts::{LN_2, SQRT_2};

use crate::{
    DType, Element, Error, Tensor,
    gradient::tests::harness::{check, values},
    oracle::reference_device,
    tensor::{Generator, MatrixNorm},
};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn array<T: Element>(values: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, reference_device()).unwrap()
}

fn vector(values: &[f64]) -> Tensor {
    array(values, &[values.len()])
}

fn empty(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, dtype, reference_device()).unwrap()
}

/// Compares up to a relative error. NaN equals NaN; the signs of zeros must match.
#[track_caller]
fn is(result: crate::Result<Tensor>, expected: &[f64]) {
    let result = result.unwrap().to_vec::<f64>().unwrap();
    let close = |(&a, &e): (&f64, &f64)| match e {
        _ if e.is_nan() => a.is_nan(),
        0.0 => a == 0.0 && a.is_sign_negative() == e.is_sign_negative(),
        _ => a == e || (a - e).abs() <= 1e-11 * e.abs(),
    };
    let same = result.len() == expected.len() && result.iter().zip(expected).all(close);
    assert!(same, "{result:?} instead of {expected:?}");
}

#[test]
fn erfc_is_that_of_mpmath() {
    let x = [-6.03, -2.53, -0.53, 0.28, 0.53, 0.78, 2.03, 4.03, 5.53, 9.03, 26.03];
    let expected = [
        2.0,
        1.999653713984865,
        1.5464640969351418,
        0.692119931970966,
        0.4535359030648583,
        0.26998956870142116,
        0.004093651556087937,
        1.2031401408208237e-08,
        5.257173189200044e-15,
        2.400772386185757e-37,
        1.1876021564627288e-296,
    ];
    is(vector(&x).erfc(), &expected);
    is(vector(&[INF, -INF, NAN]).erfc(), &[0.0, 2.0, NAN]);
    for low in [-1.0, 0.55, 2.1, 4.1] {
        check(&[values(&[5], low + 0.003, low + 0.4)], 1, &|x| x[0].erfc());
    }
}

#[test]
fn erfinv_is_that_of_mpmath() {
    let x = [-0.999999, -0.9, -0.5, -0.1, 0.0, 1e-9, 0.3, 0.84, 0.86, 0.99, 0.9999999999];
    let expected = [
        -3.458910737275499,
        -1.1630871536766743,
        -0.4769362762044699,
        -0.08885599049425769,
        0.0,
        8.86226925452758e-10,
        0.2724627147267543,
        0.9935356283473041,
        1.0435418436397588,
        1.8213863677184494,
        4.572824958544925,
    ];
    is(vector(&x).erfinv(), &expected);
    is(vector(&[1.0, -1.0, 1.5, -2.0, NAN, INF]).erfinv(), &[INF, -INF, NAN, NAN, NAN, NAN]);
    check(&[values(&[5], -0.8, 0.8)], 1, &|x| x[0].erfinv());
    check(&[values(&[5], 0.88, 0.97)], 1, &|x| x[0].erfinv());
}

#[test]
fn dtypes_of_special_functions() {
    for function in [Tensor::erfc, Tensor::erfinv] {
        for (given, expected) in [
            (DType::F16, DType::F16),
            (DType::F64, DType::F64),
            (DType::I8, DType::F32),
            (DType::Bool, DType::F32),
        ] {
            let result = function(&empty(given, &[0, 2])).unwrap();
            assert_eq!((result.dtype(), result.shape()), (expected, &[0, 2][..]));
        }
    }
    let (ints, wide) = (empty(DType::I32, &[2, 1]), empty(DType::F64, &[3]));
    for function in [Tensor::hypot, Tensor::logaddexp, Tensor::xlogy, Tensor::copysign, Tensor::fmod] {
        let result = function(&ints, &wide).unwrap();
        assert_eq!((result.dtype(), result.shape()), (DType::F64, &[2, 3][..]));
        assert!(matches!(function(&wide, &empty(DType::F64, &[2])), Err(Error::Shape { .. })));
        assert_eq!(function(&empty(DType::F32, &[0]), &empty(DType::F32, &[1])).unwrap().shape(), &[0]);
    }
    assert_eq!(ints.hypot(&ints).unwrap().dtype(), DType::F32);
    assert_eq!(ints.logaddexp(&ints).unwrap().dtype(), DType::F32);
    assert!(matches!(empty(DType::Bool, &[1]).hypot(&ints), Err(Error::DType { .. })));
}

#[test]
fn xlogy_is_that_of_mpmath() {
    let (x, y) = (vector(&[2.0, 0.5, -1.5]), vector(&[3.0, 0.25, 7.0]));
    is(x.xlogy(&y), &[2.1972245773362196, -LN_2, -2.9188652235829697]);
    let zeros = vector(&[0.0; 5]).xlogy(&vector(&[0.0, -1.0, INF, NAN, 2.0]));
    is(zeros, &[0.0, 0.0, 0.0, NAN, 0.0]);
    is(vector(&[1.0, 2.0, NAN]).xlogy(&vector(&[0.0, -1.0, 1.0])), &[-INF, NAN, NAN]);
    check(&[values(&[2, 3], -1.0, 2.0), values(&[3], 0.4, 3.0)], 2, &|x| x[0].xlogy(&x[1]));
}

#[test]
fn hypot_is_that_of_mpmath() {
    let x = vector(&[3.0, 1e200, 1e-200, -5.0, 1.0, 0.0]);
    let y = vector(&[4.0, 1e200, 2e-200, 12.0, 1e-9, -0.0]);
    is(x.hypot(&y), &[5.0, 1.414213562373095e200, 2.2360679774997897e-200, 13.0, 1.0, 0.0]);
    is(vector(&[INF, NAN, 1.0]).hypot(&vector(&[NAN, -INF, NAN])), &[INF, INF, NAN]);
    check(&[values(&[2, 1], 0.5, 2.0), values(&[3], -3.0, -2.1)], 2, &|x| x[0].hypot(&x[1]));
}

#[test]
fn logaddexp_is_that_of_mpmath() {
    let x = vector(&[0.0, 1.0, 1000.0, -800.0, 3.0]);
    let y = vector(&[0.0, -2.0, 1000.5, -801.0, -40.0]);
    let expected = [LN_2, 1.048587351573742, 1000.9740769841801, -799.6867383124818, 3.0];
    is(x.logaddexp(&y), &expected);
    let (x, y) = (vector(&[INF, -INF, -INF, 1.0, NAN]), vector(&[INF, -INF, 2.0, INF, -INF]));
    is(x.logaddexp(&y), &[INF, -INF, 2.0, INF, NAN]);
    check(&[values(&[2, 1], -1.0, 2.0), values(&[3], -4.0, -1.1)], 2, &|x| x[0].logaddexp(&x[1]));
}

#[test]
fn signs_and_neighbours_are_those_of_numpy() {
    let bits = vector(&[0.0, -0.0, 1.0, -1.0, INF, -INF]).signbit().unwrap();
    assert_eq!(bits.to_vec::<bool>().unwrap(), [false, true, false, true, false, true]);
    assert_eq!(array(&[-1i8, 0, 1], &[3]).signbit().unwrap().to_vec::<bool>().unwrap(), [true, false, false]);
    assert_eq!(array(&[255u8], &[1]).signbit().unwrap().to_vec::<bool>().unwrap(), [false]);
    let half = array(&[-0.0f32, 2.0], &[2]).to_dtype(DType::BF16).unwrap();
    assert_eq!(half.signbit().unwrap().to_vec::<bool>().unwrap(), [true, false]);

    let (x, sign) = (vector(&[1.5, -2.0, 0.0, INF]), vector(&[-0.0, 3.0, -1.0, -INF]));
    is(x.copysign(&sign), &[-1.5, 2.0, -0.0, -INF]);
    check(&[values(&[4], 0.5, 2.0), values(&[4], -2.0, -0.5)], 1, &|x| x[0].copysign(&x[1]));

    let (x, to) = (vector(&[1.0, 1.0, 0.0, 0.0, -1.0, 3.0]), vector(&[2.0, 0.0, 1.0, -1.0, -2.0, 3.0]));
    let next = x.nextafter(&to).unwrap().to_vec::<f64>().unwrap();
    assert_eq!(next, [1.0000000000000002, 0.9999999999999999, 5e-324, -5e-324, -1.0000000000000002, 3.0]);
    is(vector(&[NAN, 1.0, f64::MAX]).nextafter(&vector(&[1.0, NAN, INF])), &[NAN, NAN, INF]);
    let single = array(&[1f32], &[1]).nextafter(&array(&[2f32, 0.0], &[2])).unwrap();
    assert_eq!(single.to_vec::<f32>().unwrap(), [1.000_000_1, 0.999_999_94]);
    assert!(matches!(array(&[1i32], &[1]).nextafter(&array(&[2i32], &[1])), Err(Error::DType { .. })));
    assert!(matches!(x.with_grad().unwrap().nextafter(&to), Err(Error::NoGradient { .. })));
}

#[test]
fn numbers_that_are_not_finite_are_replaced() {
    let x = [NAN, INF, -INF, 2.5];
    is(vector(&x).nan_to_num(0.0, None, None), &[0.0, f64::MAX, f64::MIN, 2.5]);
    is(vector(&x).nan_to_num(-1.0, Some(7.0), Some(-8.0)), &[-1.0, 7.0, -8.0, 2.5]);
    let half = vector(&x).to_dtype(DType::F16).unwrap().nan_to_num(0.0, None, None).unwrap();
    is(half.to_dtype(DType::F64), &[0.0, 65504.0, -65504.0, 2.5]);
    let integers = array(&[1i32, 2], &[2]);
    assert!(integers.nan_to_num(0.0, None, None).unwrap().is_same(&integers));
    check(&[values(&[4], -2.0, 2.0)], 1, &|x| x[0].nan_to_num(0.0, None, None));
}

#[test]
fn fractions_and_remainders_are_those_of_numpy() {
    is(vector(&[1.25, -1.25, 3.0, INF, NAN]).frac(), &[0.25, -0.25, 0.0, NAN, NAN]);
    assert_eq!(array(&[3i32, -3], &[2]).frac().unwrap().to_vec::<i32>().unwrap(), [0, 0]);
    assert!(empty(DType::Bool, &[1]).frac().is_err());
    let (x, y) = (vector(&[7.5, -7.5, 7.5, -7.5, 0.3]), vector(&[2.0, 2.0, -2.0, -2.0, 0.1]));
    is(x.fmod(&y), &[1.5, -1.5, 1.5, -1.5, 0.09999999999999998]);
    is(vector(&[1.0, -INF, 5.0, NAN]).fmod(&vector(&[0.0, 2.0, INF, 1.0])), &[NAN, NAN, 5.0, NAN]);
    is(vector(&[7.5, -7.5]).fmod_scalar(-2), &[1.5, -1.5]);
    let bytes = array(&[i8::MIN, -7, 7, -7, 7], &[5]);
    let rest = bytes.fmod(&array(&[-1i8, 2, -2, 0, 0], &[5])).unwrap();
    assert_eq!(rest.to_vec::<i8>().unwrap(), [0, -1, 1, 0, 0]);
    assert_eq!(bytes.fmod_scalar(3).unwrap().to_vec::<i8>().unwrap(), [-2, -1, 1, -1, 1]);
    assert!(matches!(bytes.fmod_scalar(300), Err(Error::Argument { .. })));
    check(&[values(&[3], 4.1, 5.9), values(&[3], 1.6, 1.9)], 1, &|x| x[0].fmod(&x[1]));
}

#[test]
fn tensors_are_interpolated_and_products_added() {
    let (a, b) = (vector(&[1.0, 2.0]), vector(&[5.0, -2.0]));
    is(a.lerp_scalar(&b, 0.25), &[2.0, 1.0]);
    is(a.lerp(&b, &array(&[0.0, 1.0], &[2, 1])), &[1.0, 2.0, 5.0, -2.0]);
    is(a.addcmul(&a, &b, 0.5), &[3.5, 0.0]);
    is(a.addcdiv(&a, &b, 10), &[3.0, -8.0]);
    let (x, y) = (array(&[1.0, 2.0, 3.0, 4.0], &[2, 2]), array(&[0.0, 1.0, 1.0, 0.0], &[2, 2]));
    is(vector(&[10.0, 20.0]).addmm(&x, &y, 2, 0.5), &[21.0, 40.5, 22.0, 41.5]);
    is(vector(&[NAN, NAN]).addmm(&x, &y, 0, 1), &[2.0, 1.0, 4.0, 3.0]);
    is(vector(&[1.0, 1.0]).addmm(&x, &vector(&[1.0, 1.0]), 1, 1), &[4.0, 8.0]);
    assert_eq!(
        empty(DType::I32, &[0]).lerp_scalar(&empty(DType::I32, &[0]), 0.5).unwrap().dtype(),
        DType::F32
    );
    let three = [values(&[2, 3], 0.4, 2.0), values(&[3], 1.0, 3.0), values(&[2, 1], 0.5, 1.5)];
    check(&three, 2, &|x| x[0].lerp(&x[1], &x[2]));
    check(&three, 2, &|x| x[0].addcmul(&x[1], &x[2], -1.5));
    check(&three, 2, &|x| x[0].addcdiv(&x[1], &x[2], 0.7));
}

#[test]
fn sums_of_products_are_those_of_numpy() {
    let ramp = |shape: &[usize]| {
        let count: usize = shape.iter().product();
        array(&(0..count).map(|i| i as f64).collect::<Vec<_>>(), shape)
    };
    is(ramp(&[2, 3, 2]).tensordot(&ramp(&[3, 2]), &[1, 2], &[0, 1]), &[55.0, 145.0]);
    is(ramp(&[2, 3]).inner(&ramp(&[3, 3])), &[5.0, 14.0, 23.0, 14.0, 50.0, 86.0]);
    is(ramp(&[2]).inner(&ramp(&[])), &[0.0, 0.0]);
    is(ramp(&[2, 3]).vecdot(&vector(&[1.0, 0.0, -1.0]), -1), &[-2.0, -2.0]);
    let outer = ramp(&[2]).tensordot(&ramp(&[3]), &[], &[]).unwrap();
    assert_eq!((outer.shape(), outer.to_vec::<f64>().unwrap()), (&[2, 3][..], vec![0., 0., 0., 0., 1., 2.]));
    assert_eq!(
        ramp(&[2, 0]).tensordot(&ramp(&[0, 3]), &[1], &[0]).unwrap().to_vec::<f64>().unwrap(),
        [0.0; 6]
    );
    assert!(matches!(ramp(&[2]).tensordot(&ramp(&[3]), &[0], &[0]), Err(Error::Shape { .. })));
    assert!(matches!(ramp(&[2, 2]).tensordot(&ramp(&[2, 2]), &[0, 0], &[0, 1]), Err(Error::Argument { .. })));
    assert!(matches!(ramp(&[2]).vecdot(&ramp(&[3]), -1), Err(Error::Shape { .. })));
    check(&[values(&[2, 3], -1.0, 1.0), values(&[3, 2], -1.0, 1.0)], 2, &|x| {
        x[0].tensordot(&x[1], &[0], &[1])
    });

    let matrix = array(&[1.0, 2.0, 3.0, 4.0], &[2, 2]);
    is(matrix.matrix_power(5), &[1069.0, 1558.0, 2337.0, 3406.0]);
    is(matrix.matrix_power(0), &[1.0, 0.0, 0.0, 1.0]);
    assert!(matches!(ramp(&[2, 3]).matrix_power(2), Err(Error::Shape { .. })));
    assert_eq!(ramp(&[3, 0, 0]).matrix_power(2).unwrap().shape(), &[3, 0, 0]);
}

#[test]
fn distances_are_those_of_scipy() {
    let a = array(&[0.0, 1.0, 2.0, 3.0, 5.0, 4.0], &[2, 3]);
    let b = array(&[1.0, 1.0, 1.0, 0.0, 1.0, 2.0, 7.0, 0.0, -1.0], &[3, 3]);
    is(a.cdist(&b, 1), &[2.0, 0.0, 11.0, 9.0, 9.0, 14.0]);
    let two = [SQRT_2, 0.0, 7.681145747868608, 5.385164807134504, 5.385164807134504, 8.12403840463596];
    is(a.cdist(&b, 2), &two);
    let three =
        [1.2599210498948732, 0.0, 7.18551615065319, 4.626065009182741, 4.626065009182741, 6.7968843858592365];
    is(a.cdist(&b, 3), &three);
    is(a.cdist(&b, INF), &[1.0, 0.0, 7.0, 4.0, 4.0, 5.0]);
    is(a.cdist(&b, 0), &[2.0, 0.0, 3.0, 3.0, 3.0, 3.0]);
    assert_eq!(a.cdist(&empty(DType::F64, &[0, 3]), 2).unwrap().shape(), &[2, 0]);
    assert!(matches!(a.cdist(&empty(DType::F64, &[2, 2]), 2), Err(Error::Shape { .. })));
    is(a.dist(&array(&[0.0, 1.0, 2.0], &[3]), 2.0), &[5.385164807134504]);
    // The gradient between equal rows is 0.
    let same = a.with_grad().unwrap();
    same.cdist(&a, 2).unwrap().sum(&[], false).unwrap().backward().unwrap();
    assert!(same.grad().unwrap().to_vec::<f64>().unwrap().iter().all(|gradient| gradient.is_finite()));
    let inputs = [values(&[2, 3], 0.0, 1.0), values(&[4, 3], 2.0, 3.0)];
    for p in [1.0, 2.0, 3.5] {
        check(&inputs, 1, &|x| x[0].cdist(&x[1], p));
    }
}

#[test]
fn norms_of_matrices_are_those_of_numpy() {
    // np.linalg.norm(m, ord) and np.linalg.cond(m, p). Decompositions need a device that runs custom kernels.
    let m = array(&[1.0, -2.0, 3.0, 4.0, 5.0, -6.0], &[2, 3]);
    let norms = [
        (MatrixNorm::Frobenius, 9.539392014169456),
        (MatrixNorm::Columns, 9.0),
        (MatrixNorm::LeastColumn, 5.0),
        (MatrixNorm::Rows, 15.0),
        (MatrixNorm::LeastRow, 6.0),
    ];
    for (norm, expected) in norms {
        is(m.matrix_norm(norm, false), &[expected]);
        assert_eq!(m.unsqueeze(0).unwrap().matrix_norm(norm, true).unwrap().shape(), &[1, 1, 1]);
        assert!(matches!(vector(&[1.0]).matrix_norm(norm, false), Err(Error::Shape { .. })));
    }
    // The third column has the greatest sum: the gradient is its signs.
    let x = m.with_grad().unwrap();
    x.matrix_norm(MatrixNorm::Columns, false).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f64>().unwrap(), [0.0, 0.0, 1.0, 0.0, 0.0, -1.0]);
}

#[test]
fn powers_and_triangles_are_those_of_numpy() {
    let device = reference_device();
    is(Tensor::logspace(0.0, 3.0, 4, 2.0, DType::F64, device), &[1.0, 2.0, 4.0, 8.0]);
    is(Tensor::logspace(-1.0, 1.0, 3, 10.0, DType::F64, device), &[0.1, 1.0, 10.0]);
    assert_eq!(Tensor::logspace(0.0, 1.0, 0, 10.0, DType::F32, device).unwrap().shape(), &[0]);
    let places = |tensor: crate::Result<Tensor>| tensor.unwrap().to_vec::<i64>().unwrap();
    let (lower, upper) = (Tensor::tril_indices, Tensor::triu_indices);
    assert_eq!(places(lower(2, 3, 0, DType::I64, device)), [0, 1, 1, 0, 0, 1]);
    assert_eq!(places(upper(2, 3, 1, DType::I64, device)), [0, 0, 1, 1, 2, 2]);
    assert_eq!(lower(2, 2, -5, DType::I32, device).unwrap().shape(), &[2, 0]);
    assert!(matches!(upper(2, 2, 0, DType::F32, device), Err(Error::DType { .. })));
}

#[test]
fn samples_follow_their_weights() {
    let weights = array(&[0.0f32, 1.0, 0.0, 3.0], &[4]);
    let drawn = Generator::new(1).multinomial(&weights, 400, true).unwrap().to_vec::<i64>().unwrap();
    let threes = drawn.iter().filter(|&&place| place == 3).count();
    assert!(drawn.iter().all(|place| [1, 3].contains(place)) && (250..350).contains(&threes));
    let mut both = Generator::new(2).multinomial(&weights, 2, false).unwrap().to_vec::<i64>().unwrap();
    both.sort_unstable();
    assert_eq!(both, [1, 3]);
    assert_eq!(array(&[1.0; 6], &[2, 3]).multinomial(2, false).unwrap().shape(), &[2, 2]);
    for wrong in [[1.0, -1.0], [NAN, 1.0], [INF, 1.0], [0.0, 0.0]] {
        assert!(matches!(vector(&wrong).multinomial(1, true), Err(Error::Argument { .. })));
    }
    assert!(matches!(weights.multinomial(3, false), Err(Error::Argument { .. })));
    assert!(matches!(empty(DType::F32, &[0, 0]).multinomial(1, true), Err(Error::Argument { .. })));
    assert!(matches!(array(&[1i32], &[1]).multinomial(1, true), Err(Error::DType { .. })));
    assert!(matches!(array(&[1.0], &[]).multinomial(1, true), Err(Error::Shape { .. })));
}
