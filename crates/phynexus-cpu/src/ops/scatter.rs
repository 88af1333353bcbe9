//! Updates of rows by index.

use std::ops::Range;

use phynexus::op::{Combine, ScatterMode};
use phynexus::{DType, host_memory, interrupt};

use super::element::{Combinable, Combiner, by_combine, combines};
use super::index::{BLOCK, Indices};
use super::{Shared, Source, parallel_ranges};
use crate::by_dtype::by_dtype;
use crate::{pool, working_memory};

/// Columns combined side by side.
const COLUMNS: usize = 256;
/// Approximate number of pieces into which sorted updates are divided, and the minimum and maximum updates per piece.
const PIECES: usize = 256;
const PIECE: [usize; 2] = [256, 4096];
/// Rows narrower than this are combined element by element.
const NARROW: usize = 8;
/// This many totals fit in the second-level cache.
const CACHED: usize = 1 << 16;
/// Minimum number of updates per counting thread.
const COUNTED: usize = 1 << 15;
/// Updates between checks for interruption.
const UNASKED: usize = 1 << 18;
/// Maximum number of runs of updates with separate totals.
const RUNS: usize = 64;
/// Minimum number of updates per run.
const RUN: usize = 4096;
/// Runs processed side by side: updates of the same element then rarely wait for each other.
const SIDE_BY_SIDE: usize = 4;

/// `dst` becomes `src` with row `index[i]` set to, or combined with, row i of `updates`, in index order. If many
/// updates target few elements, runs of updates are first combined separately; the division depends only on sizes and
/// indices. 16-bit floats are combined in `f32` and rounded once. Negative indices count from the end.
///
/// # Errors
/// The first index outside `-rows..rows`, unchanged; nothing is written then. Sums and products of `bool` are not
/// supported: `dst` becomes `src`.
///
/// # Safety
/// `src` and `dst` must address `rows * width` elements of `dtype` and be equal or not overlap; `updates` must address
/// `width` elements for each index; `dst` must overlap neither the updates nor the indices.
pub unsafe fn scatter(
    mode: ScatterMode,
    dtype: DType,
    [rows, width]: [usize; 2],
    src: *const u8,
    indices: Indices,
    updates: *const u8,
    dst: *mut u8,
) -> Result<(), i64> {
    let few = width < NARROW && rows <= indices.len() && rows * width <= CACHED;
    let combined = matches!(mode, ScatterMode::Combine(_));
    let targets = if few && combined {
        indices.check(rows)?;
        Vec::new()
    } else {
        indices.rows(rows)?
    };
    let row_bytes = width * dtype.size();
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !std::ptr::eq(src, dst) {
            let (from, to) = (Source(src), Shared(dst));
            parallel_ranges(rows * row_bytes, 1, 64, |start, end| {
                std::ptr::copy_nonoverlapping(from.at(start), to.at(start), end - start);
            });
        }
        match mode {
            ScatterMode::Set => set(&SortedUpdates::new(&targets, rows), row_bytes, updates, dst),
            ScatterMode::Combine(combine) if combines(dtype, combine) => {
                by_dtype!(dtype, bool is u8, T => by_combine!(combine, C => if few {
                    combine_few::<T, C>(indices, [rows, width], updates, dst);
                } else {
                    combine_rows::<T, C>(&targets, [rows, width], updates, dst);
                }));
            }
            ScatterMode::Combine(_) => {}
        }
    }
    Ok(())
}

/// The updates ordered by destination, then by index, so that destinations can be distributed over threads.
struct SortedUpdates {
    /// (destination, update).
    pairs: Vec<(usize, usize)>,
}

