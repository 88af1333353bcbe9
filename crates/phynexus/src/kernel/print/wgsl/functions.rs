//! Functions that WGSL lacks, or whose accuracy it leaves open: numbers that are not finite, indices, 16-bit floats.

use super::{division, elementary, gamma};

/// The parts of a device's `float32` arithmetic that conform to IEEE 754.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Divisions and square roots are correctly rounded.
    pub divisions: bool,
    /// Comparisons, magnitudes, conversions and fused products see subnormal numbers.
    pub subnormals: bool,
}

/// A function: its name, what it calls, its source.
pub(super) type Function = (&'static str, &'static [&'static str], &'static str);

/// The function with a name, for a device of this arithmetic.
pub(super) fn find(name: &str, arithmetic: Arithmetic) -> Option<&'static Function> {
    let divisions = if arithmetic.divisions { division::NATIVE } else { division::CORRECTED };
    [FUNCTIONS, divisions, elementary::FUNCTIONS, gamma::FUNCTIONS]
        .into_iter()
        .flatten()
        .find(|function| function.0 == name)
}

const FUNCTIONS: &[Function] = &[
    (
        "infinity",
        &[],
        "// Not a constant: those may not be infinite.
var<private> infinity_bits: u32 = 0x7f800000u;
fn infinity() -> f32 { return bitcast<f32>(infinity_bits); }",
    ),
    (
        "not_a_number",
        &[],
        "var<private> nan_bits: u32 = 0x7fc00000u;
fn not_a_number() -> f32 { return bitcast<f32>(nan_bits); }",
    ),
    (
        "infinity_f64",
        &[],
        "var<private> infinity_bits_f64: u64 = 0x7ff0000000000000lu;
fn infinity_f64() -> f64 { return bitcast<f64>(infinity_bits_f64); }",
    ),
    (
        "not_a_number_f64",
        &[],
        "var<private> nan_bits_f64: u64 = 0x7ff8000000000000lu;
fn not_a_number_f64() -> f64 { return bitcast<f64>(nan_bits_f64); }",
    ),
    ("opaque", &[], "fn opaque(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) | starts.zero); }"),
    (
        "opaque_f64",
        &[],
        "fn opaque_f64(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) | u64(starts.zero)); }",
    ),
    // On bits: a language may assume that there is no NaN.
    ("is_nan", &[], "fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }"),
    (
        "is_nan_f64",
        &[],
        "fn is_nan_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu; }",
    ),
    (
        "is_infinite",
        &[],
        "fn is_infinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u; }",
    ),
    (
        "is_infinite_f64",
        &[],
        "fn is_infinite_f64(x: f64) -> bool { return (bitcast<u64>(x) & 0x7ffffffffffffffflu) == 0x7ff0000000000000lu; }",
    ),
    // Floor division of an index by a number that is not a power of two.
    (
        "floor_quotient",
        &[],
        "fn floor_quotient(a: i32, b: i32) -> i32 {
    let q = a / b;
    return q - select(0, 1, q * b > a);
}",
    ),
    (
        "floor_rest",
        &["floor_quotient"],
        "fn floor_rest(a: i32, b: i32) -> i32 { return a - floor_quotient(a, b) * b; }",
    ),
    (
        "shuffle_xor_u64",
        &[],
        "fn shuffle_xor_u64(x: u64, by: u32) -> u64 {
    let low = subgroupShuffleXor(u32(x & 0xfffffffflu), by);
    let high = subgroupShuffleXor(u32(x >> 32u), by);
    return (u64(high) << 32u) | u64(low);
}",
    ),
    (
        "with_sign",
        &[],
        "// The zero that no compiler knows: a sign that it does know becomes a negation, which may lose subnormal numbers.
fn with_sign(x: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u) | starts.zero);
}",
    ),
    (
        "with_sign_f64",
        &[],
        "fn with_sign_f64(x: f64, sign: f64) -> f64 {
    return bitcast<f64>((bitcast<u64>(x) & 0x7ffffffffffffffflu) | (bitcast<u64>(sign) & 0x8000000000000000lu));
}",
    ),
    ("magnitude", &[], "fn magnitude(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu); }"),
    // Comparisons that see subnormal numbers.
    (
        "less",
        &["is_nan"],
        "// The numbers' order as integers, both zeros as one.
fn order(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return select(bits, bitcast<i32>(0x80000000u) - bits, bits < 0i);
}
fn less(a: f32, b: f32) -> bool { return order(a) < order(b) && !is_nan(a) && !is_nan(b); }
fn less_equal(a: f32, b: f32) -> bool { return order(a) <= order(b) && !is_nan(a) && !is_nan(b); }
fn equal(a: f32, b: f32) -> bool { return order(a) == order(b) && !is_nan(a); }",
    ),
    // Members of a team that combine the same two numbers in either order must get the same one, so -0 is less than 0.
    // NaN if either is NaN.
    (
        "maximum",
        &["is_nan"],
        "fn total_order(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffffi);
}
fn maximum(a: f32, b: f32) -> f32 {
    return select(b, a, is_nan(a) || (!is_nan(b) && total_order(a) > total_order(b)));
}
fn minimum(a: f32, b: f32) -> f32 {
    return select(b, a, is_nan(a) || (!is_nan(b) && total_order(a) < total_order(b)));
}",
    ),
    (
        "maximum_f64",
        &["is_nan_f64"],
        "fn total_order_f64(x: f64) -> i64 {
    let bits = bitcast<i64>(x);
    return bits ^ ((bits >> 63u) & 0x7fffffffffffffffli);
}
fn maximum_f64(a: f64, b: f64) -> f64 {
    return select(b, a, is_nan_f64(a) || (!is_nan_f64(b) && total_order_f64(a) > total_order_f64(b)));
}
fn minimum_f64(a: f64, b: f64) -> f64 {
    return select(b, a, is_nan_f64(a) || (!is_nan_f64(b) && total_order_f64(a) < total_order_f64(b)));
}",
    ),
    (
        "widened",
        &[],
        "fn widened(x: f32) -> f64 {
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    let y = f64(magnitude) * 1.401298464324817e-45lf;
    return select(f64(x), select(y, -y, (bitcast<u32>(x) >> 31u) == 1u), magnitude < 0x800000u);
}",
    ),
    (
        "narrowed",
        &[],
        "fn narrowed(x: f64) -> f32 {
    let a = abs(x);
    if (!(a < 1.1754943508222875e-38lf)) { return f32(x); }
    let sign = u32(bitcast<u64>(x) >> 63u) << 31u;
    // The last bit of the sum is that of subnormal numbers.
    return bitcast<f32>(u32(bitcast<u64>(a + 6.310887241768095e-30lf) & 0xfffffffflu) | sign);
}",
    ),
    // 16-bit floats and their bits, rounded to nearest, ties to even.
    (
        "float16_value",
        &[],
        "fn float16_value(bits: u32) -> f32 {
    let magnitude = bits & 0x7fffu;
    let normal = bitcast<f32>((magnitude << 13u) + select(0x38000000u, 0x70000000u, magnitude >= 0x7c00u));
    let value = select(normal, f32(magnitude) * 5.9604645e-8, magnitude < 0x400u);
    return bitcast<f32>(bitcast<u32>(value) | ((bits & 0x8000u) << 16u));
}",
    ),
    (
        "float16_bits",
        &[],
        "fn float16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let a = bits & 0x7fffffffu;
    if (a > 0x7f800000u) { return sign | 0x7e00u; }
    if (a >= 0x477ff000u) { return sign | 0x7c00u; }
    if (a >= 0x38800000u) { return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u); }
    if (a <= 0x33000000u) { return sign; }
    let shift = 126u - (a >> 23u);
    let m = (a & 0x7fffffu) | 0x800000u;
    return sign | ((m + ((1u << (shift - 1u)) - 1u) + ((m >> shift) & 1u)) >> shift);
}",
    ),
    ("bfloat16_value", &[], "fn bfloat16_value(bits: u32) -> f32 { return bitcast<f32>(bits << 16u); }"),
    (
        "bfloat16_bits",
        &[],
        "fn bfloat16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0x7fc0u; }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}",
    ),
];
