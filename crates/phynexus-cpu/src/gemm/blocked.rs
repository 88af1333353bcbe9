//! Tiled products. B is packed once for all threads, A by each block; each only if packing pays off.

use std::ops::Range;

use super::kernels::Kernels;
use super::pack::{Accumulator, Lines, panel};
use super::scratch::Scratch;
use super::tile::Tile;
use super::{Output, Problem, part};
use crate::pool;

/// Steps of k for which B is packed at a time.
const K_CHUNK: usize = 4096;
/// Elements of B packed at a time.
const B_ELEMENTS: usize = 1 << 22;
/// Tiles per block of rows: with a block of k, they stay in the second-level cache.
const TILES: usize = 12;
/// Number of panels after which a block of C is passed to the epilogue.
const PANELS: usize = 8;
/// With at most this many elements of C and at least this many steps of k, the sum over k is divided among the threads.
const SPLIT_C: usize = 128 * 128;
const SPLIT_K: usize = 2048;

/// The sum over an empty k.
///
/// # Safety
/// Same as [`super::gemm`].
pub(super) unsafe fn zeros<T: Accumulator>(problem: &Problem<'_>) {
    let row = Scratch::new::<T>(problem.n);
    // SAFETY: the scratch has a row's elements; C may be written.
    unsafe {
        std::slice::from_raw_parts_mut(row.start::<std::mem::MaybeUninit<T>>(), problem.n)
            .fill(std::mem::MaybeUninit::new(T::default()));
        for i in 0..problem.m {
            let c = problem.c.corner(i, 0);
            T::store(row.start(), problem.n, c.dtype, c.data, c.column_stride);
        }
    }
    problem.finish(0..problem.m, 0..problem.n);
}

/// The state shared by the tasks of one product.
struct Plan<'a, T: 'static> {
    problem: &'a Problem<'a>,
    kernels: &'static Kernels<T>,
    pack_a: bool,
    /// Whether the kernels write C directly.
    direct: bool,
    /// The memory for sums, unless they are in C or local to each task: all of C, row by row.
    sums: Option<*mut T>,
}

// SAFETY: threads use the pointers on disjoint blocks.
unsafe impl<T> Sync for Plan<'_, T> {}

/// A part of k and of the columns: the work between two packings of B.
struct Stage<T> {
    /// Steps of k.
    k: Range<usize>,
    columns: Range<usize>,
    /// B's panels, or `None` to read B in place.
    packed: Option<*const T>,
    first: bool,
    last: bool,
}

// SAFETY: B's panels are only read.
unsafe impl<T> Sync for Stage<T> {}

/// Any product.
///
/// # Safety
/// Same as [`super::gemm`]; k must not be 0.
pub(super) unsafe fn product<T: Accumulator>(problem: &Problem<'_>) {
    let kernels = T::kernels(problem.set);
    if problem.m * problem.n <= SPLIT_C && problem.k >= SPLIT_K {
        // SAFETY: guaranteed by the caller.
        unsafe { split::<T>(problem, kernels) };
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { whole::<T>(problem, kernels) };
    }
}

