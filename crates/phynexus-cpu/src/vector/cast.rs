//! Conversions between all element types, with the semantics of [`phynexus::Scalar::cast`]: floats are truncated and
//! saturate at the type's limits, integers wrap to narrower types, NaN becomes 0, and `bool` is `!= 0`. Floats are
//! rounded to nearest, halves to even, exactly once: 64-bit integers and `f64` convert directly to `f32` and the 16-bit
//! types.

use phynexus::{DType, Float8};

use super::convert::{
    ToInteger, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, f64_to_bf16, f64_to_f16, round_to_bf16,
    round_to_f16,
};
use super::half::half;
use super::instruction_set::InstructionSet;
use super::loops;
use super::{BinaryKernels, UnaryKernel};

const E4M3: Float8 = Float8::E4M3;
const E5M2: Float8 = Float8::E5M2;

/// From an integer type to every other size, `bool` and the float types. 16-bit floats are converted through `$exact`,
/// which represents the integers exactly (or, for 64 bits, with more bits than affect the result).
macro_rules! from_integer {
    ($set:ident, $t:ty, $to:ident, $exact:ty) => {
        match ($to, $to.size()) {
            (DType::Bool, _) => loops::unary($set, |x: $t| u8::from(x != 0)),
            (DType::F8E4M3, _) => loops::unary($set, |x: $t| E4M3.from_f64(x as f64)),
            (DType::F8E5M2, _) => loops::unary($set, |x: $t| E5M2.from_f64(x as f64)),
            (DType::F16, _) => loops::unary($set, |x: $t| <$exact as Narrow>::f16(x as $exact)),
            (DType::BF16, _) => loops::unary($set, |x: $t| <$exact as Narrow>::bf16(x as $exact)),
            (DType::F32, _) => loops::unary($set, |x: $t| x as f32),
            (DType::F64, _) => loops::unary($set, |x: $t| x as f64),
            (_, 1) => loops::unary($set, |x: $t| x as u8),
            (_, 2) => loops::unary($set, |x: $t| x as u16),
            (_, 4) => loops::unary($set, |x: $t| x as u32),
            _ => loops::unary($set, |x: $t| x as u64),
        }
    };
}

/// From a float type stored as `$t` and read by `$read` to the integer types and `bool`.
macro_rules! from_float {
    ($set:ident, $t:ty, $read:path, $to:ident) => {{
        macro_rules! to {
            ($u:ty) => {
                loops::unary($set, |x: $t| ToInteger::<$u>::to_integer($read(x)))
            };
        }
        match $to {
            DType::Bool => loops::unary($set, |x: $t| u8::from($read(x) != 0.0)),
            DType::U8 => to!(u8),
            DType::U16 => to!(u16),
            DType::U32 => to!(u32),
            DType::U64 => to!(u64),
            DType::I8 => to!(i8),
            DType::I16 => to!(i16),
            DType::I32 => to!(i32),
            _ => to!(i64),
        }
    }};
}

/// From an 8-bit float to every other type.
macro_rules! from_float8 {
    ($set:ident, $format:ident, $to:ident) => {{
        fn read(bits: u8) -> f32 {
            $format.to_f32(bits)
        }
        match $to {
            DType::F8E4M3 => loops::unary($set, |x: u8| E4M3.from_f32(read(x))),
            DType::F8E5M2 => loops::unary($set, |x: u8| E5M2.from_f32(read(x))),
            DType::F16 => loops::unary($set, |x: u8| f32_to_f16(read(x))),
            DType::BF16 => loops::unary($set, |x: u8| f32_to_bf16(read(x))),
            DType::F32 => loops::unary($set, read),
            DType::F64 => loops::unary($set, |x: u8| f64::from(read(x))),
            _ => from_float!($set, u8, read, $to),
        }
    }};
}

/// `f32` rounded to a float of 8 or 16 bits, as `f32`, for this processor.
pub(crate) fn round_to(dtype: DType) -> UnaryKernel {
    let set = InstructionSet::best();
    match dtype {
        DType::F16 => half(set).map_or_else(|| loops::unary(set, round_to_f16), |half| half.round),
        DType::BF16 => loops::unary(set, round_to_bf16),
        DType::F8E4M3 => loops::unary(set, |x: f32| E4M3.to_f32(E4M3.from_f32(x))),
        DType::F8E5M2 => loops::unary(set, |x: f32| E5M2.to_f32(E5M2.from_f32(x))),
        _ => copy(size_of::<f32>()),
    }
}

/// The conversion between any two types, for this processor.
pub fn cast(from: DType, to: DType) -> UnaryKernel {
    cast_for(InstructionSet::best(), from, to)
}

