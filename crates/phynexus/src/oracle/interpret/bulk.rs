//! Bulk copies.

use super::*;
use crate::kernel::loops::BulkCopy;

/// The turns that a group has taken, and its bulk copies.
#[derive(Default)]
pub(super) struct Turns {
    /// The number of turns.
    pub(super) passed: usize,
    /// The number of batches marked, and of those waited for by the end of the last turn and of the one before.
    marked: usize,
    done: [usize; 2],
    /// Copies that are not in a batch yet, and the pending batches.
    begun: Vec<Copied>,
    batches: Vec<Vec<Copied>>,
}

impl WorkGroup<'_> {
    /// Fails if a product of the invocation's group that is not settled reads one of these elements.
    pub(super) fn require_unused(&self, array: ArrayId, copied: Range<i64>, invocation: usize) -> Result<()> {
        let overlaps = |(other, elements): &(ArrayId, Range<i64>)| {
            *other == array && elements.start < copied.end && copied.start < elements.end
        };
        let teams = self.size.div_ceil(self.subgroup * Panel::SUBGROUPS);
        let first = invocation / self.size * teams;
        let mut products = self.products[first..first + teams].iter().flatten();
        match products.any(|product| product.panels.iter().any(overlaps)) {
            true => self.fail("a panel is overwritten before its product is settled"),
            false => Ok(()),
        }
    }

    /// Counts a batch, once for the group. While a device waits for all invocations to begin a turn, some may still
    /// have to wait for the batches of the one before.
    pub(super) fn mark(&mut self, invocation: usize) -> Result<()> {
        if invocation > 0 || self.kernel.tensors.is_empty() {
            return Ok(());
        }
        let batches = self.kernel.bulk_batches();
        let turns = &mut self.turns;
        turns.marked += 1;
        let batch = std::mem::take(&mut turns.begun);
        turns.batches.push(batch);
        match turns.marked - turns.done[1] > batches {
            true => self.fail(format!("more than {batches} batches of bulk copies at once")),
            false => Ok(()),
        }
    }

    /// A copy by the whole group, or a turn.
    pub(super) fn joint_copy(&mut self, copy: &AsyncCopy) -> Result<()> {
        match copy {
            AsyncCopy::Bulk(copy) => self.bulk_copy(copy),
            AsyncCopy::Turn(most) => self.take_turn((*most).into()),
            _ => Ok(()),
        }
    }

    /// Copied data becomes visible at the end of a turn. Invocations that have nothing to wait for, or many batches at
    /// their disposal, could be ahead of the copies by more turns than there are barriers.
    fn take_turn(&mut self, most: usize) -> Result<()> {
        let Turns { marked, passed, done, .. } = self.turns;
        let arrived = marked.saturating_sub(most);
        if arrived <= done[0] || marked >= passed + self.kernel.bulk_batches() {
            return self.fail("a turn that waits for no batch, or after too many");
        }
        let (kernel, by) = (self.kernel, self.copier());
        let count = self.turns.batches.len().saturating_sub(most);
        let batches: Vec<Vec<Copied>> = self.turns.batches.drain(..count).collect();
        for (access, scalar) in batches.into_iter().flatten() {
            let (cell, _) = self.element(&access, 0, 0)?;
            cell.write(scalar, by).map_err(|fault| broken(kernel, format!("{:?} {fault}", access.array)))?;
        }
        self.turns.passed += 1;
        self.turns.done = [arrived, done[0]];
        Ok(())
    }

    /// What makes the bulk copies: none of the invocations.
    fn copier(&self) -> Accessor {
        Accessor {
            group: self.first,
            row: self.first / self.row,
            meetings: 0,
            interval: self.intervals[0] + self.turns.passed,
            invocation: usize::MAX,
            subgroup: usize::MAX,
            turn: self.turn,
            atomic: false,
        }
    }

    /// Invalidates what it overwrites at once, which is the earliest a device may do it.
    fn bulk_copy(&mut self, copy: &BulkCopy) -> Result<()> {
        let BulkCopy { at, mask, to, .. } = copy;
        let kernel = self.kernel;
        let missing = || broken(kernel, format!("no tensor {}", copy.tensor));
        let tensor = kernel.tensor(copy).ok_or_else(missing)?;
        let point = &self.points[0];
        if !mask.evaluate(point) {
            return Ok(());
        }
        let at: Vec<i64> = at.iter().map(|index| index.evaluate(point)).collect();
        let first = to.index.evaluate(point);
        let buffer = ArrayId::Buffer(tensor.buffer);
        let dtype = kernel.array(buffer).map_or(DType::F32, |(dtype, _)| dtype);
        self.require_unused(to.array, first..first + tensor.part.elements() as i64, 0)?;
        let by = self.copier();
        for element in 0..tensor.part.elements() {
            let scalar = match tensor.element(&tensor.coordinates(&at, element)) {
                Some(place) => self.read(&MemoryAccess::at(buffer, &Index::constant(place as i64)), 0, 0)?,
                None => Scalar::Int(0).cast(dtype),
            };
            let target = MemoryAccess::at(to.array, &Index::constant(first + element as i64));
            let (cell, _) = self.element(&target, 0, 0)?;
            cell.begin_write(by).map_err(|fault| broken(kernel, format!("{:?} {fault}", to.array)))?;
            self.turns.begun.push((target, scalar));
        }
        Ok(())
    }
}
