//! Functions of two operands.

use std::ops::{BitAnd, BitOr, BitXor};

use phynexus::DType;
use phynexus::op::Binary;

use super::BinaryKernels;
use super::instruction_set::InstructionSet;
use super::integer::Integer;
use super::loops::{self, plain_binary, vector_binary};
use super::math::{Contracted, Separate, single};

/// The kernels of `op` on `dtype` for this processor; comparisons write `bool`. `None` if the op does not accept the
/// dtype, and for `f16` and `bf16`.
pub fn binary(op: Binary, dtype: DType) -> Option<BinaryKernels> {
    binary_for(InstructionSet::best(), op, dtype)
}

/// [`binary`] for one of the available instruction sets.
pub fn binary_for(set: InstructionSet, op: Binary, dtype: DType) -> Option<BinaryKernels> {
    if !op.accepts(dtype) {
        return None;
    }
    match dtype {
        // `bool` is stored as bytes 0 and 1, for which these operations equal those of unsigned integers.
        DType::Bool | DType::U8 => integer::<u8, u8>(set, op),
        DType::U16 => integer::<u16, u16>(set, op),
        DType::U32 => integer::<u32, u32>(set, op),
        DType::U64 => integer::<u64, u64>(set, op),
        DType::I8 => integer::<i8, u8>(set, op),
        DType::I16 => integer::<i16, u16>(set, op),
        DType::I32 => integer::<i32, u32>(set, op),
        DType::I64 => integer::<i64, u64>(set, op),
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => None,
        DType::F32 => float32(set, op),
        DType::F64 => float64(set, op),
    }
}

