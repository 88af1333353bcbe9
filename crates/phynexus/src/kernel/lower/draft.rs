//! Builds fused specifications by hand.

use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask, Ranges,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Parameter, Store},
    },
    op::{Binary, Combine},
};

/// A specification under construction.
pub(super) struct Draft {
    pub(super) fused: Fusion,
}

impl Draft {
    pub(super) fn new(rows: &[usize], columns: &[usize]) -> Draft {
        Draft { fused: Fusion { rows: rows.into(), columns: columns.into(), ..Fusion::default() } }
    }

    /// The row ranges, then the column ranges.
    pub(super) fn ranges(&self) -> Ranges {
        super::access::ranges(&self.fused)
    }

    pub(super) fn parameter(&mut self, dtype: DType, written: bool) -> u16 {
        self.fused.parameters.push(Parameter { dtype, written });
        self.fused.parameters.len() as u16 - 1
    }

    /// Adds an instruction. It is per column if one of its operands is.
    pub(super) fn emit(&mut self, operation: FusedOp, dtype: DType) -> InstructionId {
        let first = self.fused.rows.len();
        let last = first + self.fused.columns.len();
        let varies = |index: &Index| (first..last).any(|r| index.depends_on(r));
        let per_column = match &operation {
            FusedOp::Constant(_) | FusedOp::Reduce(..) => false,
            FusedOp::Coordinate(index) => varies(index),
            FusedOp::Load { index, mask, .. } => {
                varies(index) || mask.iter().flat_map(Mask::conditions).any(|c| varies(&c.index))
            }
            other => other.operands().iter().any(|&v| self.fused.instructions[v as usize].per_column),
        };
        self.fused.instructions.push(Instruction { operation, dtype, per_column });
        self.fused.instructions.len() as InstructionId - 1
    }

    pub(super) fn dtype(&self, value: InstructionId) -> DType {
        self.fused.instructions[value as usize].dtype
    }

    pub(super) fn load(&mut self, parameter: u16, index: Index, mask: Mask, fill: Scalar) -> InstructionId {
        let dtype = self.fused.parameters[usize::from(parameter)].dtype;
        let mask = (!mask.is_always()).then_some(mask);
        self.emit(FusedOp::Load { parameter, index, mask, fill: fill.cast(dtype) }, dtype)
    }

    pub(super) fn constant(&mut self, dtype: DType, scalar: Scalar) -> InstructionId {
        self.emit(FusedOp::Constant(scalar.cast(dtype)), dtype)
    }

    pub(super) fn binary(&mut self, op: Binary, a: InstructionId, b: InstructionId) -> InstructionId {
        let dtype = op.result(self.dtype(a));
        self.emit(FusedOp::Binary(op, a, b), dtype)
    }

    pub(super) fn select(
        &mut self,
        condition: InstructionId,
        a: InstructionId,
        b: InstructionId,
    ) -> InstructionId {
        let dtype = self.dtype(a);
        self.emit(FusedOp::Select(condition, a, b), dtype)
    }

    pub(super) fn cast(&mut self, value: InstructionId, dtype: DType) -> InstructionId {
        if self.dtype(value) == dtype { value } else { self.emit(FusedOp::Cast(value), dtype) }
    }

    pub(super) fn reduce(&mut self, combine: Combine, value: InstructionId) -> InstructionId {
        let dtype = self.dtype(value);
        self.emit(FusedOp::Reduce(combine, value), dtype)
    }

    pub(super) fn store(&mut self, parameter: u16, value: InstructionId, index: Index) {
        self.fused.stores.push(Store { parameter, value, index, replaces: None });
    }

    /// The condition of a mask as a value; `None` if it always holds.
    pub(super) fn holds(&mut self, mask: &Mask) -> Option<InstructionId> {
        let mut all = None;
        for condition in mask.conditions() {
            let at = self.emit(FusedOp::Coordinate(condition.index.clone()), DType::I64);
            let low = self.constant(DType::I64, Scalar::Int(condition.low));
            let high = self.constant(DType::I64, Scalar::Int(condition.high));
            let above = self.binary(Binary::Le, low, at);
            let below = self.binary(Binary::Lt, at, high);
            let within = self.binary(Binary::And, above, below);
            all = Some(match all {
                Some(all) => self.binary(Binary::And, all, within),
                None => within,
            });
        }
        all
    }
}
