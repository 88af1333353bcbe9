#pragma OPENCL FP_CONTRACT OFF

static inline float float16_to_float(ushort bits) { return vload_half(0, (const half *)&bits); }
static inline ushort float16_from_float(float value) { ushort bits; vstore_half_rte(value, 0, (half *)&bits); return bits; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void gelu_multiply_add(__global const float *restrict base0, const long begin0, __global const float *restrict base1, const long begin1, __global const ushort *restrict base2, const long begin2, __global ushort *restrict base3, const long begin3) {
    __global const float *const in0 = base0 + begin0;
    __global const float *const in1 = base1 + begin1;
    __global const ushort *const in2 = base2 + begin2;
    __global ushort *const out3 = base3 + begin3;
    const int group_x = get_group_id(0);
    const int invocation_x = get_local_id(0);
    if (group_x * 64 + invocation_x < 250) {
        const float4 v0 = *(__global const float4 *)(in0 + group_x * 256 + invocation_x * 4);
        const float4 v1 = *(__global const float4 *)(in1 + group_x * 256 + invocation_x * 4);
        const ushort4 v2_bits = *(__global const ushort4 *)(in2 + group_x * 256 + invocation_x * 4);
        const float4 v2 = (float4)(float16_to_float(v2_bits.x), float16_to_float(v2_bits.y), float16_to_float(v2_bits.z), float16_to_float(v2_bits.w));
        const float4 v4 = (float4)(v0.x * v1.x, v0.y * v1.y, v0.z * v1.z, v0.w * v1.w);
        const float4 v5 = (float4)(v4.x + v2.x, v4.y + v2.y, v4.z + v2.z, v4.w + v2.w);
        const float4 v8 = (float4)(v5.x * 0.70710677f, v5.y * 0.70710677f, v5.z * 0.70710677f, v5.w * 0.70710677f);
        const float4 v9 = (float4)(erf(v8.x), erf(v8.y), erf(v8.z), erf(v8.w));
        const float4 v12 = (float4)(v9.x + 1.0f, v9.y + 1.0f, v9.z + 1.0f, v9.w + 1.0f);
        const float4 v15 = (float4)(v5.x * 0.5f, v5.y * 0.5f, v5.z * 0.5f, v5.w * 0.5f);
        const float4 v16 = (float4)(v15.x * v12.x, v15.y * v12.y, v15.z * v12.z, v15.w * v12.w);
        const ushort4 v17_bits = (ushort4)(float16_from_float(v16.x), float16_from_float(v16.y), float16_from_float(v16.z), float16_from_float(v16.w));
        const float4 v17 = (float4)(float16_to_float(v17_bits.x), float16_to_float(v17_bits.y), float16_to_float(v17_bits.z), float16_to_float(v17_bits.w));
        *(__global ushort4 *)(out3 + group_x * 256 + invocation_x * 4) = v17_bits;
    } else {
        for (int i2 = 0; i2 < 4; ++i2) {
            if (group_x * 256 + invocation_x * 4 + i2 < 1003) {
                const float v18 = in0[group_x * 256 + invocation_x * 4 + i2];
                const float v19 = in1[group_x * 256 + invocation_x * 4 + i2];
                const ushort v20_bits = in2[group_x * 256 + invocation_x * 4 + i2];
                const float v20 = float16_to_float(v20_bits);
                const float v22 = v18 * v19;
                const float v23 = v22 + v20;
                const float v25 = v23 * 0.70710677f;
                const float v26 = erf(v25);
                const float v28 = v26 + 1.0f;
                const float v30 = v23 * 0.5f;
                const float v31 = v30 * v28;
                const ushort v32_bits = float16_from_float(v31);
                const float v32 = float16_to_float(v32_bits);
                out3[group_x * 256 + invocation_x * 4 + i2] = v32_bits;
            }
        }
    }
}
