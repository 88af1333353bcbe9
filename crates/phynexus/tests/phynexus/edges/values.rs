//! Infinities, zeros and sizes for which formulas need care. The expected numbers are PyTorch's.

use phynexus::{Tensor, tensor::Interpolation};

use super::{tensor, vector};

const INF: f64 = f64::INFINITY;
const LINEAR: Interpolation = Interpolation::Linear { align_corners: false };
const CORNERS: Interpolation = Interpolation::Linear { align_corners: true };

/// Compares with a relative tolerance of `1e-12`; NaN must be at the same positions.
fn check(found: &Tensor, expected: &[f64]) {
    let found = found.to_vec::<f64>().unwrap();
    let same =
        |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * b.abs();
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(same),
        "{found:?} is not {expected:?}"
    );
}

fn line(values: &[f64]) -> Tensor {
    tensor(values, &[1, 1, values.len()])
}

#[test]
fn the_logistic_function_reaches_its_limits() {
    let x = [-INF, -1000.0, -100.0, -0.0, 0.0, 20.0, INF, f64::NAN];
    let wide = vector(&x).with_grad().unwrap();
    let y = wide.sigmoid().unwrap();
    y.sum(&[], false).unwrap().backward().unwrap();
    check(&y, &[0.0, 0.0, 3.720075976020836e-44, 0.5, 0.5, 0.9999999979388463, 1.0, f64::NAN]);
    let derivatives = [0.0, 0.0, 3.720075976020836e-44, 0.25, 0.25, 2.061153613941849e-09, 0.0, f64::NAN];
    check(&wide.grad().unwrap(), &derivatives);
    let narrow = vector(&[f32::NEG_INFINITY, -200.0, -90.0, 0.0]).sigmoid().unwrap().to_vec::<f32>().unwrap();
    assert!(
        narrow[..2] == [0.0, 0.0] && narrow[2] > 0.0 && narrow[2] < 1e-38 && narrow[3] == 0.5,
        "{narrow:?}"
    );
}

#[test]
fn the_second_derivative_of_silu_is_right_at_zero() {
    let x = vector(&[0f64]).with_grad().unwrap();
    let y = x.silu().unwrap().sum(&[], false).unwrap();
    let derivative = &y.gradients_create_graph(&[&x]).unwrap()[0];
    check(derivative, &[0.5]);
    check(&derivative.sum(&[], false).unwrap().gradients(&[&x]).unwrap()[0], &[0.5]);
}

#[test]
fn an_infinite_sample_stays_among_its_neighbours() {
    let x = line(&[1.0, 2.0, INF, 4.0, 5.0]);
    check(&x.interpolate(&[8], LINEAR).unwrap(), &[1.0, 1.4375, INF, INF, INF, INF, 4.5625, 5.0]);
    // PyTorch returns NaN next to an infinity: it multiplies the neighbour of an exactly hit sample by 0.
    check(&x.interpolate(&[9], CORNERS).unwrap(), &[1.0, 1.5, 2.0, INF, INF, INF, 4.0, 4.5, 5.0]);
    let x = line(&[INF, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    check(&x.adaptive_avg_pool1d([3]).unwrap(), &[INF, 4.0, 6.0]);
    let x = line(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, f64::NAN]);
    check(&x.adaptive_avg_pool1d([3]).unwrap(), &[2.0, 4.0, f64::NAN]);
}

#[test]
fn samples_are_as_far_apart_as_the_factor_says() {
    let x = line(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    let nearest = |factor| x.interpolate_by(factor, Interpolation::Nearest).unwrap();
    check(&nearest(1.1), &[1.0, 1.0, 2.0, 3.0, 4.0]);
    check(&nearest(1.3), &[1.0, 1.0, 2.0, 3.0, 4.0, 4.0]);
    check(&nearest(2.5), &[1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0]);
    check(&nearest(0.45), &[1.0, 3.0]);
    check(&nearest(2.0), &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0, 5.0]);
    let linear = |factor| x.interpolate_by(factor, LINEAR).unwrap();
    check(&linear(1.1), &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let expected = [1.0, 1.6538461538461537, 2.423076923076923, 3.192307692307692, 3.9615384615384612];
    check(&linear(1.3), &[&expected[..], &[4.73076923076923]].concat());
    check(&linear(0.45), &[1.6111111111111112, 3.8333333333333335]);
    check(&x.interpolate_by(1.3, CORNERS).unwrap(), &[1.0, 1.8, 2.6, 3.4, 4.2, 5.0]);
}

#[test]
fn norms_have_a_gradient_of_zero_at_zero() {
    let gradient = |values: &[f64], p: f64| {
        let x = vector(values).with_grad().unwrap();
        let norm = x.norm(p, &[], false).unwrap();
        norm.backward().unwrap();
        (norm, x.grad().unwrap())
    };
    for p in [0.5, 1.5, 3.0, 4.0] {
        let (norm, derivative) = gradient(&[0.0, 0.0], p);
        check(&norm, &[0.0]);
        check(&derivative, &[0.0, 0.0]);
    }
    let (norm, derivative) = gradient(&[0.0, 2.0, -1.0], 3.0);
    check(&norm, &[2.080083823051904]);
    check(&derivative, &[0.0, 0.9244816991341795, -0.2311204247835449]);
    let (norm, derivative) = gradient(&[0.0, 2.0, -1.0], 0.5);
    check(&norm, &[5.82842712474619]);
    check(&derivative, &[0.0, 1.7071067811865472, -2.414213562373095]);
}

#[test]
fn a_larger_source_is_scattered_by_its_leading_part() {
    let (zeros, index) = (tensor(&[0f64; 15], &[3, 5]), tensor(&[0i64, 1, 2], &[1, 3]));
    let source = tensor(&(0..10).map(f64::from).collect::<Vec<_>>(), &[2, 5]);
    let mut expected = [0.0; 15];
    (expected[6], expected[12]) = (1.0, 2.0);
    check(&zeros.scatter(0, &index, &source).unwrap(), &expected);
    check(&zeros.scatter_add(0, &index, &source).unwrap(), &expected);
    let row = source.narrow(0, 1, 1).unwrap();
    (expected[0], expected[6], expected[12]) = (5.0, 6.0, 7.0);
    check(&zeros.scatter(0, &index, &row).unwrap(), &expected);
}

#[test]
fn a_padding_row_has_no_gradient_under_either_name() {
    for padding in [1, -2] {
        let weight = tensor(&[1f64, 2.0, 3.0], &[3, 1]).with_grad().unwrap();
        let rows = vector(&[1i64, -2, 0, -1]).embedding(&weight, Some(padding)).unwrap();
        check(&rows, &[2.0, 2.0, 1.0, 3.0]);
        rows.sum(&[], false).unwrap().backward().unwrap();
        check(&weight.grad().unwrap(), &[1.0, 0.0, 1.0]);
    }
    let weight = tensor(&[1f64, 2.0, 3.0], &[3, 1]);
    let unsigned = vector(&[2u8]).embedding(&weight, Some(-1)).unwrap();
    check(&unsigned, &[3.0]);
    for padding in [3, -4, i64::MIN, i64::MAX] {
        let refused = vector(&[0i64]).embedding(&weight, Some(padding));
        assert!(matches!(refused, Err(phynexus::Error::Index { .. })));
    }
}
