//! Convolutions and input gradients as implicit matrix products. Rows are the result's channels, columns its positions.
//! The panels of patches that the tile kernels read are gathered from a padded copy of the image.

use std::ops::Range;

use phynexus::DType;

use super::Finished;
use super::axes::{Axis, Phase};
use super::slab::{Box3, Planes, Slab, cut, fill_zero, for_each_box, volume};
use crate::gemm::blocked::Shared;
use crate::gemm::pack::Accumulator;
use crate::gemm::scratch::Scratch;
use crate::gemm::{InstructionSet, part};
use crate::kernels::Kernels;
use crate::kernels::patches::{Gather, Segment, Taps};
use crate::kernels::tile::Tile;
use crate::pool;

/// Number of panels of positions after which a part of the result is reported as final.
const PANELS: usize = 8;

/// Positions of several images that are computed together, at most.
const FEW: usize = 128;

/// The job: for every image and group, computes `rows` result channels from `channels` source channels.
pub(super) struct Correlation<'a> {
    pub(super) set: InstructionSet,
    pub(super) dtype: DType,
    pub(super) filter_dtype: DType,
    pub(super) result_dtype: DType,
    pub(super) images: usize,
    pub(super) groups: usize,
    pub(super) rows: usize,
    pub(super) channels: usize,
    pub(super) axes: &'a [Axis; 3],
    /// The filter's extents along the axes.
    pub(super) kernel: [usize; 3],
    pub(super) source: *const u8,
    pub(super) filter: *const u8,
    /// Filter strides in elements: between groups, result channels and source channels.
    pub(super) filter_strides: [usize; 3],
    pub(super) result: *mut u8,
    pub(super) finished: Option<Finished<'a>>,
}

// SAFETY: the source and the filter are only read, and tasks write disjoint parts of the result.
unsafe impl Sync for Correlation<'_> {}

impl Correlation<'_> {
    /// How many images of this number of positions are computed together: as many as fill registers of `lanes`
    /// positions, and leave tasks for every thread.
    pub(super) fn together(&self, lanes: usize, positions: usize) -> usize {
        let positions = positions.max(1);
        let most =
            (self.images * self.groups / pool::threads()).min(FEW.div_ceil(positions)).min(self.images);
        let is_full = |images: &usize| {
            let count = images * positions;
            count >= 2 * lanes && 8 * count >= 7 * count.next_multiple_of(lanes)
        };
        (1..=most.max(1)).find(is_full).unwrap_or(most.max(1))
    }

    /// Reports that these positions of a group of an image are final in all its channels.
    fn finish(&self, image: usize, group: usize, positions: Range<usize>) {
        if let Some(finished) = self.finished {
            let first = (image * self.groups + group) * self.rows;
            finished(first..first + self.rows, positions);
        }
    }

    /// Reports that a box of positions is final in all phases, as the result elements that it covers.
    pub(super) fn finish_box(&self, image: usize, group: usize, positions: &Box3) {
        let covered = |d: usize| {
            let phases = self.axes[d].phases.len();
            positions[d].start * phases..self.axes[d].result.min(positions[d].end * phases)
        };
        let [planes, lines, columns] = [covered(0), covered(1), covered(2)];
        let [_, height, width] = [0, 1, 2].map(|d: usize| self.axes[d].result);
        let whole = columns.len() == width;
        if whole && lines.len() == height {
            let plane = height * width;
            self.finish(image, group, planes.start * plane..planes.end * plane);
            return;
        }
        for z in planes {
            if whole {
                let first = z * height;
                self.finish(image, group, (first + lines.start) * width..(first + lines.end) * width);
                continue;
            }
            for y in lines.clone() {
                let first = (z * height + y) * width;
                self.finish(image, group, first + columns.start..first + columns.end);
            }
        }
    }
}

/// One combination of phases with its weights, packed in blocks of k and tiles of rows.
struct Weights<'a> {
    phases: [&'a Phase; 3],
    /// Taps times source channels.
    k: usize,
    /// The start of its weights within those of a group.
    start: usize,
}

