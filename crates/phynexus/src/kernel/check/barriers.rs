//! Who reaches a statement together, and barriers.

use super::*;

impl Checker<'_> {
    /// Whether all invocations of a subgroup, all of a group, and all groups reach this point.
    pub(super) fn uniform(&self) -> [bool; 3] {
        [self.subgroup_uniform, self.group_uniform, self.grid_uniform]
    }

    pub(super) fn set_uniform(&mut self, uniform: [bool; 3]) {
        [self.subgroup_uniform, self.group_uniform, self.grid_uniform] = uniform;
    }

    /// Notes who may not reach what runs only where a mask holds.
    pub(super) fn enter(&mut self, mask: &Mask) {
        self.subgroup_uniform &= self.mask_is_constant_in_subgroup(mask);
        self.group_uniform &= !self.varies(mask, |kind| matches!(kind, AxisKind::Block(_)));
        self.grid_uniform &= !self.varies(mask, |kind| matches!(kind, AxisKind::Grid(_) | AxisKind::Part(_)));
    }

    /// Whether a condition depends on an axis of such a kind.
    fn varies(&self, mask: &Mask, is_kind: impl Fn(AxisKind) -> bool) -> bool {
        mask.conditions().iter().any(|condition| self.depends(&condition.index, &is_kind))
    }

    pub(super) fn depends(&self, index: &Index, is_kind: impl Fn(AxisKind) -> bool) -> bool {
        self.kernel
            .axes
            .iter()
            .enumerate()
            .any(|(number, axis)| is_kind(axis.kind) && index.depends_on(number))
    }

    fn mask_is_constant_in_subgroup(&self, mask: &Mask) -> bool {
        let width = self.limits.subgroup.unwrap_or(1);
        mask.conditions().iter().all(|c| {
            // A comparison with a multiple of the width holds for a whole subgroup or not at all.
            let whole = |bound: i64, trivial: bool| trivial || bound % width as i64 == 0;
            let (least, greatest) = c.index.bounds(&self.ranges);
            let index = if whole(c.low, c.low <= least) && whole(c.high, c.high > greatest) {
                c.index.quotient(width as i64, &self.ranges)
            } else {
                c.index.clone()
            };
            constant_in_subgroup(self.kernel, width, &index)
        })
    }

    pub(super) fn barrier(&self) -> Result<()> {
        self.require(self.group_uniform, || "a barrier that only part of a group reaches".to_owned())?;
        // The invocations that make bulk copies would not reach it.
        self.require(self.kernel.tensors.is_empty(), || "a barrier beside bulk copies".to_owned())
    }

    pub(super) fn grid_barrier(&self, counter: &MemoryAccess) -> Result<()> {
        self.barrier()?;
        self.require(self.grid_uniform, || "a barrier that only some groups reach".to_owned())?;
        let (groups, most) = (self.kernel.grid().iter().product::<usize>(), self.limits.meeting_groups);
        if groups > most {
            let message = format!(
                "kernel {} needs {groups} groups that run at once, the device has {most}",
                self.kernel.name
            );
            return Err(Error::Unsupported { device: self.limits.device.clone(), message });
        }
        // Subgroups do not reach from one group into the next.
        self.subgroup()?;
        let counted = self.kernel.array(counter.array).is_some_and(|(dtype, _)| dtype == DType::U32);
        let written = match counter.array {
            ArrayId::Buffer(b) => self.kernel.buffers.get(usize::from(b)).is_some_and(|b| b.written),
            _ => false,
        };
        let differs = self.depends(&counter.index, |kind| !matches!(kind, AxisKind::Grid(1 | 2)));
        let plain = counter.row.is_none() && counter.mask.is_always();
        self.require(counted && written && plain && !differs, || format!("a counter at {counter:?}"))?;
        let same = self.counter.is_some_and(|other| other == counter);
        self.require(same && self.counters_are_different(&counter.index), || {
            format!("{counter:?} is not the only counter, or not one for each row of groups")
        })?;
        self.in_bounds(counter, 1)
    }

    /// Whether groups with different places along the grid's dimensions 1 and 2 have different counters.
    fn counters_are_different(&self, index: &Index) -> bool {
        let [_, rows, layers] = self.kernel.grid();
        let place = |number: usize| {
            let along = |axis: &super::super::loops::Axis| match axis.kind {
                AxisKind::Grid(1) => number % rows,
                AxisKind::Grid(2) => number / rows,
                _ => 0,
            };
            index.evaluate(&self.kernel.axes.iter().map(along).collect::<Vec<_>>())
        };
        let places: std::collections::HashSet<i64> = (0..rows * layers).map(place).collect();
        places.len() == rows * layers
    }
}
