//! The op set: one row an operation. What each row means, exactly, is the oracle's code ([`crate::oracle`]).

use smallvec::SmallVec;

use super::composite::Composite;
use crate::{DType, Scalar, shape::Dims};

/// Elementwise functions of one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Abs,
    /// -1, 0 or 1; NaN stays NaN.
    Sign,
    Recip,
    Sqrt,
    Rsqrt,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Floor,
    Ceil,
    Trunc,
    /// To the nearest integer, halves to even.
    Round,
    /// Logical for `bool`, bitwise for integers.
    Not,
    /// Result is `bool`.
    IsNan,
    /// Result is `bool`.
    IsInf,
}

/// Elementwise functions of two operands of one dtype. Comparisons give `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// True division; floats only.
    Div,
    /// Rounded towards negative infinity; integer division by zero gives 0.
    FloorDiv,
    /// With the divisor's sign, as Python's `%`; an integer remainder by zero gives 0.
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

/// What a scatter does where an update meets an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScatterMode {
    /// The last update (in index order) wins.
    Set,
    Combine(Combine),
}

/// A set of axes, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Axes(pub u64);

impl Axes {
    /// The set of these axes.
    pub fn of(axes: impl IntoIterator<Item = usize>) -> Axes {
        Axes(axes.into_iter().fold(0, |set, axis| set | 1 << axis))
    }
    /// True if `axis` is in the set.
    pub fn contains(self, axis: usize) -> bool {
        axis < 64 && self.0 >> axis & 1 == 1
    }
    /// The axes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |&axis| self.contains(axis))
    }
}

/// The geometry of a convolution or a pooling window over the trailing spatial dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// The window's extents (the filter's spatial shape).
    pub kernel: Dims,
    /// Steps between windows.
    pub stride: Dims,
    /// Steps between a window's elements.
    pub dilation: Dims,
    /// Padding before and after each spatial dimension.
    pub padding: SmallVec<[(usize, usize); 3]>,
    /// Channel groups (1 for pooling).
    pub groups: usize,
}

impl Geometry {
    /// The output's extent along spatial dimension `d` for an input of extent `size`; `None` if the window does not
    /// fit: `floor((size + padding - dilation * (kernel - 1) - 1) / stride) + 1`.
    pub fn output_size(&self, d: usize, size: usize) -> Option<usize> {
        let padded = size.checked_add(self.padding[d].0)?.checked_add(self.padding[d].1)?;
        let window = self.dilation[d].checked_mul(self.kernel[d].checked_sub(1)?)?.checked_add(1)?;
        Some(padded.checked_sub(window)? / self.stride[d] + 1)
    }
}

/// A convolution and its two gradients: one bilinear form `sum(y * conv(x, w))`, solved for each of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvKind {
    /// Inputs x `[N, C, spatial..]`, w `[O, C / groups, kernel..]`; result `[N, O, out..]`.
    Forward,
    /// Inputs y `[N, O, out..]`, w; result has x's shape. Also the transposed convolution.
    InputGradient,
    /// Inputs x, y; result has w's shape.
    FilterGradient,
}

/// Pooling and what its gradients need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The greatest element of each window; padding never wins.
    Max,
    /// The flat position of that element within its plane of spatial dimensions, `int64`; the first of equals.
    ArgMax,
    /// The sum of each window; padding counts as zero.
    Sum,
    /// The adjoint of `Sum`: every output element is added to its window's positions; result has the input's shape.
    Spread,
}

/// An operation. The node's shape and dtype are the result's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Every element is this scalar.
    Constant(Scalar),
    /// A tensor that already has its data: a leaf.
    Buffer,
    /// The index along `axis`.
    Iota {
        /// The axis that counts.
        axis: usize,
    },
    /// Random 32-bit words (`uint32`). The input is `uint32 [4]`: a key of two words and a 64-bit counter c, low word
    /// first. Word i is half `i % 2` of Threefry-2x32-20 with that key at counter `c + i / 2` (words: low, high).
    RandomBits,

    /// Same elements in row-major order, another shape.
    Reshape,
    /// Axis i of the result is axis `permutation[i]` of the input.
    Permute(SmallVec<[u8; 8]>),
    /// Axes of size 1 repeated to the node's shape (same rank).
    Expand,
    /// Elements added around, `(before, after)` an axis.
    Pad {
        /// Counts an axis.
        padding: SmallVec<[(usize, usize); 4]>,
        /// What the new elements are.
        value: Scalar,
    },
    /// `x[start : : step]` along every axis, as many as the node's shape says; a negative step runs backwards.
    Slice {
        /// The first index an axis.
        start: Dims,
        /// The step an axis, not 0.
        step: SmallVec<[isize; 4]>,
    },
    /// Inputs one after another along `axis`.
    Cat {
        /// The axis.
        axis: usize,
    },

    /// A function of each element.
    Unary(Unary),
    /// A function of each pair of elements; operands have the node's shape.
    Binary(Binary),
    /// inputs: condition (`bool`), then, else.
    Where,
    /// Another dtype, as [`Scalar::cast`]: floats to integers truncate, saturate at 64 bits and wrap (NaN gives 0),
    /// integers wrap, to `bool` is `!= 0`.
    Cast,
    /// The same bits read as another dtype of the same size.
    Bitcast,

    /// Axes combined to size 1. Sums and products of 16-bit floats are accumulated in `f32`.
    Reduce {
        /// How.
        combine: Combine,
        /// Which axes.
        axes: Axes,
    },
    /// The index (`int64`) of the greatest or least element along an axis, which becomes size 1; the first of equals;
    /// NaN counts as the extreme.
    ArgReduce {
        /// `Max` or `Min`.
        combine: Combine,
        /// The axis.
        axis: usize,
    },
    /// Running combination along an axis, including the element itself.
    Scan {
        /// How.
        combine: Combine,
        /// The axis.
        axis: usize,
        /// From the end towards the start.
        reverse: bool,
    },
    /// Inputs x `[N, D]`, index `[M]` (any integer dtype, -N to N-1): rows of x, `[M, D]`.
    Gather,
    /// Inputs x `[N, D]`, index `[M]`, updates `[M, D]`: x with rows updated, in index order.
    Scatter(ScatterMode),
    /// The positions (`int64`) that sort the last axis; stable; NaN sorts last.
    ArgSort {
        /// From the greatest to the least.
        descending: bool,
    },
    /// Inputs sorted `[N]`, values `[M]`: where each value would be inserted, `int64`.
    SearchSorted {
        /// After equal elements rather than before.
        right: bool,
    },

    /// `[.., M, K]` times `[.., K, N]`: leading dimensions equal. Sums are accumulated in `f32` for 16-bit floats and
    /// in the node's dtype otherwise (so `int8` operands with an `int32` node give exact products).
    Dot,
    /// A convolution over trailing spatial dimensions, or one of its gradients.
    Conv(ConvKind, Geometry),
    /// Pooling over trailing spatial dimensions of `[N, C, spatial..]`.
    Pool(PoolKind, Geometry),

    /// A named operation with a body of other operations.
    Composite(Composite),
    /// The same data on the node's device.
    Copy,
    /// The same values laid out row-major in a buffer of their own.
    Contiguous,
}

