//! Contraction tiles of 16-bit floats, or of `float32` that may be rounded, by products of panels: the matrix units
//! read both factors from shared memory, while the next tiles are copied there. Each team of subgroups computes some
//! rows.

use super::{
    Target,
    contraction::{Contraction, Shape, Tile, Unit},
    load::{self, Layout, Loaders, along_depth},
    split::FEW_PARTS,
    tile::quad_at,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index,
        build::Builder,
        loops::{
            ArrayId, AxisKind, BulkCopy, Factor, Fragment, Matrix, MatrixShape, MatrixUnit, MemoryAccess,
            Panel, Role,
        },
    },
    op::Binary,
};

/// Candidate shapes, those for large results first: rows and columns of a tile, and the columns of a team.
const SHAPES: [Shape; 7] = [
    of_teams(128, 256, 256),
    of_teams(192, 128, 128),
    of_teams(128, 128, 128),
    of_teams(256, 64, 64),
    of_teams(128, 64, 64),
    of_teams(64, 256, 128),
    of_teams(64, 192, 64),
];

/// The depth is that of factors of 16 bits.
const fn of_teams(rows: usize, columns: usize, of_team: usize) -> Shape {
    Shape { rows, columns, depth: Panel::WIDTH, part: [Panel::ROWS, of_team], unit: Unit::Team }
}

/// Columns of a fragment of the sums: so many are passed on at a time. Fewer are slower.
const COLUMNS: usize = 32;
/// Elements between rows of the array that passes them on, chosen to spread over the memory banks.
const PITCH: usize = COLUMNS + 8;
/// Products that are under way while the next one is prepared.
const PENDING: usize = 1;
/// The number of tiles in shared memory at once that pays off, the same if a processor runs several groups, and the
/// most that are used.
const LEAST_STAGES: usize = 4;
const LEAST_STAGES_OF_SEVERAL: usize = 3;
const MOST_STAGES: usize = 8;
/// The registers of a processor, the number of invocations of which they are given to multiples, and those that an
/// invocation needs besides its sums.
const REGISTERS: usize = 1 << 16;
const GRANULARITY: usize = 128;
const OTHERS: usize = 40;
/// The registers of an invocation of two teams if those that make copies give theirs.
const WITH_MORE: usize = 232;
/// The most columns of sums that are added by the invocations at a time.
const ADDED: usize = 128;
/// The greatest group of which a processor's registers hold two, and the registers of its sums.
const OF_TWO: (usize, usize) = (256, 64);
/// Bytes of shared memory that barriers take, and that the device takes for each group of several on a processor.
const BARRIERS: usize = 256;
const OF_A_GROUP: usize = 1024;

/// The registers in which an invocation holds sums: those of some steps too, if they are added to the others.
fn sum_registers(contraction: &Contraction, shape: Shape) -> usize {
    let of = |columns: usize| shape.part[0] * columns / Panel::INVOCATIONS;
    let added = contraction.summed_steps.map_or(0, |_| of(shape.part[1].min(ADDED)));
    of(shape.part[1]) + added
}

/// Whether invocations need registers of those that make copies.
fn takes_registers(contraction: &Contraction, shape: Shape, target: &Target) -> bool {
    let block = contraction.block(shape, target) + BulkCopy::INVOCATIONS;
    (sum_registers(contraction, shape) + OTHERS) * block.next_multiple_of(GRANULARITY) > REGISTERS
}

/// Whether there are enough registers, with those.
fn has_registers(contraction: &Contraction, shape: Shape, target: &Target) -> bool {
    let with_more = contraction.block(shape, target) == BulkCopy::INVOCATIONS_THAT_TAKE[0]
        && sum_registers(contraction, shape) + OTHERS <= WITH_MORE
        && load::is_bulk(contraction, shape, target);
    !takes_registers(contraction, shape, target) || with_more
}

/// How the groups of a product of panels run.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// The groups that a processor runs at once. While one stores its sums, another one multiplies.
    pub(super) residents: usize,
    /// The number of tiles of each factor in shared memory at once: as many as fit. Those of small tiles are multiplied
    /// in less time than it takes to copy one.
    stages: usize,
    /// The type of the sums on their way to other invocations.
    passed: DType,
}

