//! Kernels with columns. A team of invocations shares a row, and a group has one or several teams. Each reduction that
//! other instructions depend on is a loop over the columns. Values that later loops need again are kept in registers if
//! they fit. Stores come in the last of these loops, or in one more if they need its results: memory may be both read and
//! written.
//!
//! # The order of sums
//!
//! The columns of a row are numbered in row-major order. Their number determines the number of partial sums, a power of
//! two ([`partial_sums`]). Column `c` is added to partial sum `c` modulo their number, in ascending order. Neighbouring
//! partial sums are added in pairs, then neighbouring pairs, and so on. A sum therefore does not depend on fusion, on
//! the layout of its operands, or on the number of rows. The assignment of partial sums to invocations is free, because
//! an aligned run of them is a subtree.
//!
//! | bits of a partial sum's number, from the lowest | rows' columns are neighbours | rows are neighbours |
//! |---|---|---|
//! | an invocation's vector | `lanes` | |
//! | neighbouring members of a team | those of a subgroup | |
//! | one after another ([`Worker::fold`]) | `leaves` | `leaves` |
//! | members of a team | its subgroups | all |
//! | groups (`split`) | parts | parts |

mod passes;

use self::passes::{Pass, Passes, keep};
use super::{
    Launch, Source, Target,
    access::{self, Buffer},
    expression::{Kept, Scope, convert},
    reduce::{Combiner, Team, accumulator},
};
use crate::{
    hash::{FastMap, FastSet},
    kernel::{
        Index, Mask, Ranges,
        build::Builder,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Store},
        index::Atom,
        loops::{ArrayId, AxisKind, ValueId},
        view::{Coordinates, unflatten},
    },
    op::Combine,
};

/// Invocations per group of several teams.
const BLOCK: usize = 256;
/// Maximum number of columns per partial sum, which lets an invocation's loads overlap.
const COLUMNS: usize = 4;
/// Minimum number of partial sums, if there are as many columns: what neighbouring invocations of a subgroup load at
/// once.
const NEIGHBOURS: usize = 32;
/// Up to this many steps of loops are unrolled, so that their loads overlap.
const UNROLLED: usize = 8;
/// A row of at most this many columns is computed by a single invocation, if there are enough rows for all processors.
const SHORT: usize = 16;
/// Bytes that each of several neighbouring invocations should load: with half as many, sums of `bfloat16` take 15 to 20
/// % longer on an H200.
const WORD: usize = 8;
/// Bytes that memory transfers at once. Neighbouring invocations should load as many.
const SECTOR: usize = 32;

/// The assignment of work to invocations.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    /// Neighbouring columns per invocation; or neighbouring rows if `across`.
    lanes: usize,
    /// Invocations per team; a power of two.
    team: usize,
    /// Teams per group; each has one row, or one per lane.
    rows: usize,
    /// Whether neighbouring invocations have neighbouring rows rather than columns.
    across: bool,
}

/// The number of partial sums of a row with `columns` columns.
pub(super) fn partial_sums(columns: usize) -> usize {
    let power = usize::next_power_of_two;
    power(columns.div_ceil(COLUMNS)).max(power(columns).min(NEIGHBOURS))
}

