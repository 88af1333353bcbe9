//! The semantics of integer operations: arithmetic wraps, and division by zero gives 0.

/// An integer type of a fixed width.
pub(super) trait Integer: Copy {
    const LEAST: Self;
    const GREATEST: Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    /// -1, 0 or 1.
    fn sign(self) -> Self;
    /// The quotient rounded towards negative infinity; 0 for a divisor of 0.
    fn floor_div(self, divisor: Self) -> Self;
    /// The remainder with the divisor's sign; 0 for a divisor of 0.
    fn remainder(self, divisor: Self) -> Self;
    /// Wraps. For a negative exponent, returns the integer part: 0 unless the base is 1 or -1.
    fn pow(self, exponent: Self) -> Self;
    /// 0 if the (unsigned) count reaches the width.
    fn shl(self, count: Self) -> Self;
    /// Arithmetic for signed types: 0 or -1 if the (unsigned) count reaches the width.
    fn shr(self, count: Self) -> Self;
}

/// `base^exponent` by squaring, wrapping.
macro_rules! power {
    ($base:expr, $exponent:expr) => {{
        let (mut base, mut exponent, mut result) = ($base, $exponent, 1);
        while exponent > 0 {
            if exponent & 1 == 1 {
                result = base.wrapping_mul(result);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        result
    }};
}

macro_rules! unsigned {
    ($($t:ident),*) => {
        $(impl Integer for $t {
            const LEAST: $t = $t::MIN;
            const GREATEST: $t = $t::MAX;
            #[inline(always)]
            fn neg(self) -> $t {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> $t {
                self
            }
            #[inline(always)]
            fn sign(self) -> $t {
                (self != 0) as $t
            }
            #[inline(always)]
            fn floor_div(self, divisor: $t) -> $t {
                self.checked_div(divisor).unwrap_or(0)
            }
            #[inline(always)]
            fn remainder(self, divisor: $t) -> $t {
                self.checked_rem(divisor).unwrap_or(0)
            }
            #[inline(always)]
            fn pow(self, exponent: $t) -> $t {
                power!(self, exponent)
            }
            #[inline(always)]
            fn shl(self, count: $t) -> $t {
                if count < $t::BITS as $t { self << count } else { 0 }
            }
            #[inline(always)]
            fn shr(self, count: $t) -> $t {
                if count < $t::BITS as $t { self >> count } else { 0 }
            }
        })*
    };
}

macro_rules! signed {
    ($($t:ident $u:ident),*) => {
        $(impl Integer for $t {
            const LEAST: $t = $t::MIN;
            const GREATEST: $t = $t::MAX;
            #[inline(always)]
            fn neg(self) -> $t {
                self.wrapping_neg()
            }
            #[inline(always)]
            fn abs(self) -> $t {
                self.wrapping_abs()
            }
            #[inline(always)]
            fn sign(self) -> $t {
                self.signum()
            }
            #[inline(always)]
            fn floor_div(self, divisor: $t) -> $t {
                if divisor == 0 {
                    return 0;
                }
                let quotient = self.wrapping_div(divisor);
                let remainder = self.wrapping_rem(divisor);
                quotient - (remainder != 0 && (remainder < 0) != (divisor < 0)) as $t
            }
            #[inline(always)]
            fn remainder(self, divisor: $t) -> $t {
                if divisor == 0 {
                    return 0;
                }
                let remainder = self.wrapping_rem(divisor);
                if remainder != 0 && (remainder < 0) != (divisor < 0) { remainder + divisor } else { remainder }
            }
            #[inline(always)]
            fn pow(self, exponent: $t) -> $t {
                if exponent < 0 {
                    return match self {
                        1 => 1,
                        -1 if exponent & 1 == 0 => 1,
                        -1 => -1,
                        _ => 0,
                    };
                }
                power!(self, exponent)
            }
            #[inline(always)]
            fn shl(self, count: $t) -> $t {
                if (count as $u) < $t::BITS as $u { self << count } else { 0 }
            }
            #[inline(always)]
            fn shr(self, count: $t) -> $t {
                self >> (count as $u).min($t::BITS as $u - 1)
            }
        })*
    };
}

unsigned!(u8, u16, u32, u64);
signed!(i8 u8, i16 u16, i32 u32, i64 u64);