/// [`cast`] for one of the available instruction sets.
pub fn cast_for(set: InstructionSet, from: DType, to: DType) -> UnaryKernel {
    let integers = !from.is_float() && !to.is_float();
    if from == to || (integers && to != DType::Bool && from.size() == to.size()) {
        return copy(from.size());
    }
    match from {
        DType::Bool | DType::U8 => from_integer!(set, u8, to, f32),
        DType::U16 => from_integer!(set, u16, to, f32),
        DType::U32 => from_integer!(set, u32, to, f64),
        DType::U64 => from_integer!(set, u64, to, f64),
        DType::I8 => from_integer!(set, i8, to, f32),
        DType::I16 => from_integer!(set, i16, to, f32),
        DType::I32 => from_integer!(set, i32, to, f64),
        DType::I64 => from_integer!(set, i64, to, f64),
        DType::F8E4M3 => from_float8!(set, E4M3, to),
        DType::F8E5M2 => from_float8!(set, E5M2, to),
        DType::F16 => match to {
            DType::F8E4M3 => loops::unary(set, |x: u16| E4M3.from_f32(f16_to_f32(x))),
            DType::F8E5M2 => loops::unary(set, |x: u16| E5M2.from_f32(f16_to_f32(x))),
            DType::BF16 => loops::unary(set, |x: u16| f32_to_bf16(f16_to_f32(x))),
            DType::F32 => half(set).map_or_else(|| loops::unary(set, f16_to_f32), |half| half.widen),
            DType::F64 => loops::unary(set, |x: u16| f64::from(f16_to_f32(x))),
            _ => from_float!(set, u16, f16_to_f32, to),
        },
        DType::BF16 => match to {
            DType::F8E4M3 => loops::unary(set, |x: u16| E4M3.from_f32(bf16_to_f32(x))),
            DType::F8E5M2 => loops::unary(set, |x: u16| E5M2.from_f32(bf16_to_f32(x))),
            DType::F16 => loops::unary(set, |x: u16| f32_to_f16(bf16_to_f32(x))),
            DType::F32 => loops::unary(set, bf16_to_f32),
            DType::F64 => loops::unary(set, |x: u16| f64::from(bf16_to_f32(x))),
            _ => from_float!(set, u16, bf16_to_f32, to),
        },
        DType::F32 => match to {
            DType::F8E4M3 => loops::unary(set, |x: f32| E4M3.from_f32(x)),
            DType::F8E5M2 => loops::unary(set, |x: f32| E5M2.from_f32(x)),
            DType::F16 => half(set).map_or_else(|| loops::unary(set, f32_to_f16), |half| half.narrow),
            DType::BF16 => loops::unary(set, f32_to_bf16),
            DType::F64 => loops::unary(set, |x: f32| f64::from(x)),
            _ => from_float!(set, f32, std::convert::identity, to),
        },
        DType::F64 => match to {
            DType::F8E4M3 => loops::unary(set, |x: f64| E4M3.from_f64(x)),
            DType::F8E5M2 => loops::unary(set, |x: f64| E5M2.from_f64(x)),
            DType::F16 => loops::unary(set, f64_to_f16),
            DType::BF16 => loops::unary(set, f64_to_bf16),
            DType::F32 => loops::unary(set, |x: f64| x as f32),
            _ => from_float!(set, f64, std::convert::identity, to),
        },
    }
}

/// `f32` values of a first operand, rounded to integers (halves to even), plus those of a second operand, as `int8` or
/// `uint8`: saturated at the type's limits, NaN becomes 0. For this processor; `None` for other types.
pub(crate) fn round_sum(to: DType) -> Option<BinaryKernels> {
    #[inline(always)]
    fn sum<T>(x: f32, offset: f32) -> T
    where
        f32: ToInteger<T>,
    {
        (x.round_ties_even() + offset).to_integer()
    }
    let set = InstructionSet::best();
    match to {
        DType::I8 => Some(loops::binary(set, |x: f32, offset: f32| -> i8 { sum(x, offset) })),
        DType::U8 => Some(loops::binary(set, |x: f32, offset: f32| -> u8 { sum(x, offset) })),
        _ => None,
    }
}

/// Rounding from a wider type to the 16-bit types.
trait Narrow {
    fn f16(self) -> u16;
    fn bf16(self) -> u16;
}

impl Narrow for f32 {
    #[inline(always)]
    fn f16(self) -> u16 {
        f32_to_f16(self)
    }
    #[inline(always)]
    fn bf16(self) -> u16 {
        f32_to_bf16(self)
    }
}

impl Narrow for f64 {
    #[inline(always)]
    fn f16(self) -> u16 {
        f64_to_f16(self)
    }
    #[inline(always)]
    fn bf16(self) -> u16 {
        f64_to_bf16(self)
    }
}

/// A copy of elements of one size: the conversion between types with the same representation.
fn copy(size: usize) -> UnaryKernel {
    unsafe fn bytes<const SIZE: usize>(src: *const u8, dst: *mut u8, n: usize) {
        // SAFETY: the kernel's caller provides n elements of SIZE bytes at both pointers, which may be equal.
        unsafe { std::ptr::copy(src, dst, n * SIZE) }
    }
    match size {
        1 => bytes::<1>,
        2 => bytes::<2>,
        4 => bytes::<4>,
        _ => bytes::<8>,
    }
}
