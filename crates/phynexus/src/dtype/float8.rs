//! Floats of 8 bits (OCP 8-bit Floating Point Specification, revision 1.0).

/// The remedy where 8-bit floats are refused.
pub(crate) const FLOAT8_HINT: &str =
    "8-bit floats are only stored, converted and multiplied as matrices: convert with .to_dtype(float32)";

/// A format of 8 bits: a sign, an exponent, a significand.
#[derive(Clone, Copy, Debug)]
pub struct Float8 {
    /// Bits of the significand that are stored.
    pub stored: u32,
    /// The exponent of the least normal number.
    pub least: i32,
    /// The bits of the greatest finite number.
    pub greatest: u8,
    /// The bits of what is too great: infinity, or NaN if the format has no infinity.
    pub overflow: u8,
    /// The bits of NaN.
    pub nan: u8,
}

impl Float8 {
    /// 4 bits of exponent, 3 of significand, no infinity. The greatest number is 448.
    pub const E4M3: Float8 = Float8 { stored: 3, least: -6, greatest: 0x7e, overflow: 0x7f, nan: 0x7f };
    /// 5 bits of exponent, 2 of significand. The greatest finite number is 57344.
    pub const E5M2: Float8 = Float8 { stored: 2, least: -14, greatest: 0x7b, overflow: 0x7c, nan: 0x7e };

    /// The distance of subnormal numbers: the least positive number.
    pub fn quantum(self) -> f32 {
        2f32.powi(self.least - self.stored as i32)
    }

    /// The places of a `float32`'s significand that are not stored.
    pub const fn shift(self) -> u32 {
        23 - self.stored
    }

    /// The bits of the least normal number as a `float32`.
    pub const fn least_bits(self) -> u32 {
        ((self.least + 127) as u32) << 23
    }

    /// What exponents, as they are stored, have less than those of a `float32`, at their place in the format.
    pub const fn bias(self) -> u32 {
        ((self.least + 126) as u32) << self.stored
    }

    /// The bits of a `float32` to whose last place belongs the distance of subnormal numbers.
    pub const fn aligned_bits(self) -> u32 {
        ((self.least - self.stored as i32 + 23 + 127) as u32) << 23
    }

    /// The bits of a float, rounded to nearest, ties to even.
    #[inline(always)]
    pub fn from_f32(self, value: f32) -> u8 {
        let (bits, shift, aligned) = (value.to_bits(), self.shift(), self.aligned_bits());
        let magnitude = bits & 0x7fff_ffff;
        let least = self.least_bits();
        let subnormal = (f32::from_bits(magnitude) + f32::from_bits(aligned)).to_bits().wrapping_sub(aligned);
        let half = (1 << (shift - 1)) - 1 + (magnitude >> shift & 1);
        let normal = ((magnitude + half) >> shift).wrapping_sub(self.bias());
        let rounded = if magnitude < least { subnormal } else { normal };
        let finite = if rounded > u32::from(self.greatest) { self.overflow.into() } else { rounded };
        let all = if magnitude > 0x7f80_0000 { self.nan.into() } else { finite };
        (all | bits >> 24 & 0x80) as u8
    }

    /// The same for a `float64`, which is rounded once.
    #[inline(always)]
    pub fn from_f64(self, value: f64) -> u8 {
        let single = value as f32;
        // Rounded to odd, a number can be rounded once more.
        let is_exact = f64::from(single) == value || !single.is_finite();
        let bits = single.to_bits();
        let down = if f64::from(single).abs() > value.abs() { bits - 1 } else { bits };
        self.from_f32(f32::from_bits(if is_exact { bits } else { down | 1 }))
    }

    /// The value of these bits, exactly.
    #[inline(always)]
    pub fn to_f32(self, bits: u8) -> f32 {
        let magnitude = u32::from(bits & 0x7f);
        let normal = (magnitude + self.bias()) << self.shift();
        let value = match magnitude {
            _ if magnitude > self.greatest.into()
                && self.overflow != self.nan
                && bits & 0x7f == self.overflow =>
            {
                f32::INFINITY
            }
            _ if magnitude > self.greatest.into() => f32::NAN,
            _ if magnitude < 1 << self.stored => magnitude as f32 * self.quantum(),
            _ => f32::from_bits(normal),
        };
        f32::from_bits(value.to_bits() | u32::from(bits & 0x80) << 24)
    }
}

