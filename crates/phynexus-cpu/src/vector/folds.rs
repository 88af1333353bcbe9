//! The loops of reductions, block by block like [`super::loops`].

#![allow(
    clippy::needless_range_loop,
    reason = "lanes are numbered: the loops are read as vector instructions"
)]

use super::instruction_set::InstructionSet;
use super::loops::{BLOCK, Padded, instantiate, stateless};
use super::{ReduceKernel, ReducePairKernel};

/// Combines `n` elements in [`BLOCK`] lanes, which are then combined pairwise: the rounding error of a sum grows with
/// `n / BLOCK + log2(BLOCK)`, not with `n`. `block(at, count)` returns `count <= BLOCK` elements from `at` on, and
/// `identity` in the remaining lanes.
#[inline(always)]
fn combine<T: Copy>(
    n: usize,
    identity: T,
    f: impl Fn(T, T) -> T,
    mut block: impl FnMut(usize, usize) -> [T; BLOCK],
) -> T {
    let mut lanes = [identity; BLOCK];
    let whole = n - n % BLOCK;
    let mut at = 0;
    while at < whole {
        let x = block(at, BLOCK);
        for i in 0..BLOCK {
            lanes[i] = f(lanes[i], x[i]);
        }
        at += BLOCK;
    }
    if whole < n {
        let x = block(whole, n - whole);
        for i in 0..BLOCK {
            lanes[i] = f(lanes[i], x[i]);
        }
    }
    let mut width = BLOCK / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] = f(lanes[i], lanes[i + width]);
        }
        width /= 2;
    }
    lanes[0]
}

/// `count <= BLOCK` elements, with `rest` in the remaining lanes.
#[inline(always)]
unsafe fn block_of<T: Copy>(src: *const T, count: usize, rest: T) -> [T; BLOCK] {
    // SAFETY: the caller provides `count` readable elements.
    unsafe {
        if count == BLOCK {
            return src.cast::<[T; BLOCK]>().read_unaligned();
        }
        Padded::new().fill_with(src, count, rest).cast::<[T; BLOCK]>().read_unaligned()
    }
}

/// `accumulator = f(accumulator, src[0], ..., src[n - 1])`, in the order of [`combine`].
#[inline(always)]
unsafe fn fold<T: Copy, F: Fn(T, T) -> T, I: Fn() -> T>(
    src: *const u8,
    accumulator: *mut u8,
    n: usize,
    f: F,
    identity: I,
) {
    let (src, accumulator) = (src.cast::<T>(), accumulator.cast::<T>());
    // SAFETY: the caller provides n readable elements at src and one element at the accumulator.
    unsafe {
        let total = combine(n, identity(), &f, |at, count| block_of(src.add(at), count, identity()));
        accumulator.write_unaligned(f(accumulator.read_unaligned(), total));
    }
}

/// A float whose magnitude, as an unsigned integer, exceeds that of infinity exactly for NaN.
pub(super) trait Magnitude: Copy {
    type Bits: Copy + Ord;
    const NAN: Self;
    const ZERO: Self::Bits;
    const INFINITY: Self::Bits;
    fn magnitude(self) -> Self::Bits;
}

macro_rules! magnitude {
    ($t:ident, $bits:ident) => {
        impl Magnitude for $t {
            type Bits = $bits;
            const NAN: $t = $t::NAN;
            const ZERO: $bits = 0;
            const INFINITY: $bits = $t::INFINITY.to_bits() << 1;
            #[inline(always)]
            fn magnitude(self) -> $bits {
                self.to_bits() << 1
            }
        }
    };
}
magnitude!(f32, u32);
magnitude!(f64, u64);

