//! Functions of one operand.

use phynexus::DType;
use phynexus::op::{Unary, special};

use super::UnaryKernel;
use super::instruction_set::InstructionSet;
use super::integer::Integer;
use super::loops::{self, never, plain_map1, vector_map1};
use super::math::{Contracted, Separate, double, gamma, single};

/// The kernel of `op` on `dtype` for this processor; `IsNan` and `IsInf` write `bool`. `None` if the op does not accept
/// the dtype, and for `f16` and `bf16`.
pub fn unary(op: Unary, dtype: DType) -> Option<UnaryKernel> {
    unary_for(InstructionSet::best(), op, dtype)
}

/// [`unary`] for one of the available instruction sets.
pub fn unary_for(set: InstructionSet, op: Unary, dtype: DType) -> Option<UnaryKernel> {
    if !op.accepts(dtype) {
        return None;
    }
    match dtype {
        DType::Bool => Some(loops::unary(set, |x: u8| x ^ 1)),
        DType::U8 => integer::<u8>(set, op),
        DType::U16 => integer::<u16>(set, op),
        DType::U32 => integer::<u32>(set, op),
        DType::U64 => integer::<u64>(set, op),
        DType::I8 => integer::<i8>(set, op),
        DType::I16 => integer::<i16>(set, op),
        DType::I32 => integer::<i32>(set, op),
        DType::I64 => integer::<i64>(set, op),
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => None,
        DType::F32 => float32(set, op),
        DType::F64 => float64(set, op),
    }
}

fn integer<T: Integer + std::ops::Not<Output = T>>(set: InstructionSet, op: Unary) -> Option<UnaryKernel> {
    Some(match op {
        Unary::Neg => loops::unary(set, T::neg),
        Unary::Abs => loops::unary(set, T::abs),
        Unary::Sign => loops::unary(set, T::sign),
        Unary::Not => loops::unary(set, |x: T| !x),
        _ => return None,
    })
}

/// A function compiled for sets with and without fused multiply-add.
macro_rules! elementary {
    ($set:ident, $module:ident::$name:ident) => {
        elementary!($set, $module::$name, slow never, same $module::$name)
    };
    ($set:ident, $module:ident::$name:ident, slow $slow:expr, same $other:ident::$fallback:ident) => {
        if $set == InstructionSet::Plain {
            plain_map1($module::$name::<Separate>, $slow, $other::$fallback::<Separate>)
        } else {
            vector_map1($set, $module::$name::<Contracted>, $slow, $other::$fallback::<Contracted>)
        }
    };
    ($set:ident, $module:ident::$name:ident, slow $slow:expr, $fallback:expr) => {
        if $set == InstructionSet::Plain {
            plain_map1($module::$name::<Separate>, $slow, $fallback)
        } else {
            vector_map1($set, $module::$name::<Contracted>, $slow, $fallback)
        }
    };
}