impl SortedUpdates {
    /// `targets[i]` is the destination of update i, one of `rows`.
    fn new(targets: &[usize], rows: usize) -> SortedUpdates {
        if rows > 8 * targets.len() {
            let mut pairs = interrupt::or_leave(host_memory::room(targets.len()));
            pairs.extend(targets.iter().enumerate().map(|(i, &row)| (row, i)));
            pairs.sort_unstable();
            return SortedUpdates { pairs };
        }
        // A parallel counting sort: for each part, where the updates of each destination start.
        let parts = (targets.len() / rows.max(COUNTED)).clamp(1, pool::threads());
        let length = targets.len().div_ceil(parts).max(1);
        // Tasks must not share cache lines.
        let stride = rows.next_multiple_of(16);
        let mut starts = working_memory::filled(0usize, parts * stride);
        let shared = Shared(starts.as_mut_ptr());
        let for_parts = |visit: &(dyn Fn(&mut [usize], usize, usize) + Sync)| {
            pool::parallel_for(targets.len().div_ceil(length), &|part| {
                // SAFETY: each part has its own counters.
                let starts = unsafe { std::slice::from_raw_parts_mut(shared.at(part * stride), rows) };
                let first = part * length;
                for (i, &row) in targets[first..targets.len().min(first + length)].iter().enumerate() {
                    if i % UNASKED == 0 {
                        pool::check();
                    }
                    visit(starts, row, first + i);
                }
            });
        };
        for_parts(&|starts, row, _| starts[row] += 1);
        let mut start = 0;
        for row in 0..rows {
            for part in 0..parts {
                // SAFETY: a counter of a part; no task is running.
                start += unsafe { std::mem::replace(&mut *shared.at(part * stride + row), start) };
            }
        }
        let mut pairs = working_memory::filled((0, 0), targets.len());
        let out = Shared(pairs.as_mut_ptr());
        for_parts(&|starts, row, i| {
            // SAFETY: the counted places of one destination and part, which belong to this task.
            unsafe { *out.at(starts[row]) = (row, i) };
            starts[row] += 1;
        });
        SortedUpdates { pairs }
    }

    /// Calls `body` with ranges of pairs in parallel. No destination is in two ranges.
    fn for_ranges(&self, row_bytes: usize, body: impl Fn(Range<usize>) + Sync) {
        let pairs = &self.pairs;
        // The start of the group that contains pair i, or of the next group if i is inside one.
        let boundary = |i: usize| match i.checked_sub(1).and_then(|before| pairs.get(before)) {
            Some(&(destination, _)) if i < pairs.len() => {
                i + pairs[i..].partition_point(|pair| pair.0 == destination)
            }
            _ => i,
        };
        parallel_ranges(pairs.len(), row_bytes + 16, 1, |start, end| body(boundary(start)..boundary(end)));
    }
}

/// Copies the last update of each destination.
///
/// # Safety
/// Same as for [`scatter`].
unsafe fn set(groups: &SortedUpdates, row_bytes: usize, updates: *const u8, dst: *mut u8) {
    let (updates, dst) = (Source(updates), Shared(dst));
    groups.for_ranges(row_bytes, |range| {
        for group in groups.pairs[range].chunk_by(|a, b| a.0 == b.0) {
            let Some(&(destination, update)) = group.last() else { continue };
            // SAFETY: destination and update are rows of their buffers; the destination belongs to this task.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    updates.at(update * row_bytes),
                    dst.at(destination * row_bytes),
                    row_bytes,
                );
            }
        }
    });
}

