//! The oracle's numbers: an exact integer, an interval that contains the float of a correct device, or undetermined.

use crate::DType;

/// The value that a correct device may compute for one element.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// Exactly this integer (or 0 or 1 for a bool).
    Integer(i128),
    /// A float within these bounds.
    Float(Interval),
    /// Several values are right (such as for a comparison of two values closer than their error); not compared.
    Undetermined,
}

/// The floats that a correct device may compute. NaN is an interval whose three fields are NaN.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// The value computed in `f64`.
    pub value: f64,
    /// The least admissible result.
    pub low: f64,
    /// The greatest admissible result.
    pub high: f64,
}

impl Interval {
    /// Exactly this float.
    pub const fn point(value: f64) -> Interval {
        Interval { value, low: value, high: value }
    }

    /// True if only one result is admissible (zeros of both signs count as one).
    pub fn is_point(&self) -> bool {
        self.low == self.high || self.is_nan()
    }

    /// True for NaN.
    pub fn is_nan(&self) -> bool {
        self.value.is_nan()
    }

    /// True if zero is admissible.
    pub fn contains_zero(&self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    /// The larger magnitude of the two bounds.
    pub fn magnitude(&self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Ordered bounds of these values, none of which is NaN; -0 orders below +0.
    pub(crate) fn hull(value: f64, bounds: impl IntoIterator<Item = f64>) -> Interval {
        let widen = |i: Interval, x: f64| Interval {
            low: if x.total_cmp(&i.low).is_lt() { x } else { i.low },
            high: if x.total_cmp(&i.high).is_gt() { x } else { i.high },
            ..i
        };
        bounds.into_iter().fold(Interval::point(value), widen)
    }

    /// Bounds moved outwards by `ulps` units in the last place of `dtype`.
    pub(crate) fn widened(self, ulps: f64, dtype: DType) -> Interval {
        self.widened_beside(ulps, 0.0, dtype)
    }

    /// As [`Interval::widened`], by units of at least those of a number of this magnitude.
    pub(crate) fn widened_beside(self, ulps: f64, magnitude: f64, dtype: DType) -> Interval {
        let unit = |bound: f64| ulps * ulp(bound.abs().max(magnitude), dtype);
        Interval { low: self.low - unit(self.low), high: self.high + unit(self.high), ..self }
    }

    /// The interval as a device that computes in `dtype` holds it: bounds are rounded, for 16-bit floats to `f32`
    /// first.
    pub(crate) fn settled(self, dtype: DType) -> Interval {
        self.rounded(dtype.compute()).rounded(dtype)
    }

    /// The interval as stored in a buffer or produced by a cast: bounds are rounded to `dtype`.
    pub(crate) fn rounded(self, dtype: DType) -> Interval {
        Interval {
            value: round(self.value, dtype),
            low: round(self.low, dtype),
            high: round(self.high, dtype),
        }
    }
}

impl Number {
    /// Exactly this float.
    pub const fn float(value: f64) -> Number {
        Number::Float(Interval::point(value))
    }

    /// A bool.
    pub const fn bool(value: bool) -> Number {
        Number::Integer(value as i128)
    }

    /// NaN.
    pub const NAN: Number = Number::float(f64::NAN);
}

/// Significant bits, least exponent of a normal number, greatest finite value.
struct Format {
    precision: i32,
    least_exponent: i32,
    greatest: f64,
}

const fn format(dtype: DType) -> Format {
    match dtype {
        DType::F8E4M3 => Format { precision: 4, least_exponent: -6, greatest: 448.0 },
        DType::F8E5M2 => Format { precision: 3, least_exponent: -14, greatest: 57344.0 },
        DType::F16 => Format { precision: 11, least_exponent: -14, greatest: 65504.0 },
        DType::BF16 => Format { precision: 8, least_exponent: -126, greatest: 3.389_531_389_251_535_5e38 },
        DType::F32 => Format { precision: 24, least_exponent: -126, greatest: f32::MAX as f64 },
        _ => Format { precision: 53, least_exponent: -1022, greatest: f64::MAX },
    }
}

/// 2 to the power `exponent`, for every exponent of a finite `f64`.
fn power_of_two(exponent: i32) -> f64 {
    if exponent >= -1022 {
        f64::from_bits(((exponent + 1023) as u64) << 52)
    } else {
        f64::from_bits(1u64 << (exponent + 1074).max(0))
    }
}

/// The exponent e of a finite `x` with 2^e <= |x| < 2^(e+1). For subnormal `f64`s, it is that of the least normal
/// number.
fn exponent(x: f64) -> i32 {
    (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(-1022)
}

/// The spacing of `dtype` around `x`; 0 for infinities and NaN.
pub fn ulp(x: f64, dtype: DType) -> f64 {
    if !x.is_finite() {
        return 0.0;
    }
    let format = format(dtype);
    power_of_two(exponent(x).max(format.least_exponent) - (format.precision - 1))
}

/// `x` rounded to the nearest value of `dtype`, ties to even, overflowing to infinity, or to NaN if there is none.
/// (`half`'s conversion from `f64` drops the low 32 bits first, so it can miss a tie by one.)
pub(crate) fn round(x: f64, dtype: DType) -> f64 {
    let infinity = if dtype == DType::F8E4M3 { f64::NAN } else { f64::INFINITY.copysign(x) };
    match dtype {
        DType::F64 => return x,
        _ if x.is_nan() => return x,
        _ if x.is_infinite() => return infinity,
        _ => {}
    }
    let unit = ulp(x, dtype);
    let rounded = (x / unit).round_ties_even() * unit;
    if rounded.abs() > greatest(dtype) { infinity } else { rounded }
}

/// The greatest finite value of a float type.
pub(crate) const fn greatest(dtype: DType) -> f64 {
    format(dtype).greatest
}

/// The least positive normal value of a float type.
pub(crate) fn least_normal(dtype: DType) -> f64 {
    power_of_two(format(dtype).least_exponent)
}

/// The relative error of one rounding: half the spacing at 1.
pub(crate) fn unit_roundoff(dtype: DType) -> f64 {
    power_of_two(-format(dtype).precision)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::Float8;

    #[test]
    fn rounding_agrees_with_the_types_themselves() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let exponent = (state >> 58) as i32 * 5 - 160;
            let x = (1.0 + (state << 6 >> 12) as f64 / (1u64 << 52) as f64) * 2f64.powi(exponent);
            let x = if state & 1 == 0 { x } else { -x };
            assert_eq!(round(x, DType::F32), f64::from(x as f32), "{x}");
            // From f32 on, the conversions of `half` are exact.
            let single = f64::from(x as f32);
            assert_eq!(round(single, DType::F16), f16::from_f32(single as f32).to_f64(), "{single}");
            for (dtype, format) in [(DType::F8E4M3, Float8::E4M3), (DType::F8E5M2, Float8::E5M2)] {
                let own = format.to_f32(format.from_f64(x));
                assert_eq!(round(x, dtype).to_bits() << 1, f64::from(own).to_bits() << 1, "{x} as {dtype}");
            }
            assert_eq!(round(single, DType::BF16), bf16::from_f32(single as f32).to_f64(), "{single}");
        }
        assert_eq!(round(65519.9, DType::F16), 65504.0);
        assert_eq!(round(65520.0, DType::F16), f64::INFINITY);
        assert_eq!(round(1.0 + 2f64.powi(-11) + 2f64.powi(-50), DType::F16), 1.0 + 2f64.powi(-10));
        assert!(round(-1e-60, DType::F32).is_sign_negative());
        assert_eq!(greatest(DType::BF16), bf16::MAX.to_f64());
    }

    #[test]
    fn units_in_the_last_place() {
        assert_eq!(ulp(1.0, DType::F32), f64::from(f32::EPSILON));
        assert_eq!(ulp(1.0, DType::F64), f64::EPSILON);
        assert_eq!(ulp(0.0, DType::F32), f64::from(f32::from_bits(1)));
        assert_eq!(ulp(0.0, DType::F64), f64::from_bits(1));
        assert_eq!(ulp(-3.0, DType::F16), 2f64.powi(-9));
        assert_eq!(unit_roundoff(DType::F32), f64::from(f32::EPSILON) / 2.0);
    }

    #[test]
    fn sixteen_bit_values_have_sixteen_bits() {
        let third = Interval::point(1.0 / 3.0).settled(DType::F16);
        assert!(third.is_point() && third.low == 0.333_251_953_125);
        let large = Interval::point(70000.0).settled(DType::F16);
        assert_eq!((large.low, large.high), (f64::INFINITY, f64::INFINITY));
    }
}
