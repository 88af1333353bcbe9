//! Elementwise ops: functions, selection, conversion.

use super::{
    array::{OracleArray, from_scalar},
    float, integer,
    number::{Interval, Number, round},
};
use crate::dtype::read_scalars;
use crate::{
    DType, Scalar,
    dtype::scalar_bytes,
    op::{Binary, Unary},
};

/// A unary function of a number of `dtype`.
pub(crate) fn unary(op: Unary, x: Number, dtype: DType) -> Number {
    match x {
        Number::Integer(x) => integer::unary(op, x, dtype).map_or(Number::Undetermined, Number::Integer),
        Number::Float(x) => float::unary(op, x, dtype),
        Number::Undetermined => Number::Undetermined,
    }
}

/// A binary function of two numbers of `dtype`.
pub(crate) fn binary(op: Binary, a: Number, b: Number, dtype: DType) -> Number {
    match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => {
            integer::binary(op, a, b, dtype).map_or(Number::Undetermined, Number::Integer)
        }
        (Number::Float(a), Number::Float(b)) => float::binary(op, a, b, dtype),
        _ => Number::Undetermined,
    }
}

/// Selects one of two numbers.
pub(crate) fn select(condition: Number, then: Number, otherwise: Number) -> Number {
    match condition {
        Number::Integer(0) => otherwise,
        Number::Integer(_) => then,
        _ => Number::Undetermined,
    }
}

/// Converts to another dtype.
pub(crate) fn cast(x: Number, to: DType) -> Number {
    match x {
        Number::Undetermined => Number::Undetermined,
        Number::Integer(x) if to == DType::Bool => Number::bool(x != 0),
        Number::Integer(x) if to.is_float() => Number::Float(integer_to_float(x, to)),
        Number::Integer(x) => Number::Integer(integer::wrap(x, to)),
        Number::Float(x) if to.is_float() => {
            // A conversion from `f64` to 16 bits may go through `f32`.
            let (direct, stepwise) = (x.rounded(to), x.rounded(to.compute()).rounded(to));
            let bounds = [direct.low, direct.high, stepwise.low, stepwise.high];
            // Without infinities, what is too great is NaN.
            match bounds.iter().filter(|bound| bound.is_nan()).count() {
                _ if x.is_nan() => Number::NAN,
                0 => Number::Float(Interval::hull(direct.value, bounds)),
                4 => Number::NAN,
                _ => Number::Undetermined,
            }
        }
        Number::Float(x) if to == DType::Bool && x.contains_zero() && !x.is_point() => Number::Undetermined,
        Number::Float(x) if to == DType::Bool => Number::bool(x.value != 0.0),
        Number::Float(x) => match integer::from_float(x.low, to) {
            // NaN is a single value.
            whole if whole == integer::from_float(x.high, to) => Number::Integer(whole),
            _ => Number::Undetermined,
        },
    }
}

/// Correctly rounded, directly or (to 16 bits) through `f32`.
fn integer_to_float(x: i128, to: DType) -> Interval {
    let stepwise = round(f64::from(x as f32), to);
    let direct = match to {
        DType::F64 => return Interval::point(x as f64),
        DType::F32 => return Interval::point(f64::from(x as f32)),
        // Rounding to odd at 53 bits preserves the information that the second rounding needs.
        _ => round(round_to_odd(x), to),
    };
    Interval::hull(direct, [stepwise])
}

/// The integer as an `f64`, with the last bit set if digits were lost. Rounding that further gives the same result as
/// rounding the integer.
fn round_to_odd(x: i128) -> f64 {
    let lost = x.unsigned_abs().checked_ilog2().map_or(0, |log| log.saturating_sub(52));
    let kept = x.unsigned_abs() >> lost;
    let sticky = u128::from(kept << lost != x.unsigned_abs());
    let magnitude = ((kept | sticky) << lost) as f64;
    if x < 0 { -magnitude } else { magnitude }
}

/// Reinterprets the bits as another dtype. The bits of a NaN, or of a float that is not known exactly, are
/// undetermined.
pub(crate) fn bitcast(x: Number, from: DType, to: DType) -> Number {
    let scalar = match x {
        Number::Undetermined => return Number::Undetermined,
        Number::Integer(x) if from.kind() == crate::DTypeKind::Signed => Scalar::Int(x as i64),
        Number::Integer(x) => Scalar::UInt(x as u64),
        Number::Float(x) => {
            let stored = x.rounded(from);
            if stored.is_nan() || stored.low.to_bits() != stored.high.to_bits() {
                return Number::Undetermined;
            }
            Scalar::Float(stored.low)
        }
    };
    let bytes = scalar_bytes(scalar, from);
    if to == DType::Bool && bytes[0] > 1 {
        return Number::Undetermined;
    }
    read_scalars(&bytes, to).first().map_or(Number::Undetermined, |s| from_scalar(*s))
}

/// The values as stored in a buffer.
pub(crate) fn stored(x: &OracleArray) -> Vec<Number> {
    let store = |n: &Number| match n {
        Number::Float(interval) => Number::Float(interval.rounded(x.dtype)),
        other => *other,
    };
    x.elements.iter().map(store).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(n: Number) -> Interval {
        match n {
            Number::Float(x) => x,
            other => panic!("{other:?} is not a float"),
        }
    }

    #[test]
    fn casts() {
        let int = |x: f64, to| match cast(Number::float(x), to) {
            Number::Integer(i) => i,
            other => panic!("{other:?}"),
        };
        assert_eq!(int(-1.9, DType::I8), -1);
        assert_eq!(int(1e30, DType::I64), i64::MAX.into());
        assert_eq!(int(-5.0, DType::U8), 0);
        assert_eq!(int(f64::INFINITY, DType::I32), i32::MAX.into());
        assert_eq!(int(f64::NAN, DType::I64), 0);
        assert_eq!(int(f64::NAN, DType::Bool), 1);
        let wide = Number::Float(Interval { value: 1.0, low: 0.9, high: 1.1 });
        assert!(matches!(cast(wide, DType::I32), Number::Undetermined));
        assert!(float(cast(Number::NAN, DType::F16)).is_nan());
        assert!(matches!(cast(Number::Integer(-1), DType::U16), Number::Integer(65535)));
        // 2^24 + 1 lies between two floats; 2^11 + 1 between two halves; ties go to even.
        assert_eq!(float(cast(Number::Integer((1 << 24) + 1), DType::F32)).low, f64::from(1 << 24));
        assert_eq!(float(cast(Number::Integer((1 << 11) + 1), DType::F16)).low, f64::from(1 << 11));
        assert_eq!(round_to_odd((1 << 60) + 1), ((1u64 << 60) + (1 << 8)) as f64);
    }

    #[test]
    fn bits() {
        let bits = |x, from, to| match bitcast(x, from, to) {
            Number::Integer(i) => i,
            other => panic!("{other:?}"),
        };
        assert_eq!(bits(Number::float(1.0), DType::F32, DType::U32), 0x3f80_0000);
        assert_eq!(bits(Number::float(-0.0), DType::F16, DType::I16), -32768);
        assert_eq!(float(bitcast(Number::Integer(0x3c00), DType::U16, DType::F16)).value, 1.0);
        assert!(matches!(bitcast(Number::NAN, DType::F32, DType::U32), Number::Undetermined));
    }
}
