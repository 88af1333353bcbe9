//! Prints the speed of matrix products: `cargo run --release -p phynexus-cpu --example gemm_speed [part of a label]..`.

use std::time::{Duration, Instant};

use phynexus::DType;
use phynexus_cpu::gemm::{BatchItem, Operand, Output, gemm};

fn main() {
    let mut shapes: Vec<[usize; 3]> = [64, 96, 128, 192, 256, 512, 1024, 2048].map(|s| [s, s, s]).to_vec();
    shapes.extend([
        [1, 784, 512],
        [64, 784, 512],
        [128, 512, 256],
        [1024, 784, 512],
        [1, 4096, 4096],
        [64, 8192, 64],
    ]);
    let only: Vec<String> = std::env::args().skip(1).collect();
    for (operand, result) in [
        (DType::F32, DType::F32),
        (DType::F64, DType::F64),
        (DType::F16, DType::F16),
        (DType::BF16, DType::BF16),
        (DType::I8, DType::I32),
    ] {
        for &[m, k, n] in &shapes {
            for (name, transposed) in [("nn", [false, false]), ("nt", [false, true]), ("tn", [true, false])] {
                let label = format!("{operand} {m}x{k}x{n} {name}");
                if only.is_empty() || only.iter().any(|part| label.contains(part.as_str())) {
                    let (median, best) = measure([m, n, k], transposed, operand, result);
                    let rate = |t: Duration| 2.0 * (m * n * k) as f64 / t.as_secs_f64() / 1e9;
                    let micros = median.as_secs_f64() * 1e6;
                    println!(
                        "{label}: {micros:9.1} us median {:7.1} G/s, best {:7.1}",
                        rate(median),
                        rate(best)
                    );
                }
            }
        }
    }
}

/// The median and the best time of a product.
fn measure(
    [m, n, k]: [usize; 3],
    transposed: [bool; 2],
    dtype: DType,
    result: DType,
) -> (Duration, Duration) {
    // All-zero bits are a value of every type, and speed does not depend on the operands' values.
    let (a, b) =
        (vec![0u64; (m * k * dtype.size()).div_ceil(8)], vec![0u64; (k * n * dtype.size()).div_ceil(8)]);
    let mut c = vec![0u64; (m * n * result.size()).div_ceil(8)];
    let operand = |data: &[u64], rows: usize, columns: usize, transposed: bool| {
        let (row_stride, column_stride) = if transposed { (1, rows as isize) } else { (columns as isize, 1) };
        Operand { data: data.as_ptr().cast(), dtype, row_stride, column_stride }
    };
    let (a, b) = (operand(&a, m, k, transposed[0]), operand(&b, k, n, transposed[1]));
    let c = Output { data: c.as_mut_ptr().cast(), dtype: result, row_stride: n as isize, column_stride: 1 };
    let call = || {
        // SAFETY: the vectors hold the matrices.
        let result = unsafe { gemm(m, n, k, &[BatchItem::default()], &a, &b, &c, None) };
        assert!(result.is_ok(), "{result:?}");
    };
    (0..3).for_each(|_| call());
    let mut times = Vec::new();
    let end = Instant::now() + Duration::from_millis(300);
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