/// A product whose sums over k are not divided among threads.
///
/// # Safety
/// Same as [`product`].
unsafe fn whole<T: Accumulator>(problem: &Problem<'_>, kernels: &'static Kernels<T>) {
    let Problem { m, n, k, a, b, c, .. } = *problem;
    let page = 4096 / size_of::<T>() as isize;
    // Rows whose stride is a multiple of a page map to the same lines of the first-level cache.
    let collides = |stride: isize| stride % page == 0 && stride != 0;
    let wide = n > 3 * kernels.columns();
    let pack_a = a.dtype != T::DTYPE
        || (wide && (m >= 128 || a.column_stride != 1 && a.row_stride != 1 || collides(a.row_stride)));
    let pack_b = b.dtype != T::DTYPE
        || b.column_stride != 1
        || m >= 96
        || (collides(b.row_stride) && m > 4 * kernels.rows());
    let direct = c.dtype == T::DTYPE && c.column_stride == 1;

    let chunk = if pack_b || !direct { K_CHUNK.min(k) } else { k };
    let width = kernels.columns();
    let strip =
        if pack_b { (B_ELEMENTS / chunk).next_multiple_of(width).min(n.next_multiple_of(width)) } else { n };
    let kept = (!direct && chunk < k).then(|| Scratch::new::<T>(m * n));
    let panels = pack_b.then(|| Scratch::new::<T>(chunk * strip));
    let plan = Plan { problem, kernels, pack_a, direct, sums: kept.as_ref().map(Scratch::start) };
    for k_start in (0..k).step_by(chunk) {
        for start in (0..n).step_by(strip) {
            let columns = start..n.min(start + strip);
            let steps = k_start..k.min(k_start + chunk);
            if let Some(panels) = &panels {
                // SAFETY: the scratch has room for a chunk of every panel of a strip.
                unsafe { pack_b_panels(&plan, &steps, &columns, panels.start()) };
            }
            let packed = panels.as_ref().map(|p| p.start::<T>().cast_const());
            let (first, last) = (k_start == 0, k_start + chunk >= k);
            // SAFETY: guaranteed by the caller.
            unsafe { stage(&plan, &Stage { k: steps, columns, packed, first, last }) };
        }
    }
}

/// Packs the panels of some columns of B with all threads.
///
/// # Safety
/// Same as [`product`]; `out` must have room for the panels.
unsafe fn pack_b_panels<T: Accumulator>(
    plan: &Plan<'_, T>,
    k: &Range<usize>,
    columns: &Range<usize>,
    out: *mut T,
) {
    let width = plan.kernels.columns();
    let count = columns.len().div_ceil(width);
    let group = (1usize << 13).div_ceil(width * k.len());
    let out = Shared(out);
    plan.problem.tasks(count.div_ceil(group), &|task| {
        for i in task * group..count.min((task + 1) * group) {
            let lanes = width.min(columns.len() - i * width);
            let b = plan.problem.b.corner(k.start, columns.start + i * width);
            let lines = Lines { data: b.data, dtype: b.dtype, lane: b.column_stride, step: b.row_stride };
            // SAFETY: the columns exist and this panel belongs to this task.
            unsafe { panel(lines, lanes, k.len(), out.get().add(i * width * k.len()), width, plan.kernels) };
        }
    });
}

/// Divides this stage's columns of C into blocks and computes them.
///
/// # Safety
/// Same as [`product`].
unsafe fn stage<T: Accumulator>(plan: &Plan<'_, T>, stage: &Stage<T>) {
    let threads = pool::threads();
    let tiles = plan.problem.m.div_ceil(plan.kernels.rows());
    let panels = stage.columns.len().div_ceil(plan.kernels.columns());
    let mut row_blocks = tiles.div_ceil(TILES);
    let mut column_blocks = 1;
    let work = plan.problem.m * stage.columns.len() * stage.k.len();
    if work >= super::SERIAL && threads > 1 {
        // Enough blocks to balance the threads, and a multiple of their number. Large products get more blocks, so that
        // a delayed thread costs less.
        let wanted = if work >> 22 >= threads { 4 * threads } else { threads };
        while row_blocks * column_blocks < wanted || !(row_blocks * column_blocks).is_multiple_of(threads) {
            if row_blocks * column_blocks >= 8 * threads {
                break;
            } else if column_blocks * 4 <= panels {
                column_blocks += 1;
            } else if row_blocks * 2 <= tiles {
                row_blocks += 1;
            } else if column_blocks < panels {
                column_blocks += 1;
            } else {
                break;
            }
        }
    }
    if !plan.direct && plan.sums.is_none() {
        // Each task keeps its own sums, which should stay in cache.
        column_blocks = column_blocks.max(panels.div_ceil(2 * PANELS));
    }
    plan.problem.tasks(row_blocks * column_blocks, &|task| {
        let tile_range = part(tiles, row_blocks, task / column_blocks);
        let panel_range = part(panels, column_blocks, task % column_blocks);
        // SAFETY: guaranteed by the caller; blocks are disjoint.
        unsafe { block(plan, stage, tile_range, panel_range) };
    });
}

