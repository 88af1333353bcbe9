//! Example kernels. The entry point of each is its name followed by `_kernel`.

use std::collections::HashMap;

/// A type whose functions return sources.
macro_rules! sources {
    ($(#[$doc:meta])+ $type:ident { $($(#[$about:meta])+ $name:ident = $source:expr;)+ }) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $type;

        impl $type {
            $($(#[$about])+
            pub fn $name() -> &'static str {
                $source
            })+

            /// All sources by name.
            pub fn all_kernels() -> HashMap<String, String> {
                HashMap::from([$((stringify!($name).to_owned(), $source.to_owned())),+])
            }
        }
    };
}

/// An elementwise kernel in CUDA C with one input.
macro_rules! cuda_unary {
    ($name:literal, $value:literal) => {
        concat!(
            "extern \"C\" __global__ void ",
            $name,
            "_kernel(const float* input, float* output, int n) {\n",
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n",
            "    if (i < n) {\n        float x = input[i];\n        output[i] = ",
            $value,
            ";\n    }\n}\n"
        )
    };
}
macro_rules! cuda_binary {
    ($name:literal, $value:literal) => {
        concat!(
            "extern \"C\" __global__ void ",
            $name,
            "_kernel(const float* a, const float* b, float* output, int n) {\n",
            "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n",
            "    if (i < n) output[i] = ",
            $value,
            ";\n}\n"
        )
    };
}
macro_rules! cuda_reduction {
    ($name:literal, $value:literal) => {
        concat!(
            "extern \"C\" __global__ void ",
            $name,
            "_kernel(const float* input, float* output, int n) {",
            r#"
    __shared__ float parts[256];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += input[i];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) output[0] = "#,
            $value,
            ";\n}\n"
        )
    };
}
macro_rules! opencl_unary {
    ($name:literal, $value:literal) => {
        concat!(
            "__kernel void ",
            $name,
            "_kernel(__global const float* input, __global float* output, int n) {\n",
            "    int i = get_global_id(0);\n",
            "    if (i < n) {\n        float x = input[i];\n        output[i] = ",
            $value,
            ";\n    }\n}\n"
        )
    };
}

sources! {
    /// Kernels in CUDA C.
    CudaKernels {
        /// `c = a * b` for an `m` by `k` matrix `a` and a `k` by `n` matrix `b`; one invocation per element of `c`.
        matmul = r#"extern "C" __global__ void matmul_kernel(
    const float* a, const float* b, float* c, int m, int n, int k
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    int row = i / n, column = i % n;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[row * k + p] * b[p * n + column];
    c[i] = sum;
}
"#;
        /// `a + b`.
        add = cuda_binary!("add", "a[i] + b[i]");
        /// `a * b`, element by element.
        multiply = cuda_binary!("multiply", "a[i] * b[i]");
        /// `max(x, 0)`.
        relu = cuda_unary!("relu", "fmaxf(x, 0.0f)");
        /// The derivative of ReLU at `x`.
        relu_derivative = cuda_unary!("relu_derivative", "x > 0.0f ? 1.0f : 0.0f");
        /// `1 / (1 + exp(-x))`.
        sigmoid = cuda_unary!("sigmoid", "1.0f / (1.0f + expf(-x))");
        /// The derivative of the sigmoid at `x`.
        sigmoid_derivative = cuda_unary!("sigmoid_derivative", "1.0f / (2.0f + expf(-x) + expf(x))");
        /// The hyperbolic tangent.
        tanh = cuda_unary!("tanh", "tanhf(x)");
        /// The derivative of the hyperbolic tangent at `x`.
        tanh_derivative = cuda_unary!("tanh_derivative", "1.0f - tanhf(x) * tanhf(x)");
        /// The softmax of each row; one invocation per element.
        softmax = r#"extern "C" __global__ void softmax_kernel(const float* input, float* output, int rows, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns) return;
    const float* row = input + i / columns * columns;
    float greatest = row[0], sum = 0.0f;
    for (int j = 1; j < columns; j++) greatest = fmaxf(greatest, row[j]);
    for (int j = 0; j < columns; j++) sum += expf(row[j] - greatest);
    output[i] = expf(input[i] - greatest) / sum;
}
"#;
        /// The sum of all elements, in `output[0]`, for one group of 256.
        sum_reduction = cuda_reduction!("sum_reduction", "parts[0]");
        /// The mean of all elements, in `output[0]`, for one group of 256.
        mean_reduction = cuda_reduction!("mean_reduction", "parts[0] / n");
        /// Sets elements to 0 where `random` is below `rate`, and scales the others to keep the mean.
        dropout = r#"extern "C" __global__ void dropout_kernel(
    const float* input, const float* random, float* output, float rate, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) output[i] = random[i] < rate ? 0.0f : input[i] / (1.0f - rate);
}
"#;
        /// Normalises rows of `channels` elements by the channels' means and variances.
        batch_norm = r#"extern "C" __global__ void batch_norm_kernel(
    const float* input, const float* mean, const float* variance, const float* weight, const float* bias,
    float* output, float epsilon, int channels, int n
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = i % channels;
    output[i] = (input[i] - mean[c]) * rsqrtf(variance[c] + epsilon) * weight[c] + bias[c];
}
"#;
        /// `input * weight + bias` for rows of `inputs` elements and an `inputs` by `outputs` weight.
        dense_forward = r#"extern "C" __global__ void dense_forward_kernel(
    const float* input, const float* weight, const float* bias, float* output, int rows, int inputs, int outputs
) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * outputs) return;
    int row = i / outputs, column = i % outputs;
    float sum = bias[column];
    for (int p = 0; p < inputs; p++) sum += input[row * inputs + p] * weight[p * outputs + column];
    output[i] = sum;
}
"#;
        /// The cross-entropy of each row of probabilities against a row of targets.
        cross_entropy_loss = r#"extern "C" __global__ void cross_entropy_loss_kernel(
    const float* predictions, const float* targets, float* output, int columns, int rows
) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int j = 0; j < columns; j++) {
        sum -= targets[row * columns + j] * logf(fmaxf(predictions[row * columns + j], 1e-7f));
    }
    output[row] = sum;
}
"#;
        /// The squared difference of each element.
        mse_loss = cuda_binary!("mse_loss", "(a[i] - b[i]) * (a[i] - b[i])");
    }
}

