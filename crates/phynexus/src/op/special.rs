//! Functions in `f64` that the standard library lacks, or computes less accurately.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, PI};

/// MinGW's C library, which the standard library calls, has 66 bits of pi: its sines of large angles are wrong.
pub use libm::{cos, sin};

/// The power. That of MinGW's C library is wrong by up to hundreds of units in the last place.
pub fn pow(x: f64, y: f64) -> f64 {
    if cfg!(all(windows, target_env = "gnu")) { libm::pow(x, y) } else { x.powf(y) }
}

/// The error function, within 2 ULP. Uses the Taylor series near 0 and, farther out, one minus the continued fraction
/// of the complement (Abramowitz and Stegun 7.1.5 and 7.1.14).
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    let square = a * a;
    if x.is_nan() || a == 0.0 {
        x
    } else if a < 0.9 {
        // erf(a) = 2 / sqrt(pi) * sum over n of (-1)^n a^(2n+1) / (n! (2n+1)). The first term, a, is added last, so the
        // error is relative to the small remainder.
        let (mut power, mut rest, mut n) = (a, 0.0, 1.0);
        while power.abs() > a * 1e-18 {
            power *= -square / n;
            rest += power / (2.0 * n + 1.0);
            n += 1.0;
        }
        (a + (a * (FRAC_2_SQRT_PI - 1.0) + rest * FRAC_2_SQRT_PI)).copysign(x)
    } else if a < 6.0 {
        // erfc(a) = exp(-a^2) / sqrt(pi) / (a + (1/2) / (a + 1 / (a + (3/2) / (a + ..))))
        let depth = 10 + (250.0 / square) as u32;
        let fraction = (1..=depth).rev().fold(a, |rest, k| a + f64::from(k) / 2.0 / rest);
        (1.0 - (-square).exp() / PI.sqrt() / fraction).copysign(x)
    } else {
        1f64.copysign(x)
    }
}

/// sin(pi x) / (pi x), and 1 at 0. Uses the distance to the nearest integer to avoid cancellation.
pub fn sinc(x: f64) -> f64 {
    let nearest = x.round();
    let sign = if nearest % 2.0 == 0.0 { 1.0 } else { -1.0 };
    if x == 0.0 { 1.0 } else { sign * (PI * (x - nearest)).sin() / (PI * x) }
}

/// Above this, `asinh` and `acosh` equal ln(2 x) to the last digit, while squares approach overflow.
const LARGE: f64 = 1e100;

/// The inverse hyperbolic sine. The standard library's version overflows above 1e154.
pub fn asinh(x: f64) -> f64 {
    if x.abs() > LARGE { (x.abs().ln() + LN_2).copysign(x) } else { x.asinh() }
}

/// The inverse hyperbolic cosine, in a form that preserves the digits of x - 1 near 1. The standard library's version
/// loses them, and overflows above 1e154.
pub fn acosh(x: f64) -> f64 {
    let t = x - 1.0;
    if x > LARGE {
        x.ln() + LN_2
    } else if x < 1.0 {
        f64::NAN
    } else {
        (t + (t * (t + 2.0)).sqrt()).ln_1p()
    }
}

/// The quotient rounded towards negative infinity. With an infinity, and of a zero, it is the quotient itself, the zero's
/// sign included: the special cases of the Python array API standard.
pub fn floor_divide(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let special = a == 0.0 || b.is_infinite() || !quotient.is_finite();
    if special { quotient } else { exact_floor(a, b, quotient) }
}

/// The floor of the unrounded quotient of two finite numbers, given the rounded one.
pub(crate) fn exact_floor(a: f64, b: f64, rounded: f64) -> f64 {
    let floor = rounded.floor();
    // floor(rounded) is too large only if the quotient was rounded up to an integer: then a - floor * b has the sign
    // opposite to b's. The fused multiply-add has the sign of the exact difference.
    let rest = (-floor).mul_add(b, a);
    if rest != 0.0 && (rest < 0.0) != (b < 0.0) { floor - 1.0 } else { floor }
}

/// The remainder with the divisor's sign, that of a zero too: C's `fmod` (exact), plus the divisor where the signs differ,
/// as Python's `%`.
pub fn remainder(a: f64, b: f64) -> f64 {
    let remainder = a % b;
    if remainder == 0.0 {
        remainder.copysign(b)
    } else if (remainder < 0.0) != (b < 0.0) {
        remainder + b
    } else {
        remainder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mpmath's values.
    #[test]
    fn large_angles() {
        let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-15, "{x} is not {y}");
        near(sin(2f64.powi(63)), 0.9999303766734422);
        near(cos(2f64.powi(63)), 0.011800076512800236);
        near(sin(1e22), -0.8522008497671888);
        near(cos(1e300), -0.5753861119575491);
    }
}