impl Setup {
    /// For this shape and this number of tiles, of all parts.
    pub(super) fn of(contraction: &Contraction, shape: Shape, tiles: usize, target: &Target) -> Setup {
        let sum = contraction.fused.instructions[contraction.sum as usize].dtype;
        // The sums of parts are added before they are rounded.
        let is_rounded = sum.is_float() && sum.size() == 2 && !contraction.is_part();
        let passed = if is_rounded { sum } else { contraction.held };
        let teams = shape.rows / shape.part[0] * (shape.columns / shape.part[1]);
        let through = teams * Panel::ROWS * PITCH * passed.size();
        let stages = |shared: usize| {
            let tile = (shape.rows + shape.columns) * 2 * Panel::WIDTH;
            (shared.saturating_sub(through + BARRIERS) / tile).min(MOST_STAGES)
        };
        let alone = target.limits.shared_bytes;
        let of_two = ((alone + OF_A_GROUP) / 2).saturating_sub(OF_A_GROUP);
        let (block, registers) = OF_TWO;
        let two = contraction.block(shape, target) <= block
            && sum_registers(contraction, shape) <= registers
            && !contraction.is_part()
            && tiles > target.processors
            && stages(of_two) >= LEAST_STAGES_OF_SEVERAL
            && load::is_bulk(contraction, shape, target);
        match two {
            true => Setup { residents: 2, stages: stages(of_two), passed },
            false => Setup { residents: 1, stages: stages(alone), passed },
        }
    }
}

/// The shape of a product of panels, if the device has them and it pays off.
pub(super) fn shape(contraction: &Contraction, target: &Target) -> Option<Shape> {
    let [left, right] = contraction.dtypes();
    let limits = &target.limits;
    let block = |shape: &Shape| contraction.block(*shape, target) + BulkCopy::INVOCATIONS;
    let fits = |shape: &Shape| {
        let has = |unit: &MatrixUnit| {
            unit.multiplies_panels([left, right], contraction.held) && unit.shape.columns >= shape.part[1]
        };
        // Only bulk copies round, and only numbers of 16 bits need not be neighbours along the terms.
        let copied = left.size() == 2
            || [0, 1].iter().all(|&factor| along_depth(contraction, factor))
                && load::is_bulk(contraction, *shape, target);
        copied
            && limits.matrices.iter().any(has)
            && Setup::of(contraction, *shape, 1, target).stages >= LEAST_STAGES
            && block(shape) <= limits.block_size
            && has_registers(contraction, *shape, target)
    };
    let [rows, columns] = [contraction.extent(1), contraction.extent(2)];
    if rows < Panel::ROWS || columns < Panel::WIDTH {
        return None;
    }
    let depth = Panel::width(left);
    let usable = SHAPES.into_iter().map(|shape| Shape { depth, ..shape }).filter(fits);
    let timed = usable.map(|shape| {
        let parts = parts(contraction, shape, target);
        (shape, time(contraction, shape, parts, target))
    });
    timed.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(shape, _)| shape)
}

/// The parts in which to sum the terms: more parts keep more processors busy if there are few tiles, but their sums
/// take time to store and to add.
pub(super) fn parts(contraction: &Contraction, shape: Shape, target: &Target) -> usize {
    let most = match contraction.tiles(shape) >= target.processors {
        true => 1,
        false => {
            let steps = contraction.extent(3).div_ceil(shape.depth);
            steps.clamp(1, FEW_PARTS.max(target.processors / contraction.tiles(shape).max(1)))
        }
    };
    let time = |parts: &usize| time(contraction, shape, *parts, target);
    (1..=most).min_by(|a, b| time(a).total_cmp(&time(b))).unwrap_or(1)
}

