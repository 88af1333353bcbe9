//! The gradient of a convolution's filter: `[channel and tap, position]` times `[position, output channel]`, summed
//! over the images.

use std::ops::Range;

use phynexus::DType;

use super::axes::Axis;
use super::slab::{Box3, Planes, Slab, cut, fill_zero, for_each_box, volume};
use super::winograd::Tiles;
use crate::gemm::blocked::Shared;
use crate::gemm::pack::{Accumulator, Lines, panel};
use crate::gemm::scratch::Scratch;
use crate::gemm::{InstructionSet, part};
use crate::kernels::Kernels;
use crate::kernels::patches::{COPY, Gather, Taps};
use crate::kernels::tile::Tile;
use crate::pool;

/// Patch elements gathered at a time, wanted: they fit in the second-level cache.
const PATCHES: usize = 1 << 16;
/// Limit on the total elements of partial sums; beyond it, images are not distributed over more tasks.
const PARTIAL_SUMS: usize = 1 << 21;
/// Positions of small images that are multiplied together.
const FEW: usize = 256;
/// Positions that are summed before partial sums are worth their bytes.
const LONG: usize = 512;
/// Number of output channels whose partial sums are added together.
const BLOCK: usize = 16;
/// Maximum number of partial sums per element.
pub(super) const PARTS: usize = 16;

/// How many positions are multiplied at a time, if all channels together have this many rows of patches.
pub(super) fn longest(rows: usize) -> usize {
    (PATCHES / rows.max(1)).clamp(64, 1024)
}

/// The job: for every group, computes the gradient of `outputs` times `channels` filters.
pub(super) struct FilterGradient<'a> {
    pub(super) set: InstructionSet,
    /// The dtypes of the input and the output's gradient.
    pub(super) dtypes: [DType; 2],
    pub(super) result_dtype: DType,
    pub(super) images: usize,
    pub(super) groups: usize,
    /// Output channels per group.
    pub(super) outputs: usize,
    /// Input channels per group.
    pub(super) channels: usize,
    /// Forward axes.
    pub(super) axes: &'a [Axis; 3],
    pub(super) input: *const u8,
    pub(super) output_gradient: *const u8,
    pub(super) result: *mut u8,
}

// SAFETY: operands are only read, and tasks write disjoint parts of the result.
unsafe impl Sync for FilterGradient<'_> {}

/// Computes every element of the result. The grouping of sums depends only on the shape.
///
/// # Safety
/// Operands and result must have the sizes given in `job`, and the machine must support the instruction set.
pub(super) unsafe fn filter_gradient<T: Accumulator>(job: &FilterGradient<'_>) {
    let kernels = T::kernels(job.set);
    // SAFETY: guaranteed by the caller.
    let tiles = unsafe { Tiles::<T>::of(job) };
    let axes = tiles.as_ref().map_or(job.axes, |tiles| &tiles.axes);
    let taps: usize = job.axes.iter().map(|a| a.phases[0].taps.len()).product();
    let filters = job.channels * taps;
    let sums_row = if job.outputs == 1 { 1 } else { job.outputs.next_multiple_of(kernels.lanes) };
    let group_sums = filters * sums_row;
    // Units of work are small images together, or parts of images along an axis if there are few images.
    let axis = (0..3).find(|&d| axes[d].result > 1).unwrap_or(2);
    let positions = axes.iter().map(|axis| axis.result).product::<usize>().max(1);
    let most = (PARTIAL_SUMS / (group_sums * job.groups).max(1))
        .min((job.images * positions).div_ceil(LONG))
        .clamp(1, PARTS);
    let together = FEW.div_ceil(positions).min(job.images.div_ceil(most)).max(1);
    let bundles = job.images.div_ceil(together);
    let cuts = most.div_ceil(bundles.max(1)).min(axes[axis].result).max(1);
    let units = bundles * cuts;
    let parts = units.clamp(1, most);
    // If there are few parts, tasks also divide the channels. No sum is divided.
    let channel_blocks = (2 * pool::threads()).div_ceil(parts * job.groups.max(1)).min(job.channels).max(1);
    let scratch = Scratch::new::<T>(parts * job.groups * group_sums);
    let sums = Shared(scratch.start::<T>());
    pool::parallel_for(parts * job.groups * channel_blocks, &|task| {
        let (at, block) = (task / channel_blocks, task % channel_blocks);
        let (group, group_part) = (at % job.groups, at / job.groups);
        let channels = part(job.channels, channel_blocks, block);
        // SAFETY: the sums belong to this task, and the operands exist.
        unsafe {
            let sums = sums.get().add(at * group_sums + channels.start * taps * sums_row);
            fill_zero(sums, channels.len() * taps * sums_row);
            for unit in part(units, parts, group_part) {
                let mut positions: Box3 = [0, 1, 2].map(|d| 0..axes[d].result);
                positions[axis] = part(axes[axis].result, cuts, unit % cuts);
                let images = part(job.images, bundles, unit / cuts);
                // All channels count: the boxes must not depend on the number of tasks.
                for_each_box(axes, &positions, images.len() * job.channels, &mut |positions| {
                    let (images, channels) = (images.clone(), channels.clone());
                    match &tiles {
                        Some(tiles) => {
                            tiles.add(job, kernels, images, group, channels, positions, sums, sums_row);
                        }
                        None => add_unit(job, kernels, images, group, channels, positions, sums, sums_row),
                    }
                });
            }
        }
    });
    let blocks = job.outputs.div_ceil(BLOCK);
    pool::parallel_for(job.groups * blocks, &|task| {
        let (group, outputs) =
            (task / blocks, task % blocks * BLOCK..job.outputs.min((task % blocks + 1) * BLOCK));
        let parts = (0..parts).map(|p| (p * job.groups + group) * group_sums + outputs.start);
        let totals = Scratch::new::<T>(filters * BLOCK);
        let row = Scratch::new::<T>(filters);
        // SAFETY: all sums are complete, and these rows of the result belong to this task.
        unsafe {
            let totals = totals.start::<T>();
            for (p, start) in parts.enumerate() {
                for i in 0..filters {
                    let from = sums.get().add(start + i * sums_row);
                    let total = std::slice::from_raw_parts_mut(totals.add(i * BLOCK), BLOCK);
                    let (total, sum) =
                        (&mut total[..outputs.len()], std::slice::from_raw_parts(from, outputs.len()));
                    if p == 0 {
                        total.copy_from_slice(sum);
                    } else {
                        total.iter_mut().zip(sum).for_each(|(t, x)| *t = t.add(*x));
                    }
                }
            }
            for o in outputs.clone() {
                (0..filters)
                    .for_each(|i| *row.start::<T>().add(i) = *totals.add(i * BLOCK + o - outputs.start));
                let at = (group * job.outputs + o) * filters * job.result_dtype.size();
                T::store(row.start(), filters, job.result_dtype, job.result.add(at), 1);
            }
        }
    });
}