sources! {
    /// Kernels in OpenCL C.
    OpenCLKernels {
        /// `c = a * b` for an `m` by `k` matrix `a` and a `k` by `n` matrix `b`; one invocation per element of `c`.
        matmul = r#"__kernel void matmul_kernel(
    __global const float* a, __global const float* b, __global float* c, int m, int n, int k
) {
    int i = get_global_id(0);
    if (i >= m * n) return;
    int row = i / n, column = i % n;
    float sum = 0.0f;
    for (int p = 0; p < k; p++) sum += a[row * k + p] * b[p * n + column];
    c[i] = sum;
}
"#;
        /// `a + b`.
        add = r#"__kernel void add_kernel(
    __global const float* a, __global const float* b, __global float* output, int n
) {
    int i = get_global_id(0);
    if (i < n) output[i] = a[i] + b[i];
}
"#;
        /// `max(x, 0)`.
        relu = opencl_unary!("relu", "fmax(x, 0.0f)");
        /// `1 / (1 + exp(-x))`.
        sigmoid = opencl_unary!("sigmoid", "1.0f / (1.0f + exp(-x))");
    }
}

sources! {
    /// Kernels in the Metal shading language. Tensors are buffers 0, 1, ..; scalars are a structure in the buffer after
    /// them.
    MetalKernels {
        /// `c = a * b` for an `m` by `k` matrix `a` and a `k` by `n` matrix `b`; one invocation per element of `c`.
        matmul = r#"#include <metal_stdlib>
using namespace metal;
struct Sizes { int m; int n; int k; };
kernel void matmul_kernel(
    device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
    constant Sizes& sizes [[buffer(3)]], uint i [[thread_position_in_grid]]
) {
    if (int(i) >= sizes.m * sizes.n) return;
    int row = int(i) / sizes.n, column = int(i) % sizes.n;
    float sum = 0.0f;
    for (int p = 0; p < sizes.k; p++) sum += a[row * sizes.k + p] * b[p * sizes.n + column];
    c[i] = sum;
}
"#;
        /// `a + b`.
        add = r#"#include <metal_stdlib>
using namespace metal;
struct Sizes { int n; };
kernel void add_kernel(
    device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* output [[buffer(2)]],
    constant Sizes& sizes [[buffer(3)]], uint i [[thread_position_in_grid]]
) {
    if (int(i) < sizes.n) output[i] = a[i] + b[i];
}
"#;
        /// `max(x, 0)`.
        relu = r#"#include <metal_stdlib>
using namespace metal;
struct Sizes { int n; };
kernel void relu_kernel(
    device const float* input [[buffer(0)]], device float* output [[buffer(1)]],
    constant Sizes& sizes [[buffer(2)]], uint i [[thread_position_in_grid]]
) {
    if (int(i) < sizes.n) output[i] = max(input[i], 0.0f);
}
"#;
    }
}