/// Computes one block of C for the stage's part of k.
///
/// # Safety
/// Same as [`product`]; no other task may work on this block.
unsafe fn block<T: Accumulator>(
    plan: &Plan<'_, T>,
    stage: &Stage<T>,
    tiles: Range<usize>,
    panels: Range<usize>,
) {
    let Plan { problem, kernels, .. } = *plan;
    let width = kernels.columns();
    let all_tiles = problem.m.div_ceil(kernels.rows());
    // Tiles of nearly equal height: 64 rows become 13 13 13 13 12, not 14 14 14 14 8.
    let tile_rows = |t: usize| part(problem.m, all_tiles, t);
    let rows = tile_rows(tiles.start).start..tile_rows(tiles.end - 1).end;
    let column_start = panels.start * width;
    let column_end = stage.columns.len().min(panels.end * width);

    let a_scratch = plan.pack_a.then(|| Scratch::new::<T>(rows.len() * T::K_BLOCK.min(stage.k.len())));
    let own_sums = (!plan.direct && plan.sums.is_none())
        .then(|| Scratch::new::<T>(rows.len() * (column_end - column_start)));
    // The location of the sums of the block's first element.
    // SAFETY: an element of C, of the kept sums or of the scratch.
    let (sums, sums_row) = unsafe {
        match (&own_sums, plan.sums) {
            (Some(own), _) => (own.start::<T>(), (column_end - column_start) as isize),
            (None, Some(kept)) => {
                let at = rows.start * problem.n + stage.columns.start + column_start;
                (kept.add(at), problem.n as isize)
            }
            _ => {
                let c = problem.c.corner(rows.start, stage.columns.start + column_start);
                (c.data.cast::<T>(), c.row_stride)
            }
        }
    };
    let mut k = stage.k.start;
    while k < stage.k.end {
        pool::check();
        let steps = T::K_BLOCK.min(stage.k.end - k);
        if let Some(scratch) = &a_scratch {
            for t in tiles.clone() {
                let range = tile_rows(t);
                let a = problem.a.corner(range.start, k);
                let lines = Lines { data: a.data, dtype: a.dtype, lane: a.row_stride, step: a.column_stride };
                // SAFETY: the rows exist; tiles are packed in order, so excess writes of a tile are overwritten by the
                // next one.
                unsafe {
                    let out = scratch.start::<T>().add((range.start - rows.start) * steps);
                    panel(lines, range.len(), steps, out, range.len(), kernels);
                }
            }
        }
        let last = stage.last && k + steps == stage.k.end;
        let mut done = column_start;
        for p in panels.clone() {
            let columns = width.min(stage.columns.len() - p * width);
            let (b, b_step) = match stage.packed {
                Some(packed) => {
                    // SAFETY: inside the packed panels.
                    let b = unsafe { packed.add(p * width * stage.k.len() + (k - stage.k.start) * width) };
                    (b, width as isize)
                }
                None => {
                    let b = problem.b.corner(k, stage.columns.start + p * width);
                    (b.data.cast::<T>(), b.row_stride)
                }
            };
            let registers = columns.div_ceil(kernels.lanes);
            for t in tiles.clone() {
                let range = tile_rows(t);
                let (a, a_row, a_step) = match &a_scratch {
                    Some(scratch) => {
                        // SAFETY: inside the scratch.
                        let a = unsafe { scratch.start::<T>().add((range.start - rows.start) * steps) };
                        (a.cast_const(), 1, range.len() as isize)
                    }
                    None => {
                        let a = problem.a.corner(range.start, k);
                        (a.data.cast::<T>(), a.row_stride, a.column_stride)
                    }
                };
                // SAFETY: guaranteed by the caller; the tile is inside the block.
                unsafe {
                    let at =
                        (range.start - rows.start) as isize * sums_row + (p * width - column_start) as isize;
                    kernels.tiles[range.len() - 1][registers - 1](&Tile {
                        k: steps,
                        a,
                        a_row,
                        a_step,
                        b,
                        b_step,
                        c: sums.offset(at),
                        c_row: sums_row,
                        columns,
                        accumulate: !(stage.first && k == stage.k.start),
                    });
                }
            }
            let end = p * width + columns;
            if last && (p + 1 == panels.end || end - done >= PANELS * width) {
                let (from, to) = (stage.columns.start + done, stage.columns.start + end);
                if !plan.direct {
                    // SAFETY: the sums of this part of the block.
                    unsafe {
                        let sums = sums.add(done - column_start);
                        store(&problem.c.corner(rows.start, from), sums, sums_row, rows.len(), to - from);
                    }
                }
                problem.finish(rows.clone(), from..to);
                done = end;
            }
        }
        k += steps;
    }
}

