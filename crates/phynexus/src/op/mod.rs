//! The op set, one variant per operation. Primitives are in `primitive`, one file each; composites consist of them.

mod binary;
mod elementwise;
pub mod gamma;
pub mod integer;
pub mod special;
mod unary;

pub use binary::Binary;
pub(crate) use binary::BinaryClass;
pub use elementwise::Combine;
pub(crate) use unary::Class;
pub use unary::Unary;

pub(crate) mod batch;
pub mod check;
pub mod composite;
pub(crate) mod custom;
pub(crate) mod formula;
pub mod gradient;
pub mod ir;
pub(crate) mod operation;
pub(crate) mod primitive;
pub(crate) mod reference;
mod sample;
pub(crate) mod term;
pub(crate) mod view;

pub use composite::Composite;
pub(crate) use primitive::combines;
pub use primitive::{
    ArgReduce, ArgSort, Axes, Bitcast, Buffer, Cast, Cat, Collective, CollectiveKind, Constant, Contiguous,
    Conv, ConvKind, Copy, Dot, Expand, Gather, Geometry, GroupMember, IndexRange, Iota, Loss, Op, Pad,
    Permute, Pool, PoolKind, RandomBits, Reduce, Reshape, Scan, Scatter, ScatterMode, SearchSorted, Slice,
    Where, samples,
};
pub use sample::{ELEMENTWISE, Sample, SampleDType, SampleOperand, SampleValues};
pub use term::TensorType;

impl Op {
    /// The name of the op in messages and listings.
    pub fn name(&self) -> &'static str {
        self.operation().name()
    }

    /// The operation without permission to round its factors.
    pub fn exact(&self) -> &Op {
        match self {
            Op::Composite(Composite::InPrecision(product)) => &product.op,
            op => op,
        }
    }

    /// True for ops that only change where an element is read: they are free inside a kernel.
    pub fn is_view(&self) -> bool {
        matches!(self, Op::Reshape | Op::Permute(_) | Op::Expand | Op::Slice(_))
    }

    /// True for ops that take 8-bit floats: those that move values, convert them or multiply matrices.
    pub(crate) fn takes_float8(&self) -> bool {
        let moves = matches!(
            self,
            Op::Buffer
                | Op::Constant(_)
                | Op::Copy
                | Op::Contiguous
                | Op::Pad(_)
                | Op::Cat(_)
                | Op::Gather(_)
                | Op::Collective(_)
        );
        moves || self.is_view() || matches!(self, Op::Where | Op::Cast | Op::Bitcast | Op::Dot)
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
