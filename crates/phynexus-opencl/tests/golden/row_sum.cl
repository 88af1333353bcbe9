#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void row_sum(__global const int *restrict base0, const long begin0, __global float *restrict base1, const long begin1, const float scalar0) {
    __global const int *const in0 = base0 + begin0;
    __global float *const out1 = base1 + begin1;
    __local int shared0[4] __attribute__((aligned(32)));
    int register0;
    const int group_x = get_group_id(0);
    const int invocation_x = get_local_id(0);
    register0 = 0;
    for (int i2 = 0; i2 < 3; ++i2) {
        const int v1 = (invocation_x + i2 * 128 < 300 ? in0[group_x * 300 + invocation_x + i2 * 128] : 0);
        const int v2 = register0;
        const int v3 = (int)((uint)v2 + (uint)v1);
        register0 = v3;
    }
    const int v4 = register0;
    const int v5 = sub_group_shuffle_xor(v4, 16u);
    const int v6 = register0;
    const int v7 = (int)((uint)v6 + (uint)v5);
    register0 = v7;
    const int v8 = register0;
    const int v9 = sub_group_shuffle_xor(v8, 8u);
    const int v10 = register0;
    const int v11 = (int)((uint)v10 + (uint)v9);
    register0 = v11;
    const int v12 = register0;
    const int v13 = sub_group_shuffle_xor(v12, 4u);
    const int v14 = register0;
    const int v15 = (int)((uint)v14 + (uint)v13);
    register0 = v15;
    const int v16 = register0;
    const int v17 = sub_group_shuffle_xor(v16, 2u);
    const int v18 = register0;
    const int v19 = (int)((uint)v18 + (uint)v17);
    register0 = v19;
    const int v20 = register0;
    const int v21 = sub_group_shuffle_xor(v20, 1u);
    const int v22 = register0;
    const int v23 = (int)((uint)v22 + (uint)v21);
    register0 = v23;
    if (invocation_x % 32 < 1) {
        const int v24 = register0;
        shared0[invocation_x / 32] = v24;
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (invocation_x < 1) {
        const int v25 = shared0[0];
        const int v26 = shared0[1];
        const int v27 = (int)((uint)v25 + (uint)v26);
        const int v28 = shared0[2];
        const int v29 = (int)((uint)v27 + (uint)v28);
        const int v30 = shared0[3];
        const int v31 = (int)((uint)v29 + (uint)v30);
        const float v32 = (float)v31;
        const float v34 = v32 * scalar0;
        out1[group_x] = v34;
    }
}
