//! Reductions of few long rows as several fused kernels: separate groups reduce parts of the columns, then the parts
//! are combined, then the instructions that depend on the results follow. A part is an aligned run of partial sums, so
//! the number of parts does not change the order of sums.

use smallvec::SmallVec;

use super::{
    Lowered, Source, Target, Unsupported,
    contraction::{Contraction, Product, Shape, Unit},
    lower_product, panels,
    rebuild::Rebuild,
    rows,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        fused::{FusedOp, Fusion, Instruction, InstructionId},
        view::{Coordinates, flat, unflatten},
    },
    op::{Binary, Combine},
    shape::contiguous_strides,
};

/// Minimum number of columns per part, if columns are neighbours. `PART_ACROSS` is the minimum if rows are.
const PART: usize = 1024;
const PART_ACROSS: usize = 64;
/// Neighbouring columns per invocation of the largest group. Fewer do not justify another launch; parts with more would
/// wait for their loads in sequence.
const STEPS: usize = 16;

/// If rows are neighbours: the elements of a group that do not justify another launch, some 256 KB.
const ALONE_ACROSS: usize = 1 << 16;

/// The split of each row's columns. A part has `runs` runs of columns; the distance between them is the combined length
/// of all parts' runs.
pub(super) struct Parts {
    count: usize,
    runs: usize,
    /// Columns per run.
    length: usize,
    /// The product that is summed, if any; its terms are added in sequence.
    product: Option<Product>,
    /// Elements between neighbours along each row range where the results of a part are stored.
    strides: SmallVec<[isize; 4]>,
}

/// The parts in which to reduce the columns of each row; `None` if the rows alone keep the device busy.
pub(super) fn parts(fused: &Fusion, target: &Target) -> Option<Parts> {
    let reduces = fused.instructions.iter().any(|i| matches!(i.operation, FusedOp::Reduce(..)));
    // Results are passed on in their accumulator type, so their bits must not be observed.
    let bits = fused.instructions.iter().any(|i| matches!(i.operation, FusedOp::Bitcast(_)));
    if bits || fused.columns.is_empty() {
        return None;
    }
    let across = rows::neighbours_are_rows(fused);
    let lanes = if across { rows::rows_at_once(fused, target) } else { 1 };
    let together = if across { 32 * lanes } else { 1 };
    let groups = fused.row_count().div_ceil(together);
    let columns = fused.column_count();
    let alone = STEPS * target.limits.block_size;
    let is_short = match across {
        true => columns * lanes * rows::rows_of_group(fused, target) <= ALONE_ACROSS,
        false => columns < alone,
    };
    if groups >= 2 * target.processors || is_short && reduces {
        return None;
    }
    let strides = contiguous_strides(&fused.rows);
    if !reduces {
        return Some(Parts { count: 1, runs: 1, length: columns, product: None, strides });
    }
    let (most, least) = if across { (columns / PART_ACROSS, 1) } else { (columns / PART, columns / alone) };
    let wanted = (4 * target.processors / groups).max(least).min(most).max(1);
    // Round to the nearest power of two.
    let count = (wanted * 3).div_ceil(4).next_power_of_two();
    let sums = rows::partial_sums(columns);
    let parts = Parts { count, runs: columns.div_ceil(sums), length: sums / count, product: None, strides };
    (count > 1).then_some(parts)
}

/// Minimum number of columns per part of a contraction.
const PART_CONTRACTED: usize = 64;

/// So many parts of a contraction are added element by element.
pub(super) const FEW_PARTS: usize = 16;

/// The parts in which to sum a contraction's columns: as many as give all processors tiles, for teams those that take
/// the least time.
pub(super) fn parts_of_contraction(
    contraction: &Contraction,
    product: Product,
    shape: Shape,
    target: &Target,
) -> Option<Parts> {
    let (tiles, columns) = (contraction.tiles(shape), contraction.extent(3));
    if tiles >= target.processors {
        return None;
    }
    let (wanted, multiple) = match shape.unit {
        // Whole panels, so that no copy belongs to two parts.
        Unit::Team => (panels::parts(contraction, shape, target), shape.depth),
        Unit::Subgroup | Unit::Invocation => {
            ((2 * target.processors / tiles).min(columns / PART_CONTRACTED).max(1), 4)
        }
    };
    let length = columns.div_ceil(wanted).next_multiple_of(multiple);
    let (count, strides) = (columns.div_ceil(length), contraction.strides_of_sums());
    let parts = Parts { count, runs: 1, length, product: Some(product), strides };
    (parts.count > 1).then_some(parts)
}

