//! The logarithm of the gamma function, and its first two derivatives.
//!
//! Near 1 and 2 they are polynomials times the factors that vanish there, so relative errors stay small; from 8 on they
//! are the asymptotic series (Abramowitz and Stegun, 6.1.40, 6.3.18). Negative arguments are reflected (6.1.17, 6.3.7,
//! 6.4.7).

use std::f64::consts::PI;

pub use libm::lgamma;

use crate::op::formula::Formula;

pub mod coefficients;
use coefficients::{DIGAMMA_MIDDLE_64, DIGAMMA_NEAR_64, DIGAMMA_ROOT};

/// `log(2 pi) / 2`.
pub const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_7;

/// The Bernoulli numbers of even index, from the second on.
const BERNOULLI: [f64; 10] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174611.0 / 330.0,
];

/// `x (lgamma(x) - (x - 0.5) log(x) + x - log(2 pi) / 2)` for x from 8, in `1 / x^2`. Half of the terms suffice for
/// `float32`.
pub const STIRLING: [f64; 10] = divided(true);

/// `x^2 (log(x) - 1 / (2 x) - digamma(x))` for x from 8, in `1 / x^2`. Half of the terms suffice for `float32`.
pub const DIGAMMA_FAR: [f64; 10] = divided(false);

/// The Bernoulli number of index 2 k, divided by 2 k, and by 2 k - 1 too.
const fn divided(twice: bool) -> [f64; 10] {
    let (mut terms, mut i) = (BERNOULLI, 0);
    while i < terms.len() {
        let index = 2.0 * (i as f64 + 1.0);
        terms[i] /= if twice { index * (index - 1.0) } else { index };
        i += 1;
    }
    terms
}

fn polynomial(x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, &c| sum.mul_add(x, c))
}

/// The derivative of `lgamma`, within 2 ULP above 0: infinite at 0, NaN at -1, -2 and so on. Below 0 errors are relative
/// to [`digamma_terms`].
pub fn digamma(x: f64) -> f64 {
    if x < 0.0 {
        let fraction = x - x.round();
        return if fraction == 0.0 { f64::NAN } else { digamma(1.0 - x) - PI * cotangent(fraction) };
    }
    if x >= 1.0 {
        return above(x, x - 2.0);
    }
    let inverse = 1.0 / x;
    if inverse.is_infinite() {
        return -inverse;
    }
    // What the division rounded off.
    let rest = (-inverse).mul_add(x, 1.0) / x;
    (above(x + 1.0, x - 1.0) - rest) - inverse
}

/// `cot(pi x)` for x from -0.5 to 0.5. Near its zeros the angle is measured from them, without rounding.
fn cotangent(x: f64) -> f64 {
    if x.abs() > 0.25 { (PI * (0.5 - x.abs())).tan().copysign(x) } else { 1.0 / (PI * x).tan() }
}

/// `digamma(y)` for y from 1, given `y - 2` without rounding.
fn above(y: f64, near: f64) -> f64 {
    if y < 3.0 {
        // Near the root all differences but the last are exact.
        let [root, rest @ ..] = DIGAMMA_ROOT;
        rest.iter().fold(near - (root - 2.0), |distance, part| distance - part)
            * polynomial(near, &DIGAMMA_NEAR_64)
    } else if y < 8.0 {
        polynomial((y - 5.5) / 2.5, &DIGAMMA_MIDDLE_64)
    } else {
        let square = 1.0 / y / y;
        y.ln() - (0.5 / y + polynomial(square, &DIGAMMA_FAR) * square)
    }
}

/// What errors of `lgamma` are relative to, beside its result: below 0, where it is a difference, the terms.
pub fn lgamma_terms(x: f64) -> f64 {
    if x >= 0.0 || !x.is_finite() {
        return 0.0;
    }
    let sine = (PI * (x - x.round())).sin();
    if sine == 0.0 { 0.0 } else { (PI / sine.abs()).ln() + lgamma(1.0 - x).abs() }
}

/// What errors of [`digamma`] are relative to, beside its result: below 0, where it is a difference, the terms; and 1,
/// because `1 - x` is rounded before its digamma is computed.
pub fn digamma_terms(x: f64) -> f64 {
    if x >= 0.0 || !x.is_finite() {
        return 0.0;
    }
    let fraction = x - x.round();
    if fraction == 0.0 { 0.0 } else { PI * cotangent(fraction).abs() + digamma(1.0 - x).abs() + 1.0 }
}

/// The derivative of digamma: infinite at 0, -1, -2 and so on. The first eight terms of the sum of `1 / (x + k)^2`, and
/// the Euler-Maclaurin formula for the rest (Abramowitz and Stegun, 6.4.12).
pub(crate) fn trigamma(x: &Formula) -> Formula {
    const SHIFTS: i32 = 8;
    let positive = x.like(0.0).lt(x);
    let q = positive.choose(x, &(1.0 - x));
    let near = (0..SHIFTS).map(|k| {
        let inverse = 1.0 / (&q + f64::from(k));
        &inverse * &inverse
    });
    let inverse = 1.0 / (&q + f64::from(SHIFTS));
    let square = &inverse * &inverse;
    let series = BERNOULLI.iter().rev().fold(q.like(0.0), |sum, &c| sum * &square + c);
    let far = &inverse + &square * 0.5 + series * &inverse * &square;
    let value = near.fold(far, |sum, term| sum + term);
    // Above 0 the sine is not used: it must not be 0 there, because its own gradient is added with a factor of 0.
    let sine = (positive.choose(&x.like(0.5), &(x - x.round())) * PI).sin();
    let reflected = (PI * PI) / (&sine * &sine) - &value;
    positive.choose(&value, &reflected)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mpmath's values; `crates/phynexus/tests/phynexus/definitions.rs` has more above 0.
    #[test]
    fn digamma_below_0() {
        for (x, y) in [
            (-0.5, 0.03648997397857652),
            (-1.5, 0.7031566406452432),
            (-3.25, 4.46627587235028),
            (-20.75, -0.08514352173418716),
        ] {
            let error = (digamma(x) - y).abs();
            assert!(error < 1e-15 * digamma_terms(x), "digamma({x}): {error}");
        }
        assert!(digamma(-3.0).is_nan() && digamma(f64::NEG_INFINITY).is_nan());
        assert_eq!((digamma(0.0), digamma(-0.0)), (f64::NEG_INFINITY, f64::INFINITY));
    }
}
