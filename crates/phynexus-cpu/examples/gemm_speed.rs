//! Prints the speed of matrix products: `cargo run --release -p phynexus-cpu --example gemm_speed`.

use std::time::{Duration, Instant};

use phynexus::DType;
use phynexus_cpu::gemm::{BatchItem, Operand, Output, gemm};

fn main() {
    let mut shapes: Vec<[usize; 3]> = [64, 96, 128, 192, 256, 512, 1024, 2048].map(|s| [s, s, s]).to_vec();
    shapes.extend([[1, 784, 512], [64, 784, 512], [128, 512, 256], [1024, 784, 512]]);
    let only: Vec<String> = std::env::args().skip(1).collect();
    for [m, k, n] in shapes {
        for (name, a_transposed, b_transposed) in
            [("nn", false, false), ("nt", false, true), ("tn", true, false)]
        {
            let label = format!("{m}x{k}x{n} {name}");
            if only.iter().all(|part| label.contains(part.as_str())) {
                let (median, best) = measure(m, n, k, a_transposed, b_transposed);
                let rate = |t: Duration| 2.0 * (m * n * k) as f64 / t.as_secs_f64() / 1e9;
                let micros = median.as_secs_f64() * 1e6;
                println!(
                    "{label}: {micros:9.1} us median {:7.1} GFLOP/s, best {:7.1}",
                    rate(median),
                    rate(best)
                );
            }
        }
    }
}

/// The median and the best time of a product.
fn measure(m: usize, n: usize, k: usize, a_transposed: bool, b_transposed: bool) -> (Duration, Duration) {
    let values =
        |count: usize| -> Vec<f32> { (0..count).map(|i| (i * 7919 % 1000) as f32 / 500.0 - 1.0).collect() };
    let (a, b, mut c) = (values(m * k), values(k * n), vec![0f32; m * n]);
    let operand = |data: &[f32], rows: usize, columns: usize, transposed: bool| {
        let (row_stride, column_stride) = if transposed { (1, rows as isize) } else { (columns as isize, 1) };
        Operand { data: data.as_ptr().cast(), dtype: DType::F32, row_stride, column_stride }
    };
    let (a, b) = (operand(&a, m, k, a_transposed), operand(&b, k, n, b_transposed));
    let c =
        Output { data: c.as_mut_ptr().cast(), dtype: DType::F32, row_stride: n as isize, column_stride: 1 };
    let call = || {
        // SAFETY: the vectors hold the matrices.
        let result = unsafe { gemm(m, n, k, &[BatchItem::default()], &a, &b, &c, None) };
        assert!(result.is_ok(), "{result:?}");
    };
    (0..3).for_each(|_| call());
    let mut times = Vec::new();
    let end = Instant::now() + Duration::from_millis(400);
    while Instant::now() < end {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed() < Duration::from_millis(5) {
            call();
            calls += 1;
        }
        times.push(start.elapsed() / calls);
    }
    times.sort();
    (times[times.len() / 2], times[0])
}
