//! The inner kernels for 8-bit integers with 32-bit sums.
//!
//! Each step of a kernel multiplies groups of adjacent elements along k that fill 32 bits: four bytes if the machine
//! has VNNI, otherwise two 16-bit integers.

use super::kernels::InstructionSet;

/// The contents of a 32-bit word of a packed operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    /// Four bytes: unsigned in A, signed in B. Operands of the other signedness are shifted by 128, and the sums
    /// corrected.
    FourBytes,
    /// Two 16-bit integers.
    TwoShorts,
}

/// `c[i * columns + j] = sum over q of a[q * rows + i] . b[q * columns + j]` for `q < words`, where `.` is the dot
/// product of the parts of two words.
type ByteKernel = unsafe fn(words: usize, a: *const u32, b: *const u32, c: *mut i32);

/// The kernels of one instruction set.
pub(super) struct ByteKernels {
    pub(super) words: Words,
    /// Columns per tile.
    pub(super) columns: usize,
    /// Indexed by rows minus one.
    pub(super) tiles: &'static [ByteKernel],
}

/// Rows times columns of the largest tile.
pub(super) const MAX_TILE: usize = 14 * 32;

/// The kernels of an instruction set, which this machine must support.
pub(super) fn kernels(set: InstructionSet) -> &'static ByteKernels {
    match set {
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 if is_x86_feature_detected!("avx512vnni") => &x86::VNNI,
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx512 => &x86::AVX512,
        #[cfg(target_arch = "x86_64")]
        InstructionSet::Avx2 => &x86::AVX2,
        _ => &PLAIN,
    }
}

static PLAIN: ByteKernels = ByteKernels {
    words: Words::TwoShorts,
    columns: 8,
    tiles: &[plain::<1>, plain::<2>, plain::<3>, plain::<4>],
};

/// See [`ByteKernel`].
///
/// # Safety
/// The pointers must be valid for these accesses.
unsafe fn plain<const M: usize>(words: usize, a: *const u32, b: *const u32, c: *mut i32) {
    let mut sums = [[0i32; 8]; M];
    for q in 0..words {
        // SAFETY: guaranteed by the caller.
        let (left, right) = unsafe { (&*a.add(q * M).cast::<[u32; M]>(), &*b.add(q * 8).cast::<[u32; 8]>()) };
        for (sums, &x) in sums.iter_mut().zip(left) {
            let (x0, x1) = (i32::from(x as i16), i32::from((x >> 16) as i16));
            for (sum, &y) in sums.iter_mut().zip(right) {
                let (y0, y1) = (i32::from(y as i16), i32::from((y >> 16) as i16));
                *sum = sum.wrapping_add(x0 * y0).wrapping_add(x1 * y1);
            }
        }
    }
    // SAFETY: guaranteed by the caller.
    unsafe { *c.cast() = sums }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ByteKernels, Words};
    use std::arch::x86_64::*;

    /// The kernels of a register type, two registers wide.
    macro_rules! kernels {
        ($table:ident, $words:expr, $n:literal, $feature:literal, [$($rows:literal)*], $zero:ident, $splat:ident,
         $load:ident, $store:ident, |$sum:ident, $x:ident, $y:ident| $step:expr) => {
            pub(super) static $table: ByteKernels = {
                /// See [`super::ByteKernel`].
                ///
                /// # Safety
                /// The machine has the instruction set and the pointers' memory exists.
                #[target_feature(enable = $feature)]
                unsafe fn tile<const M: usize>(words: usize, a: *const u32, b: *const u32, c: *mut i32) {
                    let mut sums = [[$zero(); 2]; M];
                    for q in 0..words {
                        // SAFETY: guaranteed by the caller.
                        unsafe {
                            let right = [$load(b.add(q * 2 * $n).cast()), $load(b.add((q * 2 + 1) * $n).cast())];
                            for (i, sums) in sums.iter_mut().enumerate() {
                                let $x = $splat(*a.add(q * M + i) as i32);
                                for (sum, $y) in sums.iter_mut().zip(right) {
                                    let $sum = *sum;
                                    *sum = $step;
                                }
                            }
                        }
                    }
                    for (i, sums) in sums.into_iter().enumerate() {
                        for (w, sum) in sums.into_iter().enumerate() {
                            // SAFETY: guaranteed by the caller.
                            unsafe { $store(c.add((i * 2 + w) * $n).cast(), sum) }
                        }
                    }
                }
                ByteKernels { words: $words, columns: 2 * $n, tiles: &[$(tile::<$rows>),*] }
            };
        };
    }

    kernels!(
        VNNI, Words::FourBytes, 16, "avx512f,avx512vnni", [1 2 3 4 5 6 7 8 9 10 11 12 13 14], _mm512_setzero_si512,
        _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512, |sum, x, y| _mm512_dpbusd_epi32(sum, x, y)
    );
    kernels!(
        AVX512, Words::TwoShorts, 16, "avx512f,avx512bw", [1 2 3 4 5 6 7 8 9 10 11 12], _mm512_setzero_si512,
        _mm512_set1_epi32, _mm512_loadu_si512, _mm512_storeu_si512,
        |sum, x, y| _mm512_add_epi32(sum, _mm512_madd_epi16(x, y))
    );
    kernels!(
        AVX2, Words::TwoShorts, 8, "avx2", [1 2 3 4 5], _mm256_setzero_si256, _mm256_set1_epi32, _mm256_loadu_si256,
        _mm256_storeu_si256, |sum, x, y| _mm256_add_epi32(sum, _mm256_madd_epi16(x, y))
    );

    #[cfg(test)]
    mod tests {
        use super::*;

        /// The kernels for AVX-512 without VNNI are never chosen on a machine with VNNI, so test them here.
        #[test]
        fn both_avx512_kernels_multiply_exactly() {
            if !is_x86_feature_detected!("avx512bw") {
                return;
            }
            let word = |x: i16, y: i16| u32::from(x as u16) | u32::from(y as u16) << 16;
            let a: Vec<u32> = (0..5 * 3).map(|i| word(i * 17 - 128, 255 - i)).collect();
            let b: Vec<u32> = (0..5 * 32).map(|i| word(127 - i, i - 128)).collect();
            let mut c = [0i32; 3 * 32];
            // SAFETY: five words of three rows and of 32 columns.
            unsafe { AVX512.tiles[2](5, a.as_ptr(), b.as_ptr(), c.as_mut_ptr()) };
            for (e, &got) in c.iter().enumerate() {
                let halves = |w: u32| [i32::from(w as i16), i32::from((w >> 16) as i16)];
                let expected: i32 = (0..5)
                    .map(|q| {
                        let ([x0, x1], [y0, y1]) = (halves(a[q * 3 + e / 32]), halves(b[q * 32 + e % 32]));
                        x0 * y0 + x1 * y1
                    })
                    .sum();
                assert_eq!(got, expected, "{e}");
            }
        }
    }
}