/// Integer arithmetic that is identical for signed and unsigned types.
pub(super) trait Wrapping: Copy {
    const ZERO: Self;
    const ONE: Self;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

macro_rules! wrapping {
    ($($t:ident),*) => {
        $(impl Wrapping for $t {
            const ZERO: $t = 0;
            const ONE: $t = 1;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: $t) -> $t {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
        })*
    };
}
wrapping!(u8, u16, u32, u64);

/// The kernel of a function of integers of type `T`; `U` is the unsigned type of its width, which stands for both where
/// the sign makes no difference.
macro_rules! integer_kernel {
    ($set:ident Add $($_:tt)+) => {
        loops::binary($set, U::add)
    };
    ($set:ident Sub $($_:tt)+) => {
        loops::binary($set, U::sub)
    };
    ($set:ident Mul $($_:tt)+) => {
        loops::binary($set, U::mul)
    };
    ($set:ident And $($_:tt)+) => {
        loops::binary($set, |a: U, b: U| a & b)
    };
    ($set:ident Or $($_:tt)+) => {
        loops::binary($set, |a: U, b: U| a | b)
    };
    ($set:ident Xor $($_:tt)+) => {
        loops::binary($set, |a: U, b: U| a ^ b)
    };
    ($set:ident Shl $($_:tt)+) => {
        loops::binary($set, U::shl)
    };
    ($set:ident Shr $($_:tt)+) => {
        loops::binary($set, T::shr)
    };
    ($set:ident Max $($_:tt)+) => {
        loops::binary($set, |a: T, b: T| if a > b { a } else { b })
    };
    ($set:ident Min $($_:tt)+) => {
        loops::binary($set, |a: T, b: T| if a < b { a } else { b })
    };
    ($set:ident Lt $($_:tt)+) => {
        loops::binary($set, |a: T, b: T| u8::from(a < b))
    };
    ($set:ident Le $($_:tt)+) => {
        loops::binary($set, |a: T, b: T| u8::from(a <= b))
    };
    ($set:ident Eq $($_:tt)+) => {
        loops::binary($set, |a: U, b: U| u8::from(a == b))
    };
    ($set:ident Ne $($_:tt)+) => {
        loops::binary($set, |a: U, b: U| u8::from(a != b))
    };
    // Processors cannot divide vectors of integers, so one compilation suffices.
    ($set:ident FloorDiv $($_:tt)+) => {
        plain_binary(T::floor_div)
    };
    ($set:ident Remainder $($_:tt)+) => {
        plain_binary(T::remainder)
    };
    ($set:ident Pow $($_:tt)+) => {
        plain_binary(T::pow)
    };
    ($set:ident $variant:ident floats) => {
        return None
    };
}

/// Python's `%`: the remainder has the divisor's sign, also if it is zero.
macro_rules! remainder {
    ($a:ident, $b:ident) => {{
        let r = $a % $b;
        if r == 0.0 {
            r.copysign($b)
        } else if (r < 0.0) != ($b < 0.0) {
            r + $b
        } else {
            r
        }
    }};
}

/// A function of `f32` that is compiled for sets with and without fused multiply-add.
macro_rules! elementary {
    ($set:ident, $name:ident) => {
        if $set == InstructionSet::Plain {
            plain_binary(single::$name::<Separate>)
        } else {
            vector_binary($set, single::$name::<Contracted>)
        }
    };
}

/// The kernel of a function of floats. Functions without a kernel here compute their definition, in `f64`.
macro_rules! float_kernel {
    ($set:ident $t:ident Add $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| a + b)
    };
    ($set:ident $t:ident Sub $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| a - b)
    };
    ($set:ident $t:ident Mul $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| a * b)
    };
    ($set:ident $t:ident Div $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| a / b)
    };
    ($set:ident $t:ident Max $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| if a > b || a.is_nan() { a } else { b })
    };
    ($set:ident $t:ident Min $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| if a < b || a.is_nan() { a } else { b })
    };
    ($set:ident $t:ident Lt $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| u8::from(a < b))
    };
    ($set:ident $t:ident Le $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| u8::from(a <= b))
    };
    ($set:ident $t:ident Eq $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| u8::from(a == b))
    };
    ($set:ident $t:ident Ne $($_:tt)+) => {
        loops::binary($set, |a: $t, b: $t| u8::from(a != b))
    };
    // `%` is exact and takes the dividend's sign; it is computed one element at a time.
    ($set:ident $t:ident Remainder $($_:tt)+) => {
        plain_binary(|a: $t, b: $t| remainder!(a, b))
    };
    ($set:ident $t:ident FloorDiv $($_:tt)+) => {
        plain_binary(|a: $t, b: $t| {
            // The special cases of the Python array API standard.
            if a == 0.0 || b == 0.0 || a.is_infinite() || b.is_infinite() {
                return a / b;
            }
            let r = a % b;
            // An integer up to rounding.
            let quotient = (a - r) / b - if r != 0.0 && (r < 0.0) != (b < 0.0) { 1.0 } else { 0.0 };
            if quotient == 0.0 { (0.0 as $t).copysign(a / b) } else { quotient.round() }
        })
    };
    ($set:ident f32 Pow $($_:tt)+) => {
        elementary!($set, pow)
    };
    // A power that is known to be 2 is a product.
    ($set:ident f64 Pow $($_:tt)+) => {
        plain_binary(|x: f64, y: f64| if y == 2.0 { x * x } else { phynexus::op::special::pow(x, y) })
    };
    ($set:ident f32 Atan2 $($_:tt)+) => {
        elementary!($set, atan2)
    };
    ($set:ident $t:ident $variant:ident bits $definition:expr) => {
        return None
    };
    ($set:ident $t:ident $variant:ident shifts $definition:expr) => {
        return None
    };
    ($set:ident $t:ident $variant:ident comparisons $definition:expr) => {
        plain_binary(|a: $t, b: $t| u8::from(($definition)(a.into(), b.into()) != 0.0))
    };
    ($set:ident $t:ident $variant:ident $class:ident $definition:expr) => {
        plain_binary(|a: $t, b: $t| -> $t { ($definition)(a.into(), b.into()) as $t })
    };
}

macro_rules! kernels {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $scalar:ident $name:literal
        $class:ident($meaning:expr $(, $integer:expr)?) $rest:tt)+) => {
        fn integer<T, U>(set: InstructionSet, op: Binary) -> Option<BinaryKernels>
        where
            T: Integer + Ord,
            U: Wrapping + Integer + Eq + BitAnd<Output = U> + BitOr<Output = U> + BitXor<Output = U>,
        {
            Some(match op { $(Binary::$variant => integer_kernel!(set $variant $class $($integer)?),)+ })
        }

        fn float32(set: InstructionSet, op: Binary) -> Option<BinaryKernels> {
            Some(match op { $(Binary::$variant => float_kernel!(set f32 $variant $class $meaning),)+ })
        }

        fn float64(set: InstructionSet, op: Binary) -> Option<BinaryKernels> {
            Some(match op { $(Binary::$variant => float_kernel!(set f64 $variant $class $meaning),)+ })
        }
    };
}
phynexus::binary_functions!(kernels);
