//! The inner kernels for 8-bit integers with 32-bit sums.
//!
//! Each step multiplies groups of adjacent elements of a sum that fill 32 bits: four bytes if the machine has VNNI,
//! otherwise two 16-bit integers.

use super::InstructionSet;

/// The contents of a 32-bit word of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Four bytes: unsigned in one operand, signed in the other. Bytes of the other signedness are shifted by 128, and
    /// the sums corrected.
    FourBytes,
    /// Two 16-bit integers.
    TwoShorts,
}

impl Words {
    /// Elements per word.
    pub(crate) fn elements(self) -> usize {
        match self {
            Words::FourBytes => 4,
            Words::TwoShorts => 2,
        }
    }
}

/// Which operand's bytes are signed in words of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signed {
    /// The rows', from the left.
    Rows,
    /// The columns', from the right.
    Columns,
}

/// The arguments of a tile kernel: `c[i, j] = of_rows[i] + of_columns[j] + sum over q of a[q, i] . b[q, j]`, where `.` is
/// the dot product of the parts of two words.
pub(crate) struct ByteTile {
    /// Words per sum.
    pub(crate) words: usize,
    /// Word q of row i is number `q * rows + i`.
    pub(crate) a: *const u32,
    /// Word q of column j is number `q * b_step + j`. Whole registers are read.
    pub(crate) b: *const u32,
    pub(crate) b_step: usize,
    /// The corner of C; columns are contiguous.
    pub(crate) c: *mut i32,
    /// Row stride of C.
    pub(crate) c_row: isize,
    /// The number of columns. A tile has more than (W - 1) registers and at most W.
    pub(crate) columns: usize,
    pub(crate) of_rows: *const i32,
    /// Whole registers are read.
    pub(crate) of_columns: *const i32,
}

/// A tile kernel.
pub(crate) type ByteKernel = unsafe fn(&ByteTile);

/// The arguments of [`ByteKernels::weighted`]: `positions[p] = start + sum over taps of weight . slab[offset + p]`.
pub(crate) struct ByteTaps<'a> {
    /// The first position's words. Up to a register past the last position is read.
    pub(crate) slab: *const u32,
    /// For each tap, the offset of its word.
    pub(crate) offsets: &'a [usize],
    /// One word per tap.
    pub(crate) weights: *const u32,
    pub(crate) start: i32,
    pub(crate) positions: *mut i32,
    pub(crate) count: usize,
}

/// The kernels of one instruction set.
pub(crate) struct ByteKernels {
    pub(crate) words: Words,
    /// Words per register.
    pub(crate) lanes: usize,
    /// Indexed by rows minus one and registers minus one.
    pub(crate) tiles: &'static [[ByteKernel; 2]],
    /// One row of weights at adjacent positions.
    pub(crate) weighted: unsafe fn(&ByteTaps<'_>),
    /// Sums the parts of words, as of the operand of columns: `sums[j] += 1 . words[q * step + j]` for one register of
    /// columns. Only shifted bytes need it, so words of four bytes.
    pub(crate) sum_columns: unsafe fn(words: usize, b: *const u32, step: usize, sums: *mut i32),
}

impl ByteKernels {
    /// Columns of the widest tile.
    pub(crate) fn columns(&self) -> usize {
        2 * self.lanes
    }
    /// Rows of the tallest tile.
    pub(crate) fn rows(&self) -> usize {
        self.tiles.len()
    }
}

/// Columns of the widest tile of all instruction sets.
pub(crate) const MAX_COLUMNS: usize = 32;

/// The kernels of an instruction set, which this machine must support. `signed` is `None` if the bytes cannot be shifted
/// to be signed in one operand and unsigned in the other; words are then of 16-bit integers.
pub(crate) fn kernels(set: InstructionSet, signed: Option<Signed>) -> &'static ByteKernels {
    match (set, signed) {
        #[cfg(target_arch = "x86_64")]
        (InstructionSet::Avx512, Some(signed)) if is_x86_feature_detected!("avx512vnni") => match signed {
            Signed::Rows => &x86::VNNI_SIGNED_ROWS,
            Signed::Columns => &x86::VNNI,
        },
        #[cfg(target_arch = "x86_64")]
        (InstructionSet::Avx512, _) => &x86::AVX512,
        #[cfg(target_arch = "x86_64")]
        (InstructionSet::Avx2, _) => &x86::AVX2,
        _ => &PLAIN,
    }
}

/// Registers of portable code.
const PLAIN_LANES: usize = 8;

static PLAIN: ByteKernels = ByteKernels {
    words: Words::TwoShorts,
    lanes: PLAIN_LANES,
    tiles: &[
        [plain::<1, 1>, plain::<1, 2>],
        [plain::<2, 1>, plain::<2, 2>],
        [plain::<3, 1>, plain::<3, 2>],
        [plain::<4, 1>, plain::<4, 2>],
    ],
    weighted: plain_weighted,
    sum_columns: plain_sums,
};

