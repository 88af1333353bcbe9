//! Asynchronous copies of tiles: by all invocations, or in bulk.

use super::*;
use crate::kernel::{loops::BulkCopy, lower::bulk::Bulk};

/// What is copied at once: some terms of one of a group's tiles.
struct Ahead {
    /// The batch, the first row and the first column of the tile.
    place: [Index; 3],
    /// The first term.
    first: Index,
    /// Whether there is such a tile.
    exists: Mask,
    /// The ranges that these are in. The last ones are the number of the group's tile and the step, which may be beyond
    /// the last one.
    ranges: Ranges,
}

/// How bulk copies take all tiles of a factor, if they can.
fn bulk(
    contraction: &Contraction,
    factor: usize,
    shape: Shape,
    buffers: &[Buffer],
    target: &Target,
) -> Option<Bulk> {
    let operation = &contraction.fused.instructions[contraction.factors[factor] as usize].operation;
    let FusedOp::Load { parameter, .. } = operation else { return None };
    let can = target.limits.has_panels() && target.vector_bytes >= AsyncCopy::BYTES;
    let buffer = buffers.get(usize::from(*parameter)).filter(|_| can)?;
    let along = along_depth(contraction, factor);
    Bulk::of(contraction, factor, buffer, along, bulk_extent(shape, factor, along))
}

/// The rows or columns of a bulk copy.
fn bulk_extent(shape: Shape, factor: usize, along_depth: bool) -> usize {
    if along_depth { [shape.rows, shape.columns][factor] } else { Panel::WIDTH }
}

/// Whether bulk copies take all tiles of both factors.
pub(in crate::kernel::lower) fn is_bulk(contraction: &Contraction, shape: Shape, target: &Target) -> bool {
    let (buffers, _) = access::declare(&mut Builder::new(""), contraction.fused, &[]);
    [0, 1].iter().all(|&factor| bulk(contraction, factor, shape, &buffers, target).is_some())
}

