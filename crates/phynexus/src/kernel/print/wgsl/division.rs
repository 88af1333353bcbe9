//! Quotients and square roots of `float32`, correctly rounded.
//!
//! The APIs allow a GPU's own results to be a few units in the last place off, to flush subnormal numbers to zero, and
//! do not require `fma` to round once. Significands are therefore divided as integers: the GPU's result is an estimate
//! of 25 bits, and the remainder, of which the low 32 bits suffice, corrects and rounds it. An estimate may be off by
//! twelve units in the last place.

use super::functions::Function;

/// For devices whose own are correctly rounded.
pub(super) const NATIVE: &[Function] = &[
    ("divide", &[], "fn divide(a: f32, b: f32) -> f32 { return a / b; }"),
    ("square_root", &[], "fn square_root(x: f32) -> f32 { return sqrt(x); }"),
];

/// For all others.
pub(super) const CORRECTED: &[Function] = &[
    (
        "significand",
        &[],
        "// A positive finite number as m 2^(e - 150) with m of 24 bits.
struct Significand { m: u32, e: i32 }
fn significand(bits: u32) -> Significand {
    let e = bits >> 23u;
    if (e > 0u) { return Significand((bits & 0x7fffffu) | 0x800000u, i32(e)); }
    let shift = countLeadingZeros(bits) - 8u;
    return Significand(bits << shift, 1 - i32(shift));
}",
    ),
    (
        "divide",
        &["significand", "not_a_number"],
        "fn divide(a: f32, b: f32) -> f32 {
    let u = bitcast<u32>(a) & 0x7fffffffu;
    let v = bitcast<u32>(b) & 0x7fffffffu;
    let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u;
    if (u > 0x7f800000u || v > 0x7f800000u || (u == v && (u == 0u || u == 0x7f800000u))) { return not_a_number(); }
    if (u == 0u || v == 0x7f800000u) { return bitcast<f32>(sign); }
    if (v == 0u || u == 0x7f800000u) { return bitcast<f32>(sign | 0x7f800000u); }
    let x = significand(u);
    let y = significand(v);
    let less = x.m < y.m;
    let inverse = 1.0 / f32(y.m);
    var q = u32(f32(x.m) * inverse * select(16777216.0, 33554432.0, less));
    var rest = bitcast<i32>((x.m << select(24u, 25u, less)) - q * y.m);
    let missed = i32(floor(f32(rest) * inverse));
    q += bitcast<u32>(missed);
    rest -= missed * i32(y.m);
    if (rest < 0) {
        q -= 1u;
        rest += i32(y.m);
    }
    if (rest >= i32(y.m)) {
        q += 1u;
        rest -= i32(y.m);
    }
    let e = x.e - y.e + select(127, 126, less);
    if (e > 254) { return bitcast<f32>(sign | 0x7f800000u); }
    // Subnormal results lose more bits than the last one.
    let lost = u32(clamp(2 - e, 1, 26));
    let n = q >> lost;
    let below = q & ((1u << lost) - 1u);
    let half = 1u << (lost - 1u);
    let up = below > half || (below == half && (rest > 0 || (n & 1u) == 1u));
    return bitcast<f32>(sign | ((u32(max(e, 1) - 1) << 23u) + n + select(0u, 1u, up)));
}",
    ),
    (
        "square_root",
        &["significand", "not_a_number"],
        "fn square_root(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) == 0u || bits == 0x7f800000u) { return x; }
    if (bits > 0x7f800000u) { return not_a_number(); }
    let s = significand(bits);
    let m = s.m << select(2u, 1u, (s.e & 1) == 1);
    let guess = sqrt(f32(m));
    var q = min(u32(guess * 4096.0), 0x1ffffffu);
    var rest = bitcast<i32>((m << 24u) - q * q);
    let missed = i32(floor(f32(rest) / (guess * 8192.0)));
    rest -= missed * (bitcast<i32>(2u * q) + missed);
    q += bitcast<u32>(missed);
    if (rest < 0) {
        q -= 1u;
        rest += bitcast<i32>(2u * q + 1u);
    }
    if (rest > bitcast<i32>(2u * q)) { q += 1u; }
    // No root of 24 bits lies halfway between two numbers.
    return bitcast<f32>((u32(((s.e + 127) >> 1u) - 1) << 23u) + ((q + 1u) >> 1u));
}",
    ),
];
