//! A padded part of one image in scratch memory, from which every tap of every position of a box can be read.

use phynexus::{DType, Error, interrupt::or_leave};

use super::axes::{Axis, Phase};
use crate::gemm::pack::Accumulator;
use crate::gemm::scratch::Scratch;
use crate::kernels::patches::{COPY, Segment};

/// Ranges of positions along the three axes.
pub(super) type Box3 = [std::ops::Range<usize>; 3];

/// The most elements in a slab: their bytes and a few registers fit in an `isize`.
const MOST: usize = isize::MAX as usize / 16;
/// The elements that a slab may have even if its image is small: padded images of usual networks have fewer.
const SMALL: usize = 1 << 24;

/// The number of positions in a box.
pub(super) fn volume(positions: &Box3) -> usize {
    positions.iter().map(|r| r.len()).product()
}

/// Calls `each` with boxes that together are `positions`, cut until their slabs of `channels` channels are not much
/// larger than the image, or have a single position. Cuts are along the first axis with several positions, so the
/// positions of each box are contiguous if those of the whole are.
pub(super) fn for_each_box(axes: &[Axis; 3], positions: &Box3, channels: usize, each: &mut dyn FnMut(&Box3)) {
    let fits = Layout::new(axes, positions, channels).is_some_and(|layout| !layout.is_large(channels));
    match (0..3).find(|&d| positions[d].len() > 1) {
        Some(d) if !fits => {
            let middle = positions[d].start + positions[d].len() / 2;
            for half in [positions[d].start..middle, middle..positions[d].end] {
                let mut part = positions.clone();
                part[d] = half;
                for_each_box(axes, &part, channels, each);
            }
        }
        _ => each(positions),
    }
}

/// The places of a part of an image that is padded. Along the last axis, elements that are one step apart are stored
/// adjacently, so adjacent positions always are.
pub(super) struct Layout<'a> {
    axes: &'a [Axis; 3],
    /// The place in the image of the first element along each axis; it may be outside.
    pub(super) start: [isize; 3],
    /// Extents along the axes; for the last axis, of one residue of the step.
    pub(super) extents: [usize; 3],
    /// The elements along the last axis, of all residues.
    pub(super) row: usize,
    /// Elements per channel.
    pub(super) channel: usize,
    /// Residues of the step along the last axis; a single position needs no distinction.
    residues: usize,
}

