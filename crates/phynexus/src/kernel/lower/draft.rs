//! Builds fused specifications by hand.

use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask, Ranges,
        fused::{Fused, Instruction, Operation, Parameter, Store, Value},
    },
    op::{Binary, Combine},
};

/// A specification under construction.
pub(super) struct Draft {
    pub(super) fused: Fused,
}

impl Draft {
    pub(super) fn new(rows: &[usize], columns: &[usize]) -> Draft {
        Draft { fused: Fused { rows: rows.into(), columns: columns.into(), ..Fused::default() } }
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
    pub(super) fn emit(&mut self, operation: Operation, dtype: DType) -> Value {
        let first = self.fused.rows.len();
        let last = first + self.fused.columns.len();
        let varies = |index: &Index| (first..last).any(|r| index.depends_on(r));
        let per_column = match &operation {
            Operation::Constant(_) | Operation::Reduce(..) => false,
            Operation::Coordinate(index) => varies(index),
            Operation::Load { index, mask, .. } => {
                varies(index) || mask.iter().flat_map(Mask::conditions).any(|c| varies(&c.index))
            }
            other => other.operands().iter().any(|&v| self.fused.instructions[v as usize].per_column),
        };
        self.fused.instructions.push(Instruction { operation, dtype, per_column });
        self.fused.instructions.len() as Value - 1
    }

    pub(super) fn dtype(&self, value: Value) -> DType {
        self.fused.instructions[value as usize].dtype
    }

    pub(super) fn load(&mut self, parameter: u16, index: Index, mask: Mask, fill: Scalar) -> Value {
        let dtype = self.fused.parameters[usize::from(parameter)].dtype;
        let mask = (!mask.is_always()).then_some(mask);
        self.emit(Operation::Load { parameter, index, mask, fill: fill.cast(dtype) }, dtype)
    }

    pub(super) fn constant(&mut self, dtype: DType, scalar: Scalar) -> Value {
        self.emit(Operation::Constant(scalar.cast(dtype)), dtype)
    }

    pub(super) fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let dtype = op.result(self.dtype(a));
        self.emit(Operation::Binary(op, a, b), dtype)
    }

    pub(super) fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        let dtype = self.dtype(a);
        self.emit(Operation::Select(condition, a, b), dtype)
    }

    pub(super) fn cast(&mut self, value: Value, dtype: DType) -> Value {
        if self.dtype(value) == dtype { value } else { self.emit(Operation::Cast(value), dtype) }
    }

    pub(super) fn reduce(&mut self, combine: Combine, value: Value) -> Value {
        let dtype = self.dtype(value);
        self.emit(Operation::Reduce(combine, value), dtype)
    }

    pub(super) fn store(&mut self, parameter: u16, value: Value, index: Index) {
        self.fused.stores.push(Store { parameter, value, index });
    }

    /// The condition of a mask as a value; `None` if it always holds.
    pub(super) fn holds(&mut self, mask: &Mask) -> Option<Value> {
        let mut all = None;
        for condition in mask.conditions() {
            let at = self.emit(Operation::Coordinate(condition.index.clone()), DType::I64);
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
