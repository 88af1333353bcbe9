//! Loads tiles of a contraction's factors from buffers to shared arrays.

mod copies;

pub(super) use self::copies::is_bulk;

use super::{
    Target,
    access::{self, Buffer, Pattern, is_aligned, pattern, stride},
    bulk::Bulk,
    contraction::{Contraction, Shape, Tile},
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask, Ranges,
        build::Builder,
        fused::FusedOp,
        loops::{ArrayId, AsyncCopy, AxisKind, KernelOp, MemoryAccess, Panel, Type, ValueId},
    },
};

/// Elements that an invocation loads together.
const PIECE: usize = 4;
/// The usual number of tiles in shared memory at once if copies are asynchronous; otherwise there are two.
pub(super) const STAGES: usize = 4;

/// The layout of a factor's tile in a shared array.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) dtype: DType,
    /// Elements between rows of the left factor, or columns of the right one.
    pub(super) outer: usize,
    /// Elements between terms.
    pub(super) depth: usize,
    /// Elements of a tile.
    pub(super) size: usize,
    /// Whether it is an array of panels.
    pub(super) panels: bool,
}

impl Layout {
    /// The place of an element of the tile in this slot: its row or column, and its term.
    fn place(&self, slot: &Index, outer: &Index, term: &Index, ranges: &Ranges) -> Index {
        let (tile, width) = (slot.scale(self.size as i64), Panel::WIDTH as i64);
        let outer = match self.panels && self.outer == 1 {
            true => outer.quotient(width, ranges).scale(width * width).add(&outer.remainder(width, ranges)),
            false => outer.scale(self.outer as i64),
        };
        tile.add(&outer).add(&term.scale(self.depth as i64))
    }
}

/// Loads the tiles of one factor.
struct Loader<'a> {
    tile: &'a Tile<'a>,
    /// 0 for the left factor, 1 for the right one.
    factor: usize,
    layout: Layout,
    /// The shared array that holds its tiles.
    array: ArrayId,
    /// Whether neighbouring elements of a piece are neighbouring terms.
    along_depth: bool,
    /// Whether its tiles are copied asynchronously.
    copied: bool,
    /// How bulk copies take its tiles, if they do.
    bulk: Option<Bulk>,
    /// The number of its tiles in shared memory at once, if they are.
    stages: usize,
}

/// Whether a factor's elements are contiguous in memory along the terms.
pub(super) fn along_depth(contraction: &Contraction, factor: usize) -> bool {
    let fused = contraction.fused;
    let last = (fused.rows.len()..fused.rows.len() + fused.columns.len())
        .rev()
        .find(|r| fused.columns[r - fused.rows.len()] > 1);
    match (&fused.instructions[contraction.factors[factor] as usize].operation, last) {
        (FusedOp::Load { index, .. }, Some(last)) => stride(index, last) == 1,
        _ => false,
    }
}

/// Elements that an invocation loaded from a place of the tile on, as a vector or one by one.
struct Piece {
    outer: Index,
    depth: Index,
    /// Whether the piece is inside the tile.
    exists: Mask,
    values: Vec<ValueId>,
}

