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
        DType::F16 | DType::BF16 => None,
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

/// `T` is the type. `U` is the unsigned type of the same width, used where signedness makes no difference.
fn integer<T, U>(set: InstructionSet, op: Binary) -> Option<BinaryKernels>
where
    T: Integer + Ord,
    U: Wrapping + Integer + Eq + BitAnd<Output = U> + BitOr<Output = U> + BitXor<Output = U>,
{
    Some(match op {
        Binary::Add => loops::binary(set, U::add),
        Binary::Sub => loops::binary(set, U::sub),
        Binary::Mul => loops::binary(set, U::mul),
        Binary::And => loops::binary(set, |a: U, b: U| a & b),
        Binary::Or => loops::binary(set, |a: U, b: U| a | b),
        Binary::Xor => loops::binary(set, |a: U, b: U| a ^ b),
        Binary::Shl => loops::binary(set, U::shl),
        Binary::Shr => loops::binary(set, T::shr),
        Binary::Max => loops::binary(set, |a: T, b: T| if a > b { a } else { b }),
        Binary::Min => loops::binary(set, |a: T, b: T| if a < b { a } else { b }),
        Binary::Lt => loops::binary(set, |a: T, b: T| u8::from(a < b)),
        Binary::Le => loops::binary(set, |a: T, b: T| u8::from(a <= b)),
        Binary::Eq => loops::binary(set, |a: U, b: U| u8::from(a == b)),
        Binary::Ne => loops::binary(set, |a: U, b: U| u8::from(a != b)),
        // No processor has vector integer division, so one compilation suffices.
        Binary::FloorDiv => plain_binary(T::floor_div),
        Binary::Remainder => plain_binary(T::remainder),
        Binary::Pow => plain_binary(T::pow),
        Binary::Div | Binary::Atan2 => return None,
    })
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

/// The operations with identical code for both float types.
macro_rules! float {
    ($set:ident, $op:ident, $t:ident, pow: $pow:expr, atan2: $atan2:expr) => {
        Some(match $op {
            Binary::Add => loops::binary($set, |a: $t, b: $t| a + b),
            Binary::Sub => loops::binary($set, |a: $t, b: $t| a - b),
            Binary::Mul => loops::binary($set, |a: $t, b: $t| a * b),
            Binary::Div => loops::binary($set, |a: $t, b: $t| a / b),
            Binary::Max => loops::binary($set, |a: $t, b: $t| if a > b || a.is_nan() { a } else { b }),
            Binary::Min => loops::binary($set, |a: $t, b: $t| if a < b || a.is_nan() { a } else { b }),
            Binary::Lt => loops::binary($set, |a: $t, b: $t| u8::from(a < b)),
            Binary::Le => loops::binary($set, |a: $t, b: $t| u8::from(a <= b)),
            Binary::Eq => loops::binary($set, |a: $t, b: $t| u8::from(a == b)),
            Binary::Ne => loops::binary($set, |a: $t, b: $t| u8::from(a != b)),
            // `%` is exact and has the dividend's sign; it is computed one element at a time.
            Binary::Remainder => plain_binary(|a: $t, b: $t| remainder!(a, b)),
            Binary::FloorDiv => plain_binary(|a: $t, b: $t| {
                // The special cases of the Python array API standard.
                if a == 0.0 || b == 0.0 || a.is_infinite() || b.is_infinite() {
                    return a / b;
                }
                let r = a % b;
                // An integer, up to rounding.
                let quotient = (a - r) / b - if r != 0.0 && (r < 0.0) != (b < 0.0) { 1.0 } else { 0.0 };
                if quotient == 0.0 { (0.0 as $t).copysign(a / b) } else { quotient.round() }
            }),
            Binary::Pow => $pow,
            Binary::Atan2 => $atan2,
            Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => return None,
        })
    };
}

fn float32(set: InstructionSet, op: Binary) -> Option<BinaryKernels> {
    macro_rules! elementary {
        ($name:ident) => {
            if set == InstructionSet::Plain {
                plain_binary(single::$name::<Separate>)
            } else {
                vector_binary(set, single::$name::<Contracted>)
            }
        };
    }
    float!(set, op, f32, pow: elementary!(pow), atan2: elementary!(atan2))
}

fn float64(set: InstructionSet, op: Binary) -> Option<BinaryKernels> {
    // A constant exponent of 2 is a product.
    let pow = |x: f64, y: f64| if y == 2.0 { x * x } else { x.powf(y) };
    float!(set, op, f64, pow: plain_binary(pow), atan2: plain_binary(f64::atan2))
}
