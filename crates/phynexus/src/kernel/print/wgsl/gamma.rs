//! `lgamma` and `digamma` of `float32`: [`crate::op::gamma`] has the formulas.

use super::functions::Function;

/// All of them, and what they share.
pub(super) const FUNCTIONS: &[Function] = &[
    (
        "gamma_place",
        &[],
        "// Where a function of the gamma function is computed: y from 1 on, and y - 2 without rounding.
struct GammaPlace { y: f32, near: f32 }
fn gamma_place(x: f32) -> GammaPlace {
    if (x < 0.0) { return GammaPlace(1.0 - x, -x - 1.0); }
    if (x < 1.0) { return GammaPlace(x + 1.0, x - 1.0); }
    return GammaPlace(x, x - 2.0);
}",
    ),
    (
        "lgamma_",
        &["gamma_place", "infinity", "is_nan", "magnitude", "log_", "sin_", "divide"],
        "fn lgamma_from_1(place: GammaPlace) -> f32 {
    let y = place.y;
    if (y < 3.0) {
        let t = place.near;
        var p = -9.674751e-06 * t + 1.930875e-05; p = p * t - 7.2912694e-06; p = p * t + 2.0249377e-05;
        p = p * t - 9.1723115e-05; p = p * t + 0.00019579947; p = p * t - 0.00040198918;
        p = p * t + 0.0009105063; p = p * t - 0.0021089397; p = p * t + 0.0049994807; p = p * t - 0.012384116;
        p = p * t + 0.03296495; p = p * t - 0.10031731; p = p * t + 0.42278433;
        return (t + 1.0) * t * p;
    }
    if (y < 8.0) {
        let m = (y - 5.5) * 0.4;
        var p = 1.3258209e-05 * m - 3.0556275e-05; p = p * m + 3.4883895e-05; p = p * m - 9.291803e-05;
        p = p * m + 0.00028618603; p = p * m - 0.0007499499; p = p * m + 0.0020283812; p = p * m - 0.0058654565;
        p = p * m + 0.018430136; p = p * m - 0.06706141; p = p * m + 0.34306368; p = p * m + 1.130804;
        return (y - 2.0) * p;
    }
    let i = divide(1.0, y);
    let s = i * i;
    var p = 0.0008417508 * s - 0.0005952381; p = p * s + 0.0007936508; p = p * s - 0.0027777778;
    p = p * s + 0.083333336;
    return (y - 0.5) * (log_(y) - 1.0) + (p * i + 0.4189385);
}
fn lgamma_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = magnitude(x);
    if (bitcast<u32>(a) == 0x7f800000u) { return infinity(); }
    // The logarithm sees subnormal numbers.
    if (a < 1.0e-20) { return -log_(a); }
    let value = lgamma_from_1(gamma_place(x));
    if (x >= 1.0) { return value; }
    if (x > 0.0) { return value - log_(x); }
    let f = x - round(x);
    return select(-log_(magnitude(sin_(3.1415927 * f)) * 0.31830987) - value, infinity(), f == 0.0);
}",
    ),
    (
        "digamma_",
        &["gamma_place", "is_nan", "not_a_number", "magnitude", "infinity", "log_", "sin_", "cos_", "divide"],
        "fn digamma_from_1(place: GammaPlace) -> f32 {
    let y = place.y;
    if (y < 3.0) {
        let t = place.near;
        var p = 6.368915e-05 * t - 0.00011889357; p = p * t - 9.129441e-07; p = p * t - 2.8264963e-05;
        p = p * t + 0.0004155067; p = p * t - 0.0007924341; p = p * t + 0.0013187804; p = p * t - 0.0026888275;
        p = p * t + 0.005562691; p = p * t - 0.011349513; p = p * t + 0.023445966; p = p * t - 0.04954998;
        p = p * t + 0.10899998; p = p * t - 0.26073897; p = p * t + 0.7853075;
        return (t + 0.5383682 - 3.70066e-07 - 1.408431e-14) * p;
    }
    if (y < 8.0) {
        let m = (y - 5.5) * 0.4;
        var p = -3.442458e-05 * m + 7.320691e-05; p = p * m - 5.3262804e-05; p = p * m + 0.00013578011;
        p = p * m - 0.00045757176; p = p * m + 0.0010555502; p = p * m - 0.0024278227; p = p * m + 0.005945863;
        p = p * m - 0.015129283; p = p * m + 0.040862247; p = p * m - 0.123777874; p = p * m + 0.49835593;
        p = p * m + 1.6110932;
        return p;
    }
    let i = divide(1.0, y);
    let s = i * i;
    var p = 0.007575758 * s - 0.004166667; p = p * s + 0.003968254; p = p * s - 0.008333334;
    p = p * s + 0.083333336;
    return log_(y) - (0.5 * i + p * s);
}
fn digamma_(x: f32) -> f32 {
    if (is_nan(x)) { return x; }
    let a = magnitude(x);
    if (bitcast<u32>(a) == 0x7f800000u) { return select(infinity(), not_a_number(), x < 0.0); }
    // The division sees subnormal numbers.
    if (a < 1.0e-20) { return -divide(1.0, x); }
    let value = digamma_from_1(gamma_place(x));
    if (x >= 1.0) { return value; }
    if (x > 0.0) { return value - divide(1.0, x); }
    let f = x - round(x);
    // The cotangent of a multiple of pi. Near its zeros the angle is measured from them, without rounding.
    let b = magnitude(f);
    let angle = 3.1415927 * select(b, 0.5 - b, b > 0.25);
    let s = sin_(angle);
    let c = cos_(angle);
    let cotangent = divide(select(c, s, b > 0.25), select(s, c, b > 0.25));
    return select(value - 3.1415927 * select(cotangent, -cotangent, f < 0.0), not_a_number(), b == 0.0);
}",
    ),
];
