//! Assigns the buffers of a plan to leaves, to the arena, or to separate result buffers. A result may take over the
//! memory of a leaf.

use std::ops::RangeInclusive;

use super::{
    order::is_collective,
    plan::{Allocation, Leaf, Owned, Piece},
};
use crate::{
    device::Backend,
    hash::{FastMap, FastSet},
    kernel::fused::{FusedOp, Fusion, Instruction},
    kernel::step::{Library, Step},
    op::ir::{Id, Ir},
    shape::Layout,
};

const ALIGNMENT: usize = 64;
/// Operations of a library step that take about 0.1 s on a few cores.
const LONG: f64 = (1u64 << 32) as f64;
/// Operations for each element of a sort or a scan.
const PER_ELEMENT: f64 = 64.0;

/// The allocation of every buffer of a plan.
pub(super) struct Allocations {
    pub(super) of: FastMap<Id, Allocation>,
    pub(super) owned: Vec<Owned>,
    pub(super) arena_bytes: usize,
    /// Stores over memory that the same step reads.
    pub(super) in_place: Vec<InPlace>,
}

/// A store over memory that the same step reads.
pub(super) struct InPlace {
    pub(super) piece: usize,
    pub(super) stored: Id,
    pub(super) read: Id,
}

impl Allocations {
    /// Assigns an allocation to every buffer of the launches, which run in order.
    pub(super) fn assign(
        ir: &Ir,
        pieces: &[Piece],
        launches: &[impl AsRef<[usize]>],
        outputs: &[(Id, Layout)],
        leaves: &[Leaf],
        backend: &dyn Backend,
    ) -> Allocations {
        let slots = ir.leaves.iter().enumerate();
        let mut of: FastMap<Id, Allocation> = slots.map(|(slot, &id)| (id, Allocation::Leaf(slot))).collect();
        let mut last_read: FastMap<Id, usize> = FastMap::default();
        // Nothing is stored in place before the last step that can fail on its data or that takes long: a plan cannot
        // be interrupted after it has overwritten something.
        let mut in_place_from = 0;
        for (time, launch) in launches.iter().enumerate() {
            for &index in launch.as_ref() {
                last_read.extend(pieces[index].parameters.iter().map(|&node| (node, time)));
                if let Step::Library(library) = &pieces[index].step
                    && (library.node.op.operation().can_fail() || operations(library) > LONG)
                {
                    in_place_from = time + 1;
                }
            }
        }
        let held = match backend.target() {
            Some(_) => held(&operands_of_collectives(pieces, launches), launches.len()),
            None => FastMap::default(),
        };
        // A leaf that is also a result must not be overwritten.
        let results: FastSet<Id> = outputs.iter().map(|(base, _)| *base).collect();
        let mut owned = Vec::new();
        for (base, _) in outputs {
            of.entry(*base).or_insert_with(|| {
                owned.push(Owned { bytes: ir.node(*base).bytes(), donor: None, partial: None });
                Allocation::Owned(owned.len() - 1)
            });
        }
        let mut blocks = Blocks::default();
        let mut taken: FastSet<Id> = FastSet::default();
        let mut in_place = Vec::new();
        for (time, launch) in launches.iter().enumerate() {
            let launch = launch.as_ref();
            for &index in launch {
                let piece = &pieces[index];
                // Not read after this piece, nor by another piece of this launch.
                let is_free = |node: Id, taken: &FastSet<Id>| {
                    let elsewhere =
                        |&other: &usize| other != index && pieces[other].parameters.contains(&node);
                    last_read.get(&node) == Some(&time)
                        && !results.contains(&node)
                        && !taken.contains(&node)
                        && !launch.iter().any(elsewhere)
                };
                for node in piece.stored() {
                    let donor = match of.get(&node) {
                        None => {
                            let until = last_read.get(&node).copied().unwrap_or(time);
                            let until = held.get(&node).map_or(until, |&held| until.max(held));
                            let donor = replaced(ir, piece, node, backend)
                                .find(|&read| blocks.of.contains_key(&read) && is_free(read, &taken));
                            blocks.take(node, ir.node(node).bytes(), time..=until, donor);
                            donor
                        }
                        Some(&Allocation::Owned(buffer)) if time >= in_place_from => {
                            let is_donated = |leaf: Id| match of.get(&leaf) {
                                Some(&Allocation::Leaf(slot)) => {
                                    let Leaf { layout, donatable } = &leaves[slot];
                                    *donatable && layout.is_contiguous() && is_free(leaf, &taken)
                                }
                                _ => false,
                            };
                            let donor = replaced(ir, piece, node, backend).find(|&leaf| is_donated(leaf));
                            owned[buffer].donor = donor.and_then(|leaf| match of.get(&leaf) {
                                Some(&Allocation::Leaf(slot)) => Some(slot),
                                _ => None,
                            });
                            donor
                        }
                        Some(_) => None,
                    };
                    taken.extend(donor);
                    in_place.extend(donor.map(|read| InPlace { piece: index, stored: node, read }));
                }
            }
        }
        let arena_bytes = blocks.pack();
        of.extend(
            blocks.of.iter().map(|(&node, &block)| (node, Allocation::Arena(blocks.all[block].offset))),
        );
        Allocations { of, owned, arena_bytes, in_place }
    }
}

