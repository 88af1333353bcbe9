//! The op set: one row an operation. What each row means, exactly, is the oracle's code ([`crate::oracle`]).

mod elementwise;
pub mod special;
mod unary;

pub use elementwise::{Binary, Combine};
pub(crate) use unary::Class;
pub use unary::Unary;

use smallvec::SmallVec;

pub mod check;
pub mod composite;
pub(crate) mod custom;
pub(crate) mod formula;
pub mod gradient;
pub mod ir;
pub(crate) mod term;
pub(crate) mod view;

pub use composite::Composite;
pub use term::TensorType;

use crate::{Scalar, shape::Dims};
use custom::CustomCall;

/// What a scatter does where an update meets an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScatterMode {
    /// The last update (in index order) wins.
    Set,
    Combine(Combine),
}

/// What is known of the indices of a gather or a scatter when it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexRange {
    /// Nothing: the device looks, and one that is out of range is an error.
    Unknown,
    /// All are in range: a GPU does not look, and the host need not wait for what it found.
    Known,
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
    Gather(IndexRange),
    /// Inputs x `[N, D]`, index `[M]`, updates `[M, D]`: x with rows updated, in index order.
    Scatter(ScatterMode, IndexRange),
    /// The positions (`int64`) that sort the last axis; stable; NaN is the greatest.
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
    /// A launch of a kernel written by a user: what its source does.
    Custom(CustomCall),
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
            Op::Gather(_) => "gather",
            Op::Scatter(..) => "scatter",
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
            Op::Custom(_) => "custom kernel",
            Op::Copy => "copy",
            Op::Contiguous => "contiguous",
        }
    }

    /// The operation, without the leave to round its factors.
    pub fn exact(&self) -> &Op {
        match self {
            Op::Composite(Composite::Tf32(product)) => &product.op,
            op => op,
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
