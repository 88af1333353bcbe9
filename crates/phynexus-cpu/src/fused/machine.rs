//! Runs a program on one tile: its instructions, one vector kernel after another.

use smallvec::SmallVec;

use super::{
    access::{Varies, Window},
    axis::{LANES, OUTER},
    movement::{self, Block, Steps},
    program::{Code, Home, Load, Program, Slot, SlotId, Store, elements},
};
use crate::vector::{BinaryKernel, ReduceKernel, SUM_LANES};

/// The address of a value for the current tile.
#[derive(Clone, Copy)]
pub(super) struct SlotAddress {
    pointer: *mut u8,
    /// Bytes between outer positions.
    step: isize,
    /// Whether the value is already at the destination of its store.
    stored: bool,
}

impl SlotAddress {
    pub(super) const NOWHERE: SlotAddress =
        SlotAddress { pointer: std::ptr::null_mut(), step: 0, stored: false };
}

/// The memory that a thread works with.
pub(super) struct Machine<'a> {
    pub(super) program: &'a Program,
    /// The first element of each parameter.
    pub(super) parameters: &'a [*mut u8],
    /// Registers, followed by the staging area.
    pub(super) scratch: *mut u8,
    /// The state of the current rows.
    pub(super) state: *mut u8,
    /// The partial results of the current group.
    pub(super) partial: *mut u8,
    /// One address per slot.
    pub(super) addresses: &'a mut [SlotAddress],
}

