#pragma clang fp contract(off)


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

__device__ static inline float float16_to_float(unsigned short bits) { return (float)__builtin_bit_cast(_Float16, bits); }

extern "C" __global__ void __launch_bounds__(128) matmul_fragments(const unsigned short *__restrict__ in0, const unsigned short *__restrict__ in1, float *__restrict__ out2) {
    extern __shared__ unsigned char shared_memory[] __attribute__((aligned(32)));
    unsigned short *const shared0 = (unsigned short *)(shared_memory + 0);
    unsigned short *const shared1 = (unsigned short *)(shared_memory + 2048);
    factor_fragment fragment0[2];
    factor_fragment fragment1[2];
    sum_fragment fragment2[4];
    const int group_y = blockIdx.y;
    const int invocation_x = threadIdx.x;
    #pragma unroll
    for (int i3 = 0; i3 < 2; ++i3) {
        #pragma unroll
        for (int i4 = 0; i4 < 2; ++i4) {
            fragment_fill(fragment2[i3 * 2 + i4], 0.0f);
        }
    }
    for (int i5 = 0; i5 < 2; ++i5) {
        #pragma unroll
        for (int i6 = 0; i6 < 2; ++i6) {
            const ushort4 v0_bits = *(const ushort4 *)(in0 + group_y * 2048 + i5 * 16 + i6 * 1024 + (invocation_x / 4) * 32 + (invocation_x % 4) * 4);
            const float4 v0 = make_float4(float16_to_float(v0_bits.x), float16_to_float(v0_bits.y), float16_to_float(v0_bits.z), float16_to_float(v0_bits.w));
            *(ushort4 *)(shared0 + invocation_x * 4 + i6 * 512) = v0_bits;
            const ushort4 v1_bits = *(const ushort4 *)(in1 + invocation_x * 4 + i5 * 1024 + i6 * 512);
            const float4 v1 = make_float4(float16_to_float(v1_bits.x), float16_to_float(v1_bits.y), float16_to_float(v1_bits.z), float16_to_float(v1_bits.w));
            *(ushort4 *)(shared1 + invocation_x * 4 + i6 * 512) = v1_bits;
        }
        __syncthreads();
        #pragma unroll
        for (int i3 = 0; i3 < 2; ++i3) {
            fragment_load<false, false>(fragment0[i3], (const unsigned short *)(shared0 + i3 * 256 + (invocation_x / 64) * 512), 16);
        }
        #pragma unroll
        for (int i4 = 0; i4 < 2; ++i4) {
            fragment_load<false, true>(fragment1[i4], (const unsigned short *)(shared1 + i4 * 16 + ((invocation_x / 32) % 2) * 32), 64);
        }
        #pragma unroll
        for (int i3 = 0; i3 < 2; ++i3) {
            #pragma unroll
            for (int i4 = 0; i4 < 2; ++i4) {
                fragment_multiply_add_float16(fragment2[i3 * 2 + i4], fragment0[i3], fragment1[i4]);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i3 = 0; i3 < 2; ++i3) {
        #pragma unroll
        for (int i4 = 0; i4 < 2; ++i4) {
            fragment_store((float *)(out2 + group_y * 4096 + i3 * 1024 + i4 * 16 + (invocation_x / 64) * 2048 + ((invocation_x / 32) % 2) * 32), fragment2[i3 * 2 + i4], 64);
        }
    }
}