impl Loader<'_> {
    /// This invocation's pieces of a tile, of `length` elements each: a row of the left factor or column of the right
    /// one, a term, and whether the piece exists.
    fn pieces(&self, ranges: &Ranges, length: usize) -> Vec<(Index, Index, Mask)> {
        let Tile { shape, block, .. } = *self.tile;
        let extent = [shape.rows, shape.columns][self.factor];
        let pieces = extent * shape.depth / length;
        // Neighbours in a panel, and panels beside each other. An invocation copies the same term to all of them, so that
        // it finds the place of few terms.
        let (across, panels) = (Panel::WIDTH / length, extent / Panel::WIDTH);
        let divides = (shape.depth * across).is_multiple_of(block) && block.is_multiple_of(across);
        let by_panels = divides && self.layout.panels && !self.along_depth;
        let piece = |at: usize| {
            if by_panels {
                let (panel, turn) = (at % panels, at / panels);
                let outer = self.tile.invocation.remainder(across as i64, ranges).scale(length as i64);
                let depth = self.tile.invocation.quotient(across as i64, ranges);
                return (
                    outer.shift((panel * Panel::WIDTH) as i64),
                    depth.shift((turn * block / across) as i64),
                    Mask::default(),
                );
            }
            let piece = self.tile.invocation.shift((at * block) as i64);
            let exists = Mask::within(&piece, 0, pieces as i64, ranges);
            let split = |extent: usize| {
                let by = (extent / length) as i64;
                (piece.quotient(by, ranges), piece.remainder(by, ranges).scale(length as i64))
            };
            let (outer, depth) = if self.along_depth {
                split(shape.depth)
            } else {
                let (depth, outer) = split(extent);
                (outer, depth)
            };
            (outer, depth, exists)
        };
        (0..pieces.div_ceil(block)).map(piece).collect()
    }

    /// The accesses to `length` elements of the factor's buffer, starting at a row or column of the tile and a term.
    fn accesses(&self, ranges: &Ranges, outer: &Index, summand: &Index, length: usize) -> Vec<(Index, Mask)> {
        let Tile { batch, row, column, .. } = self.tile;
        self.accesses_of([batch, row, column], ranges, outer, summand, length)
    }

    /// The same for a tile with this batch, first row and first column.
    fn accesses_of(
        &self,
        [batch, row, column]: [&Index; 3],
        ranges: &Ranges,
        outer: &Index,
        summand: &Index,
        length: usize,
    ) -> Vec<(Index, Mask)> {
        let Tile { contraction, .. } = self.tile;
        let instruction = &contraction.fused.instructions[contraction.factors[self.factor] as usize];
        let FusedOp::Load { index, mask, .. } = &instruction.operation else { return Vec::new() };
        let outer = [row, column][self.factor].add(outer);
        let zero = Index::default();
        let access = |lane: usize| {
            let lane = lane as i64;
            let (outer, summand) = match self.along_depth {
                true => (outer.clone(), summand.shift(lane)),
                false => (outer.shift(lane), summand.clone()),
            };
            let [row, column] = if self.factor == 0 { [&outer, &zero] } else { [&zero, &outer] };
            let point = contraction.point([batch, row, column, &summand], ranges);
            let within = |index: &Index, group: usize| {
                Mask::within(index, 0, contraction.extent(group) as i64, ranges)
            };
            let inside =
                within(&outer, 1 + self.factor).and(&contraction.holds_term(batch, &summand, ranges));
            let mask = mask.as_ref().map(|m| m.substitute(&point, ranges)).unwrap_or_default().and(&inside);
            (index.substitute(&point, ranges), mask)
        };
        (0..length).map(access).collect()
    }

    fn dtype(&self) -> DType {
        self.tile.contraction.dtypes()[self.factor]
    }

    /// The buffer of the factor.
    fn buffer(&self) -> Option<&Buffer> {
        let contraction = self.tile.contraction;
        match &contraction.fused.instructions[contraction.factors[self.factor] as usize].operation {
            FusedOp::Load { parameter, .. } => self.tile.buffers.get(usize::from(*parameter)),
            _ => None,
        }
    }

    /// Loads this invocation's pieces of the tile that starts at term `first`.
    fn fetch(&self, b: &mut Builder, first: &Index) -> Vec<Piece> {
        let pieces = self.pieces(b.ranges(), PIECE);
        let each = pieces.into_iter().map(|(outer, depth, exists)| {
            let values = self.load(b, &outer, &first.add(&depth), &exists);
            Piece { outer, depth, exists, values }
        });
        each.collect()
    }

    /// Loads the elements starting at a row or column of the tile and a term.
    fn load(&self, b: &mut Builder, outer: &Index, summand: &Index, exists: &Mask) -> Vec<ValueId> {
        let Some(&buffer) = self.buffer() else { return Vec::new() };
        let accesses: Vec<(Index, Mask)> = self
            .accesses(b.ranges(), outer, summand, PIECE)
            .into_iter()
            .map(|(index, mask)| (index, mask.and(exists)))
            .collect();
        let zero = Scalar::Int(0);
        let vector = PIECE * self.dtype().size() <= self.tile.target.vector_bytes;
        let loaded: Vec<ValueId> = if vector && pattern(&accesses) == Pattern::Vector {
            let (index, mask) = accesses[0].clone();
            let access = buffer.access(b, &index, mask, &Mask::default(), PIECE);
            vec![b.load_access(access, zero, PIECE as u8)]
        } else {
            let one = |(index, mask): (Index, Mask)| {
                let access = buffer.access(b, &index, mask, &Mask::default(), 1);
                b.load_access(access, zero, 1)
            };
            accesses.into_iter().map(one).collect()
        };
        loaded.into_iter().map(|value| b.cast(self.layout.dtype, value)).collect()
    }

    /// Stores pieces to this slot of the shared array.
    fn put(&self, b: &mut Builder, pieces: Vec<Piece>, slot: &Index) {
        let Layout { dtype, outer, depth, .. } = self.layout;
        let array = self.array;
        let step = if self.along_depth { depth } else { outer };
        for Piece { outer: at, depth: summand, exists, values } in pieces {
            let first = self.layout.place(slot, &at, &summand, b.ranges());
            b.when(exists, |b| {
                let vector = step == 1 && PIECE * dtype.size() <= self.tile.target.vector_bytes;
                match values.as_slice() {
                    &[value] if vector => b.store(array, &first, value),
                    &[value] => {
                        for lane in 0..PIECE {
                            let one = b.bind(Type::scalar(dtype), KernelOp::Lane(value, lane as u8));
                            b.store(array, &first.shift((lane * step) as i64), one);
                        }
                    }
                    several if vector => {
                        let of = Type { dtype, lanes: PIECE as u8 };
                        let value = b.bind(of, KernelOp::Pack(several.iter().copied().collect()));
                        b.store(array, &first, value);
                    }
                    several => {
                        for (lane, &value) in several.iter().enumerate() {
                            b.store(array, &first.shift((lane * step) as i64), value);
                        }
                    }
                }
            });
        }
    }
}