/// Adds the products of a box of positions of some images.
///
/// # Safety
/// Same as [`filter_gradient`]; `sums` must have room for the channels' filters.
unsafe fn add_unit<T: Accumulator>(
    job: &FilterGradient<'_>,
    kernels: &Kernels<T>,
    images: Range<usize>,
    group: usize,
    channels: Range<usize>,
    positions: &Box3,
    sums: *mut T,
    sums_row: usize,
) {
    let axes = job.axes;
    let input_size: usize = axes.iter().map(|a| a.source).product();
    let output_size: usize = axes.iter().map(|a| a.result).product();
    let [of_input, of_gradient] = job.dtypes;
    let first = (images.start * job.groups + group) * job.channels + channels.start;
    // SAFETY: the group's channels exist.
    let slab: Slab<'_, T> = unsafe {
        let planes = Planes {
            data: job.input.add(first * input_size * of_input.size()),
            dtype: of_input,
            images: images.len(),
            distance: job.groups * job.channels * input_size,
            channels: channels.len(),
            cut: COPY,
        };
        Slab::new(axes, positions, planes)
    };
    let offsets =
        slab.layout.tap_offsets([&axes[0].phases[0], &axes[1].phases[0], &axes[2].phases[0]], channels.len());
    let segments = slab.segments(positions);
    let of_image = volume(positions);
    let count = images.len() * of_image;
    // Boxes are cut along the first axis with several positions, so theirs are contiguous.
    let start =
        (positions[0].start * axes[1].result + positions[1].start) * axes[2].result + positions[2].start;
    let gradient = |image: usize, output: usize, position: usize| {
        let row = (image * job.groups + group) * job.outputs + output;
        job.output_gradient.wrapping_add((row * output_size + start + position) * of_gradient.size())
    };
    if job.outputs == 1 {
        let factors = Scratch::new::<T>(count);
        // SAFETY: the gradients of these positions exist.
        unsafe {
            for (i, image) in images.enumerate() {
                let factors = factors.start::<T>().add(i * of_image);
                T::widen(of_gradient, gradient(image, 0, 0), of_image, factors);
            }
            (kernels.row_products)(&Taps {
                slab: slab.start(),
                offsets: &offsets,
                segments: &segments,
                taps: sums,
                positions: factors.start(),
            });
        }
        return;
    }
    let width = kernels.columns();
    let longest = longest(offsets.len() / channels.len().max(1) * job.channels);
    let step = count.div_ceil(count.div_ceil(longest).max(1)).next_multiple_of(COPY).max(COPY);
    // Rows of patches must not be a page apart, or they would share cache sets.
    let row = step + 16;
    let patches = Scratch::new::<T>(offsets.len() * row);
    let transposed = Scratch::new::<T>(step * width);
    let tiles = offsets.len().div_ceil(kernels.rows());
    let mut here = Vec::new();
    for from in (0..count).step_by(step) {
        pool::check();
        let range = from..count.min(from + step);
        cut(&segments, range.clone(), &mut here);
        // SAFETY: there is room for every row of patches and for a panel of gradients, and sums for every filter and
        // output.
        unsafe {
            let out = patches.start::<T>();
            (kernels.gather)(&Gather {
                slab: slab.start(),
                offsets: &offsets,
                segments: &here,
                first: from,
                out,
                width: row,
            });
            for o in (0..job.outputs).step_by(width) {
                let columns = width.min(job.outputs - o);
                let mut at = from;
                while at < range.end {
                    let (image, position) = (at / of_image, at % of_image);
                    let steps = (of_image - position).min(range.end - at);
                    let data = gradient(images.start + image, o, position);
                    let lines = Lines { data, dtype: of_gradient, lane: output_size as isize, step: 1 };
                    panel(
                        lines,
                        columns,
                        steps,
                        transposed.start::<T>().add((at - from) * width),
                        width,
                        kernels,
                    );
                    at += steps;
                }
                for t in 0..tiles {
                    let rows = part(offsets.len(), tiles, t);
                    kernels.tiles[rows.len() - 1][columns.div_ceil(kernels.lanes) - 1](&Tile {
                        k: range.len(),
                        a: out.add(rows.start * row),
                        a_row: row as isize,
                        a_step: 1,
                        b: transposed.start(),
                        b_step: width as isize,
                        c: sums.add(rows.start * sums_row + o),
                        c_row: sums_row as isize,
                        columns,
                        accumulate: true,
                    });
                }
            }
        }
    }
}
