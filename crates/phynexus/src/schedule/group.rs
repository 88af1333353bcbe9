//! Decides which nodes share a kernel.
//!
//! Grouping is one pass from the outputs to the inputs:
//!
//! - A node with one use inherits its user's kernel and coordinates.
//! - A node that needs a buffer joins the kernel of a user as an additional output. That user must compute it at every
//!   element exactly once, and no path between the two may leave the kernel. Otherwise the node becomes the root of a
//!   new kernel.
//! - A reduction with one use joins the kernel as a phase if its result is constant along the kernel's columns. Others
//!   join a kernel that reads the same elements along the same columns, if there is one.
//! - A cheap chain with several uses is recomputed in each of them; an expensive one gets a buffer.
//!
//! A kernel's results depend on the same collectives, so that none waits for a kernel that waits for a later one. At the
//! end, elementwise kernels on the results of library operations become their epilogues.

mod epilogues;
mod paths;
mod phases;
mod views;

use std::{cell::RefCell, rc::Rc};

use smallvec::SmallVec;

use self::paths::Visits;
use super::{
    answers::Answers,
    cost::{Cost, costs},
};
use crate::{
    Result,
    hash::FastMap,
    kernel::{
        index::{Index, Ranges},
        view::{self, Coordinates},
    },
    op::{
        Axes, Op, Reduce,
        ir::{Id, Ir, IrNode},
    },
    shape::{Layout, contiguous_strides, element_count},
};

/// A future kernel's position in [`Grouping::groups`].
pub(super) type FusionGroupId = u32;

/// A future kernel.
#[derive(Debug, Default)]
pub(super) struct FusionGroup {
    /// The ranges it iterates over.
    pub(super) ranges: Ranges,
    /// The ranges that are reduced, in order; `None` if nothing is reduced yet.
    pub(super) columns: Option<SmallVec<[usize; 4]>>,
    /// The nodes it stores, and the coordinates at which it computes them.
    pub(super) roots: Vec<(Id, Rc<Coordinates>)>,
    /// The only node of the group, if the device refuses that elementwise node.
    pub(super) refused: Option<Id>,
    /// The library operation, if the group is not a fused kernel. In that case `roots` are what its epilogue stores.
    pub(super) library: Option<Id>,
    /// How the group runs as the epilogue of `library`.
    pub(super) epilogue: Option<Epilogue>,
    /// Groups that read what this one stores.
    pub(super) readers: SmallVec<[FusionGroupId; 4]>,
    /// Groups that stored what this one reads. Stale edges may remain.
    pub(super) writers: SmallVec<[FusionGroupId; 4]>,
    /// Greater than the level of every reader.
    pub(super) level: u32,
    /// The number of nodes it computes.
    pub(super) size: usize,
}

/// A group that iterates over the ranges of a library operation's result instead of its own.
#[derive(Debug)]
pub(super) struct Epilogue {
    /// The ranges of the operation's result.
    pub(super) ranges: Ranges,
    /// Each of the group's ranges in terms of `ranges`.
    pub(super) replacements: Coordinates,
    /// The coordinates at which the group reads the result, in terms of the group's ranges.
    pub(super) coordinates: Rc<Coordinates>,
}

/// Where a node's data comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Home {
    /// Computed wherever it is needed.
    Inline,
    /// A leaf.
    Leaf,
    /// Stored by this group.
    Stored(FusionGroupId),
    /// A view of another node's buffer.
    View(Id, Layout),
}

/// The result of grouping.
pub(super) struct Grouping {
    /// The kernels, in no particular order.
    pub(super) groups: Vec<FusionGroup>,
    /// The home of each node.
    pub(super) homes: Vec<Home>,
}

#[derive(Clone, PartialEq)]
struct Use {
    group: FusionGroupId,
    coordinates: Rc<Coordinates>,
    masked: bool,
}

/// Kernels with more nodes than this are split.
const LARGEST_KERNEL: usize = 160;
/// A node gets a buffer if its coordinates mention ranges more often than this.
const LARGEST_COORDINATES: usize = 64;