/// An estimate of the time of a contraction in some parts, in steps of the largest tile: 0.8 microseconds on an H200.
fn time(contraction: &Contraction, shape: Shape, parts: usize, target: &Target) -> f64 {
    let (tiles, steps) = (contraction.tiles(shape), contraction.extent(3).div_ceil(shape.depth));
    let residents = match parts {
        1 => Setup::of(contraction, shape, tiles, target).residents,
        _ => 1,
    };
    let rounds = (tiles * parts).div_ceil(residents * target.processors.max(1)) as f64;
    let sums = shape.rows * shape.columns;
    let area = sums as f64 / (128.0 * 256.0);
    // What is copied to shared memory matters more than what is multiplied. An H200 reached 690 TFLOP/s with 128 x 256
    // sums, 610 with 192 x 128, 575 with 128 x 128.
    let step = 0.4 * area + 0.6 * (shape.rows + shape.columns) as f64 / (128.0 + 256.0);
    let multiply = steps.div_ceil(parts) as f64 * step;
    let stored = if parts > 1 { DType::F32.size() } else { contraction.epilogue_bytes() };
    let (begin, store) = (0.5, 1.15 * area * stored as f64);
    // The sums of parts are stored and added at 3.5 TB/s by a further launch.
    let add = (tiles * sums * 2 * DType::F32.size()) as f64 / 2.8e6;
    let more = if parts > 1 { 6.0 + add * parts as f64 } else { 0.0 };
    match residents {
        1 => rounds * (begin + store + multiply) + more,
        // While one group stores its sums, others multiply.
        _ => begin + rounds * (begin + residents as f64 * multiply.max(0.7 * store)) + store + more,
    }
}

