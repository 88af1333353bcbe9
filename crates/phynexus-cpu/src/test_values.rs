//! Shared test code of this crate: values of every dtype, and their bytes.

use phynexus::op::Combine;
use phynexus::{
    DType, DTypeKind, Element, Scalar,
    dtype::{read_scalars, scalar_bytes},
};

/// Values of a dtype: extremes, small numbers, and the special values of floats.
pub(crate) fn values(dtype: DType, n: usize, seed: u64) -> Vec<Scalar> {
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    };
    const FLOATS: [f64; 14] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        0.5,
        2.5,
        -3.5,
        1e30,
        -1e-30,
        f64::MIN_POSITIVE,
        1e-40,
    ];
    (0..n)
        .map(|_| {
            let r = random();
            let scalar = match (dtype.is_float(), r % 4) {
                (true, 0) => Scalar::Float(FLOATS[random() as usize % FLOATS.len()]),
                (true, _) => Scalar::Float((random() as f64 - 1e9) / 3e8),
                (false, 0) => Scalar::Int([0, 1, -1, i64::MIN, i64::MAX, 127, -128][random() as usize % 7]),
                (false, 1) => Scalar::Int((random() << 32 ^ random()) as i64),
                (false, _) => Scalar::Int(random() as i64 % 40 - 12),
            };
            scalar.cast(dtype)
        })
        .collect()
}

pub(crate) fn to_bytes(values: &[Scalar], dtype: DType) -> Vec<u8> {
    values.iter().flat_map(|&value| scalar_bytes(value, dtype)).collect()
}

pub(crate) fn from_bytes(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    read_scalars(bytes, dtype)
}

/// Whether two values are equal; NaN equals NaN, and zeros equal each other.
pub(crate) fn same(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a == b || a.is_nan() && b.is_nan(),
        _ => a == b,
    }
}

/// Combines two values: floats in the type `accumulator`, integers wrapped to their own type.
pub(crate) fn combine_reference(combine: Combine, a: Scalar, b: Scalar, accumulator: DType) -> Scalar {
    if let (Scalar::Float(x), Scalar::Float(y)) = (a, b) {
        let result = match combine {
            Combine::Sum => x + y,
            Combine::Prod => x * y,
            _ if x.is_nan() || y.is_nan() => f64::NAN,
            Combine::Max => x.max(y),
            Combine::Min => x.min(y),
        };
        return Scalar::Float(result).cast(accumulator);
    }
    let less = if a.kind() == DTypeKind::Signed { a.as_i64() < b.as_i64() } else { a.as_u64() < b.as_u64() };
    match combine {
        Combine::Sum => Scalar::UInt(a.as_u64().wrapping_add(b.as_u64())).cast(accumulator),
        Combine::Prod => Scalar::UInt(a.as_u64().wrapping_mul(b.as_u64())).cast(accumulator),
        Combine::Max => {
            if less {
                b
            } else {
                a
            }
        }
        Combine::Min => {
            if less {
                a
            } else {
                b
            }
        }
    }
}

/// A number rounded to `dtype`, to 16 bits through `f32`.
pub(crate) fn round_to(x: Scalar, dtype: DType) -> Scalar {
    match (dtype, x) {
        (DType::F16, Scalar::Float(x)) => half::f16::from_f32(x as f32).to_scalar(),
        (DType::BF16, Scalar::Float(x)) => half::bf16::from_f32(x as f32).to_scalar(),
        (DType::F32, Scalar::Float(x)) => (x as f32).into(),
        _ => x,
    }
}