impl Op {
    /// The op's name in messages and listings.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Constant(_) => "constant",
            Op::Buffer => "buffer",
            Op::Iota { .. } => "iota",
            Op::RandomBits => "random_bits",
            Op::Reshape => "reshape",
            Op::Permute(_) => "permute",
            Op::Expand => "expand",
            Op::Pad { .. } => "pad",
            Op::Slice { .. } => "slice",
            Op::Cat { .. } => "cat",
            Op::Unary(u) => u.name(),
            Op::Binary(b) => b.name(),
            Op::Where => "where",
            Op::Cast => "cast",
            Op::Bitcast => "bitcast",
            Op::Reduce { combine, .. } => combine.name(),
            Op::ArgReduce { combine: Combine::Min, .. } => "argmin",
            Op::ArgReduce { .. } => "argmax",
            Op::Scan { .. } => "scan",
            Op::Gather => "gather",
            Op::Scatter(_) => "scatter",
            Op::ArgSort { .. } => "argsort",
            Op::SearchSorted { .. } => "searchsorted",
            Op::Dot => "dot",
            Op::Conv(ConvKind::Forward, _) => "conv",
            Op::Conv(ConvKind::InputGradient, _) => "conv_input_gradient",
            Op::Conv(ConvKind::FilterGradient, _) => "conv_filter_gradient",
            Op::Pool(PoolKind::Max, _) => "max_pool",
            Op::Pool(PoolKind::ArgMax, _) => "argmax_pool",
            Op::Pool(PoolKind::Sum, _) => "sum_pool",
            Op::Pool(PoolKind::Spread, _) => "spread_pool",
            Op::Composite(c) => c.name(),
            Op::Copy => "copy",
            Op::Contiguous => "contiguous",
        }
    }

    /// True for ops that only say where an element is found: they cost nothing inside a kernel.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice { .. })
    }

    /// True for ops whose every output element depends on the elements at one place of their inputs.
    pub fn is_elementwise(&self) -> bool {
        matches!(self, Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast | Op::Bitcast)
    }
}

impl Unary {
    /// All of them.
    pub const ALL: [Unary; 32] = {
        use Unary::*;
        [
            Neg, Abs, Sign, Recip, Sqrt, Rsqrt, Exp, Exp2, Expm1, Log, Log2, Log1p, Sin, Cos, Tan, Asin,
            Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Erf, Floor, Ceil, Trunc, Round, Not, IsNan,
            IsInf,
        ]
    };

    /// The name in messages and listings.
    pub fn name(self) -> &'static str {
        use Unary::*;
        match self {
            Neg => "neg",
            Abs => "abs",
            Sign => "sign",
            Recip => "reciprocal",
            Sqrt => "sqrt",
            Rsqrt => "rsqrt",
            Exp => "exp",
            Exp2 => "exp2",
            Expm1 => "expm1",
            Log => "log",
            Log2 => "log2",
            Log1p => "log1p",
            Sin => "sin",
            Cos => "cos",
            Tan => "tan",
            Asin => "asin",
            Acos => "acos",
            Atan => "atan",
            Sinh => "sinh",
            Cosh => "cosh",
            Tanh => "tanh",
            Asinh => "asinh",
            Acosh => "acosh",
            Atanh => "atanh",
            Erf => "erf",
            Floor => "floor",
            Ceil => "ceil",
            Trunc => "trunc",
            Round => "round",
            Not => "not",
            IsNan => "isnan",
            IsInf => "isinf",
        }
    }

    /// True if operands of this dtype are accepted by the op itself (`Tensor` methods convert first where NumPy would).
    pub fn accepts(self, dtype: DType) -> bool {
        use Unary::*;
        match self {
            Neg | Abs | Sign => dtype != DType::Bool,
            Not => !dtype.is_float(),
            _ => dtype.is_float(),
        }
    }

    /// The result's dtype.
    pub fn result(self, operand: DType) -> DType {
        match self {
            Unary::IsNan | Unary::IsInf => DType::Bool,
            _ => operand,
        }
    }
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
