//! Convolutions with filters of 3 by 3 and a stride of 1, and their gradients, by Winograd's method F(2x2, 3x3)
//! (`kernels::winograd`): 16 multiplications for 2 by 2 elements of a channel's result, in place of 36.
//!
//! Sums of a tile are rounded relative to the largest of its 4 by 4 source elements, also for results that do not depend
//! on that element. Images and filters with infinities, NaN or huge numbers are left to the other code, since a tile's
//! results would get them all.

mod filter;

use std::ops::Range;

pub(super) use self::filter::Tiles;
use super::axes::Axis;
use super::correlate::Correlation;
use super::slab::{Box3, Planes, Slab, cut, for_each_box, volume};
use crate::gemm::blocked::Shared;
use crate::gemm::pack::Accumulator;
use crate::gemm::part;
use crate::gemm::scratch::Scratch;
use crate::kernels::Kernels;
use crate::kernels::patches::{Gather, Segment};
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
                        adds: false,
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
            let offsets = slab.taps(channels);
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
                                adds: false,
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
                            adds: false,
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
