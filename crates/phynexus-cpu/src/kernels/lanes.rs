//! A vector register of numbers for each instruction set, with the few operations that the kernels need.

/// A register of `N` numbers. Every function requires the instruction set of its type, and is inlined into a function
/// that enables it.
pub(crate) trait Lanes: Copy {
    /// The element.
    type Scalar: Number;
    /// Selects a number of leading lanes.
    type Mask: Copy;
    /// The number of lanes.
    const N: usize;

    unsafe fn zero() -> Self;
    /// Sets every lane to `*p`.
    unsafe fn splat(p: *const Self::Scalar) -> Self;
    unsafe fn load(p: *const Self::Scalar) -> Self;
    unsafe fn store(self, p: *mut Self::Scalar);
    /// Selects the first `count` lanes, 1 to `N`.
    unsafe fn first(count: usize) -> Self::Mask;
    /// Lanes outside the mask are zero, and their memory is not read.
    unsafe fn load_masked(p: *const Self::Scalar, mask: Self::Mask) -> Self;
    /// Lanes outside the mask are not written.
    unsafe fn store_masked(self, p: *mut Self::Scalar, mask: Self::Mask);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    /// `self * b + c`, rounded once if the instruction set supports it.
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
    /// The sum of all lanes.
    unsafe fn sum(self) -> Self::Scalar;
    /// The sums of all lanes of four registers.
    #[inline(always)]
    unsafe fn sums(four: [Self; 4]) -> [Self::Scalar; 4] {
        // SAFETY: guaranteed by the caller.
        four.map(|v| unsafe { v.sum() })
    }
}

/// The element types with their own kernels.
pub(crate) trait Number: Copy + Default + PartialEq + Send + Sync + 'static {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

macro_rules! number {
    ($($t:ty, $add:expr, $sub:expr, $mul:expr;)*) => {
        $(impl Number for $t {
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                $add(self, other)
            }
            #[inline(always)]
            fn sub(self, other: $t) -> $t {
                $sub(self, other)
            }
            #[inline(always)]
            fn mul(self, other: $t) -> $t {
                $mul(self, other)
            }
        })*
    };
}
number!(
    f32, std::ops::Add::add, std::ops::Sub::sub, std::ops::Mul::mul;
    f64, std::ops::Add::add, std::ops::Sub::sub, std::ops::Mul::mul;
    i32, i32::wrapping_add, i32::wrapping_sub, i32::wrapping_mul;
    i64, i64::wrapping_add, i64::wrapping_sub, i64::wrapping_mul;
);

/// Four numbers without vector instructions: available on every machine.
#[derive(Clone, Copy)]
pub(crate) struct Plain<T>([T; 4]);