impl Machine<'_> {
    fn staging(&self) -> *mut u8 {
        // SAFETY: the staging area follows the registers.
        unsafe { self.scratch.add(self.program.register_bytes) }
    }

    /// Sets every slot's address for a tile. With `store`, values are computed directly into memory if possible.
    pub(super) fn prepare(&mut self, tile: Window, store: bool) {
        let lanes = tile.count[LANES];
        for (address, slot) in self.addresses.iter_mut().zip(&self.program.slots) {
            // SAFETY: offsets lie within the areas, whose sizes the program determines.
            let pointer = unsafe {
                match slot.home {
                    Home::Register(offset) => self.scratch.add(offset),
                    Home::State(offset) => self.state.wrapping_add(offset),
                    Home::Partial(offset) => self.partial.wrapping_add(offset),
                    Home::Constant(at) => std::ptr::from_ref(&self.program.constants[at]).cast_mut().cast(),
                }
            };
            *address = SlotAddress { pointer, step: step(slot, lanes as isize), stored: false };
        }
        for &(slot, store_at) in self.program.direct.iter().filter(|_| store) {
            let store: &Store = &self.program.stores[store_at];
            if let Some((offset, pitch)) = store.access.direct(tile) {
                // SAFETY: the access's elements lie within the parameter.
                let pointer =
                    unsafe { self.parameters[store.parameter].offset(offset * store.size as isize) };
                let step = step(&self.program.slots[slot], pitch);
                self.addresses[slot] = SlotAddress { pointer, step, stored: true };
            }
        }
    }

    /// `(rows, elements per row)` of a value in this tile.
    fn shape(&self, varies: Varies, tile: Window) -> (usize, usize) {
        if varies == Varies::EVERYWHERE {
            (tile.count[OUTER], tile.count[LANES])
        } else {
            (1, elements(varies, tile.count))
        }
    }

    /// True if a value's elements are contiguous, or there is only one.
    fn is_dense(&self, slot: SlotId, tile: Window) -> bool {
        let Slot { size, varies, .. } = self.program.slots[slot];
        varies == Varies::NOWHERE
            || (varies == Varies::EVERYWHERE
                && self.addresses[slot].step == (tile.count[LANES] * size) as isize)
    }

    /// Calls `body` with pointers to each row of the target and the sources, and the number of elements per row; once
    /// for the whole tile if the rows have no gaps.
    #[inline(always)]
    fn rows<const N: usize>(
        &self,
        sources: [SlotId; N],
        target: SlotId,
        tile: Window,
        mut body: impl FnMut([*const u8; N], *mut u8, usize),
    ) {
        let (rows, count) = self.shape(self.program.slots[target].varies, tile);
        let from = sources.map(|slot| self.addresses[slot]);
        let to = self.addresses[target];
        let flat = rows <= 1
            || (self.is_dense(target, tile) && sources.iter().all(|&slot| self.is_dense(slot, tile)));
        if flat {
            return body(from.map(|p| p.pointer.cast_const()), to.pointer, rows * count);
        }
        for row in 0..rows as isize {
            let row_of = |p: SlotAddress| p.pointer.wrapping_offset(row * p.step);
            body(from.map(|p| row_of(p).cast_const()), row_of(to), count);
        }
    }

    /// Runs a list of codes on a prepared tile.
    ///
    /// # Safety
    /// The program's indices must stay within the parameters, the areas must have the program's sizes, and nothing else
    /// may access the areas or the elements that this tile stores.
    pub(super) unsafe fn run(&mut self, codes: &[Code], tile: Window) {
        for code in codes {
            // SAFETY: kernels get pointers to as many elements as the slots hold for this tile; scalar operands are
            // used if a row of the result needs one element. Operands and results are identical or disjoint memory.
            unsafe {
                match *code {
                    Code::Load { load, target } => self.load(&self.program.loads[load], target, tile),
                    Code::Coordinate { access, cast, target } => {
                        let access = &self.program.coordinates[access];
                        let address = self.addresses[target].pointer;
                        match cast {
                            None => access.coordinates(tile, address.cast()),
                            Some(cast) => {
                                access.coordinates(tile, self.staging().cast());
                                cast(self.staging(), address, elements(access.varies, tile.count));
                            }
                        }
                    }
                    Code::Unary { kernel, source, target } => {
                        self.rows([source], target, tile, |[a], to, count| kernel(a, to, count));
                    }
                    Code::Binary { kernel, sources, target } => {
                        self.rows(sources, target, tile, |[a, b], to, count| kernel(a, b, to, count));
                    }
                    Code::Ternary { kernel, sources, target } => {
                        self.rows(sources, target, tile, |[a, b, c], to, count| kernel(a, b, c, to, count));
                    }
                    Code::Expand { source, target } => self.expand(source, target, tile),
                    Code::ReduceVector { kernel, source, target, start } => {
                        let Slot { size, varies, .. } = self.program.slots[source];
                        let (rows, count) = self.shape(varies, tile);
                        let (from, to) = (self.addresses[source], self.addresses[target]);
                        for row in 0..rows {
                            let source = from.pointer.offset(row as isize * from.step);
                            let fold = |first: usize, to: *mut u8, n: usize| {
                                kernel(source.add(first * size), to, n);
                            };
                            self.segments(kernel, to.pointer.add(row * size), start, size, count, fold);
                        }
                    }
                    Code::ReducePair { kernel, combine, sources: [a, b], target, start } => {
                        let Slot { size, varies, .. } = self.program.slots[a];
                        let (rows, count) = self.shape(varies.or(self.program.slots[b].varies), tile);
                        let [a, b, to] = [a, b, target].map(|slot| self.addresses[slot]);
                        for row in 0..rows {
                            let [a, b] = [a, b].map(|p| p.pointer.offset(row as isize * p.step));
                            let fold = |first: usize, to: *mut u8, n: usize| {
                                kernel(a.add(first * size), b.add(first * size), to, n);
                            };
                            self.segments(combine, to.pointer.add(row * size), start, size, count, fold);
                        }
                    }
                    Code::ReduceOuter { kernel, source, target, start } => {
                        let size = self.program.slots[source].size;
                        let [outer, lanes] = tile.count;
                        let (from, to) = (self.addresses[source], self.addresses[target].pointer);
                        let row = |row: usize| from.pointer.offset(row as isize * from.step).cast_const();
                        match start {
                            // A chunk has a sum for each of its columns.
                            None => {
                                let pitch = self.program.partial_pitch(target);
                                for column in 0..outer {
                                    let to = to.add(column * pitch);
                                    kernel(to, row(column), to, lanes);
                                }
                            }
                            Some(word) => {
                                fill(to, word, size, lanes);
                                for segment in 0..self.program.segments.count {
                                    let (first, count) = self.program.segments.piece(segment);
                                    let rows = |at: usize| row(first + at);
                                    sum_rows(kernel, rows, count, self.staging(), lanes, size);
                                    kernel(to, self.staging(), to, lanes);
                                }
                            }
                        }
                    }
                    Code::Store { store, source } => {
                        if !self.addresses[source].stored || !self.is_direct(source, store) {
                            self.store(&self.program.stores[store], source, tile);
                        }
                    }
                }
            }
        }
    }

    /// Combines a row along the lanes into an element that starts from `start`, or, for a segment, from its current
    /// value. `fold` combines some adjacent columns; its arguments are the first column, the destination and the count.
    ///
    /// # Safety
    /// `to` must be an element of `size` bytes, and `fold` must be valid for all of `count` columns.
    unsafe fn segments(
        &self,
        combine: ReduceKernel,
        to: *mut u8,
        start: Option<u64>,
        size: usize,
        count: usize,
        fold: impl Fn(usize, *mut u8, usize),
    ) {
        let segments = &self.program.segments;
        // SAFETY: guaranteed by the caller; a word is as large as the largest element.
        unsafe {
            let Some(identity) = start else { return fold(0, to, count) };
            set(to, identity, size);
            if segments.count == 1 {
                return fold(0, to, count);
            }
            let mut parts: SmallVec<[u64; 8]> = SmallVec::from_elem(identity, segments.count);
            for (segment, part) in parts.iter_mut().enumerate() {
                let (first, count) = segments.piece(segment);
                fold(first, std::ptr::from_mut(part).cast(), count);
            }
            let mut stride = 1;
            while stride < parts.len() {
                for at in (0..parts.len() - stride).step_by(2 * stride) {
                    let other = parts[at + stride];
                    combine(std::ptr::from_ref(&other).cast(), std::ptr::from_mut(&mut parts[at]).cast(), 1);
                }
                stride *= 2;
            }
            std::ptr::copy_nonoverlapping(parts.as_ptr().cast(), to, size);
        }
    }

    /// True if a value that was computed into memory is already at the destination of this store.
    fn is_direct(&self, source: SlotId, store: usize) -> bool {
        self.program.direct.iter().any(|&(slot, at)| slot == source && at == store)
    }

    /// # Safety
    /// Same as [`Machine::run`].
    unsafe fn load(&mut self, load: &Load, target: SlotId, tile: Window) {
        let slot = self.program.slots[target];
        let parameter = self.parameters[load.parameter];
        let register = self.addresses[target].pointer;
        let fill = std::ptr::from_ref(&load.fill).cast();
        let direct = load.access.direct(tile);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match (load.cast, direct) {
                (None, Some((offset, pitch))) if load.in_place => {
                    let pointer = parameter.offset(offset * load.size as isize);
                    self.addresses[target] = SlotAddress { pointer, step: step(&slot, pitch), stored: false };
                }
                (None, _) => load.access.load(tile, load.size, parameter, fill, register),
                (Some(cast), Some((offset, pitch))) => {
                    let (rows, count) = self.shape(slot.varies, tile);
                    let source = parameter.offset(offset * load.size as isize);
                    if rows == 1 || pitch == count as isize {
                        cast(source, register, rows * count);
                    } else {
                        for row in 0..rows {
                            let from = source.offset(row as isize * pitch * load.size as isize);
                            cast(from, register.add(row * count * slot.size), count);
                        }
                    }
                }
                (Some(cast), None) => {
                    load.access.load(tile, load.size, parameter, fill, self.staging());
                    cast(self.staging(), register, elements(slot.varies, tile.count));
                }
            }
        }
    }

    /// # Safety
    /// Same as [`Machine::run`].
    unsafe fn store(&self, store: &Store, source: SlotId, tile: Window) {
        let slot = self.program.slots[source];
        let address = self.addresses[source];
        let parameter = self.parameters[store.parameter];
        let (rows, count) = self.shape(slot.varies, tile);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let Some(cast) = store.cast else {
                return store.access.store(
                    tile,
                    store.size,
                    address.pointer,
                    address.step / slot.size as isize,
                    parameter,
                );
            };
            let direct = store.access.direct(tile);
            let (target, pitch) = match direct {
                Some((offset, pitch)) => (parameter.offset(offset * store.size as isize), pitch),
                None => (self.staging(), count as isize),
            };
            if rows == 1 || (pitch == count as isize && self.is_dense(source, tile)) {
                cast(address.pointer, target, rows * count);
            } else {
                for row in 0..rows as isize {
                    let to = target.offset(row * pitch * store.size as isize);
                    cast(address.pointer.offset(row * address.step), to, count);
                }
            }
            if direct.is_none() {
                store.access.store(tile, store.size, target, pitch, parameter);
            }
        }
    }

    /// # Safety
    /// Same as [`Machine::run`].
    unsafe fn expand(&self, source: SlotId, target: SlotId, tile: Window) {
        let Slot { size, varies: has, .. } = self.program.slots[source];
        let (from, to) = (self.addresses[source], self.addresses[target]);
        let (rows, count) = self.shape(self.program.slots[target].varies, tile);
        // Within a single row, a source that varies along the outer axis is an ordinary vector.
        let steps = match rows {
            1 if self.program.slots[target].varies != Varies::EVERYWHERE => {
                Steps { row: 0, element: isize::from(has != Varies::NOWHERE) }
            }
            _ => Steps { row: from.step / size as isize, element: isize::from(has.on(LANES)) },
        };
        let pitch = Steps { row: to.step / size as isize, element: 1 };
        // SAFETY: guaranteed by the caller.
        unsafe { movement::copy(size, Block { rows, count }, from.pointer, steps, to.pointer, pitch) }
    }
}

