//! Dependencies between kernels. Each kernel has a level above those of its readers, so a path search visits only the
//! levels between its two ends.

use smallvec::SmallVec;

use super::{FusionGroupId, Grouper};
use crate::op::{
    Op,
    ir::{Id, Ir},
};

/// The visited set of a search, reused because clearing it for each search would be slow.
#[derive(Default)]
pub(super) struct Visits {
    /// For each group, the last search that visited it.
    seen: Vec<u32>,
    search: u32,
    stack: Vec<FusionGroupId>,
}

/// Returns, for each node, one more than the turn of the last collective that it depends on, or 0. Empty without
/// collectives.
pub(super) fn stages(ir: &Ir) -> Vec<u32> {
    let turn = |op: &Op| match op {
        Op::Collective(collective) => collective.turn + 1,
        _ => 0,
    };
    if ir.nodes.iter().all(|node| turn(&node.op) == 0) {
        return Vec::new();
    }
    let mut stages: Vec<u32> = Vec::with_capacity(ir.nodes.len());
    for node in &ir.nodes {
        let before = node.inputs.iter().map(|&input| stages[input as usize]).max();
        stages.push(turn(&node.op).max(before.unwrap_or(0)));
    }
    stages
}

impl Grouper<'_> {
    /// Returns whether one kernel may store both nodes, whose collectives must be the same.
    pub(super) fn are_of_one_stage(&self, a: Id, b: Id) -> bool {
        let stage = |id: Id| self.stages.get(id as usize);
        stage(a) == stage(b)
    }

    /// Adds an edge: `to` reads what `from` stores.
    pub(super) fn add_edge(&mut self, from: FusionGroupId, to: FusionGroupId) {
        let readers = &mut self.groups[from as usize].readers;
        if from == to || readers.contains(&to) {
            return;
        }
        readers.push(to);
        let target = &mut self.groups[to as usize];
        if !target.writers.contains(&from) {
            target.writers.push(from);
        }
        let level = target.level + 1;
        self.raise(from, level);
    }

    /// Raises a group and, transitively, its writers to at least this level.
    fn raise(&mut self, group: FusionGroupId, level: u32) {
        let mut stack: SmallVec<[(FusionGroupId, u32); 16]> = SmallVec::from_slice(&[(group, level)]);
        while let Some((group, level)) = stack.pop() {
            let group = &mut self.groups[group as usize];
            if group.level < level {
                group.level = level;
                stack.extend(group.writers.iter().map(|&writer| (writer, level + 1)));
            }
        }
    }

    /// Returns whether `to` is one of these groups or depends on one.
    pub(super) fn reaches(&self, from: impl IntoIterator<Item = FusionGroupId>, to: FusionGroupId) -> bool {
        let mut visits = self.visits.borrow_mut();
        let Visits { seen, search, stack } = &mut *visits;
        seen.resize(self.groups.len(), 0);
        *search += 1;
        stack.clear();
        stack.extend(from);
        let lowest = self.groups[to as usize].level;
        while let Some(group) = stack.pop() {
            if group == to {
                return true;
            }
            if self.groups[group as usize].level > lowest
                && std::mem::replace(&mut seen[group as usize], *search) != *search
            {
                stack.extend(&self.groups[group as usize].readers);
            }
        }
        false
    }
}
