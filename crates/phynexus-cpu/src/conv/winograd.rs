//! Convolutions with filters of 3 by 3 and a stride of 1, and their gradients, by Winograd's method F(2x2, 3x3)
//! (`kernels::winograd`): 16 multiplications for 2 by 2 elements of a channel's result, in place of 36.
//!
//! Sums of a tile are rounded relative to the largest of its 4 by 4 source elements, also for results that do not depend
//! on that element. Images and filters with infinities, NaN or huge numbers are left to the other code, since a tile's
//! results would get them all.

use std::ops::Range;

use super::axes::Axis;
use super::correlate::Correlation;
use super::filter::{FilterGradient, PATCHES};
use super::slab::{Box3, Planes, Slab, cut, for_each_box, volume};
use crate::gemm::blocked::Shared;
use crate::gemm::pack::{Accumulator, Lines, panel};
use crate::gemm::part;
use crate::gemm::scratch::Scratch;
use crate::kernels::Kernels;
use crate::kernels::patches::{COPY, Gather, Segment};
use crate::kernels::tile::Tile;
use crate::kernels::winograd::{Matrix, POINTS, Transform};
use crate::pool;

/// The fewest channels of the source and of the result that are worth the transforms.
const CHANNELS: usize = 32;
/// The fewest tiles that are worth the transform of the filters.
const TILES: usize = 8;
/// Elements of a filter.
const TAPS: usize = 9;
/// Channels whose patches are gathered together.
const GATHERED: usize = 4;
/// Elements checked by a task.
const CHECKED: usize = 1 << 16;

/// The axes of tiles, if this method is faster than the other.
pub(super) fn tiles(axes: &[Axis; 3], images: usize, channels: [usize; 2]) -> Option<[Axis; 3]> {
    let tiles = [Axis::of_points(1), axes[1].tiles()?, axes[2].tiles()?];
    let results: usize = axes.iter().map(|axis| axis.result).product();
    let count: usize = tiles.iter().map(|axis| axis.result).product();
    let is_faster = 5 * POINTS * count <= 4 * TAPS * results && images * count >= TILES;
    (axes[0].is_pointwise() && is_faster && channels.iter().all(|&count| count >= CHANNELS)).then_some(tiles)
}

