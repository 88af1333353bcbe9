//! Custom kernels in every source language. They compute on integers, so there is exactly one correct result.

use phynexus::{
    DType, Error, Result, Scalar,
    custom::{CustomCall, CustomKernel},
    op::{Op, TensorType},
    oracle::generate::{Case, Choice, Distribution},
    shape::{Dims, element_count},
};

use super::{Entry, elementwise::leaf};
use crate::languages;

/// For CUDA C and HIP C.
const C: &str = r#"
extern "C" __global__ void combine(const unsigned* a, const unsigned* b, unsigned* y, unsigned n, unsigned by) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a[i] * by + b[0];
}"#;

const OPENCL: &str = r#"
__kernel void combine(
    __global const uint* a, __global const uint* b, __global uint* y, uint n, uint by
) {
    uint i = get_global_id(0);
    if (i < n) y[i] = a[i] * by + b[0];
}"#;

const WGSL: &str = r#"
struct Scalars { n: u32, by: u32 }
@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read> b: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(3) var<uniform> scalars: Scalars;
@compute @workgroup_size(64)
fn combine(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < scalars.n) { y[id.x] = a[id.x] * scalars.by + b[0]; }
}"#;

/// `a * by + b`.
fn combine() -> Result<CustomKernel> {
    CustomKernel::builder("combine")
        .input("a", DType::U32, "shape..")
        .input("b", DType::U32, "1")
        .output("y", DType::U32, "shape..")
        .scalar("n", DType::U32)
        .scalar("by", DType::U32)
        .work_group_size([64, 1, 1])
        .source(languages::CUDA_C, C)
        .source(languages::HIP_C, C)
        .source(languages::OPENCL_C, OPENCL)
        .source(languages::WGSL, WGSL)
        .cpu(|mut call| {
            let by = call.scalars[1].as_u64() as u32;
            let (a, b) = (call.inputs[0].values::<u32>()?, call.inputs[1].values::<u32>()?);
            let b = *b.first().ok_or_else(|| Error::argument("combine", "b is empty"))?;
            let y = call.outputs[0].values::<u32>()?;
            y.iter_mut().zip(a).for_each(|(y, a)| *y = a.wrapping_mul(by).wrapping_add(b));
            Ok(())
        })
        .build()
}

/// Launches with row-major and scattered operands.
pub(super) fn entries() -> Vec<Entry> {
    // The kernel is a constant. If it were invalid, the operation would have no cases, and a test would fail.
    cases().unwrap_or_default()
}

fn cases() -> Result<Vec<Entry>> {
    let kernel = combine()?;
    let mut choice = Choice::new(29);
    let mut entries = Vec::new();
    for shape in [&[1][..], &[0, 3], &[65], &[7, 33], &[3, 4, 50]] {
        for scattered in [false, true] {
            let mut case = Case::new(format!("a custom kernel on {shape:?}, scattered {scattered}"));
            let mut operand = |shape: &[usize]| {
                leaf(&mut case, &mut choice, Distribution::Tame, DType::U32, shape, scattered)
            };
            let inputs = [operand(shape), operand(&[1])];
            let scalars = [Scalar::UInt(element_count(shape) as u64), Scalar::UInt(2_654_435_761)];
            let call = CustomCall::new(
                &kernel,
                &[TensorType::new(DType::U32, shape), TensorType::new(DType::U32, &[1])],
                &scalars,
            )?;
            let op = Op::Custom(call);
            let name = op.name();
            let output = case.ir.push(op, DType::U32, Dims::from_slice(shape), inputs);
            case.ir.outputs.push(output);
            entries.push(Entry::new(name, DType::U32.name(), move || case.clone()));
        }
    }
    Ok(entries)
}
