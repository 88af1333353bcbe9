//! The executor of fused kernels.
//!
//! A kernel is compiled once ([`FusedKernel::new`]) and run many times. Compilation brings the ranges to a normal form
//! (`normal`), chooses the lanes and the size of tiles (`plan`), classifies each index (`access`), and translates the
//! expression to calls of vector kernels on registers (`compile`, `allocate`). A run distributes tiles over the threads
//! (this file). Each thread executes the calls (`machine`) with its own memory, which stays in the first-level cache.
//! Contiguous operands are used in place, and results are computed at their destination.
//!
//! Results do not depend on the number of threads: the order of summation depends only on the shapes.

mod access;
mod allocate;
mod axis;
mod block;
mod compile;
mod copy;
mod emit;
mod machine;
mod movement;
mod normal;
mod plan;
mod program;
mod scratch;
mod strided;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use values::chain;

use phynexus::{Error, Result, device::Binding, kernel::fused::Fusion};
use smallvec::SmallVec;

use crate::{device::part, pool};
use access::Window;
pub(crate) use block::BlockKernel;
use machine::Machine;
use program::{Home, Pass, Program, Reduction, Schedule, elements};
pub(crate) use scratch::AlignedMemory;
use scratch::Shared;

/// A kernel prepared to run.
pub struct FusedKernel {
    /// `None` for a kernel without rows.
    program: Option<Program>,
    /// A plain copy, if the kernel is nothing else.
    copy: Option<copy::LayoutCopy>,
    parameters: usize,
    shared: Shared,
}

/// Kernels estimated below this time run on the caller's thread: waking another thread costs about as much.
const INLINE_NANOSECONDS: f64 = 8_000.0;
/// Number of segments of a long row between checks for interruption.
const SEGMENTS_UNTIL_ASKED: usize = 64;
/// Maximum number of groups of segments per row: each has its own memory.
const MOST_GROUPS: usize = 64;
/// Elements per task of several tiles.
const TASK_ELEMENTS: usize = 32 << 10;

/// The first element of each parameter, for all threads.
#[derive(Clone, Copy)]
struct Parameters<'a>(&'a [*mut u8]);

// SAFETY: threads store only to their own elements, and load what no thread stores.
unsafe impl Sync for Parameters<'_> {}

impl FusedKernel {
    /// Compiles a kernel.
    ///
    /// # Errors
    /// [`Error::Internal`] if an instruction does not support its dtypes.
    pub fn new(kernel: &Fusion) -> Result<FusedKernel> {
        let program = if kernel.row_count() == 0 { None } else { Some(compile::compile(kernel)?) };
        let copy = if kernel.row_count() == 0 { None } else { copy::LayoutCopy::of(kernel) };
        Ok(FusedKernel { program, copy, parameters: kernel.parameters.len(), shared: Shared::default() })
    }

    /// The number of parameters.
    pub(crate) fn parameters(&self) -> usize {
        self.parameters
    }

    /// The address of a parameter's first element. Checks that the binding holds every element that an unmasked index
    /// reaches.
    pub(crate) fn address(&self, parameter: usize, binding: &Binding) -> Result<*mut u8> {
        address(self.program.as_ref(), parameter, binding)
    }