/// Whether the magnitudes of all elements are less than 2^33 (`f32`) or 2^257 (`f64`), so that no product overflows
/// which would not have done so otherwise.
///
/// # Safety
/// The elements must exist.
pub(super) unsafe fn are_bounded<T: Accumulator>(data: *const T, count: usize) -> bool {
    let data = Shared(data.cast_mut());
    let found = std::sync::atomic::AtomicBool::new(false);
    pool::parallel_for(count.div_ceil(CHECKED), &|task| {
        let range = task * CHECKED..count.min((task + 1) * CHECKED);
        // SAFETY: guaranteed by the caller; floats of this size.
        let is_large = unsafe {
            let data = data.get().add(range.start);
            if size_of::<T>() == size_of::<u32>() {
                let bits = std::slice::from_raw_parts(data.cast::<u32>(), range.len());
                // The highest bit of the exponent and one of the next two.
                bits.iter().fold(0, |all, x| all | (x & (x << 1 | x << 2))) >> 30 & 1 == 1
            } else {
                let bits = std::slice::from_raw_parts(data.cast::<u64>(), range.len());
                bits.iter().fold(0, |all, x| all | (x & (x << 1 | x << 2))) >> 62 & 1 == 1
            }
        };
        if is_large {
            found.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    !found.into_inner()
}

/// What a convolution and its input gradient share with their tasks.
struct Shares<'a, T: 'static> {
    job: &'a Correlation<'a>,
    kernels: &'static Kernels<T>,
    axes: [Axis; 3],
    half: T,
    /// Tiles of rows of the matrix products.
    tiles: usize,
}

/// Computes every element of the result. Returns false, without a result, if the method is not for this job.
///
/// # Safety
/// Source, filter and result must have the sizes given in `job`, and the machine must support the instruction set.
pub(super) unsafe fn correlate<T: Accumulator>(job: &Correlation<'_>) -> bool {
    let Some(half) = T::HALF else { return false };
    let Some(axes) = tiles(job.axes, job.images, [job.channels, job.rows]) else { return false };
    let source: usize = job.axes.iter().map(|axis| axis.source).product();
    let source = source * job.images * job.groups * job.channels;
    let filters = job.groups * job.rows * job.channels * TAPS;
    // SAFETY: guaranteed by the caller.
    let is_usable = [job.dtype, job.filter_dtype, job.result_dtype] == [T::DTYPE; 3]
        && unsafe { are_bounded::<T>(job.source.cast(), source) }
        && unsafe { are_bounded::<T>(job.filter.cast(), filters) };
    if !is_usable {
        return false;
    }
    let kernels = T::kernels(job.set);
    let tiles = job.rows.div_ceil(kernels.rows());
    let shares = Shares { job, kernels, axes, half, tiles };
    let of_group = POINTS * job.channels * job.rows;
    let packed = Scratch::new::<T>(job.groups * of_group);
    let weights = Shared(packed.start::<T>());
    pool::parallel_for(job.groups * tiles, &|task| {
        let (group, tile) = (task / tiles, task % tiles);
        // SAFETY: each task transforms the filters of one tile of rows.
        unsafe { shares.transform_filters(group, tile, weights.get().add(group * of_group)) };
    });
    let count: usize = shares.axes.iter().map(|axis| axis.result).product();
    let together = job.together(kernels.lanes, count);
    let units = job.images.div_ceil(together);
    let (wanted, tasks) = (4 * pool::threads(), (units * job.groups).max(1));
    let lines = if tasks >= wanted || together > 1 { 1 } else { wanted.div_ceil(tasks) };
    let lines = lines.min(shares.axes[1].result);
    pool::parallel_for(units * job.groups * lines, &|task| {
        let (unit, group) = (task / lines / job.groups, task / lines % job.groups);
        let images = part(job.images, units, unit);
        let of_lines = part(shares.axes[1].result, lines, task % lines);
        let positions = [0..1, of_lines, 0..shares.axes[2].result];
        // SAFETY: tasks write disjoint parts of the result.
        unsafe {
            let weights = weights.get().add(group * of_group);
            for_each_box(&shares.axes, &positions, images.len() * job.channels, &mut |positions| {
                shares.part_of_images(weights, images.clone(), group, positions);
            });
        }
    });
    true
}

impl<T: Accumulator> Shares<'_, T> {
    /// Transforms the filters of a tile of rows: `[point][channel][row]` from the tile's start on.
    ///
    /// # Safety
    /// The filters must exist, and `out` must have room for the group's.
    unsafe fn transform_filters(&self, group: usize, tile: usize, out: *mut T) {
        let (job, kernels) = (self.job, self.kernels);
        let rows = part(job.rows, self.tiles, tile);
        let [group_stride, row_stride, channel_stride] = job.filter_strides;
        let filters = Scratch::new::<T>(TAPS * rows.len());
        // The input gradient's taps are in the reverse order of their places.
        let is_reversed = job.axes[2].phases[0].taps[0].1 != job.axes[2].low;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let first = filters.start::<T>();
            let last = first.add((TAPS - 1) * rows.len());
            let step = rows.len() as isize;
            for channel in 0..job.channels {
                let offset = group * group_stride + channel * channel_stride + rows.start * row_stride;
                let from = job.filter.cast::<T>().add(offset);
                (kernels.transpose)(from, row_stride as isize, rows.len(), TAPS, first, rows.len());
                (kernels.winograd)(
                    Matrix::Filter,
                    &Transform {
                        from: if is_reversed { last } else { first },
                        from_step: if is_reversed { -step } else { step },
                        to: out.add(POINTS * job.channels * rows.start + channel * rows.len()),
                        to_step: job.channels * rows.len(),
                        count: rows.len(),
                        half: self.half,
                    },
                );
            }
        }
    }

    /// Computes a box of tiles of some images and one group.
    ///
    /// # Safety
    /// Same as [`correlate`]; no other task may write these elements.
    unsafe fn part_of_images(&self, weights: *const T, images: Range<usize>, group: usize, positions: &Box3) {
        let (job, kernels) = (self.job, self.kernels);
        let source_size = job.axes[1].source * job.axes[2].source;
        let first_channel = (images.start * job.groups + group) * job.channels;
        let width = kernels.columns();
        let channels = job.channels;
        // SAFETY: the group's channels exist, and the scratch has room for a panel of tiles.
        unsafe {
            let planes = Planes {
                data: job.source.add(first_channel * source_size * job.dtype.size()),
                dtype: job.dtype,
                images: images.len(),
                distance: job.groups * channels * source_size,
                channels,
                cut: width,
            };
            let slab: Slab<'_, T> = Slab::new(&self.axes, positions, planes);
            let phases = [0, 1, 2].map(|d: usize| &self.axes[d].phases[0]);
            let offsets = slab.layout.tap_offsets(phases, channels);
            let segments = slab.segments(positions);
            let count = images.len() * volume(positions);
            let patches = Scratch::new::<T>(GATHERED * POINTS * width);
            let points = Scratch::new::<T>(POINTS * channels * width);
            let sums = Scratch::new::<T>(POINTS * kernels.rows() * width);
            let results = Scratch::new::<T>(4 * kernels.rows() * width);
            let mut here: Vec<Segment> = Vec::new();
            for start in (0..count).step_by(width) {
                pool::check();
                let columns = start..count.min(start + width);
                cut(&segments, columns.clone(), &mut here);
                for (at, offsets) in offsets.chunks(GATHERED * POINTS).enumerate() {
                    let out = patches.start::<T>();
                    (kernels.gather)(&Gather {
                        slab: slab.start(),
                        offsets,
                        segments: &here,
                        first: start,
                        out,
                        width,
                    });
                    for channel in 0..offsets.len() / POINTS {
                        (kernels.winograd)(
                            Matrix::Source,
                            &Transform {
                                from: out.add(channel * POINTS * width),
                                from_step: width as isize,
                                to: points.start::<T>().add((at * GATHERED + channel) * width),
                                to_step: channels * width,
                                count: columns.len(),
                                half: self.half,
                            },
                        );
                    }
                }
                for tile in 0..self.tiles {
                    let rows = part(job.rows, self.tiles, tile);
                    let weights = weights.add(POINTS * channels * rows.start);
                    self.multiply(weights, rows.len(), points.start(), columns.len(), sums.start());
                    let of_point = rows.len() * width;
                    (kernels.winograd)(
                        Matrix::Result,
                        &Transform {
                            from: sums.start(),
                            from_step: of_point as isize,
                            to: results.start(),
                            to_step: of_point,
                            count: of_point,
                            half: self.half,
                        },
                    );
                    for (i, row) in rows.enumerate() {
                        let from = results.start::<T>().add(i * width);
                        self.store(from, of_point, start, &here, images.start, group, row, positions);
                    }
                }
            }
        }
        for image in images {
            let covered = |d: usize| 2 * positions[d].start..job.axes[d].result.min(2 * positions[d].end);
            job.finish_box(image, group, &[0..1, covered(1), covered(2)]);
        }
    }

    /// Multiplies the transformed filters of a tile of rows with a panel of transformed patches, point by point.
    ///
    /// # Safety
    /// The operands must exist, and `sums` must have room for `[point][row][column]`.
    unsafe fn multiply(
        &self,
        weights: *const T,
        rows: usize,
        points: *const T,
        columns: usize,
        sums: *mut T,
    ) {
        let (kernels, channels) = (self.kernels, self.job.channels);
        let width = kernels.columns();
        let multiply = kernels.tiles[rows - 1][columns.div_ceil(kernels.lanes) - 1];
        for point in 0..POINTS {
            for channel in (0..channels).step_by(T::K_BLOCK) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    multiply(&Tile {
                        k: T::K_BLOCK.min(channels - channel),
                        a: weights.add((point * channels + channel) * rows),
                        a_row: 1,
                        a_step: rows as isize,
                        b: points.add((point * channels + channel) * width),
                        b_step: width as isize,
                        c: sums.add(point * rows * width),
                        c_row: width as isize,
                        columns,
                        accumulate: channel > 0,
                    });
                }
            }
        }
    }

    /// Stores a row's results: those of tile `first + i` are `from[i]`, and those of other elements of a tile follow
    /// in distances of `step`.
    ///
    /// # Safety
    /// The tiles must exist, and no other task may write their elements.
    unsafe fn store(
        &self,
        from: *const T,
        step: usize,
        first: usize,
        segments: &[Segment],
        image: usize,
        group: usize,
        row: usize,
        positions: &Box3,
    ) {
        let job = self.job;
        let [_, height, width] = [0, 1, 2].map(|d: usize| job.axes[d].result);
        let [_, lines, columns] = [0, 1, 2].map(|d: usize| positions[d].len());
        for segment in segments {
            let (line, column) = (segment.position / columns, segment.position % columns);
            let image = image + line / lines;
            let plane = ((image * job.groups + group) * job.rows + row) * height;
            let x = 2 * (positions[2].start + column);
            let y = 2 * (positions[1].start + line % lines);
            for y in y..height.min(y + 2) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let from = from.add(y % 2 * 2 * step + segment.position - first);
                    let out = job.result.cast::<T>().add((plane + y) * width + x);
                    interleave(from, from.add(step), (2 * segment.count).min(width - x), out);
                }
            }
        }
    }
}