/// The kernel of a specification with columns and at least one row, with `sums` partial sums per row.
pub(super) fn lower(fused: &Fusion, sources: &[Source], sums: usize, target: &Target) -> Launch {
    let geometry = geometry(fused, sums, target);
    let Geometry { lanes, team, rows, across } = geometry;
    let block = team * rows;
    let [rows_at_once, columns_at_once] = if across { [lanes, 1] } else { [1, lanes] };
    let vectors = fused.column_count() / columns_at_once;
    let mut b = Builder::new("rows");
    let (buffers, arguments) = access::declare(&mut b, fused, sources);
    let groups = (fused.row_count() / rows_at_once).div_ceil(rows);
    // A single team lies along x: some drivers form subgroups of neighbours along x only.
    let down = across && rows > 1;
    let shape = if down { [team, rows] } else { [rows, team] };
    access::launch(&mut b, &target.limits, groups, shape, |b, group, y, x| {
        let (row, member) = if down { (x, y.clone()) } else { (y, x.clone()) };
        let row = group.scale(rows as i64).add(row);
        let invocation = y.scale(shape[1] as i64).add(x);
        let stride = if down { rows } else { 1 };
        let combiner = Combiner::new(Team { size: team, stride, block }, &target.limits);
        let at_once = sums / columns_at_once;
        let (leaves, steps) = (at_once / team, vectors.div_ceil(at_once).max(1));
        let passes = Passes::of(fused);
        let kept = keep(b, fused, &passes, leaves * steps * lanes);
        // Loops that keep no registers have no condition, except for a last step in which some invocations have no column,
        // or in which only some of what is loaded exists.
        let is_masked =
            |i: &Instruction| matches!(&i.operation, FusedOp::Load { mask: Some(_), .. } if i.per_column);
        let (is_kept, whole) = match kept.registers.is_empty() {
            true if fused.instructions.iter().any(is_masked) => (false, steps - 1),
            true => (false, vectors / at_once),
            false => (true, steps),
        };
        let kind = |iterations: usize, kind| match is_kept || iterations <= UNROLLED {
            true => AxisKind::Unroll,
            false => kind,
        };
        let bit = |bit| b.axis(2, kind(whole.max(1) << (bit + 1), AxisKind::Serial));
        let bits: Vec<(u8, Index)> = (0..leaves.ilog2()).map(bit).collect();
        let leaf = bits.iter().rev().fold(Index::default(), |leaf, (_, bit)| leaf.scale(2).add(bit));
        let mut loops = Vec::with_capacity(2);
        if whole > 0 {
            let (axis, i) = b.axis(whole, kind(whole, AxisKind::Reduce));
            loops.push((Some(axis), i));
        }
        if whole < steps {
            loops.push((None, Index::constant(whole as i64)));
        }
        let ranges = b.ranges().clone();
        let near = combiner.near() as i64;
        let vector = match leaves {
            1 => member.clone(),
            _ => {
                let run = member.quotient(near, &ranges).scale(leaves as i64).add(&leaf);
                run.scale(near).add(&member.remainder(near, &ranges))
            }
        };
        let inside = Mask::within(&row, 0, (fused.row_count() / rows_at_once) as i64, &ranges);
        let steps = loops.into_iter().map(|(axis, i)| {
            let vector = i.scale(at_once as i64).add(&vector);
            let point = |lane: usize| {
                let row = row.scale(rows_at_once as i64).shift((lane % rows_at_once) as i64);
                let column = vector.scale(columns_at_once as i64).shift((lane % columns_at_once) as i64);
                coordinates(fused, &row, &column, &ranges)
            };
            Steps {
                axis,
                points: (0..lanes).map(point).collect(),
                first: leaf.scale(steps as i64).add(&i).scale(lanes as i64),
                within: inside.and(&Mask::within(&vector, 0, vectors as i64, &ranges)),
            }
        });
        let steps: Vec<Steps> = steps.collect();
        let mut worker = Worker {
            fused,
            buffers: &buffers,
            steps,
            rows: rows_at_once,
            bits: bits.into_iter().map(|(bit, _)| bit).collect(),
            inside,
            invocation,
            member,
            combiner,
            known: FastMap::default(),
            kept,
        };
        for pass in &passes.reducing {
            worker.reduce(b, pass, vectors > 0);
        }
        worker.store(b, &passes.last, vectors > 0);
    });
    Launch { kernel: b.finish(), arguments }
}

/// The values of all ranges for a row and a column.
fn coordinates(fused: &Fusion, row: &Index, column: &Index, ranges: &Ranges) -> Coordinates {
    let mut at = Coordinates::from_elem(Index::default(), fused.rows.len() + fused.columns.len());
    let (rows, columns) = at.split_at_mut(fused.rows.len());
    unflatten(&fused.rows, row, ranges, rows);
    unflatten(&fused.columns, column, ranges, columns);
    at
}

/// The number of neighbouring rows per invocation, if neighbouring invocations have neighbouring rows: as many as fill
/// a word.
pub(super) fn rows_at_once(fused: &Fusion, target: &Target) -> usize {
    let (rows, columns) = (fused.row_count(), fused.column_count());
    // Lavapipe (Mesa 22.3) gives wrong numbers for four rows of bytes.
    let most = if widest(fused) == 1 { 2 } else { WORD / widest(fused) };
    access::lanes(fused, target, |lanes| {
        let ranges = Ranges([rows / lanes, columns].into_iter().collect());
        let (row, column) = (Index::range(0, &ranges).scale(lanes as i64), Index::range(1, &ranges));
        let point = |lane: usize| coordinates(fused, &row.shift(lane as i64), &column, &ranges);
        let points = (0..lanes).map(point).collect();
        (lanes <= most && rows.is_multiple_of(lanes)).then_some((points, ranges))
    })
}

