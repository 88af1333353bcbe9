//! Decides which reductions become phases of which kernels.

use std::rc::Rc;

use smallvec::SmallVec;

use super::{FusionGroup, FusionGroupId, Grouper, Use, reduce_coordinates, stores_once};
use crate::{
    Result,
    kernel::{
        index::{Index, Ranges},
        view::{self, Coordinates},
    },
    op::{
        Axes, Op, Reduce,
        ir::{Id, Ir, IrNode},
    },
};

/// If a kernel would have fewer rows than `FEW_ROWS` and each has at least `LONG_ROW` elements, its reduction is not
/// fused with the work that follows. Too few rows would leave most processors idle.
const FEW_ROWS: usize = 8;
const LONG_ROW: usize = 1 << 14;

/// Returns, for each node, whether it is a reduction or follows from one through elementwise operations and views.
/// Searches for a reduction skip the other nodes.
pub(super) fn follow_from_reductions(ir: &Ir) -> Vec<bool> {
    let mut follows: Vec<bool> = Vec::with_capacity(ir.nodes.len());
    for node in &ir.nodes {
        follows.push(match &node.op {
            Op::Reduce(_) => true,
            op if op.is_elementwise() || op.is_view() => node.inputs.iter().any(|&i| follows[i as usize]),
            _ => false,
        });
    }
    follows
}

