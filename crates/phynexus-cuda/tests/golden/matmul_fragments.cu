
typedef unsigned int factor_fragment[4];
typedef float sum_fragment[8];
__device__ static inline unsigned int shared_address(const void *pointer) {
  return (unsigned int)__cvta_generic_to_shared(pointer);
}
__device__ static inline unsigned int lane() {
  unsigned int lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); return lane;
}
// Four matrices of 8 by 8: by columns of blocks, or by rows if they are exchanged; each is transposed if it is turned.
template <bool exchanged, bool turned>
__device__ static inline void fragment_load(factor_fragment &to, const unsigned short *from, int stride) {
  const int l = lane();
  const int outer = exchanged ? l % 8 + l / 16 * 8 : l % 16, inner = exchanged ? l / 8 % 2 * 8 : l / 16 * 8;
  const unsigned int address = shared_address(from + outer * stride + inner);
  if (turned)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
}
// The same of floats, which are rounded: four matrices of 8 rows by 4 columns, or of 4 by 8 whose elements are taken
// one by one if they are turned.
template <bool exchanged, bool turned>
__device__ static inline void fragment_load(factor_fragment &to, const float *from, int stride) {
  const int l = lane();
  if (turned) {
    for (int i = 0; i < 4; ++i) {
      const int outer = exchanged ? i % 2 : i / 2, inner = exchanged ? i / 2 : i % 2;
      to[i] = __float_as_uint(from[(l % 4 + inner * 4) * stride + l / 4 + outer * 8]);
    }
  } else {
    const int outer = exchanged ? l % 8 + l / 16 * 8 : l % 16, inner = exchanged ? l / 8 % 2 * 4 : l / 16 * 4;
    const unsigned int address = shared_address(from + outer * stride + inner);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  }
  for (int i = 0; i < 4; ++i) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to[i]) : "f"(__uint_as_float(to[i])));
}
#define MULTIPLY_ADD(name, type)                                                                                  \
  __device__ static inline void name(sum_fragment &sum, const factor_fragment &a, const factor_fragment &b) {        \
    for (int half = 0; half < 2; ++half)                                                                          \
      asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                                          \
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                       \
          : "+f"(sum[4 * half]), "+f"(sum[4 * half + 1]), "+f"(sum[4 * half + 2]), "+f"(sum[4 * half + 3])        \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));                  \
  }
MULTIPLY_ADD(fragment_multiply_add_float16, "f16")
MULTIPLY_ADD(fragment_multiply_add_bfloat16, "bf16")
__device__ static inline void fragment_multiply_add_float32(
    sum_fragment &sum, const factor_fragment &a, const factor_fragment &b) {
  for (int half = 0; half < 2; ++half)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[4 * half]), "+f"(sum[4 * half + 1]), "+f"(sum[4 * half + 2]), "+f"(sum[4 * half + 3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}
__device__ static inline void fragment_fill(sum_fragment &sum, float value) {
  for (int i = 0; i < 8; ++i) sum[i] = value;
}
__device__ static inline void fragment_store(float *to, const sum_fragment &sum, int stride) {
  const int row = lane() / 4, column = lane() % 4 * 2;
  for (int i = 0; i < 8; ++i) to[(row + i / 2 % 2 * 8) * stride + column + i / 4 * 8 + i % 2] = sum[i];
}
__device__ static inline void copy_begin(void *to, const void *from, bool holds) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(holds ? 16 : 0) : "memory");
}
__device__ static inline void copy_mark() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int most> __device__ static inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" :: "n"(most) : "memory");
}

__device__ static inline float float16_to_float(unsigned short bits) { float value; asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)); return value; }

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
