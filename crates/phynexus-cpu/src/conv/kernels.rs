//! The inner loops of convolutions, for any instruction set.

use crate::gemm::lanes::Lanes;

/// A run of positions that lie side by side in a slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// The first position's place in the slab.
    pub(crate) slab: usize,
    /// The first position's number.
    pub(crate) position: usize,
    pub(crate) count: usize,
}

/// One call of [`gather`].
pub(crate) struct Gather<'a, T> {
    pub(crate) slab: *const T,
    /// Where each row's element for position 0 lies.
    pub(crate) offsets: &'a [usize],
    pub(crate) segments: &'a [Segment],
    /// Position numbers start here.
    pub(crate) first: usize,
    pub(crate) out: *mut T,
    /// Between rows of the result.
    pub(crate) width: usize,
}

/// Elements copied at a time: up to one less is copied too many at the end of a segment.
pub(crate) const COPY: usize = 8;

/// Copies rows of patches: `out[i * width + p] = slab[offsets[i] + place of position p]`. Writes up to 7 elements past a
/// segment before the next one, and past the end.
///
/// # Safety
/// The slab and the result have room, with 7 elements more; the machine has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn gather<V: Lanes>(g: &Gather<'_, V::Scalar>) {
    type Chunk<T> = [std::mem::MaybeUninit<T>; COPY];
    for (i, offset) in g.offsets.iter().enumerate() {
        for segment in g.segments {
            // SAFETY: the caller's promise. What lies past the end of a segment may be uninitialised.
            unsafe {
                let from = g.slab.add(offset + segment.slab);
                let to = g.out.add(i * g.width + segment.position - g.first);
                let mut done = 0;
                while done < segment.count {
                    *to.add(done).cast::<Chunk<V::Scalar>>() = *from.add(done).cast();
                    done += COPY;
                }
            }
        }
    }
}

/// One call of [`weighted_rows`] or [`row_products`].
pub(crate) struct Taps<'a, T> {
    pub(crate) slab: *const T,
    /// Where each tap's element for position 0 lies.
    pub(crate) offsets: &'a [usize],
    pub(crate) segments: &'a [Segment],
    /// One value a tap: the weights, or the sums to add to.
    pub(crate) taps: *mut T,
    /// One value a position: the result, or the other factor.
    pub(crate) positions: *mut T,
}

/// `positions[p] = sum over taps of weight * slab[offset + place of p]`.
///
/// # Safety
/// Slab, taps and positions exist; the machine has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn weighted_rows<V: Lanes>(t: &Taps<'_, V::Scalar>) {
    for segment in t.segments {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (t.slab.add(segment.slab), t.positions.add(segment.position));
            let mut done = 0;
            while done + 4 * V::N <= segment.count {
                let mut sums = [V::zero(); 4];
                for (i, offset) in t.offsets.iter().enumerate() {
                    let weight = V::splat(t.taps.add(i));
                    for (w, sum) in sums.iter_mut().enumerate() {
                        *sum = weight.mul_add(V::load(from.add(offset + done + w * V::N)), *sum);
                    }
                }
                for (w, sum) in sums.into_iter().enumerate() {
                    sum.store(to.add(done + w * V::N));
                }
                done += 4 * V::N;
            }
            while done < segment.count {
                let mask = V::first(V::N.min(segment.count - done));
                let mut sum = V::zero();
                for (i, offset) in t.offsets.iter().enumerate() {
                    sum = V::splat(t.taps.add(i)).mul_add(V::load_masked(from.add(offset + done), mask), sum);
                }
                sum.store_masked(to.add(done), mask);
                done += V::N;
            }
        }
    }
}

/// `taps[i] += sum over positions of positions[p] * slab[offset + place of p]`.
///
/// # Safety
/// Slab, taps and positions exist; the machine has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn row_products<V: Lanes>(t: &Taps<'_, V::Scalar>) {
    const TAPS: usize = 8;
    let mut first = 0;
    while first < t.offsets.len() {
        let offsets = &t.offsets[first..t.offsets.len().min(first + TAPS)];
        // SAFETY: the caller's promise.
        unsafe {
            let mut sums = [V::zero(); TAPS];
            for segment in t.segments {
                let (from, with) = (t.slab.add(segment.slab), t.positions.add(segment.position));
                let mut done = 0;
                while done < segment.count {
                    let mask = V::first(V::N.min(segment.count - done));
                    let factor = V::load_masked(with.add(done), mask);
                    for (sum, offset) in sums.iter_mut().zip(offsets) {
                        *sum = V::load_masked(from.add(offset + done), mask).mul_add(factor, *sum);
                    }
                    done += V::N;
                }
            }
            for (i, sum) in sums.into_iter().enumerate().take(offsets.len()) {
                let total = t.taps.add(first + i);
                *total = crate::gemm::lanes::Float::add(*total, sum.sum());
            }
        }
        first += TAPS;
    }
}