impl Grouper<'_> {
    /// Makes the reduction a phase of the kernel that uses it, if its result is constant along the kernel's columns.
    /// Fixes the columns if the kernel reduces nothing yet.
    pub(super) fn join_phase(&mut self, u: &Use, node: &IrNode, axes: Axes) -> bool {
        let input = self.ir.node(node.inputs[0]);
        if input.is_empty() {
            return false;
        }
        let extents: SmallVec<[usize; 4]> = axes.iter().map(|a| input.shape[a]).filter(|&d| d != 1).collect();
        let group = &mut self.groups[u.group as usize];
        let depends = |range: usize| u.coordinates.iter().any(|c| c.depends_on(range));
        let rows_over = |columns: &[usize], ranges: &Ranges| -> usize {
            (0..ranges.len()).filter(|r| !columns.contains(r)).map(|r| ranges.0[r]).product()
        };
        let long: usize = extents.iter().product();
        if let Some(columns) = &group.columns {
            let same =
                columns.iter().map(|&c| group.ranges.0[c]).filter(|&d| d != 1).eq(extents.iter().copied());
            let few = rows_over(columns, &group.ranges) < FEW_ROWS && long >= LONG_ROW;
            return same && !few && !columns.iter().any(|&c| depends(c));
        }
        let unused: SmallVec<[usize; 4]> =
            (0..group.ranges.len()).filter(|&r| group.ranges.0[r] != 1 && !depends(r)).collect();
        if unused.is_empty() {
            let first = group.ranges.len();
            group.ranges.0.extend(extents.iter().copied());
            group.columns = Some((first..first + extents.len()).collect());
            return true;
        }
        let few = rows_over(&unused, &group.ranges) < FEW_ROWS && long >= LONG_ROW;
        if few || !unused.iter().map(|&r| group.ranges.0[r]).eq(extents.iter().copied()) {
            return false;
        }
        group.columns = Some(unused);
        true
    }

    /// Finds a kernel that computes part of the reduction's input at the same columns, so the two read it once. The
    /// reduction becomes an additional output of that kernel.
    pub(super) fn sibling(&mut self, id: Id, uses: &[Use]) -> Result<Option<Use>> {
        let node = self.ir.node(id);
        let Op::Reduce(Reduce { axes, .. }) = node.op else { return Ok(None) };
        let input = node.inputs[0];
        let readers: SmallVec<[FusionGroupId; 4]> =
            uses.iter().map(|u| u.group).chain(self.readers[id as usize].iter().copied()).collect();
        for shared in self.uses_behind(input) {
            let mut candidate = shared.clone();
            for axis in axes.iter() {
                Rc::make_mut(&mut candidate.coordinates)[axis] = Index::constant(0);
            }
            let others = readers.iter().copied().filter(|&reader| reader != candidate.group);
            if !self.has_room(id, &candidate, others) {
                continue;
            }
            let group = &self.groups[candidate.group as usize];
            let (ranges, columns) = (group.ranges.clone(), group.columns.clone());
            let joins = self.join_phase(&candidate, node, axes)
                && self.may_use_itself(&candidate, uses)
                && (columns.is_some() || !self.waits_for_other_columns(candidate.group)?);
            let group = &mut self.groups[candidate.group as usize];
            let shape = &self.ir.node(input).shape;
            if joins
                && reduce_coordinates(&candidate.coordinates, axes, shape, group) == *shared.coordinates
                && stores_once(group, &node.shape, &candidate.coordinates)
            {
                group.roots.push((id, candidate.coordinates.clone()));
                return Ok(Some(candidate));
            }
            (group.ranges, group.columns) = (ranges, columns);
        }
        Ok(None)
    }

    /// Returns whether a kernel that computes a reduction here may use it: in the same place, and only for results of
    /// rows. What it needs for each column it would read and compute a second time.
    fn may_use_itself(&self, candidate: &Use, uses: &[Use]) -> bool {
        let FusionGroup { roots, columns, .. } = &self.groups[candidate.group as usize];
        let per_column =
            |at: &Coordinates| columns.iter().flatten().any(|&c| at.iter().any(|index| index.depends_on(c)));
        let mut own = uses.iter().filter(|u| u.group == candidate.group).peekable();
        own.peek().is_none()
            || own.all(|u| !u.masked && u.coordinates == candidate.coordinates)
                && !roots.iter().any(|(_, coordinates)| per_column(coordinates))
    }

    /// Returns whether the kernel's results follow from reductions along its rows, which could have been its phases.
    fn waits_for_other_columns(&self, group: FusionGroupId) -> Result<bool> {
        let FusionGroup { roots, columns, .. } = &self.groups[group as usize];
        for (id, coordinates) in roots {
            let root = Use { group, coordinates: coordinates.clone(), masked: false };
            if self.wants_other_columns(*id, &root, columns.as_deref().unwrap_or(&[]))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns where kernels use a node or its elementwise inputs, except constants; the nearest first.
    fn uses_behind(&self, id: Id) -> Vec<Use> {
        let mut found: Vec<Use> = Vec::new();
        let mut nodes: SmallVec<[Id; 16]> = SmallVec::from_slice(&[id]);
        let mut looked_at = 0;
        while let Some(&id) = nodes.get(looked_at) {
            looked_at += 1;
            if looked_at > 64 {
                break;
            }
            let node = self.ir.node(id);
            if matches!(node.op, Op::Constant(_) | Op::Iota(_)) {
                continue;
            }
            for u in &self.uses[id as usize] {
                if !found.contains(u) {
                    found.push(u.clone());
                }
            }
            if node.op.is_elementwise() {
                nodes.extend(node.inputs.iter().copied());
            }
        }
        found
    }

    /// Returns whether the node follows from a reduction along the kernel's rows. Such a reduction needs a separate
    /// kernel here, but could be a phase if the node had its own kernel.
    pub(super) fn wants_other_columns(&self, id: Id, u: &Use, columns: &[usize]) -> Result<bool> {
        let ranges = &self.groups[u.group as usize].ranges;
        let mut stack: SmallVec<[(Id, Rc<Coordinates>); 16]> = SmallVec::new();
        stack.push((id, u.coordinates.clone()));
        let mut looked_at = 0;
        while let Some((id, coordinates)) = stack.pop() {
            if !self.follows[id as usize] {
                continue;
            }
            let node = self.ir.node(id);
            looked_at += 1;
            if looked_at > 64 {
                break;
            }
            match &node.op {
                Op::Reduce(Reduce { axes, .. }) => {
                    let depends = |range: usize| coordinates.iter().any(|c| c.depends_on(range));
                    let unused = (0..ranges.len()).filter(|&r| ranges.0[r] != 1 && !depends(r));
                    let input = &self.ir.node(node.inputs[0]).shape;
                    let extents = axes.iter().map(|a| input[a]).filter(|&d| d != 1);
                    if columns.iter().any(|&c| depends(c)) && unused.map(|r| ranges.0[r]).eq(extents) {
                        return Ok(true);
                    }
                }
                op if op.is_view() => {
                    let input = node.inputs[0];
                    let shape = &self.ir.node(input).shape;
                    stack
                        .push((input, view::through(op, shape, &node.shape, &coordinates, ranges)?.0.into()));
                }
                op if op.is_elementwise() => {
                    let following = node.inputs.iter().filter(|&&i| self.follows[i as usize]);
                    stack.extend(following.map(|&i| (i, coordinates.clone())));
                }
                _ => {}
            }
        }
        Ok(false)
    }

    /// Returns the nearest reduction from which this node follows through elementwise operations and views.
    pub(super) fn reduction_behind(&self, id: Id) -> Option<(Id, Axes)> {
        let inputs = self.ir.node(id).inputs.iter().copied();
        let mut stack: SmallVec<[Id; 16]> = inputs.filter(|&input| self.follows[input as usize]).collect();
        let mut looked_at = 0;
        while let Some(id) = stack.pop() {
            let node = self.ir.node(id);
            looked_at += 1;
            match &node.op {
                Op::Reduce(Reduce { axes, .. }) => return Some((id, *axes)),
                op if op.is_elementwise() || op.is_view() => stack.extend(node.inputs.iter().copied()),
                _ => {}
            }
            if looked_at > 64 {
                break;
            }
        }
        None
    }
}
