//! Updates of rows by index. The updates are sorted by row, so the order in which they are combined depends only on the
//! indices. If many updates hit the same row, they are not combined sequentially: runs of [`RUN`] sorted updates of one
//! row are combined first, with one invocation per column, then runs of these runs, and so on. An element of the result
//! uses whole runs where possible.

use super::{
    Lowered, Source, Target, Unsupported,
    access::Buffer,
    indexed::{each, no_rows, partition, report, row_access, status, wrapped},
    operand::{Work, only},
    reduce::accumulator,
    sort,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index,
        build::Builder,
        loops::{ArrayId, AxisKind, KernelOp, MemoryAccess, Row, Type, ValueId},
        step::{Library, Operand},
        view::flat,
    },
    op::{Binary, IndexRange, ScatterMode},
};

/// The number of updates or runs that are combined sequentially; a power of two.
const RUN: usize = 32;
/// Up to this many runs, no further level of runs is built.
const FEW: usize = 4 * RUN;

/// Updates rows of a matrix, in the order of the updates.
pub(super) fn lower(
    library: &Library,
    (mode, range): (ScatterMode, IndexRange),
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let [x, index, updates] = library.operands.as_slice() else { return Err(no_rows()) };
    let (rows, width, count) = (x.layout.shape[0], x.layout.shape[1], index.layout.shape[0]);
    let (Ok(_), Ok(_)) = (i32::try_from(count), i32::try_from(rows)) else {
        return Err(Unsupported("a scatter of more rows than an int32 counts".to_owned()));
    };
    let held = accumulator(x.dtype);
    let sorted = match count {
        0 => None,
        _ => Some(Sorted::new(index, updates, rows, range, target, lowered)?),
    };
    let mut runs = Vec::new();
    if let (Some(sorted), ScatterMode::Combine(combine)) = (&sorted, mode) {
        let mut span = RUN;
        while count / span * RUN > FEW {
            runs.push(Runs { span, source: lowered.temporary(count / span * width, held) });
            sorted.combine_runs(&runs, combine.binary(), target, lowered);
            span *= RUN;
        }
    }
    let mut work = Work::new("scatter");
    let before = work.operand(x, Source::Binding(0));
    let output = work.buffer(x.dtype, rows * width, result, true);
    let starts = sorted.as_ref().map(|sorted| work.buffer(DType::I32, rows + 1, sorted.starts, false));
    let parts = sorted.as_ref().map(|sorted| sorted.parts(&mut work, &runs));
    each(&mut work, target, rows * width, |b, number| {
        let (row, column) =
            (number.quotient(width as i64, b.ranges()), number.remainder(width as i64, b.ranges()));
        let at = flat(&[row.clone(), column.clone()], &x.layout.strides, 0).shift(-before.start);
        let old = b.load(before.array, &at);
        let (Some(starts), Some(parts)) = (starts, &parts) else {
            return b.store(output.array, number, old);
        };
        let (begin, end) = (b.load(starts.array, &row), b.load(starts.array, &row.shift(1)));
        let value = match mode {
            ScatterMode::Set => {
                let one = b.constant(DType::I32, 1i32);
                let last = b.binary(Binary::Sub, end, one);
                let none = b.binary(Binary::Le, end, begin);
                let new = parts.update(b, last, &column);
                b.select(none, old, new)
            }
            ScatterMode::Combine(combine) => {
                let sum = b.registers(held, 1);
                let old = b.cast(held, old);
                b.store(sum, &only(), old);
                parts.combine(b, (begin, end), &column, |b, value| {
                    b.accumulate(sum, &only(), combine.binary(), value);
                });
                let sum = b.load(sum, &only());
                b.cast(x.dtype, sum)
            }
        };
        b.store(output.array, number, value);
    });
    work.finish(lowered);
    Ok(())
}

/// The updates in the order of their rows.
struct Sorted<'a> {
    updates: &'a Operand,
    count: usize,
    /// The type of the accumulators.
    held: DType,
    /// The row of each update.
    keys: Source,
    /// The original position of each update.
    order: Source,
    /// The position of the first update of each row, followed by the total number.
    starts: Source,
}

