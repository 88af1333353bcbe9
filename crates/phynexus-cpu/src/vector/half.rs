//! Conversions of `f16` by processor instructions, if available: x86-64 with F16C or AVX-512.

use super::{InstructionSet, UnaryKernel};

/// The three kernels of an instruction set.
#[derive(Clone, Copy)]
pub(super) struct Half {
    /// `f16` to `f32`.
    pub(super) widen: UnaryKernel,
    /// `f32` to `f16`, to nearest, halves to even.
    pub(super) narrow: UnaryKernel,
    /// `f32` to `f16` and back.
    pub(super) round: UnaryKernel,
}

/// The conversions of an instruction set, if this processor has instructions for them.
pub(super) fn half(set: InstructionSet) -> Option<Half> {
    #[cfg(target_arch = "x86_64")]
    match set {
        InstructionSet::Avx512 => return Some(x86::AVX512),
        InstructionSet::Avx2 if std::arch::is_x86_feature_detected!("f16c") => return Some(x86::F16C),
        _ => {}
    }
    let _ = set;
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Half;
    use crate::vector::convert::{f16_to_f32, f32_to_f16, round_to_f16};

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;

    /// Kernels over whole registers; the remainder is converted in software.
    macro_rules! kernels {
        ($name:ident, $features:literal, $lanes:literal, $widen:expr, $narrow:expr, $round:expr) => {
            pub(super) const $name: Half = {
                #[target_feature(enable = $features)]
                unsafe fn widen(source: *const u8, target: *mut u8, n: usize) {
                    let (source, target) = (source.cast::<u16>(), target.cast::<f32>());
                    let whole = n - n % $lanes;
                    // SAFETY: the caller provides n elements of each.
                    unsafe {
                        for at in (0..whole).step_by($lanes) {
                            ($widen)(source.add(at), target.add(at));
                        }
                        for at in whole..n {
                            target.add(at).write_unaligned(f16_to_f32(source.add(at).read_unaligned()));
                        }
                    }
                }
                #[target_feature(enable = $features)]
                unsafe fn narrow(source: *const u8, target: *mut u8, n: usize) {
                    let (source, target) = (source.cast::<f32>(), target.cast::<u16>());
                    let whole = n - n % $lanes;
                    // SAFETY: the caller provides n elements of each.
                    unsafe {
                        for at in (0..whole).step_by($lanes) {
                            ($narrow)(source.add(at), target.add(at));
                        }
                        for at in whole..n {
                            target.add(at).write_unaligned(f32_to_f16(source.add(at).read_unaligned()));
                        }
                    }
                }
                #[target_feature(enable = $features)]
                unsafe fn round(source: *const u8, target: *mut u8, n: usize) {
                    let (source, target) = (source.cast::<f32>(), target.cast::<f32>());
                    let whole = n - n % $lanes;
                    // SAFETY: the caller provides n elements of each.
                    unsafe {
                        for at in (0..whole).step_by($lanes) {
                            ($round)(source.add(at), target.add(at));
                        }
                        for at in whole..n {
                            target.add(at).write_unaligned(round_to_f16(source.add(at).read_unaligned()));
                        }
                    }
                }
                Half { widen, narrow, round }
            };
        };
    }

    kernels!(
        AVX512,
        "avx512f",
        16,
        |from: *const u16, to: *mut f32| _mm512_storeu_ps(
            to,
            _mm512_cvtph_ps(_mm256_loadu_si256(from.cast()))
        ),
        |from: *const f32, to: *mut u16| {
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(from)))
        },
        |from: *const f32, to: *mut f32| {
            _mm512_storeu_ps(to, _mm512_cvtph_ps(_mm512_cvtps_ph::<NEAREST>(_mm512_loadu_ps(from))))
        }
    );

    kernels!(
        F16C,
        "avx,f16c",
        8,
        |from: *const u16, to: *mut f32| _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128(from.cast()))),
        |from: *const f32, to: *mut u16| {
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from)))
        },
        |from: *const f32, to: *mut f32| {
            _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm256_cvtps_ph::<NEAREST>(_mm256_loadu_ps(from))))
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::convert::{f16_to_f32, f32_to_f16};

    #[test]
    fn instructions_convert_as_the_software_does() {
        let sets = InstructionSet::available();
        for Half { widen, narrow, round } in sets.into_iter().filter_map(half) {
            // All values, and tails of every length.
            for n in [1, 7, 8, 15, 17, 1 << 16] {
                let halves: Vec<u16> = (0..n as u32).map(|i| i as u16).collect();
                let singles: Vec<f32> = (0..n as u32)
                    .map(|i| f32::from_bits((i << 16) | (i.wrapping_mul(40503) & 0xffff)))
                    .collect();
                let (mut wide, mut narrowed, mut rounded) = (vec![0f32; n], vec![0u16; n], vec![0f32; n]);
                // SAFETY: all have n elements.
                unsafe {
                    widen(halves.as_ptr().cast(), wide.as_mut_ptr().cast(), n);
                    narrow(singles.as_ptr().cast(), narrowed.as_mut_ptr().cast(), n);
                    round(singles.as_ptr().cast(), rounded.as_mut_ptr().cast(), n);
                }
                for at in 0..n {
                    let (expected, x) = (f16_to_f32(halves[at]), singles[at]);
                    assert!(
                        wide[at].to_bits() == expected.to_bits() || wide[at].is_nan() && expected.is_nan()
                    );
                    if x.is_nan() {
                        assert!(f16_to_f32(narrowed[at]).is_nan() && rounded[at].is_nan());
                        continue;
                    }
                    assert_eq!(narrowed[at], f32_to_f16(x), "{x}");
                    assert_eq!(rounded[at].to_bits(), f16_to_f32(f32_to_f16(x)).to_bits(), "{x}");
                }
            }
        }
    }
}
