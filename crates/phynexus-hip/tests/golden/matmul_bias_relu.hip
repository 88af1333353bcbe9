#pragma clang fp contract(off)

__device__ static inline int float32_bits_as_int32(float from) { union { float from; int to; } bits; bits.from = from; return bits.to; }
__device__ static inline float int32_bits_as_float32(int from) { union { int from; float to; } bits; bits.from = from; return bits.to; }
__device__ static inline float maximum_float32(float a, float b) { if (a != b) return a > b || a != a ? a : b; int both = float32_bits_as_int32(a) & float32_bits_as_int32(b); return int32_bits_as_float32(both); }

extern "C" __global__ void __launch_bounds__(64) matmul_bias_relu(const float *__restrict__ in0, const float *__restrict__ in1, const float *__restrict__ in2, float *__restrict__ out3) {
    extern __shared__ unsigned char shared_memory[] __attribute__((aligned(32)));
    float *const shared0 = (float *)(shared_memory + 0);
    float *const shared1 = (float *)(shared_memory + 1024);
    float register0[16];
    float register1[4];
    float register2[4];
    const int group_y = blockIdx.y;
    const int group_x = blockIdx.x;
    const int invocation_y = threadIdx.y;
    const int invocation_x = threadIdx.x;
    #pragma unroll
    for (int i4 = 0; i4 < 4; ++i4) {
        #pragma unroll
        for (int i5 = 0; i5 < 4; ++i5) {
            register0[i4 * 4 + i5] = 0.0f;
        }
    }
    for (int i6 = 0; i6 < 3; ++i6) {
        #pragma unroll
        for (int i7 = 0; i7 < 4; ++i7) {
            const float v1 = (group_y * 32 + invocation_y + i7 * 8 < 50 && invocation_x + i6 * 8 < 20 ? in0[group_y * 640 + invocation_y * 20 + invocation_x + i6 * 8 + i7 * 160] : 0.0f);
            shared0[invocation_y * 8 + invocation_x + i7 * 64] = v1;
            const float v2 = (group_x * 32 + invocation_x + (invocation_y % 4) * 8 < 70 && i6 * 8 + i7 * 2 + invocation_y / 4 < 20 ? in1[group_x * 32 + invocation_x + i6 * 560 + i7 * 140 + (invocation_y / 4) * 70 + (invocation_y % 4) * 8] : 0.0f);
            shared1[invocation_y * 8 + invocation_x + i7 * 64] = v2;
        }
        __syncthreads();
        #pragma unroll
        for (int i8 = 0; i8 < 8; ++i8) {
            #pragma unroll
            for (int i4 = 0; i4 < 4; ++i4) {
                const float v3 = shared0[invocation_y * 32 + i4 * 8 + i8];
                register1[i4] = v3;
            }
            #pragma unroll
            for (int i5 = 0; i5 < 4; ++i5) {
                const float v4 = shared1[invocation_x * 4 + i5 + i8 * 32];
                register2[i5] = v4;
            }
            #pragma unroll
            for (int i4 = 0; i4 < 4; ++i4) {
                #pragma unroll
                for (int i5 = 0; i5 < 4; ++i5) {
                    const float v5 = register1[i4];
                    const float v6 = register2[i5];
                    const float v7 = v5 * v6;
                    const float v8 = register0[i4 * 4 + i5];
                    const float v9 = v8 + v7;
                    register0[i4 * 4 + i5] = v9;
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int i4 = 0; i4 < 4; ++i4) {
        #pragma unroll
        for (int i5 = 0; i5 < 4; ++i5) {
            if (group_y * 32 + invocation_y * 4 + i4 < 50 && group_x * 32 + invocation_x * 4 + i5 < 70) {
                const float v10 = register0[i4 * 4 + i5];
                const float v11 = in2[group_x * 32 + invocation_x * 4 + i5];
                const float v12 = v10 + v11;
                const float v14 = maximum_float32(v12, 0.0f);
                out3[group_y * 2240 + group_x * 32 + invocation_y * 280 + invocation_x * 4 + i4 * 70 + i5] = v14;
            }
        }
    }
}
