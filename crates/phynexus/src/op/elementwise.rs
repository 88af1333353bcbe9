//! How elements are combined.

use super::Binary;
use crate::{DType, Scalar};

/// How values are combined by reductions, scans and scatters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Combine {
    Sum,
    Prod,
    /// NaN if any is NaN.
    Max,
    /// NaN if any is NaN.
    Min,
}

impl Combine {
    /// Every way.
    pub const ALL: [Combine; 4] = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min];

    /// The name of the reduction.
    pub fn name(self) -> &'static str {
        match self {
            Combine::Sum => "sum",
            Combine::Prod => "prod",
            Combine::Max => "max",
            Combine::Min => "min",
        }
    }

    /// What an empty reduction gives.
    pub fn identity(self, dtype: DType) -> Scalar {
        let scalar = match self {
            Combine::Sum => Scalar::Int(0),
            Combine::Prod => Scalar::Int(1),
            Combine::Max if dtype.is_float() => Scalar::Float(f64::NEG_INFINITY),
            Combine::Min if dtype.is_float() => Scalar::Float(f64::INFINITY),
            Combine::Max => lowest(dtype),
            Combine::Min => highest(dtype),
        };
        scalar.cast(dtype)
    }

    /// The elementwise op that combines two values.
    pub fn binary(self) -> Binary {
        match self {
            Combine::Sum => Binary::Add,
            Combine::Prod => Binary::Mul,
            Combine::Max => Binary::Max,
            Combine::Min => Binary::Min,
        }
    }
}

fn lowest(dtype: DType) -> Scalar {
    match dtype {
        DType::I8 => Scalar::Int(i8::MIN.into()),
        DType::I16 => Scalar::Int(i16::MIN.into()),
        DType::I32 => Scalar::Int(i32::MIN.into()),
        DType::I64 => Scalar::Int(i64::MIN),
        _ => Scalar::UInt(0),
    }
}

fn highest(dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(true),
        DType::U8 => Scalar::UInt(u8::MAX.into()),
        DType::U16 => Scalar::UInt(u16::MAX.into()),
        DType::U32 => Scalar::UInt(u32::MAX.into()),
        DType::U64 => Scalar::UInt(u64::MAX),
        DType::I8 => Scalar::Int(i8::MAX.into()),
        DType::I16 => Scalar::Int(i16::MAX.into()),
        DType::I32 => Scalar::Int(i32::MAX.into()),
        _ => Scalar::Int(i64::MAX),
    }
}
