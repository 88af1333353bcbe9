//! DirectML's operators that steps are made of.

/// A field of an operator's descriptor, in the order of its structure in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// An input tensor.
    In,
    /// An input tensor that may be absent.
    OptionalIn,
    /// An output tensor; some of the operators with several have optional ones.
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

/// Calls a macro with rows `NAME number [fields];`.
macro_rules! operators {
    ($($(#[doc = $doc:literal])* $name:ident $number:literal [$($field:ident),*];)+) => {
        $($(#[doc = $doc])* pub(crate) static $name: Row = Row { number: $number, fields: &[$($field),*] };)+
    };
}

operators! {
    IDENTITY 1 [In, Out, Null];
    ABS 2 [In, Out, Null];
    CEIL 7 [In, Out, Null];
    FLOOR 12 [In, Out, Null];
    RECIPROCAL 27 [In, Out, Null];
    SQRT 29 [In, Out, Null];
    SIGN 79 [In, Out];
    IS_NAN 80 [In, Out];
    /// The rounding.
    ROUND 99 [In, Out, Number];
    /// The signs of infinities that count.
    IS_INFINITY 100 [In, Out, Number];
    LOGICAL_NOT 18 [In, Out];
    BIT_NOT 124 [In, Out];
    CAST 61 [In, Out];

    ADD 4 [In, In, Out];
    DIVIDE 10 [In, In, Out];
    MULTIPLY 24 [In, In, Out];
    SUBTRACT 30 [In, In, Out];
    MAX 21 [In, In, Out];
    MIN 23 [In, In, Out];
    LOGICAL_AND 14 [In, In, Out];
    EQUAL 15 [In, In, Out];
    LESS 17 [In, In, Out];
    LOGICAL_OR 19 [In, In, Out];
    LOGICAL_XOR 20 [In, In, Out];
    LESS_OR_EQUAL 127 [In, In, Out];
    BIT_AND 121 [In, In, Out];
    BIT_OR 122 [In, In, Out];
    BIT_XOR 123 [In, In, Out];
    /// Condition, then, otherwise.
    IF 88 [In, In, In, Out];

    /// The value's type, the value.
    FILL 103 [Out, Number, Scalar];
    /// The values' type, the first value, the step.
    SEQUENCE 104 [Out, Number, Scalar, Scalar];
    /// Mode, value; number of dimensions, elements before and after.
    PADDING 64 [In, Out, Number, Float, Number, List, List];

    /// The function first; then the number of axes and the axes.
    REDUCE 55 [Number, In, Out, Number, List];
    /// The number of axes, the axes, which of equal elements.
    ARGMIN 137 [In, Out, Number, List, Number];
    ARGMAX 138 [In, Out, Number, List, Number];
    /// The axis, the direction, whether an element is left out of its own sum.
    CUMULATIVE_SUMMATION 105 [In, Out, Number, Number, Number];
    CUMULATIVE_PRODUCT 145 [In, Out, Number, Number, Number];
    /// The axis and the dimensions of the indices.
    GATHER 67 [In, In, Out, Number, Number];

    /// A, B and C; whether A and B are transposed; the factors of the product and of C.
    GEMM 54 [In, In, OptionalIn, Out, Number, Number, Float, Float, Null];
    /// A and its zero, B and its zero.
    MATRIX_MULTIPLY_INTEGER 117 [In, OptionalIn, In, OptionalIn, Out];
    /// Image, filter and bias; mode, direction and number of dimensions; strides, dilations, padding before, after, and
    /// of the output; groups.
    CONVOLUTION 53 [
        In, In, OptionalIn, Out, Number, Number, Number, List, List, List, List, List, Number, Null
    ];
    /// Image and its zero, filter and its zero; number of dimensions, strides, dilations, padding before and after;
    /// groups.
    CONVOLUTION_INTEGER 119 [In, OptionalIn, In, OptionalIn, Out, Number, List, List, List, List, Number];
    /// Values and places; number of dimensions, strides, window, padding before and after, dilations.
    MAX_POOLING 110 [In, Out, Out, Number, List, List, List, List, List];
    /// Number of dimensions, strides, window, padding before and after; whether padding counts.
    AVERAGE_POOLING 56 [In, Out, Number, List, List, List, List, Number];
    AVERAGE_POOLING_GRADIENT 130 [In, Out, Number, List, List, List, List, Number];
}
