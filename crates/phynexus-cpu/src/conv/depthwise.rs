//! Depthwise convolutions and their gradients: every channel has a filter of its own. A register holds adjacent channels
//! at one position, so small images fill it, too, and strides and dilations cost nothing. Images are transposed on the
//! way in and out.

use std::ops::Range;

use phynexus::DType;

use super::axes::{Axis, Phase};
use super::correlate::Correlation;
use super::filter::{FilterGradient, PARTS};
use super::slab::{Box3, fill_zero};
use crate::gemm::blocked::Shared;
use crate::gemm::pack::{Accumulator, Lines, panel};
use crate::gemm::part;
use crate::gemm::scratch::Scratch;
use crate::kernels::Kernels;
use crate::kernels::depthwise::{Depthwise, Place};
use crate::pool;

/// Elements of a band of the padded image, wanted: they fit in the second-level cache.
const WANTED: usize = 1 << 15;
/// Elements of a band at most. Images whose single lines have more are not for this code.
const MOST: usize = 1 << 22;

/// A part of the positions and the padded part of the image that it needs.
struct Band<'a> {
    axes: &'a [Axis; 3],
    positions: Box3,
    /// The places of the padded part in the image.
    start: [isize; 3],
    extents: [usize; 3],
    /// Elements of a position: the channels in a register.
    lanes: usize,
    /// Row-major elements of the result, contiguous.
    result: Range<usize>,
}

/// The places and the offsets of the taps of one combination of phases. Others have other taps.
struct Combination {
    places: Vec<Place>,
    offsets: Vec<usize>,
    /// Indices of the taps in a filter.
    taps: Vec<usize>,
}