/// What the device and the caller allow.
#[derive(Clone, Copy)]
pub(super) struct Limits<'a> {
    /// The maximum number of buffers per kernel.
    pub(super) binding_limit: usize,
    /// Whether the device can run an epilogue with this operation.
    pub(super) epilogue: &'a dyn Fn(&IrNode) -> bool,
    /// Whether a result may take over the memory of the leaf in this slot.
    pub(super) donatable: &'a dyn Fn(usize) -> bool,
    /// The device's support for each node.
    pub(super) answers: &'a Answers,
}

/// Groups the nodes of a rewritten graph. `leaves` are the layouts of the leaves, in slot order.
pub(super) fn group(ir: &Ir, leaves: &[Layout], limits: Limits<'_>) -> Result<Grouping> {
    let count = ir.nodes.len();
    let mut homes = vec![Home::Inline; count];
    for &leaf in &ir.leaves {
        homes[leaf as usize] = Home::Leaf;
    }
    let mut reader_counts = vec![0u32; count];
    ir.nodes.iter().flat_map(|node| &node.inputs).for_each(|&input| reader_counts[input as usize] += 1);
    let mut grouper = Grouper {
        ir,
        reader_counts,
        leaf_layouts: ir.leaves.iter().copied().zip(leaves).collect(),
        costs: costs(ir, limits.answers),
        follows: phases::follow_from_reductions(ir),
        stages: paths::stages(ir),
        homes,
        groups: Vec::new(),
        uses: vec![SmallVec::new(); count],
        readers: vec![SmallVec::new(); count],
        stored: vec![false; count],
        leaves_of: Vec::new(),
        visits: RefCell::default(),
        limits,
    };
    for &output in &ir.outputs {
        grouper.stored[output as usize] = true;
    }
    for id in (0..count as Id).rev() {
        grouper.assign(id)?;
    }
    grouper.form_epilogues();
    Ok(Grouping { groups: grouper.groups, homes: grouper.homes })
}

struct Grouper<'a> {
    ir: &'a Ir,
    leaf_layouts: FastMap<Id, &'a Layout>,
    costs: Vec<Cost>,
    /// For each node, whether it is a reduction or follows from one through elementwise operations and views.
    follows: Vec<bool>,
    /// For each node, the number of collectives up to the last one that it depends on. Empty without collectives.
    stages: Vec<u32>,
    /// The number of readers of each node.
    reader_counts: Vec<u32>,
    homes: Vec<Home>,
    groups: Vec<FusionGroup>,
    /// The uses of each node in fused kernels.
    uses: Vec<SmallVec<[Use; 2]>>,
    /// The library operations that need each node's buffer.
    readers: Vec<SmallVec<[FusionGroupId; 2]>>,
    /// Nodes that must have a buffer.
    stored: Vec<bool>,
    /// The leaves that each kernel reads. Filled once all nodes are placed.
    leaves_of: Vec<SmallVec<[Id; 4]>>,
    visits: RefCell<Visits>,
    limits: Limits<'a>,
}

