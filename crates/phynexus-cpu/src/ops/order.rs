//! The order of values as unsigned integers.

use std::ops::Not;

use half::{bf16, f16};

/// An element ordered by an unsigned key: NaN is the greatest and equal to itself, and zeros are equal.
pub(super) trait Ordered: Copy + Send + Sync + 'static {
    type Key: Key;
    fn key(self) -> Self::Key;
    /// The key for descending order, in which NaN is still the greatest. The greatest key belongs to the smallest
    /// element.
    fn descending_key(self) -> Self::Key;
}

/// An unsigned integer for sorting.
pub(super) trait Key: Copy + Ord + Not<Output = Self> + Default + Send + Sync + 'static {
    /// Bytes of the key.
    const BYTES: u32;
    /// Byte `i`, from the least significant.
    fn byte(self, i: u32) -> usize;
}

macro_rules! key {
    ($($t:ty),*) => {
        $(impl Key for $t {
            const BYTES: u32 = <$t>::BITS / 8;
            #[inline(always)]
            fn byte(self, i: u32) -> usize {
                (self >> (8 * i)) as u8 as usize
            }
        })*
    };
}
key!(u8, u16, u32, u64);

macro_rules! unsigned {
    ($($t:ty),*) => {
        $(impl Ordered for $t {
            type Key = $t;
            #[inline(always)]
            fn key(self) -> $t {
                self
            }
            #[inline(always)]
            fn descending_key(self) -> $t {
                !self
            }
        })*
    };
}
unsigned!(u8, u16, u32, u64);

macro_rules! signed {
    ($($t:ty, $u:ty);*) => {
        $(impl Ordered for $t {
            type Key = $u;
            #[inline(always)]
            fn key(self) -> $u {
                self as $u ^ 1 << (<$u>::BITS - 1)
            }
            #[inline(always)]
            fn descending_key(self) -> $u {
                !self.key()
            }
        })*
    };
}
signed!(i8, u8; i16, u16; i32, u32; i64, u64);

macro_rules! float {
    ($($t:ty, $u:ty, $infinity:expr);*) => {
        $(impl Ordered for $t {
            type Key = $u;
            #[inline(always)]
            fn key(self) -> $u {
                const SIGN: $u = 1 << (<$u>::BITS - 1);
                let bits = self.to_bits();
                let magnitude = bits & !SIGN;
                // Negative numbers count down from the middle, so that -0 and 0 have the same key.
                let key = if bits == magnitude { SIGN + magnitude } else { SIGN - magnitude };
                if magnitude > $infinity.to_bits() { <$u>::MAX } else { key }
            }
            #[inline(always)]
            fn descending_key(self) -> $u {
                let key = self.key();
                if key == <$u>::MAX { key } else { !key }
            }
        })*
    };
}
float!(f16, u16, f16::INFINITY; bf16, u16, bf16::INFINITY; f32, u32, f32::INFINITY; f64, u64, f64::INFINITY);
