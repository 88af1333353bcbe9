//! Images and filters of bytes as the words that the byte kernels multiply.
//!
//! A word has the bytes of a few channels at one place, or, if there are few channels, those of one channel at the places
//! of a few taps along the last axis. In both cases, a tap of the words is a shift of the image of words.

use super::axes::Axis;
use super::correlate::Correlation;
use super::slab::{Box3, Layout, split_residues};
use crate::gemm::scratch::Scratch;
use crate::kernels::words::Packing;

/// What the bytes of a word are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    Channels,
    /// Taps along the last axis, which are this many elements apart.
    Taps(usize),
}

/// The image's words of a convolution.
pub(super) struct Image {
    pub(super) packing: Packing,
    pub(super) along: Along,
    /// The axes, whose taps are words.
    pub(super) axes: [Axis; 3],
    /// Planes of words per group.
    pub(super) planes: usize,
    /// Taps of a plane of words.
    pub(super) taps: usize,
}

impl Image {
    /// The words of this image, in the arrangement that has fewer words per sum.
    pub(super) fn new(job: &Correlation<'_>, packing: Packing) -> Image {
        let mut axes = job.axes.clone();
        let each = packing.elements();
        let [planes, rows, columns] = job.kernel;
        let groups = columns.div_ceil(each);
        let of_channels = job.channels.div_ceil(each) * columns;
        let distance = match axes[2].phases[0].taps[..] {
            [(_, a), (_, b), ..] => (b - a) as usize,
            _ => 1,
        };
        // Words along taps are read from rows that are a few distances longer.
        let is_near = distance <= axes[2].source.max(1);
        let (along, planes_of_words, last) = if is_near && job.channels * groups < of_channels {
            let taps = (0..groups).map(|g| (g, axes[2].low + (g * each * distance) as isize)).collect();
            axes[2].phases[0].taps = taps;
            (Along::Taps(distance), job.channels, groups)
        } else {
            (Along::Channels, job.channels.div_ceil(each), columns)
        };
        Image { packing, along, axes, planes: planes_of_words, taps: planes * rows * last }
    }

    /// The layout of a group's words for all positions. `None` if they are many more than the image's words, because of
    /// padding or strides.
    pub(super) fn layout(&self) -> Option<Layout<'_>> {
        let positions: Box3 = [0, 1, 2].map(|d: usize| 0..self.axes[d].positions());
        Layout::new(&self.axes, &positions, self.planes).filter(|layout| !layout.is_large(self.planes))
    }

    /// Writes a plane of words of a group whose channels start at `channels`.
    ///
    /// # Safety
    /// The group's `count` channels must exist, and `out` must have room for the layout's elements.
    pub(super) unsafe fn fill(
        &self,
        layout: &Layout<'_>,
        channels: *const u8,
        count: usize,
        plane: usize,
        out: *mut u32,
    ) {
        let [depth, height, width] = [0, 1, 2].map(|d: usize| self.axes[d].source);
        let size = depth * height * width;
        let each = self.packing.elements();
        let (first, lines) = match self.along {
            Along::Channels => (plane * each, each.min(count - plane * each)),
            Along::Taps(_) => (plane, 1),
        };
        let whole = self.along == Along::Channels
            && layout.start == [0; 3]
            && layout.extents == [depth, height, width]
            && layout.row == width;
        // The bytes of missing channels are multiplied by zeros.
        let missing = if lines == each { 0 } else { if whole { size } else { width } };
        let none = Scratch::new::<u8>(missing);
        // SAFETY: the scratch has room.
        unsafe { none.start::<u8>().write_bytes(0, missing) };
        let sources = |at: usize| -> [*const u8; 4] {
            let channel = |j: usize| {
                if j < lines {
                    channels.wrapping_add((first + j) * size + at)
                } else {
                    none.start::<u8>().cast_const()
                }
            };
            [channel(0), channel(1), channel(2), channel(3)]
        };
        if whole {
            // SAFETY: all elements of the channels exist.
            unsafe { self.packing.interleave(sources(0), size, out) };
            return;
        }
        if let (Along::Taps(distance), 1) = (self.along, self.axes[2].step) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.shifted(layout, sources(0)[0], distance, out) };
            return;
        }
        let line = layout.line();
        let is_direct = line == layout.row && self.axes[2].step == 1;
        let row = Scratch::new::<u32>(layout.row);
        let starts = layout.residue_starts(0);
        let mut builder = Row::new(self, layout);
        let inside = [layout.inside(0), layout.inside(1)];
        for z in 0..layout.extents[0] as isize {
            for y in 0..layout.extents[1] as isize {
                // SAFETY: each row of the layout has room for its words; rows inside the image exist.
                unsafe {
                    let to = out.add((z as usize * layout.extents[1] + y as usize) * line);
                    if !inside[0].contains(&z) || !inside[1].contains(&y) {
                        std::slice::from_raw_parts_mut(to, line).fill(self.packing.zero());
                        continue;
                    }
                    let (iz, iy) = ((z + layout.start[0]) as usize, (y + layout.start[1]) as usize);
                    let sources = sources((iz * height + iy) * width);
                    let words = if is_direct { to } else { row.start() };
                    builder.build(sources, words);
                    if !is_direct {
                        split_residues(words.cast_const(), layout.row, &starts, to);
                    }
                }
            }
        }
    }
}