/// A reduction that does not depend on others.
struct Partial {
    /// The instruction.
    value: InstructionId,
    combine: Combine,
    /// The accumulator type.
    held: DType,
    /// One result per part and row.
    source: Source,
}

/// Lowers a specification and computes its first reductions in parts.
pub(super) fn lower(
    fused: &Fusion,
    sources: &[Source],
    parts: Parts,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    if !fused.instructions.iter().any(|i| matches!(i.operation, FusedOp::Reduce(..))) {
        return lower_rest(fused, sources, &[], target, lowered);
    }
    let partials = reduce_parts(fused, sources, &parts, target, lowered)?;
    let sums = if parts.product.is_some() { rows::partial_sums(parts.count) } else { parts.count };
    let count = fused.row_count();
    let reductions = fused.instructions.iter().filter(|i| matches!(i.operation, FusedOp::Reduce(..)));
    let per_column = |value: InstructionId| fused.instructions[value as usize].per_column;
    let only_rows = fused.stores.iter().all(|s| !per_column(s.value));
    let adds_only = reductions.count() == partials.len() && only_rows;
    if adds_only && parts.product.is_some() && parts.count <= FEW_PARTS {
        let mut whole = Rebuild::new(fused, sources, &fused.rows, &[]);
        for partial in &partials {
            let total = whole.total(partial, &parts, count);
            whole.values.insert(partial.value, total);
        }
        return whole.finish(|_| true, target, lowered);
    }
    if adds_only {
        let mut whole = Rebuild::new(fused, sources, &fused.rows, &[parts.count]);
        let part = Index::range(fused.rows.len(), &whole.draft.ranges()).scale(count as i64);
        for partial in &partials {
            let at = part.add(&whole.stored(&parts));
            let x = whole.input(partial.held, partial.source, at);
            let result = whole.draft.reduce(partial.combine, x);
            whole.values.insert(partial.value, result);
        }
        whole.reduce(|_| true, sums, target, lowered);
        return Ok(());
    }
    let mut results = Vec::new();
    let mut totals = Rebuild::new(fused, sources, &fused.rows, &[parts.count]);
    let part = Index::range(fused.rows.len(), &totals.draft.ranges()).scale(count as i64);
    for partial in &partials {
        let row = totals.row();
        let x = totals.input(partial.held, partial.source, part.add(&totals.stored(&parts)));
        let result = totals.draft.reduce(partial.combine, x);
        let source = lowered.temporary(count, partial.held);
        totals.output(partial.held, source, result, row);
        results.push(Known { value: partial.value, dtype: partial.held, source });
    }
    totals.reduce(|_| false, sums, target, lowered);
    let more = fused.instructions.iter().filter(|i| matches!(i.operation, FusedOp::Reduce(..))).count();
    if more > partials.len() {
        let mut rest = Rebuild::new(fused, sources, &fused.rows, &fused.columns);
        rest.load(&results);
        return rest.finish(|_| true, target, lowered);
    }
    lower_rest(fused, sources, &results, target, lowered)
}

/// A per-row value that an earlier launch stored.
#[derive(Clone, Copy)]
struct Known {
    value: InstructionId,
    dtype: DType,
    source: Source,
}