/// Combines sorted updates piece by piece, one task per piece; then combines, in order, the totals of destinations that
/// occur in several pieces. The division into pieces depends only on the number of updates.
///
/// # Safety
/// Same as for [`scatter`]; all targets must be rows.
unsafe fn combine_rows<T: Combinable, C: Combiner<T>>(
    targets: &[usize],
    [rows, width]: [usize; 2],
    updates: *const u8,
    dst: *mut u8,
) {
    let SortedUpdates { pairs } = SortedUpdates::new(targets, rows);
    let (updates, dst) = (Source(updates.cast::<T>()), Shared(dst.cast::<T>()));
    let length = (pairs.len() / PIECES).clamp(PIECE[0], PIECE[1]);
    let (pieces, blocks) = (pairs.len().div_ceil(length), width.div_ceil(COLUMNS));
    // For each piece: the totals of a destination that also has updates in an earlier piece, and of one that also has
    // updates in a later piece.
    let slots = if pieces > 1 { 2 * pieces } else { 0 };
    let mut totals = working_memory::filled(C::identity(), slots * width);
    let totals = Shared(totals.as_mut_ptr());
    let destination = |at: usize| pairs.get(at).map(|pair| pair.0);
    let before = |start: usize| start.checked_sub(1).and_then(destination);
    let for_tasks = |bytes: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)| {
        parallel_ranges(pieces * blocks, bytes, 1, |first, last| {
            for task in first..last {
                let start = task % blocks * COLUMNS;
                body(task / blocks, start..width.min(start + COLUMNS));
            }
        });
    };
    for_tasks(length * (width.min(COLUMNS) * size_of::<T>() + 16), &|piece, columns| {
        pool::check();
        let (start, end) = (piece * length, pairs.len().min((piece + 1) * length));
        let mut at = start;
        for group in pairs[start..end].chunk_by(|a, b| a.0 == b.0) {
            let row = group[0].0;
            let continued = at == start && before(start) == Some(row);
            at += group.len();
            let goes_on = at == end && destination(end) == Some(row);
            // SAFETY: a row of the destination and one of the totals; these columns belong to this task.
            unsafe {
                let out = dst.at(row * width);
                let slot = totals.at((2 * piece + usize::from(!continued)) * width);
                let first = if continued { None } else { Some(out.cast_const()) };
                combine_group::<T, C>(group, first, width, columns.clone(), updates, |column, total| {
                    match continued || goes_on {
                        true => *slot.add(column) = total,
                        false => *out.add(column) = T::narrow(total),
                    }
                });
            }
        }
    });
    for_tasks(width.min(COLUMNS) * size_of::<T::Accumulator>(), &|piece, columns| {
        let (start, end) = (piece * length, (piece + 1) * length);
        let row =
            destination(end - 1).filter(|&row| destination(end) == Some(row) && before(start) != Some(row));
        let Some(row) = row else { return };
        // SAFETY: all pieces are done; these columns of the row and its totals belong to this task.
        unsafe {
            let of_piece = |slot: usize| totals.at(slot * width + columns.start);
            let sum = std::slice::from_raw_parts_mut(of_piece(2 * piece + 1), columns.len());
            for piece in (piece + 1..pieces).take_while(|piece| destination(piece * length) == Some(row)) {
                let part = std::slice::from_raw_parts(of_piece(2 * piece), columns.len());
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum = C::combine(*sum, *part));
            }
            let out = std::slice::from_raw_parts_mut(dst.at(row * width + columns.start), columns.len());
            out.iter_mut().zip(sum).for_each(|(x, total)| *x = T::narrow(*total));
        }
    });
}

/// Calls `store` with the combined columns of updates of one destination, starting from `first` if given.
///
/// # Safety
/// `first` must address a row of `width` columns that nothing else writes; the group's updates must be rows of
/// `updates`; there must be at most [`COLUMNS`] of `columns`.
#[inline(always)]
unsafe fn combine_group<T: Combinable, C: Combiner<T>>(
    group: &[(usize, usize)],
    first: Option<*const T>,
    width: usize,
    columns: Range<usize>,
    updates: Source<T>,
    mut store: impl FnMut(usize, T::Accumulator),
) {
    let (first, rest) = match first {
        Some(first) => (first, group),
        None => (updates.at(group[0].1 * width), &group[1..]),
    };
    // SAFETY: the columns lie within the rows.
    unsafe {
        if width < NARROW {
            for column in columns {
                let total = rest.iter().fold((*first.add(column)).widen(), |total, &(_, update)| {
                    C::combine(total, (*updates.at(update * width + column)).widen())
                });
                store(column, total);
            }
            return;
        }
        let mut totals = [C::identity(); COLUMNS];
        let row = |row: *const T| std::slice::from_raw_parts(row.add(columns.start), columns.len());
        totals.iter_mut().zip(row(first)).for_each(|(total, x)| *total = x.widen());
        for &(_, update) in rest {
            let row = row(updates.at(update * width));
            totals.iter_mut().zip(row).for_each(|(total, x)| *total = C::combine(*total, x.widen()));
        }
        columns.zip(totals).for_each(|(column, total)| store(column, total));
    }
}

