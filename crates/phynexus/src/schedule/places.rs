//! Where the buffers of a plan lie: in leaves, in the arena, or in results of their own, which may take over the memory
//! of a leaf.

use std::collections::{HashMap, HashSet};

use super::{
    plan::{Leaf, Owned, Piece, Place},
    step::Step,
};
use crate::{
    graph::ir::{Id, Ir},
    kernel::fused::Operation,
    shape::Layout,
};

const ALIGNMENT: usize = 64;

/// Where every buffer of a plan lies.
pub(super) struct Places {
    pub(super) of: HashMap<Id, Place>,
    pub(super) owned: Vec<Owned>,
    pub(super) arena_bytes: usize,
}

impl Places {
    /// Finds a place for every buffer of the launches, which run in order.
    pub(super) fn assign(
        ir: &Ir,
        pieces: &[Piece],
        launches: &[impl AsRef<[usize]>],
        outputs: &[(Id, Layout)],
        leaves: &[Leaf],
    ) -> Places {
        let slots = ir.leaves.iter().enumerate();
        let mut of: HashMap<Id, Place> = slots.map(|(slot, &id)| (id, Place::Leaf(slot))).collect();
        let mut last_read: HashMap<Id, usize> = HashMap::new();
        // Library steps can fail on their data. Nothing is stored in place before the last of them.
        let mut in_place_from = 0;
        for (time, launch) in launches.iter().enumerate() {
            for &index in launch.as_ref() {
                last_read.extend(pieces[index].parameters.iter().map(|&node| (node, time)));
                if matches!(pieces[index].step, Step::Library(_)) {
                    in_place_from = time + 1;
                }
            }
        }
        // A leaf that is handed on as a result stays what it is.
        let results: HashSet<Id> = outputs.iter().map(|(base, _)| *base).collect();
        let mut owned = Vec::new();
        for (base, _) in outputs {
            of.entry(*base).or_insert_with(|| {
                owned.push(Owned { bytes: ir.node(*base).bytes(), donor: None });
                Place::Owned(owned.len() - 1)
            });
        }
        let mut arena = Arena::default();
        let mut taken: HashSet<usize> = HashSet::new();
        for (time, launch) in launches.iter().enumerate() {
            let launch = launch.as_ref();
            for &index in launch {
                let piece = &pieces[index];
                for node in piece.stored() {
                    match of.get(&node) {
                        None => {
                            let until = last_read.get(&node).copied().unwrap_or(time);
                            of.insert(node, Place::Arena(arena.take(ir.node(node).bytes(), time, until)));
                        }
                        Some(&Place::Owned(buffer)) if time >= in_place_from => {
                            let elsewhere = |leaf: Id| {
                                let mut others = launch.iter().filter(|&&other| other != index);
                                others.any(|&other| pieces[other].parameters.contains(&leaf))
                            };
                            let is_free = |leaf: Id, slot: usize| {
                                leaves[slot].donatable
                                    && last_read.get(&leaf) == Some(&time)
                                    && !results.contains(&leaf)
                                    && !taken.contains(&slot)
                                    && !elsewhere(leaf)
                            };
                            let donor = donor(ir, piece, node, leaves, &of, is_free);
                            taken.extend(donor);
                            owned[buffer].donor = donor;
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        Places { of, owned, arena_bytes: arena.bytes }
    }
}

/// A free leaf that this step reads only at the very elements where `node` is stored.
fn donor(
    ir: &Ir,
    piece: &Piece,
    node: Id,
    leaves: &[Leaf],
    of: &HashMap<Id, Place>,
    is_free: impl Fn(Id, usize) -> bool,
) -> Option<usize> {
    let kernel = piece.step.fused()?;
    let position = piece.position_of_stored(node)?;
    let store = kernel.stores.iter().find(|s| usize::from(s.parameter) == position)?;
    let candidates = piece.read().filter_map(|(i, leaf)| match of.get(&leaf) {
        Some(&Place::Leaf(slot)) if is_free(leaf, slot) => Some((i, leaf, slot)),
        _ => None,
    });
    let mut fitting = candidates.filter(|&(i, leaf, slot)| {
        let same_place = kernel.instructions.iter().all(|instruction| match &instruction.operation {
            Operation::Load { parameter, index, mask, .. } if usize::from(*parameter) == i => {
                *index == store.index && mask.is_none()
            }
            _ => true,
        });
        let (from, to) = (ir.node(leaf), ir.node(node));
        let per_column = kernel.instructions[store.value as usize].per_column || kernel.columns.is_empty();
        same_place
            && per_column
            && from.dtype == to.dtype
            && from.len() == to.len()
            && leaves[slot].layout.is_contiguous()
    });
    fitting.next().map(|(_, _, slot)| slot)
}

/// Offsets for buffers with known lifetimes: each gets the lowest place free for all of its time.
#[derive(Default)]
struct Arena {
    blocks: Vec<(usize, usize, usize)>,
    bytes: usize,
}

impl Arena {
    /// A place for `bytes` from step `from` to step `until`.
    fn take(&mut self, bytes: usize, from: usize, until: usize) -> usize {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        self.blocks.retain(|&(_, _, last)| last >= from);
        self.blocks.sort_unstable();
        let mut offset = 0usize;
        for &(start, end, _) in &self.blocks {
            if offset.saturating_add(bytes) <= start {
                break;
            }
            offset = offset.max(end);
        }
        // Beyond the address space the allocation fails, and says so.
        let end = offset.saturating_add(bytes);
        self.blocks.push((offset, end, until));
        self.bytes = self.bytes.max(end);
        offset
    }
}