    /// Runs the kernel on parameters given by the address of their first element.
    ///
    /// # Errors
    /// [`Error::Internal`] if there are too few parameters.
    ///
    /// # Safety
    /// Every element that an index reaches where its mask holds must be valid to read or to write. Written parameters
    /// may only overlap read parameters at the same address and with elements of the same size, all of whose loads are
    /// at the index of the store.
    pub unsafe fn run(&self, parameters: &[*mut u8]) -> Result<()> {
        if parameters.len() < self.parameters {
            return Err(Error::internal("phynexus_cpu::fused", "a parameter is not bound"));
        }
        let Some(program) = &self.program else { return Ok(()) };
        if let Some(copy) = &self.copy {
            // SAFETY: guaranteed by the caller; the number of parameters was checked.
            unsafe { copy.run(parameters) };
            return Ok(());
        }
        let parameters = Parameters(parameters);
        match &program.schedule {
            Schedule::Whole(_) => {
                let Some(whole) = Whole::new(program, parameters) else { return Ok(()) };
                // SAFETY: guaranteed by the caller.
                each(whole.tasks, false, &|task| unsafe { whole.task(task) });
            }
            Schedule::Chunked { rows, passes, end } => {
                let segments = program.segments.count;
                let per_group = segments.div_ceil(MOST_GROUPS).next_power_of_two();
                let groups = segments.div_ceil(per_group);
                let run = Chunked { program, parameters, rows: *rows, passes, end, per_group, groups };
                let tiles = program.cuts[*rows].count;
                let inline = program.nanoseconds < INLINE_NANOSECONDS;
                // SAFETY: guaranteed by the caller.
                unsafe {
                    if inline || groups == 1 || tiles >= 4 * pool::threads() {
                        run.row_tiles(tiles, inline);
                    } else {
                        run.groups(tiles, &self.shared);
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs several kernels, given the parameters of all in order. The tasks of kernels without chunks are distributed
    /// together.
    ///
    /// # Errors
    /// [`Error::Internal`] if there are too few parameters.
    ///
    /// # Safety
    /// Same as [`FusedKernel::run`]; in addition, no kernel may access what another one writes.
    pub(crate) unsafe fn run_all(kernels: &[FusedKernel], parameters: &[*mut u8]) -> Result<()> {
        if let [kernel] = kernels {
            // SAFETY: guaranteed by the caller.
            return unsafe { kernel.run(parameters) };
        }
        if parameters.len() < kernels.iter().map(|k| k.parameters).sum() {
            return Err(Error::internal("phynexus_cpu::fused", "a parameter is not bound"));
        }
        let mut runs: SmallVec<[Whole<'_>; 16]> = SmallVec::new();
        let mut nanoseconds = 0.0;
        let mut rest = parameters;
        for kernel in kernels {
            let (own, others) = rest.split_at(kernel.parameters);
            rest = others;
            let Some(program) = &kernel.program else { continue };
            match Whole::new(program, Parameters(own)) {
                Some(whole) => {
                    nanoseconds += program.nanoseconds;
                    runs.push(whole);
                }
                // SAFETY: guaranteed by the caller.
                None => unsafe { kernel.run(own)? },
            }
        }
        // Longest first, so that no thread ends with a long kernel.
        runs.sort_by_key(|whole| std::cmp::Reverse(whole.tasks));
        let mut starts: SmallVec<[usize; 16]> = SmallVec::new();
        let mut tasks = 0;
        for whole in &runs {
            starts.push(tasks);
            tasks += whole.tasks;
        }
        each(tasks, nanoseconds < INLINE_NANOSECONDS, &|task| {
            let at = starts.partition_point(|&start| start <= task) - 1;
            // SAFETY: guaranteed by the caller.
            unsafe { runs[at].task(task - starts[at]) };
        });
        Ok(())
    }
}

/// The address of a parameter's first element; see [`FusedKernel::address`].
fn address(program: Option<&Program>, parameter: usize, binding: &Binding) -> Result<*mut u8> {
    if let Some(extent) = program.and_then(|program| program.parameters.get(parameter)) {
        let (before, after) = (extent.before * extent.dtype.size(), extent.from_first * extent.dtype.size());
        let first = binding
            .offset
            .checked_sub(before)
            .ok_or_else(|| Error::internal("phynexus_cpu::fused", "a parameter begins before its buffer"))?;
        part(&binding.buffer, first, before + after)?;
    }
    part(&binding.buffer, binding.offset, 0)
}

/// Runs `body` for all tasks, on all threads or inline.
fn each(tasks: usize, inline: bool, body: &(dyn Fn(usize) + Sync)) {
    if inline || tasks <= 1 { (0..tasks).for_each(body) } else { pool::parallel_for(tasks, body) }
}

/// A kernel without chunks of columns, cut into tasks.
#[derive(Clone, Copy)]
struct Whole<'a> {
    program: &'a Program,
    codes: &'a [program::Code],
    parameters: Parameters<'a>,
    per_task: usize,
    tasks: usize,
}

impl<'a> Whole<'a> {
    /// `None` if the kernel's rows are cut into chunks.
    fn new(program: &'a Program, parameters: Parameters<'a>) -> Option<Whole<'a>> {
        let Schedule::Whole(codes) = &program.schedule else { return None };
        let [outer, lanes] = &program.cuts;
        let tiles = outer.count * lanes.count;
        let per_task = match program.nanoseconds < INLINE_NANOSECONDS {
            true => tiles,
            false => (TASK_ELEMENTS / (outer.longest * lanes.longest).max(1)).max(1),
        };
        Some(Whole { program, codes, parameters, per_task, tasks: tiles.div_ceil(per_task) })
    }

    /// # Safety
    /// Same as [`FusedKernel::run`].
    unsafe fn task(&self, task: usize) {
        let [outer, lanes] = &self.program.cuts;
        let tiles = outer.count * lanes.count;
        scratch::with(self.program, self.parameters.0, 0, |mut machine| {
            for tile in task * self.per_task..((task + 1) * self.per_task).min(tiles) {
                let pieces = [outer.piece(tile / lanes.count), lanes.piece(tile % lanes.count)];
                let window = Window { start: pieces.map(|p| p.0), count: pieces.map(|p| p.1) };
                machine.prepare(window, true);
                // SAFETY: guaranteed by the caller; the scratch has the program's size, and tiles are disjoint.
                unsafe { machine.run(self.codes, window) };
            }
        });
    }
}

/// A run of a kernel whose rows are too long for a tile.
#[derive(Clone, Copy)]
struct Chunked<'a> {
    program: &'a Program,
    parameters: Parameters<'a>,
    /// The axis of the rows.
    rows: usize,
    passes: &'a [Pass],
    end: &'a [program::Code],
    /// Segments per group: a power of two, so that a group is a branch of the tree.
    per_group: usize,
    /// Groups per row tile.
    groups: usize,
}

impl Chunked<'_> {
    /// The window of a row tile, without columns.
    fn row_window(&self, tile: usize) -> Window {
        let (start, count) = self.program.cuts[self.rows].piece(tile);
        let mut window = Window { start: [0, 0], count: [1, 1] };
        (window.start[self.rows], window.count[self.rows]) = (start, count);
        window
    }

    /// Runs row tiles: each task does a row tile from the first pass to the last.
    ///
    /// # Safety
    /// Same as [`FusedKernel::run`].
    unsafe fn row_tiles(&self, tiles: usize, inline: bool) {
        let body = |tile: usize| {
            scratch::with(self.program, self.parameters.0, self.groups * self.areas(), |mut machine| {
                let partials = machine.partial;
                let rows = self.row_window(tile);
                for (at, pass) in self.passes.iter().enumerate() {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        machine.prepare(rows, false);
                        machine.run(&pass.rows, rows);
                        for group in 0..self.groups {
                            machine.partial = partials.add(group * self.areas() * self.program.partial_bytes);
                            self.group(&mut machine, pass, at, rows, group);
                        }
                        machine.partial = partials;
                        self.combine(&pass.reductions, partials, machine.state, rows);
                    }
                }
                machine.prepare(rows, false);
                // SAFETY: guaranteed by the caller.
                unsafe { machine.run(self.end, rows) };
            });
        };
        each(tiles, inline, &body);
    }

    /// Runs groups: each task does a group of one row tile; threads synchronise between passes.
    ///
    /// # Safety
    /// Same as [`FusedKernel::run`].
    unsafe fn groups(&self, tiles: usize, shared: &Shared) {
        let (state_bytes, group_bytes) =
            (self.program.state_bytes, self.areas() * self.program.partial_bytes);
        let all_partials = self.groups * group_bytes;
        shared.with(tiles * (state_bytes + all_partials), |memory| {
            // SAFETY: the areas of row tiles are consecutive.
            let state = |tile: usize| unsafe { memory.pointer().add(tile * state_bytes) };
            // SAFETY: the partial results follow the states.
            let partials =
                |tile: usize| unsafe { memory.pointer().add(tiles * state_bytes + tile * all_partials) };
            let in_rows = |codes: &[program::Code]| {
                for tile in 0..tiles {
                    scratch::with(self.program, self.parameters.0, 0, |mut machine| {
                        machine.state = state(tile);
                        let rows = self.row_window(tile);
                        machine.prepare(rows, false);
                        // SAFETY: guaranteed by the caller.
                        unsafe { machine.run(codes, rows) };
                    });
                }
            };
            for (at, pass) in self.passes.iter().enumerate() {
                in_rows(&pass.rows);
                let body = |task: usize| {
                    let (tile, group) = (task / self.groups, task % self.groups);
                    scratch::with(self.program, self.parameters.0, 0, |mut machine| {
                        machine.state = state(tile);
                        // SAFETY: guaranteed by the caller; the group has its own area.
                        unsafe {
                            machine.partial = partials(tile).add(group * group_bytes);
                            self.group(&mut machine, pass, at, self.row_window(tile), group);
                        }
                    });
                };
                each(tiles * self.groups, false, &body);
                for tile in 0..tiles {
                    // SAFETY: guaranteed by the caller; all groups are done.
                    unsafe {
                        self.combine(&pass.reductions, partials(tile), state(tile), self.row_window(tile))
                    };
                }
            }
            in_rows(self.end);
        });
    }

    /// The number of partial results that a group holds at a time: one for each branch of the tree that waits for its
    /// sibling.
    fn areas(&self) -> usize {
        self.per_group.ilog2() as usize + 1
    }

    /// Processes one group: combines its segments in a tree into the machine's first partial results.
    ///
    /// # Safety
    /// Same as [`FusedKernel::run`].
    unsafe fn group(&self, machine: &mut Machine<'_>, pass: &Pass, at: usize, rows: Window, group: usize) {
        let first = group * self.per_group;
        let count = self.per_group.min(self.program.segments.count - first);
        let areas = machine.partial;
        // SAFETY: there are as many areas as waiting branches.
        let area = |branch: usize| unsafe { areas.add(branch * self.program.partial_bytes) };
        let merge = |branch: usize| {
            for reduction in &pass.reductions {
                let slot = self.program.slots[reduction.partial];
                let Home::Partial(offset) = slot.home else { continue };
                let count = elements(slot.varies, rows.count);
                // SAFETY: guaranteed by the caller; both are partial results.
                unsafe {
                    let (left, right) = (area(branch - 1).add(offset), area(branch).add(offset));
                    (reduction.combine)(left, right, left, count);
                }
            }
        };
        for segment in 0..count {
            if segment % SEGMENTS_UNTIL_ASKED == SEGMENTS_UNTIL_ASKED - 1 {
                pool::check();
            }
            // Each set bit of the segment number is a finished branch that waits for its sibling.
            let mut branch = segment.count_ones() as usize;
            machine.partial = area(branch);
            // SAFETY: guaranteed by the caller.
            unsafe { self.segment(machine, pass, at, rows, first + segment) };
            for _ in 0..segment.trailing_ones() {
                merge(branch);
                branch -= 1;
            }
        }
        (1..count.count_ones() as usize).rev().for_each(merge);
        machine.partial = areas;
    }

    /// Accumulates one segment into the machine's partial results.
    ///
    /// # Safety
    /// Same as [`FusedKernel::run`].
    unsafe fn segment(
        &self,
        machine: &mut Machine<'_>,
        pass: &Pass,
        at: usize,
        rows: Window,
        segment: usize,
    ) {
        let program = self.program;
        for reduction in &pass.reductions {
            let slot = program.slots[reduction.partial];
            if let Home::Partial(offset) = slot.home {
                let count = program.partial_sums() * program.partial_pitch(reduction.partial) / slot.size;
                // SAFETY: the partial result has room for the sums of the longest row tile.
                unsafe { machine::fill(machine.partial.add(offset), reduction.identity, slot.size, count) };
            }
        }
        let (first, count) = program.segments.piece(segment);
        let chunk = program.cuts[1 - self.rows].longest;
        for done in (0..count).step_by(chunk) {
            let mut tile = rows;
            (tile.start[1 - self.rows], tile.count[1 - self.rows]) = (first + done, chunk.min(count - done));
            // Only the last pass stores columns.
            machine.prepare(tile, at + 1 == self.passes.len());
            // SAFETY: guaranteed by the caller.
            unsafe { machine.run(&pass.columns, tile) };
        }
        // The sums of the segment's columns, pairwise. Sums of missing columns are identities.
        for reduction in &pass.reductions {
            let slot = program.slots[reduction.partial];
            let Home::Partial(offset) = slot.home else { continue };
            let (count, pitch) =
                (elements(slot.varies, rows.count), program.partial_pitch(reduction.partial));
            let mut width = program.partial_sums() / 2;
            while width > 0 {
                for at in 0..width {
                    // SAFETY: guaranteed by the caller; both are among the partial result's sums.
                    unsafe {
                        let sum = machine.partial.add(offset + at * pitch);
                        (reduction.combine)(sum, sum.add(width * pitch), sum, count);
                    }
                }
                width /= 2;
            }
        }
    }

    /// Adds the groups' partial results in a tree and keeps the sums in the rows' state.
    ///
    /// # Safety
    /// The areas must have the program's sizes, and access must be exclusive.
    unsafe fn combine(&self, reductions: &[Reduction], partials: *mut u8, state: *mut u8, rows: Window) {
        let program = self.program;
        for reduction in reductions {
            let (partial, result) = (program.slots[reduction.partial], program.slots[reduction.result]);
            let (Home::Partial(from), Home::State(to)) = (partial.home, result.home) else { continue };
            let count = elements(partial.varies, rows.count);
            // SAFETY: guaranteed by the caller.
            unsafe {
                let part = |group: usize| partials.add(group * self.areas() * program.partial_bytes + from);
                let mut stride = 1;
                while stride < self.groups {
                    for group in (0..self.groups - stride).step_by(2 * stride) {
                        (reduction.combine)(part(group), part(group + stride), part(group), count);
                    }
                    stride *= 2;
                }
                std::ptr::copy_nonoverlapping(part(0), state.add(to), count * partial.size);
            }
        }
    }
}