/// Returns the operands of collectives, with the times at which they begin.
fn operands_of_collectives(pieces: &[Piece], launches: &[impl AsRef<[usize]>]) -> Vec<(usize, Id)> {
    let launches = launches.iter().enumerate();
    let all = launches.flat_map(|(time, launch)| launch.as_ref().iter().map(move |&index| (time, index)));
    let collectives = all.filter(|&(_, index)| is_collective(&pieces[index]));
    collectives.flat_map(|(time, index)| pieces[index].read().map(move |(_, node)| (time, node))).collect()
}

/// Returns until when the operands' memory is not used again. A device may run a collective beside the steps that
/// follow; those that use its operand's memory would wait for it. Two collectives later, it is likely done.
fn held(operands: &[(usize, Id)], end: usize) -> FastMap<Id, usize> {
    let until = |at: usize| operands.get(at + 2).map_or(end.saturating_sub(1), |&(time, _)| time);
    operands.iter().enumerate().map(|(at, &(_, node))| (node, until(at))).collect()
}

/// Returns the nodes that this step reads only at the elements where it stores `node`. It may store `node` over any of
/// them.
fn replaced<'a>(
    ir: &'a Ir,
    piece: &'a Piece,
    node: Id,
    backend: &dyn Backend,
) -> impl Iterator<Item = Id> + 'a {
    let kernel = piece.step.fused();
    let position = piece.position_of_stored(node);
    let store = kernel.and_then(|k| k.stores.iter().find(|s| Some(usize::from(s.parameter)) == position));
    let by_kernel = kernel
        .zip(store)
        .into_iter()
        .flat_map(move |(kernel, store)| {
            let in_columns = kernel.instructions[store.value as usize].per_column;
            piece.read().filter(move |&(i, read)| {
                let same_element =
                    kernel.instructions.iter().all(|instruction| match &instruction.operation {
                        FusedOp::Load { parameter, index, mask, .. } if usize::from(*parameter) == i => {
                            *index == store.index && mask.is_none()
                        }
                        _ => true,
                    });
                let (from, to) = (ir.node(read), ir.node(node));
                same_element
                    && (in_columns || kernel.columns.is_empty() || stays_in_rows(kernel, i))
                    && from.dtype == to.dtype
                    && from.len() == to.len()
            })
        })
        .map(|(_, read)| read);
    replaced_by_library(ir, piece, node, backend).into_iter().chain(by_kernel)
}

/// Returns the node over which a library step may store its result.
fn replaced_by_library(ir: &Ir, piece: &Piece, node: Id, backend: &dyn Backend) -> Option<Id> {
    let Step::Library(library) = &piece.step else { return None };
    let operand = backend.in_place(&library.node).filter(|_| library.epilogue.is_none())?;
    let read = piece.parameters[operand];
    let is_alone = piece.parameters.iter().filter(|&&other| other == read).count() == 1;
    let (from, to) = (ir.node(read), ir.node(node));
    let fits = library.operands[operand].layout.is_contiguous() && from.len() == to.len();
    (is_alone && fits && from.dtype == to.dtype).then_some(read)
}

/// Estimates the operations of a library step: exactly for a product of two matrices, from its sizes for others.
fn operations(library: &Library) -> f64 {
    let mut sizes: Vec<f64> = library.operands.iter().map(|operand| operand.layout.len() as f64).collect();
    sizes.sort_by(|a, b| b.total_cmp(a));
    let result = library.node.len() as f64;
    match sizes[..] {
        // [M, K] by [K, N] gives [M, N].
        [first, second, ..] => 2.0 * (first * second * result).sqrt(),
        _ => PER_ELEMENT * (sizes.iter().sum::<f64>() + result),
    }
}

/// Returns whether no value of a column depends on this parameter. Values of rows are stored after all columns, by one
/// of the threads that share the row. Others may load the parameter at that time, but they do not use what they load.
fn stays_in_rows(kernel: &Fusion, parameter: usize) -> bool {
    let mut depends = Vec::with_capacity(kernel.instructions.len());
    kernel.instructions.iter().all(|Instruction { operation, per_column, .. }| {
        let is_loaded =
            matches!(operation, FusedOp::Load { parameter: p, .. } if usize::from(*p) == parameter);
        let here = is_loaded || operation.operands().iter().any(|&operand| depends[operand as usize]);
        depends.push(here);
        !here || !per_column && !matches!(operation, FusedOp::Reduce(..))
    })
}

