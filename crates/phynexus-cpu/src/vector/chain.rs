//! Common chains of operations in a single pass. Every operation of a chain is rounded as if it were separate.

use phynexus::DType;

use super::instruction_set::InstructionSet;
use super::loops::{
    binary, never, plain_binary, plain_guarded, plain_map1, plain_map3, vector_binary, vector_guarded,
    vector_map1, vector_map3,
};
use super::math::{Arithmetic, Contracted, Separate, double, single};
use super::{BinaryKernels, TernaryKernel, UnaryKernel};

/// A chain with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chain {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `(x * 0.5) * (1 + erf(x * sqrt(1/2)))`.
    Gelu,
    /// `(x * 0.5) * (1 + tanh((x + x * x * x * 0.044715) * sqrt(2/pi)))`.
    GeluTanh,
}

impl Chain {
    /// All chains.
    pub const ALL: [Chain; 3] = [Chain::Silu, Chain::Gelu, Chain::GeluTanh];
}

macro_rules! chains {
    ($functions:ident, $module:ident, $t:ident) => {
        mod $functions {
            use super::{Arithmetic, $module};

            #[inline(always)]
            pub(super) fn silu<A: Arithmetic>(x: $t) -> $t {
                x / ($module::exp::<A>(-x) + 1.0)
            }
            #[inline(always)]
            pub(super) fn gelu<A: Arithmetic>(x: $t) -> $t {
                (x * 0.5) * (1.0 + $module::erf::<A>(x * std::$t::consts::FRAC_1_SQRT_2))
            }
            #[inline(always)]
            pub(super) fn gelu_tanh<A: Arithmetic>(x: $t) -> $t {
                const SQRT_2_OVER_PI: $t = std::$t::consts::FRAC_2_SQRT_PI * std::$t::consts::FRAC_1_SQRT_2;
                (x * 0.5) * (1.0 + $module::tanh::<A>((x + x * x * x * 0.044715) * SQRT_2_OVER_PI))
            }
        }
    };
}
chains!(chains32, single, f32);
chains!(chains64, double, f64);

/// The kernel of a chain on `f32` or `f64` for this processor; `None` for other dtypes.
pub fn chain(chain: Chain, dtype: DType) -> Option<UnaryKernel> {
    chain_for(InstructionSet::best(), chain, dtype)
}

/// [`chain`] for one of the available instruction sets.
pub fn chain_for(set: InstructionSet, chain: Chain, dtype: DType) -> Option<UnaryKernel> {
    macro_rules! kernel {
        ($functions:ident::$name:ident) => {
            if set == InstructionSet::Plain {
                plain_map1($functions::$name::<Separate>, never, $functions::$name::<Separate>)
            } else {
                vector_map1(set, $functions::$name::<Contracted>, never, $functions::$name::<Contracted>)
            }
        };
    }
    Some(match (dtype, chain) {
        (DType::F32, Chain::Silu) => kernel!(chains32::silu),
        (DType::F32, Chain::Gelu) => kernel!(chains32::gelu),
        (DType::F32, Chain::GeluTanh) => kernel!(chains32::gelu_tanh),
        (DType::F64, Chain::Silu) => kernel!(chains64::silu),
        (DType::F64, Chain::Gelu) => kernel!(chains64::gelu),
        (DType::F64, Chain::GeluTanh) => kernel!(chains64::gelu_tanh),
        _ => return None,
    })
}

/// `exp(a - b)` on `f32` or `f64` for this processor: softmax, where `b` is the row's maximum.
pub fn sub_exp(dtype: DType) -> Option<BinaryKernels> {
    sub_exp_for(InstructionSet::best(), dtype)
}

/// [`sub_exp`] for one of the available instruction sets.
pub fn sub_exp_for(set: InstructionSet, dtype: DType) -> Option<BinaryKernels> {
    fn single<A: Arithmetic>(a: f32, b: f32) -> f32 {
        single::exp::<A>(a - b)
    }
    fn below<A: Arithmetic>(a: f32, b: f32) -> f32 {
        single::exp_below::<A>(a - b)
    }
    fn beyond(a: f32, b: f32) -> bool {
        single::exp_beyond(a - b)
    }
    fn double<A: Arithmetic>(a: f64, b: f64) -> f64 {
        double::exp::<A>(a - b)
    }
    Some(match (dtype, set) {
        (DType::F32, InstructionSet::Plain) => plain_guarded(below::<Separate>, beyond, single::<Separate>),
        (DType::F32, _) => vector_guarded(set, below::<Contracted>, beyond, single::<Contracted>),
        (DType::F64, InstructionSet::Plain) => plain_binary(double::<Separate>),
        (DType::F64, _) => vector_binary(set, double::<Contracted>),
        _ => return None,
    })
}

/// `a <= b ? b : a` on `f32` for this processor: NaN stays, unlike a zero of the other sign.
pub(crate) fn at_least() -> BinaryKernels {
    binary(InstructionSet::best(), |a: f32, b: f32| if a <= b { b } else { a })
}

/// `b <= a ? b : a` on `f32` for this processor.
pub(crate) fn at_most() -> BinaryKernels {
    binary(InstructionSet::best(), |a: f32, b: f32| if b <= a { b } else { a })
}

/// `a * b + c`, with product and sum rounded separately, on `f32` or `f64` for this processor. `a` is a vector; `b` and
/// `c` are vectors or, as the flags indicate, single elements.
pub fn mul_add(dtype: DType, b_scalar: bool, c_scalar: bool) -> Option<TernaryKernel> {
    mul_add_for(InstructionSet::best(), dtype, b_scalar, c_scalar)
}

/// [`mul_add`] for one of the available instruction sets.
pub fn mul_add_for(
    set: InstructionSet,
    dtype: DType,
    b_scalar: bool,
    c_scalar: bool,
) -> Option<TernaryKernel> {
    match dtype {
        DType::F32 => Some(mul_add_flagged(set, b_scalar, c_scalar, |a: f32, b: f32, c: f32| a * b + c)),
        DType::F64 => Some(mul_add_flagged(set, b_scalar, c_scalar, |a: f64, b: f64, c: f64| a * b + c)),
        _ => None,
    }
}

fn mul_add_flagged<T: Copy, F: Fn(T, T, T) -> T + Copy>(
    set: InstructionSet,
    b_scalar: bool,
    c_scalar: bool,
    f: F,
) -> TernaryKernel {
    macro_rules! flagged {
        ($b:literal, $c:literal) => {
            if set == InstructionSet::Plain {
                plain_map3::<T, T, F, false, $b, $c>(f)
            } else {
                vector_map3::<T, T, F, false, $b, $c>(set, f)
            }
        };
    }
    match (b_scalar, c_scalar) {
        (false, false) => flagged!(false, false),
        (false, true) => flagged!(false, true),
        (true, false) => flagged!(true, false),
        (true, true) => flagged!(true, true),
    }
}