fn float32(set: InstructionSet, op: Unary) -> Option<UnaryKernel> {
    let beyond = |x: f32| x.abs() > single::TRIGONOMETRIC_LIMIT;
    Some(match op {
        Unary::Neg => loops::unary(set, |x: f32| -x),
        Unary::Abs => loops::unary(set, f32::abs),
        Unary::Sign => loops::unary(set, |x: f32| if x == 0.0 || x.is_nan() { x } else { 1f32.copysign(x) }),
        Unary::Recip => loops::unary(set, |x: f32| 1.0 / x),
        Unary::Sqrt => loops::unary(set, f32::sqrt),
        Unary::Rsqrt => loops::unary(set, |x: f32| (1.0 / f64::from(x).sqrt()) as f32),
        Unary::Exp => elementary!(set, single::exp_below, slow single::exp_beyond, same single::exp),
        Unary::Exp2 => elementary!(set, single::exp2),
        Unary::Expm1 => elementary!(set, single::expm1),
        Unary::Log => elementary!(set, single::log),
        Unary::Log2 => elementary!(set, single::log2),
        Unary::Log1p => elementary!(set, single::log1p),
        Unary::Sin => elementary!(set, single::sin, slow beyond, |x: f32| special::sin(f64::from(x)) as f32),
        Unary::Cos => elementary!(set, single::cos, slow beyond, |x: f32| special::cos(f64::from(x)) as f32),
        Unary::Tan => elementary!(set, single::tan, slow beyond, f32::tan),
        Unary::Asin => elementary!(set, single::asin),
        Unary::Acos => elementary!(set, single::acos),
        Unary::Atan => elementary!(set, single::atan),
        Unary::Sinh => elementary!(set, single::sinh),
        Unary::Cosh => elementary!(set, single::cosh),
        Unary::Tanh => elementary!(set, single::tanh),
        Unary::Asinh => elementary!(set, single::asinh),
        Unary::Acosh => elementary!(set, single::acosh),
        Unary::Atanh => elementary!(set, single::atanh),
        Unary::Erf => elementary!(set, single::erf),
        Unary::Lgamma => elementary!(set, single::lgamma),
        Unary::Digamma => elementary!(set, single::digamma),
        Unary::Floor => loops::unary(set, f32::floor),
        Unary::Ceil => loops::unary(set, f32::ceil),
        Unary::Trunc => loops::unary(set, f32::trunc),
        Unary::Round => loops::unary(set, f32::round_ties_even),
        Unary::IsNan => loops::unary(set, |x: f32| u8::from(x.is_nan())),
        Unary::IsInf => loops::unary(set, |x: f32| u8::from(x.is_infinite())),
        Unary::Not => return None,
        other => defined32(other),
    })
}

/// A kernel that evaluates the definition in the table of functions, one element at a time, in `f64`.
macro_rules! definitions {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $name:literal $class:ident($meaning:expr) $rest:tt)+) => {
        fn defined32(op: Unary) -> UnaryKernel {
            match op { $(Unary::$variant => {
                let f = |x: f32| -> f32 { ($meaning)(f64::from(x)) as f32 };
                plain_map1(f, never, f)
            })+ }
        }

        fn defined64(op: Unary) -> UnaryKernel {
            match op { $(Unary::$variant => {
                let f = |x: f64| -> f64 { ($meaning)(x) };
                plain_map1(f, never, f)
            })+ }
        }
    };
}
phynexus::unary_functions!(definitions);

fn float64(set: InstructionSet, op: Unary) -> Option<UnaryKernel> {
    let beyond = |x: f64| x.abs() > double::TRIGONOMETRIC_LIMIT;
    Some(match op {
        Unary::Neg => loops::unary(set, |x: f64| -x),
        Unary::Abs => loops::unary(set, f64::abs),
        Unary::Sign => loops::unary(set, |x: f64| if x == 0.0 || x.is_nan() { x } else { 1f64.copysign(x) }),
        Unary::Recip => loops::unary(set, |x: f64| 1.0 / x),
        Unary::Sqrt => loops::unary(set, f64::sqrt),
        Unary::Rsqrt => loops::unary(set, |x: f64| 1.0 / x.sqrt()),
        Unary::Exp => elementary!(set, double::exp),
        Unary::Expm1 => elementary!(set, double::expm1),
        Unary::Log => elementary!(set, double::log),
        Unary::Log2 => elementary!(set, double::log2),
        Unary::Log1p => elementary!(set, double::log1p),
        Unary::Sin => elementary!(set, double::sin, slow beyond, special::sin),
        Unary::Cos => elementary!(set, double::cos, slow beyond, special::cos),
        Unary::Tanh => elementary!(set, double::tanh),
        Unary::Erf => elementary!(set, double::erf),
        Unary::Lgamma => elementary!(set, gamma::lgamma),
        Unary::Digamma => elementary!(set, gamma::digamma),
        Unary::Floor => loops::unary(set, f64::floor),
        Unary::Ceil => loops::unary(set, f64::ceil),
        Unary::Trunc => loops::unary(set, f64::trunc),
        Unary::Round => loops::unary(set, f64::round_ties_even),
        Unary::IsNan => loops::unary(set, |x: f64| u8::from(x.is_nan())),
        Unary::IsInf => loops::unary(set, |x: f64| u8::from(x.is_infinite())),
        Unary::Not => return None,
        other => defined64(other),
    })
}
