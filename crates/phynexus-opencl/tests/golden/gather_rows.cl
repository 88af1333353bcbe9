#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void gather_rows(__global const float *restrict base0, const long begin0, __global const long *restrict base1, const long begin1, __global float *restrict base2, const long begin2) {
    __global const float *const in0 = base0 + begin0;
    __global const long *const in1 = base1 + begin1;
    __global float *const out2 = base2 + begin2;
    const int group_x = get_group_id(0);
    const int invocation_x = get_local_id(0);
    if (group_x * 64 + invocation_x < 250) {
        const long v0 = in1[group_x * 12 + (group_x * 4 + invocation_x) / 5];
        const float4 v1 = *(__global const float4 *)(in0 + ((group_x * 4 + invocation_x) % 5) * 4 + (v0 < 0 ? 0 : v0 < 7 ? (int)v0 : 6) * 20);
        *(__global float4 *)(out2 + group_x * 256 + invocation_x * 4) = v1;
    }
}
