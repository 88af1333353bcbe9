//! What the elementwise operations of loop trees give for single numbers: the plain meaning that the interpreter runs.
//!
//! Floats are computed in `f64` and rounded to the type's [`DType::compute`] type; for sums, products, quotients and
//! square roots of `f32` that is the correctly rounded result.

use crate::{
    DType, Element, Scalar,
    dtype::Kind,
    graph::op::{Binary, Unary},
};

/// A function of one number.
pub(super) fn unary(op: Unary, dtype: DType, a: Scalar) -> Scalar {
    use Unary::*;
    match dtype.kind() {
        Kind::Bool => Scalar::Bool(!a.as_bool()),
        Kind::Float => {
            let x = a.as_f64();
            match op {
                IsNan => Scalar::Bool(x.is_nan()),
                IsInf => Scalar::Bool(x.is_infinite()),
                _ => Scalar::Float(float_unary(op, x)).cast(dtype.compute()),
            }
        }
        Kind::Unsigned => match op {
            Neg => Scalar::UInt(a.as_u64().wrapping_neg()),
            Sign => Scalar::UInt(a.as_u64().min(1)),
            Not => Scalar::UInt(!a.as_u64()),
            _ => a,
        }
        .cast(dtype),
        Kind::Signed => match op {
            Neg => Scalar::Int(a.as_i64().wrapping_neg()),
            Abs => Scalar::Int(a.as_i64().wrapping_abs()),
            Sign => Scalar::Int(a.as_i64().signum()),
            Not => Scalar::Int(!a.as_i64()),
            _ => a,
        }
        .cast(dtype),
    }
}

fn float_unary(op: Unary, x: f64) -> f64 {
    use Unary::*;
    match op {
        Neg => -x,
        Abs => x.abs(),
        Sign if x == 0.0 || x.is_nan() => x,
        Sign => x.signum(),
        Recip => 1.0 / x,
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Exp => x.exp(),
        Exp2 => x.exp2(),
        Expm1 => x.exp_m1(),
        Log => x.ln(),
        Log2 => x.log2(),
        Log1p => x.ln_1p(),
        Sin => x.sin(),
        Cos => x.cos(),
        Tan => x.tan(),
        Asin => x.asin(),
        Acos => x.acos(),
        Atan => x.atan(),
        Sinh => x.sinh(),
        Cosh => x.cosh(),
        Tanh => x.tanh(),
        Asinh => x.asinh(),
        Acosh => x.acosh(),
        Atanh => x.atanh(),
        Erf => erf(x),
        Floor => x.floor(),
        Ceil => x.ceil(),
        Trunc => x.trunc(),
        Round => x.round_ties_even(),
        // Not of a float is no operation; IsNan and IsInf were answered before.
        Not | IsNan | IsInf => f64::NAN,
    }
}

/// The error function: its Taylor series near 0, the continued fraction of its complement beyond (Abramowitz and
/// Stegun, Handbook of Mathematical Functions, 7.1.6 and 7.1.14).
fn erf(x: f64) -> f64 {
    let square = x * x;
    if x.is_nan() {
        x
    } else if x.abs() < 2.5 {
        // 2/sqrt(pi) * exp(-x^2) * sum of 2^n x^(2n+1) / (1 * 3 * ... * (2n+1)): all terms have one sign.
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= 2.0 * square / f64::from(2 * n + 1);
            sum += term;
        }
        std::f64::consts::FRAC_2_SQRT_PI * (-square).exp() * sum
    } else {
        let fraction = (1..60).rev().fold(x.abs(), |f, n| x.abs() + f64::from(n) / 2.0 / f);
        let complement = (-square).exp() / fraction * std::f64::consts::FRAC_2_SQRT_PI / 2.0;
        (1.0 - complement).copysign(x)
    }
}

/// A function of two numbers of one type.
pub(super) fn binary(op: Binary, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    use Binary::*;
    let compared = match dtype.kind() {
        Kind::Float => a.as_f64().partial_cmp(&b.as_f64()),
        Kind::Signed => Some(a.as_i64().cmp(&b.as_i64())),
        Kind::Bool | Kind::Unsigned => Some(a.as_u64().cmp(&b.as_u64())),
    };
    let is_nan = |s: Scalar| matches!(s, Scalar::Float(x) if x.is_nan());
    match op {
        Lt => Scalar::Bool(compared.is_some_and(|c| c.is_lt())),
        Le => Scalar::Bool(compared.is_some_and(|c| c.is_le())),
        Eq => Scalar::Bool(compared.is_some_and(|c| c.is_eq())),
        Ne => Scalar::Bool(compared.is_none_or(|c| c.is_ne())),
        Max => {
            if is_nan(a) || compared.is_some_and(|c| c.is_gt()) {
                a
            } else {
                b
            }
        }
        Min => {
            if is_nan(a) || compared.is_some_and(|c| c.is_lt()) {
                a
            } else {
                b
            }
        }
        _ => match dtype.kind() {
            Kind::Float => Scalar::Float(float_binary(op, a.as_f64(), b.as_f64())).cast(dtype.compute()),
            Kind::Signed => Scalar::Int(signed_binary(op, dtype, a.as_i64(), b.as_i64())).cast(dtype),
            Kind::Bool | Kind::Unsigned => {
                Scalar::UInt(unsigned_binary(op, dtype, a.as_u64(), b.as_u64())).cast(dtype)
            }
        },
    }
}

fn float_binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::FloorDiv => (a / b).floor(),
        Binary::Remainder => {
            let left = a % b;
            if left != 0.0 && (left < 0.0) != (b < 0.0) { left + b } else { left }
        }
        Binary::Pow => a.powf(b),
        Binary::Atan2 => a.atan2(b),
        // The others take integers only, or were compared before.
        _ => f64::NAN,
    }
}

