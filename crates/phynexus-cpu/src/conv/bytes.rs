//! Convolutions of 8-bit integers with exact 32-bit results, as implicit matrix products. Rows are the result's channels,
//! columns its positions, and a step of the sum is a tap of a word of bytes (see `words`).
//!
//! If words hold four bytes, the machine multiplies unsigned bytes of the image by signed bytes of the filter. A signed
//! image is shifted up by 128, its padding too: with x = x' + s, `sum x w = sum x' w + s sum w`, modulo 2^32. An unsigned
//! filter would need the sum of each window; words then hold two 16-bit integers.
//!
//! The words of a whole padded image are held at once. If padding or strides make them many more than those of the image,
//! the general code computes the result from parts of it (see `correlate`).

use std::ops::Range;

use phynexus::{DType, Error, interrupt::or_leave};

use super::correlate::{Correlation, correlate};
use super::slab::{Layout, cut};
use super::words::{Along, Image};
use super::{FinishedBlock, PITCH};
use crate::gemm::blocked::Shared;
use crate::gemm::part;
use crate::gemm::scratch::Scratch;
use crate::kernels::bytes::{ByteKernels, ByteTaps, ByteTile, MAX_COLUMNS, Signed, kernels};
use crate::kernels::patches::{Gather, Segment};
use crate::kernels::words::Packing;
use crate::kernels::{HasKernels, Kernels};
use crate::pool;

/// Number of panels of positions after which a part of the result is reported as final.
pub(super) const PANELS: usize = 8;
/// Elements of a block that is not stored as a whole: it fits in the second-level cache, next to the weights.
const BLOCK: usize = 1 << 15;

/// A convolution prepared to run.
struct Plan<'a> {
    job: &'a Correlation<'a>,
    /// Called for blocks of a result that is not stored.
    blocks: Option<FinishedBlock<'a>>,
    kernels: &'static ByteKernels,
    /// Gathers and transposes words, of which it only moves the bits.
    movement: &'static Kernels<f32>,
    image: &'a Image,
    layout: Layout<'a>,
    of_filter: Packing,
    /// For each word of a sum, its offset for position 0.
    offsets: Vec<usize>,
    segments: Vec<Segment>,
    /// Positions of an image.
    positions: usize,
    /// Tiles of rows of a group.
    tiles: usize,
    /// Words between tiles of weights.
    tile: usize,
}

/// Packed filters: the tiles of every group, and what is added to each row.
#[derive(Clone, Copy)]
struct Weights {
    words: Shared<u32>,
    of_rows: Shared<i32>,
}