/// Computes every element of the result.
///
/// # Safety
/// Source, filter and result must have the sizes given in `job`, and the machine must support the instruction set.
pub(super) unsafe fn correlate<T: Accumulator>(job: &Correlation<'_>) {
    let kernels = T::kernels(job.set);
    let mut combinations = Vec::new();
    let mut start = 0;
    for planes in &job.axes[0].phases {
        for rows in &job.axes[1].phases {
            for columns in &job.axes[2].phases {
                let k = job.channels * planes.taps.len() * rows.taps.len() * columns.taps.len();
                combinations.push(Weights { phases: [planes, rows, columns], k, start });
                start += k * job.rows;
            }
        }
    }
    let group_weights = start;
    let packed = Scratch::new::<T>(group_weights * job.groups);
    let weights = Shared(packed.start::<T>());
    let filter_size = job.groups * job.rows * job.channels * job.kernel.iter().product::<usize>();
    let widened = (job.filter_dtype != T::DTYPE).then(|| Scratch::new::<T>(filter_size));
    let filter = match &widened {
        Some(scratch) => {
            // SAFETY: the filter's elements exist, and the scratch has room for them.
            unsafe { T::widen(job.filter_dtype, job.filter, filter_size, scratch.start()) };
            scratch.start::<T>()
        }
        None => job.filter.cast_mut().cast(),
    };
    let filter = Shared(filter);
    let tiles = job.rows.div_ceil(kernels.rows());
    pool::parallel_for(job.groups * tiles, &|task| {
        for combination in &combinations {
            // SAFETY: each task packs one tile of a group.
            unsafe {
                let group = task / tiles;
                let out = weights.get().add(group * group_weights + combination.start);
                pack_weights(job, combination, filter.get(), group, task % tiles, tiles, out);
            }
        }
    });

    // Small images are computed together. If there are fewer tasks than threads, images are cut along the first axis
    // with several positions.
    let together = job.together(kernels.lanes, job.axes.iter().map(|axis| axis.positions()).product());
    let units = job.images.div_ceil(together);
    let axis = (0..3).find(|&d| job.axes[d].positions() > 1).unwrap_or(2);
    let (wanted, tasks) = (4 * pool::threads(), units * job.groups);
    let parts = if tasks >= wanted || together > 1 { 1 } else { wanted.div_ceil(tasks.max(1)) }
        .min(job.axes[axis].positions())
        .max(1);
    pool::parallel_for(tasks * parts, &|task| {
        let (unit, group) = (task / parts / job.groups, task / parts % job.groups);
        let images = part(job.images, units, unit);
        let mut positions: Box3 = [0, 1, 2].map(|d| 0..job.axes[d].positions());
        positions[axis] = part(job.axes[axis].positions(), parts, task % parts);
        // SAFETY: tasks write disjoint parts of the result.
        unsafe {
            let weights = weights.get().add(group * group_weights);
            for_each_box(job.axes, &positions, images.len() * job.channels, &mut |positions| {
                part_of_images(job, kernels, &combinations, weights, images.clone(), group, positions);
            });
        }
    });
}

/// Packs the rows of a tile: for every block of k, `[step][row]`.
///
/// # Safety
/// Same as [`correlate`]; `out` must have room for the combination's weights.
unsafe fn pack_weights<T: Accumulator>(
    job: &Correlation<'_>,
    combination: &Weights<'_>,
    filter: *const T,
    group: usize,
    tile: usize,
    tiles: usize,
    out: *mut T,
) {
    let rows = part(job.rows, tiles, tile);
    let [planes, lines, columns] = combination.phases;
    let [group_stride, row_stride, channel_stride] = job.filter_strides;
    let mut taps = Vec::with_capacity(planes.taps.len() * lines.taps.len() * columns.taps.len());
    for plane in &planes.taps {
        for line in &lines.taps {
            taps.extend(
                columns.taps.iter().map(|c| (plane.0 * job.kernel[1] + line.0) * job.kernel[2] + c.0),
            );
        }
    }
    let is_run = taps.windows(2).all(|pair| pair[1] == pair[0] + 1);
    // The weights of a row are contiguous, of all its channels.
    let is_row = is_run && channel_stride == taps.len();
    let kernels = T::kernels(job.set);
    for k_start in (0..combination.k).step_by(T::K_BLOCK) {
        let steps = T::K_BLOCK.min(combination.k - k_start);
        let block = out.wrapping_add(k_start * job.rows + rows.start * steps);
        let mut p = 0;
        while p < steps {
            let (channel, tap) = ((k_start + p) / taps.len(), (k_start + p) % taps.len());
            let offset =
                group * group_stride + channel * channel_stride + taps[tap] + rows.start * row_stride;
            let run = match (is_row, is_run) {
                (true, _) => steps - p,
                (_, true) => (taps.len() - tap).min(steps - p),
                _ => 1,
            };
            // SAFETY: the pointer is the run's place, and every index is inside the filter.
            unsafe {
                let (from, to) = (filter.add(offset), block.add(p * rows.len()));
                if row_stride == 1 && run == 1 {
                    std::ptr::copy_nonoverlapping(from, to, rows.len());
                } else {
                    (kernels.transpose)(from, row_stride as isize, rows.len(), run, to, rows.len());
                }
            }
            p += run;
        }
    }
}