/// The dot product of two words of 16-bit integers.
#[inline(always)]
fn dot(x: u32, y: u32) -> i32 {
    let halves = |word: u32| (i32::from(word as i16), i32::from((word >> 16) as i16));
    let ((x0, x1), (y0, y1)) = (halves(x), halves(y));
    x0 * y0 + x1 * y1
}

/// See [`ByteTile`].
///
/// # Safety
/// The tile must describe memory that is valid for these accesses.
unsafe fn plain<const M: usize, const W: usize>(t: &ByteTile) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for w in 0..W {
            let first = w * PLAIN_LANES;
            let mut sums = [*t.of_columns.add(first).cast::<[i32; PLAIN_LANES]>(); M];
            for (i, sums) in sums.iter_mut().enumerate() {
                sums.iter_mut().for_each(|sum| *sum = sum.wrapping_add(*t.of_rows.add(i)));
            }
            let count = PLAIN_LANES.min(t.columns - first);
            for q in 0..t.words {
                // Lanes past the last column may be uninitialized.
                let from = t.b.add(q * t.b_step + first);
                let mut right = [0u32; PLAIN_LANES];
                if count == PLAIN_LANES {
                    right = *from.cast();
                } else {
                    std::ptr::copy_nonoverlapping(from, right.as_mut_ptr(), count);
                }
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = *t.a.add(q * M + i);
                    for (sum, y) in sums.iter_mut().zip(right) {
                        *sum = sum.wrapping_add(dot(left, y));
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                let to = t.c.offset(i as isize * t.c_row).add(first);
                std::ptr::copy_nonoverlapping(sums.as_ptr(), to, count);
            }
        }
    }
}

/// See [`ByteTaps`].
///
/// # Safety
/// The taps must describe memory that is valid for these accesses.
unsafe fn plain_weighted(t: &ByteTaps<'_>) {
    // SAFETY: guaranteed by the caller.
    let positions = unsafe { std::slice::from_raw_parts_mut(t.positions, t.count) };
    positions.fill(t.start);
    for (i, offset) in t.offsets.iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        let (weight, from) = unsafe { (*t.weights.add(i), t.slab.add(*offset)) };
        for (p, sum) in positions.iter_mut().enumerate() {
            // SAFETY: guaranteed by the caller.
            *sum = sum.wrapping_add(dot(weight, unsafe { *from.add(p) }));
        }
    }
}

