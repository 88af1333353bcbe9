//! `lgamma` and `digamma`, which C's libraries lack, or compute less accurately than the table of functions promises.
//! [`crate::op::gamma`] has the formulas.

use std::f64::consts::PI;

use super::{CFamily, Dialect, Printer};
use crate::{
    DType, Scalar,
    op::gamma::{
        DIGAMMA_FAR, HALF_LOG_TAU, STIRLING,
        coefficients::{
            DIGAMMA_MIDDLE_32, DIGAMMA_MIDDLE_64, DIGAMMA_NEAR_32, DIGAMMA_NEAR_64, DIGAMMA_ROOT,
            LGAMMA_MIDDLE_32, LGAMMA_MIDDLE_64, LGAMMA_NEAR_32, LGAMMA_NEAR_64,
        },
    },
};

impl Printer<'_, CFamily> {
    pub(super) fn lgamma(&mut self, dtype: DType, a: &str) -> String {
        let [near, middle] = match dtype {
            DType::F64 => [LGAMMA_NEAR_64.as_slice(), &LGAMMA_MIDDLE_64],
            _ => [LGAMMA_NEAR_32.as_slice(), &LGAMMA_MIDDLE_32],
        };
        let far = &STIRLING[..if dtype == DType::F64 { 10 } else { 5 }];
        let [near, middle, far] =
            [("t", near), ("m", middle), ("s", far)].map(|(x, terms)| self.polynomial(dtype, x, terms));
        let [rest, pi, inverse_pi] =
            [HALF_LOG_TAU - 0.5, PI, 1.0 / PI].map(|number| self.float(dtype, number));
        let [half, one, two] = [0.5, 1.0, 2.0].map(|number| self.float(dtype, number));
        let [log, sin, fabs] = ["log", "sin", "fabs"].map(|name| self.math(name, dtype));
        let infinity = self.special(dtype, false);
        let values = [
            format!("(t + {one}) * t * ({near})"),
            format!("(y - {two}) * ({middle})"),
            format!("(y - {half}) * ({log}(y) - {one}) + (({far}) * i + {rest})"),
        ];
        let ends = format!(
            "if (x < 0) return {fabs}(f) > 0 ? -{log}({fabs}({sin}({pi} * f)) * {inverse_pi}) - value : {infinity}; \
             return x < 1 ? value - {log}(x) : value;"
        );
        self.gamma_function("lgamma", dtype, a, &values, &ends)
    }

    pub(super) fn digamma(&mut self, dtype: DType, a: &str) -> String {
        let [near, middle] = match dtype {
            DType::F64 => [DIGAMMA_NEAR_64.as_slice(), &DIGAMMA_MIDDLE_64],
            _ => [DIGAMMA_NEAR_32.as_slice(), &DIGAMMA_MIDDLE_32],
        };
        let far = &DIGAMMA_FAR[..if dtype == DType::F64 { 10 } else { 5 }];
        let [near, middle, far] =
            [("t", near), ("m", middle), ("s", far)].map(|(x, terms)| self.polynomial(dtype, x, terms));
        let [root, rest @ ..] = DIGAMMA_ROOT;
        let root = self.float(dtype, root - 2.0);
        let distance = rest
            .iter()
            .fold(format!("t - {root}"), |sum, &part| format!("{sum} - {}", self.float(dtype, part)));
        let [quarter, half, one, pi] = [0.25, 0.5, 1.0, PI].map(|number| self.float(dtype, number));
        let [log, sin, cos, fabs] = ["log", "sin", "cos", "fabs"].map(|name| self.math(name, dtype));
        let (nan, t) = (self.special(dtype, true), self.language().value_type(dtype));
        let values =
            [format!("({distance}) * ({near})"), middle, format!("{log}(y) - ({half} * i + ({far}) * s)")];
        let ends = format!(
            "if (x < 0) {{ \
             {t} b = {fabs}(f), angle = {pi} * (b > {quarter} ? {half} - b : b), s = {sin}(angle), c = {cos}(angle); \
             {t} cotangent = b > {quarter} ? s / c : c / s; \
             return b == 0 ? {nan} : value - {pi} * (f < 0 ? -cotangent : cotangent); }} \
             return x < 1 ? value - {one} / x : value;"
        );
        self.gamma_function("digamma", dtype, a, &values, &ends)
    }

    /// A call of a function `x`, whose value from 1 on is one of three of `y` (of `t`, which is `y - 2` without rounding,
    /// of `m`, and of `i`, which is `1 / y`, and its square `s`), and which `ends` completes with the distance `f` of `x`
    /// from a whole number.
    fn gamma_function(
        &mut self,
        name: &str,
        dtype: DType,
        a: &str,
        [near, middle, far]: &[String; 3],
        ends: &str,
    ) -> String {
        let t = self.language().value_type(dtype);
        let [one, two, three, eight, centre, width] =
            [1.0, 2.0, 3.0, 8.0, 5.5, 0.4].map(|number| self.float(dtype, number));
        let rint = self.math("rint", dtype);
        let body = format!(
            "{t} y = x < 0 ? {one} - x : x < 1 ? x + {one} : x, value; \
             if (y < {three}) {{ {t} t = x < 0 ? -x - {one} : x < 1 ? x - {one} : x - {two}; value = {near}; }} \
             else if (y < {eight}) {{ {t} m = (y - {centre}) * {width}; value = {middle}; }} \
             else {{ {t} i = {one} / y, s = i * i; value = {far}; }} \
             {t} f = x - {rint}(x); {ends}"
        );
        let name = self.define(format!("{name}_{}", dtype.compute()), t, &format!("{t} x"), &body);
        format!("{name}({a})")
    }

    fn float(&mut self, dtype: DType, number: f64) -> String {
        self.literal(dtype.compute(), Scalar::Float(number))
    }

    /// A polynomial by Horner's rule, of terms from the lowest power up.
    fn polynomial(&mut self, dtype: DType, x: &str, terms: &[f64]) -> String {
        let mut terms =
            terms.iter().rev().map(|&term| self.float(dtype, term)).collect::<Vec<_>>().into_iter();
        let first = terms.next().unwrap_or_default();
        terms.fold(first, |sum, term| format!("({sum}) * {x} + {term}"))
    }
}