/// Computes a box of positions of some images and one group, in all phases.
///
/// # Safety
/// Same as [`correlate`]; no other task may write these elements.
unsafe fn part_of_images<T: Accumulator>(
    job: &Correlation<'_>,
    kernels: &Kernels<T>,
    combinations: &[Weights<'_>],
    weights: *const T,
    images: Range<usize>,
    group: usize,
    positions: &Box3,
) {
    let axes = job.axes;
    let source_size: usize = axes.iter().map(|a| a.source).product();
    let result_size: usize = axes.iter().map(|a| a.result).product();
    let first_channel = (images.start * job.groups + group) * job.channels;
    let first_row = (images.start * job.groups + group) * job.rows;
    // SAFETY: the group's channels exist.
    let slab: Slab<'_, T> = unsafe {
        let planes = Planes {
            data: job.source.add(first_channel * source_size * job.dtype.size()),
            dtype: job.dtype,
            images: images.len(),
            distance: job.groups * job.channels * source_size,
            channels: job.channels,
            cut: kernels.columns(),
        };
        Slab::new(axes, positions, planes)
    };
    let result_element = job.result_dtype.size();
    let result = job.result.wrapping_add(first_row * result_size * result_element);
    // Room for the sums of a phase.
    let room = job.rows * images.len() * volume(positions);
    let columns = &axes[2].phases;
    let direct = combinations.len() == 1 && images.len() == 1 && job.result_dtype == T::DTYPE;
    let sums = Scratch::new::<T>(if direct { 0 } else { columns.len() * room });
    let line = Scratch::new::<T>(axes[2].result);
    for (at, of_line) in combinations.chunks(columns.len()).enumerate() {
        // The positions of each phase of the last axis.
        let boxes: Vec<Box3> = of_line
            .iter()
            .map(|c| {
                [0, 1, 2].map(|d| {
                    positions[d].start.min(c.phases[d].count)..positions[d].end.min(c.phases[d].count)
                })
            })
            .collect();
        for (f, (combination, there)) in of_line.iter().zip(&boxes).enumerate() {
            let count = images.len() * volume(there);
            if count == 0 {
                continue;
            }
            // SAFETY: the scratch has room for every channel's positions.
            unsafe {
                let start =
                    (there[0].start * axes[1].result + there[1].start) * axes[2].result + there[2].start;
                let (out, out_row) = if direct {
                    (result.cast::<T>().add(start), result_size)
                } else {
                    (sums.start::<T>().add(f * room), count)
                };
                let done = |columns: Range<usize>| {
                    if direct {
                        job.finish(images.start, group, start + columns.start..start + columns.end);
                    }
                };
                let offsets = slab.layout.tap_offsets(combination.phases, job.channels);
                let segments = slab.segments(there);
                if combination.k == 0 {
                    (0..job.rows).for_each(|row| fill_zero(out.add(row * out_row), count));
                    done(0..count);
                } else if job.rows == 1 {
                    (kernels.weighted_rows)(&Taps {
                        slab: slab.start(),
                        offsets: &offsets,
                        segments: &segments,
                        taps: weights.add(combination.start).cast_mut(),
                        positions: out,
                    });
                    done(0..count);
                } else {
                    let weights = weights.add(combination.start);
                    products(
                        job.rows,
                        kernels,
                        weights,
                        slab.start(),
                        &offsets,
                        &segments,
                        count,
                        out,
                        out_row,
                        &done,
                    );
                }
            }
        }
        if !direct {
            let (plane_phase, line_phase) = (at / axes[1].phases.len(), at % axes[1].phases.len());
            // SAFETY: all phases of these lines have been computed.
            unsafe {
                let image_size = job.groups * job.rows * result_size;
                for row in (0..images.len() * job.rows).map(|i| [i / job.rows, i % job.rows]) {
                    for z in boxes[0][0].clone() {
                        for y in boxes[0][1].clone() {
                            let (rz, ry) = (
                                plane_phase + z * axes[0].phases.len(),
                                line_phase + y * axes[1].phases.len(),
                            );
                            let to = row[0] * image_size
                                + ((row[1] * axes[0].result + rz) * axes[1].result + ry) * axes[2].result;
                            for (f, there) in boxes.iter().enumerate() {
                                let (y0, z0) = (y - there[1].start, z - there[0].start);
                                let width = there[2].len();
                                let plane = (row[1] * images.len() + row[0]) * there[0].len() + z0;
                                let index = plane * there[1].len() + y0;
                                let from = sums.start::<T>().add(f * room + index * width);
                                interleave(from, width, columns.len(), line.start::<T>().add(f));
                            }
                            let first = positions[2].start * columns.len();
                            let count = boxes.iter().map(|b| b[2].len()).sum();
                            let out = result.add((to + first) * result_element);
                            T::store(line.start(), count, job.result_dtype, out, 1);
                        }
                    }
                }
            }
        }
    }
    if !direct {
        images.for_each(|image| job.finish_box(image, group, positions));
    }
}

