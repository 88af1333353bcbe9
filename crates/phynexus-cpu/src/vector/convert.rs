//! Branch-free conversions between number formats. 16-bit floats are represented by their bits.

/// A float type that converts to integers: truncates, saturates, and maps NaN to 0. Equivalent to `as`, in a form that
/// vectorises.
pub(super) trait ToInteger<T> {
    fn to_integer(self) -> T;
}

macro_rules! to_integer {
    ($($f:ty => $($t:ident through $via:ty),*;)*) => {
        $($(impl ToInteger<$t> for $f {
            #[inline(always)]
            fn to_integer(self) -> $t {
                const LOW: $f = $t::MIN as $f;
                /// The smallest power of two that is too large.
                const LIMIT: $f = ($t::MAX / 2 + 1) as $f * 2.0;
                let inside = if self >= LOW { self } else { LOW };
                // False for NaN.
                let inside = if self < LIMIT { inside } else { 0.0 };
                // SAFETY: LOW <= inside < LIMIT, and `$via` can represent the integer parts of that range.
                let integer = unsafe { inside.to_int_unchecked::<$via>() };
                if self >= LIMIT { $t::MAX } else { integer as $t }
            }
        })*)*
    };
}
to_integer!(
    f32 => u8 through i32, u16 through i32, u32 through u32, u64 through u64,
           i8 through i32, i16 through i32, i32 through i32, i64 through i64;
    f64 => u8 through i32, u16 through i32, u32 through u32, u64 through u64,
           i8 through i32, i16 through i32, i32 through i32, i64 through i64;
);

/// `f16` bits to `f32`, exact.
#[inline(always)]
pub(super) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // The exponent is rebiased from 15 to 127, and from 31 to 255 for infinities and NaN.
    let normal = magnitude + (112 << 23);
    let special = magnitude + (224 << 23);
    // Subnormal: read as 2^-14 (1 + fraction), then subtract 2^-14.
    let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
    let value = if magnitude < 1 << 23 { subnormal } else { normal };
    let value = if magnitude >= 31 << 23 { special } else { value };
    f32::from_bits(value | sign)
}

/// `f32` to `f16` bits, to nearest, halves to even.
#[inline(always)]
pub(super) fn f32_to_f16(x: f32) -> u16 {
    let bits = x.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Rebias, add just under half a unit in the last place (exactly half for odd results), truncate.
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    // Below 2^-14, the last place is 2^-24, as for floats from 1/2 to 1.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let value = if magnitude < 113 << 23 { subnormal } else { normal };
    let value = if magnitude >= 143 << 23 { 0x7c00 } else { value };
    let value = if magnitude > 255 << 23 { 0x7e00 } else { value };
    (value | sign) as u16
}

/// `bf16` bits to `f32`, exact.
#[inline(always)]
pub(super) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// `f32` to `bf16` bits, to nearest, halves to even.
#[inline(always)]
pub(super) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if x.is_nan() { bits >> 16 | 0x40 } else { rounded }) as u16
}

/// `f64` to `f32` rounded to odd: truncated, with the last bit set if anything was lost. Rounding the result again to
/// at most 22 bits gives the correctly rounded value of `x`.
#[inline(always)]
fn round_to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    let cut = nearest.to_bits().wrapping_sub(u32::from(back.abs() > x.abs()));
    f32::from_bits(cut | u32::from(back != x))
}

/// `f64` to `f16` bits, rounded once.
#[inline(always)]
pub(super) fn f64_to_f16(x: f64) -> u16 {
    f32_to_f16(round_to_odd(x))
}

/// `f64` to `bf16` bits, rounded once.
#[inline(always)]
pub(super) fn f64_to_bf16(x: f64) -> u16 {
    f32_to_bf16(round_to_odd(x))
}

/// `f32` rounded to the nearest `f16`, halves to even: equals [`f32_to_f16`] and back.
#[inline(always)]
pub(super) fn round_to_f16(x: f32) -> f32 {
    let bits = x.to_bits();
    let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
    let normal = (magnitude + 0xfff + (magnitude >> 13 & 1)) & !0x1fff;
    // Below 2^-14, the last place is 2^-24, as for floats from 1/2 to 1.
    let subnormal = ((f32::from_bits(magnitude) + 0.5) - 0.5).to_bits();
    let value = if magnitude < 113 << 23 { subnormal } else { normal };
    let value = if normal >= 143 << 23 { 255 << 23 } else { value };
    let value = if magnitude > 255 << 23 { 0x7fc0_0000 } else { value };
    f32::from_bits(value | sign)
}

/// `f32` rounded to the nearest `bf16`, halves to even: equals [`f32_to_bf16`] and back.
#[inline(always)]
pub(super) fn round_to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    f32::from_bits((if x.is_nan() { bits | 0x40_0000 } else { rounded }) & 0xffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_conversion_there_and_back() {
        // Neighbourhoods of every 16-bit float, and of the midpoints between two.
        for high in 0..=u16::MAX {
            for low in [0u32, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let x = f32::from_bits(u32::from(high) << 16 | low);
                let (f16, bf16) = (f16_to_f32(f32_to_f16(x)), bf16_to_f32(f32_to_bf16(x)));
                assert_eq!(round_to_f16(x).to_bits(), f16.to_bits(), "{x} {:x}", x.to_bits());
                assert_eq!(round_to_bf16(x).to_bits(), bf16.to_bits(), "{x} {:x}", x.to_bits());
            }
        }
    }
}