impl<T: Number> Lanes for Plain<T> {
    type Scalar = T;
    type Mask = usize;
    const N: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Plain([T::default(); 4])
    }
    #[inline(always)]
    unsafe fn splat(p: *const T) -> Self {
        // SAFETY: guaranteed by the caller.
        Plain([unsafe { *p }; 4])
    }
    #[inline(always)]
    unsafe fn load(p: *const T) -> Self {
        // SAFETY: guaranteed by the caller; arrays have their element's alignment.
        Plain(unsafe { *p.cast() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut T) {
        // SAFETY: guaranteed by the caller.
        unsafe { *p.cast() = self.0 }
    }
    #[inline(always)]
    unsafe fn first(count: usize) -> usize {
        count
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const T, count: usize) -> Self {
        // SAFETY: only the first `count` elements are read.
        Plain(std::array::from_fn(|i| if i < count { unsafe { *p.add(i) } } else { T::default() }))
    }
    #[inline(always)]
    unsafe fn store_masked(self, p: *mut T, count: usize) {
        for (i, x) in self.0.into_iter().enumerate().take(count) {
            // SAFETY: only the first `count` elements are written.
            unsafe { *p.add(i) = x }
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].add(other.0[i])))
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].sub(other.0[i])))
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i].mul(b.0[i]).add(c.0[i])))
    }
    #[inline(always)]
    unsafe fn sum(self) -> T {
        let [a, b, c, d] = self.0;
        a.add(b).add(c.add(d))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    /// Implements `Lanes` from the names of the intrinsics.
    macro_rules! lanes {
        ($register:ty, $scalar:ty, $n:literal, $mask:ty, |$count:ident| $first:expr, $zero:ident, $splat:expr, $load:ident,
         $store:ident, |$p:ident, $m:ident| $load_masked:expr, |$q:ident, $k:ident, $v:ident| $store_masked:expr,
         $add:ident, $sub:ident, $fma:ident, |$s:ident| $sum:expr $(, |$f:ident| $sums:expr)?) => {
            // SAFETY of every block below: the caller guarantees the instruction set and the pointers.
            impl Lanes for $register {
                type Scalar = $scalar;
                type Mask = $mask;
                const N: usize = $n;

                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: see above.
                    unsafe { $zero() }
                }
                #[inline(always)]
                unsafe fn splat(p: *const $scalar) -> Self {
                    // SAFETY: see above.
                    unsafe { $splat(*p) }
                }
                #[inline(always)]
                unsafe fn load(p: *const $scalar) -> Self {
                    // SAFETY: see above.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $scalar) {
                    // SAFETY: see above.
                    unsafe { $store(p, self) }
                }
                #[inline(always)]
                unsafe fn first($count: usize) -> $mask {
                    $first
                }
                #[inline(always)]
                unsafe fn load_masked($p: *const $scalar, $m: $mask) -> Self {
                    // SAFETY: see above; lanes outside the mask are not accessed.
                    unsafe { $load_masked }
                }
                #[inline(always)]
                unsafe fn store_masked(self, $q: *mut $scalar, $k: $mask) {
                    let $v = self;
                    // SAFETY: see above; lanes outside the mask are not accessed.
                    unsafe { $store_masked }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: see above.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn sub(self, other: Self) -> Self {
                    // SAFETY: see above.
                    unsafe { $sub(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: see above.
                    unsafe { $fma(self, b, c) }
                }
                #[inline(always)]
                unsafe fn sum(self) -> $scalar {
                    let $s = self;
                    // SAFETY: see above.
                    unsafe { $sum }
                }
                $(
                    #[inline(always)]
                    unsafe fn sums($f: [Self; 4]) -> [$scalar; 4] {
                        // SAFETY: see above.
                        unsafe { $sums }
                    }
                )?
            }
        };
    }

    lanes!(
        __m512,
        f32,
        16,
        __mmask16,
        |count| (0xffff_u32 >> (16 - count)) as u16,
        _mm512_setzero_ps,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        |p, m| _mm512_maskz_loadu_ps(m, p),
        |p, m, v| _mm512_mask_storeu_ps(p, m, v),
        _mm512_add_ps,
        _mm512_sub_ps,
        _mm512_fmadd_ps,
        |v| _mm512_reduce_add_ps(v),
        |f| {
            let [a, b, c, d] = f;
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
            let low = _mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd));
            let all = _mm512_add_ps(low, _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
            // Every quarter of `all` now holds a part of the four sums.
            let half = _mm512_add_ps(all, _mm512_shuffle_f32x4::<0b01_00_11_10>(all, all));
            let quarter = _mm512_add_ps(half, _mm512_shuffle_f32x4::<0b10_11_00_01>(half, half));
            let mut sums = [0.0; 4];
            _mm_storeu_ps(sums.as_mut_ptr(), _mm512_castps512_ps128(quarter));
            sums
        }
    );
    lanes!(
        __m512d,
        f64,
        8,
        __mmask8,
        |count| (0xff_u32 >> (8 - count)) as u8,
        _mm512_setzero_pd,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        |p, m| _mm512_maskz_loadu_pd(m, p),
        |p, m, v| _mm512_mask_storeu_pd(p, m, v),
        _mm512_add_pd,
        _mm512_sub_pd,
        _mm512_fmadd_pd,
        |v| _mm512_reduce_add_pd(v)
    );
    lanes!(
        __m256,
        f32,
        8,
        __m256i,
        |count| first_of_8(count),
        _mm256_setzero_ps,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        |p, m| _mm256_maskload_ps(p, m),
        |p, m, v| _mm256_maskstore_ps(p, m, v),
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_fmadd_ps,
        |v| {
            let half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let quarter = _mm_add_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_add_ss(quarter, _mm_shuffle_ps::<1>(quarter, quarter)))
        }
    );
    lanes!(
        __m256d,
        f64,
        4,
        __m256i,
        |count| first_of_4(count),
        _mm256_setzero_pd,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        |p, m| _mm256_maskload_pd(p, m),
        |p, m, v| _mm256_maskstore_pd(p, m, v),
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_fmadd_pd,
        |v| {
            let half = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd::<1>(v));
            _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)))
        }
    );

    /// All ones in the first lanes.
    #[inline(always)]
    fn first_of_8(count: usize) -> __m256i {
        static ONES_ZEROS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
        let start = &ONES_ZEROS[8 - count.min(8)..];
        // SAFETY: at least 8 elements follow; the caller's function enables AVX.
        unsafe { _mm256_loadu_si256(start.as_ptr().cast()) }
    }

    /// All ones in the first lanes.
    #[inline(always)]
    fn first_of_4(count: usize) -> __m256i {
        static ONES_ZEROS: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];
        let start = &ONES_ZEROS[4 - count.min(4)..];
        // SAFETY: at least 4 elements follow; the caller's function enables AVX.
        unsafe { _mm256_loadu_si256(start.as_ptr().cast()) }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{Lanes, Number};
    use std::arch::aarch64::*;

    macro_rules! lanes {
        ($register:ty, $scalar:ty, $n:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $sub:ident,
         $fma:ident, $sum:ident) => {
            // SAFETY of every block below: the caller guarantees the pointers; every supported aarch64 machine has
            // NEON.
            impl Lanes for $register {
                type Scalar = $scalar;
                type Mask = usize;
                const N: usize = $n;

                #[inline(always)]
                unsafe fn zero() -> Self {
                    // SAFETY: see above.
                    unsafe { $splat(&<$scalar>::default()) }
                }
                #[inline(always)]
                unsafe fn splat(p: *const $scalar) -> Self {
                    // SAFETY: see above.
                    unsafe { $splat(p) }
                }
                #[inline(always)]
                unsafe fn load(p: *const $scalar) -> Self {
                    // SAFETY: see above.
                    unsafe { $load(p) }
                }
                #[inline(always)]
                unsafe fn store(self, p: *mut $scalar) {
                    // SAFETY: see above.
                    unsafe { $store(p, self) }
                }
                #[inline(always)]
                unsafe fn first(count: usize) -> usize {
                    count
                }
                #[inline(always)]
                unsafe fn load_masked(p: *const $scalar, count: usize) -> Self {
                    if count == $n {
                        // SAFETY: see above.
                        return unsafe { $load(p) };
                    }
                    let mut lanes = [<$scalar>::default(); $n];
                    // SAFETY: only the first `count` elements are read.
                    unsafe {
                        std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), count);
                        $load(lanes.as_ptr())
                    }
                }
                #[inline(always)]
                unsafe fn store_masked(self, p: *mut $scalar, count: usize) {
                    let mut lanes = [<$scalar>::default(); $n];
                    // SAFETY: only the first `count` elements are written.
                    unsafe {
                        $store(lanes.as_mut_ptr(), self);
                        std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, count);
                    }
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    // SAFETY: see above.
                    unsafe { $add(self, other) }
                }
                #[inline(always)]
                unsafe fn sub(self, other: Self) -> Self {
                    // SAFETY: see above.
                    unsafe { $sub(self, other) }
                }
                #[inline(always)]
                unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                    // SAFETY: see above.
                    unsafe { $fma(c, self, b) }
                }
                #[inline(always)]
                unsafe fn sum(self) -> $scalar {
                    // SAFETY: see above.
                    unsafe { $sum(self) }
                }
            }
        };
    }

    lanes!(
        float32x4_t,
        f32,
        4,
        vld1q_dup_f32,
        vld1q_f32,
        vst1q_f32,
        vaddq_f32,
        vsubq_f32,
        vfmaq_f32,
        vaddvq_f32
    );
    lanes!(
        float64x2_t,
        f64,
        2,
        vld1q_dup_f64,
        vld1q_f64,
        vst1q_f64,
        vaddq_f64,
        vsubq_f64,
        vfmaq_f64,
        vaddvq_f64
    );
}