impl<'a> Band<'a> {
    /// The bands of all positions, at least as many as wanted if there are as many lines. `None` if an image is too
    /// large for this code.
    fn all(axes: &'a [Axis; 3], lanes: usize, wanted: usize) -> Option<Vec<Band<'a>>> {
        let whole = [0, 1, 2].map(|d: usize| 0..axes[d].positions());
        if whole.iter().any(|range| range.is_empty()) {
            return None;
        }
        // Elements of a band are contiguous: no axis before the one that is cut may have several.
        let axis = (0..3).find(|&d| axes[d].result > 1).unwrap_or(2);
        let size = Band::new(axes, whole.clone(), lanes)?.size();
        let parts = wanted.max(size.div_ceil(WANTED)).clamp(1, whole[axis].len());
        let band = |index| {
            let mut positions = whole.clone();
            positions[axis] = part(whole[axis].len(), parts, index);
            Band::new(axes, positions, lanes).filter(|band| band.size() <= MOST)
        };
        (0..parts).map(band).collect()
    }

    fn new(axes: &'a [Axis; 3], positions: Box3, lanes: usize) -> Option<Band<'a>> {
        let mut start = [0; 3];
        let mut extents = [0; 3];
        let mut elements = lanes;
        for (d, axis) in axes.iter().enumerate() {
            let first = isize::try_from(positions[d].start.checked_mul(axis.step)?).ok()?;
            start[d] = first.checked_add(axis.low)?;
            let reach = usize::try_from(axis.high.checked_sub(axis.low)?).ok()?;
            let last = (positions[d].len() - 1).checked_mul(axis.step)?;
            extents[d] = last.checked_add(reach)?.checked_add(1)?;
            elements = elements.checked_mul(extents[d])?;
        }
        let mut band = Band { axes, positions, start, extents, lanes, result: 0..0 };
        let [first, last] = [0, 1].map(|end| {
            let corner = [0, 1, 2]
                .map(|d: usize| if end == 0 { band.covers(d).start } else { band.covers(d).end - 1 });
            band.element(corner)
        });
        band.result = first..last + 1;
        Some(band)
    }

    /// The elements of the result along an axis.
    fn covers(&self, d: usize) -> Range<usize> {
        let phases = self.axes[d].phases.len();
        self.positions[d].start * phases..self.axes[d].result.min(self.positions[d].end * phases)
    }

    /// The row-major index of an element of the result.
    fn element(&self, [z, y, x]: [usize; 3]) -> usize {
        (z * self.axes[1].result + y) * self.axes[2].result + x
    }

    /// Elements of the padded part.
    fn elements(&self) -> usize {
        self.extents.iter().product::<usize>() * self.lanes
    }

    /// Elements of the padded part or of the result, whichever are more.
    fn size(&self) -> usize {
        self.elements().max(self.result.len().saturating_mul(self.lanes))
    }

    /// The padded part's element at some distances from its start.
    fn source(&self, [z, y, x]: [usize; 3]) -> usize {
        ((z * self.extents[1] + y) * self.extents[2] + x) * self.lanes
    }

    /// The combinations of phases that have positions here, of filters with these extents.
    fn combinations(&self, kernel: [usize; 3]) -> Vec<Combination> {
        let [planes, lines, columns] = [0, 1, 2].map(|d: usize| self.axes[d].phases.iter().enumerate());
        let mut combinations = Vec::new();
        for plane in planes {
            for line in lines.clone() {
                for column in columns.clone() {
                    combinations.push(self.combination([plane, line, column], kernel));
                }
            }
        }
        combinations
    }

    fn combination(&self, phases: [(usize, &Phase); 3], kernel: [usize; 3]) -> Combination {
        let here = |d: usize| {
            let range = &self.positions[d];
            range.start..range.end.min(phases[d].1.count)
        };
        let mut places = Vec::new();
        for z in here(0) {
            for y in here(1) {
                for x in here(2) {
                    let position = [z, y, x];
                    let distance = |d: usize| (position[d] - self.positions[d].start) * self.axes[d].step;
                    let element = |d: usize| phases[d].0 + position[d] * self.axes[d].phases.len();
                    let result = self.element([0, 1, 2].map(element)) - self.result.start;
                    places.push(Place {
                        source: self.source([0, 1, 2].map(distance)) as u32,
                        result: (result * self.lanes) as u32,
                    });
                }
            }
        }
        let (mut offsets, mut taps) = (Vec::new(), Vec::new());
        for plane in &phases[0].1.taps {
            for line in &phases[1].1.taps {
                for column in &phases[2].1.taps {
                    let tap = [plane, line, column];
                    let distance = |d: usize| (tap[d].1 - self.axes[d].low) as usize;
                    offsets.push(self.source([0, 1, 2].map(distance)));
                    taps.push((plane.0 * kernel[1] + line.0) * kernel[2] + column.0);
                }
            }
        }
        Combination { places, offsets, taps }
    }

    /// Copies the padded part of `channels` channels of an image, with zeros outside the image.
    ///
    /// # Safety
    /// The channels must exist, `out` must have room for the part, and the machine must support the kernels' set.
    unsafe fn gather<T: Accumulator>(&self, kernels: &Kernels<T>, image: Planes, out: *mut T) {
        let (lanes, axes) = (self.lanes, self.axes);
        let inside = |d: usize| {
            let (first, size) = (self.start[d], axes[d].source as isize);
            (first.clamp(0, size)) as usize..((first + self.extents[d] as isize).clamp(0, size)) as usize
        };
        let [planes, lines, columns] = [0, 1, 2].map(inside);
        let width = axes[2].source;
        let flat = Scratch::new::<T>(lines.len() * width * lanes);
        let flat = flat.start::<T>();
        // SAFETY: guaranteed by the caller; the lines are inside the image and the part.
        unsafe {
            fill_zero(out, self.elements());
            if lines.is_empty() || columns.is_empty() {
                return;
            }
            for z in planes {
                let first = (z * axes[1].source + lines.start) * width;
                image.transpose(kernels, first..first + lines.len() * width, flat, lanes);
                for (line, y) in lines.clone().enumerate() {
                    let place = |d: usize, at: usize| (at as isize - self.start[d]) as usize;
                    let to = self.source([place(0, z), place(1, y), place(2, columns.start)]);
                    let from = flat.add((line * width + columns.start) * lanes);
                    std::ptr::copy_nonoverlapping(from, out.add(to), columns.len() * lanes);
                }
            }
        }
    }
}

/// Adjacent channels of an image.
#[derive(Clone, Copy)]
struct Planes {
    data: *const u8,
    dtype: DType,
    /// Elements of a channel.
    size: usize,
    channels: usize,
}

impl Planes {
    /// Copies elements of every channel to `[element][lane]`. Lanes without a channel are zero.
    ///
    /// # Safety
    /// The elements must exist, `out` must have room, and the machine must support the kernels' set.
    unsafe fn transpose<T: Accumulator>(
        self,
        kernels: &Kernels<T>,
        elements: Range<usize>,
        out: *mut T,
        lanes: usize,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if self.channels < lanes {
                fill_zero(out, elements.len() * lanes);
            }
            let lines = Lines {
                data: self.data.add(elements.start * self.dtype.size()),
                dtype: self.dtype,
                lane: self.size as isize,
                step: 1,
            };
            panel(lines, self.channels, elements.len(), out, lanes, kernels);
        }
    }
}

/// Computes every element of a depthwise convolution or its input gradient. Returns false, without a result, if the
/// images are too large for this code.
///
/// # Safety
/// Source, filter and result must have the sizes given in `job`, and the machine must support the instruction set.
pub(super) unsafe fn correlate<T: Accumulator>(job: &Correlation<'_>) -> bool {
    let kernels = T::kernels(job.set);
    let lanes = kernels.lanes;
    let blocks = job.groups.div_ceil(lanes);
    let wanted = (4 * pool::threads()).div_ceil((job.images * blocks).max(1));
    let Some(bands) = Band::all(job.axes, lanes, wanted) else { return false };
    let bands: Vec<_> = bands.into_iter().map(|band| (band.combinations(job.kernel), band)).collect();
    let [source_size, result_size] = [0, 1].map(|i| {
        job.axes.iter().map(|axis| if i == 0 { axis.source } else { axis.result }).product::<usize>()
    });
    // The weights of a block of channels: `[tap][lane]`.
    let taps: usize = job.kernel.iter().product();
    let weights = Scratch::new::<T>(blocks * taps * lanes);
    let filter = Planes { data: job.filter, dtype: job.filter_dtype, size: taps, channels: lanes };
    let weights = Shared(weights.start::<T>());
    for block in 0..blocks {
        let channels = block * lanes..job.groups.min((block + 1) * lanes);
        // SAFETY: the filters exist, and there is room for a block.
        unsafe {
            let data = filter.data.add(channels.start * taps * filter.dtype.size());
            let filters = Planes { data, channels: channels.len(), ..filter };
            filters.transpose(kernels, 0..taps, weights.get().add(block * taps * lanes), lanes);
        }
    }
    pool::parallel_for(job.images * blocks * bands.len(), &|task| {
        let ((combinations, band), at) = (&bands[task % bands.len()], task / bands.len());
        let (image, block) = (at / blocks, at % blocks);
        let channels = block * lanes..job.groups.min((block + 1) * lanes);
        let first = image * job.groups + channels.start;
        let (padded, result) =
            (Scratch::new::<T>(band.elements()), Scratch::new::<T>(band.result.len() * lanes));
        let of_taps = Scratch::new::<T>(taps * lanes);
        // SAFETY: the channels exist, the scratch has room, and tasks write disjoint parts of the result.
        unsafe {
            let source = Planes {
                data: job.source.add(first * source_size * job.dtype.size()),
                dtype: job.dtype,
                size: source_size,
                channels: channels.len(),
            };
            band.gather(kernels, source, padded.start::<T>());
            for combination in combinations {
                for (i, tap) in combination.taps.iter().enumerate() {
                    let from = weights.get().add((block * taps + tap) * lanes);
                    std::ptr::copy_nonoverlapping(from, of_taps.start::<T>().add(i * lanes), lanes);
                }
                (kernels.weigh)(&Depthwise {
                    places: &combination.places,
                    offsets: &combination.offsets,
                    source: padded.start(),
                    taps: of_taps.start(),
                    result: result.start(),
                });
            }
            let count = band.result.len();
            let out = job.result.add((first * result_size + band.result.start) * job.result_dtype.size());
            if job.result_dtype == T::DTYPE {
                let (from, step) = (result.start::<T>(), lanes as isize);
                (kernels.transpose)(from, step, count, channels.len(), out.cast(), result_size);
            } else {
                let rows = Scratch::new::<T>(channels.len() * count);
                let rows = rows.start::<T>();
                (kernels.transpose)(result.start(), lanes as isize, count, channels.len(), rows, count);
                for row in 0..channels.len() {
                    let out = out.add(row * result_size * job.result_dtype.size());
                    T::store(rows.add(row * count), count, job.result_dtype, out, 1);
                }
            }
        }
        if let Some(finished) = job.finished {
            finished(first..first + channels.len(), band.result.clone());
        }
    });
    true
}

/// Computes every element of the gradient of a depthwise convolution's filter. Returns false, without a result, if the
/// images are too large for this code. The grouping of sums depends only on the shape.
///
/// # Safety
/// Operands and result must have the sizes given in `job`, and the machine must support the instruction set.
pub(super) unsafe fn filter_gradient<T: Accumulator>(job: &FilterGradient<'_>) -> bool {
    let kernels = T::kernels(job.set);
    let lanes = kernels.lanes;
    let blocks = job.groups.div_ceil(lanes);
    let Some(bands) = Band::all(job.axes, lanes, PARTS.div_ceil((job.images * blocks).max(1))) else {
        return false;
    };
    let kernel = [0, 1, 2].map(|d: usize| job.axes[d].phases[0].taps.len());
    let bands: Vec<_> = bands
        .into_iter()
        .map(|band| (band.combination([0, 1, 2].map(|d: usize| (0, &band.axes[d].phases[0])), kernel), band))
        .collect();
    let [source_size, result_size] = [0, 1].map(|i| {
        job.axes.iter().map(|axis| if i == 0 { axis.source } else { axis.result }).product::<usize>()
    });
    let taps: usize = kernel.iter().product();
    let units = job.images * bands.len();
    let parts = units.clamp(1, PARTS);
    let scratch = Scratch::new::<T>(blocks * parts * taps * lanes);
    let sums = Shared(scratch.start::<T>());
    pool::parallel_for(blocks * parts, &|task| {
        let (block, of_block) = (task / parts, task % parts);
        let channels = block * lanes..job.groups.min((block + 1) * lanes);
        // SAFETY: the sums belong to this task, and the operands exist.
        unsafe {
            let sums = sums.get().add(task * taps * lanes);
            fill_zero(sums, taps * lanes);
            for unit in part(units, parts, of_block) {
                let (image, (combination, band)) = (unit / bands.len(), &bands[unit % bands.len()]);
                let first = image * job.groups + channels.start;
                let planes = |data: *const u8, dtype: DType, size: usize| Planes {
                    data: data.add(first * size * dtype.size()),
                    dtype,
                    size,
                    channels: channels.len(),
                };
                let padded = Scratch::new::<T>(band.elements());
                let gradient = Scratch::new::<T>(band.result.len() * lanes);
                band.gather(kernels, planes(job.input, job.dtypes[0], source_size), padded.start::<T>());
                let of_output = planes(job.output_gradient, job.dtypes[1], result_size);
                of_output.transpose(kernels, band.result.clone(), gradient.start::<T>(), lanes);
                (kernels.multiply)(&Depthwise {
                    places: &combination.places,
                    offsets: &combination.offsets,
                    source: padded.start(),
                    taps: sums,
                    result: gradient.start(),
                });
            }
        }
    });
    let row = Scratch::new::<T>(taps);
    for channel in 0..job.groups {
        let (block, lane) = (channel / lanes, channel % lanes);
        // SAFETY: all sums are complete, and the filter's gradient exists.
        unsafe {
            let row = std::slice::from_raw_parts_mut(row.start::<T>(), taps);
            for (tap, total) in row.iter_mut().enumerate() {
                let of_part = |p: usize| *sums.get().add(((block * parts + p) * taps + tap) * lanes + lane);
                *total = (1..parts).fold(of_part(0), |total, p| total.add(of_part(p)));
            }
            let out = job.result.add(channel * taps * job.result_dtype.size());
            T::store(row.as_ptr(), taps, job.result_dtype, out, 1);
        }
    }
    true
}
