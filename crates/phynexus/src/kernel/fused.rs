//! The fused specification: what one kernel computes, before any decision on how.
//!
//! A kernel runs over *rows* and, within each row, over *columns*. Without reductions there are no columns and every
//! instruction runs once a row. With reductions, an instruction is *per column* or *per row*; a [`Operation::Reduce`]
//! combines a per-column value over all columns of the row into a per-row value, which later instructions may use at
//! every column. So softmax, norms and their gradients are one kernel each.

use smallvec::SmallVec;

use super::{index::Index, view::Mask};
use crate::{
    DType, Scalar,
    op::{Binary, Combine, Unary},
    shape::element_count,
};

/// An instruction's position in [`Fused::instructions`]; operands come before their users.
pub type Value = u32;

/// One step of the expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An element of parameter `parameter`, at `index` elements from its start; where the mask does not hold, `fill`.
    Load {
        /// Which parameter.
        parameter: u16,
        /// Where, in elements.
        index: Index,
        /// Where there is something to load.
        mask: Option<Mask>,
        /// What is there otherwise.
        fill: Scalar,
    },
    /// A constant.
    Constant(Scalar),
    /// The value of an index expression.
    Coordinate(Index),
    /// A function of one value.
    Unary(Unary, Value),
    /// A function of two values of one type.
    Binary(Binary, Value, Value),
    /// `if condition { then } else { otherwise }`.
    Select(Value, Value, Value),
    /// Conversion to the instruction's dtype.
    Cast(Value),
    /// The same bits as the instruction's dtype.
    Bitcast(Value),
    /// The combination of a per-column value over the columns of a row.
    Reduce(Combine, Value),
}

impl Operation {
    /// The values it reads.
    pub fn operands(&self) -> SmallVec<[Value; 3]> {
        match *self {
            Operation::Load { .. } | Operation::Constant(_) | Operation::Coordinate(_) => SmallVec::new(),
            Operation::Unary(_, a) | Operation::Cast(a) | Operation::Bitcast(a) | Operation::Reduce(_, a) => {
                SmallVec::from_slice(&[a])
            }
            Operation::Binary(_, a, b) => SmallVec::from_slice(&[a, b]),
            Operation::Select(a, b, c) => SmallVec::from_slice(&[a, b, c]),
        }
    }

    /// With other operands, asked for in order.
    pub fn mapped(&self, mut operand: impl FnMut(Value) -> Value) -> Operation {
        match *self {
            Operation::Load { .. } | Operation::Constant(_) | Operation::Coordinate(_) => self.clone(),
            Operation::Unary(op, a) => Operation::Unary(op, operand(a)),
            Operation::Binary(op, a, b) => Operation::Binary(op, operand(a), operand(b)),
            Operation::Select(a, b, c) => Operation::Select(operand(a), operand(b), operand(c)),
            Operation::Cast(a) => Operation::Cast(operand(a)),
            Operation::Bitcast(a) => Operation::Bitcast(operand(a)),
            Operation::Reduce(combine, a) => Operation::Reduce(combine, operand(a)),
        }
    }
}

/// An operation with its result's type. Values of `f16` and `bf16` are held as `f32` by kernels. Operations on them are
/// exact: what has to be rounded is computed in `f32` and cast.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What is done.
    pub operation: Operation,
    /// The result's type.
    pub dtype: DType,
    /// True if the result differs between the columns of a row.
    pub per_column: bool,
}

/// A value stored to a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// Which parameter.
    pub parameter: u16,
    /// What.
    pub value: Value,
    /// Where, in elements; depends on column ranges exactly if the value is per column.
    pub index: Index,
}

/// A buffer the kernel reads or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parameter {
    /// Element type.
    pub dtype: DType,
    /// True if the kernel writes it. A parameter is either read or written, never both: a buffer updated in place is
    /// two parameters bound to one address, and then every load from it is at the index of the store.
    pub written: bool,
}

/// One fused kernel. Ranges `0..rows.len()` are the rows', the following ones the columns'.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Fused {
    /// Extents of the row ranges.
    pub rows: SmallVec<[usize; 4]>,
    /// Extents of the column ranges; empty if nothing is reduced.
    pub columns: SmallVec<[usize; 4]>,
    /// The expression.
    pub instructions: Vec<Instruction>,
    /// What is stored.
    pub stores: Vec<Store>,
    /// The buffers.
    pub parameters: Vec<Parameter>,
}

impl Fused {
    /// The number of rows.
    pub fn row_count(&self) -> usize {
        element_count(&self.rows)
    }
    /// The number of columns of each row, 1 without reductions.
    pub fn column_count(&self) -> usize {
        element_count(&self.columns)
    }
    /// Floating-point or integer operations of one run, counting each function as one.
    pub fn operations(&self) -> u64 {
        let (rows, columns) = (self.row_count() as u64, self.column_count() as u64);
        let cost = |i: &Instruction| match i.operation {
            Operation::Load { .. }
            | Operation::Constant(_)
            | Operation::Coordinate(_)
            | Operation::Bitcast(_) => 0,
            Operation::Reduce(..) => rows.saturating_mul(columns),
            _ if i.per_column => rows.saturating_mul(columns),
            _ => rows,
        };
        self.instructions.iter().map(cost).fold(0, u64::saturating_add)
    }
}
