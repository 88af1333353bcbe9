//! Updates of rows by index.

use std::ops::Range;

use phynexus::graph::op::{Combine, ScatterMode};
use phynexus::{DType, host_memory, interrupt};

use super::element::{Combinable, Combiner, by_combine, combines};
use super::index::{BLOCK, Indices};
use super::{Shared, Source, parallel_ranges};
use crate::by_dtype::by_dtype;
use crate::{pool, working_memory};

/// Columns that are combined side by side.
const COLUMNS: usize = 256;
/// Rows narrower than this are combined element by element.
const NARROW: usize = 8;
/// As many totals stay in the second-level cache.
const CACHED: usize = 1 << 16;
/// Updates between two questions whether to go on.
const UNASKED: usize = 1 << 18;
/// The most runs of updates that have totals of their own.
const RUNS: usize = 64;
/// The least updates of a run.
const RUN: usize = 4096;
/// Runs that are taken side by side: updates of one element then seldom wait for each other.
const SIDE_BY_SIDE: usize = 4;

/// `dst` becomes `src` with row `index[i]` set to, or combined with, row i of `updates`, in the order of the indices;
/// where many updates meet few elements, runs of updates are combined by themselves first, cut as the sizes say. 16-bit
/// floats are combined in `f32` and rounded once. Negative indices count from the end.
///
/// # Errors
/// The first index outside `-rows..rows`, as it is; nothing is written then. Sums and products of `bool` are no
/// combination: `dst` becomes `src`.
///
/// # Safety
/// `src` and `dst` address `rows * width` elements of `dtype` and are equal or do not overlap; `updates` addresses
/// `width` elements for each index; `dst` overlaps neither the updates nor the indices.
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
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        if !std::ptr::eq(src, dst) {
            let (from, to) = (Source(src), Shared(dst));
            parallel_ranges(rows * row_bytes, 1, 64, |start, end| {
                std::ptr::copy_nonoverlapping(from.at(start), to.at(start), end - start);
            });
        }
        match mode {
            ScatterMode::Set => set(&Groups::new(&targets, rows), row_bytes, updates, dst),
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

/// The updates ordered by destination, and by index for one destination: destinations can then be shared out to threads.
struct Groups {
    /// (destination, update).
    pairs: Vec<(usize, usize)>,
}

impl Groups {
    /// `targets[i]` is the destination of update i, one of `rows`.
    fn new(targets: &[usize], rows: usize) -> Groups {
        if rows > 8 * targets.len() {
            let mut pairs = interrupt::or_leave(host_memory::room(targets.len()));
            pairs.extend(targets.iter().enumerate().map(|(i, &row)| (row, i)));
            pairs.sort_unstable();
            return Groups { pairs };
        }
        // A counting sort: where the updates of each destination start.
        let mut starts = working_memory::filled(0usize, rows + 1);
        for targets in targets.chunks(UNASKED) {
            pool::check();
            targets.iter().for_each(|row| starts[row + 1] += 1);
        }
        (0..rows).for_each(|r| starts[r + 1] += starts[r]);
        let mut pairs = working_memory::filled((0, 0), targets.len());
        for (block, targets) in targets.chunks(UNASKED).enumerate() {
            pool::check();
            for (i, &row) in targets.iter().enumerate() {
                pairs[starts[row]] = (row, block * UNASKED + i);
                starts[row] += 1;
            }
        }
        Groups { pairs }
    }

    /// Calls `body` with ranges of pairs in parallel; no destination is in two ranges.
    fn for_ranges(&self, row_bytes: usize, body: impl Fn(Range<usize>) + Sync) {
        let pairs = &self.pairs;
        // The start of the group that holds pair i or, if i is inside one, of the next.
        let boundary = |i: usize| match i.checked_sub(1).and_then(|before| pairs.get(before)) {
            Some(&(destination, _)) if i < pairs.len() => {
                i + pairs[i..].partition_point(|pair| pair.0 == destination)
            }
            _ => i,
        };
        parallel_ranges(pairs.len(), row_bytes + 16, 1, |start, end| body(boundary(start)..boundary(end)));
    }
}

/// The last update of each destination is copied.
///
/// # Safety
/// As for [`scatter`].
unsafe fn set(groups: &Groups, row_bytes: usize, updates: *const u8, dst: *mut u8) {
    let (updates, dst) = (Source(updates), Shared(dst));
    groups.for_ranges(row_bytes, |range| {
        for group in groups.pairs[range].chunk_by(|a, b| a.0 == b.0) {
            let Some(&(destination, update)) = group.last() else { continue };
            // SAFETY: destination and update are rows of their buffers; the destination is this task's own.
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

/// # Safety
/// As for [`scatter`]; all targets are rows.
unsafe fn combine_rows<T: Combinable, C: Combiner<T>>(
    targets: &[usize],
    [rows, width]: [usize; 2],
    updates: *const u8,
    dst: *mut u8,
) {
    let groups = Groups::new(targets, rows);
    let (updates, dst) = (Source(updates.cast::<T>()), Shared(dst.cast::<T>()));
    groups.for_ranges(width * size_of::<T>(), |range| {
        for group in groups.pairs[range].chunk_by(|a, b| a.0 == b.0) {
            let destination = group[0].0;
            if width < NARROW {
                for column in 0..width {
                    // SAFETY: as below.
                    unsafe {
                        let out = dst.at(destination * width + column);
                        let total = group.iter().fold((*out).widen(), |total, &(_, update)| {
                            C::combine(total, (*updates.at(update * width + column)).widen())
                        });
                        *out = T::narrow(total);
                    }
                }
                continue;
            }
            for first in (0..width).step_by(COLUMNS) {
                let columns = COLUMNS.min(width - first);
                // SAFETY: destination and updates are rows of their buffers, the columns lie within them; the
                // destination is this task's own.
                unsafe {
                    let out = std::slice::from_raw_parts_mut(dst.at(destination * width + first), columns);
                    let mut totals = [out[0].widen(); COLUMNS];
                    totals.iter_mut().zip(&*out).for_each(|(total, x)| *total = x.widen());
                    for &(_, update) in group {
                        let row = std::slice::from_raw_parts(updates.at(update * width + first), columns);
                        totals
                            .iter_mut()
                            .zip(row)
                            .for_each(|(total, x)| *total = C::combine(*total, x.widen()));
                    }
                    out.iter_mut().zip(&totals).for_each(|(x, total)| *x = T::narrow(*total));
                }
            }
        }
    });
}

/// Few destinations: every run of updates has totals of them, which are combined in the runs' order. How updates are cut
/// into runs depends on the sizes alone.
///
/// # Safety
/// As for [`scatter`]; all indices are rows.
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
    // Tasks do not share cache lines.
    let stride = places.next_multiple_of(64);
    let mut totals = working_memory::filled(C::identity(), runs * stride);
    // SAFETY: the first run goes on from what is there; `dst` has as many elements.
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
                    // SAFETY: indices of this run.
                    unsafe { indices.read(start, rows, &mut targets[..*here]) };
                }
            }
            // SAFETY: totals of this task's runs, and updates of these runs.
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
            // SAFETY: all runs are done; these places are this task's own.
            unsafe {
                let of_run = |run: usize| *totals.at(run * stride + place);
                *dst.at(place) = T::narrow((1..runs).map(of_run).fold(of_run(0), C::combine));
            }
        }
    });
}