/// Combined updates: one result per `span` updates (if these are of the same row) and column.
struct Runs {
    span: usize,
    source: Source,
}

impl<'a> Sorted<'a> {
    fn new(
        index: &Operand,
        updates: &'a Operand,
        rows: usize,
        range: IndexRange,
        target: &Target,
        lowered: &mut Lowered,
    ) -> Result<Sorted<'a>, Unsupported> {
        let count = index.layout.shape[0];
        let [unsorted, order, keys] = [(); 3].map(|()| lowered.temporary(count, DType::I32));
        wrap_indices(index, rows, range, unsorted, target, lowered);
        let keyed = sort::Rows { dtype: DType::I32, count: 1, width: count, descending: false };
        sort::sort(keyed, None, unsorted, (order, DType::I32), Some(keys), target, lowered)?;
        let starts = lowered.temporary(rows + 1, DType::I32);
        let mut work = Work::new("row_starts");
        let sorted = work.buffer(DType::I32, count, keys, false);
        let output = work.buffer(DType::I32, rows + 1, starts, true);
        each(&mut work, target, rows + 1, |b, number| {
            let row = b.bind(Type::scalar(DType::I32), KernelOp::Index(number.clone()));
            let start = partition(b, count, |b, at| {
                let key = b.load_access(element(sorted.array, count, at), Scalar::Int(0), 1);
                b.binary(Binary::Lt, key, row)
            });
            b.store(output.array, number, start);
        });
        work.finish(lowered);
        Ok(Sorted { updates, count, held: accumulator(updates.dtype), keys, order, starts })
    }

    /// Binds the updates and their runs as buffers of a kernel.
    fn parts(&self, work: &mut Work, runs: &[Runs]) -> Parts<'a> {
        let (updates, count) = (self.updates, self.count);
        let buffer = work.operand(updates, Source::Binding(2));
        let order = work.buffer(DType::I32, count, self.order, false);
        let width = updates.layout.shape[1];
        let runs = runs.iter().map(|runs| {
            let buffer = work.buffer(self.held, count / runs.span * width, runs.source, false);
            (runs.span, buffer)
        });
        Parts { updates, buffer, order, count, held: self.held, runs: runs.collect() }
    }

    /// Computes the last level of runs from the previous ones.
    fn combine_runs(&self, runs: &[Runs], function: Binary, target: &Target, lowered: &mut Lowered) {
        let Some((Runs { span, source }, shorter)) = runs.split_last() else { return };
        let width = self.updates.layout.shape[1];
        let count = self.count / span;
        let mut work = Work::new("scatter_runs");
        let keys = work.buffer(DType::I32, self.count, self.keys, false);
        let parts = self.parts(&mut work, shorter);
        let output = work.buffer(self.held, count * width, *source, true);
        each(&mut work, target, count * width, |b, number| {
            let (run, column) =
                (number.quotient(width as i64, b.ranges()), number.remainder(width as i64, b.ranges()));
            let first = run.scale(*span as i64);
            let ends = (b.load(keys.array, &first), b.load(keys.array, &first.shift(*span as i64 - 1)));
            let mixed = b.binary(Binary::Ne, ends.0, ends.1);
            let sum = b.registers(self.held, 1);
            let part = |b: &mut Builder, i: &Index| {
                let at = b.number(&first.add(&i.scale((span / RUN) as i64)));
                parts.load(b, shorter.len(), at, &column)
            };
            let value = part(b, &Index::default());
            b.store(sum, &only(), value);
            b.over(RUN - 1, AxisKind::Serial, |b, i| {
                b.leave(mixed);
                let value = part(b, &i.shift(1));
                b.accumulate(sum, &only(), function, value);
            });
            let sum = b.load(sum, &only());
            b.store(output.array, number, sum);
        });
        work.finish(lowered);
    }
}

/// Sorted updates and their runs, as buffers of a kernel.
struct Parts<'a> {
    updates: &'a Operand,
    buffer: Buffer,
    order: Buffer,
    count: usize,
    held: DType,
    /// The number of updates per run, and the runs, for each level.
    runs: Vec<(usize, Buffer)>,
}