/// Converts sums and stores them into a part of C.
///
/// # Safety
/// Both must exist.
unsafe fn store<T: Accumulator>(c: &Output, sums: *const T, sums_row: isize, rows: usize, columns: usize) {
    for i in 0..rows {
        let to = c.corner(i, 0);
        // SAFETY: guaranteed by the caller.
        unsafe { T::store(sums.offset(i as isize * sums_row), columns, c.dtype, to.data, c.column_stride) }
    }
}

/// For few elements of C and a deep k: divides the sum over k into parts whose length depends only on the shape,
/// computes them in parallel, and adds them in order.
///
/// # Safety
/// Same as [`product`].
unsafe fn split<T: Accumulator>(problem: &Problem<'_>, kernels: &'static Kernels<T>) {
    let Problem { m, n, k, a, b, .. } = *problem;
    let parts = (k / 512).clamp(2, 16);
    let size = m * n;
    let scratch = Scratch::new::<T>(parts * size);
    let sums = Shared(scratch.start::<T>());
    problem.tasks(parts, &|i| {
        let steps = part(k, parts, i);
        // SAFETY: this part of the scratch is used by no other task.
        let c = unsafe { sums.get().add(i * size) };
        let inner = Problem {
            a: a.corner(0, steps.start),
            b: b.corner(steps.start, 0),
            c: Output { data: c.cast(), dtype: T::DTYPE, row_stride: n as isize, column_stride: 1 },
            k: steps.len(),
            epilogue: None,
            ..*problem
        };
        // SAFETY: guaranteed by the caller.
        unsafe { whole::<T>(&inner, kernels) };
    });
    let blocks = pool::threads().min(m);
    problem.tasks(blocks, &|i| {
        let rows = part(m, blocks, i);
        let (start, count) = (rows.start * n, rows.len() * n);
        // SAFETY: all parts are done; these rows belong to this task, and the sums of part 0 become the total.
        unsafe {
            let total = std::slice::from_raw_parts_mut(sums.get().add(start), count);
            for i in 1..parts {
                let more = std::slice::from_raw_parts(sums.get().add(i * size + start), count);
                for (t, x) in total.iter_mut().zip(more) {
                    *t = t.add(*x);
                }
            }
            store(&problem.c.corner(rows.start, 0), total.as_ptr(), n as isize, rows.len(), n);
        }
        problem.finish(rows, 0..n);
    });
}

/// A pointer that threads use on disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(pub(crate) *mut T);

impl<T> Shared<T> {
    /// The pointer.
    pub(crate) fn get(&self) -> *mut T {
        self.0
    }
}

// SAFETY: the tasks that share it keep to disjoint parts.
unsafe impl<T> Sync for Shared<T> {}
