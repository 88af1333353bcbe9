//! Loop trees: the checker, and the interpreter's results against plain computations.

mod bulk;
mod checks;
mod grid_barriers;
mod kernels;

use phynexus::oracle::interpret::interpret;
use phynexus::{
    DType, Scalar,
    kernel::{
        check::{Limits, check},
        loops::{Kernel, MatrixUnit},
        print::{Language, print},
    },
};

/// A language without matrix fragments.
static PLAIN: Language = Language::CPP;

/// A device with every feature that these kernels use, such as an H200.
fn limits() -> Limits {
    Limits {
        device: "test".to_owned(),
        bindings: 8,
        shared_bytes: 48 << 10,
        block: [1024, 1024, 64],
        block_size: 1024,
        grid: [65535; 3],
        subgroup: Some(32),
        dtypes: DType::ALL.to_vec(),
        matrices: vec![MatrixUnit::new(kernels::MATRIX, DType::F16, DType::F32)],
        quads: true,
        async_copies: true,
        meeting_groups: 64,
    }
}

/// Runs a kernel on these inputs and returns the last buffer.
fn run(kernel: &Kernel, inputs: &[Vec<f64>], scalars: &[Scalar]) -> Vec<f64> {
    let mut buffers: Vec<Vec<Scalar>> = kernel
        .buffers
        .iter()
        .enumerate()
        .map(|(i, b)| match inputs.get(i) {
            Some(input) => input.iter().map(|&x| Scalar::Float(x).cast(b.dtype)).collect(),
            None => vec![Scalar::Float(f64::NAN).cast(b.dtype); b.length],
        })
        .collect();
    interpret(kernel, 32, &mut buffers, scalars).unwrap();
    buffers.last().unwrap().iter().map(|s| s.as_f64()).collect()
}

/// Numbers from -2 to 2 that float16 represents exactly.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i + 7 * seed) * 37 % 257) as f64 / 64.0 - 2.0).collect()
}

fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), expected.len());
    for (i, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * (1.0 + e.abs()), "element {i}: {a}, expected {e}");
    }
}

#[test]
fn elementwise_with_a_tail() {
    check(&kernels::elementwise(1003), &limits()).unwrap();
    for n in [1, 4, 255, 256, 1003] {
        let (a, b, c) = (numbers(n, 1), numbers(n, 2), numbers(n, 3));
        let actual = run(&kernels::elementwise(n), &[a.clone(), b.clone(), c.clone()], &[]);
        // The error function by Simpson's rule, independent of the interpreter's definition.
        let erf = |x: f64| {
            let steps = 400;
            let at = |i: usize| (-(x * i as f64 / f64::from(steps)).powi(2)).exp();
            let weight = |i: usize| [2.0, 4.0][i % 2];
            let inner: f64 = (1..steps as usize).map(|i| weight(i) * at(i)).sum();
            (at(0) + inner + at(steps as usize)) * x / f64::from(steps) / 3.0
                * std::f64::consts::FRAC_2_SQRT_PI
        };
        let gelu = |x: f64| 0.5 * x * (1.0 + erf(x / 2f64.sqrt()));
        let expected: Vec<f64> = (0..n).map(|i| gelu(a[i] * b[i] + c[i])).collect();
        assert_close(&actual, &expected, 1e-3);
    }
}

#[test]
fn softmax_of_rows() {
    check(&kernels::softmax(3, 1000), &limits()).unwrap();
    for (rows, columns) in [(3, 1000), (2, 64), (4, 5), (1, 1)] {
        let x = numbers(rows * columns, 1);
        let actual = run(&kernels::softmax(rows, columns), std::slice::from_ref(&x), &[]);
        let expected: Vec<f64> = x
            .chunks(columns)
            .flat_map(|row| {
                let total: f64 = row.iter().map(|x| x.exp()).sum();
                row.iter().map(move |x| x.exp() / total)
            })
            .collect();
        assert_close(&actual, &expected, 1e-6);
    }
}

#[test]
fn matmul_with_bias_and_relu() {
    check(&kernels::matmul(50, 70, 20), &limits()).unwrap();
    for (m, n, k) in [(50, 70, 20), (32, 32, 8), (1, 33, 9)] {
        let (a, w, bias) = (numbers(m * k, 1), numbers(k * n, 2), numbers(n, 3));
        let actual = run(&kernels::matmul(m, n, k), &[a.clone(), w.clone(), bias.clone()], &[]);
        let sum = |i: usize| (0..k).map(|d| a[i / n * k + d] * w[d * n + i % n]).sum::<f64>() + bias[i % n];
        let expected: Vec<f64> = (0..m * n).map(|i| sum(i).max(0.0)).collect();
        assert_close(&actual, &expected, 1e-6);
    }
}

#[test]
fn matmul_with_fragments() {
    check(&kernels::matrix_multiply(128, 64, 32), &limits()).unwrap();
    let error = print(&kernels::matrix_multiply(128, 64, 32), &PLAIN).unwrap_err().to_string();
    assert_eq!(error, "C++: C++ has no matrix fragments, which kernel matmul_fragments uses");
    let (m, n, k) = (128, 64, 32);
    let (a, w) = (numbers(m * k, 1), numbers(k * n, 2));
    let actual = run(&kernels::matrix_multiply(m, n, k), &[a.clone(), w.clone()], &[]);
    let sum = |i: usize| (0..k).map(|d| a[i / n * k + d] * w[d * n + i % n]).sum::<f64>();
    assert_close(&actual, &(0..m * n).map(sum).collect::<Vec<f64>>(), 1e-6);
}

#[test]
fn sums_of_rows_through_subgroups() {
    check(&kernels::row_sum(5, 300), &limits()).unwrap();
    let x: Vec<f64> = (0..1500).map(|i| f64::from(i * 31 % 101 - 50)).collect();
    let actual = run(&kernels::row_sum(5, 300), std::slice::from_ref(&x), &[Scalar::Float(0.5)]);
    let expected: Vec<f64> = x.chunks(300).map(|row| row.iter().sum::<f64>() / 2.0).collect();
    assert_eq!(actual, expected);
}

#[test]
fn rows_by_indices_out_of_range() {
    let (n, count, width) = (50, 7, 20);
    let kernel = kernels::gather_rows(n, count, width);
    check(&kernel, &limits()).unwrap();
    let table = numbers(count * width, 1);
    let indices: Vec<f64> = (0..n).map(|i| (i * 5 % 13) as f64 - 3.0).collect();
    let actual = run(&kernel, &[table.clone(), indices.clone()], &[]);
    let row = |i: usize| indices[i].clamp(0.0, count as f64 - 1.0) as usize;
    let expected: Vec<f64> = (0..n * width).map(|i| table[row(i / width) * width + i % width]).collect();
    assert_eq!(actual, expected);
}
