//! The op set, one variant per operation. Their exact semantics are defined by the oracle ([`crate::oracle`]).

mod binary;
mod elementwise;
pub mod integer;
pub mod special;
mod unary;

pub use binary::Binary;
pub(crate) use binary::BinaryClass;
pub use elementwise::Combine;
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

/// How a scatter combines an update with an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScatterMode {
    /// The last update (in index order) wins.
    Set,
    Combine(Combine),
}

/// What is known about the indices of a gather or scatter when it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexRange {
    /// Nothing: the device checks them, and an index out of range is an error.
    Unknown,
    /// All are in range: a GPU skips the check, and the host need not wait for its result.
    Known,
}

/// A set of axes, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Axes(pub u64);

impl Axes {
    /// Creates the set of these axes.
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

/// The geometry of a convolution or pooling window over the trailing spatial dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// The extents of the window (the filter's spatial shape).
    pub kernel: Dims,
    /// Steps between windows.
    pub stride: Dims,
    /// Steps between the elements of a window.
    pub dilation: Dims,
    /// Padding before and after each spatial dimension.
    pub padding: SmallVec<[(usize, usize); 3]>,
    /// Channel groups (1 for pooling).
    pub groups: usize,
}

impl Geometry {
    /// The extent of the output along spatial dimension `d` for an input of extent `size`: `floor((size + padding -
    /// dilation * (kernel - 1) - 1) / stride) + 1`. `None` if the window does not fit.
    pub fn output_size(&self, d: usize, size: usize) -> Option<usize> {
        let padded = size.checked_add(self.padding[d].0)?.checked_add(self.padding[d].1)?;
        let window = self.dilation[d].checked_mul(self.kernel[d].checked_sub(1)?)?.checked_add(1)?;
        Some(padded.checked_sub(window)? / self.stride[d] + 1)
    }
}

/// A convolution and its two gradients: the bilinear form `sum(y * conv(x, w))`, solved for each of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvKind {
    /// Inputs x `[N, C, spatial..]` and w `[O, C / groups, kernel..]`; the result is `[N, O, out..]`.
    Forward,
    /// Inputs y `[N, O, out..]` and w; the result has x's shape. Also the transposed convolution.
    InputGradient,
    /// Inputs x and y; the result has w's shape.
    FilterGradient,
}

/// Pooling, and the operations that its gradients need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PoolKind {
    /// The maximum of each window; padding is ignored.
    Max,
    /// The flat position (`int64`) of the maximum within its spatial plane; the first of equal elements.
    ArgMax,
    /// The sum of each window; padding counts as zero.
    Sum,
    /// The adjoint of `Sum`: adds every element to the positions of its window. The result has the shape of the
    /// pooling's input.
    Spread,
}

/// An operation. Shape and dtype of the result are those of the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A tensor filled with this scalar.
    Constant(Scalar),
    /// A leaf: a tensor that already has its data.
    Buffer,
    /// Each element is its index along `axis`.
    Iota {
        /// The axis.
        axis: usize,
    },
    /// Random 32-bit words (`uint32`). The input is `uint32 [4]`: a key of two words and a 64-bit counter c, low word
    /// first. Word i is half `i % 2` of Threefry-2x32-20 with that key at counter `c + i / 2` (words: low, high).
    RandomBits,

    /// Changes the shape; elements keep their row-major order.
    Reshape,
    /// Axis i of the result is axis `permutation[i]` of the input.
    Permute(SmallVec<[u8; 8]>),
    /// Broadcasts axes of size 1 to the node's shape (of the same rank).
    Expand,
    /// Pads with a value.
    Pad {
        /// One `(before, after)` pair per axis.
        padding: SmallVec<[(usize, usize); 4]>,
        /// The value of the padding.
        value: Scalar,
    },
    /// `x[start : : step]` along every axis, with the number of elements from the node's shape. A negative step runs
    /// backwards.
    Slice {
        /// The first index along each axis.
        start: Dims,
        /// The step along each axis; not 0.
        step: SmallVec<[isize; 4]>,
    },
    /// Concatenates the inputs along `axis`.
    Cat {
        /// The axis.
        axis: usize,
    },

    /// An elementwise function of one argument.
    Unary(Unary),
    /// An elementwise function of two arguments; operands have the node's shape.
    Binary(Binary),
    /// Inputs: condition (`bool`), value if true, value if false.
    Where,
    /// Converts the dtype, as [`Scalar::cast`]. Floats are truncated to integers: they saturate at 64 bits, then wrap,
    /// and NaN gives 0. Integers wrap. Conversion to `bool` is `!= 0`.
    Cast,
    /// Reinterprets the bits as another dtype of the same size.
    Bitcast,

    /// Reduces axes to size 1. Sums and products of 16-bit floats are accumulated in `f32`.
    Reduce {
        /// The combination.
        combine: Combine,
        /// The reduced axes.
        axes: Axes,
    },
    /// The index (`int64`) of the maximum or minimum along an axis, which becomes size 1. The first of equal elements
    /// wins; NaN counts as the extreme.
    ArgReduce {
        /// `Max` or `Min`.
        combine: Combine,
        /// The axis.
        axis: usize,
    },
    /// The cumulative combination along an axis (inclusive).
    Scan {
        /// The combination.
        combine: Combine,
        /// The axis.
        axis: usize,
        /// If true, from the end towards the start.
        reverse: bool,
    },
    /// Inputs x `[N, D]` and index `[M]` (any integer dtype, -N to N-1): selects rows of x, `[M, D]`.
    Gather(IndexRange),
    /// Inputs x `[N, D]`, index `[M]` and updates `[M, D]`: x with rows updated, in index order.
    Scatter(ScatterMode, IndexRange),
    /// The positions (`int64`) that sort the last axis. The sort is stable; NaN counts as the greatest.
    ArgSort {
        /// If true, from the greatest to the least.
        descending: bool,
    },
    /// Inputs sorted `[N]` and values `[M]`: the positions (`int64`) at which the values would be inserted.
    SearchSorted {
        /// If true, after equal elements rather than before.
        right: bool,
    },

    /// Matrix product `[.., M, K]` times `[.., K, N]` with equal leading dimensions. Sums are accumulated in `f32` for
    /// 16-bit floats and in the node's dtype otherwise (so `int8` operands with an `int32` node give exact products).
    Dot,
    /// A convolution over trailing spatial dimensions, or one of its gradients.
    Conv(ConvKind, Geometry),
    /// Pooling over trailing spatial dimensions of `[N, C, spatial..]`.
    Pool(PoolKind, Geometry),

    /// A named operation whose body consists of other operations.
    Composite(Composite),
    /// A launch of a user-written kernel.
    Custom(CustomCall),
    /// Copies the data to the node's device.
    Copy,
    /// Copies the values to a row-major buffer.
    Contiguous,
}

impl Op {
    /// The name of the op in messages and listings.
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

    /// The operation without permission to round its factors.
    pub fn exact(&self) -> &Op {
        match self {
            Op::Composite(Composite::Tf32(product)) => &product.op,
            op => op,
        }
    }

    /// True for ops that only change where an element is read: they are free inside a kernel.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice { .. })
    }

    /// True for ops whose output elements depend only on the input elements at the same position.
    pub fn is_elementwise(&self) -> bool {
        match self {
            Op::Unary(_) | Op::Binary(_) | Op::Where | Op::Cast | Op::Bitcast => true,
            Op::Composite(composite) => composite.is_elementwise(),
            _ => false,
        }
    }
}