impl Loader<'_> {
    /// Elements per copy.
    fn copy_length(&self) -> usize {
        AsyncCopy::BYTES / self.dtype().size()
    }

    /// Whether all tiles can be copied asynchronously. Elements must be stored unconverted and contiguous, and the
    /// elements of a copy must either all exist or all not exist.
    pub(super) fn can_copy(&self, b: &Builder) -> bool {
        let length = self.copy_length();
        let Layout { dtype, outer, depth, .. } = self.layout;
        let straight = if self.along_depth { depth } else { outer } == 1;
        let Some(&buffer) = self.buffer() else { return false };
        let target = self.tile.target;
        let copies = target.limits.async_copies && target.vector_bytes >= AsyncCopy::BYTES;
        if !copies || !straight || dtype != self.dtype() {
            return false;
        }
        let ahead = self.ahead(b);
        let ranges = &ahead.ranges;
        self.pieces(ranges, length).iter().all(|(outer, depth, _)| {
            let accesses = self.accesses_ahead(&ahead, outer, depth, length);
            let Some((index, _)) = accesses.first() else { return false };
            is_aligned(&index.shift(-buffer.start), length) && pattern(&accesses) == Pattern::Vector
        })
    }

    /// What is copied for a tile and a step that are given by further ranges.
    fn ahead(&self, b: &Builder) -> Ahead {
        let Tile { contraction, shape, ref group, groups, .. } = *self.tile;
        let (tiles, steps) = (contraction.tiles(shape), contraction.extent(3).div_ceil(shape.depth));
        let mut ranges = b.ranges().clone();
        // Copies for the last tile's last steps would be for tiles that follow it.
        let rounds = tiles.div_ceil(groups) + self.stages.div_ceil(steps);
        ranges.0.extend([rounds, steps + self.stages]);
        let [round, step] = [2, 1].map(|last| Index::range(ranges.len() - last, &ranges));
        let first = step.scale(shape.depth as i64);
        if tiles <= groups {
            let Tile { batch, row, column, .. } = self.tile.clone();
            let exists = Mask::within(&round, 0, 1, &ranges);
            return Ahead { place: [batch, row, column], first, exists, ranges };
        }
        let tile = group.add(&round.scale(groups as i64));
        let place = contraction.place(shape, &tile, &ranges);
        let exists = contraction.holds_tile(shape, &tile, &ranges);
        Ahead { place, first, exists, ranges }
    }

    /// The accesses to elements that are copied ahead.
    fn accesses_ahead(
        &self,
        ahead: &Ahead,
        outer: &Index,
        depth: &Index,
        length: usize,
    ) -> Vec<(Index, Mask)> {
        let Ahead { place, first, exists, ranges } = ahead;
        let summand = first.add(depth);
        let accesses = self.accesses_of(place.each_ref(), ranges, outer, &summand, length);
        accesses.into_iter().map(|(index, mask)| (index, mask.and(exists))).collect()
    }

    /// How bulk copies take all tiles, if they can.
    pub(super) fn bulk(&self) -> Option<Bulk> {
        let Tile { contraction, shape, target, buffers, .. } = *self.tile;
        bulk(contraction, self.factor, shape, buffers, target).filter(|_| self.layout.panels)
    }

    /// Starts bulk copies of what belongs to a step of one of the group's tiles to this slot of the array.
    fn copy_bulk(&self, b: &mut Builder, bulk: &Bulk, [round, step]: [&Index; 2], slot: &Index) {
        let Tile { shape, contraction, .. } = self.tile;
        let Ahead { place: [batch, row, column], first, exists, ranges } = self.ahead(b);
        let mut coordinates = b.ranges().coordinates();
        coordinates.extend([round.clone(), step.clone()]);
        let mask = exists.substitute(&coordinates, b.ranges());
        for at in (0..[shape.rows, shape.columns][self.factor]).step_by(bulk_extent(
            *shape,
            self.factor,
            self.along_depth,
        )) {
            let outer = [&row, &column][self.factor].shift(at as i64);
            let zero = Index::default();
            let [row, column] = if self.factor == 0 { [&outer, &zero] } else { [&zero, &outer] };
            let point = contraction.point([&batch, row, column, &first], &ranges);
            let term = contraction.term(&batch, &first, &ranges);
            let place = bulk.at(&point, &outer, &term, &ranges);
            let to = self.layout.place(slot, &Index::constant(at as i64), &Index::default(), b.ranges());
            let copy = BulkCopy {
                tensor: b.tensor(&bulk.tensor),
                at: place.iter().map(|index| index.substitute(&coordinates, b.ranges())).collect(),
                mask: mask.clone(),
                to: MemoryAccess::at(self.array, &to),
            };
            b.async_copy(AsyncCopy::Bulk(Box::new(copy)));
        }
    }

    /// Starts copying what belongs to a step of one of the group's tiles to this slot of the array.
    pub(super) fn copy(&self, b: &mut Builder, [round, step]: [&Index; 2], slot: &Index) {
        if let Some(bulk) = &self.bulk {
            return self.copy_bulk(b, bulk, [round, step], slot);
        }
        let length = self.copy_length();
        // Use the indices for a general step, whose alignment was checked. For a specific one they may be simplified
        // differently.
        let ahead = self.ahead(b);
        let mut coordinates = b.ranges().coordinates();
        coordinates.extend([round.clone(), step.clone()]);
        for (outer, depth, exists) in self.pieces(b.ranges(), length) {
            let accesses = self.accesses_ahead(&ahead, &outer, &depth, length);
            let (Some(buffer), Some((index, mask))) = (self.buffer(), accesses.into_iter().next()) else {
                continue;
            };
            let index = index.substitute(&coordinates, b.ranges());
            let mask = mask.substitute(&coordinates, b.ranges());
            b.when(exists, |b| {
                let from = buffer.masked_access(b, &index, mask, length);
                let to = self.layout.place(slot, &outer, &depth, b.ranges());
                let to = Box::new(MemoryAccess::at(self.array, &to));
                b.async_copy(AsyncCopy::Begin { from: Box::new(from), to });
            });
        }
    }
}
