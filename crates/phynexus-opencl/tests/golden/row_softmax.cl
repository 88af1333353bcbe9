#pragma OPENCL FP_CONTRACT OFF

static inline int float32_bits_as_int32(float from) { union { float from; int to; } bits; bits.from = from; return bits.to; }
static inline float int32_bits_as_float32(int from) { union { int from; float to; } bits; bits.from = from; return bits.to; }
static inline float maximum_float32(float a, float b) { if (a != b) return a > b || a != a ? a : b; int both = float32_bits_as_int32(a) & float32_bits_as_int32(b); return int32_bits_as_float32(both); }

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void row_softmax(__global const float *restrict base0, const long begin0, __global float *restrict base1, const long begin1) {
    __global const float *const in0 = base0 + begin0;
    __global float *const out1 = base1 + begin1;
    __local float shared0[64] __attribute__((aligned(32)));
    float register0;
    float register1;
    const int group_x = get_group_id(0);
    const int invocation_x = get_local_id(0);
    register0 = (-INFINITY);
    for (int i2 = 0; i2 < 16; ++i2) {
        const float v1 = (invocation_x + i2 * 64 < 1000 ? in0[group_x * 1000 + invocation_x + i2 * 64] : (-INFINITY));
        const float v2 = register0;
        const float v3 = maximum_float32(v2, v1);
        register0 = v3;
    }
    const float v4 = register0;
    shared0[invocation_x] = v4;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 32) {
        const float v5 = shared0[invocation_x];
        const float v6 = shared0[invocation_x + 32];
        const float v7 = maximum_float32(v5, v6);
        shared0[invocation_x] = v7;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 16) {
        const float v8 = shared0[invocation_x];
        const float v9 = shared0[invocation_x + 16];
        const float v10 = maximum_float32(v8, v9);
        shared0[invocation_x] = v10;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 8) {
        const float v11 = shared0[invocation_x];
        const float v12 = shared0[invocation_x + 8];
        const float v13 = maximum_float32(v11, v12);
        shared0[invocation_x] = v13;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 4) {
        const float v14 = shared0[invocation_x];
        const float v15 = shared0[invocation_x + 4];
        const float v16 = maximum_float32(v14, v15);
        shared0[invocation_x] = v16;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 2) {
        const float v17 = shared0[invocation_x];
        const float v18 = shared0[invocation_x + 2];
        const float v19 = maximum_float32(v17, v18);
        shared0[invocation_x] = v19;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 1) {
        const float v20 = shared0[invocation_x];
        const float v21 = shared0[invocation_x + 1];
        const float v22 = maximum_float32(v20, v21);
        shared0[invocation_x] = v22;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const float v23 = shared0[0];
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    register1 = 0.0f;
    for (int i2 = 0; i2 < 16; ++i2) {
        if (invocation_x + i2 * 64 < 1000) {
            const float v25 = in0[group_x * 1000 + invocation_x + i2 * 64];
            const float v26 = v25 - v23;
            const float v27 = exp(v26);
            const float v28 = register1;
            const float v29 = v28 + v27;
            register1 = v29;
        }
    }
    const float v30 = register1;
    shared0[invocation_x] = v30;
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 32) {
        const float v31 = shared0[invocation_x];
        const float v32 = shared0[invocation_x + 32];
        const float v33 = v31 + v32;
        shared0[invocation_x] = v33;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 16) {
        const float v34 = shared0[invocation_x];
        const float v35 = shared0[invocation_x + 16];
        const float v36 = v34 + v35;
        shared0[invocation_x] = v36;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 8) {
        const float v37 = shared0[invocation_x];
        const float v38 = shared0[invocation_x + 8];
        const float v39 = v37 + v38;
        shared0[invocation_x] = v39;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 4) {
        const float v40 = shared0[invocation_x];
        const float v41 = shared0[invocation_x + 4];
        const float v42 = v40 + v41;
        shared0[invocation_x] = v42;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 2) {
        const float v43 = shared0[invocation_x];
        const float v44 = shared0[invocation_x + 2];
        const float v45 = v43 + v44;
        shared0[invocation_x] = v45;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 1) {
        const float v46 = shared0[invocation_x];
        const float v47 = shared0[invocation_x + 1];
        const float v48 = v46 + v47;
        shared0[invocation_x] = v48;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    const float v49 = shared0[0];
    for (int i2 = 0; i2 < 16; ++i2) {
        if (invocation_x + i2 * 64 < 1000) {
            const float v50 = in0[group_x * 1000 + invocation_x + i2 * 64];
            const float v51 = v50 - v23;
            const float v52 = exp(v51);
            const float v53 = v52 / v49;
            out1[group_x * 1000 + invocation_x + i2 * 64] = v53;
        }
    }
}
