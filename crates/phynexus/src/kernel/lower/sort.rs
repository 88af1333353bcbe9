//! Sorts rows with a bitonic network (Batcher, "Sorting networks and their applications", 1968) on keys and positions.
//! Positions break ties between equal keys, so the order is total and the sort stable. Rows are padded to a power of
//! two with positions beyond the row, which sort last.

use super::{
    Lowered, Source, Target, Unsupported,
    access::{self, Buffer},
    indexed::{each, precedes},
    operand::Work,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{ArrayId, KernelOp, Type, ValueId},
        step::{Library, Operand},
        view::{Coordinates, flat, unflatten},
    },
    op::{Binary, Unary},
};

/// Maximum number of elements that a group sorts in shared memory.
const TILE: usize = 1024;

/// The rows to sort.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) dtype: DType,
    pub(super) count: usize,
    pub(super) width: usize,
    pub(super) descending: bool,
}

/// The positions that sort the last axis.
pub(super) fn lower(
    library: &Library,
    descending: bool,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let x = &library.operands[0];
    let width = x.layout.shape.last().copied().unwrap_or(1);
    // Represent bools as numbers, since some Vulkan drivers mishandle shared memory of bools.
    let dtype = if x.dtype == DType::Bool { DType::U8 } else { x.dtype };
    let rows = Rows { dtype, count: library.node.len() / width.max(1), width, descending };
    sort(rows, Some(x), Source::Binding(0), (result, DType::I64), None, target, lowered)
}