impl Image {
    /// Writes a plane of words along taps from a padded copy of its channel. The words of a row's last places have bytes
    /// of the next row, which are multiplied by zeros: rows have room for all taps.
    ///
    /// # Safety
    /// The channel must exist, and `out` must have room for the layout's elements.
    unsafe fn shifted(&self, layout: &Layout<'_>, channel: *const u8, distance: usize, out: *mut u32) {
        let [height, width] = [1, 2].map(|d: usize| self.axes[d].source);
        let length = layout.channel + (self.packing.elements() - 1) * distance;
        let padded = Scratch::new::<u8>(length);
        let start = padded.start::<u8>();
        let end = layout.start[2] + layout.row as isize;
        let inside = layout.start[2].clamp(0, width as isize)..end.clamp(0, width as isize);
        let lead = (inside.start - layout.start[2]) as usize;
        // SAFETY: guaranteed by the caller; the scratch has room, and rows inside the image exist.
        unsafe {
            start.write_bytes(0, length);
            for z in layout.inside(0) {
                for y in layout.inside(1).filter(|_| !inside.is_empty()) {
                    let (iz, iy) = ((z + layout.start[0]) as usize, (y + layout.start[1]) as usize);
                    let from = channel.add((iz * height + iy) * width + inside.start as usize);
                    let line = z as usize * layout.extents[1] + y as usize;
                    std::ptr::copy_nonoverlapping(from, start.add(line * layout.row + lead), inside.len());
                }
            }
            let lines = [0, 1, 2, 3].map(|j| start.cast_const().wrapping_add(j * distance));
            self.packing.interleave(lines, layout.channel, out);
        }
    }
}

/// Builds rows of words.
struct Row<'a> {
    image: &'a Image,
    /// The place of the first word in the image.
    start: isize,
    /// Words of a row.
    count: usize,
    /// The bytes of a row with its padding, for words along taps.
    padded: Scratch,
}

impl<'a> Row<'a> {
    fn new(image: &'a Image, layout: &Layout<'_>) -> Row<'a> {
        let mut row = Row { image, start: layout.start[2], count: layout.row, padded: Scratch::new::<u8>(0) };
        if let Along::Taps(_) = image.along {
            row.padded = Scratch::new::<u8>(row.length());
            // SAFETY: the scratch has this length. The padding stays zero.
            unsafe { row.padded.start::<u8>().write_bytes(0, row.length()) };
        }
        row
    }

    /// The bytes of a row.
    fn length(&self) -> usize {
        match self.image.along {
            Along::Channels => self.count,
            Along::Taps(distance) => self.count + (self.image.packing.elements() - 1) * distance,
        }
    }

    /// # Safety
    /// The sources must be rows of the image, and `out` must have room for the words.
    unsafe fn build(&mut self, sources: [*const u8; 4], out: *mut u32) {
        let packing = self.image.packing;
        let size = self.image.axes[2].source as isize;
        let end = self.start + self.length() as isize;
        let inside = self.start.clamp(0, size)..end.clamp(0, size);
        let lead = (inside.start - self.start) as usize;
        let count = inside.len();
        // SAFETY: guaranteed by the caller; the range is inside the image.
        unsafe {
            match self.image.along {
                Along::Channels => {
                    let zeros = |range: std::ops::Range<usize>| {
                        std::slice::from_raw_parts_mut(out.add(range.start), range.len())
                            .fill(packing.zero());
                    };
                    zeros(0..lead.min(self.count));
                    zeros((lead + count).min(self.count)..self.count);
                    let sources = sources.map(|source| source.offset(inside.start));
                    packing.interleave(sources, count, out.add(lead.min(self.count)));
                }
                Along::Taps(distance) => {
                    let padded = self.padded.start::<u8>();
                    if count > 0 {
                        let from = sources[0].offset(inside.start);
                        std::ptr::copy_nonoverlapping(from, padded.add(lead), count);
                    }
                    let lines = [0, 1, 2, 3].map(|j| padded.cast_const().wrapping_add(j * distance));
                    packing.interleave(lines, self.count, out);
                }
            }
        }
    }
}