/// Computes every element of the result, or reports its blocks to `blocks` instead of storing it.
///
/// # Safety
/// Source, filter and result must have the sizes given in `job`, and the machine must support the instruction set. The
/// operands must be bytes, the result must have 32 bits, and axes must be forward.
pub(super) unsafe fn convolve(job: &Correlation<'_>, blocks: Option<FinishedBlock<'_>>) {
    let signed = (job.filter_dtype == DType::I8).then_some(Signed::Rows);
    let kernels = kernels(job.set, signed);
    let image = Image::new(job, Packing::new(job.set, kernels.words, job.dtype, false));
    let axes = &image.axes;
    let positions = axes.iter().map(|axis| axis.positions()).product();
    if positions == 0 || job.rows == 0 {
        return;
    }
    let Some(layout) = image.layout() else {
        // SAFETY: guaranteed by the caller.
        unsafe { in_parts(job, blocks, positions) };
        return;
    };
    let offsets =
        layout.tap_offsets([&axes[0].phases[0], &axes[1].phases[0], &axes[2].phases[0]], image.planes);
    let segments = layout.segments(1, 0, [0, 1, 2].map(|d: usize| axes[d].positions()));
    let tiles = job.rows.div_ceil(kernels.rows());
    let plan = Plan {
        job,
        blocks,
        kernels,
        movement: f32::kernels(job.set),
        of_filter: Packing::new(job.set, kernels.words, job.filter_dtype, true),
        tile: offsets.len() * kernels.rows().min(job.rows),
        positions,
        image: &image,
        layout,
        offsets,
        segments,
        tiles,
    };
    let words = Scratch::new::<u32>(job.groups * tiles * plan.tile);
    let of_rows = Scratch::new::<i32>(job.groups * job.rows);
    let weights = Weights { words: Shared(words.start()), of_rows: Shared(of_rows.start()) };
    let units = job.images * job.groups;
    let wanted = 4 * pool::threads();
    let slab_size = image.planes * plan.layout.channel;
    // SAFETY: guaranteed by the caller. Tasks write their own parts of the scratch and of the result, and read parts of
    // the scratch that are complete.
    unsafe {
        if units >= wanted {
            pool::parallel_for(job.groups * tiles, &|task| plan.pack_weights(weights, task));
            pool::parallel_for(units, &|unit| {
                let slab = Scratch::new::<u32>(slab_size);
                (0..image.planes).for_each(|plane| plan.fill(unit, plane, slab.start()));
                plan.compute(weights, slab.start(), unit, 0..plan.columns(), 0..tiles);
            });
            return;
        }
        let slabs = room(units, slab_size);
        let slabs = Shared(slabs.start::<u32>());
        let packing = job.groups * tiles;
        pool::parallel_for(packing + units * image.planes, &|task| match task.checked_sub(packing) {
            None => plan.pack_weights(weights, task),
            Some(fill) => {
                let (unit, plane) = (fill / image.planes, fill % image.planes);
                plan.fill(unit, plane, slabs.get().add(unit * slab_size));
            }
        });
        let column_parts = wanted.div_ceil(units.max(1)).min(plan.columns());
        let row_parts = wanted.div_ceil(units.max(1) * column_parts).min(tiles);
        let parts = column_parts * row_parts;
        pool::parallel_for(units * parts, &|task| {
            let (unit, at) = (task / parts, task % parts);
            let columns = part(plan.columns(), column_parts, at / row_parts);
            let rows = part(tiles, row_parts, at % row_parts);
            plan.compute(weights, slabs.get().add(unit * slab_size), unit, columns, rows);
        });
    }
}

/// Room for `count` times `size` words. Leaves the kernel if the system has no such memory.
fn room(count: usize, size: usize) -> Scratch {
    let words = count.checked_mul(size).filter(|words| *words <= isize::MAX as usize / 16);
    Scratch::new::<u32>(or_leave(words.ok_or(Error::HostMemory { requested: usize::MAX })))
}

/// [`convolve`] from 32-bit integers, of which only parts of the padded image are held at once. A result that is not
/// stored is held as a whole, as `images * groups * rows` rows of `positions` elements.
///
/// # Safety
/// Same as [`convolve`].
unsafe fn in_parts(job: &Correlation<'_>, blocks: Option<FinishedBlock<'_>>, positions: usize) {
    let Some(finished) = blocks else {
        // SAFETY: guaranteed by the caller.
        unsafe { correlate::<i32>(job) };
        return;
    };
    let rows = job.images * job.groups * job.rows;
    let stored = room(rows, positions);
    // SAFETY: guaranteed by the caller; the scratch has room for the result.
    unsafe { correlate::<i32>(&Correlation { result: stored.start(), finished: None, ..*job }) };
    let stored = Shared(stored.start::<i32>());
    pool::parallel_for(rows, &|row| {
        let first = stored.get().wrapping_add(row * positions);
        finished(row..row + 1, 0..positions, first.wrapping_sub(row * PITCH).cast());
    });
}

