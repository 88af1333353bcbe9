"""Compares the engine's kernels with hand-written kernels on one device: milliseconds and ratios.

The hand-written kernels are an addition with one element per work item, and two matrix products: tiles of 16 x 16 in
shared memory, and eight rows by a vector of columns in registers. The faster product counts. Both sides are launched
through the package in turns, and their results must agree. A figure is the median of the repetitions.

Usage: python benchmarks/hand_written.py DEVICE   (opencl:0, vulkan:0, ..)
"""

import statistics
import sys
import time

import numpy as np

import neurenix as nx

REPETITIONS = 15
TILE = 16

ADD_OPENCL = """
__kernel void add(__global const float* a, __global const float* b, __global float* c) {
    size_t i = get_global_id(0);
    c[i] = a[i] + b[i];
}
"""

ADD_WGSL = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@compute @workgroup_size(256)
fn add(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = id.x + id.y * groups.x * 256u;
    c[i] = a[i] + b[i];
}
"""

TILED_OPENCL = """
#define T 16
__kernel __attribute__((reqd_work_group_size(T, T, 1)))
void product(__global const float* a, __global const float* b, __global float* c) {
    __local float left[T][T], right[T][T];
    int x = get_local_id(0), y = get_local_id(1);
    int row = get_group_id(1) * T + y, column = get_group_id(0) * T + x;
    float sum = 0;
    for (int t = 0; t < N; t += T) {
        left[y][x] = a[row * N + t + x];
        right[y][x] = b[(t + y) * N + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < T; k++) sum = fma(left[y][k], right[k][x], sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[row * N + column] = sum;
}
"""

REGISTERS_OPENCL = """
__kernel void product(__global const float* restrict a, __global const float* restrict b, __global float* restrict c) {
    int column = get_global_id(0) * 16, row = get_global_id(1) * 8;
    float16 sum[8];
    for (int r = 0; r < 8; r++) sum[r] = (float16)(0);
    for (int k = 0; k < N; k++) {
        float16 v = vload16(0, b + k * N + column);
        for (int r = 0; r < 8; r++) sum[r] = fma((float16)(a[(row + r) * N + k]), v, sum[r]);
    }
    for (int r = 0; r < 8; r++) vstore16(sum[r], 0, c + (row + r) * N + column);
}
"""

TILED_WGSL = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
var<workgroup> left: array<array<f32, 16>, 16>;
var<workgroup> right: array<array<f32, 16>, 16>;
@compute @workgroup_size(16, 16)
fn product(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_id) at: vec3<u32>) {
    let row = group.y * 16u + at.y;
    let column = group.x * 16u + at.x;
    var sum = 0.0;
    for (var t = 0u; t < Nu; t += 16u) {
        left[at.y][at.x] = a[row * Nu + t + at.x];
        right[at.y][at.x] = b[(t + at.y) * Nu + column];
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) { sum = fma(left[at.y][k], right[k][at.x], sum); }
        workgroupBarrier();
    }
    c[row * Nu + column] = sum;
}
"""

REGISTERS_WGSL = """
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
@compute @workgroup_size(8, 8)
fn product(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x;
    let row = id.y * 8u;
    let width = Nu / 4u;
""" + "".join(f"    var s{r} = vec4<f32>(0.0);\n" for r in range(8)) + """
    for (var k = 0u; k < Nu; k++) {
        let v = b[k * width + column];
        let o = row * Nu + k;
""" + "".join(f"        s{r} = fma(vec4(a[o + {r}u * Nu]), v, s{r});\n" for r in range(8)) + """    }
""" + "".join(f"    c[(row + {r}u) * width + column] = s{r};\n" for r in range(8)) + "}\n"


def kernel(name, shape, opencl, wgsl, size, groups):
    """Creates a hand-written kernel with two inputs of a shape."""
    return nx.CustomKernel(
        name,
        inputs=[("a", nx.float32, shape), ("b", nx.float32, shape)],
        outputs=[("c", nx.float32, shape)],
        sources={"opencl": opencl, "wgsl": wgsl},
        work_group_size=size,
        groups=groups,
    )


def products(n):
    """The hand-written products of n x n matrices, by name."""
    opencl, wgsl = f"#define N {n}\n", lambda text: text.replace("Nu", f"{n}u")
    tiled = kernel("product", "n n", opencl + TILED_OPENCL, wgsl(TILED_WGSL), [TILE, TILE, 1], [n // TILE, n // TILE, 1])
    on_opencl = sys.argv[1].startswith("opencl")
    size, groups = ([1, 1, 1], [n // 16, n // 8, 1]) if on_opencl else ([8, 8, 1], [n // 32, n // 64, 1])
    registers = kernel("product", "n n", opencl + REGISTERS_OPENCL, wgsl(REGISTERS_WGSL), size, groups)
    return {"tiles in shared memory": tiled, "registers": registers}


def measure(sides, a, b):
    """Measures the sides in turns and returns the median milliseconds of each."""
    times = {name: [] for name in sides}
    results = {}
    for repetition in range(REPETITIONS + 2):
        for name, function in sides.items():
            start = time.perf_counter()
            results[name] = function(a, b)
            nx.evaluate([results[name]])
            nx.synchronize(sys.argv[1])
            if repetition >= 2:
                times[name].append(1e3 * (time.perf_counter() - start))
    first, *others = (result.cpu().numpy() for result in results.values())
    for other in others:
        np.testing.assert_allclose(first, other, rtol=1e-4, atol=1e-3)
    return {name: statistics.median(all_) for name, all_ in times.items()}


def main():
    device = sys.argv[1]
    print(f"{'workload':<28}{'ours, ms':>10}{'by hand, ms':>13}{'ratio':>8}")
    # Vulkan guarantees only 65535 groups along an axis.
    groups = [1 << 16, 1, 1] if device.startswith("opencl") else [1 << 15, 2, 1]
    add = kernel("add", "n", ADD_OPENCL, ADD_WGSL, [256, 1, 1], groups)
    cases = [("add, 16 M float32", (1 << 24,), {"add": add})]
    cases += [(f"product, {n} x {n} float32", (n, n), products(n)) for n in (256, 512, 1024)]
    for name, shape, by_hand in cases:
        a, b = (nx.random.randn(*shape, device=device) for _ in range(2))
        nx.evaluate([a, b])
        ours = nx.add if name.startswith("add") else nx.matmul
        times = measure({"ours": ours, **by_hand}, a, b)
        best = min(time for side, time in times.items() if side != "ours")
        print(f"{name:<28}{times['ours']:>10.2f}{best:>13.2f}{times['ours'] / best:>8.2f}")


if __name__ == "__main__":
    main()