/// Stores `count` elements, alternately from `even` and from `odd`.
///
/// # Safety
/// The elements must exist, and `out` must have room for them.
unsafe fn interleave<T: Copy>(even: *const T, odd: *const T, count: usize, out: *mut T) {
    const CHUNK: usize = 8;
    let mut done = 0;
    // SAFETY: guaranteed by the caller.
    unsafe {
        while done + 2 * CHUNK <= count {
            let [a, b] = [even, odd].map(|from| *from.add(done / 2).cast::<[T; CHUNK]>());
            // Compiles to shuffles.
            let both: [T; 2 * CHUNK] = std::array::from_fn(|i| if i % 2 == 0 { a[i / 2] } else { b[i / 2] });
            *out.add(done).cast() = both;
            done += 2 * CHUNK;
        }
        for i in done..count {
            *out.add(i) = *if i % 2 == 0 { even } else { odd }.add(i / 2);
        }
    }
}

/// The gradient of filters, computed from tiles.
pub(super) struct Tiles<T> {
    pub(super) axes: [Axis; 3],
    of_result: [Axis; 3],
    half: T,
}

impl<T: Accumulator> Tiles<T> {
    /// `None` if the method is not for this job.
    ///
    /// # Safety
    /// The operands must exist.
    pub(super) unsafe fn of(job: &FilterGradient<'_>) -> Option<Tiles<T>> {
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

    /// Transforms the gradients of some channels' filters, `[channel][point][column]`, to `[channel][tap][column]` in
    /// place.
    ///
    /// # Safety
    /// The gradients must exist.
    pub(super) unsafe fn finish(
        &self,
        kernels: &Kernels<T>,
        gradients: *mut T,
        channels: usize,
        columns: usize,
    ) {
        for channel in 0..channels {
            // SAFETY: guaranteed by the caller; a register of a matrix is read before it is written, and no earlier
            // matrix reaches a later one.
            unsafe {
                (kernels.winograd)(
                    Matrix::FilterGradient,
                    &Transform {
                        from: gradients.add(channel * POINTS * columns),
                        from_step: columns as isize,
                        to: gradients.add(channel * TAPS * columns),
                        to_step: columns,
                        count: columns,
                        half: self.half,
                    },
                );
            }
        }
    }

    /// Adds the products of a box of tiles of some images to the transformed gradients of filters:
    /// `[channel][point][output]`.
    ///
    /// # Safety
    /// Same as `filter_gradient`; `sums` must have room for the channels' filters.
    pub(super) unsafe fn add(
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
        let (axes, result_axes, half) = (&self.axes, &self.of_result, self.half);
        let size = |axes: &[Axis; 3]| axes[1].source * axes[2].source;
        let planes = |data: *const u8, size: usize, all: usize, channels: &Range<usize>| Planes {
            data: data.wrapping_add(
                ((images.start * job.groups + group) * all + channels.start) * size * size_of::<T>(),
            ),
            dtype: T::DTYPE,
            images: images.len(),
            distance: job.groups * all * size,
            channels: channels.len(),
            cut: COPY,
        };
        let width = kernels.columns();
        let count = images.len() * volume(positions);
        // SAFETY: the operands exist, and there is room for every row of patches, for panels of gradients, and for sums of
        // every filter and output.
        unsafe {
            let input: Slab<'_, T> =
                Slab::new(axes, positions, planes(job.input, size(axes), job.channels, &channels));
            let phases = |axes: &'_ [Axis; 3]| [0, 1, 2].map(|d: usize| axes[d].phases[0].clone());
            let of_input = phases(axes);
            let offsets = input.layout.tap_offsets(of_input.each_ref(), channels.len());
            let segments = input.segments(positions);
            let of_result = phases(result_axes);
            let longest = (PATCHES / offsets.len()).clamp(64, 1024);
            let step = count.div_ceil(count.div_ceil(longest)).next_multiple_of(COPY);
            // Rows of patches must not be a page apart, or they would share cache sets.
            let row = step + 16;
            let patches = Scratch::new::<T>(offsets.len() * row);
            let gathered = Scratch::new::<T>(4 * width * row);
            let gradients = Scratch::new::<T>(POINTS * width * row);
            let transposed = Scratch::new::<T>(step * width);
            let tiles = channels.len().div_ceil(kernels.rows());
            let (mut here, mut of_here) = (Vec::new(), Vec::new());
            let transform = |matrix: Matrix, from: *const T, to: *mut T, to_step: usize, count: usize| {
                let from_step = row as isize;
                (kernels.winograd)(matrix, &Transform { from, from_step, to, to_step, count, half });
            };
            for from in (0..count).step_by(step) {
                pool::check();
                let range = from..count.min(from + step);
                cut(&segments, range.clone(), &mut here);
                let out = patches.start::<T>();
                let (slab, first) = (input.start(), from);
                (kernels.gather)(&Gather {
                    slab,
                    offsets: &offsets,
                    segments: &here,
                    first,
                    out,
                    width: row,
                });
                for channel in 0..channels.len() {
                    let of_channel = out.add(channel * POINTS * row);
                    transform(Matrix::Source, of_channel, of_channel, row, range.len());
                }
                for o in (0..job.outputs).step_by(width) {
                    let outputs = o..job.outputs.min(o + width);
                    let columns = outputs.len();
                    let of_outputs = planes(job.output_gradient, size(result_axes), job.outputs, &outputs);
                    let gradient: Slab<'_, T> = Slab::new(result_axes, positions, of_outputs);
                    let offsets = gradient.layout.tap_offsets(of_result.each_ref(), columns);
                    cut(&gradient.segments(positions), range.clone(), &mut of_here);
                    let (slab, out_gradient) = (gradient.start(), gathered.start::<T>());
                    (kernels.gather)(&Gather {
                        slab,
                        offsets: &offsets,
                        segments: &of_here,
                        first,
                        out: out_gradient,
                        width: row,
                    });
                    for column in 0..columns {
                        let to = gradients.start::<T>().add(column * row);
                        let from = out_gradient.add(column * 4 * row);
                        transform(Matrix::ResultGradient, from, to, width * row, range.len());
                    }
                    for point in 0..POINTS {
                        let data = gradients.start::<T>().add(point * width * row);
                        let lines = Lines { data: data.cast(), dtype: T::DTYPE, lane: row as isize, step: 1 };
                        panel(lines, columns, range.len(), transposed.start::<T>(), width, kernels);
                        for tile in 0..tiles {
                            let rows = part(channels.len(), tiles, tile);
                            let place = rows.start * POINTS + point;
                            kernels.tiles[rows.len() - 1][columns.div_ceil(kernels.lanes) - 1](&Tile {
                                k: range.len(),
                                a: out.add(place * row),
                                a_row: (POINTS * row) as isize,
                                a_step: 1,
                                b: transposed.start(),
                                b_step: width as isize,
                                c: sums.add(place * sums_row + o),
                                c_row: (POINTS * sums_row) as isize,
                                columns,
                                accumulate: true,
                            });
                        }
                    }
                }
            }
        }
    }
}