/// The size in bytes of the widest element that is loaded for each column, and that differs between neighbouring rows.
fn widest(fused: &Fusion) -> usize {
    let row = fused.rows.iter().rposition(|&extent| extent > 1).unwrap_or_default();
    let sizes = fused.instructions.iter().filter(|i| i.per_column).filter_map(|i| match &i.operation {
        FusedOp::Load { parameter, index, .. } => fused
            .parameters
            .get(usize::from(*parameter))
            .filter(|_| index.depends_on(row))
            .map(|p| p.dtype.size()),
        _ => None,
    });
    sizes.max().unwrap_or(WORD)
}

/// The number of neighbouring invocations that have neighbouring rows: fewer if otherwise some processors had no group.
pub(super) fn rows_of_group(fused: &Fusion, target: &Target) -> usize {
    let lanes = rows_at_once(fused, target);
    let teams = fused.row_count() / lanes;
    let narrowest = (SECTOR / (lanes * widest(fused))).max(1);
    let mut width = teams.next_power_of_two().min(32).min(1 << target.limits.block_size.max(1).ilog2());
    while width > narrowest && teams.div_ceil(width) < target.processors {
        width /= 2;
    }
    width
}

/// Chooses only the assignment of work: the order of sums does not depend on it.
fn geometry(fused: &Fusion, sums: usize, target: &Target) -> Geometry {
    let limits = &target.limits;
    let (rows, columns) = (fused.row_count(), fused.column_count());
    let largest = 1 << limits.block_size.max(1).ilog2();
    let power = usize::next_power_of_two;
    if neighbours_are_rows(fused) {
        let lanes = rows_at_once(fused, target);
        let teams = rows / lanes;
        let width = rows_of_group(fused, target);
        let busy = teams / width >= target.processors * 8;
        let block = if busy { BLOCK } else { 1024 }.min(largest);
        if columns <= SHORT && teams >= target.processors * BLOCK {
            return Geometry { lanes, team: 1, rows: BLOCK.min(largest), across: true };
        }
        let team = power(columns.div_ceil(COLUMNS)).min(block / width).min(sums);
        return Geometry { lanes, team, rows: width, across: true };
    }
    let lanes = access::lanes(fused, target, |lanes| {
        let ranges = Ranges([rows, columns / lanes].into_iter().collect());
        let (row, column) = (Index::range(0, &ranges), Index::range(1, &ranges).scale(lanes as i64));
        let point = |lane: usize| coordinates(fused, &row, &column.shift(lane as i64), &ranges);
        let points = (0..lanes).map(point).collect();
        (columns > 0 && columns.is_multiple_of(lanes)).then_some((points, ranges))
    });
    let width = limits.subgroup.unwrap_or(32).min(largest);
    if columns <= SHORT && rows >= target.processors * BLOCK {
        return Geometry { lanes, team: 1, rows: BLOCK.min(largest), across: false };
    }
    let most = limits.subgroup.map_or(largest, |width| largest.min(width * width));
    let team = (sums / lanes).min(most);
    let teams = if team > width { 1 } else { (BLOCK.min(largest) / team).min(power(rows)).max(width / team) };
    Geometry { lanes, team, rows: teams, across: false }
}

/// True if most accesses are consecutive along the rows and not along the columns.
pub(super) fn neighbours_are_rows(fused: &Fusion) -> bool {
    let ranges = access::ranges(fused);
    let last = |from: usize, to: usize| (from..to).rev().find(|&r| ranges.0[r] > 1);
    let (row, column) = (last(0, fused.rows.len()), last(fused.rows.len(), ranges.len()));
    let (Some(row), Some(column)) = (row, column) else { return false };
    let along = |index: &Index, range: usize| {
        let term = index.terms().iter().find(|t| t.atom == Atom::Range(range as u8));
        term.is_some_and(|t| t.factor == 1)
    };
    let loads = fused.instructions.iter().filter(|i| i.per_column).filter_map(|i| match &i.operation {
        FusedOp::Load { index, .. } => Some(index),
        _ => None,
    });
    // Weight operands by their number of elements: small ones stay in the caches.
    let elements = |index: &Index| -> f64 {
        let used = ranges.0.iter().enumerate().filter(|(range, _)| index.depends_on(*range));
        used.map(|(_, &extent)| extent as f64).product()
    };
    let vote = |index: &Index| f64::from(along(index, row)) - f64::from(along(index, column));
    loads.map(|index| vote(index) * elements(index)).sum::<f64>() > 0.0
}

