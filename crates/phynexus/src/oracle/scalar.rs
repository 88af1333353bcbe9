//! The oracle's elementwise operations on single numbers, as used by the interpreter of loop trees.

use crate::dtype::read_scalars;
use crate::{
    DType, Scalar,
    dtype::scalar_bytes,
    op::{
        Binary, Unary,
        reference::{Number, elementwise, from_scalar},
    },
};

/// A unary function of a number of `dtype`; `None` if the result is undetermined.
pub(super) fn unary(op: Unary, dtype: DType, a: Scalar) -> Option<Scalar> {
    number(elementwise::unary(op, from_scalar(a), dtype), op.result(dtype))
}

/// A binary function of two numbers of `dtype`; `None` if the result is undetermined.
pub(super) fn binary(op: Binary, dtype: DType, a: Scalar, b: Scalar) -> Option<Scalar> {
    number(elementwise::binary(op, from_scalar(a), from_scalar(b), dtype), op.result(dtype))
}

/// Converts to `dtype`; `None` if the result is undetermined.
pub(super) fn cast(dtype: DType, a: Scalar) -> Option<Scalar> {
    number(elementwise::cast(from_scalar(a), dtype), dtype)
}

/// A number of `dtype` as kernels hold it: 16-bit floats as `f32`.
fn number(number: Number, dtype: DType) -> Option<Scalar> {
    match number {
        Number::Integer(x) if dtype == DType::U64 => Some(Scalar::UInt(x as u64)),
        Number::Integer(x) => Some(Scalar::Int(x as i64).cast(dtype)),
        Number::Float(x) => Some(Scalar::Float(x.value).cast(dtype.compute())),
        // A device gives some number; NaN makes every use of it visible.
        Number::Undetermined => dtype.is_float().then_some(Scalar::Float(f64::NAN)),
    }
}

/// Reinterprets the bits of a number of type `from` as type `to` of the same size.
pub(super) fn bitcast(from: DType, to: DType, a: Scalar) -> Option<Scalar> {
    read_scalars(&scalar_bytes(a.cast(from), from), to).first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_held_as_kernels_hold_them() {
        let third = binary(Binary::Div, DType::F16, Scalar::Float(1.0), Scalar::Float(3.0));
        assert_eq!(third, Some(Scalar::Float(0.333_251_953_125)));
        assert_eq!(binary(Binary::Lt, DType::U8, Scalar::UInt(1), Scalar::UInt(2)), Some(Scalar::Bool(true)));
        assert_eq!(unary(Unary::Not, DType::U64, Scalar::UInt(0)), Some(Scalar::UInt(u64::MAX)));
        assert_eq!(unary(Unary::Neg, DType::I8, Scalar::Int(-128)), Some(Scalar::Int(-128)));
        assert_eq!(unary(Unary::IsNan, DType::F32, Scalar::Float(f64::NAN)), Some(Scalar::Bool(true)));
    }

    #[test]
    fn bits_are_kept() {
        assert_eq!(bitcast(DType::F32, DType::U32, 1f32.into()), Some(Scalar::UInt(0x3f80_0000)));
        assert_eq!(bitcast(DType::U16, DType::F16, Scalar::UInt(0x3c00)), Some(Scalar::Float(1.0)));
    }
}
