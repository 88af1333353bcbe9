//! Fusions: what a kernel computes, independent of how it is scheduled.
//!
//! A kernel runs over *rows* and, within each row, over *columns*. Without reductions there are no columns, and every
//! instruction runs once per row. With reductions, an instruction is *per column* or *per row*. A [`FusedOp::Reduce`]
//! combines a per-column value over all columns of the row into a per-row value, which later instructions may use in
//! every column. Softmax, norms and their gradients are therefore one kernel each.

use smallvec::SmallVec;

use super::{
    index::{Index, Ranges},
    view::Mask,
};
use crate::{
    DType, Scalar,
    op::{Binary, Combine, Composite, Unary},
    shape::element_count,
};

/// The position of an instruction in [`Fusion::instructions`]. Operands precede their users.
pub type InstructionId = u32;

/// One step of the expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FusedOp {
    /// Loads the element of parameter `parameter` that is `index` elements from its start; `fill` where the mask does
    /// not hold.
    Load {
        /// The parameter.
        parameter: u16,
        /// The offset in elements.
        index: Index,
        /// Where there is an element to load.
        mask: Option<Mask>,
        /// The value elsewhere.
        fill: Scalar,
    },
    /// A constant.
    Constant(Scalar),
    /// The value of an index expression.
    Coordinate(Index),
    /// A function of one value.
    Unary(Unary, InstructionId),
    /// A function of two values of one type.
    Binary(Binary, InstructionId, InstructionId),
    /// `if condition { then } else { otherwise }`.
    Select(InstructionId, InstructionId, InstructionId),
    /// Conversion to the instruction's dtype.
    Cast(InstructionId),
    /// Reinterprets the bits as the instruction's dtype.
    Bitcast(InstructionId),
    /// Combines a per-column value over the columns of a row.
    Reduce(Combine, InstructionId),
    /// An elementwise composite of one value by its name, for a device that answers
    /// [`Support::Fused`](crate::device::Support::Fused) to it. [`Fusion::expanded`] replaces it by the body.
    Call(Composite, InstructionId),
}

impl FusedOp {
    /// The values it reads.
    pub fn operands(&self) -> SmallVec<[InstructionId; 3]> {
        let mut operands = SmallVec::new();
        self.mapped(|operand| {
            operands.push(operand);
            operand
        });
        operands
    }

    /// Replaces the operands, which are requested in order.
    pub fn mapped(&self, mut operand: impl FnMut(InstructionId) -> InstructionId) -> FusedOp {
        match self {
            FusedOp::Load { .. } | FusedOp::Constant(_) | FusedOp::Coordinate(_) => self.clone(),
            FusedOp::Unary(op, a) => FusedOp::Unary(*op, operand(*a)),
            FusedOp::Binary(op, a, b) => FusedOp::Binary(*op, operand(*a), operand(*b)),
            FusedOp::Select(a, b, c) => FusedOp::Select(operand(*a), operand(*b), operand(*c)),
            FusedOp::Cast(a) => FusedOp::Cast(operand(*a)),
            FusedOp::Bitcast(a) => FusedOp::Bitcast(operand(*a)),
            FusedOp::Reduce(combine, a) => FusedOp::Reduce(*combine, operand(*a)),
            FusedOp::Call(composite, a) => FusedOp::Call(composite.clone(), operand(*a)),
        }
    }
}

/// An operation with the type of its result. Kernels hold values of `f16` and `bf16` as `f32`. Operations do not round:
/// 16-bit results are computed in `f32` and cast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The operation.
    pub operation: FusedOp,
    /// The result's type.
    pub dtype: DType,
    /// True if the result differs between the columns of a row.
    pub per_column: bool,
}

/// A value stored to a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// The parameter.
    pub parameter: u16,
    /// The value.
    pub value: InstructionId,
    /// The offset in elements. It depends on column ranges if and only if the value is per column.
    pub index: Index,
    /// The parameter that is bound to the same address, if the buffer is updated in place.
    pub replaces: Option<u16>,
}

/// A buffer that the kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Element type.
    pub dtype: DType,
    /// True if the kernel writes it. A parameter is either read or written, never both. A buffer that is updated in
    /// place is two parameters bound to the same address; then every load from it is at the index of the store.
    pub written: bool,
}

/// A fused kernel. Ranges `0..rows.len()` are the rows, the following ones the columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fusion {
    /// Extents of the row ranges.
    pub rows: SmallVec<[usize; 4]>,
    /// Extents of the column ranges; empty if there is no reduction.
    pub columns: SmallVec<[usize; 4]>,
    /// The expression.
    pub instructions: Vec<Instruction>,
    /// The stores.
    pub stores: Vec<Store>,
    /// The buffers.
    pub parameters: Vec<Parameter>,
}

impl Fusion {
    /// One operation at each of these elements. The last parameter gets the results.
    pub(crate) fn each(
        elements: usize,
        operation: impl FnOnce(Index) -> FusedOp,
        parameters: Vec<Parameter>,
    ) -> Fusion {
        let dtype = parameters[0].dtype;
        let index = Index::range(0, &Ranges::of(&[elements]));
        let parameter = (parameters.len() - 1) as u16;
        Fusion {
            rows: [elements].as_slice().into(),
            instructions: vec![Instruction { operation: operation(index.clone()), dtype, per_column: false }],
            stores: vec![Store { parameter, value: 0, index, replaces: None }],
            parameters,
            ..Fusion::default()
        }
    }
    /// A copy of this many elements.
    pub(crate) fn copy(dtype: DType, elements: usize) -> Fusion {
        let load =
            |index| FusedOp::Load { parameter: 0, index, mask: None, fill: Scalar::Int(0).cast(dtype) };
        Fusion::each(elements, load, [false, true].map(|written| Parameter { dtype, written }).to_vec())
    }
    /// The number of rows.
    pub fn row_count(&self) -> usize {
        element_count(&self.rows)
    }
    /// The number of columns of each row, 1 without reductions.
    pub fn column_count(&self) -> usize {
        element_count(&self.columns)
    }
    /// The condition and the value of a store that need only be made where the condition holds: elsewhere, its buffer
    /// holds the value already.
    pub fn partial(&self, store: &Store) -> Option<(InstructionId, InstructionId)> {
        let FusedOp::Select(condition, new, old) = self.instructions[store.value as usize].operation else {
            return None;
        };
        match &self.instructions[old as usize].operation {
            FusedOp::Load { parameter, index, mask: None, .. } => {
                (Some(*parameter) == store.replaces && *index == store.index).then_some((condition, new))
            }
            _ => None,
        }
    }
    /// The number of arithmetic operations of one run. Each function counts as one.
    pub fn operations(&self) -> u64 {
        let (rows, columns) = (self.row_count() as u64, self.column_count() as u64);
        let cost = |i: &Instruction| match i.operation {
            FusedOp::Load { .. } | FusedOp::Constant(_) | FusedOp::Coordinate(_) | FusedOp::Bitcast(_) => 0,
            FusedOp::Reduce(..) => rows.saturating_mul(columns),
            _ if i.per_column => rows.saturating_mul(columns),
            _ => rows,
        };
        self.instructions.iter().map(cost).fold(0, u64::saturating_add)
    }
}