/// Lowers what follows from reductions, if anything: first what has one value per row, then the rest, element by
/// element.
fn lower_rest(
    fused: &Fusion,
    sources: &[Source],
    results: &[Known],
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let per_column = |value: InstructionId| fused.instructions[value as usize].per_column;
    let mut rows = Rebuild::new(fused, sources, &fused.rows, &[]);
    rows.load(results);
    let mut known = results.to_vec();
    // What elements need of their row is computed once, if the buffers for it can be bound.
    let shared = values_of_rows(fused, results);
    if fused.parameters.len() + results.len() + shared.len() <= target.limits.bindings {
        for value in shared {
            let dtype = fused.instructions[value as usize].dtype;
            let source = lowered.temporary(fused.row_count(), dtype);
            let (result, row) = (rows.value(value), rows.row());
            rows.output(dtype, source, result, row);
            known.push(Known { value, dtype, source });
        }
    }
    // Elements may still need what is stored over.
    let waits = fused.stores.iter().any(|store| !per_column(store.value) && store.replaces.is_some());
    rows.finish(|value| !waits && !per_column(value), target, lowered)?;
    let everything: Vec<usize> = fused.rows.iter().chain(&fused.columns).copied().collect();
    let mut rest = Rebuild::new(fused, sources, &everything, &[]);
    rest.load(&known);
    rest.finish(per_column, target, lowered)?;
    if waits {
        let mut rows = Rebuild::new(fused, sources, &fused.rows, &[]);
        rows.load(results);
        rows.finish(|value| !per_column(value), target, lowered)?;
    }
    Ok(())
}

/// What has to be computed once per row for the elements that are stored.
fn values_of_rows(fused: &Fusion, known: &[Known]) -> Vec<InstructionId> {
    let mut needed = vec![false; fused.instructions.len()];
    fused.stores.iter().for_each(|store| needed[store.value as usize] = true);
    let mut of_rows = Vec::new();
    for at in (0..fused.instructions.len()).rev() {
        let Instruction { operation, per_column, .. } = &fused.instructions[at];
        if needed[at] && *per_column {
            for operand in operation.operands() {
                needed[operand as usize] = true;
                of_rows.push(operand);
            }
        }
    }
    let is_computed = |value: &InstructionId| {
        let Instruction { operation, per_column, .. } = &fused.instructions[*value as usize];
        !per_column
            && !matches!(operation, FusedOp::Constant(_) | FusedOp::Load { .. } | FusedOp::Coordinate(_))
            && !known.iter().any(|known| known.value == *value)
    };
    of_rows.retain(is_computed);
    of_rows.sort_unstable();
    of_rows.dedup();
    of_rows
}

