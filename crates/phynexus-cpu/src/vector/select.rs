//! Selection between two operands.

use phynexus::DType;

use super::TernaryKernel;
use super::instruction_set::InstructionSet;
use super::loops::{plain_map3, vector_map3};

/// `dst[i] = if condition[i] { a[i] } else { b[i] }` with operands `(condition, a, b)`. The condition is a vector of
/// `bool`; `a` and `b` are vectors or, as the flags indicate, single elements. Supports every dtype: only bits are
/// copied.
pub fn select(dtype: DType, a_scalar: bool, b_scalar: bool) -> TernaryKernel {
    select_for(InstructionSet::best(), dtype, a_scalar, b_scalar)
}

/// [`select`] for one of the available instruction sets.
pub fn select_for(set: InstructionSet, dtype: DType, a_scalar: bool, b_scalar: bool) -> TernaryKernel {
    match dtype.size() {
        1 => sized::<u8>(set, a_scalar, b_scalar),
        2 => sized::<u16>(set, a_scalar, b_scalar),
        4 => sized::<u32>(set, a_scalar, b_scalar),
        _ => sized::<u64>(set, a_scalar, b_scalar),
    }
}

fn sized<T: Copy>(set: InstructionSet, a_scalar: bool, b_scalar: bool) -> TernaryKernel {
    match (a_scalar, b_scalar) {
        (false, false) => flagged::<T, false, false>(set),
        (false, true) => flagged::<T, false, true>(set),
        (true, false) => flagged::<T, true, false>(set),
        (true, true) => flagged::<T, true, true>(set),
    }
}

fn flagged<T: Copy, const A_SCALAR: bool, const B_SCALAR: bool>(set: InstructionSet) -> TernaryKernel {
    fn choose<T>(condition: u8, a: T, b: T) -> T {
        if condition != 0 { a } else { b }
    }
    if set == InstructionSet::Plain {
        plain_map3::<u8, T, _, false, A_SCALAR, B_SCALAR>(choose)
    } else {
        vector_map3::<u8, T, _, false, A_SCALAR, B_SCALAR>(set, choose)
    }
}
