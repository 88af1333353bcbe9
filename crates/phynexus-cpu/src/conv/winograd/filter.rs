//! The gradient of filters of 3 by 3.

use std::ops::Range;

use super::super::axes::Axis;
use super::super::filter::{FilterGradient, longest};
use super::super::slab::{Box3, Planes, Slab, cut, volume};
use super::{TAPS, are_bounded, tiles};
use crate::gemm::pack::{Accumulator, Lines, panel};
use crate::gemm::part;
use crate::gemm::scratch::Scratch;
use crate::kernels::Kernels;
use crate::kernels::patches::{COPY, Gather, Segment};
use crate::kernels::tile::Tile;
use crate::kernels::winograd::{Matrix, POINTS, Transform};
use crate::pool;

/// The gradient of filters, computed from tiles.
pub(in crate::conv) struct Tiles<T> {
    pub(in crate::conv) axes: [Axis; 3],
    of_result: [Axis; 3],
    half: T,
}

impl<T: Accumulator> Tiles<T> {
    /// `None` if the method is not for this job.
    ///
    /// # Safety
    /// The operands must exist.
    pub(in crate::conv) unsafe fn of(job: &FilterGradient<'_>) -> Option<Tiles<T>> {
        let half = T::HALF?;
        let axes = tiles(job.axes, job.images, [job.channels, job.outputs])?;
        let of_result = [Axis::of_points(1), job.axes[1].tiles_of_result(), job.axes[2].tiles_of_result()];
        let is_bounded = |data: *const u8, channels: usize, axes: &[Axis; 3]| {
            let count = job.images * job.groups * channels * axes[1].source * axes[2].source;
            // SAFETY: guaranteed by the caller.
            unsafe { are_bounded::<T>(data.cast(), count) }
        };
        let is_usable = [job.dtypes[0], job.dtypes[1], job.result_dtype] == [T::DTYPE; 3]
            && is_bounded(job.input, job.channels, &axes)
            && is_bounded(job.output_gradient, job.outputs, &of_result);
        is_usable.then_some(Tiles { axes, of_result, half })
    }

    /// Adds the products of a box of tiles of some images to the gradients of filters: `[channel][tap][output]`.
    ///
    /// # Safety
    /// Same as `filter_gradient`; `sums` must have room for the channels' filters.
    pub(in crate::conv) unsafe fn add(
        &self,
        job: &FilterGradient<'_>,
        kernels: &Kernels<T>,
        images: Range<usize>,
        group: usize,
        channels: Range<usize>,
        positions: &Box3,
        sums: *mut T,
        sums_row: usize,
    ) {
        let width = kernels.columns();
        let count = images.len() * volume(positions);
        let longest = longest(job.channels * POINTS);
        let step = count.div_ceil(count.div_ceil(longest)).next_multiple_of(COPY);
        // Rows of patches must not be a page apart, or they would share cache sets.
        let row = step + 16;
        let tiles = channels.len().div_ceil(kernels.rows());
        let [of_channels, of_outputs, of_points, of_panels, of_sums] = [
            channels.len() * POINTS * row,
            width * 4 * row,
            width * POINTS * row,
            POINTS * step * width,
            POINTS * kernels.rows() * width,
        ]
        .map(Scratch::new::<T>);
        let planes = |data: *const u8, axes: &[Axis; 3], all: usize, channels: &Range<usize>| {
            let size = axes[1].source * axes[2].source;
            let first = (images.start * job.groups + group) * all + channels.start;
            Planes {
                data: data.wrapping_add(first * size * size_of::<T>()),
                dtype: T::DTYPE,
                images: images.len(),
                distance: job.groups * all * size,
                channels: channels.len(),
                cut: COPY,
            }
        };
        let transform = |matrix, from: *const T, from_step: usize, to, to_step, count, adds| {
            let from_step = from_step as isize;
            // SAFETY: the callers below have room for the matrices.
            unsafe {
                (kernels.winograd)(
                    matrix,
                    &Transform { from, from_step, to, to_step, count, adds, half: self.half },
                );
            }
        };
        // SAFETY: the operands exist, and there is room for every row of patches, for panels of gradients, and for sums
        // of every filter and output.
        unsafe {
            let source = planes(job.input, &self.axes, job.channels, &channels);
            let source: Slab<'_, T> = Slab::new(&self.axes, positions, source);
            let gradient = planes(job.output_gradient, &self.of_result, job.outputs, &(0..job.outputs));
            let gradient: Slab<'_, T> = Slab::new(&self.of_result, positions, gradient);
            let runs = [source.segments(positions), gradient.segments(positions)];
            let taps = [source.taps(channels.len()), gradient.taps(width.min(job.outputs))];
            let mut here = [Vec::new(), Vec::new()];
            for from in (0..count).step_by(step) {
                pool::check();
                let range = from..count.min(from + step);
                for (runs, here) in runs.iter().zip(&mut here) {
                    cut(runs, range.clone(), here);
                }
                let gather = |slab: *const T, offsets: &[usize], segments: &[Segment], out: *mut T| {
                    (kernels.gather)(&Gather { slab, offsets, segments, first: from, out, width: row });
                };
                let patches = of_channels.start::<T>();
                gather(source.start(), &taps[0], &here[0], patches);
                for channel in 0..channels.len() {
                    let patches = patches.add(channel * POINTS * row);
                    transform(Matrix::Source, patches, row, patches, row, range.len(), false);
                }
                for o in (0..job.outputs).step_by(width) {
                    let columns = width.min(job.outputs - o);
                    let (patches, points) = (of_outputs.start::<T>(), of_points.start::<T>());
                    gather(gradient.channel(o), &taps[1][..columns * 4], &here[1], patches);
                    for column in 0..columns {
                        let (from, to) = (patches.add(column * 4 * row), points.add(column * row));
                        transform(Matrix::ResultGradient, from, row, to, width * row, range.len(), false);
                    }
                    for point in 0..POINTS {
                        let data = points.add(point * width * row).cast_const().cast();
                        let lines = Lines { data, dtype: T::DTYPE, lane: row as isize, step: 1 };
                        let panels = of_panels.start::<T>().add(point * step * width);
                        panel(lines, columns, range.len(), panels, width, kernels);
                    }
                    for tile in 0..tiles {
                        let rows = part(channels.len(), tiles, tile);
                        for point in 0..POINTS {
                            kernels.tiles[rows.len() - 1][columns.div_ceil(kernels.lanes) - 1](&Tile {
                                k: range.len(),
                                a: of_channels.start::<T>().add((rows.start * POINTS + point) * row),
                                a_row: (POINTS * row) as isize,
                                a_step: 1,
                                b: of_panels.start::<T>().add(point * step * width),
                                b_step: width as isize,
                                c: of_sums.start::<T>().add(point * rows.len() * width),
                                c_row: width as isize,
                                columns,
                                accumulate: false,
                            });
                        }
                        for (i, channel) in rows.clone().enumerate() {
                            let from = of_sums.start::<T>().add(i * width);
                            let to = sums.add(channel * TAPS * sums_row + o);
                            let from_step = rows.len() * width;
                            transform(Matrix::FilterGradient, from, from_step, to, sums_row, columns, true);
                        }
                    }
                }
            }
        }
    }
}