fn signed_binary(op: Binary, dtype: DType, a: i64, b: i64) -> i64 {
    let too_far = !(0..dtype.size() as i64 * 8).contains(&b);
    match op {
        Binary::FloorDiv if b == 0 => 0,
        Binary::FloorDiv if b == -1 => a.wrapping_neg(),
        Binary::FloorDiv => a / b - i64::from(a % b != 0 && (a < 0) != (b < 0)),
        Binary::Remainder if b == 0 || b == -1 => 0,
        Binary::Remainder if a % b != 0 && (a < 0) != (b < 0) => a % b + b,
        Binary::Remainder => a % b,
        // Negative powers of integers are truncated: only those of 1 and -1 are not 0.
        Binary::Pow if b < 0 => match a {
            1 => 1,
            -1 => 1 - 2 * (b & 1),
            _ => 0,
        },
        Binary::Shr if too_far => {
            if a < 0 {
                -1
            } else {
                0
            }
        }
        Binary::Shr => a >> b,
        _ => unsigned_binary(op, dtype, a as u64, b as u64) as i64,
    }
}

fn unsigned_binary(op: Binary, dtype: DType, a: u64, b: u64) -> u64 {
    let too_far = b >= dtype.size() as u64 * 8;
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::FloorDiv => a.checked_div(b).unwrap_or(0),
        Binary::Remainder => a.checked_rem(b).unwrap_or(0),
        Binary::Pow => {
            let (mut power, mut base, mut exponent) = (1u64, a, b);
            while exponent > 0 {
                power = if exponent & 1 == 1 { power.wrapping_mul(base) } else { power };
                base = base.wrapping_mul(base);
                exponent >>= 1;
            }
            power
        }
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl | Binary::Shr if too_far => 0,
        Binary::Shl => a << b,
        Binary::Shr => a >> b,
        // The others take floats only, or were compared before.
        _ => 0,
    }
}

/// The bits of a number of type `from`, read as type `to` of the same size.
pub(super) fn bitcast(from: DType, to: DType, a: Scalar) -> Scalar {
    fn bytes<T: Element>(a: Scalar) -> Vec<u8> {
        let mut out = Vec::new();
        T::write_bytes(&[T::from_scalar(a)], &mut out);
        out
    }
    fn read<T: Element>(bytes: &[u8]) -> Scalar {
        T::read_bytes(bytes).first().map_or(Scalar::Int(0), |v| v.to_scalar())
    }
    macro_rules! dispatch {
        ($dtype:expr, $function:ident, $argument:expr) => {
            match $dtype {
                DType::Bool => $function::<bool>($argument),
                DType::U8 => $function::<u8>($argument),
                DType::U16 => $function::<u16>($argument),
                DType::U32 => $function::<u32>($argument),
                DType::U64 => $function::<u64>($argument),
                DType::I8 => $function::<i8>($argument),
                DType::I16 => $function::<i16>($argument),
                DType::I32 => $function::<i32>($argument),
                DType::I64 => $function::<i64>($argument),
                DType::F16 => $function::<half::f16>($argument),
                DType::BF16 => $function::<half::bf16>($argument),
                DType::F32 => $function::<f32>($argument),
                DType::F64 => $function::<f64>($argument),
            }
        };
    }
    let bytes = dispatch!(from, bytes, a);
    dispatch!(to, read, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_matches_published_values() {
        // SciPy 1.17, scipy.special.erf.
        for (x, expected) in [
            (0.0, 0.0),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (2.4, 0.9993114861033549),
            (2.5, 0.999593047982555),
            (3.5, 0.9999992569016276),
            (9.0, 1.0),
        ] {
            assert!((erf(x) - expected).abs() < 3e-16, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert!(erf(f64::NAN).is_nan());
        assert_eq!(erf(f64::INFINITY), 1.0);
    }

    #[test]
    fn division_follows_python() {
        let i = |op, a: i64, b: i64| binary(op, DType::I8, Scalar::Int(a), Scalar::Int(b)).as_i64();
        assert_eq!([i(Binary::FloorDiv, -7, 2), i(Binary::Remainder, -7, 2)], [-4, 1]);
        assert_eq!([i(Binary::FloorDiv, 7, -2), i(Binary::Remainder, 7, -2)], [-4, -1]);
        assert_eq!([i(Binary::FloorDiv, 7, 0), i(Binary::Remainder, 7, 0)], [0, 0]);
        assert_eq!([i(Binary::FloorDiv, -128, -1), i(Binary::Pow, -1, -3)], [-128, -1]);
        assert_eq!([i(Binary::Shr, -1, 8), i(Binary::Shl, 1, 8), i(Binary::Shl, 1, 7)], [-1, 0, -128]);
        let f = |a: f64, b: f64| binary(Binary::Remainder, DType::F32, a.into(), b.into()).as_f64();
        assert_eq!([f(-7.5, 2.0), f(7.5, -2.0)], [0.5, -0.5]);
    }

    #[test]
    fn nan_spreads_through_extremes() {
        for op in [Binary::Max, Binary::Min] {
            assert!(binary(op, DType::F32, f32::NAN.into(), 1f32.into()).as_f64().is_nan());
            assert!(binary(op, DType::F32, 1f32.into(), f32::NAN.into()).as_f64().is_nan());
        }
    }

    #[test]
    fn bits_are_kept() {
        assert_eq!(bitcast(DType::F32, DType::U32, 1f32.into()), Scalar::UInt(0x3f80_0000));
        assert_eq!(bitcast(DType::U16, DType::F16, Scalar::UInt(0x3c00)), Scalar::Float(1.0));
    }
}
