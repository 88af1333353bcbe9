//! Workloads that fill a GPU. `benchmarks/torch_gpu.py` has the same under the same names.

use neurenix::{
    Result,
    phynexus::{
        DType, Device, MatmulPrecision, Tensor, set_float32_matmul_precision,
        tensor::{GeluApproximation, Generator},
    },
};

use super::workloads::{Step, Work, Workload, random, repeat, workload};

/// Rows and columns of the workloads on rows.
const ROWS: usize = 16384;
const COLUMNS: usize = 4096;

pub(super) fn all() -> Vec<Workload> {
    let mut all = Vec::new();
    let n = 1 << 26;
    let chain = |d| {
        let [a, b, c, e] = [(); 4].map(|()| random(&[1 << 26], d));
        let (a, b, c, e) = (a?, b?, c?, e?);
        repeat(move || Ok(a.mul(&b)?.add(&c)?.gelu(GeluApproximation::Tanh)?.mul(&e)?))
    };
    all.push(with(workload("gelu(a*b+c)*d 64M", chain), Work::Bytes(5.0 * 4.0 * f64::from(n))));
    let bytes = (ROWS * COLUMNS * DType::BF16.size()) as f64;
    let rows = |name: &str, moved: f64, compute: fn(&Tensor, &Tensor) -> Result<Tensor>| {
        let prepare = move |d| -> Result<Step> {
            let (x, w) = (rounded(&[ROWS, COLUMNS], d)?, rounded(&[COLUMNS], d)?);
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
                let make = || -> Result<Tensor> { Ok(random(&[n, n], d)?.to_dtype(dtype)?.evaluated()?) };
                let (a, b) = (make()?, make()?);
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

fn rounded(shape: &[usize], device: Device) -> Result<Tensor> {
    Ok(Generator::new(1).randn(shape, DType::F32, device)?.to_dtype(DType::BF16)?.evaluated()?)
}
