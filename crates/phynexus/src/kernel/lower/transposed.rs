//! Kernels without columns that store along one row and load along another, such as transposed copies: a group passes
//! the elements of a tile through shared memory, so that its invocations access neighbours in both directions.

use super::{
    Launch, Target,
    access::{self, Buffer, Pattern, pattern, stride},
    elementwise::Task,
    expression::{Lanes, Scope},
};
use crate::{
    DType,
    hash::FastMap,
    kernel::{
        Index, Mask,
        build::Builder,
        fused::{FusedOp, Fusion, InstructionId},
        loops::{ArrayId, AxisKind},
        view::{Coordinates, unflatten},
    },
};

/// Invocations per group.
const BLOCK: usize = 256;
/// Elements of a tile along both rows, if shared memory holds so many.
const SIDES: [usize; 2] = [64, 32];
/// Elements of a tile's row for each invocation, side by side if they can be accessed together.
const LANES: usize = 4;
/// The least extent of both rows.
const LEAST: usize = 32;
/// Bytes of shared memory with which a processor still runs several groups.
const SHARED: usize = 48 << 10;

/// A specification that is computed in tiles.
pub(super) struct Transposed<'a> {
    fused: &'a Fusion,
    /// The row along which stores have neighbours, and the one along which the turned loads have.
    stored: usize,
    loaded: usize,
    turned: Vec<InstructionId>,
    side: usize,
    /// Bytes of the widest access.
    vector_bytes: usize,
}

/// Elements of an invocation that are accessed together, by their places in a tile's row.
type Places = Vec<Vec<Index>>;
/// What is done with the elements at these points, where they exist, and their places in shared memory.
type Body<'a> = dyn Fn(&mut Builder, Vec<Coordinates>, Mask, &[Index]) + 'a;

impl<'a> Transposed<'a> {
    /// The tiles for a specification, if they pay off.
    pub(super) fn of(fused: &'a Fusion, target: &Target) -> Option<Transposed<'a>> {
        let limits = &target.limits;
        let rows = || (0..fused.rows.len()).filter(|&row| fused.rows[row] >= LEAST);
        let stored = rows().find(|&row| fused.stores.iter().all(|store| stride(&store.index, row) == 1))?;
        let turned_along = |row: usize| -> Vec<InstructionId> {
            let is_turned = |value: &InstructionId| match &fused.instructions[*value as usize].operation {
                FusedOp::Load { index, .. } => stride(index, row) == 1 && stride(index, stored).abs() > 1,
                _ => false,
            };
            (0..fused.instructions.len() as InstructionId).filter(is_turned).collect()
        };
        // WGSL has no shared arrays of smaller elements.
        const LEAST_BYTES: usize = 4;
        let bytes = |turned: &[InstructionId]| -> usize {
            turned.iter().map(|&value| fused.instructions[value as usize].dtype.size().max(LEAST_BYTES)).sum()
        };
        let along = rows().filter(|&row| row != stored).map(|row| (row, turned_along(row)));
        let (loaded, turned) = along.max_by_key(|(_, turned)| bytes(turned))?;
        let shared = limits.shared_bytes.min(SHARED);
        let side = SIDES.into_iter().find(|side| side * (side + 1) * bytes(&turned) <= shared)?;
        // What is replaced may be read at the same place only.
        let is_replaced = fused.stores.iter().any(|store| store.replaces.is_some());
        let is_large = fused.row_count() >= target.processors * side * side;
        let [elements, of_tiles] = [1, side].map(|side| -> usize {
            [stored, loaded].map(|row| fused.rows[row].div_ceil(side) * side).iter().product()
        });
        let is_full = 2 * elements >= of_tiles;
        let fits = limits.block_size >= BLOCK && !turned.is_empty() && !is_replaced && is_large && is_full;
        fits.then_some(Transposed { fused, stored, loaded, turned, side, vector_bytes: target.vector_bytes })
    }

    fn dtype(&self, value: InstructionId) -> DType {
        self.fused.instructions[value as usize].dtype
    }

    fn tiles(&self, row: usize) -> usize {
        self.fused.rows[row].div_ceil(self.side)
    }

    /// The other rows.
    fn others(&self) -> Vec<usize> {
        (0..self.fused.rows.len()).filter(|row| ![self.stored, self.loaded].contains(row)).collect()
    }

    /// The kernel.
    pub(super) fn lower(&self, task: &Task, target: &Target) -> Launch {
        let Transposed { fused, stored, loaded, side, .. } = *self;
        let mut b = Builder::new("elementwise");
        let (buffers, arguments) = access::declare(&mut b, fused, &task.sources);
        let pitch = side as i64 + 1;
        let arrays: Vec<ArrayId> =
            self.turned.iter().map(|&value| b.shared(self.dtype(value), side * (side + 1))).collect();
        let others = self.others();
        let extents: Vec<usize> = others.iter().map(|&row| fused.rows[row]).collect();
        let (across, down) = (self.tiles(stored) as i64, self.tiles(loaded) as i64);
        let groups = extents.iter().product::<usize>() * (across * down) as usize;
        let turns = side / (BLOCK / (side / LANES));
        let block = [BLOCK / (side / LANES), side / LANES];
        access::launch(&mut b, &target.limits, groups, block, |b, group, y, x| {
            let ranges = b.ranges().clone();
            let tile = group.remainder(across * down, &ranges);
            let first = |tile: Index| tile.scale(side as i64);
            let first_stored = first(tile.remainder(across, &ranges));
            let first_loaded = first(tile.quotient(across, &ranges));
            let mut fixed = Coordinates::from_elem(Index::default(), fused.rows.len());
            let mut of_others = Coordinates::from_elem(Index::default(), others.len());
            unflatten(&extents, &group.quotient(across * down, &ranges), &ranges, &mut of_others);
            others.iter().zip(of_others).for_each(|(&row, at)| fixed[row] = at);
            // The point of an element of the tile.
            let point = |of_stored: &Index, of_loaded: &Index| {
                let mut point = fixed.clone();
                point[stored] = first_stored.add(of_stored);
                point[loaded] = first_loaded.add(of_loaded);
                point
            };
            let each = |b: &mut Builder, is_load: bool, body: &Body<'_>| {
                b.over(turns, AxisKind::Unroll, |b, turn| {
                    let other = turn.scale(block[0] as i64).add(y);
                    let pair = |along: &Index| match is_load {
                        true => [other.clone(), along.clone()],
                        false => [along.clone(), other.clone()],
                    };
                    let points_of = |along: &[Index]| -> Vec<Coordinates> {
                        along.iter().map(|along| point(&pair(along)[0], &pair(along)[1])).collect()
                    };
                    let places = self.places(b, x, is_load, &|along| points_of(along));
                    for along in places {
                        let points = points_of(&along);
                        let within =
                            |row: usize| Mask::within(&points[0][row], 0, fused.rows[row] as i64, b.ranges());
                        let exists = within(stored).and(&within(loaded));
                        let shared: Vec<Index> = along
                            .iter()
                            .map(|along| pair(along)[0].scale(pitch).add(&pair(along)[1]))
                            .collect();
                        b.when(exists.clone(), |b| body(b, points, exists, &shared));
                    }
                });
            };
            each(b, true, &|b, points, holds, shared| {
                let mut scope = self.scope(&buffers, points, holds);
                for (&value, &array) in self.turned.iter().zip(&arrays) {
                    let loaded = scope.value(b, value);
                    for (lane, place) in shared.iter().enumerate() {
                        let element = b.cast(self.dtype(value), loaded[lane.min(loaded.len() - 1)]);
                        b.store(array, place, element);
                    }
                }
            });
            b.barrier();
            each(b, false, &|b, points, holds, shared| {
                let mut scope = self.scope(&buffers, points, holds);
                for (&value, &array) in self.turned.iter().zip(&arrays) {
                    let lanes: Lanes = shared
                        .iter()
                        .map(|place| {
                            let element = b.load(array, place);
                            b.cast(self.dtype(value).compute(), element)
                        })
                        .collect();
                    scope.known.insert(value, lanes);
                }
                scope.store_all(b, &fused.stores.iter().collect::<Vec<_>>());
            });
        });
        Launch { kernel: b.finish(), arguments }
    }