/// The launch that reduces each part of each row.
fn reduce_parts(
    fused: &Fusion,
    sources: &[Source],
    parts: &Parts,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<Vec<Partial>, Unsupported> {
    let Parts { count, runs, length, product, ref strides } = *parts;
    let rows: Vec<usize> = [count].iter().chain(&fused.rows).copied().collect();
    // The tiles of a product know the terms of their part.
    let columns = if product.is_some() { &fused.columns[..] } else { &[runs, length] };
    let mut rebuild = Rebuild::new(fused, sources, &rows, columns);
    let ranges = rebuild.draft.ranges();
    let coordinates = ranges.coordinates();
    rebuild.at = coordinates[1..].iter().cloned().collect();
    if product.is_none() {
        let run = coordinates[rows.len()].scale(count as i64).add(&coordinates[0]);
        let column = run.scale(length as i64).add(&coordinates[rows.len() + 1]);
        let mut columns = Coordinates::from_elem(Index::default(), fused.columns.len());
        unflatten(&fused.columns, &column, &ranges, &mut columns);
        rebuild.at = coordinates[1..rows.len()].iter().chain(&columns).cloned().collect();
        rebuild.guard = Mask::within(&column, 0, fused.column_count() as i64, &ranges);
    }
    let part = coordinates[0].scale(fused.row_count() as i64);
    let position = part.add(&flat(&coordinates[1..rows.len()], strides, 0));
    let inside = rebuild.guard.clone();
    let mut partials = Vec::new();
    let mut rebuilt = None;
    for value in first_reductions(fused) {
        let Instruction { operation: FusedOp::Reduce(combine, of), dtype, .. } =
            fused.instructions[value as usize]
        else {
            continue;
        };
        let mut operand = rebuild.value(of);
        // Products of missing factors are 0 already.
        let sums_products = combine == Combine::Sum && sums_loads(fused, of);
        if !sums_products && let Some(holds) = rebuild.draft.holds(&inside) {
            let nothing = rebuild.draft.constant(dtype, combine.identity(dtype));
            operand = rebuild.draft.select(holds, operand, nothing);
        }
        let held = dtype.compute();
        let result = rebuild.draft.reduce(combine, operand);
        if let Some(product) = product.filter(|product| product.sum == value) {
            let factors = product.factors.map(|factor| rebuild.value(factor));
            rebuilt = Some(Product {
                sum: result,
                factors,
                summed_steps: product.summed_steps,
                part: Some(length),
            });
        }
        let source = lowered.temporary(count * fused.row_count(), held);
        rebuild.output(held, source, result, position.clone());
        partials.push(Partial { value, combine, held, source });
    }
    match rebuilt {
        Some(product) => {
            let (fused, sources) = (&rebuild.draft.fused, &rebuild.sources);
            lower_product(fused, product, sources, target, false, lowered)?;
        }
        None => rebuild.reduce(|_| false, length, target, lowered),
    }
    Ok(partials)
}

/// True for a product of two loads (possibly converted) that give 0 where there is nothing to load.
fn sums_loads(fused: &Fusion, product: InstructionId) -> bool {
    let operation = |value: InstructionId| &fused.instructions[value as usize].operation;
    let loaded = |mut value: InstructionId| {
        while let FusedOp::Cast(inner) = operation(value) {
            // Follow only lossless conversions.
            let (from, to) =
                (fused.instructions[*inner as usize].dtype, fused.instructions[value as usize].dtype);
            if from.promote(to) != to {
                return false;
            }
            value = *inner;
        }
        matches!(operation(value), FusedOp::Load { fill, .. } if fill.as_f64() == 0.0)
    };
    let FusedOp::Binary(Binary::Mul, a, b) = *operation(product) else { return false };
    loaded(a) && loaded(b)
}

/// The reductions that do not depend on other reductions.
fn first_reductions(fused: &Fusion) -> Vec<InstructionId> {
    let mut waits = vec![false; fused.instructions.len()];
    let mut first = Vec::new();
    for (at, instruction) in fused.instructions.iter().enumerate() {
        waits[at] = instruction.operation.operands().iter().any(|&v| waits[v as usize]);
        if matches!(instruction.operation, FusedOp::Reduce(..)) {
            if !waits[at] {
                first.push(at as InstructionId);
            }
            waits[at] = true;
        }
    }
    first
}

impl Rebuild<'_> {
    /// Takes these values from where they were stored.
    fn load(&mut self, known: &[Known]) {
        for &Known { value, dtype, source } in known {
            let row = self.row();
            let loaded = self.input(dtype, source, row);
            self.values.insert(value, loaded);
        }
    }

    /// Where the result of the old row is stored, from the first one of its part.
    fn stored(&self, parts: &Parts) -> Index {
        flat(&self.at[..parts.strides.len()], &parts.strides, 0)
    }

    /// Adds the results of all parts in their order.
    fn total(&mut self, partial: &Partial, parts: &Parts, rows: usize) -> InstructionId {
        let (row, held) = (self.stored(parts), partial.held);
        let parameter = self.draft.parameter(held, false);
        self.sources.push(partial.source);
        let load = |rebuild: &mut Self, part: usize| {
            let index = row.shift((part * rows) as i64);
            rebuild.draft.load(parameter, index, Mask::default(), Scalar::Int(0))
        };
        let first = load(self, 0);
        (1..parts.count).fold(first, |sum, part| {
            let next = load(self, part);
            self.draft.emit(FusedOp::Binary(partial.combine.binary(), sum, next), held)
        })
    }

    /// Adds the stores of these values, and lowers the specification with `sums` partial sums per row.
    fn reduce(
        mut self,
        wanted: impl Fn(InstructionId) -> bool,
        sums: usize,
        target: &Target,
        lowered: &mut Lowered,
    ) {
        self.add_stores(wanted);
        lowered.launches.push(rows::lower(&self.draft.fused, &self.sources, sums, target));
    }
}
