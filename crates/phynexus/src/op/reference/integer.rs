//! Integers and bools: exact, wrapped to the width.

use crate::{
    DType,
    op::{Binary, Unary},
};

/// Bits of an integer type; 1 for `bool`.
fn width(dtype: DType) -> u32 {
    if dtype == DType::Bool { 1 } else { dtype.size() as u32 * 8 }
}

fn is_signed(dtype: DType) -> bool {
    dtype.kind() == crate::DTypeKind::Signed
}

/// The value of `dtype` that equals `x` modulo 2 to the width.
pub(crate) fn wrap(x: i128, dtype: DType) -> i128 {
    let bits = width(dtype);
    let low = x & ((1 << bits) - 1);
    if is_signed(dtype) && low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

/// A float truncated towards zero and saturated at the type's limits; NaN gives 0.
pub(crate) fn from_float(x: f64, dtype: DType) -> i128 {
    let values = 1i128 << width(dtype);
    let least = if is_signed(dtype) { -values / 2 } else { 0 };
    (x as i128).clamp(least, least + values - 1)
}

/// A unary operation on an integer of `dtype`.
pub(crate) fn unary(op: Unary, x: i128, dtype: DType) -> Option<i128> {
    let result = match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => x.signum(),
        Unary::Not => !x,
        _ => return None,
    };
    Some(wrap(result, dtype))
}

/// A binary operation on integers of `dtype`; comparisons give 0 or 1.
pub(crate) fn binary(op: Binary, a: i128, b: i128, dtype: DType) -> Option<i128> {
    let result = op.row().integer?(a, b, width(dtype));
    Some(if op.is_comparison() { result } else { wrap(result, dtype) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agree_with_the_machine_on_all_pairs_of_bytes() {
        for a in i8::MIN..=i8::MAX {
            for b in i8::MIN..=i8::MAX {
                let ours = |op| binary(op, a.into(), b.into(), DType::I8).unwrap();
                assert_eq!(ours(Binary::Add), a.wrapping_add(b).into());
                assert_eq!(ours(Binary::Sub), a.wrapping_sub(b).into());
                assert_eq!(ours(Binary::Mul), a.wrapping_mul(b).into());
                let (x, y) = (f64::from(a), f64::from(b));
                let quotient = if b == 0 { 0 } else { (x / y).floor() as i64 as i8 as i128 };
                let quotient = if (a, b) == (i8::MIN, -1) { i8::MIN.into() } else { quotient };
                assert_eq!(ours(Binary::FloorDiv), quotient, "{a} // {b}");
                let remainder = if b == 0 { 0 } else { (x - (x / y).floor() * y) as i128 };
                assert_eq!(ours(Binary::Remainder), remainder, "{a} % {b}");
                let exponent = u32::from(b.unsigned_abs());
                if b >= 0 {
                    assert_eq!(ours(Binary::Pow), a.wrapping_pow(exponent).into(), "{a} ** {b}");
                }
                let left = u32::try_from(b).ok().and_then(|s| a.checked_shl(s)).unwrap_or(0);
                assert_eq!(ours(Binary::Shl), left.into());
                let right = u32::try_from(b).ok().and_then(|s| a.checked_shr(s)).unwrap_or(if a < 0 {
                    -1
                } else {
                    0
                });
                assert_eq!(ours(Binary::Shr), right.into());
            }
            assert_eq!(unary(Unary::Abs, a.into(), DType::I8), Some(a.wrapping_abs().into()));
            assert_eq!(unary(Unary::Neg, a.into(), DType::I8), Some(a.wrapping_neg().into()));
            assert_eq!(unary(Unary::Not, a.into(), DType::I8), Some((!a).into()));
        }
    }

    #[test]
    fn floats_saturate_as_scalars_do() {
        for dtype in DType::INTEGERS {
            for x in [
                300.7,
                -1.0,
                -1.9,
                1e10,
                -1e10,
                1e19,
                -1e19,
                1e30,
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
            ] {
                let scalar = match crate::Scalar::Float(x).cast(dtype) {
                    crate::Scalar::UInt(u) => i128::from(u),
                    other => i128::from(other.as_i64()),
                };
                assert_eq!(from_float(x, dtype), scalar, "{x} as {dtype}");
            }
        }
        assert_eq!(from_float(f64::INFINITY, DType::I32), i32::MAX.into());
        assert_eq!(from_float(f64::NEG_INFINITY, DType::I8), i8::MIN.into());
        assert_eq!(from_float(1e30, DType::U64), u64::MAX.into());
        assert_eq!(from_float(-1.5, DType::U16), 0);
        assert_eq!(from_float(f64::NAN, DType::I16), 0);
        assert_eq!(wrap(-1, DType::U64), u64::MAX.into());
        assert_eq!(unary(Unary::Not, 1, DType::Bool), Some(0));
    }
}