    fn scope<'b>(&'b self, buffers: &'b [Buffer], points: Vec<Coordinates>, holds: Mask) -> Scope<'b> {
        let guard = Mask::default();
        Scope { fused: self.fused, buffers, points, holds, guard, known: FastMap::default(), kept: None }
    }

    /// The elements of the invocation: side by side if its turned loads, or stores, can then be vectors, and exist
    /// together; otherwise one by one, so that neighbours belong to neighbouring invocations.
    fn places(
        &self,
        b: &Builder,
        x: &Index,
        is_load: bool,
        points: &dyn Fn(&[Index]) -> Vec<Coordinates>,
    ) -> Places {
        let ranges = b.ranges();
        let beside: Vec<Index> = (0..LANES as i64).map(|lane| x.scale(LANES as i64).shift(lane)).collect();
        let at = points(&beside);
        let is_vector = |parameter: u16, index: &Index, mask: Option<&Mask>| {
            let bytes = LANES * self.fused.parameters[usize::from(parameter)].dtype.size();
            let access = |at: &Coordinates| {
                let mask = mask.map(|mask| mask.substitute(at, ranges)).unwrap_or_default();
                (index.substitute(at, ranges), mask)
            };
            let pattern = pattern(&at.iter().map(access).collect::<Vec<_>>());
            pattern == Pattern::Vector && bytes <= self.vector_bytes
        };
        let are_vectors = match is_load {
            true => {
                self.turned.iter().all(|&value| match &self.fused.instructions[value as usize].operation {
                    FusedOp::Load { parameter, index, mask, .. } => {
                        is_vector(*parameter, index, mask.as_ref())
                    }
                    _ => false,
                })
            }
            false => self.fused.stores.iter().all(|store| is_vector(store.parameter, &store.index, None)),
        };
        let row = if is_load { self.loaded } else { self.stored };
        if are_vectors && self.fused.rows[row].is_multiple_of(LANES) {
            return vec![beside];
        }
        let step = (self.side / LANES) as i64;
        (0..LANES as i64).map(|turn| vec![x.shift(turn * step)]).collect()
    }
}