/// See [`ByteKernels::sum_columns`].
///
/// # Safety
/// The pointers must be valid for these accesses.
unsafe fn plain_sums(words: usize, b: *const u32, step: usize, sums: *mut i32) {
    for q in 0..words {
        for j in 0..PLAIN_LANES {
            // SAFETY: guaranteed by the caller.
            unsafe { *sums.add(j) = (*sums.add(j)).wrapping_add(dot(0x1_0001, *b.add(q * step + j))) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{ByteKernels, ByteTaps, ByteTile, Words};
    use std::arch::x86_64::*;

    /// The kernels of a register type, up to two registers wide. `$step` adds the dot products of a word of the rows
    /// and words of the columns; `$ones` is a word of ones of the rows.
    macro_rules! kernels {
        ($table:ident, $words:expr, $n:literal, $register:ty, $feature:literal, [$($rows:literal)*], $zero:ident,
         $splat:ident, $add:ident, $load:ident, $store:ident, |$to:ident, $v:ident, $count:ident| $store_first:expr,
         $ones:literal, |$sum:ident, $x:ident, $y:ident| $step:expr) => {
            pub(super) static $table: ByteKernels = {
                /// Stores the first `count` elements of a register.
                ///
                /// # Safety
                /// Same as [`tile`].
                #[target_feature(enable = $feature)]
                #[inline]
                unsafe fn store($to: *mut i32, $v: $register, $count: usize) {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        if $count >= $n {
                            $store($to.cast(), $v);
                        } else {
                            $store_first
                        }
                    }
                }

                #[target_feature(enable = $feature)]
                #[inline]
                fn step($sum: $register, $x: $register, $y: $register) -> $register {
                    $step
                }

                /// See [`ByteTile`].
                ///
                /// # Safety
                /// The machine has the instruction set and the pointers' memory exists.
                #[target_feature(enable = $feature)]
                unsafe fn tile<const M: usize, const W: usize>(t: &ByteTile) {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let mut sums = [[$zero(); W]; M];
                        for (i, sums) in sums.iter_mut().enumerate() {
                            let of_row = $splat(*t.of_rows.add(i));
                            for (w, sum) in sums.iter_mut().enumerate() {
                                *sum = $add(of_row, $load(t.of_columns.add(w * $n).cast()));
                            }
                        }
                        let (mut a, mut b) = (t.a, t.b);
                        for _ in 0..t.words {
                            let mut right = [$zero(); W];
                            for (w, right) in right.iter_mut().enumerate() {
                                *right = $load(b.add(w * $n).cast());
                            }
                            for (i, sums) in sums.iter_mut().enumerate() {
                                let left = $splat(*a.add(i) as i32);
                                for (sum, right) in sums.iter_mut().zip(right) {
                                    *sum = step(*sum, left, right);
                                }
                            }
                            (a, b) = (a.add(M), b.add(t.b_step));
                        }
                        for (i, sums) in sums.into_iter().enumerate() {
                            let to = t.c.offset(i as isize * t.c_row);
                            for (w, sum) in sums.into_iter().enumerate() {
                                store(to.add(w * $n), sum, t.columns - w * $n);
                            }
                        }
                    }
                }

                /// `W` registers of positions.
                ///
                /// # Safety
                /// Same as [`weighted`].
                #[target_feature(enable = $feature)]
                #[inline]
                unsafe fn adjacent<const W: usize>(t: &ByteTaps<'_>, done: usize) {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let mut sums = [$splat(t.start); W];
                        for (i, offset) in t.offsets.iter().enumerate() {
                            let weight = $splat(*t.weights.add(i) as i32);
                            let from = t.slab.add(offset + done);
                            for (w, sum) in sums.iter_mut().enumerate() {
                                *sum = step(*sum, weight, $load(from.add(w * $n).cast()));
                            }
                        }
                        for (w, sum) in sums.into_iter().enumerate() {
                            store(t.positions.add(done + w * $n), sum, t.count - done - w * $n);
                        }
                    }
                }

                /// See [`ByteTaps`].
                ///
                /// # Safety
                /// The machine has the instruction set and the pointers' memory exists.
                #[target_feature(enable = $feature)]
                unsafe fn weighted(t: &ByteTaps<'_>) {
                    let mut done = 0;
                    while done < t.count {
                        // SAFETY: guaranteed by the caller.
                        unsafe {
                            match (t.count - done).div_ceil($n) {
                                1 => adjacent::<1>(t, done),
                                2 => adjacent::<2>(t, done),
                                3 => adjacent::<3>(t, done),
                                _ => adjacent::<4>(t, done),
                            }
                        }
                        done += 4 * $n;
                    }
                }

                /// See [`ByteKernels::sum_columns`].
                ///
                /// # Safety
                /// The machine has the instruction set and the pointers' memory exists.
                #[target_feature(enable = $feature)]
                unsafe fn sum_columns(words: usize, b: *const u32, of_step: usize, sums: *mut i32) {
                    // SAFETY: guaranteed by the caller.
                    unsafe {
                        let mut sum = $load(sums.cast());
                        for q in 0..words {
                            sum = step(sum, $splat($ones), $load(b.add(q * of_step).cast()));
                        }
                        $store(sums.cast(), sum);
                    }
                }

                ByteKernels {
                    words: $words,
                    lanes: $n,
                    tiles: &[$([tile::<$rows, 1>, tile::<$rows, 2>]),*],
                    weighted,
                    sum_columns,
                }
            };
        };
    }

    macro_rules! avx512 {
        ($table:ident, $words:expr, $feature:literal, [$($rows:literal)*], $ones:literal,
         |$sum:ident, $x:ident, $y:ident| $step:expr) => {
            kernels!(
                $table, $words, 16, __m512i, $feature, [$($rows)*], _mm512_setzero_si512, _mm512_set1_epi32,
                _mm512_add_epi32, _mm512_loadu_si512, _mm512_storeu_si512,
                |to, v, count| _mm512_mask_storeu_epi32(to, 0xffff >> (16 - count), v),
                $ones, |$sum, $x, $y| $step
            );
        };
    }

    avx512!(
        VNNI, Words::FourBytes, "avx512f,avx512bw,avx512vnni", [1 2 3 4 5 6 7 8 9 10 11 12 13 14], 0x0101_0101,
        |sum, x, y| _mm512_dpbusd_epi32(sum, x, y)
    );
    avx512!(
        VNNI_SIGNED_ROWS, Words::FourBytes, "avx512f,avx512bw,avx512vnni", [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
        0x0101_0101, |sum, x, y| _mm512_dpbusd_epi32(sum, y, x)
    );
    avx512!(
        AVX512, Words::TwoShorts, "avx512f,avx512bw", [1 2 3 4 5 6 7 8 9 10 11 12], 0x0001_0001,
        |sum, x, y| _mm512_add_epi32(sum, _mm512_madd_epi16(x, y))
    );
    kernels!(
        AVX2, Words::TwoShorts, 8, __m256i, "avx2", [1 2 3 4 5], _mm256_setzero_si256, _mm256_set1_epi32,
        _mm256_add_epi32, _mm256_loadu_si256, _mm256_storeu_si256,
        |to, v, count| {
            let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            _mm256_maskstore_epi32(to, _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), places), v)
        },
        0x0001_0001, |sum, x, y| _mm256_add_epi32(sum, _mm256_madd_epi16(x, y))
    );
}