/// The blocks of the arena.
#[derive(Default)]
struct Blocks {
    all: Vec<Block>,
    /// The block of each node.
    of: FastMap<Id, usize>,
}

/// Memory for one node, or for several nodes that successively replace one another.
struct Block {
    bytes: usize,
    /// The steps during which it is in use.
    times: RangeInclusive<usize>,
    offset: usize,
}

impl Blocks {
    /// Gives the node a block for these steps: the donor's block if there is a donor, otherwise a new one.
    fn take(&mut self, node: Id, bytes: usize, times: RangeInclusive<usize>, donor: Option<Id>) {
        let block = match donor.and_then(|donor| self.of.get(&donor).copied()) {
            Some(block) => {
                let first = *self.all[block].times.start();
                self.all[block].times = first..=*times.end();
                block
            }
            None => {
                let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
                self.all.push(Block { bytes, times, offset: 0 });
                self.all.len() - 1
            }
        };
        self.of.insert(node, block);
    }

    /// Assigns offsets and returns the total in bytes. Blocks are placed from the largest to the smallest, each at the
    /// lowest offset that is free for all of its time. Small blocks thus fill the gaps between large ones.
    fn pack(&mut self) -> usize {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_by_key(|&block| std::cmp::Reverse(self.all[block].bytes));
        // Placed blocks, by offset.
        let mut placed: Vec<usize> = Vec::with_capacity(order.len());
        let mut total = 0;
        for block in order {
            let Block { bytes, times, .. } = &self.all[block];
            let mut offset = 0usize;
            for other in placed.iter().map(|&other| &self.all[other]) {
                if other.times.start() > times.end() || times.start() > other.times.end() {
                    continue;
                }
                if offset.saturating_add(*bytes) <= other.offset {
                    break;
                }
                // Saturates past the address space. The allocation then reports the error.
                offset = offset.max(other.offset.saturating_add(other.bytes));
            }
            total = total.max(offset.saturating_add(*bytes));
            self.all[block].offset = offset;
            let at = placed.partition_point(|&other| self.all[other].offset <= offset);
            placed.insert(at, block);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(blocks: &[(usize, RangeInclusive<usize>)]) -> (Vec<usize>, usize) {
        let mut all = Blocks::default();
        for (node, (bytes, times)) in blocks.iter().enumerate() {
            all.take(node as Id, *bytes, times.clone(), None);
        }
        let total = all.pack();
        (all.all.iter().map(|block| block.offset).collect(), total)
    }

    #[test]
    fn large_blocks_go_first_and_small_ones_fill_the_gaps() {
        // In the given order, the second block would be in the way of the third.
        let (offsets, total) = packed(&[(640, 0..=1), (320, 0..=2), (960, 2..=3)]);
        assert_eq!((offsets, total), (vec![0, 960, 0], 1280));
        assert_eq!(packed(&[]), (vec![], 0));
        assert_eq!(packed(&[(0, 0..=0), (1, 0..=0)]).1, 128);
    }

    #[test]
    fn blocks_in_use_at_one_time_do_not_overlap() {
        let mut state = 1usize;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for count in [1, 2, 10, 100] {
            let blocks: Vec<(usize, RangeInclusive<usize>)> =
                (0..count).map(|time| (random(1000), time..=time + random(20))).collect();
            let (offsets, total) = packed(&blocks);
            for (a, (bytes, times)) in blocks.iter().enumerate() {
                assert!(offsets[a] % ALIGNMENT == 0 && offsets[a] + bytes <= total);
                for (b, (others, until)) in blocks.iter().enumerate().skip(a + 1) {
                    let together = times.start() <= until.end() && until.start() <= times.end();
                    let apart = offsets[a] + bytes <= offsets[b] || offsets[b] + others <= offsets[a];
                    assert!(!together || apart, "{blocks:?}: {a} and {b} at {offsets:?}");
                }
            }
        }
    }

    #[test]
    fn memory_of_a_collective_is_held_until_the_second_one_after_it() {
        let until = held(&[(1, 10), (4, 11), (5, 12), (9, 13)], 20);
        let sorted: std::collections::BTreeMap<Id, usize> = until.into_iter().collect();
        assert_eq!(Vec::from_iter(sorted), [(10, 5), (11, 9), (12, 19), (13, 19)]);
        assert!(held(&[], 0).is_empty());
    }

    #[test]
    fn a_block_that_is_taken_over_is_kept_until_the_last_reader() {
        let mut blocks = Blocks::default();
        blocks.take(0, 64, 0..=1, None);
        blocks.take(1, 64, 1..=3, Some(0));
        blocks.take(2, 64, 2..=2, None);
        assert_eq!(blocks.pack(), 128);
        assert_eq!((blocks.of[&0], blocks.of[&1], blocks.of[&2]), (0, 0, 1));
    }
}
