extern "C" __global__ void __launch_bounds__(64) gather_rows(const float *__restrict__ in0, const long long *__restrict__ in1, float *__restrict__ out2) {
    const int group_x = blockIdx.x;
    const int invocation_x = threadIdx.x;
    if (group_x * 64 + invocation_x < 250) {
        const long long v0 = in1[group_x * 12 + (group_x * 4 + invocation_x) / 5];
        const float4 v1 = *(const float4 *)(in0 + ((group_x * 4 + invocation_x) % 5) * 4 + (v0 < 0 ? 0 : v0 < 7 ? (int)v0 : 6) * 20);
        *(float4 *)(out2 + group_x * 256 + invocation_x * 4) = v1;
    }
}