/// Sorts the rows of `keys`, row-major unless an operand is given, into positions of a given dtype, and optionally into
/// sorted keys.
pub(super) fn sort(
    rows: Rows,
    operand: Option<&Operand>,
    keys: Source,
    positions: (Source, DType),
    sorted: Option<Source>,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    if i32::try_from(rows.width.next_power_of_two()).is_err() {
        return Err(Unsupported("a sort of more elements than an int32 counts".to_owned()));
    }
    let padded = rows.width.next_power_of_two().max(2);
    let bytes = rows.dtype.size() + DType::I32.size();
    let most = (TILE.min(2 * target.limits.block_size)).min(target.limits.shared_bytes / bytes).max(2);
    let tile = padded.min(1 << most.ilog2());
    let network = Network { rows, operand, keys, positions, sorted, padded, tile };
    if tile == padded {
        network.tiles(None, 2, target, lowered);
        return Ok(());
    }
    let held = (
        lowered.temporary(rows.count * padded, rows.dtype),
        lowered.temporary(rows.count * padded, DType::I32),
    );
    network.tiles(Some(held), 2, target, lowered);
    let mut size = 2 * tile;
    while size <= padded {
        let mut distance = size / 2;
        while distance >= tile {
            network.exchange(held, size, distance, target, lowered);
            distance /= 2;
        }
        network.tiles(Some(held), size, target, lowered);
        size *= 2;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Network<'a> {
    rows: Rows,
    operand: Option<&'a Operand>,
    keys: Source,
    positions: (Source, DType),
    sorted: Option<Source>,
    padded: usize,
    tile: usize,
}

/// A key and its position.
type Item = (ValueId, ValueId);

impl Network<'_> {
    /// Whether an item sorts after another.
    fn follows(&self, b: &mut Builder, x: Item, y: Item) -> ValueId {
        let held = self.rows.dtype.compute();
        let (x_key, y_key) = (b.cast(held, x.0), b.cast(held, y.0));
        let later = b.binary(Binary::Lt, y.1, x.1);
        let before = precedes(b, x_key, y_key, self.rows.descending);
        let behind = precedes(b, y_key, x_key, self.rows.descending);
        let first = b.unary(Unary::Not, before);
        let same = b.binary(Binary::And, first, later);
        let follows = b.binary(Binary::Or, behind, same);
        if self.padded == self.rows.width {
            return follows;
        }
        let width = b.constant(DType::I32, Scalar::Int(self.rows.width as i64));
        let (x_fill, y_fill) = (b.binary(Binary::Le, width, x.1), b.binary(Binary::Le, width, y.1));
        let fill = b.binary(Binary::Or, x_fill, y_fill);
        b.select(fill, later, follows)
    }

    /// Orders two items as the network requires at `index` of the row while it merges runs of `size`.
    fn ordered(&self, b: &mut Builder, x: Item, y: Item, index: &Index, size: usize) -> (Item, Item) {
        let mut swap = self.follows(b, x, y);
        let run = index.quotient(size as i64, b.ranges()).remainder(2, b.ranges());
        if run.as_constant() != Some(0) {
            let run = b.number(&run);
            let zero = b.constant(b.type_of(run).dtype, 0i32);
            let down = b.binary(Binary::Ne, run, zero);
            swap = b.binary(Binary::Xor, swap, down);
        }
        let pick = |b: &mut Builder, x: Item, y: Item| (b.select(swap, y.0, x.0), b.select(swap, y.1, x.1));
        (pick(b, x, y), pick(b, y, x))
    }

    /// Each group processes a tile in shared memory: with `size` 2 it sorts the tile, otherwise it finishes merging
    /// runs of `size`. Without `held`, the tile is the whole row.
    fn tiles(&self, held: Option<(Source, Source)>, size: usize, target: &Target, lowered: &mut Lowered) {
        let Rows { dtype, count, width, .. } = self.rows;
        let (padded, tile) = (self.padded, self.tile);
        let (first, last) = (size == 2, size == padded || held.is_none());
        let mut work = Work::new(if first { "sort_tiles" } else { "merge_tiles" });
        let input = first.then(|| match self.operand {
            Some(operand) => work.operand(operand, self.keys),
            None => work.buffer(dtype, count * width, self.keys, false),
        });
        let held = held.filter(|_| !(first && last)).map(|(keys, positions)| {
            let length = count * padded;
            (work.buffer(dtype, length, keys, true), work.buffer(DType::I32, length, positions, true))
        });
        let output = last.then(|| {
            let positions = work.buffer(self.positions.1, count * width, self.positions.0, true);
            (positions, self.sorted.map(|keys| work.buffer(dtype, count * width, keys, true)))
        });
        let tiles = padded / tile;
        let shared = (work.b.shared(dtype, tile), work.b.shared(DType::I32, tile));
        access::launch(&mut work.b, &target.limits, count * tiles, [1, tile / 2], |b, group, _, member| {
            let row = group.quotient(tiles as i64, b.ranges());
            let start = group.remainder(tiles as i64, b.ranges()).scale(tile as i64);
            let halves = [member.clone(), member.shift(tile as i64 / 2)];
            for half in &halves {
                let index = start.add(half);
                let item = match (input, held) {
                    (Some(input), _) => self.read(b, input, &row, &index),
                    (None, Some(held)) => {
                        let at = row.scale(padded as i64).add(&index);
                        (b.load(held.0.array, &at), b.load(held.1.array, &at))
                    }
                    (None, None) => continue,
                };
                b.store(shared.0, half, item.0);
                b.store(shared.1, half, item.1);
            }
            b.barrier();
            let mut run = size;
            while run <= tile.max(size) {
                let mut distance = (run / 2).min(tile / 2);
                while distance > 0 {
                    self.stage(b, shared, member, &start, run, distance);
                    b.barrier();
                    distance /= 2;
                }
                run *= 2;
            }
            for half in &halves {
                let index = start.add(half);
                let item = (b.load(shared.0, half), b.load(shared.1, half));
                if let Some((positions, keys)) = output {
                    let at = row.scale(width as i64).add(&index);
                    let inside = Mask::within(&index, 0, width as i64, b.ranges());
                    let position = b.cast(self.positions.1, item.1);
                    b.store_where(positions.array, &at, inside.clone(), position);
                    if let Some(keys) = keys {
                        b.store_where(keys.array, &at, inside, item.0);
                    }
                } else if let Some(held) = held {
                    let at = row.scale(padded as i64).add(&index);
                    b.store(held.0.array, &at, item.0);
                    b.store(held.1.array, &at, item.1);
                }
            }
        });
        work.finish(lowered);
    }

    /// Item `index` of a row of the input; padding beyond its end.
    fn read(&self, b: &mut Builder, input: Buffer, row: &Index, index: &Index) -> Item {
        let width = self.rows.width as i64;
        let inside = Mask::within(index, 0, width, b.ranges());
        let at = match self.operand {
            Some(operand) => {
                let shape = &operand.layout.shape;
                let mut at = Coordinates::from_elem(Index::default(), shape.len());
                if let Some((last, outer)) = at.split_last_mut() {
                    unflatten(&shape[..outer.len()], row, b.ranges(), outer);
                    *last = index.clone();
                }
                flat(&at, &operand.layout.strides, 0)
            }
            None => row.scale(width).add(index),
        };
        let access = input.access(b, &at, inside.clone(), &inside, 1);
        let mut key = b.load_access(access, Scalar::Int(0), 1);
        if b.type_of(key).dtype == DType::Bool {
            key = b.cast(self.rows.dtype, key);
        }
        let position = b.bind(Type::scalar(DType::I32), KernelOp::Index(index.clone()));
        (key, position)
    }

    /// One stage of the network within a tile.
    fn stage(
        &self,
        b: &mut Builder,
        shared: (ArrayId, ArrayId),
        member: &Index,
        start: &Index,
        size: usize,
        distance: usize,
    ) {
        let step = distance as i64;
        let low = member.quotient(step, b.ranges()).scale(2 * step).add(&member.remainder(step, b.ranges()));
        let high = low.shift(step);
        let load = |b: &mut Builder, at: &Index| (b.load(shared.0, at), b.load(shared.1, at));
        let (x, y) = (load(b, &low), load(b, &high));
        let (x, y) = self.ordered(b, x, y, &start.add(&low), size);
        for (at, item) in [(&low, x), (&high, y)] {
            b.store(shared.0, at, item.0);
            b.store(shared.1, at, item.1);
        }
    }

    /// One stage of the network whose partners are in different tiles.
    fn exchange(
        &self,
        held: (Source, Source),
        size: usize,
        distance: usize,
        target: &Target,
        lowered: &mut Lowered,
    ) {
        let length = self.rows.count * self.padded;
        let mut work = Work::new("sort_exchange");
        let keys = work.buffer(self.rows.dtype, length, held.0, true).array;
        let positions = work.buffer(DType::I32, length, held.1, true).array;
        each(&mut work, target, length / 2, |b, number| {
            let step = distance as i64;
            let low =
                number.quotient(step, b.ranges()).scale(2 * step).add(&number.remainder(step, b.ranges()));
            let index = low.remainder(self.padded as i64, b.ranges());
            let high = low.shift(step);
            let load = |b: &mut Builder, at: &Index| (b.load(keys, at), b.load(positions, at));
            let (x, y) = (load(b, &low), load(b, &high));
            let (x, y) = self.ordered(b, x, y, &index, size);
            for (at, item) in [(&low, x), (&high, y)] {
                b.store(keys, at, item.0);
                b.store(positions, at, item.1);
            }
        });
        work.finish(lowered);
    }
}
