//! AMD's matrix instructions in HIP C (sources: the CDNA 3 and RDNA 3 ISA guides; AMD's matrix instruction calculator).

use phynexus::{
    DType,
    kernel::loops::{MatrixShape, MatrixUnit},
};

/// The matrix instructions that kernels use on an architecture: MFMA on CDNA 2 and 3, WMMA on RDNA 3.
pub fn matrix_units(architecture: &str) -> Vec<MatrixUnit> {
    let name = architecture.split(':').next().unwrap_or_default();
    let known = matches!(name, "gfx90a" | "gfx940" | "gfx941" | "gfx942") || name.starts_with("gfx11");
    let shape = MatrixShape { rows: 16, columns: 16, depth: 16 };
    let factors = [DType::F16, DType::BF16].into_iter().filter(|_| known);
    factors.map(|factor| MatrixUnit::new(shape, factor, DType::F32)).collect()
}

/// Matrix fragments of 16 by 16 elements: MFMA in wavefronts of 64, WMMA in wavefronts of 32. Of either factor lane `l`
/// has row or column `l % 16`, there `SUMMANDS` neighbours from `FIRST` on; of a sum it has column `l % 16`, there the
/// rows `ROW` for each `i` below `SUMS`. On gfx90a the 16-bit instructions take subnormal numbers for zero, so there
/// the factors are multiplied by the instruction of `float`, whose lanes have a summand each.
pub(crate) const MATRICES: &str = r#"
#if defined(__GFX11__)
#define SUMMANDS 16
#define FIRST 0
#define SUMS 8
#define ROW 2 * i + l / 16
#else
#define SUMMANDS 4
#define FIRST l / 16 * 4
#define SUMS 4
#define ROW l / 16 * 4 + i
#endif
typedef unsigned int factor_fragment __attribute__((ext_vector_type(SUMMANDS / 2)));
typedef float sum_fragment __attribute__((ext_vector_type(SUMS)));
typedef _Float16 float16_factor __attribute__((ext_vector_type(SUMMANDS)));
typedef short bfloat16_factor __attribute__((ext_vector_type(SUMMANDS)));
__device__ static inline int lane() {
#if defined(__GFX11__)
  return __builtin_amdgcn_mbcnt_lo(~0u, 0);
#else
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#endif
}
// Summands are neighbours in memory, or a row apart if they are turned.
template <bool exchanged, bool turned>
__device__ static inline void fragment_load(factor_fragment &to, const unsigned short *from, int stride) {
  const int l = lane(), first = FIRST;
  if (turned) {
    from += first * stride + l % 16;
    for (int i = 0; i < SUMMANDS / 2; ++i)
      to[i] = from[2 * i * stride] | (unsigned int)from[(2 * i + 1) * stride] << 16;
  } else {
    __builtin_memcpy(&to, __builtin_assume_aligned(from + l % 16 * stride + first, SUMMANDS < 8 ? 8 : 16), sizeof to);
  }
}
#if defined(__GFX11__)
#define FLOAT16(a, b, sum) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, sum)
#define BFLOAT16(a, b, sum) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, sum)
#elif defined(__gfx90a__)
__device__ static inline sum_fragment by_summands(float4 a, float4 b, sum_fragment sum) {
  sum = __builtin_amdgcn_mfma_f32_16x16x4f32(a.x, b.x, sum, 0, 0, 0);
  sum = __builtin_amdgcn_mfma_f32_16x16x4f32(a.y, b.y, sum, 0, 0, 0);
  sum = __builtin_amdgcn_mfma_f32_16x16x4f32(a.z, b.z, sum, 0, 0, 0);
  return __builtin_amdgcn_mfma_f32_16x16x4f32(a.w, b.w, sum, 0, 0, 0);
}
__device__ static inline float4 widened(float16_factor a) { return make_float4(a.x, a.y, a.z, a.w); }
__device__ static inline float4 widened(bfloat16_factor a) {
  const factor_fragment b = __builtin_bit_cast(factor_fragment, a);
  return make_float4(__uint_as_float(b.x << 16), __uint_as_float(b.x & 0xffff0000u),
                     __uint_as_float(b.y << 16), __uint_as_float(b.y & 0xffff0000u));
}
#define FLOAT16(a, b, sum) by_summands(widened(a), widened(b), sum)
#define BFLOAT16(a, b, sum) by_summands(widened(a), widened(b), sum)
#else
#define FLOAT16(a, b, sum) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, sum, 0, 0, 0)
#define BFLOAT16(a, b, sum) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, sum, 0, 0, 0)
#endif
__device__ static inline void fragment_multiply_add_float16(sum_fragment &sum, factor_fragment a, factor_fragment b) {
  sum = FLOAT16(__builtin_bit_cast(float16_factor, a), __builtin_bit_cast(float16_factor, b), sum);
}
__device__ static inline void fragment_multiply_add_bfloat16(sum_fragment &sum, factor_fragment a, factor_fragment b) {
  sum = BFLOAT16(__builtin_bit_cast(bfloat16_factor, a), __builtin_bit_cast(bfloat16_factor, b), sum);
}
__device__ static inline void fragment_fill(sum_fragment &sum, float value) { sum = value; }
__device__ static inline void fragment_store(float *to, sum_fragment sum, int stride) {
  const int l = lane();
  for (int i = 0; i < SUMS; ++i) to[(ROW) * stride + l % 16] = sum[i];
}
"#;

#[cfg(test)]
mod tests;
