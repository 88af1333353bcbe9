//! The inner loops of convolutions, generic over the instruction set.

use std::mem::MaybeUninit;

use super::lanes::{Lanes, Number};

/// A run of positions that are adjacent in a slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// The offset of the first position in the slab.
    pub(crate) slab: usize,
    /// The index of the first position.
    pub(crate) position: usize,
    pub(crate) count: usize,
}

/// The arguments of [`gather`].
pub(crate) struct Gather<'a, T> {
    pub(crate) slab: *const T,
    /// For each row, the offset of its element for position 0.
    pub(crate) offsets: &'a [usize],
    pub(crate) segments: &'a [Segment],
    /// The index of the first position.
    pub(crate) first: usize,
    pub(crate) out: *mut T,
    /// The row pitch of the result.
    pub(crate) width: usize,
}

/// Elements copied at a time. Up to one less is copied in excess at the end of a segment.
pub(crate) const COPY: usize = 8;

/// Copies rows of patches: `out[i * width + p] = slab[offsets[i] + place of position p]`. Writes up to 7 elements past
/// a segment, before the next one is written, and past the end.
///
/// # Safety
/// The slab and the result must have room for these elements and 7 more, and the machine must support the instruction
/// set of `V`.
#[inline(always)]
pub(crate) unsafe fn gather<V: Lanes>(g: &Gather<'_, V::Scalar>) {
    if g.segments.iter().all(|s| s.count.is_multiple_of(2 * COPY)) {
        // SAFETY: guaranteed by the caller.
        unsafe { gather_whole::<V, { 2 * COPY }>(g) };
        return;
    }
    if g.segments.iter().all(|s| s.count.is_multiple_of(COPY)) {
        // SAFETY: guaranteed by the caller.
        unsafe { gather_whole::<V, COPY>(g) };
        return;
    }
    for (i, offset) in g.offsets.iter().enumerate() {
        for segment in g.segments {
            // SAFETY: guaranteed by the caller. Elements past the end of a segment may be uninitialised.
            unsafe {
                let from = g.slab.add(offset + segment.slab);
                let to = g.out.add(i * g.width + segment.position - g.first);
                let mut done = 0;
                while done < segment.count {
                    *to.add(done).cast::<[MaybeUninit<V::Scalar>; COPY]>() = *from.add(done).cast();
                    done += COPY;
                }
            }
        }
    }
}

/// [`gather`] for segments that are whole numbers of chunks: no excess copies, so the inner loop can run over rows.
///
/// # Safety
/// Same as [`gather`].
#[inline(always)]
unsafe fn gather_whole<V: Lanes, const CHUNK: usize>(g: &Gather<'_, V::Scalar>) {
    for segment in g.segments {
        for done in (0..segment.count).step_by(CHUNK) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let from = g.slab.add(segment.slab + done);
                let mut to = g.out.add(segment.position - g.first + done);
                for offset in g.offsets {
                    *to.cast::<[MaybeUninit<V::Scalar>; CHUNK]>() = *from.add(*offset).cast();
                    to = to.wrapping_add(g.width);
                }
            }
        }
    }
}

/// The arguments of [`weighted_rows`] or [`row_products`].
pub(crate) struct Taps<'a, T> {
    pub(crate) slab: *const T,
    /// For each tap, the offset of its element for position 0.
    pub(crate) offsets: &'a [usize],
    pub(crate) segments: &'a [Segment],
    /// One value per tap: the weights, or the sums to add to.
    pub(crate) taps: *mut T,
    /// One value per position: the result, or the other factor.
    pub(crate) positions: *mut T,
}

/// `positions[p] = sum over taps of weight * slab[offset + place of p]`.
///
/// # Safety
/// Slab, taps and positions must exist, and the machine must support the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn weighted_rows<V: Lanes>(t: &Taps<'_, V::Scalar>) {
    for segment in t.segments {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (from, to) = (t.slab.add(segment.slab), t.positions.add(segment.position));
            let mut done = 0;
            while done < segment.count {
                let count = (segment.count - done).min(4 * V::N);
                let (from, to) = (from.add(done), to.add(done));
                match count.div_ceil(V::N) {
                    1 => weighted::<V, 1>(t, from, to, count),
                    2 => weighted::<V, 2>(t, from, to, count),
                    3 => weighted::<V, 3>(t, from, to, count),
                    _ => weighted::<V, 4>(t, from, to, count),
                }
                done += count;
            }
        }
    }
}

/// `W` registers of adjacent positions, `count` in total.
///
/// # Safety
/// Same as [`weighted_rows`]; `count` must be more than `W - 1` registers and at most `W`.
#[inline(always)]
unsafe fn weighted<V: Lanes, const W: usize>(
    t: &Taps<'_, V::Scalar>,
    from: *const V::Scalar,
    to: *mut V::Scalar,
    count: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mask = V::first(count - (W - 1) * V::N);
        let mut sums = [V::zero(); W];
        for (i, offset) in t.offsets.iter().enumerate() {
            let weight = V::splat(t.taps.add(i));
            for (w, sum) in sums.iter_mut().enumerate() {
                let p = from.add(offset + w * V::N);
                let x = if w + 1 == W { V::load_masked(p, mask) } else { V::load(p) };
                *sum = weight.mul_add(x, *sum);
            }
        }
        for (w, sum) in sums.into_iter().enumerate() {
            let p = to.add(w * V::N);
            if w + 1 == W { sum.store_masked(p, mask) } else { sum.store(p) }
        }
    }
}

/// `taps[i] += sum over positions of positions[p] * slab[offset + place of p]`.
///
/// # Safety
/// Slab, taps and positions must exist, and the machine must support the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn row_products<V: Lanes>(t: &Taps<'_, V::Scalar>) {
    let mut first = 0;
    while first < t.offsets.len() {
        // SAFETY: guaranteed by the caller; these taps exist.
        first += unsafe {
            match t.offsets.len() - first {
                9.. => products_of_taps::<V, 9>(t, first),
                3.. => products_of_taps::<V, 3>(t, first),
                _ => products_of_taps::<V, 1>(t, first),
            }
        };
    }
}

/// Handles `N` taps and returns their number.
///
/// # Safety
/// Same as [`row_products`]; the taps from `first` on must exist.
#[inline(always)]
unsafe fn products_of_taps<V: Lanes, const N: usize>(t: &Taps<'_, V::Scalar>, first: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let taps: [*const V::Scalar; N] = std::array::from_fn(|i| t.slab.add(t.offsets[first + i]));
        let mut sums = [V::zero(); N];
        for segment in t.segments {
            let with = t.positions.add(segment.position);
            let mut done = 0;
            while done < segment.count {
                let mask = V::first(V::N.min(segment.count - done));
                let factor = V::load_masked(with.add(done), mask);
                for (sum, tap) in sums.iter_mut().zip(taps) {
                    *sum = V::load_masked(tap.add(segment.slab + done), mask).mul_add(factor, *sum);
                }
                done += V::N;
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let total = t.taps.add(first + i);
            *total = Number::add(*total, sum.sum());
        }
    }
    N
}
