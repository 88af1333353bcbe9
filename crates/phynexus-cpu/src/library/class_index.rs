//! The labels of a loss: copied after checking that all of them are valid classes.

use phynexus::{DType, Error, Result, kernel::step::Operand, op::ir::IrNode};

use super::{Routine, misfit};

/// Checks labels against a number of classes.
pub(super) struct ClassIndex {
    loss: &'static str,
    classes: usize,
    ignore_index: Option<i64>,
    count: usize,
}

impl ClassIndex {
    pub(super) fn new(
        loss: &'static str,
        classes: usize,
        ignore_index: Option<i64>,
        node: &IrNode,
        operands: &[Operand],
    ) -> Result<ClassIndex> {
        match operands {
            [labels] if labels.dtype == DType::I64 && labels.layout.len() == node.len() => {
                Ok(ClassIndex { loss, classes, ignore_index, count: node.len() })
            }
            _ => Err(misfit("class_index", operands)),
        }
    }
}

impl Routine for ClassIndex {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        let Some(labels) = operands.first() else {
            return Err(Error::internal("phynexus_cpu::library", "an operand is missing"));
        };
        // SAFETY: the caller guarantees that the operand is contiguous and has `count` elements of int64; device memory
        // is aligned to every dtype's size.
        let labels = unsafe { std::slice::from_raw_parts(labels.cast::<i64>(), self.count) };
        // As an unsigned integer, a negative label is out of range.
        let inside = |label: i64| (label as u64) < self.classes as u64 || Some(label) == self.ignore_index;
        if let Some(&index) = labels.iter().find(|label| !inside(**label)) {
            return Err(Error::Index { op: self.loss, index, size: self.classes, axis: None });
        }
        // SAFETY: the caller guarantees that the result has room for as many elements and does not overlap the operand.
        unsafe { std::ptr::copy_nonoverlapping(labels.as_ptr(), result.cast::<i64>(), self.count) };
        Ok(())
    }
}
