//! Tiles of a contraction's factors, from buffers to shared arrays.

use super::{
    access::{Pattern, pattern},
    contraction::Tile,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        fused::Operation,
        index::Atom,
        loops::{Memory, Operation as Bound, Type, Value},
    },
};

/// Elements that an invocation loads together.
const PIECE: usize = 4;

/// Where an element of a factor's tile lies in a shared array.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) array: Memory,
    pub(super) dtype: DType,
    /// From one row of the left factor, or column of the right one, to the next.
    pub(super) outer: usize,
    /// From one summand to the next.
    pub(super) depth: usize,
    /// Elements of one of the two tiles that the array holds.
    pub(super) size: usize,
}

/// Loads the tiles of one factor.
pub(super) struct Loader<'a> {
    tile: &'a Tile<'a>,
    /// 0 for the left one, 1 for the right one.
    factor: usize,
    layout: Layout,
    /// Neighbouring elements of a piece are neighbouring summands.
    along_depth: bool,
}

/// What an invocation loaded: the elements from a place of the tile on, in one vector or one by one.
pub(super) struct Piece {
    outer: Index,
    depth: Index,
    /// Where there is such a place.
    exists: Mask,
    values: Vec<Value>,
}

impl Loader<'_> {
    pub(super) fn new<'a>(tile: &'a Tile<'a>, factor: usize, layout: Layout) -> Loader<'a> {
        let fused = tile.contraction.fused;
        let last = (fused.rows.len()..fused.rows.len() + fused.columns.len())
            .rev()
            .find(|r| fused.columns[r - fused.rows.len()] > 1);
        let value = tile.contraction.factors[factor];
        let along_depth = match (&fused.instructions[value as usize].operation, last) {
            (Operation::Load { index, .. }, Some(last)) => {
                index.terms().iter().any(|t| t.atom == Atom::Range(last as u8) && t.factor == 1)
            }
            _ => false,
        };
        Loader { tile, factor, layout, along_depth }
    }

    /// Loads this invocation's pieces of the tile that begins at summand `first`.
    pub(super) fn fetch(&self, b: &mut Builder, first: &Index) -> Vec<Piece> {
        let Tile { shape, block, .. } = *self.tile;
        let extent = [shape.rows, shape.columns][self.factor];
        let pieces = extent * shape.depth / PIECE;
        let each = (0..pieces.div_ceil(block)).map(|at| {
            let ranges = b.ranges().clone();
            let piece = self.tile.invocation.shift((at * block) as i64);
            let exists = Mask::within(&piece, 0, pieces as i64, &ranges);
            let split = |length: usize| {
                let by = (length / PIECE) as i64;
                (piece.quotient(by, &ranges), piece.remainder(by, &ranges).scale(PIECE as i64))
            };
            let (outer, depth) = if self.along_depth {
                split(shape.depth)
            } else {
                let (depth, outer) = split(extent);
                (outer, depth)
            };
            let values = self.load(b, &outer, &first.add(&depth), &exists);
            Piece { outer, depth, exists, values }
        });
        each.collect()
    }

    /// The elements from a place of the tile and a summand on.
    fn load(&self, b: &mut Builder, outer: &Index, summand: &Index, exists: &Mask) -> Vec<Value> {
        let Tile { contraction, batch, row, column, buffers, target, .. } = self.tile;
        let value = contraction.factors[self.factor];
        let instruction = &contraction.fused.instructions[value as usize];
        let Operation::Load { parameter, index, mask, .. } = &instruction.operation else {
            return Vec::new();
        };
        let ranges = b.ranges().clone();
        let outer = [row, column][self.factor].add(outer);
        let zero = Index::default();
        let place = |lane: usize| {
            let lane = lane as i64;
            let (outer, summand) = match self.along_depth {
                true => (outer.clone(), summand.shift(lane)),
                false => (outer.shift(lane), summand.clone()),
            };
            let [row, column] = if self.factor == 0 { [&outer, &zero] } else { [&zero, &outer] };
            let point = contraction.point([batch, row, column, &summand], &ranges);
            let within = |index: &Index, group: usize| {
                Mask::within(index, 0, contraction.extent(group) as i64, &ranges)
            };
            let inside = within(&outer, 1 + self.factor).and(&within(&summand, 3)).and(exists);
            let mask = mask.as_ref().map(|m| m.substitute(&point, &ranges)).unwrap_or_default().and(&inside);
            (index.substitute(&point, &ranges), mask)
        };
        let places: Vec<(Index, Mask)> = (0..PIECE).map(place).collect();
        let buffer = &buffers[usize::from(*parameter)];
        let zero = Scalar::Int(0);
        let vector = PIECE * instruction.dtype.size() <= target.vector_bytes;
        let loaded: Vec<Value> = if vector && pattern(&places) == Pattern::Vector {
            let (index, mask) = places[0].clone();
            let place = buffer.place(b, &index, mask, &Mask::default(), PIECE);
            vec![b.load_place(place, zero, PIECE as u8)]
        } else {
            let one = |(index, mask): (Index, Mask)| {
                let place = buffer.place(b, &index, mask, &Mask::default(), 1);
                b.load_place(place, zero, 1)
            };
            places.into_iter().map(one).collect()
        };
        loaded.into_iter().map(|value| b.cast(self.layout.dtype, value)).collect()
    }

    /// Stores pieces to one of the two tiles of the shared array.
    pub(super) fn put(&self, b: &mut Builder, pieces: Vec<Piece>, half: &Index) {
        let Layout { array, dtype, outer, depth, size } = self.layout;
        let step = if self.along_depth { depth } else { outer };
        for Piece { outer: at, depth: summand, exists, values } in pieces {
            let first =
                half.scale(size as i64).add(&at.scale(outer as i64)).add(&summand.scale(depth as i64));
            b.when(exists, |b| {
                let vector = step == 1 && PIECE * dtype.size() <= self.tile.target.vector_bytes;
                match values.as_slice() {
                    &[value] if vector => b.store(array, &first, value),
                    &[value] => {
                        for lane in 0..PIECE {
                            let one = b.bind(Type::scalar(dtype), Bound::Lane(value, lane as u8));
                            b.store(array, &first.shift((lane * step) as i64), one);
                        }
                    }
                    several if vector => {
                        let of = Type { dtype, lanes: PIECE as u8 };
                        let value = b.bind(of, Bound::Pack(several.iter().copied().collect()));
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

/// The loop over the summands: tiles of both factors are in shared memory while `multiply` works on those in the half
/// of the arrays that it is given, and the next ones are on their way into the other.
pub(super) fn pipeline(
    b: &mut Builder,
    tile: &Tile,
    layouts: [Layout; 2],
    multiply: impl FnOnce(&mut Builder, &Index),
) {
    let loaders = [0, 1].map(|factor| Loader::new(tile, factor, layouts[factor]));
    let depth = tile.shape.depth;
    let steps = tile.contraction.extent(3).div_ceil(depth);
    for loader in &loaders {
        let pieces = loader.fetch(b, &Index::default());
        loader.put(b, pieces, &Index::default());
    }
    b.barrier();
    b.over(steps, crate::kernel::loops::AxisKind::Reduce, |b, step| {
        let next = step.shift(1);
        let fetched =
            (steps > 1).then(|| loaders.each_ref().map(|loader| loader.fetch(b, &next.scale(depth as i64))));
        multiply(b, &step.remainder(2, b.ranges()));
        if let Some(fetched) = fetched {
            let half = next.remainder(2, b.ranges());
            for (loader, pieces) in loaders.iter().zip(fetched) {
                loader.put(b, pieces, &half);
            }
        }
        b.barrier();
    });
}
