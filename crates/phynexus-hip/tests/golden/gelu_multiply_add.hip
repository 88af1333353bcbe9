#pragma clang fp contract(off)

__device__ static inline float float16_to_float(unsigned short bits) { return (float)__builtin_bit_cast(_Float16, bits); }
__device__ static inline unsigned short float16_from_float(float value) { return __builtin_bit_cast(unsigned short, (_Float16)value); }

extern "C" __global__ void __launch_bounds__(64) gelu_multiply_add(const float *__restrict__ in0, const float *__restrict__ in1, const unsigned short *__restrict__ in2, unsigned short *__restrict__ out3) {
    const int group_x = blockIdx.x;
    const int invocation_x = threadIdx.x;
    if (group_x * 64 + invocation_x < 250) {
        const float4 v0 = *(const float4 *)(in0 + group_x * 256 + invocation_x * 4);
        const float4 v1 = *(const float4 *)(in1 + group_x * 256 + invocation_x * 4);
        const ushort4 v2_bits = *(const ushort4 *)(in2 + group_x * 256 + invocation_x * 4);
        const float4 v2 = make_float4(float16_to_float(v2_bits.x), float16_to_float(v2_bits.y), float16_to_float(v2_bits.z), float16_to_float(v2_bits.w));
        const float4 v4 = make_float4(v0.x * v1.x, v0.y * v1.y, v0.z * v1.z, v0.w * v1.w);
        const float4 v5 = make_float4(v4.x + v2.x, v4.y + v2.y, v4.z + v2.z, v4.w + v2.w);
        const float4 v8 = make_float4(v5.x * 0.70710677f, v5.y * 0.70710677f, v5.z * 0.70710677f, v5.w * 0.70710677f);
        const float4 v9 = make_float4(erff(v8.x), erff(v8.y), erff(v8.z), erff(v8.w));
        const float4 v12 = make_float4(v9.x + 1.0f, v9.y + 1.0f, v9.z + 1.0f, v9.w + 1.0f);
        const float4 v15 = make_float4(v5.x * 0.5f, v5.y * 0.5f, v5.z * 0.5f, v5.w * 0.5f);
        const float4 v16 = make_float4(v15.x * v12.x, v15.y * v12.y, v15.z * v12.z, v15.w * v12.w);
        const ushort4 v17_bits = make_ushort4(float16_from_float(v16.x), float16_from_float(v16.y), float16_from_float(v16.z), float16_from_float(v16.w));
        const float4 v17 = make_float4(float16_to_float(v17_bits.x), float16_to_float(v17_bits.y), float16_to_float(v17_bits.z), float16_to_float(v17_bits.w));
        *(ushort4 *)(out3 + group_x * 256 + invocation_x * 4) = v17_bits;
    } else {
        for (int i2 = 0; i2 < 4; ++i2) {
            if (group_x * 256 + invocation_x * 4 + i2 < 1003) {
                const float v18 = in0[group_x * 256 + invocation_x * 4 + i2];
                const float v19 = in1[group_x * 256 + invocation_x * 4 + i2];
                const unsigned short v20_bits = in2[group_x * 256 + invocation_x * 4 + i2];
                const float v20 = float16_to_float(v20_bits);
                const float v22 = v18 * v19;
                const float v23 = v22 + v20;
                const float v25 = v23 * 0.70710677f;
                const float v26 = erff(v25);
                const float v28 = v26 + 1.0f;
                const float v30 = v23 * 0.5f;
                const float v31 = v30 * v28;
                const unsigned short v32_bits = float16_from_float(v31);
                const float v32 = float16_to_float(v32_bits);
                out3[group_x * 256 + invocation_x * 4 + i2] = v32_bits;
            }
        }
    }
}
