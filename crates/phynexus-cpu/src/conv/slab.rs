//! A part of one image with its padding, in working memory: where every tap of every position of a box can be read.

use phynexus::DType;

use super::axes::{Axis, Phase};
use super::kernels::Segment;
use crate::gemm::pack::Accumulator;
use crate::gemm::scratch::Scratch;

/// Ranges of positions along the three axes.
pub(super) type Box3 = [std::ops::Range<usize>; 3];

/// The number of positions in a box.
pub(super) fn volume(positions: &Box3) -> usize {
    positions.iter().map(|r| r.len()).product()
}

/// Some channels of an image over a box of positions, zeros where the image ends. Along the last axis elements that are
/// a step apart lie side by side, so that neighbouring positions always do.
pub(super) struct Slab<'a, T> {
    axes: &'a [Axis; 3],
    memory: Scratch,
    /// Extents along the axes; the last one of one residue of the step.
    extents: [usize; 3],
    /// Elements of a channel.
    pub(super) channel: usize,
    element: std::marker::PhantomData<T>,
}

impl<'a, T: Accumulator> Slab<'a, T> {
    /// Copies `channels` channels, contiguous from `image` on.
    ///
    /// # Safety
    /// The channels exist.
    pub(super) unsafe fn new(
        axes: &'a [Axis; 3],
        positions: &Box3,
        image: *const u8,
        dtype: DType,
        channels: usize,
    ) -> Slab<'a, T> {
        let mut extents = [0; 3];
        let mut start = [0; 3];
        for (d, axis) in axes.iter().enumerate() {
            start[d] = (positions[d].start * axis.step) as isize + axis.low;
            let last = positions[d].len().saturating_sub(1) * axis.step;
            extents[d] = last + (axis.high - axis.low) as usize + 1;
        }
        let residues = axes[2].step;
        let row = extents[2];
        extents[2] = row.div_ceil(residues);
        let channel = extents[0] * extents[1] * residues * extents[2];
        let memory = Scratch::new::<T>(channels * channel);
        let temporary = Scratch::new::<T>(axes[2].source);
        // Elements of the image's rows that fall inside: `inside.start` is place `lead` of the slab's row.
        let size = axes[2].source as isize;
        let inside = start[2].clamp(0, size)..(start[2] + row as isize).clamp(0, size);
        let (lead, count) = ((inside.start - start[2]) as usize, (inside.end - inside.start) as usize);
        let mut out: *mut T = memory.start();
        for c in 0..channels {
            for z in 0..extents[0] {
                for y in 0..extents[1] {
                    let (iz, iy) = (z as isize + start[0], y as isize + start[1]);
                    let present = (0..axes[0].source as isize).contains(&iz)
                        && (0..axes[1].source as isize).contains(&iy)
                        && count > 0;
                    // SAFETY: the row's place in the memory; the image's row exists.
                    unsafe {
                        if present {
                            let row = (c * axes[0].source + iz as usize) * axes[1].source + iy as usize;
                            let at = row * axes[2].source + inside.start as usize;
                            let from = image.add(at * dtype.size());
                            copy_row::<T>(
                                from,
                                dtype,
                                lead,
                                count,
                                residues,
                                extents[2],
                                out,
                                temporary.start(),
                            );
                        } else {
                            fill_zero(out, residues * extents[2]);
                        }
                        out = out.add(residues * extents[2]);
                    }
                }
            }
        }
        Slab { axes, memory, extents, channel, element: std::marker::PhantomData }
    }

    /// The elements.
    pub(super) fn start(&self) -> *const T {
        self.memory.start()
    }

    /// Where the taps of a phase lie for position 0 of the box, channel after channel, with their filter indices' order:
    /// the last axis runs fastest.
    pub(super) fn tap_offsets(&self, phases: [&Phase; 3], channels: usize) -> Vec<usize> {
        let [planes, rows, columns] = phases;
        let residues = self.axes[2].step;
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

    /// The runs of positions of a box (counted from the slab's own, row-major).
    pub(super) fn segments(&self, counts: [usize; 3]) -> Vec<Segment> {
        let residues = self.axes[2].step;
        let mut segments = Vec::with_capacity(counts[0] * counts[1]);
        for z in 0..counts[0] {
            for y in 0..counts[1] {
                let line = z * self.axes[0].step * self.extents[1] + y * self.axes[1].step;
                let position = (z * counts[1] + y) * counts[2];
                segments.push(Segment {
                    slab: line * residues * self.extents[2],
                    position,
                    count: counts[2],
                });
            }
        }
        segments
    }
}

/// The part of segments that covers some positions.
pub(super) fn cut(segments: &[Segment], positions: std::ops::Range<usize>, out: &mut Vec<Segment>) {
    out.clear();
    // All segments are equally long.
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

/// Copies `count` elements to places `lead` on of a row whose residues lie one after another, `width` elements each, and
/// zeros to the other places.
///
/// # Safety
/// The elements exist; `out` has room for the row, `temporary` for `count`.
unsafe fn copy_row<T: Accumulator>(
    from: *const u8,
    dtype: DType,
    lead: usize,
    count: usize,
    residues: usize,
    width: usize,
    out: *mut T,
    temporary: *mut T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if residues == 1 {
            fill_zero(out, lead);
            T::widen(dtype, from, count, out.add(lead));
            fill_zero(out.add(lead + count), width - lead - count);
            return;
        }
        let source = if dtype == T::DTYPE {
            from.cast::<T>()
        } else {
            T::widen(dtype, from, count, temporary);
            temporary.cast_const()
        };
        for residue in 0..residues {
            let line = out.add(residue * width);
            // Place `residue + i * residues` is element `place - lead`.
            let first = lead.saturating_sub(residue).div_ceil(residues).min(width);
            let end = (lead + count).saturating_sub(residue).div_ceil(residues).clamp(first, width);
            fill_zero(line, first);
            let skip = residue + first * residues;
            if first < end {
                let source = source.add(skip - lead);
                if residues == 2 {
                    // A constant step becomes shuffles.
                    (0..end - first).for_each(|i| *line.add(first + i) = *source.add(2 * i));
                } else {
                    (0..end - first).for_each(|i| *line.add(first + i) = *source.add(residues * i));
                }
            }
            fill_zero(line.add(end), width - end);
        }
    }
}

/// # Safety
/// `out` has room for `count` elements.
pub(super) unsafe fn fill_zero<T: Accumulator>(out: *mut T, count: usize) {
    for i in 0..count {
        // SAFETY: the caller's promise.
        unsafe { *out.add(i) = T::default() }
    }
}
