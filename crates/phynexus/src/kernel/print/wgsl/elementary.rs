//! Elementary functions, whose accuracy WGSL leaves open, in `float32` and 32-bit integers alone.
//!
//! They are within the oracle's bounds whether or not products and sums are contracted, and where comparisons and `abs`
//! take subnormal numbers for zero. Polynomials are minimax approximations; `phynexus-cpu` has those of the exponential,
//! the logarithms, `tanh`, `erf`, `sin` and `cos` too.

use super::functions::Function;

/// All of them.
pub(super) const FUNCTIONS: &[Function] = &[
    (
        "power_of_two",
        &[],
        "fn power_of_two(n: i32) -> f32 { return bitcast<f32>((n + 127) << 23u); }
// y * 2^n in two steps, so that the result may be subnormal or infinite.
fn scale(y: f32, n: i32) -> f32 {
    let half = n >> 1u;
    return y * power_of_two(half) * power_of_two(n - half);
}",
    ),
    (
        "exp_parts",
        &["power_of_two"],
        "// x = n ln 2 + r: n and exp(r) - 1.
struct ExpParts { n: i32, e: f32 }
fn exp_parts(x: f32) -> ExpParts {
    let n = round(x * 1.442695);
    let r = (x - n * 0.6933594) + n * 2.1219444e-4;
    let q = (((0.0013814464 * r + 0.008368781) * r + 0.041668393) * r + 0.1666652) * r + 0.49999994;
    return ExpParts(i32(n), q * (r * r) + r);
}
fn limited(x: f32, low: f32, high: f32) -> f32 { return select(select(x, high, x > high), low, x < low); }
// For results that are neither subnormal nor infinite.
fn exp_normal(x: f32) -> f32 {
    let parts = exp_parts(x);
    let s = power_of_two(parts.n);
    return s * parts.e + s;
}",
    ),
    (
        "exp_",
        &["exp_parts"],
        "fn exp_(x: f32) -> f32 {
    let parts = exp_parts(limited(x, -104.0, 89.0));
    return scale(1.0 + parts.e, parts.n);
}",
    ),
    (
        "half_exp",
        &["exp_parts"],
        "fn half_exp(x: f32) -> f32 {
    let parts = exp_parts(limited(x, -104.0, 90.0));
    return scale(1.0 + parts.e, parts.n - 1);
}",
    ),
    (
        "exp2_",
        &["exp_parts"],
        "fn exp2_(x: f32) -> f32 {
    let y = limited(x, -151.0, 128.0);
    let n = round(y);
    let r = y - n;
    let q = ((((0.00015353366 * r + 0.0013398874) * r + 0.009618437) * r + 0.055503324) * r + 0.24022648) * r + 0.6931472;
    return scale(q * r + 1.0, i32(n));
}",
    ),
    (
        "expm1_",
        &["exp_parts"],
        "fn expm1_(x: f32) -> f32 {
    let parts = exp_parts(limited(x, -20.0, 89.0));
    // Half of 2^n, because 2^128 is out of range.
    let s = power_of_two(parts.n - 1);
    let y = (s * parts.e + (s - 0.5)) * 2.0;
    return select(y, x, abs(x) < 2.9802322e-8);
}",
    ),
    (
        "log_parts",
        &["infinity", "not_a_number"],
        "// x = 2^k (1 + f) with 1 + f around 1.
struct LogParts { k: f32, f: f32 }
fn log_parts(x: f32) -> LogParts {
    let subnormal = x < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, subnormal)) - 0x3f3504f3u;
    let k = f32(bitcast<i32>(bits) >> 23u);
    let m = bitcast<f32>((bits & 0x7fffffu) + 0x3f3504f3u);
    return LogParts(select(k, k - 23.0, subnormal), m - 1.0);
}
// log(1 + f) - f + f^2 / 2.
fn log_tail(f: f32) -> f32 {
    var p = 0.06746556 * f - 0.11679616;
    p = p * f + 0.11890322;
    p = p * f - 0.12405142;
    p = p * f + 0.14219226;
    p = p * f - 0.16668007;
    p = p * f + 0.20002134;
    p = p * f - 0.2500001;
    p = p * f + 0.33333313;
    return p * f * (f * f);
}
// The values outside the positive finite numbers.
fn log_limits(x: f32, y: f32) -> f32 {
    if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) { return select(x, not_a_number(), bitcast<u32>(x) == 0xff800000u); }
    if ((bitcast<u32>(x) << 1u) == 0u) { return -infinity(); }
    return select(y, not_a_number(), (bitcast<u32>(x) >> 31u) == 1u);
}",
    ),
    (
        "log_",
        &["log_parts"],
        "fn log_(x: f32) -> f32 {
    let parts = log_parts(x);
    let f = parts.f;
    let low = parts.k * -2.1219444e-4 + log_tail(f);
    return log_limits(x, parts.k * 0.6933594 + (f + (-0.5 * f * f + low)));
}",
    ),
    (
        "log2_",
        &["log_parts"],
        "fn log2_(x: f32) -> f32 {
    let parts = log_parts(x);
    let f = parts.f;
    let low = -0.5 * f * f + log_tail(f);
    return log_limits(x, parts.k + ((f * 0.44269504 + (low * 0.44269504 + low)) + f));
}",
    ),
    (
        "log1p_",
        &["log_parts", "divide"],
        "fn log1p_(x: f32) -> f32 {
    let u = 1.0 + x;
    // What was rounded off.
    let lost = select((x - u) + 1.0, (1.0 - u) + x, abs(x) < 1.0);
    let parts = log_parts(u);
    let near = x > -0.29 && x < 0.41;
    let f = select(parts.f, x, near);
    let k = select(parts.k, 0.0, near);
    let correction = select(divide(lost, u), 0.0, near);
    let low = k * -2.1219444e-4 + (log_tail(f) + correction);
    let y = k * 0.6933594 + (f + (-0.5 * f * f + low));
    return select(log_limits(u, y), x, abs(x) < 2.9802322e-8);
}",
    ),
    (
        "tanh_",
        &["magnitude", "exp_parts", "with_sign", "divide"],
        "fn tanh_(x: f32) -> f32 {
    let a = limited(magnitude(x), 0.0, 10.0);
    let z = a * a;
    let p = (((-0.0056483173 * z + 0.020589827) * z - 0.053725127) * z + 0.13331275) * z - 0.33333275;
    let far = 1.0 - divide(2.0, exp_normal(a + a) + 1.0);
    // So small a number is its own: no arithmetic, because some drivers take subnormal numbers for zero in parts of it.
    return select(with_sign(select(far, p * z * a + a, z < 0.4), x), x, (bitcast<u32>(x) & 0x7fffffffu) < 0x39000000u);
}",
    ),
    (
        "erf_",
        &["magnitude", "exp_parts", "with_sign"],
        "fn erf_(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    // Subnormal numbers as integers: 2 / sqrt(pi) times as many of the least one.
    if (bits < 0x800000u) { return with_sign(bitcast<f32>(u32(f32(bits) * 1.1283792 + 0.5)), x); }
    let a = limited(magnitude(x), 0.0, 4.0);
    let z = a * a;
    let p = ((((-0.0005953753 * z + 0.0049859434) * z - 0.026761722) * z + 0.112816826) * z - 0.3761248) * z + 0.12837915;
    let q = (((((-1.12314e-5 * a + 0.00032280482) * a - 0.003642463) * a + 0.023762072) * a - 0.10623689) * a - 0.6351513) * a
        - 1.1286485;
    return with_sign(select(1.0 - exp_normal(a * q), p * a + a, a < 0.921875), x);
}",
    ),
    (
        "multiply_high",
        &[],
        "// The upper half of a product.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}",
    ),
    (
        "reduced_angle",
        &["multiply_high", "not_a_number"],
        "// x = r + n pi / 2, |r| <= pi / 4, by as many bits of 2 / pi as needed (Payne and Hanek, \"Radian reduction for
// trigonometric functions\", 1983).
struct Angle { r: f32, n: u32 }
fn reduced_angle(x: f32) -> Angle {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits <= 0x3f490fdau) { return Angle(x, 0u); }
    if (bits >= 0x7f800000u) { return Angle(not_a_number(), 0u); }
    // 2 / pi with 2 bits before the point.
    var table = array<u32, 7>(0u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u, 0x36d8a566u, 0x4f10e410u);
    let m = (bits << 8u) | 0x80000000u;
    let e = (bits >> 23u) - 126u;
    let at = e >> 5u;
    let s = e & 31u;
    var high = table[at];
    var middle = table[at + 1u];
    var low = table[at + 2u];
    if (s > 0u) {
        high = (high << s) | (middle >> (32u - s));
        middle = (middle << s) | (low >> (32u - s));
        low = (low << s) | (table[at + 3u] >> (32u - s));
    }
    let carried = multiply_high(m, low);
    var p0 = m * middle + carried;
    var p1 = m * high + multiply_high(m, middle) + select(0u, 1u, p0 < carried);
    var n = p1 >> 30u;
    p1 &= 0x3fffffffu;
    let negative = (p1 & 0x20000000u) != 0u;
    if (negative) {
        n += 1u;
        p1 = 0x40000000u - p1 - select(0u, 1u, p0 != 0u);
        p0 = 0u - p0;
    }
    // The fraction times pi / 2.
    var shift = countLeadingZeros(p1);
    if (p1 == 0u) {
        p1 = p0;
        p0 = 0u;
        shift = 32u + countLeadingZeros(p1);
    }
    let by = shift & 31u;
    let top = select((p1 << by) | (p0 >> ((32u - by) & 31u)), p1, by == 0u);
    let r = f32(multiply_high(top, 0xc90fdaa2u)) * bitcast<f32>((98u - shift) << 23u);
    let below = (bitcast<u32>(x) >> 31u) == 1u;
    return Angle(select(r, -r, negative != below), select(n, 0u - n, below));
}
fn sine_of(r: f32) -> f32 {
    let z = r * r;
    return ((-0.0001951494 * z + 0.008332158) * z - 0.16666655) * z * r + r;
}
fn cosine_of(r: f32) -> f32 {
    let z = r * r;
    return ((2.4432766e-5 * z - 0.0013887313) * z + 0.041666646) * z * z + (z * -0.5 + 1.0);
}
fn wave(r: f32, n: u32) -> f32 {
    let y = select(cosine_of(r), sine_of(r), (n & 1u) == 0u);
    return bitcast<f32>(bitcast<u32>(y) ^ ((n & 2u) << 30u));
}",
    ),
    (
        "sin_",
        &["reduced_angle"],
        "fn sin_(x: f32) -> f32 {
    let angle = reduced_angle(x);
    return select(wave(angle.r, angle.n), x, abs(x) < 1.0e-4);
}",
    ),
    (
        "cos_",
        &["reduced_angle"],
        "fn cos_(x: f32) -> f32 {
    let angle = reduced_angle(x);
    return wave(angle.r, angle.n + 1u);
}",
    ),
    (
        "tan_",
        &["reduced_angle", "divide"],
        "fn tan_(x: f32) -> f32 {
    let angle = reduced_angle(x);
    let sine = sine_of(angle.r);
    let cosine = cosine_of(angle.r);
    let even = (angle.n & 1u) == 0u;
    let y = divide(select(-cosine, sine, even), select(sine, cosine, even));
    return select(y, x, abs(x) < 1.0e-4);
}",
    ),
    (
        "asin_",
        &["magnitude", "not_a_number", "with_sign", "square_root"],
        "// asin(x) for |x| <= 1 / 2.
fn asin_near(x: f32) -> f32 {
    let z = x * x;
    let p = ((((0.037565213 * z + 0.014402597) * z + 0.031817615) * z + 0.04451572) * z + 0.07500511) * z + 0.1666666;
    return p * z * x + x;
}
fn asin_(x: f32) -> f32 {
    let a = magnitude(x);
    let far = 1.5707964 - (2.0 * asin_near(square_root(max(0.5 - 0.5 * a, 0.0))) + 4.371139e-8);
    let y = with_sign(select(far, asin_near(a), a <= 0.5), x);
    return select(not_a_number(), y, a <= 1.0);
}",
    ),
    (
        "acos_",
        &["asin_"],
        "fn acos_(x: f32) -> f32 {
    let a = magnitude(x);
    let far = 2.0 * asin_near(square_root(max(0.5 - 0.5 * a, 0.0)));
    let outer = select(far, 3.1415927 - (far + 8.742278e-8), x < 0.0);
    let y = select(outer, 1.5707964 - (asin_near(x) + 4.371139e-8), a <= 0.5);
    return select(not_a_number(), y, a <= 1.0);
}",
    ),
    (
        "atan_",
        &["magnitude", "with_sign", "is_nan", "not_a_number", "divide"],
        "// The arctangent of a / b in the first quadrant, and how much is missing in the last place.
fn atan_ratio(a: f32, b: f32) -> f32 {
    let steep = bitcast<u32>(a) > bitcast<u32>(b);
    let t = divide(select(a, b, steep), select(b, a, steep));
    let z = t * t;
    var p = 0.0011348965 * z - 0.007422728;
    p = p * z + 0.022760531;
    p = p * z - 0.044946667;
    p = p * z + 0.06759588;
    p = p * z - 0.08818855;
    p = p * z + 0.11060246;
    p = p * z - 0.14280131;
    p = p * z + 0.19999693;
    p = p * z - 0.33333328;
    // As for tanh: so small a number is its own.
    let y = select(p * z * t + t, t, bitcast<u32>(t) < 0x39000000u);
    return select(y, 1.5707964 - (y + 4.371139e-8), steep);
}
fn atan_(x: f32) -> f32 {
    return select(with_sign(atan_ratio(magnitude(x), 1.0), x), x, is_nan(x));
}",
    ),
    (
        "atan2_",
        &["atan_"],
        "fn atan2_(y: f32, x: f32) -> f32 {
    var a = magnitude(y);
    var b = magnitude(x);
    // Equal arguments are on the diagonal, but 0 / 0 is on the axis.
    if (bitcast<u32>(a) == bitcast<u32>(b)) {
        a = select(1.0, 0.0, bitcast<u32>(a) == 0u);
        b = 1.0;
    }
    let angle = atan_ratio(a, b);
    let left = (bitcast<u32>(x) >> 31u) == 1u;
    let y_ = with_sign(select(angle, 3.1415927 - (angle + 8.742278e-8), left), y);
    return select(y_, not_a_number(), is_nan(x) || is_nan(y));
}",
    ),
    (
        "sinh_",
        &["magnitude", "half_exp", "with_sign", "divide"],
        "fn sinh_(x: f32) -> f32 {
    let a = magnitude(x);
    let z = a * a;
    let near = (((2.7557319e-6 * z + 1.984127e-4) * z + 0.008333334) * z + 0.16666667) * z * a + a;
    let h = half_exp(a);
    return with_sign(select(h - divide(0.25, h), near, a < 1.0), x);
}",
    ),
    (
        "cosh_",
        &["magnitude", "half_exp", "divide"],
        "fn cosh_(x: f32) -> f32 {
    let h = half_exp(magnitude(x));
    return h + divide(0.25, h);
}",
    ),
    (
        "asinh_",
        &["magnitude", "log1p_", "log_", "with_sign", "square_root"],
        "fn asinh_(x: f32) -> f32 {
    let a = magnitude(x);
    let large = a > 16777216.0;
    let b = select(a, 0.0, large);
    let square = b * b;
    let y = select(log1p_(b + divide(square, 1.0 + square_root(square + 1.0))), log_(a) + 0.6931472, large);
    return with_sign(y, x);
}",
    ),
    (
        "acosh_",
        &["log1p_", "log_", "square_root"],
        "fn acosh_(x: f32) -> f32 {
    let large = x > 16777216.0;
    let t = select(x - 1.0, 0.0, large);
    let y = select(log1p_(t + square_root(max(t * (t + 2.0), 0.0))), log_(x) + 0.6931472, large);
    return select(y, not_a_number(), x < 1.0);
}",
    ),
    (
        "atanh_",
        &["magnitude", "log1p_", "with_sign"],
        "fn atanh_(x: f32) -> f32 {
    let a = magnitude(x);
    return select(with_sign(0.5 * log1p_(divide(2.0 * a, 1.0 - a)), x), not_a_number(), a > 1.0);
}",
    ),
    (
        "pow_",
        &["magnitude", "log_parts", "exp_parts", "is_nan", "divide"],
        "// A product and what its rounding lost: factors of 12 bits multiply exactly.
struct Pair { high: f32, low: f32 }
fn exact_product(a: f32, b: f32) -> Pair {
    let a1 = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let b1 = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
    let a2 = a - a1;
    let b2 = b - b1;
    let p = a * b;
    return Pair(p, ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2);
}
// |x|^y for |x| neither 0 nor infinite.
fn power_of_magnitude(x: f32, y: f32) -> f32 {
    let parts = log_parts(x);
    // log2(1 + f) = 2 / ln 2 atanh(s), s = f / (2 + f), with what its rounding lost.
    let f = parts.f;
    let d = 2.0 + f;
    let s = divide(f, d);
    let q = exact_product(s, d);
    let rest = divide((f - q.high) - q.low - s * (f - (d - 2.0)), d);
    let z = s * s;
    let tail = s * z * (((0.22508 * z + 0.2857) * z + 0.4) * z + 0.6666667) * 1.442695 + rest * 2.88539;
    let t = exact_product(s, 2.88539);
    let low = t.low + (s * 3.851926e-8 + tail);
    // k + t.high, with what its rounding lost.
    let sum = parts.k + t.high;
    let lost = select(t.high - (sum - parts.k), parts.k - (sum - t.high), abs(t.high) > abs(parts.k)) + low;
    let high = sum + lost;
    let small = (sum - high) + lost;
    let w = limited(y, -1.1529215e18, 1.1529215e18);
    let e = exact_product(high, w);
    let bounded = limited(e.high, -160.0, 160.0);
    let n = round(bounded);
    let r = (bounded - n) + select(0.0, e.low + small * w, bounded == e.high);
    let q2 = ((((0.00015353366 * r + 0.0013398874) * r + 0.009618437) * r + 0.055503324) * r + 0.24022648) * r + 0.6931472;
    return scale(q2 * r + 1.0, i32(n));
}
fn pow_(x: f32, y: f32) -> f32 {
    if (x == 1.0 || (bitcast<u32>(y) << 1u) == 0u) { return 1.0; }
    if (is_nan(x) || is_nan(y)) { return not_a_number(); }
    let a = magnitude(x);
    let infinite = (bitcast<u32>(y) & 0x7fffffffu) == 0x7f800000u;
    if (infinite && a == 1.0) { return 1.0; }
    let limit = bitcast<u32>(a) == 0u || bitcast<u32>(a) == 0x7f800000u;
    // 0 or infinity, by whether the magnitude grows.
    let grows = (a > 1.0) == (bitcast<u32>(y) >> 31u == 0u);
    var magnitude = select(0.0, infinity(), grows);
    if (!limit && !infinite) { magnitude = power_of_magnitude(a, y); }
    let whole = abs(y) >= 1.0 && trunc(y) == y;
    let odd = whole && !infinite && trunc(0.5 * y) != 0.5 * y;
    let below = (bitcast<u32>(x) >> 31u) == 1u;
    if (below && !whole && !limit) { return not_a_number(); }
    return select(magnitude, -magnitude, below && odd);
}",
    ),
];