/// Combines `count` rows of `lanes` elements, the columns of a segment, into one row at `sums`, which has room for
/// [`SUM_LANES`] rows, or `count` if that is less.
///
/// # Safety
/// `row` must return readable rows, and `sums` must have that room.
unsafe fn sum_rows(
    kernel: BinaryKernel,
    row: impl Fn(usize) -> *const u8,
    count: usize,
    sums: *mut u8,
    lanes: usize,
    size: usize,
) {
    let pitch = lanes * size;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let sum = |at: usize| sums.add(at * pitch);
        let held = count.min(SUM_LANES);
        // The first step that has any pairs. If no rows follow, these pairs complete the sum.
        let mut width = held.next_power_of_two() / 2;
        if count <= SUM_LANES && width > 0 {
            for at in 0..width {
                match at + width < held {
                    true => kernel(row(at), row(at + width), sum(at), lanes),
                    false => std::ptr::copy_nonoverlapping(row(at), sum(at), pitch),
                }
            }
            width /= 2;
        } else {
            for at in 0..held {
                match at + SUM_LANES < count {
                    true => kernel(row(at), row(at + SUM_LANES), sum(at), lanes),
                    false => std::ptr::copy_nonoverlapping(row(at), sum(at), pitch),
                }
            }
            for at in 2 * SUM_LANES..count {
                let to = sum(at % SUM_LANES);
                kernel(to, row(at), to, lanes);
            }
        }
        while width > 0 {
            for at in (0..width).take_while(|at| at + width < held) {
                kernel(sum(at), sum(at + width), sum(at), lanes);
            }
            width /= 2;
        }
    }
}

/// Bytes between the outer positions of a value whose full tiles have this pitch.
fn step(slot: &Slot, pitch: isize) -> isize {
    let size = slot.size as isize;
    match (slot.varies.on(OUTER), slot.varies.on(LANES)) {
        (true, true) => pitch * size,
        (true, false) => size,
        _ => 0,
    }
}

/// Writes the element at the start of a word.
///
/// # Safety
/// `target` must have room for an element of `size` bytes.
pub(super) unsafe fn set(target: *mut u8, word: u64, size: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { std::ptr::copy_nonoverlapping(std::ptr::from_ref(&word).cast(), target, size) }
}

/// Writes the element at the start of a word `count` times.
///
/// # Safety
/// `target` must have room for `count` elements of `size` bytes.
pub(super) unsafe fn fill(target: *mut u8, word: u64, size: usize, count: usize) {
    // SAFETY: guaranteed by the caller; a word is aligned for every element.
    unsafe { movement::fill(size, Block { rows: 1, count }, std::ptr::from_ref(&word).cast(), target, 0) }
}
