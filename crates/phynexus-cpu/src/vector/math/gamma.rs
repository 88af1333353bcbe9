//! `lgamma` and `digamma` of `f64`; [`phynexus::op::gamma`] has the formulas. All cases are computed, and one is selected.

use std::f64::consts::{FRAC_1_PI, PI};

use phynexus::op::gamma::{
    DIGAMMA_FAR, HALF_LOG_TAU, STIRLING,
    coefficients::{
        DIGAMMA_MIDDLE_32, DIGAMMA_MIDDLE_64, DIGAMMA_NEAR_32, DIGAMMA_NEAR_64, DIGAMMA_ROOT,
        LGAMMA_MIDDLE_32, LGAMMA_MIDDLE_64, LGAMMA_NEAR_32, LGAMMA_NEAR_64,
    },
};

use super::{
    Arithmetic,
    double::{clamp, cos, log, sin},
    polynomial64,
};

/// Where the functions are computed: y from 1 on; `y - 2`, without rounding, for y to 3; y from 3 to 8 as the operand of
/// the polynomials; y from 8 on.
#[inline(always)]
fn place(x: f64) -> (f64, f64, f64, f64) {
    let y = if x < 1.0 { x + 1.0 } else { x };
    let y = if x < 0.0 { 1.0 - x } else { y };
    let t = if x < 1.0 { x - 1.0 } else { x - 2.0 };
    let t = if x < 0.0 { -x - 1.0 } else { t };
    (y, clamp(t, -1.0, 1.0), (clamp(y, 3.0, 8.0) - 5.5) * 0.4, if y > 8.0 { y } else { 8.0 })
}

/// A series of ten terms; five suffice for short results.
#[inline(always)]
fn series<A: Arithmetic>(x: f64, c: [f64; 10]) -> f64 {
    if A::SHORT {
        polynomial64::<A, 5>(x, [c[0], c[1], c[2], c[3], c[4]])
    } else {
        polynomial64::<A, 10>(x, c)
    }
}

#[inline(always)]
pub(crate) fn lgamma<A: Arithmetic>(x: f64) -> f64 {
    let (y, near, middle, far) = place(x);
    let (low, mid) = if A::SHORT {
        (polynomial64::<A, 14>(near, LGAMMA_NEAR_32), polynomial64::<A, 12>(middle, LGAMMA_MIDDLE_32))
    } else {
        (polynomial64::<A, 29>(near, LGAMMA_NEAR_64), polynomial64::<A, 26>(middle, LGAMMA_MIDDLE_64))
    };
    let inverse = 1.0 / far;
    let rest = A::fma64(series::<A>(inverse * inverse, STIRLING), inverse, HALF_LOG_TAU - 0.5);
    let high = A::fma64(far - 0.5, log::<A>(far) - 1.0, rest);
    // The sum makes a zero positive.
    let value = if y > 3.0 { (y - 2.0) * mid } else { (near + 1.0) * near * low + 0.0 };
    let value = if y > 8.0 { high } else { value };
    // A logarithm of the number itself above 0, of the sine below.
    let fraction = x - x.round_ties_even();
    let sine = sin::<A>(PI * fraction).abs() * FRAC_1_PI;
    let logarithm = log::<A>(if x < 0.0 { sine } else { x });
    let reflected = if fraction.abs() > 0.0 { -logarithm - value } else { f64::INFINITY };
    let result = if x < 1.0 { value - logarithm } else { value };
    if x < 0.0 { reflected } else { result }
}

#[inline(always)]
pub(crate) fn digamma<A: Arithmetic>(x: f64) -> f64 {
    let (y, near, middle, far) = place(x);
    let (low, mid) = if A::SHORT {
        (polynomial64::<A, 15>(near, DIGAMMA_NEAR_32), polynomial64::<A, 13>(middle, DIGAMMA_MIDDLE_32))
    } else {
        (polynomial64::<A, 30>(near, DIGAMMA_NEAR_64), polynomial64::<A, 27>(middle, DIGAMMA_MIDDLE_64))
    };
    let inverse = 1.0 / far;
    let square = inverse * inverse;
    let high = log::<A>(far) - A::fma64(series::<A>(square, DIGAMMA_FAR), square, 0.5 * inverse);
    let [root, second, third, fourth] = DIGAMMA_ROOT;
    let distance = near - (root - 2.0) - second - third - fourth;
    let value = if y > 3.0 { mid } else { distance * low };
    let value = if y > 8.0 { high } else { value };
    // The cotangent of a multiple of pi. Near its zeros the angle is measured from them, without rounding.
    let fraction = x - x.round_ties_even();
    let (a, far) = (fraction.abs(), fraction.abs() > 0.25);
    let angle = PI * if far { 0.5 - a } else { a };
    let (sine, cosine) = (sin::<A>(angle), cos::<A>(angle));
    let cotangent = (if far { sine } else { cosine } / if far { cosine } else { sine }).copysign(fraction);
    let reflected = if a == 0.0 { f64::NAN } else { value - PI * cotangent };
    let result = if x < 1.0 { value - 1.0 / x } else { value };
    if x < 0.0 { reflected } else { result }
}
