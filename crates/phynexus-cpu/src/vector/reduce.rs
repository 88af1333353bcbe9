//! Reduces a vector to one element.

use phynexus::DType;
use phynexus::op::Combine;

use super::binary::Wrapping;
use super::folds;
use super::instruction_set::InstructionSet;
use super::integer::Integer;
use super::{ReduceKernel, ReducePairKernel};

/// The number of parallel sums in a float reduction: sum i takes the elements i, i + 64, i + 128 and so on. The sums
/// are added pairwise.
pub(crate) const SUM_LANES: usize = super::loops::BLOCK;

macro_rules! float {
    ($set:ident, $combine:ident, $t:ident) => {
        match $combine {
            Combine::Sum => folds::reduce($set, |a: $t, b: $t| a + b, || 0.0),
            Combine::Prod => folds::reduce($set, |a: $t, b: $t| a * b, || 1.0),
            Combine::Max => {
                folds::reduce_extreme($set, |a: $t, b: $t| if a > b { a } else { b }, || $t::NEG_INFINITY)
            }
            Combine::Min => {
                folds::reduce_extreme($set, |a: $t, b: $t| if a < b { a } else { b }, || $t::INFINITY)
            }
        }
    };
}

/// The reduction of `dtype` for this processor. It combines a vector into the accumulator, which the caller must first
/// set to [`Combine::identity`]. `None` for sums and products of `bool`, and for `f16` and `bf16`.
///
/// A float sum uses 64 lanes, which are then added pairwise.
pub fn reduce(combine: Combine, dtype: DType) -> Option<ReduceKernel> {
    reduce_for(InstructionSet::best(), combine, dtype)
}

/// [`reduce`] for one of the available instruction sets.
pub fn reduce_for(set: InstructionSet, combine: Combine, dtype: DType) -> Option<ReduceKernel> {
    match dtype {
        DType::Bool if matches!(combine, Combine::Sum | Combine::Prod) => None,
        DType::Bool | DType::U8 => Some(integer::<u8, u8>(set, combine)),
        DType::U16 => Some(integer::<u16, u16>(set, combine)),
        DType::U32 => Some(integer::<u32, u32>(set, combine)),
        DType::U64 => Some(integer::<u64, u64>(set, combine)),
        DType::I8 => Some(integer::<i8, u8>(set, combine)),
        DType::I16 => Some(integer::<i16, u16>(set, combine)),
        DType::I32 => Some(integer::<i32, u32>(set, combine)),
        DType::I64 => Some(integer::<i64, u64>(set, combine)),
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 => None,
        DType::F32 => Some(float!(set, combine, f32)),
        DType::F64 => Some(float!(set, combine, f64)),
    }
}

/// `U` is the unsigned type with the width of `T`.
fn integer<T: Integer + Ord, U: Wrapping>(set: InstructionSet, combine: Combine) -> ReduceKernel {
    match combine {
        Combine::Sum => folds::reduce(set, U::add, || U::ZERO),
        Combine::Prod => folds::reduce(set, U::mul, || U::ONE),
        Combine::Max => folds::reduce(set, |a: T, b: T| if a > b { a } else { b }, || T::LEAST),
        Combine::Min => folds::reduce(set, |a: T, b: T| if a < b { a } else { b }, || T::GREATEST),
    }
}

/// The sum of `a[i] * b[i]` on `f32` or `f64` for this processor, without storing the products: each is rounded, then
/// added as in [`reduce`]. `None` for other dtypes.
pub fn sum_products(dtype: DType) -> Option<ReducePairKernel> {
    sum_products_for(InstructionSet::best(), dtype)
}

/// [`sum_products`] for one of the available instruction sets.
pub fn sum_products_for(set: InstructionSet, dtype: DType) -> Option<ReducePairKernel> {
    match dtype {
        DType::F32 => Some(folds::reduce_pair(set, |a: f32, b| a + b, |a, b| a * b, || 0.0)),
        DType::F64 => Some(folds::reduce_pair(set, |a: f64, b| a + b, |a, b| a * b, || 0.0)),
        _ => None,
    }
}