/// Like [`fold`], for a maximum or minimum of floats by a plain comparison. NaN is detected by the greatest magnitude,
/// which costs less than checking for it in every comparison.
#[inline(always)]
unsafe fn fold_extreme<T: Magnitude, F: Fn(T, T) -> T, I: Fn() -> T>(
    src: *const u8,
    accumulator: *mut u8,
    n: usize,
    f: F,
    identity: I,
) {
    let (src, accumulator) = (src.cast::<T>(), accumulator.cast::<T>());
    // SAFETY: as in `fold`.
    unsafe {
        let before = accumulator.read_unaligned();
        let mut magnitudes = [T::ZERO; BLOCK];
        let total = combine(n, identity(), &f, |at, count| {
            let x = block_of(src.add(at), count, identity());
            for i in 0..BLOCK {
                magnitudes[i] = magnitudes[i].max(x[i].magnitude());
            }
            x
        });
        let mut nan = before.magnitude() > T::INFINITY;
        for i in 0..BLOCK {
            nan |= magnitudes[i] > T::INFINITY;
        }
        accumulator.write_unaligned(if nan { T::NAN } else { f(before, total) });
    }
}

/// `accumulator = sum(accumulator, f(a[0], b[0]), ..., f(a[n - 1], b[n - 1]))` for any `sum`, in the order of
/// [`combine`].
#[inline(always)]
unsafe fn fold2<T: Copy, F: Fn(T, T) -> T, M: Fn(T, T) -> T, I: Fn() -> T>(
    a: *const u8,
    b: *const u8,
    accumulator: *mut u8,
    n: usize,
    f: F,
    map: M,
    identity: I,
) {
    let (a, b, accumulator) = (a.cast::<T>(), b.cast::<T>(), accumulator.cast::<T>());
    // SAFETY: the caller provides n readable elements at a and b and one element at the accumulator.
    unsafe {
        let total = combine(n, identity(), &f, |at, count| {
            let x = block_of(a.add(at), count, identity());
            let y = block_of(b.add(at), count, identity());
            let mut z = [identity(); BLOCK];
            for i in 0..BLOCK {
                z[i] = if i < count { map(x[i], y[i]) } else { z[i] };
            }
            z
        });
        accumulator.write_unaligned(f(accumulator.read_unaligned(), total));
    }
}

instantiate!(vector_fold, plain_fold -> ReduceKernel, fold
    [T: Copy, F: Fn(T, T) -> T + Copy, I: Fn() -> T + Copy] [T, F, I]
    (src: *const u8, accumulator: *mut u8, n: usize) (f: F, identity: I));

instantiate!(vector_fold_extreme, plain_fold_extreme -> ReduceKernel, fold_extreme
    [T: Magnitude, F: Fn(T, T) -> T + Copy, I: Fn() -> T + Copy] [T, F, I]
    (src: *const u8, accumulator: *mut u8, n: usize) (f: F, identity: I));

instantiate!(vector_fold2, plain_fold2 -> ReducePairKernel, fold2
    [T: Copy, F: Fn(T, T) -> T + Copy, M: Fn(T, T) -> T + Copy, I: Fn() -> T + Copy] [T, F, M, I]
    (a: *const u8, b: *const u8, accumulator: *mut u8, n: usize) (f: F, map: M, identity: I));

/// The reduction of a function for any instruction set.
pub(super) fn reduce<T: Copy>(
    set: InstructionSet,
    f: impl Fn(T, T) -> T + Copy,
    identity: impl Fn() -> T + Copy,
) -> ReduceKernel {
    if set == InstructionSet::Plain { plain_fold(f, identity) } else { vector_fold(set, f, identity) }
}

/// The reduction of floats by a comparison that may lose NaN.
pub(super) fn reduce_extreme<T: Magnitude>(
    set: InstructionSet,
    f: impl Fn(T, T) -> T + Copy,
    identity: impl Fn() -> T + Copy,
) -> ReduceKernel {
    if set == InstructionSet::Plain {
        plain_fold_extreme(f, identity)
    } else {
        vector_fold_extreme(set, f, identity)
    }
}

/// The reduction of a function of two operands.
pub(super) fn reduce_pair<T: Copy>(
    set: InstructionSet,
    f: impl Fn(T, T) -> T + Copy,
    map: impl Fn(T, T) -> T + Copy,
    identity: impl Fn() -> T + Copy,
) -> ReducePairKernel {
    if set == InstructionSet::Plain {
        plain_fold2(f, map, identity)
    } else {
        vector_fold2(set, f, map, identity)
    }
}
