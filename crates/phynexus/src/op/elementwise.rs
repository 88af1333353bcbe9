//! Functions of two elements, and how elements are combined.

use crate::{DType, Scalar};

/// Elementwise functions of two operands of one dtype. Comparisons give `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// True division; floats only.
    Div,
    /// Rounded towards negative infinity; integer division by zero gives 0. With an infinity, and of a zero, it is the
    /// quotient itself: `inf // 2` is `inf`, `1 // -inf` is `-0`.
    FloorDiv,
    /// With the divisor's sign, a zero too, as Python's `%`; an integer remainder by zero gives 0. Over an infinity of the other
    /// sign it is that infinity.
    Remainder,
    /// C's `pow`. Integers wrap; a negative exponent truncates the quotient: 1 or -1 for such bases, else 0.
    Pow,
    /// NaN if either is NaN.
    Max,
    /// NaN if either is NaN.
    Min,
    Atan2,
    And,
    Or,
    Xor,
    /// Shifts by the width or more give 0.
    Shl,
    /// Arithmetic for signed types; shifts by the width or more give 0 or -1.
    Shr,
    Lt,
    Le,
    Eq,
    Ne,
}

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

impl Binary {
    /// All of them.
    pub const ALL: [Binary; 19] = {
        use Binary::*;
        [
            Add, Sub, Mul, Div, FloorDiv, Remainder, Pow, Max, Min, Atan2, And, Or, Xor, Shl, Shr, Lt, Le,
            Eq, Ne,
        ]
    };

    /// The name in messages and listings.
    pub fn name(self) -> &'static str {
        use Binary::*;
        match self {
            Add => "add",
            Sub => "sub",
            Mul => "mul",
            Div => "div",
            FloorDiv => "floor_divide",
            Remainder => "remainder",
            Pow => "pow",
            Max => "maximum",
            Min => "minimum",
            Atan2 => "atan2",
            And => "and",
            Or => "or",
            Xor => "xor",
            Shl => "shift_left",
            Shr => "shift_right",
            Lt => "less",
            Le => "less_equal",
            Eq => "equal",
            Ne => "not_equal",
        }
    }

    /// True if operands of this dtype are accepted.
    pub fn accepts(self, dtype: DType) -> bool {
        use Binary::*;
        match self {
            Div | Atan2 => dtype.is_float(),
            Add | Sub | Mul | FloorDiv | Remainder | Pow => dtype != DType::Bool,
            And | Or | Xor => !dtype.is_float(),
            Shl | Shr => dtype.is_integer(),
            Max | Min | Lt | Le | Eq | Ne => true,
        }
    }

    /// True if the result is `bool` whatever the operands are.
    pub fn is_comparison(self) -> bool {
        matches!(self, Binary::Lt | Binary::Le | Binary::Eq | Binary::Ne)
    }

    /// True if the result of 16-bit floats is one, without rounding.
    pub fn is_exact(self) -> bool {
        use Binary::*;
        matches!(self, Max | Min | And | Or | Xor | Shl | Shr | Lt | Le | Eq | Ne)
    }

    /// True if the operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        use Binary::*;
        matches!(self, Add | Mul | Max | Min | And | Or | Xor | Eq | Ne)
    }

    /// The result's dtype.
    pub fn result(self, operand: DType) -> DType {
        if self.is_comparison() { DType::Bool } else { operand }
    }
}

impl Combine {
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