/// Emits the statements of a group. Returns false if the factors cannot be copied to panels.
pub(super) fn lower(b: &mut Builder, tile: &Tile) -> bool {
    let Tile { contraction, shape, ref invocation, .. } = *tile;
    let width = tile.target.limits.subgroup.unwrap_or(1);
    let dtypes = contraction.dtypes();
    let along = [0, 1].map(|factor| along_depth(contraction, factor));
    let extents = [shape.rows, shape.columns];
    let layouts = [0, 1].map(|factor| {
        let (outer, depth) = if along[factor] { (shape.depth, 1) } else { (1, shape.depth) };
        Layout { dtype: dtypes[factor], outer, depth, size: extents[factor] * shape.depth, panels: true }
    });
    let Some(Setup { stages, passed, .. }) = tile.setup else { return false };
    let loaders = Loaders::new(b, tile, layouts, stages);
    if !loaders.are_copied() {
        return false;
    }
    let arrays = loaders.arrays();
    let [down, across] = [shape.rows / Panel::ROWS, shape.columns / shape.part[1]];
    let through = b.shared(passed, down * across * Panel::ROWS * PITCH);
    let count = shape.part[1] / COLUMNS;
    let fragment = Fragment {
        role: Role::Accumulator,
        shape: MatrixShape { rows: Panel::ROWS, columns: COLUMNS, depth: shape.depth / 4 },
        dtype: contraction.held,
        length: count,
    };
    let sums = b.fragments(fragment.clone());
    let all = sums(Index::default()).fragment;
    // The sums of some steps, if invocations add them.
    let halves = if contraction.summed_steps.is_some() { shape.part[1].div_ceil(ADDED) } else { 1 };
    let of_steps = contraction.summed_steps.map(|_| {
        b.fragments(Fragment { length: count / halves, ..fragment.clone() })(Index::default()).fragment
    });
    // Of two halves, each is added before the other is multiplied.
    let together = if halves > 1 { 1 } else { contraction.summed_steps.unwrap_or(1) };
    let pending = if of_steps.is_some() && together == 1 { 0 } else { PENDING };
    if takes_registers(contraction, shape, tile.target) {
        b.give_registers();
    }
    let team = invocation.quotient((width * Panel::SUBGROUPS) as i64, b.ranges());
    let row = team.remainder(down as i64, b.ranges()).scale(Panel::ROWS as i64);
    let column = team.quotient(down as i64, b.ranges()).scale(shape.part[1] as i64);
    let (fragments, j) = b.axis(count, AxisKind::Unroll);

    let steps = contraction.extent(3).div_ceil(shape.depth);
    // What is copied next takes the place of terms whose products are settled for all teams.
    let ahead = stages - 1 - pending;
    for turn in 0..ahead {
        let step = Index::constant(turn as i64);
        loaders.copy(b, &Index::default(), &step, &step);
    }
    let share = fragment.share() * count / halves;
    let add = |b: &mut Builder, half: usize| {
        let Some(of_steps) = of_steps else { return };
        b.over(share, AxisKind::Unroll, |b, at| {
            let to = at.shift((half * share) as i64);
            let (before, more) =
                (b.load(ArrayId::Fragment(all), &to), b.load(ArrayId::Fragment(of_steps), at));
            let sum = b.binary(Binary::Add, before, more);
            b.store(ArrayId::Fragment(all), &to, sum);
        });
    };
    let multiply = |b: &mut Builder, round: &Index, step: &Index, begins: bool| {
        let turn = round.scale(steps as i64).add(step);
        loaders.turn(b, ahead as u8 - 1);
        let slot = turn.remainder(stages as i64, b.ranges());
        let panel = |factor: usize, first: &Index| {
            let index = slot.scale(layouts[factor].size as i64).add(&first.scale(shape.depth as i64));
            Panel { access: MemoryAccess::at(arrays[factor], &index), along_terms: along[factor] }
        };
        for half in 0..halves {
            let column = column.shift((half * shape.part[1] / halves) as i64);
            let (left, right) = (Factor::Panel(panel(0, &row)), panel(1, &column));
            b.matrix(Matrix::Product { sums: of_steps.unwrap_or(all), left, right, begins });
            if half + 1 == halves {
                let slot = turn.shift(ahead as i64).remainder(stages as i64, b.ranges());
                loaders.copy(b, round, &step.shift(ahead as i64), &slot);
            }
            b.matrix(Matrix::Settle(pending as u8));
            if half + 1 < halves {
                add(b, half);
            }
        }
    };
    // Some steps from this one on.
    let several = |b: &mut Builder, round: &Index, first: &Index, steps: usize| {
        for step in 0..steps {
            multiply(b, round, &first.shift(step as i64), step == 0 && of_steps.is_some());
        }
        if of_steps.is_some() && pending > 0 {
            b.matrix(Matrix::Settle(0));
        }
        add(b, halves - 1);
    };
    let finish = |b: &mut Builder, tile: &Tile| {
        // Only the device knows how elements are distributed over invocations, so they pass through shared memory,
        // within each subgroup.
        let lane = invocation.remainder(width as i64, b.ranges());
        let share = Panel::ROWS / Panel::SUBGROUPS;
        let subgroup = invocation.quotient(width as i64, b.ranges());
        let top = subgroup.remainder(Panel::SUBGROUPS as i64, b.ranges()).scale(share as i64);
        let first = team.scale((Panel::ROWS * PITCH) as i64);
        b.repeat(fragments, |b| {
            let access = MemoryAccess::at(through, &first);
            b.matrix(Matrix::Store { tile: sums(j.clone()), access, stride: PITCH });
            b.over(share * COLUMNS / 4 / width, AxisKind::Unroll, |b, turn| {
                let quad = turn.scale(width as i64).add(&lane);
                let down = top.add(&quad.quotient(COLUMNS as i64 / 4, b.ranges()));
                let across = quad.remainder(COLUMNS as i64 / 4, b.ranges()).scale(4);
                let element = first.add(&down.scale(PITCH as i64)).add(&across);
                let values = quad_at(b, tile, through, passed, &element);
                let values: Vec<_> = values.into_iter().map(|v| b.cast(contraction.held, v)).collect();
                let row = tile.row.add(&row).add(&down);
                let column = tile.column.add(&column).add(&j.scale(COLUMNS as i64)).add(&across);
                tile.finish_quad(b, &row, &column, &values);
            });
        });
    };
    let tiles = contraction.tiles(shape);
    b.over(tiles.div_ceil(tile.groups), AxisKind::Serial, |b, round| {
        let number = tile.group.add(&round.scale(tile.groups as i64));
        b.when(contraction.holds_tile(shape, &number, b.ranges()), |b| {
            b.repeat(fragments, |b| {
                b.matrix(Matrix::Fill(sums(j.clone()), Scalar::Float(0.0).cast(contraction.held)));
            });
            // The last steps copy terms of the next tile. In a loop without them, what belongs to this tile stays the
            // same.
            let own = steps.saturating_sub(ahead);
            for (first, count) in [(0, own), (own, steps - own)] {
                let whole = count / together;
                if whole > 0 {
                    b.over(whole, AxisKind::Reduce, |b, turn| {
                        several(b, round, &turn.scale(together as i64).shift(first as i64), together);
                    });
                }
                let rest = Index::constant((first + whole * together) as i64);
                if count % together > 0 {
                    several(b, round, &rest, count % together);
                }
            }
            b.matrix(Matrix::Settle(0));
            let [batch, row, column] = contraction.place(shape, &number, b.ranges());
            finish(b, &Tile { batch, row, column, ..tile.clone() });
        });
    });
    true
}
