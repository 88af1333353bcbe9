//! The inner loops of depthwise convolutions. The lanes of a register are adjacent channels at one position.

use super::lanes::Lanes;

/// Where a position's elements start, in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The element of the source to which the taps' offsets are added.
    pub(crate) source: u32,
    /// The element of the result, or of its gradient.
    pub(crate) result: u32,
}

/// The arguments of [`weigh`] and [`multiply`]. Every element is a register of channels.
pub(crate) struct Depthwise<'a, T> {
    pub(crate) places: &'a [Place],
    /// For each tap, the distance of its element.
    pub(crate) offsets: &'a [usize],
    pub(crate) source: *const T,
    /// One register per tap: the weights, or the sums to add to.
    pub(crate) taps: *mut T,
    /// The result, or its gradient.
    pub(crate) result: *mut T,
}

/// `result[place] = sum over taps of taps[tap] * source[place + offset of tap]`.
///
/// # Safety
/// The elements must exist, and the machine must support the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn weigh<V: Lanes>(d: &Depthwise<'_, V::Scalar>) {
    // Several sums at a time hide the latency of an addition.
    let mut eights = d.places.chunks_exact(8);
    // SAFETY: guaranteed by the caller.
    unsafe {
        for places in &mut eights {
            weigh_places::<V, 8>(d, places);
        }
        let mut twos = eights.remainder().chunks_exact(2);
        for places in &mut twos {
            weigh_places::<V, 2>(d, places);
        }
        for places in twos.remainder().chunks_exact(1) {
            weigh_places::<V, 1>(d, places);
        }
    }
}

/// # Safety
/// Same as [`weigh`], for `N` places.
#[inline(always)]
unsafe fn weigh_places<V: Lanes, const N: usize>(d: &Depthwise<'_, V::Scalar>, places: &[Place]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let sources: [*const V::Scalar; N] = std::array::from_fn(|i| d.source.add(places[i].source as usize));
        let mut sums = [V::zero(); N];
        for (tap, offset) in d.offsets.iter().enumerate() {
            let weight = V::load(d.taps.add(tap * V::N));
            for (sum, source) in sums.iter_mut().zip(sources) {
                *sum = weight.mul_add(V::load(source.add(*offset)), *sum);
            }
        }
        for (sum, place) in sums.into_iter().zip(places) {
            sum.store(d.result.add(place.result as usize));
        }
    }
}

/// `taps[tap] += sum over places of result[place] * source[place + offset of tap]`.
///
/// # Safety
/// The elements must exist, and the machine must support the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn multiply<V: Lanes>(d: &Depthwise<'_, V::Scalar>) {
    let mut first = 0;
    while first < d.offsets.len() {
        // SAFETY: guaranteed by the caller; these taps exist.
        first += unsafe {
            match d.offsets.len() - first {
                9.. => multiply_taps::<V, 9>(d, first),
                7.. => multiply_taps::<V, 7>(d, first),
                5.. => multiply_taps::<V, 5>(d, first),
                3.. => multiply_taps::<V, 3>(d, first),
                _ => multiply_taps::<V, 1>(d, first),
            }
        };
    }
}

/// Handles `N` taps and returns their number.
///
/// # Safety
/// Same as [`multiply`]; the taps from `first` on must exist.
#[inline(always)]
unsafe fn multiply_taps<V: Lanes, const N: usize>(d: &Depthwise<'_, V::Scalar>, first: usize) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let offsets: [usize; N] = std::array::from_fn(|i| d.offsets[first + i]);
        let mut sums = [V::zero(); N];
        for place in d.places {
            let factor = V::load(d.result.add(place.result as usize));
            let source = d.source.add(place.source as usize);
            for (sum, offset) in sums.iter_mut().zip(offsets) {
                *sum = factor.mul_add(V::load(source.add(offset)), *sum);
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            let total = d.taps.add((first + i) * V::N);
            V::load(total).add(sum).store(total);
        }
    }
    N
}