impl Parts<'_> {
    /// A column of the update at a sorted position.
    fn update(&self, b: &mut Builder, at: ValueId, column: &Index) -> ValueId {
        let number = b.load_access(element(self.order.array, self.count, at), Scalar::Int(0), 1);
        let access = row_access(b, self.buffer, self.updates, number, column);
        b.load_access(access, Scalar::Int(0), 1)
    }

    /// A column of the update (`level` 0) or run that starts at a sorted position, for combining.
    fn load(&self, b: &mut Builder, level: usize, at: ValueId, column: &Index) -> ValueId {
        let Some(&(span, buffer)) = level.checked_sub(1).and_then(|level| self.runs.get(level)) else {
            let value = self.update(b, at, column);
            return b.cast(self.held, value);
        };
        let shift = b.constant(DType::I32, span.ilog2() as i32);
        let run = b.binary(Binary::Shr, at, shift);
        let row = Row { value: run, count: self.count / span, stride: self.updates.layout.shape[1] };
        b.load_access(
            MemoryAccess { row: Some(row), ..MemoryAccess::at(buffer.array, column) },
            Scalar::Int(0),
            1,
        )
    }

    /// Calls `combine` with the updates from `begin` to `end`, which are of the same row. Uses single updates up to the
    /// start of a run, runs up to the start of a longer run, and so on; then the same in reverse at the end.
    fn combine(
        &self,
        b: &mut Builder,
        (begin, end): (ValueId, ValueId),
        column: &Index,
        mut combine: impl FnMut(&mut Builder, ValueId),
    ) {
        let at = b.registers(DType::I32, 1);
        b.store(at, &only(), begin);
        let top = self.runs.len();
        let span = |level: usize| level.checked_sub(1).map_or(1, |level| self.runs[level].0);
        let upwards = (0..top).map(|level| (level, true));
        for (level, up) in upwards.chain((0..=top).rev().map(|level| (level, false))) {
            let most = if level == top { self.count / span(top) } else { RUN - 1 };
            b.over(most, AxisKind::Serial, |b, _| {
                let here = b.load(at, &only());
                let length = b.constant(DType::I32, Scalar::Int(span(level) as i64));
                let next = b.binary(Binary::Add, here, length);
                let mut done = b.binary(Binary::Lt, end, next);
                if up {
                    let within = b.constant(DType::I32, Scalar::Int(span(level + 1) as i64 - 1));
                    let offset = b.binary(Binary::And, here, within);
                    let zero = b.constant(DType::I32, 0i32);
                    let longer = b.binary(Binary::Eq, offset, zero);
                    done = b.binary(Binary::Or, done, longer);
                }
                b.leave(done);
                let value = self.load(b, level, here, column);
                combine(b, value);
                b.store(at, &only(), next);
            });
        }
    }
}

/// The element of a buffer at a position given by data.
fn element(array: ArrayId, count: usize, at: ValueId) -> MemoryAccess {
    MemoryAccess { row: Some(Row { value: at, count, stride: 1 }), ..MemoryAccess::at(array, &only()) }
}

/// Converts indices to 32-bit row numbers.
fn wrap_indices(
    index: &Operand,
    rows: usize,
    range: IndexRange,
    keys: Source,
    target: &Target,
    lowered: &mut Lowered,
) {
    let count = index.layout.shape[0];
    let mut work = Work::new("wrap_indices");
    let input = work.operand(index, Source::Binding(1));
    let output = work.buffer(DType::I32, count, keys, true);
    let status = status(&mut work, range);
    each(&mut work, target, count, |b, number| {
        let at = number.scale(index.layout.strides[0] as i64).shift(-input.start);
        let value = b.load(input.array, &at);
        let (value, outside) = wrapped(b, value, rows);
        if let Some(status) = status {
            report(b, status, outside);
        }
        let value = b.cast(DType::I32, value);
        b.store(output.array, number, value);
    });
    work.finish(lowered);
}