/// For few destinations: every run of updates has separate totals, which are combined in the order of the runs. The
/// division into runs depends only on the sizes.
///
/// # Safety
/// Same as for [`scatter`]; all indices must be rows.
unsafe fn combine_few<T: Combinable, C: Combiner<T>>(
    indices: Indices,
    [rows, width]: [usize; 2],
    updates: *const u8,
    dst: *mut u8,
) {
    let (updates, dst) = (Source(updates.cast::<T>()), Shared(dst.cast::<T>()));
    let (count, places) = (indices.len(), rows * width);
    let length = count.div_ceil((count / RUN.max(8 * places)).clamp(1, RUNS)).max(1);
    let runs = count.div_ceil(length).max(1);
    // Tasks must not share cache lines.
    let stride = places.next_multiple_of(64);
    let mut totals = working_memory::filled(C::identity(), runs * stride);
    // SAFETY: the first run starts from the existing values; `dst` has as many elements.
    totals[..places].iter_mut().enumerate().for_each(|(i, total)| *total = unsafe { (*dst.at(i)).widen() });
    let totals = Shared(totals.as_mut_ptr());
    pool::parallel_for(runs.div_ceil(SIDE_BY_SIDE), &|task| {
        let mut targets = [[0; BLOCK]; SIDE_BY_SIDE];
        let run = |lane: usize| task * SIDE_BY_SIDE + lane;
        for step in (0..length).step_by(BLOCK) {
            let mut counts = [0; SIDE_BY_SIDE];
            for (lane, (targets, here)) in targets.iter_mut().zip(&mut counts).enumerate() {
                let start = run(lane) * length + step;
                let end = ((run(lane) + 1) * length).min(count).min(start + BLOCK);
                if start < end {
                    *here = end - start;
                    // SAFETY: the indices of this run.
                    unsafe { indices.read(start, rows, &mut targets[..*here]) };
                }
            }
            // SAFETY: the totals of this task's runs, and the updates of these runs.
            unsafe {
                if width == 1 && counts == [BLOCK; SIDE_BY_SIDE] {
                    for i in 0..BLOCK {
                        for (lane, targets) in targets.iter().enumerate() {
                            let total = totals.at(run(lane) * stride + targets[i]);
                            let update = *updates.at(run(lane) * length + step + i);
                            *total = C::combine(*total, update.widen());
                        }
                    }
                    continue;
                }
                for (lane, targets) in targets.iter().enumerate() {
                    for (i, row) in targets[..counts[lane]].iter().enumerate() {
                        for column in 0..width {
                            let total = totals.at(run(lane) * stride + row * width + column);
                            let update = *updates.at((run(lane) * length + step + i) * width + column);
                            *total = C::combine(*total, update.widen());
                        }
                    }
                }
            }
        }
    });
    parallel_ranges(places, runs * size_of::<T::Accumulator>(), 64, |start, end| {
        for place in start..end {
            // SAFETY: all runs are done; these places belong to this task.
            unsafe {
                let of_run = |run: usize| *totals.at(run * stride + place);
                *dst.at(place) = T::narrow((1..runs).map(of_run).fold(of_run(0), C::combine));
            }
        }
    });
}