impl Grouper<'_> {
    fn assign(&mut self, id: Id) -> Result<()> {
        let i = id as usize;
        let node = self.ir.node(id);
        let needed = self.stored[i] || !self.uses[i].is_empty() || !self.readers[i].is_empty();
        if !needed || node.op == Op::Buffer {
            return Ok(());
        }
        if self.limits.answers.is_routine(self.ir, id) {
            self.assign_library(id);
            return Ok(());
        }
        if node.op.is_view() {
            return self.assign_view(id);
        }
        // A node that falls back to the CPU gets a kernel of its own. If it shared one with a reduction, that would
        // also run on the CPU, and in the CPU's summation order.
        if node.op.is_elementwise() && self.limits.answers.refusal(id).is_some() {
            return self.place_alone(id);
        }
        let uses = std::mem::take(&mut self.uses[i]);
        let must = self.stored[i] || !self.readers[i].is_empty() || node.op == Op::Contiguous;
        if !must && let Some(inlined) = self.inline(id, &uses)? {
            for u in inlined {
                self.need_inputs(id, &u)?;
            }
            return Ok(());
        }
        // A kernel that reads a reduction's elements anyway is a better place than one that reads its result.
        let host = match self.sibling(id, &uses)? {
            Some(sibling) => Some(sibling),
            None => self.host(id, &uses)?,
        };
        self.store_in(host, id, &uses)
    }

    /// Stores the node in the host, or in a group of its own.
    fn store_in(&mut self, host: Option<Use>, id: Id, uses: &[Use]) -> Result<()> {
        let group = match host {
            Some(u) => u,
            None => self.new_group(id)?,
        };
        self.homes[id as usize] = Home::Stored(group.group);
        for reader in uses.iter().map(|u| u.group).chain(self.readers[id as usize].clone()) {
            self.add_edge(group.group, reader);
        }
        self.need_inputs(id, &group)
    }

    /// The uses at which the node is computed inline, or `None` if it must have a buffer.
    fn inline(&mut self, id: Id, uses: &[Use]) -> Result<Option<SmallVec<[Use; 2]>>> {
        let (i, node) = (id as usize, self.ir.node(id));
        if matches!(node.op, Op::Constant(_) | Op::Iota(_)) {
            return Ok(Some(uses.into()));
        }
        let full = |grouper: &Grouper, u: &Use| grouper.groups[u.group as usize].size >= LARGEST_KERNEL;
        if uses.iter().any(|u| full(self, u)) {
            return Ok(None);
        }
        if let Op::Reduce(Reduce { axes, .. }) = node.op {
            let [only] = uses else { return Ok(None) };
            if only.masked || !self.join_phase(only, node, axes) {
                return Ok(None);
            }
            return Ok(Some(uses.into()));
        }
        // What is widened is stored instead, in fewer bytes.
        if uses.len() > 1 && !self.widens(node) {
            // Otherwise several readers of an epilogue's result would read the bare result and repeat the work.
            let stored_for_free = |library: Id| node.bytes() <= self.ir.node(library).bytes();
            if !self.costs[i].is_cheap(self.ir, node, uses.len())
                || !self.follows_from_shared(node) && self.epilogue_of(id)?.is_some_and(stored_for_free)
            {
                return Ok(None);
            }
        }
        if uses.iter().any(|u| self.repeats_work(node, i, u)) {
            return Ok(None);
        }
        Ok(Some(uses.into()))
    }

    /// Returns whether the node converts floats to a larger type, or combines such a result with what is free.
    fn widens(&self, node: &IrNode) -> bool {
        let converts = |node: &IrNode| {
            let from = || self.ir.node(node.inputs[0]).dtype;
            let floats = || node.dtype.is_float() && from().is_float();
            node.op == Op::Cast && floats() && from().size() < node.dtype.size()
        };
        let is_free = |input: Id| self.costs[input as usize].is_free();
        let operand = |&input: &Id| is_free(input) || converts(self.ir.node(input));
        converts(node)
            || matches!(node.op, Op::Binary(op) if !op.row().slow) && node.inputs.iter().all(operand)
    }

    /// Returns whether the node follows element by element from one that has several readers and no buffer yet. That
    /// one is stored then, not this node.
    fn follows_from_shared(&self, node: &IrNode) -> bool {
        let mut behind: SmallVec<[Id; 8]> = node.inputs.iter().copied().collect();
        while let Some(id) = behind.pop() {
            let (node, i) = (self.ir.node(id), id as usize);
            if node.op.is_elementwise() && !self.costs[i].is_load_of(id) {
                if self.reader_counts[i] > 1 {
                    return true;
                }
                behind.extend(node.inputs.iter().copied());
            }
        }
        false
    }

    /// Returns whether computing the node inside this kernel would repeat expensive work many times.
    fn repeats_work(&self, node: &IrNode, i: usize, u: &Use) -> bool {
        if self.costs[i].operations < 3 {
            return false;
        }
        let group = &self.groups[u.group as usize];
        let columns = group.columns.as_deref().unwrap_or(&[]);
        let per_column = columns.iter().any(|&c| u.coordinates.iter().any(|x| x.depends_on(c)));
        let evaluations: usize = (0..group.ranges.len())
            .filter(|r| per_column || !columns.contains(r))
            .fold(1, |product, r| product.saturating_mul(group.ranges.0[r]));
        evaluations >= node.len().max(1).saturating_mul(16)
    }

    /// Finds a kernel among the users that can store the node as an additional output.
    fn host(&mut self, id: Id, uses: &[Use]) -> Result<Option<Use>> {
        let node = self.ir.node(id);
        if node.is_empty() {
            return Ok(None);
        }
        // A copy of a library operation's result is stored in place of the result.
        if node.op == Op::Contiguous && self.epilogue_of(id)?.is_some() {
            return Ok(None);
        }
        // If a library operation's epilogue can store the node, do not leave it to a kernel that also reduces.
        let reduces = |grouper: &Self, u: &Use| grouper.groups[u.group as usize].columns.is_some();
        let in_epilogue =
            !node.op.is_view() && uses.iter().any(|u| reduces(self, u)) && self.epilogue_of(id)?.is_some();
        for candidate in uses {
            if in_epilogue && reduces(self, candidate) {
                continue;
            }
            let once = uses.iter().filter(|u| u.group == candidate.group).count() == 1;
            let others = (uses.iter().map(|u| u.group))
                .chain(self.readers[id as usize].iter().copied())
                .filter(|&g| g != candidate.group);
            if !once || !self.has_room(id, candidate, others) {
                continue;
            }
            let group = &self.groups[candidate.group as usize];
            // A reduction first becomes a phase, which may fix the columns. This is undone if the store does not fit.
            let (ranges, columns) = (group.ranges.clone(), group.columns.clone());
            if let Op::Reduce(Reduce { axes, .. }) = node.op {
                if !self.join_phase(candidate, node, axes) {
                    continue;
                }
            } else if let Some(columns) = &columns {
                if self.wants_other_columns(id, candidate, columns)? {
                    continue;
                }
            } else if let Some((reduction, axes)) = self.reduction_behind(id) {
                // If the reduction's axes become the columns, what follows from it has one value per row.
                let unused = (0..ranges.len())
                    .filter(|&r| ranges.0[r] != 1 && !candidate.coordinates.iter().any(|c| c.depends_on(r)));
                let input = &self.ir.node(self.ir.node(reduction).inputs[0]).shape;
                let extents = axes.iter().map(|a| input[a]).filter(|&d| d != 1);
                if unused.clone().next().is_some() && unused.clone().map(|r| ranges.0[r]).eq(extents) {
                    self.groups[candidate.group as usize].columns = Some(unused.collect());
                }
            }
            let group = &mut self.groups[candidate.group as usize];
            if stores_once(group, &node.shape, &candidate.coordinates) {
                group.roots.push((id, candidate.coordinates.clone()));
                return Ok(Some(candidate.clone()));
            }
            (group.ranges, group.columns) = (ranges, columns);
        }
        Ok(None)
    }

    /// Returns whether a fused kernel can store one more node that `others` read. None of them may precede it.
    fn has_room(&self, id: Id, candidate: &Use, others: impl Iterator<Item = FusionGroupId>) -> bool {
        let group = &self.groups[candidate.group as usize];
        !candidate.masked
            && group.roots.iter().all(|(root, _)| self.are_of_one_stage(*root, id))
            && group.library.is_none()
            && group.size < LARGEST_KERNEL
            && group.roots.len() * 2 + 4 <= self.limits.binding_limit
            && !self.reaches(others, candidate.group)
    }

    fn new_group(&mut self, id: Id) -> Result<Use> {
        let node = self.ir.node(id);
        let mut group = FusionGroup { ranges: Ranges::of(&node.shape), ..FusionGroup::default() };
        let coordinates = Rc::new(group.ranges.coordinates());
        if let Op::Reduce(Reduce { axes, .. }) = node.op {
            let input = &self.ir.node(node.inputs[0]).shape;
            let first = group.ranges.len();
            group.ranges.0.extend(axes.iter().map(|a| input[a]).filter(|&d| d != 1));
            group.columns = Some((first..group.ranges.len()).collect());
        }
        group.roots.push((id, coordinates.clone()));
        self.groups.push(group);
        Ok(Use { group: self.groups.len() as FusionGroupId - 1, coordinates, masked: false })
    }

    /// Propagates a use of the node to its inputs.
    fn need_inputs(&mut self, id: Id, u: &Use) -> Result<()> {
        let node = self.ir.node(id);
        self.groups[u.group as usize].size += 1;
        match &node.op {
            Op::Reduce(Reduce { axes, .. }) => {
                let input = node.inputs[0];
                let group = &self.groups[u.group as usize];
                let coordinates =
                    reduce_coordinates(&u.coordinates, *axes, &self.ir.node(input).shape, group);
                self.need(input, Use { coordinates: coordinates.into(), ..*u });
            }
            op if op.is_view() || matches!(op, Op::Pad(_)) => {
                let input = node.inputs[0];
                let ranges = &self.groups[u.group as usize].ranges;
                let shape = &self.ir.node(input).shape;
                let (coordinates, mask) = view::through(op, shape, &node.shape, &u.coordinates, ranges)?;
                let masked = u.masked || mask.is_some_and(|m| !m.is_always());
                self.need(input, Use { group: u.group, coordinates: coordinates.into(), masked });
            }
            _ => {
                for &input in &node.inputs {
                    self.need(input, u.clone());
                }
            }
        }
        Ok(())
    }

    fn need(&mut self, id: Id, u: Use) {
        let uses = &mut self.uses[id as usize];
        if !uses.contains(&u) {
            uses.push(u);
        }
    }

    fn assign_library(&mut self, id: Id) {
        let group = self.groups.len() as FusionGroupId;
        self.groups.push(FusionGroup { library: Some(id), ..FusionGroup::default() });
        self.store_from_buffers(id, group);
    }

    /// Makes an elementwise node a kernel by itself.
    fn place_alone(&mut self, id: Id) -> Result<()> {
        let group = self.new_group(id)?.group;
        self.groups[group as usize].size = 1;
        self.groups[group as usize].refused = Some(id);
        self.store_from_buffers(id, group);
        Ok(())
    }

    /// Records that the group stores the node and reads its inputs from buffers.
    fn store_from_buffers(&mut self, id: Id, group: FusionGroupId) {
        let i = id as usize;
        self.homes[i] = Home::Stored(group);
        for reader in self.uses[i].iter().map(|u| u.group).chain(self.readers[i].clone()).collect::<Vec<_>>()
        {
            self.add_edge(group, reader);
        }
        for &operand in &self.ir.node(id).inputs {
            self.need_buffer(operand, group);
        }
    }
}

