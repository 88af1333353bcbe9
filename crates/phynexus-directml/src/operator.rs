//! DirectML's operators that steps are made of.

/// A field of an operator's descriptor, in the order of its structure in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// An input tensor.
    In,
    /// An input tensor that may be absent.
    OptionalIn,
    /// The output tensor.
    Out,
    /// A whole number or a value of an enumeration, with 32 bits.
    Number,
    /// A 32-bit float.
    Float,
    /// A pointer to 32-bit numbers, whose count is another field.
    List,
    /// A value of any type, in 8 bytes.
    Scalar,
    /// A pointer to something optional that is never used: a fused activation, a scale with a bias.
    Null,
}

use Field::{Float, In, List, Null, Number, OptionalIn, Out, Scalar};

/// An operator.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    /// Its number in `DML_OPERATOR_TYPE`.
    pub(crate) number: i32,
    pub(crate) fields: &'static [Field],
}

const fn unary(number: i32) -> Row {
    Row { number, fields: &[In, Out, Null] }
}

const fn binary(number: i32) -> Row {
    Row { number, fields: &[In, In, Out] }
}

pub(crate) static IDENTITY: Row = unary(1);
pub(crate) static ABS: Row = unary(2);
pub(crate) static CEIL: Row = unary(7);
pub(crate) static FLOOR: Row = unary(12);
pub(crate) static SQRT: Row = unary(29);

pub(crate) static ADD: Row = binary(4);
pub(crate) static EQUAL: Row = binary(15);
pub(crate) static LESS: Row = binary(17);
pub(crate) static MULTIPLY: Row = binary(24);
pub(crate) static SUBTRACT: Row = binary(30);

/// Condition, then, otherwise.
pub(crate) static IF: Row = Row { number: 88, fields: &[In, In, In, Out] };
/// The value's type, the value.
pub(crate) static FILL: Row = Row { number: 103, fields: &[Out, Number, Scalar] };
/// A, B and C; whether A and B are transposed; the factors of the product and of C.
pub(crate) static GEMM: Row =
    Row { number: 54, fields: &[In, In, OptionalIn, Out, Number, Number, Float, Float, Null] };
/// Image, filter and bias; mode, direction and number of dimensions; strides, dilations, padding before, after, and of
/// the output; groups.
pub(crate) static CONVOLUTION: Row = Row {
    number: 53,
    fields: &[In, In, OptionalIn, Out, Number, Number, Number, List, List, List, List, List, Number, Null],
};