impl Plan<'_> {
    /// The number of units into which positions are divided: panels, or runs for a single row.
    fn columns(&self) -> usize {
        match self.job.rows {
            1 => self.segments.len(),
            _ => self.positions.div_ceil(self.kernels.columns()),
        }
    }

    /// Packs a tile of the filter of a group: word q of row i is number `q * rows + i`.
    ///
    /// # Safety
    /// Same as [`convolve`].
    unsafe fn pack_weights(&self, weights: Weights, task: usize) {
        let Plan { job, image, of_filter, .. } = self;
        let (group, tile) = (task / self.tiles, task % self.tiles);
        let rows = part(job.rows, self.tiles, tile);
        let words = self.offsets.len();
        let taps: usize = job.kernel.iter().product();
        let size = job.channels * taps;
        let each = of_filter.elements();
        let packed = Scratch::new::<u32>(rows.len() * words);
        let zeros = vec![0u8; taps];
        // SAFETY: guaranteed by the caller; the scratch has room for the words of the rows.
        unsafe {
            for (i, row) in rows.clone().enumerate() {
                let filter = job.filter.add((group * job.rows + row) * size);
                let to = packed.start::<u32>().add(i * words);
                match image.along {
                    Along::Channels if taps == 1 => of_filter.line(filter, job.channels, to),
                    Along::Channels => {
                        for plane in 0..image.planes {
                            let lines = [0, 1, 2, 3].map(|j| match plane * each + j {
                                channel if j < each && channel < job.channels => filter.add(channel * taps),
                                _ => zeros.as_ptr(),
                            });
                            of_filter.interleave(lines, taps, to.add(plane * taps));
                        }
                    }
                    Along::Taps(_) => {
                        let width = job.kernel[2];
                        let groups = width.div_ceil(each);
                        for line in 0..size / width {
                            of_filter.line(filter.add(line * width), width, to.add(line * groups));
                        }
                    }
                }
                let shift = image.packing.shift();
                let sum = if shift == 0 { 0 } else { signed_sum(std::slice::from_raw_parts(filter, size)) };
                *weights.of_rows.get().add(group * job.rows + row) = sum.wrapping_mul(shift);
            }
            let (from, to) = (packed.start(), weights.words.get().add(task * self.tile).cast());
            (self.movement.transpose)(from, words as isize, rows.len(), words, to, rows.len());
        }
    }

    /// Writes a plane of words of an image and group.
    ///
    /// # Safety
    /// Same as [`convolve`]; there must be room for the planes.
    unsafe fn fill(&self, unit: usize, plane: usize, slab: *mut u32) {
        let size: usize = self.image.axes.iter().map(|axis| axis.source).product();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let channels = self.job.source.add(unit * self.job.channels * size);
            let out = slab.add(plane * self.layout.channel);
            self.image.fill(&self.layout, channels, self.job.channels, plane, out);
        }
    }

    /// Computes some tiles of rows at some columns of an image and group.
    ///
    /// # Safety
    /// Same as [`convolve`]; weights and words must be complete.
    unsafe fn compute(
        &self,
        weights: Weights,
        slab: *const u32,
        unit: usize,
        columns: Range<usize>,
        tiles: Range<usize>,
    ) {
        let job = self.job;
        let group = unit % job.groups;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let words = weights.words.get().add(group * self.tiles * self.tile);
            let of_rows = weights.of_rows.get().add(group * job.rows);
            if job.rows == 1 {
                self.single_row(words, *of_rows, slab, unit, columns);
            } else {
                self.panels(words, of_rows, slab, unit, columns, tiles);
            }
        }
    }

    /// Reports that the positions of some rows are final. `block` is the address of their first element.
    fn finish(&self, unit: usize, rows: Range<usize>, positions: Range<usize>, block: *mut i32) {
        let first = unit * self.job.rows;
        let rows = first + rows.start..first + rows.end;
        if let Some(finished) = self.blocks {
            let origin = block.wrapping_sub(rows.start * PITCH + positions.start);
            finished(rows, positions, origin.cast());
        } else if let Some(finished) = self.job.finished {
            finished(rows, positions);
        }
    }

    /// An element of an image and group in the stored result.
    fn element(&self, unit: usize, row: usize, position: usize) -> *mut i32 {
        let at = (unit * self.job.rows + row) * self.positions + position;
        self.job.result.cast::<i32>().wrapping_add(at)
    }

    /// Computes the only row of a group at some runs of positions.
    ///
    /// # Safety
    /// Same as [`Plan::compute`].
    unsafe fn single_row(
        &self,
        words: *const u32,
        start: i32,
        slab: *const u32,
        unit: usize,
        runs: Range<usize>,
    ) {
        let segments = &self.segments[runs];
        let ([first, .., last] | [first @ last]) = segments else { return };
        let positions = first.position..last.position + last.count;
        let block = Scratch::new::<i32>(if self.blocks.is_some() { positions.len() } else { 0 });
        let out = match self.blocks {
            Some(_) => block.start(),
            None => self.element(unit, 0, positions.start),
        };
        for segment in segments {
            // SAFETY: guaranteed by the caller.
            unsafe {
                (self.kernels.weighted)(&ByteTaps {
                    slab: slab.add(segment.slab),
                    offsets: &self.offsets,
                    weights: words,
                    start,
                    positions: out.add(segment.position - positions.start),
                    count: segment.count,
                });
            }
        }
        self.finish(unit, 0..1, positions, out);
    }

    /// Computes tiles of rows at some panels of positions.
    ///
    /// # Safety
    /// Same as [`Plan::compute`].
    unsafe fn panels(
        &self,
        words: *const u32,
        of_rows: *const i32,
        slab: *const u32,
        unit: usize,
        panels: Range<usize>,
        tiles: Range<usize>,
    ) {
        let width = self.kernels.columns();
        let nothing = [0i32; MAX_COLUMNS];
        let is_adjacent =
            self.image.taps == 1 && self.segments.iter().all(|segment| segment.slab == segment.position);
        let gathered = Scratch::new::<u32>(if is_adjacent { 0 } else { width * self.offsets.len() });
        let rows = part(self.job.rows, self.tiles, tiles.start).start
            ..part(self.job.rows, self.tiles, tiles.end - 1).end;
        let each = match self.blocks {
            Some(_) => (BLOCK / (rows.len() * width)).clamp(1, PANELS),
            None => PANELS,
        };
        let block = Scratch::new::<i32>(if self.blocks.is_some() { rows.len() * PITCH } else { 0 });
        let mut here = Vec::new();
        let mut told = panels.start * width;
        for panel in panels.clone() {
            pool::check();
            let columns = panel * width..self.positions.min((panel + 1) * width);
            let (out, c_row) = match self.blocks {
                Some(_) => (block.start(), PITCH),
                None => (self.element(unit, rows.start, told), self.positions),
            };
            // SAFETY: guaranteed by the caller; there is room for a panel.
            unsafe {
                let (b, b_step) = if is_adjacent {
                    // The only tap is at the position itself.
                    (
                        slab.add(self.offsets.first().map_or(0, |offset| offset + columns.start)),
                        self.layout.channel,
                    )
                } else {
                    cut(&self.segments, columns.clone(), &mut here);
                    (self.movement.gather)(&Gather {
                        slab: slab.cast(),
                        offsets: &self.offsets,
                        segments: &here,
                        first: columns.start,
                        out: gathered.start(),
                        width,
                    });
                    (gathered.start::<u32>().cast_const(), width)
                };
                for tile in tiles.clone() {
                    let of_tile = part(self.job.rows, self.tiles, tile);
                    self.kernels.tiles[of_tile.len() - 1][columns.len().div_ceil(self.kernels.lanes) - 1](
                        &ByteTile {
                            words: self.offsets.len(),
                            a: words.add(tile * self.tile),
                            b,
                            b_step,
                            c: out.add((of_tile.start - rows.start) * c_row + columns.start - told),
                            c_row: c_row as isize,
                            columns: columns.len(),
                            of_rows: of_rows.add(of_tile.start),
                            of_columns: nothing.as_ptr(),
                        },
                    );
                }
            }
            if panel + 1 == panels.end || columns.end - told >= each * width {
                self.finish(unit, rows.clone(), told..columns.end, out);
                told = columns.end;
            }
        }
    }
}

/// The sum of signed bytes, modulo 2^32.
fn signed_sum(bytes: &[u8]) -> i32 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(i32::from(*byte as i8)))
}