/// Returns the coordinates of a reduction's input: its own coordinates, with the kernel's columns in the reduced axes.
pub(super) fn reduce_coordinates(
    own: &[Index],
    axes: Axes,
    input: &[usize],
    group: &FusionGroup,
) -> Coordinates {
    let mut columns = group.columns.iter().flatten().filter(|&&c| group.ranges.0[c] != 1);
    (0..input.len())
        .map(|axis| match axes.contains(axis) {
            true if input[axis] != 1 => match columns.next() {
                Some(&column) => Index::range(column, &group.ranges),
                None => Index::constant(0),
            },
            true => Index::constant(0),
            false => own[axis].clone(),
        })
        .collect()
}

/// Returns whether a kernel that computes a tensor of this shape at these coordinates stores each element exactly once.
fn stores_once(group: &FusionGroup, shape: &[usize], coordinates: &[Index]) -> bool {
    let flat = view::flat(coordinates, &contiguous_strides(shape), 0);
    let Some((0, strides)) = flat.strides(group.ranges.len()) else { return false };
    let columns = group.columns.as_deref().unwrap_or(&[]);
    let per_column = columns.iter().any(|&c| strides[c] != 0);
    let mut steps: SmallVec<[(i64, usize); 6]> = (0..group.ranges.len())
        .filter(|r| group.ranges.0[*r] != 1 && (per_column || !columns.contains(r)))
        .map(|r| (strides[r], group.ranges.0[r]))
        .collect();
    steps.sort_unstable();
    let mut expected = 1;
    for (stride, extent) in steps {
        if stride != expected {
            return false;
        }
        expected *= extent as i64;
    }
    expected == element_count(shape) as i64
}
