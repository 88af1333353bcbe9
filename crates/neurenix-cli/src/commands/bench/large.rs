//! Workloads that fill a GPU. `benchmarks/workloads.py` has the same workloads under the same names.

use neurenix::{
    Result,
    phynexus::{
        DType, Device, MatmulPrecision, Tensor, set_float32_matmul_precision, tensor::GeluApproximation,
    },
};

use super::workloads::{Step, Work, Workload, random, repeat, workload};

/// Shape of the row-wise workloads.
const ROWS: usize = 16384;
const COLUMNS: usize = 4096;

pub(super) fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    for (dtype, suffix) in [(DType::F32, ""), (DType::BF16, " bf16")] {
        let chain = move |d| {
            let [a, b, c, e] = [(); 4].map(|()| of_type(dtype, &[1 << 26], d));
            let (a, b, c, e) = (a?, b?, c?, e?);
            repeat(move || Ok(a.mul(&b)?.add(&c)?.gelu(GeluApproximation::Tanh)?.mul(&e)?))
        };
        let moved = 5.0 * (dtype.size() << 26) as f64;
        all.push(with(workload(format!("gelu(a*b+c)*d 64M{suffix}"), chain), Work::Bytes(moved)));
    }
    let bytes = (ROWS * COLUMNS * DType::BF16.size()) as f64;
    let rows = |name: &str, moved: f64, compute: fn(&Tensor, &Tensor) -> Result<Tensor>| {
        let prepare = move |d| -> Result<Step> {
            let (x, w) = (of_type(DType::BF16, &[ROWS, COLUMNS], d)?, of_type(DType::BF16, &[COLUMNS], d)?);
            repeat(move || compute(&x, &w))
        };
        with(workload(format!("{name} {ROWS}x{COLUMNS} bf16"), prepare), Work::Bytes(moved))
    };
    all.push(rows("softmax", 2.0 * bytes, |x, _| Ok(x.softmax(-1)?)));
    all.push(rows("layer norm", 2.0 * bytes, |x, w| Ok(x.layer_norm(&[COLUMNS], Some(w), Some(w), 1e-5)?)));
    all.push(rows("RMS norm", 2.0 * bytes, |x, w| Ok(x.rms_norm(&[COLUMNS], Some(w), Some(1e-6))?)));
    all.push(rows("row sums", bytes, |x, _| Ok(x.sum(&[1], false)?)));
    all.push(rows("column sums", bytes, |x, _| Ok(x.sum(&[0], false)?)));
    all.push(rows("sum of all", bytes, |x, _| Ok(x.sum(&[], false)?)));
    let types = [("f32", DType::F32), ("tf32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)];
    for (name, dtype) in types {
        for n in [4096usize, 8192] {
            let prepare = move |d| -> Result<Step> {
                let (a, b) = (of_type(dtype, &[n, n], d)?, of_type(dtype, &[n, n], d)?);
                repeat(move || {
                    let rounds = name == "tf32";
                    set_float32_matmul_precision(if rounds {
                        MatmulPrecision::High
                    } else {
                        MatmulPrecision::Highest
                    });
                    let product = a.matmul(&b);
                    set_float32_matmul_precision(MatmulPrecision::Highest);
                    Ok(product?)
                })
            };
            let operations = 2.0 * (n as f64).powi(3);
            all.push(with(workload(format!("matmul {name} {n}"), prepare), Work::Operations(operations)));
        }
    }
    all
}

fn with(workload: Workload, work: Work) -> Workload {
    Workload { work: Some(work), ..workload }
}

fn of_type(dtype: DType, shape: &[usize], device: Device) -> Result<Tensor> {
    Ok(random(shape, device)?.to_dtype(dtype)?.evaluated()?)
}