/// `out[i * step] = from[i]`.
///
/// # Safety
/// Both pointers must be valid for these elements.
unsafe fn interleave<T: Copy>(from: *const T, count: usize, step: usize, out: *mut T) {
    // SAFETY: guaranteed by the caller. Constant steps compile to shuffles or plain copies.
    unsafe {
        match step {
            1 => std::ptr::copy_nonoverlapping(from, out, count),
            2 => (0..count).for_each(|i| *out.add(2 * i) = *from.add(i)),
            _ => (0..count).for_each(|i| *out.add(step * i) = *from.add(i)),
        }
    }
}

/// Multiplies packed weights with the patches of some positions. Calls `done` with positions that are final.
///
/// # Safety
/// Same as [`correlate`]; `out` must have room for `rows` rows of `count` elements, `out_row` apart.
unsafe fn products<T: Accumulator>(
    rows: usize,
    kernels: &Kernels<T>,
    weights: *const T,
    slab: *const T,
    offsets: &[usize],
    segments: &[Segment],
    count: usize,
    out: *mut T,
    out_row: usize,
    done: &dyn Fn(Range<usize>),
) {
    let width = kernels.columns();
    let tiles = rows.div_ceil(kernels.rows());
    let mut told = 0;
    let panel = Scratch::new::<T>(width * T::K_BLOCK.min(offsets.len()));
    let mut here: Vec<Segment> = Vec::new();
    for start in (0..count).step_by(width) {
        pool::check();
        let columns: Range<usize> = start..count.min(start + width);
        cut(segments, columns.clone(), &mut here);
        for (block, offsets) in offsets.chunks(T::K_BLOCK).enumerate() {
            // SAFETY: the panel has room for the block, and the weights are packed in the same blocks.
            unsafe {
                let gathered =
                    Gather { slab, offsets, segments: &here, first: start, out: panel.start(), width };
                (kernels.gather)(&gathered);
                let weights = weights.add(block * T::K_BLOCK * rows);
                for tile in 0..tiles {
                    let range = part(rows, tiles, tile);
                    kernels.tiles[range.len() - 1][columns.len().div_ceil(kernels.lanes) - 1](&Tile {
                        k: offsets.len(),
                        a: weights.add(range.start * offsets.len()),
                        a_row: 1,
                        a_step: range.len() as isize,
                        b: panel.start(),
                        b_step: width as isize,
                        c: out.add(range.start * out_row + start),
                        c_row: out_row as isize,
                        columns: columns.len(),
                        accumulate: block > 0,
                    });
                }
            }
        }
        if columns.end == count || columns.end - told >= PANELS * width {
            done(told..columns.end);
            told = columns.end;
        }
    }
}