/// A loop over columns of a leaf's partial sums, or a single step.
struct Steps {
    axis: Option<u8>,
    /// The coordinates of each lane.
    points: Vec<Coordinates>,
    /// The first register for the current iteration of the loops.
    first: Index,
    /// Where there are a row and a column.
    within: Mask,
}

/// The code of an invocation for its row.
struct Worker<'a> {
    fused: &'a Fusion,
    buffers: &'a [Buffer],
    /// The loops over the columns of a leaf's partial sums.
    steps: Vec<Steps>,
    /// The number of rows among the lanes.
    rows: usize,
    /// The loops over its leaves, one per bit of the leaf number, lowest bit first.
    bits: Vec<u8>,
    /// Where there is a row.
    inside: Mask,
    invocation: Index,
    member: Index,
    combiner: Combiner,
    /// The per-row values computed so far.
    known: FastMap<InstructionId, super::expression::Lanes>,
    kept: Kept,
}

impl Worker<'_> {
    /// Binds the per-row values that `roots` depend on, outside of loops.
    fn prepare(&mut self, b: &mut Builder, roots: &[InstructionId]) {
        let mut scope = Scope {
            fused: self.fused,
            buffers: self.buffers,
            points: self.points(),
            holds: Mask::default(),
            guard: self.inside.clone(),
            known: std::mem::take(&mut self.known),
            kept: None,
        };
        let (mut open, mut seen) = (roots.to_vec(), FastSet::default());
        while let Some(value) = open.pop() {
            let instruction = &self.fused.instructions[value as usize];
            if !instruction.per_column {
                scope.value(b, value);
            } else if seen.insert(value) {
                open.extend(instruction.operation.operands());
            }
        }
        self.known = scope.known;
    }

    /// The coordinates of its rows.
    fn points(&self) -> Vec<Coordinates> {
        self.steps.first().map(|steps| steps.points[..self.rows].to_vec()).unwrap_or_default()
    }

    /// Runs `body` for the columns of a leaf's partial sums.
    fn each_step(&mut self, b: &mut Builder, mut body: impl FnMut(&mut Builder, &mut Scope<'_>)) {
        for steps in &self.steps {
            let mut scope = Scope {
                fused: self.fused,
                buffers: self.buffers,
                points: steps.points.clone(),
                holds: steps.within.clone(),
                guard: Mask::default(),
                known: self.known.clone(),
                kept: Some((&mut self.kept, steps.first.clone())),
            };
            let within = steps.within.clone();
            let step = |b: &mut Builder| b.when(within, |b| body(b, &mut scope));
            match steps.axis {
                Some(axis) => b.repeat(axis, step),
                None => step(b),
            }
        }
    }

    /// One loop over the columns, and the results of its reductions. If there are no columns, nothing is computed: the
    /// expression then uses the reductions of no elements.
    fn reduce(&mut self, b: &mut Builder, pass: &Pass<'_>, any: bool) {
        if !any {
            return;
        }
        self.prepare(b, &pass.roots(self.fused).collect::<Vec<_>>());
        let parts = self.fold(b, pass, self.bits.len());
        let results = self.combiner.results(b, &self.invocation, &self.member, parts);
        for (reduction, results) in pass.reductions.iter().zip(results.chunks(self.rows)) {
            let dtype = self.fused.instructions[reduction.result as usize].dtype;
            // Sums of 16-bit floats stay in their accumulator type.
            let result = |&result| if dtype.is_float() { result } else { convert(b, result, dtype) };
            let results = results.iter().map(result).collect();
            self.known.insert(reduction.result, results);
        }
    }

    /// Registers for `count` values of each reduction of a pass, initialised to the identity.
    fn registers(&self, b: &mut Builder, pass: &Pass<'_>, count: usize) -> Vec<ArrayId> {
        let each = pass.reductions.iter().map(|r| {
            let dtype = self.fused.instructions[r.of as usize].dtype;
            let held = accumulator(dtype);
            let registers = b.registers(held, count);
            let nothing = b.constant(held, r.combine.identity(dtype));
            (0..count).for_each(|at| b.store(registers, &Index::constant(at as i64), nothing));
            registers
        });
        each.collect()
    }

    /// One value per reduction and row: the partial sums of `2^bits` neighbouring leaves, combined.
    fn fold(&mut self, b: &mut Builder, pass: &Pass<'_>, bits: usize) -> Vec<(Combine, ValueId)> {
        let Some(bit) = bits.checked_sub(1) else { return self.leaf(b, pass) };
        let rows = self.rows;
        let sums = self.registers(b, pass, rows);
        b.repeat(self.bits[bit], |b| {
            for (at, (combine, half)) in self.fold(b, pass, bit).into_iter().enumerate() {
                let row = Index::constant((at % rows) as i64);
                b.accumulate(sums[at / rows], &row, combine.binary(), half);
            }
        });
        let mut parts = Vec::with_capacity(pass.reductions.len() * rows);
        for (reduction, &sums) in pass.reductions.iter().zip(&sums) {
            for row in 0..rows {
                parts.push((reduction.combine, b.load(sums, &Index::constant(row as i64))));
            }
        }
        parts
    }

    /// One value per reduction and row: the partial sums of one leaf, combined over the lanes (or per lane) and over
    /// neighbouring members.
    fn leaf(&mut self, b: &mut Builder, pass: &Pass<'_>) -> Vec<(Combine, ValueId)> {
        let lanes = self.steps.first().map_or(0, |steps| steps.points.len());
        let sums = self.registers(b, pass, lanes);
        self.each_step(b, |b, scope| {
            for (reduction, &sums) in pass.reductions.iter().zip(&sums) {
                let values = scope.value(b, reduction.of);
                for lane in 0..lanes {
                    let value = values[if values.len() == 1 { 0 } else { lane }];
                    let value = b.cast(b.dtype(sums), value);
                    let op = reduction.combine.binary();
                    b.accumulate(sums, &Index::constant(lane as i64), op, value);
                }
            }
            scope.store_all(b, &pass.stores);
        });
        let mut parts = Vec::with_capacity(pass.reductions.len() * self.rows);
        for (reduction, &sums) in pass.reductions.iter().zip(&sums) {
            let mut values: Vec<ValueId> =
                (0..lanes).map(|lane| b.load(sums, &Index::constant(lane as i64))).collect();
            while values.len() > self.rows {
                let pairs = values.chunks(2);
                values = pairs.map(|pair| b.binary(reduction.combine.binary(), pair[0], pair[1])).collect();
            }
            parts.extend(values.into_iter().map(|value| (reduction.combine, value)));
        }
        self.combiner.neighbours(b, &self.invocation, &self.member, parts)
    }

    /// The loop of the stores that need every reduction, and the stores of per-row values.
    fn store(&mut self, b: &mut Builder, last: &Pass<'_>, any: bool) {
        let fused = self.fused;
        self.prepare(b, &fused.stores.iter().map(|s| s.value).collect::<Vec<_>>());
        if any && !last.stores.is_empty() {
            self.store_columns(b, &last.stores, self.bits.len());
        }
        let first = self.inside.and(&Mask::within(&self.member, 0, 1, b.ranges()));
        let mut scope = Scope {
            fused,
            buffers: self.buffers,
            points: self.points(),
            holds: Mask::default(),
            guard: Mask::default(),
            known: self.known.clone(),
            kept: None,
        };
        for store in &fused.stores {
            if !fused.instructions[store.value as usize].per_column {
                scope.store(b, store, &first);
            }
        }
    }

    /// The loops over `2^bits` neighbouring leaves that store per-column values.
    fn store_columns(&mut self, b: &mut Builder, stores: &[&Store], bits: usize) {
        if let Some(bit) = bits.checked_sub(1) {
            return b.repeat(self.bits[bit], |b| self.store_columns(b, stores, bit));
        }
        self.each_step(b, |b, scope| scope.store_all(b, stores));
    }
}
