#include <cuda_bf16.h>
#include <mma.h>

__device__ static inline float float16_to_float(unsigned short bits) { float value; asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)); return value; }

extern "C" __global__ void __launch_bounds__(128) matmul_fragments(const unsigned short *__restrict__ in0, const unsigned short *__restrict__ in1, float *__restrict__ out2) {
    extern __shared__ unsigned char shared_memory[] __attribute__((aligned(32)));
    unsigned short *const shared0 = (unsigned short *)(shared_memory + 0);
    unsigned short *const shared1 = (unsigned short *)(shared_memory + 2048);
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> fragment0[2];
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::row_major> fragment1[2];
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> fragment2[4];
    const int group_y = blockIdx.y;
    const int invocation_x = threadIdx.x;
    #pragma unroll
    for (int i3 = 0; i3 < 2; ++i3) {
        #pragma unroll
        for (int i4 = 0; i4 < 2; ++i4) {
            nvcuda::wmma::fill_fragment(fragment2[i3 * 2 + i4], 0.0f);
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
            nvcuda::wmma::load_matrix_sync(fragment0[i3], (const __half *)(shared0 + i3 * 256 + (invocation_x / 64) * 512), 16);
        }
        #pragma unroll
        for (int i4 = 0; i4 < 2; ++i4) {
            nvcuda::wmma::load_matrix_sync(fragment1[i4], (const __half *)(shared1 + i4 * 16 + ((invocation_x / 32) % 2) * 32), 64);
        }
        #pragma unroll
        for (int i3 = 0; i3 < 2; ++i3) {
            #pragma unroll
            for (int i4 = 0; i4 < 2; ++i4) {
                nvcuda::wmma::mma_sync(fragment2[i3 * 2 + i4], fragment0[i3], fragment1[i4], fragment2[i3 * 2 + i4]);
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i3 = 0; i3 < 2; ++i3) {
        #pragma unroll
        for (int i4 = 0; i4 < 2; ++i4) {
            nvcuda::wmma::store_matrix_sync((float *)(out2 + group_y * 4096 + i3 * 1024 + i4 * 16 + (invocation_x / 64) * 2048 + ((invocation_x / 32) % 2) * 32), fragment2[i3 * 2 + i4], 64, nvcuda::wmma::mem_row_major);
        }
    }
}
