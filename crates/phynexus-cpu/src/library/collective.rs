//! Collectives of a group of processes, by the group's transport.

use std::slice;

use phynexus::{DType, Error, Result, distributed, kernel::step::Operand, op, op::ir::IrNode};

use super::Routine;

/// A collective on operands of one size.
pub(super) struct Collective {
    collective: op::Collective,
    dtype: DType,
    operand: usize,
    result: usize,
}

impl Collective {
    pub(super) fn new(collective: &op::Collective, node: &IrNode, operands: &[Operand]) -> Collective {
        let operand = operands.iter().map(|operand| operand.layout.len() * operand.dtype.size()).sum();
        Collective { collective: collective.clone(), dtype: node.dtype, operand, result: node.bytes() }
    }
}

impl Routine for Collective {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let &[operand] = operands else {
            return Err(Error::internal("phynexus_cpu::library", "a collective has one operand"));
        };
        // SAFETY: the caller guarantees that the operand is row-major at its address.
        let operand = unsafe { slice::from_raw_parts(operand, self.operand) };
        // SAFETY: the caller guarantees room for the result, which does not overlap the operand.
        let result = unsafe { slice::from_raw_parts_mut(result, self.result) };
        distributed::run(&self.collective, self.dtype, operand, result)
    }
}