/// The loaders of both factors.
pub(super) struct Loaders<'a> {
    loaders: [Loader<'a>; 2],
    /// The number of tiles of each factor in shared memory at once.
    stages: usize,
}

impl<'a> Loaders<'a> {
    /// Creates loaders, each with its own shared array of so many tiles if they are copied asynchronously.
    pub(super) fn new(
        b: &mut Builder,
        tile: &'a Tile<'a>,
        layouts: [Layout; 2],
        stages: usize,
    ) -> Loaders<'a> {
        let mut loaders = [0, 1].map(|factor| {
            let along_depth = along_depth(tile.contraction, factor);
            Loader {
                tile,
                factor,
                layout: layouts[factor],
                array: ArrayId::Shared(0),
                along_depth,
                copied: false,
                bulk: None,
                stages,
            }
        });
        for loader in &mut loaders {
            loader.copied = loader.can_copy(b);
        }
        let [left, right] = loaders.each_ref().map(Loader::bulk);
        if let (Some(left), Some(right)) = (left, right) {
            for (loader, bulk) in loaders.iter_mut().zip([left, right]) {
                (loader.copied, loader.bulk) = (true, Some(bulk));
            }
        }
        let stages = if loaders.iter().any(|loader| loader.copied) { stages } else { 2 };
        for loader in &mut loaders {
            let Layout { dtype, size, panels, .. } = loader.layout;
            loader.array =
                if panels { b.panels(dtype, stages * size) } else { b.shared(dtype, stages * size) };
        }
        Loaders { loaders, stages }
    }

    /// Whether the tiles of both factors are copied asynchronously.
    pub(super) fn are_copied(&self) -> bool {
        self.loaders.iter().all(|loader| loader.copied)
    }

    /// Waits until the tiles of the next step are there, and all but `pending` later ones.
    pub(super) fn turn(&self, b: &mut Builder, pending: u8) {
        if self.loaders.iter().all(|loader| loader.bulk.is_some()) {
            return b.async_copy(AsyncCopy::Turn(pending));
        }
        b.async_copy(AsyncCopy::Wait(pending));
        b.barrier();
    }

    /// Starts copying what belongs to a step of both factors to this slot of the arrays. After the steps of a tile come
    /// those of the group's next one.
    pub(super) fn copy(&self, b: &mut Builder, round: &Index, step: &Index, slot: &Index) {
        let Tile { shape, contraction, .. } = self.loaders[0].tile;
        let steps = contraction.extent(3).div_ceil(shape.depth) as i64;
        let at = [&round.add(&step.quotient(steps, b.ranges())), &step.remainder(steps, b.ranges())];
        self.loaders.iter().for_each(|loader| loader.copy(b, at, slot));
        b.async_copy(AsyncCopy::Mark);
    }

    /// The shared arrays.
    pub(super) fn arrays(&self) -> [ArrayId; 2] {
        self.loaders.each_ref().map(|loader| loader.array)
    }

    /// Emits the loop over the terms. `multiply` uses the tiles in the slot it receives, while the next ones are loaded
    /// to other slots.
    pub(super) fn pipeline(&self, b: &mut Builder, multiply: impl FnOnce(&mut Builder, &Index)) {
        let Some(Tile { shape, contraction, .. }) = self.loaders.first().map(|loader| loader.tile) else {
            return;
        };
        let depth = shape.depth as i64;
        let steps = contraction.extent(3).div_ceil(shape.depth);
        let (ahead, stages) = (self.stages - 1, self.stages as i64);
        let copied = self.loaders.iter().any(|loader| loader.copied);
        let mark = |b: &mut Builder| {
            if copied {
                b.async_copy(AsyncCopy::Mark);
            }
        };
        for slot in 0..ahead {
            let number = Index::constant(slot as i64);
            for loader in self.loaders.iter().filter(|_| slot < steps) {
                if loader.copied {
                    loader.copy(b, [&Index::default(), &number], &number);
                } else {
                    let pieces = loader.fetch(b, &number.scale(depth));
                    loader.put(b, pieces, &number);
                }
            }
            mark(b);
        }
        b.over(steps, AxisKind::Reduce, |b, step| {
            if copied {
                b.async_copy(AsyncCopy::Wait(ahead as u8 - 1));
            }
            // Make the tiles visible to all invocations, and wait until those that are about to be overwritten are no
            // longer used.
            b.barrier();
            let next = step.shift(ahead as i64);
            let slot = next.remainder(stages, b.ranges());
            let coming = || self.loaders.iter().filter(|_| steps > ahead);
            for loader in coming().filter(|loader| loader.copied) {
                loader.copy(b, [&Index::default(), &next], &slot);
            }
            mark(b);
            let first = next.scale(depth);
            let fetched: Vec<(&Loader, Vec<Piece>)> = coming()
                .filter(|loader| !loader.copied)
                .map(|loader| (loader, loader.fetch(b, &first)))
                .collect();
            multiply(b, &step.remainder(stages, b.ranges()));
            for (loader, pieces) in fetched {
                loader.put(b, pieces, &slot);
            }
        });
    }
}