impl<'a> Layout<'a> {
    /// Room for every tap of every position of a box. `None` if no memory could hold `channels` channels.
    pub(super) fn new(axes: &'a [Axis; 3], positions: &Box3, channels: usize) -> Option<Layout<'a>> {
        let mut extents = [0; 3];
        let mut start = [0; 3];
        for (d, axis) in axes.iter().enumerate() {
            let first = isize::try_from(positions[d].start.checked_mul(axis.step)?).ok()?;
            start[d] = first.checked_add(axis.low)?;
            let last = positions[d].len().saturating_sub(1).checked_mul(axis.step)?;
            let reach = usize::try_from(axis.high.checked_sub(axis.low)?).ok()?;
            extents[d] = last.checked_add(reach)?.checked_add(1)?;
        }
        let residues = if positions[2].len() > 1 { axes[2].step } else { 1 };
        let row = extents[2];
        extents[2] = row.div_ceil(residues);
        let line = residues.checked_mul(extents[2])?;
        let channel = extents[0].checked_mul(extents[1])?.checked_mul(line)?;
        let fits = channel.checked_mul(channels)? <= MOST;
        fits.then_some(Layout { axes, start, extents, row, channel, residues })
    }

    /// Whether a slab of `channels` channels is much larger than the image, because of padding or strides.
    pub(super) fn is_large(&self, channels: usize) -> bool {
        let image: usize = self.axes.iter().map(|axis| axis.source).product();
        channels * self.channel > channels.saturating_mul(image).saturating_mul(4).saturating_add(SMALL)
    }

    /// Whether it has the elements of the image in their order.
    fn is_image(&self) -> bool {
        self.residues == 1 && (0..3).all(|d| self.start[d] == 0 && self.extents[d] == self.axes[d].source)
    }

    /// The number of elements in all residues of a row.
    pub(super) fn line(&self) -> usize {
        self.residues * self.extents[2]
    }

    /// Where the residues of a row start whose first element is element `lead`.
    pub(super) fn residue_starts(&self, lead: usize) -> Vec<usize> {
        let residues = self.residues;
        (lead..lead + residues).map(|i| i % residues * self.extents[2] + i / residues).collect()
    }

    /// The rows along the first or second axis that are inside the image, relative to the first.
    pub(super) fn inside(&self, d: usize) -> std::ops::Range<isize> {
        let last = (self.axes[d].source as isize - self.start[d]).clamp(0, self.extents[d] as isize);
        (-self.start[d]).clamp(0, last)..last
    }

    /// The offsets of a phase's taps for position 0 of the box, channel by channel, in the order of their filter
    /// indices: the last axis varies fastest.
    pub(super) fn tap_offsets(&self, phases: [&Phase; 3], channels: usize) -> Vec<usize> {
        let [planes, rows, columns] = phases;
        let residues = self.residues;
        let place = |d: usize, tap: &(usize, isize)| (tap.1 - self.axes[d].low) as usize;
        let mut offsets =
            Vec::with_capacity(channels * planes.taps.len() * rows.taps.len() * columns.taps.len());
        for c in 0..channels {
            for plane in &planes.taps {
                for row in &rows.taps {
                    for column in &columns.taps {
                        let x = place(2, column);
                        let line = place(0, plane) * self.extents[1] + place(1, row);
                        let start = (line * residues + x % residues) * self.extents[2] + x / residues;
                        offsets.push(c * self.channel + start);
                    }
                }
            }
        }
        offsets
    }

    /// The runs of positions of a box in each of some images, `distance` elements apart, relative to the slab's own
    /// box, row-major.
    pub(super) fn segments(&self, images: usize, distance: usize, counts: [usize; 3]) -> Vec<Segment> {
        let mut segments = Vec::with_capacity(images * counts[0] * counts[1]);
        for image in 0..images {
            for z in 0..counts[0] {
                for y in 0..counts[1] {
                    let line = z * self.axes[0].step * self.extents[1] + y * self.axes[1].step;
                    segments.push(Segment {
                        slab: image * distance + line * self.line(),
                        position: ((image * counts[0] + z) * counts[1] + y) * counts[2],
                        count: counts[2],
                    });
                }
            }
        }
        segments
    }
}

/// Channels of images in memory.
#[derive(Clone, Copy)]
pub(super) struct Planes {
    pub(super) data: *const u8,
    pub(super) dtype: DType,
    pub(super) images: usize,
    /// Elements between images.
    pub(super) distance: usize,
    /// Channels of an image, contiguous.
    pub(super) channels: usize,
    /// The number of positions after which runs are cut.
    pub(super) cut: usize,
}

/// Some channels of some images over a box of positions, with zeros outside each image.
pub(super) struct Slab<'a, T> {
    pub(super) layout: Layout<'a>,
    images: usize,
    /// Elements between images.
    distance: usize,
    start: *const T,
    /// What the elements are in, unless they are read in place.
    _memory: Option<Scratch>,
}

