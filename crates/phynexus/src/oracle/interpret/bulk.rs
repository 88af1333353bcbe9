//! Bulk copies.

use super::*;
use crate::kernel::loops::BulkCopy;

/// The turns that a group has taken, and the batches that it has waited for.
#[derive(Clone, Copy, Default)]
pub(super) struct Turns {
    /// The number of turns.
    pub(super) passed: usize,
    /// The number of batches marked, and of those waited for by the end of the last turn and of the one before.
    marked: usize,
    done: [usize; 2],
}

impl WorkGroup<'_> {
    /// Fails if a product that is not settled reads one of these elements.
    pub(super) fn require_unused(&self, array: ArrayId, copied: Range<i64>) -> Result<()> {
        let overlaps = |(other, elements): &(ArrayId, Range<i64>)| {
            *other == array && elements.start < copied.end && copied.start < elements.end
        };
        match self.products.iter().flatten().any(|product| product.panels.iter().any(overlaps)) {
            true => self.fail("a copy to a panel whose product is not settled"),
            false => Ok(()),
        }
    }

    /// Counts a batch. While a device waits for all invocations to begin a turn, some may still have to wait for the
    /// batches of the one before.
    pub(super) fn mark(&mut self, invocation: usize) -> Result<()> {
        let batches = self.kernel.bulk_batches();
        self.turns.marked += usize::from(invocation == 0);
        match batches > 0 && self.turns.marked - self.turns.done[1] > batches {
            true => self.fail(format!("more than {batches} batches of bulk copies at once")),
            false => Ok(()),
        }
    }

    /// A copy by the whole group, or a turn.
    pub(super) fn joint_copy(&mut self, copy: &AsyncCopy) -> Result<()> {
        match copy {
            AsyncCopy::Bulk(copy) => self.bulk_copy(copy),
            AsyncCopy::Turn(most) => {
                (0..self.points.len()).try_for_each(|i| self.async_copy(&AsyncCopy::Wait(*most), i))?;
                self.turns.passed += 1;
                let done = self.turns.marked.saturating_sub(usize::from(*most)).max(self.turns.done[0]);
                self.turns.done = [done, self.turns.done[0]];
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Invalidates what it overwrites at once, which is the earliest a device may do it.
    fn bulk_copy(&mut self, copy: &BulkCopy) -> Result<()> {
        let BulkCopy { at, mask, to, .. } = copy;
        let tensor = self.kernel.tensor(copy);
        let point = &self.points[0];
        if !mask.evaluate(point) {
            return Ok(());
        }
        let at: Vec<i64> = at.iter().map(|index| index.evaluate(point)).collect();
        let first = to.index.evaluate(point);
        let buffer = ArrayId::Buffer(tensor.buffer);
        let dtype = self.kernel.array(buffer).map_or(DType::F32, |(dtype, _)| dtype);
        self.require_unused(to.array, first..first + tensor.part.len() as i64)?;
        for element in 0..tensor.part.len() {
            let scalar = match tensor.element(&tensor.coordinates(&at, element)) {
                Some(place) => self.read(&MemoryAccess::at(buffer, &Index::constant(place as i64)), 0, 0)?,
                None => Scalar::Int(0).cast(dtype),
            };
            let target = MemoryAccess::at(to.array, &Index::constant(first + element as i64));
            let kernel = self.kernel;
            let (cell, accessor) = self.element(&target, 0, 0)?;
            cell.begin_write(accessor).map_err(|fault| broken(kernel, format!("{:?} {fault}", to.array)))?;
            self.copies[0].0.push((target, scalar));
        }
        Ok(())
    }
}
