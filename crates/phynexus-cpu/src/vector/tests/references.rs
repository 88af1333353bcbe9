//! Independent references, in `f64` and exact integers.

use phynexus::op::gamma;

/// The error function with an accuracy of about 1e-15: a series of positive terms below 3, a continued fraction of
/// `erfc` above.
pub(super) fn erf(x: f64) -> f64 {
    use std::f64::consts::FRAC_2_SQRT_PI;
    let a = x.abs();
    let y = if a.is_nan() {
        a
    } else if a < 3.0 {
        // 2 / sqrt(pi) exp(-a^2) sum of 2^n a^(2n + 1) / (2n + 1)!! (DLMF 7.6.2).
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term > sum * 1e-18 {
            n += 1.0;
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
        }
        FRAC_2_SQRT_PI * (-a * a).exp() * sum
    } else if a < 7.0 {
        // DLMF 7.9.1, evaluated from its tail.
        let mut fraction = a;
        for k in (1..200).rev() {
            fraction = a + f64::from(k) / 2.0 / fraction;
        }
        1.0 - 0.5 * FRAC_2_SQRT_PI * (-a * a).exp() / fraction
    } else {
        1.0
    };
    y.copysign(x)
}

/// The distance of `got` from `expected` in units in the last place of `f32`; 0 if both are NaN or equal.
pub(super) fn ulps32(got: f32, expected: f64) -> f64 {
    let rounded = expected as f32;
    if got.is_nan() && expected.is_nan() || got == rounded && got.is_infinite() {
        return 0.0;
    }
    if got.is_nan() || expected.is_nan() || rounded.is_infinite() && got.abs() != f32::MAX {
        return f64::INFINITY;
    }
    if got.is_infinite() && rounded.abs() != f32::MAX {
        return f64::INFINITY;
    }
    let got = if got.is_infinite() { 2f64.powi(128).copysign(got.into()) } else { got.into() };
    let exponent = if rounded == 0.0 { -149 } else { (rounded.abs().to_bits() >> 23).max(1) as i32 - 150 };
    (got - expected).abs() / 2f64.powi(exponent)
}

/// What an error of a function at an operand is relative to, if that is more than its result.
pub(super) fn terms(name: &str, operand: f64) -> f64 {
    match name {
        "lgamma" => gamma::lgamma_terms(operand),
        "digamma" => gamma::digamma_terms(operand),
        _ => 0.0,
    }
}

/// As [`ulps32`], relative to `terms` if they are greater than `expected`.
pub(super) fn ulps32_beside(terms: f64, got: f32, expected: f64) -> f64 {
    let error = (f64::from(got) - expected).abs() / (terms * f64::from(f32::EPSILON));
    if terms > expected.abs() { error } else { ulps32(got, expected) }
}

/// As [`ulps64`], relative to `terms` if they are greater than `expected`.
pub(super) fn ulps64_beside(terms: f64, got: f64, expected: f64) -> f64 {
    let error = (got - expected).abs() / (terms * f64::EPSILON);
    if terms > expected.abs() { error } else { ulps64(got, expected) }
}

/// The distance of `got` from `expected` in units in the last place of `f64`; 0 if both are NaN or equal.
pub(super) fn ulps64(got: f64, expected: f64) -> f64 {
    if got.is_nan() && expected.is_nan() || got == expected && got.is_infinite() {
        return 0.0;
    }
    if !got.is_finite() || !expected.is_finite() {
        return f64::INFINITY;
    }
    let exponent = (expected.abs().to_bits() >> 52).max(1) as i32 - 1075;
    // In two factors: the reciprocal of 2^-1074 overflows.
    (got - expected).abs() * 2f64.powi(-(exponent / 2)) * 2f64.powi(exponent / 2 - exponent)
}