macro_rules! float8 {
    ($name:ident, $format:ident, $about:literal) => {
        #[doc = $about]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// From its bits.
            pub const fn from_bits(bits: u8) -> $name {
                $name(bits)
            }
            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }
            /// Rounded to nearest, ties to even.
            pub fn from_f64(value: f64) -> $name {
                $name(Float8::$format.from_f64(value))
            }
            /// Exactly.
            pub fn to_f64(self) -> f64 {
                Float8::$format.to_f32(self.0).into()
            }
            pub(crate) const fn to_le_bytes(self) -> [u8; 1] {
                [self.0]
            }
            pub(crate) const fn from_le_bytes([bits]: [u8; 1]) -> $name {
                $name(bits)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &$name) -> bool {
                self.to_f64() == other.to_f64()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &$name) -> Option<std::cmp::Ordering> {
                self.to_f64().partial_cmp(&other.to_f64())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:?}", self.to_f64())
            }
        }
    };
}

float8!(F8E4M3, E4M3, "A float of 8 bits: [`Float8::E4M3`].");
float8!(F8E5M2, E5M2, "A float of 8 bits: [`Float8::E5M2`].");

#[cfg(test)]
mod tests {
    use super::*;

    /// All numbers of a format, from the definition: the value of each pattern of bits.
    fn value(format: Float8, bits: u8) -> f64 {
        let (exponent, significand) =
            (i32::from(bits & 0x7f) >> format.stored, bits & ((1 << format.stored) - 1));
        let whole = if exponent == 0 { 0.0 } else { 1.0 };
        let significand = whole + f64::from(significand) / f64::from(1 << format.stored);
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        sign * significand * 2f64.powi(exponent.max(1) - 1 + format.least)
    }

    #[test]
    fn every_pattern_of_bits() {
        for format in [Float8::E4M3, Float8::E5M2] {
            for bits in 0..=u8::MAX {
                let read = format.to_f32(bits);
                match bits & 0x7f {
                    finite if finite <= format.greatest => {
                        assert_eq!(f64::from(read).to_bits(), value(format, bits).to_bits(), "{bits:#x}");
                        assert_eq!((format.from_f32(read), format.from_f64(read.into())), (bits, bits));
                    }
                    0x7c => assert_eq!(read.abs(), f32::INFINITY),
                    _ => assert!(read.is_nan()),
                }
            }
        }
    }

    /// Numbers halfway between two neighbours go to the even one, and those beside them to the nearer one.
    #[test]
    fn rounding() {
        for format in [Float8::E4M3, Float8::E5M2] {
            for bits in 0..format.greatest {
                let (low, high) = (value(format, bits), value(format, bits + 1));
                let half = (low + high) / 2.0;
                let even = if bits % 2 == 0 { bits } else { bits + 1 };
                assert_eq!((format.from_f64(half), format.from_f32(half as f32)), (even, even));
                // Beside it by less than a float32 shows.
                assert_eq!(format.from_f64(half * (1.0 - 1e-12)), bits);
                assert_eq!(format.from_f64(half * (1.0 + 1e-12)), bits + 1);
                assert_eq!(format.from_f32((half * (1.0 - 1e-6)) as f32), bits);
                assert_eq!(format.from_f32((half * (1.0 + 1e-6)) as f32), bits + 1);
                assert_eq!(format.from_f64(-half), even | 0x80);
            }
        }
    }

    #[test]
    fn what_is_too_great() {
        let of = |format: Float8, value: f64| (format.from_f64(value), format.from_f32(value as f32));
        assert_eq!(of(Float8::E4M3, 464.0), (0x7e, 0x7e));
        assert_eq!(of(Float8::E4M3, 464.1), (0x7f, 0x7f));
        assert_eq!(of(Float8::E4M3, f64::NEG_INFINITY), (0xff, 0xff));
        assert_eq!(of(Float8::E4M3, 1e300), (0x7f, 0x7f));
        assert_eq!(of(Float8::E5M2, 61439.0), (0x7b, 0x7b));
        assert_eq!(of(Float8::E5M2, 61440.0), (0x7c, 0x7c));
        assert_eq!(of(Float8::E5M2, f64::INFINITY), (0x7c, 0x7c));
        assert!(Float8::E5M2.to_f32(Float8::E5M2.from_f32(f32::NAN)).is_nan());
        assert!(Float8::E4M3.to_f32(Float8::E4M3.from_f64(f64::NAN)).is_nan());
        // Far below the least number.
        assert_eq!(of(Float8::E4M3, -1e-40), (0x80, 0x80));
        assert_eq!(of(Float8::E5M2, 1e-300), (0, 0));
    }
}