impl<'a, T: Accumulator> Slab<'a, T> {
    /// Copies the channels, unless they can be read in place.
    ///
    /// # Safety
    /// They must exist as long as the slab.
    pub(super) unsafe fn new(axes: &'a [Axis; 3], positions: &Box3, planes: Planes) -> Slab<'a, T> {
        let Planes { data, dtype, images, distance, channels, cut } = planes;
        let count = images * channels;
        let layout = Layout::new(axes, positions, count);
        let layout = or_leave(layout.ok_or(Error::HostMemory { requested: usize::MAX }));
        let Layout { start, extents, row, channel, .. } = layout;
        // Copies of whole chunks must not read past the image.
        let is_chunked = row.is_multiple_of(COPY) && cut.is_multiple_of(COPY);
        if dtype == T::DTYPE && layout.is_image() && is_chunked {
            return Slab { layout, images, distance, start: data.cast(), _memory: None };
        }
        let memory = Scratch::new::<T>(count * channel);
        // The elements of the image's rows that fall inside: `inside.start` is at offset `lead` of the slab's row.
        let size = axes[2].source as isize;
        let inside = start[2].clamp(0, size)..(start[2] + row as isize).clamp(0, size);
        let lead = (inside.start - start[2]).max(0) as usize;
        let temporary = Scratch::new::<T>(inside.len());
        let starts = layout.residue_starts(lead);
        // SAFETY: the memory has room, and rows of the image that fall inside exist.
        unsafe {
            fill_zero(memory.start::<T>(), count * channel);
            for c in (0..count).filter(|_| !inside.is_empty()) {
                let image = data.add(c / channels * distance * dtype.size());
                for z in layout.inside(0) {
                    for y in layout.inside(1) {
                        let (iz, iy) = ((z + start[0]) as usize, (y + start[1]) as usize);
                        let row = (c % channels * axes[0].source + iz) * axes[1].source + iy;
                        let from = image.add((row * axes[2].source + inside.start as usize) * dtype.size());
                        let line = (c * extents[0] + z as usize) * extents[1] + y as usize;
                        let out = memory.start::<T>().add(line * layout.line());
                        copy_row::<T>(from, dtype, inside.len(), &starts, out, temporary.start());
                    }
                }
            }
        }
        let start = memory.start();
        Slab { layout, images, distance: channels * channel, start, _memory: Some(memory) }
    }

    /// The runs of a box of positions in every image.
    pub(super) fn segments(&self, positions: &Box3) -> Vec<Segment> {
        let counts = [0, 1, 2].map(|d: usize| positions[d].len());
        self.layout.segments(self.images, self.distance, counts)
    }

    /// The places of the taps of some channels: see [`Layout::tap_offsets`]. The axes must have one phase each.
    pub(super) fn taps(&self, channels: usize) -> Vec<usize> {
        let phases = [0, 1, 2].map(|d: usize| &self.layout.axes[d].phases[0]);
        self.layout.tap_offsets(phases, channels)
    }

    /// The element with which a channel begins.
    pub(super) fn channel(&self, channel: usize) -> *const T {
        self.start.wrapping_add(channel * self.layout.channel)
    }

    /// The elements.
    pub(super) fn start(&self) -> *const T {
        self.start
    }
}

/// The parts of segments that cover some positions.
pub(super) fn cut(segments: &[Segment], positions: std::ops::Range<usize>, out: &mut Vec<Segment>) {
    out.clear();
    // All segments have the same length.
    let length = segments.first().map_or(1, |s| s.count.max(1));
    let last = positions.end.div_ceil(length).min(segments.len());
    for segment in &segments[(positions.start / length).min(last)..last] {
        let start = segment.position.max(positions.start);
        let end = (segment.position + segment.count).min(positions.end);
        out.push(Segment {
            slab: segment.slab + start - segment.position,
            position: start,
            count: end - start,
        });
    }
}

/// Copies `count` elements to a row: each residue of the step to adjacent places from its own start on.
///
/// # Safety
/// The elements must exist; `out` must have room for the row, and `temporary` for `count` elements.
unsafe fn copy_row<T: Accumulator>(
    from: *const u8,
    dtype: DType,
    count: usize,
    starts: &[usize],
    out: *mut T,
    temporary: *mut T,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let source = if dtype == T::DTYPE {
            from.cast::<T>()
        } else {
            T::widen(dtype, from, count, temporary);
            temporary.cast_const()
        };
        split_residues(source, count, starts, out);
    }
}

/// Copies elements to the places of their residues, each to adjacent places from its own start on.
///
/// # Safety
/// The elements must exist, and `out` must have room for the row.
pub(super) unsafe fn split_residues<T: Copy>(source: *const T, count: usize, starts: &[usize], out: *mut T) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut done = 0;
        match *starts {
            [start] => std::ptr::copy_nonoverlapping(source, out.add(start), count),
            [even, odd] => {
                // Whole blocks compile to shuffles.
                while done + 16 <= count {
                    let block: [T; 16] = *source.add(done).cast();
                    *out.add(even + done / 2).cast() = std::array::from_fn::<T, 8, _>(|i| block[2 * i]);
                    *out.add(odd + done / 2).cast() = std::array::from_fn::<T, 8, _>(|i| block[2 * i + 1]);
                    done += 16;
                }
                for i in (done..count).step_by(2) {
                    *out.add(even + i / 2) = *source.add(i);
                    if i + 1 < count {
                        *out.add(odd + i / 2) = *source.add(i + 1);
                    }
                }
            }
            _ => {
                for (residue, start) in starts.iter().enumerate() {
                    for (i, element) in (residue..count).step_by(starts.len()).enumerate() {
                        *out.add(start + i) = *source.add(element);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `out` must have room for `count` elements.
pub(super) unsafe fn fill_zero<T: Accumulator>(out: *mut T, count: usize) {
    // SAFETY: guaranteed by the caller; all-zero bits are the number 0.
    unsafe { out.write_bytes(0, count) }
}
