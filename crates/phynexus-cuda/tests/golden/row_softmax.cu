__device__ static inline float maximum_float32(float a, float b) { 
#if __CUDA_ARCH__ >= 800
  float c; asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b)); return c;
#else
  if (a != b) return a > b || a != a ? a : b;
  return __int_as_float(__float_as_int(a) & __float_as_int(b));
#endif
 }

extern "C" __global__ void __launch_bounds__(64) row_softmax(const float *__restrict__ in0, float *__restrict__ out1) {
    extern __shared__ unsigned char shared_memory[] __attribute__((aligned(32)));
    float *const shared0 = (float *)(shared_memory + 0);
    float register0;
    float register1;
    const int group_x = blockIdx.x;
    const int invocation_x = threadIdx.x;
    register0 = (-__int_as_float(0x7f800000));
    for (int i2 = 0; i2 < 16; ++i2) {
        const float v1 = (invocation_x + i2 * 64 < 1000 ? in0[group_x * 1000 + invocation_x + i2 * 64] : (-__int_as_float(0x7f800000)));
        const float v2 = register0;
        const float v3 = maximum_float32(v2, v1);
        register0 = v3;
    }
    const float v4 = register0;
    shared0[invocation_x] = v4;
    __syncthreads();
    if (invocation_x < 32) {
        const float v5 = shared0[invocation_x];
        const float v6 = shared0[invocation_x + 32];
        const float v7 = maximum_float32(v5, v6);
        shared0[invocation_x] = v7;
    }
    __syncthreads();
    if (invocation_x < 16) {
        const float v8 = shared0[invocation_x];
        const float v9 = shared0[invocation_x + 16];
        const float v10 = maximum_float32(v8, v9);
        shared0[invocation_x] = v10;
    }
    __syncthreads();
    if (invocation_x < 8) {
        const float v11 = shared0[invocation_x];
        const float v12 = shared0[invocation_x + 8];
        const float v13 = maximum_float32(v11, v12);
        shared0[invocation_x] = v13;
    }
    __syncthreads();
    if (invocation_x < 4) {
        const float v14 = shared0[invocation_x];
        const float v15 = shared0[invocation_x + 4];
        const float v16 = maximum_float32(v14, v15);
        shared0[invocation_x] = v16;
    }
    __syncthreads();
    if (invocation_x < 2) {
        const float v17 = shared0[invocation_x];
        const float v18 = shared0[invocation_x + 2];
        const float v19 = maximum_float32(v17, v18);
        shared0[invocation_x] = v19;
    }
    __syncthreads();
    if (invocation_x < 1) {
        const float v20 = shared0[invocation_x];
        const float v21 = shared0[invocation_x + 1];
        const float v22 = maximum_float32(v20, v21);
        shared0[invocation_x] = v22;
    }
    __syncthreads();
    const float v23 = shared0[0];
    __syncthreads();
    register1 = 0.0f;
    for (int i2 = 0; i2 < 16; ++i2) {
        if (invocation_x + i2 * 64 < 1000) {
            const float v25 = in0[group_x * 1000 + invocation_x + i2 * 64];
            const float v26 = v25 - v23;
            const float v27 = expf(v26);
            const float v28 = register1;
            const float v29 = v28 + v27;
            register1 = v29;
        }
    }
    const float v30 = register1;
    shared0[invocation_x] = v30;
    __syncthreads();
    if (invocation_x < 32) {
        const float v31 = shared0[invocation_x];
        const float v32 = shared0[invocation_x + 32];
        const float v33 = v31 + v32;
        shared0[invocation_x] = v33;
    }
    __syncthreads();
    if (invocation_x < 16) {
        const float v34 = shared0[invocation_x];
        const float v35 = shared0[invocation_x + 16];
        const float v36 = v34 + v35;
        shared0[invocation_x] = v36;
    }
    __syncthreads();
    if (invocation_x < 8) {
        const float v37 = shared0[invocation_x];
        const float v38 = shared0[invocation_x + 8];
        const float v39 = v37 + v38;
        shared0[invocation_x] = v39;
    }
    __syncthreads();
    if (invocation_x < 4) {
        const float v40 = shared0[invocation_x];
        const float v41 = shared0[invocation_x + 4];
        const float v42 = v40 + v41;
        shared0[invocation_x] = v42;
    }
    __syncthreads();
    if (invocation_x < 2) {
        const float v43 = shared0[invocation_x];
        const float v44 = shared0[invocation_x + 2];
        const float v45 = v43 + v44;
        shared0[invocation_x] = v45;
    }
    __syncthreads();
    if (invocation_x < 1) {
        const float v46 = shared0[invocation_x];
        const float v47 = shared0[invocation_x + 1];
        const float v48 = v46 + v47;
        shared0[invocation_x] = v48;
    }
    __syncthreads();
    const float v49 = shared0[0];
    for (int i2 = 0; i2 < 16; ++i2) {
        if (invocation_x + i2 * 64 < 1000) {
            const float v50 = in0[group_x * 1000 + invocation_x + i2 * 64];
            const float v51 = v50 - v23;
            const float v52 = expf(v51);
            const float v53 = v52 / v49;
            out1[group_x * 1000 + invocation_x + i2 * 64] = v53;
        }
    }
}
