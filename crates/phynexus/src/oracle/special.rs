//! Functions that the standard library lacks.

use std::f64::consts::PI;

/// The error function, within 4 units in the last place: its series with positive terms up to 2 and, beyond, one less
/// the continued fraction of the complement (Abramowitz and Stegun 7.1.6 and 7.1.14).
pub(super) fn erf(x: f64) -> f64 {
    let a = x.abs();
    if x.is_nan() || a == 0.0 {
        x
    } else if a < 2.0 {
        // erf(a) = 2 / sqrt(pi) * exp(-a^2) * sum over n of 2^n a^(2n+1) / (1 * 3 * .. * (2n+1))
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > sum * 1e-18 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        (2.0 / PI.sqrt() * (-a * a).exp() * sum).copysign(x)
    } else if a < 6.0 {
        // erfc(a) = exp(-a^2) / sqrt(pi) / (a + (1/2) / (a + 1 / (a + (3/2) / (a + ..))))
        let fraction = (1..=120).rev().fold(a, |rest, k| a + f64::from(k) / 2.0 / rest);
        (1.0 - (-a * a).exp() / PI.sqrt() / fraction).copysign(x)
    } else {
        1f64.copysign(x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from mpmath.
    #[test]
    fn erf_to_the_last_digits() {
        let table = [
            (1e-10, 1.128_379_167_095_512_6e-10),
            (0.1, 0.112_462_916_018_284_9),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (1.9, 0.992_790_429_235_257_5),
            (2.0, 0.995_322_265_018_952_7),
            (3.0, 0.999_977_909_503_001_4),
            (5.0, 0.999_999_999_998_462_5),
        ];
        for (x, expected) in table {
            assert!((erf(x) - expected).abs() <= 4.0 * f64::EPSILON * expected, "{x}: {} {expected}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(f64::INFINITY), 1.0);
        assert!(erf(f64::NAN).is_nan());
        assert!(erf(-0.0).is_sign_negative());
    }
}
