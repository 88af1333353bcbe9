extern "C" __global__ void __launch_bounds__(128) row_sum(const int *__restrict__ in0, float *__restrict__ out1, const float scalar0) {
    extern __shared__ unsigned char shared_memory[] __attribute__((aligned(32)));
    int *const shared0 = (int *)(shared_memory + 0);
    int register0;
    const int group_x = blockIdx.x;
    const int invocation_x = threadIdx.x;
    register0 = 0;
    for (int i2 = 0; i2 < 3; ++i2) {
        const int v1 = (invocation_x + i2 * 128 < 300 ? in0[group_x * 300 + invocation_x + i2 * 128] : 0);
        const int v2 = register0;
        const int v3 = (int)((unsigned int)v2 + (unsigned int)v1);
        register0 = v3;
    }
    const int v4 = register0;
    const int v5 = __shfl_xor_sync(0xffffffffu, v4, 16);
    const int v6 = register0;
    const int v7 = (int)((unsigned int)v6 + (unsigned int)v5);
    register0 = v7;
    const int v8 = register0;
    const int v9 = __shfl_xor_sync(0xffffffffu, v8, 8);
    const int v10 = register0;
    const int v11 = (int)((unsigned int)v10 + (unsigned int)v9);
    register0 = v11;
    const int v12 = register0;
    const int v13 = __shfl_xor_sync(0xffffffffu, v12, 4);
    const int v14 = register0;
    const int v15 = (int)((unsigned int)v14 + (unsigned int)v13);
    register0 = v15;
    const int v16 = register0;
    const int v17 = __shfl_xor_sync(0xffffffffu, v16, 2);
    const int v18 = register0;
    const int v19 = (int)((unsigned int)v18 + (unsigned int)v17);
    register0 = v19;
    const int v20 = register0;
    const int v21 = __shfl_xor_sync(0xffffffffu, v20, 1);
    const int v22 = register0;
    const int v23 = (int)((unsigned int)v22 + (unsigned int)v21);
    register0 = v23;
    if (invocation_x % 32 < 1) {
        const int v24 = register0;
        shared0[invocation_x / 32] = v24;
    }
    __syncthreads();
    if (invocation_x < 1) {
        const int v25 = shared0[0];
        const int v26 = shared0[1];
        const int v27 = (int)((unsigned int)v25 + (unsigned int)v26);
        const int v28 = shared0[2];
        const int v29 = (int)((unsigned int)v27 + (unsigned int)v28);
        const int v30 = shared0[3];
        const int v31 = (int)((unsigned int)v29 + (unsigned int)v30);
        const float v32 = (float)v31;
        const float v34 = v32 * scalar0;
        out1[group_x] = v34;
    }
}
