//! Fused kernels against an interpreter without tiles.

mod aliasing;
mod kernels;
mod random;
mod reference;

use phynexus::{
    DType, Scalar,
    dtype::{read_scalars, scalar_bytes},
    kernel::fused::Fusion,
};

use super::FusedKernel;

/// A parameter's memory.
#[derive(Clone, Debug, PartialEq)]
struct Data {
    dtype: DType,
    words: Vec<u64>,
    len: usize,
}

impl Data {
    fn new(dtype: DType, values: impl IntoIterator<Item = Scalar>) -> Data {
        let values: Vec<Scalar> = values.into_iter().collect();
        let bytes: Vec<u8> = values.iter().flat_map(|&v| scalar_bytes(v, dtype)).collect();
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        Data { dtype, words: words.collect(), len: values.len() }
    }

    fn floats(values: impl IntoIterator<Item = f32>) -> Data {
        Data::new(DType::F32, values.into_iter().map(|x| Scalar::Float(x.into())))
    }

    fn all(&self) -> Vec<Scalar> {
        let bytes: Vec<u8> = self.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        read_scalars(&bytes[..self.len * self.dtype.size()], self.dtype)
    }

    fn pointer(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

/// Runs a kernel on copies of the parameters. Parameter i uses the memory of parameter `alias[i]`.
fn run(kernel: &Fusion, data: &[Data], alias: &[usize]) -> Vec<Data> {
    let compiled = FusedKernel::new(kernel).unwrap();
    let mut data = data.to_vec();
    let own: Vec<*mut u8> = data.iter_mut().map(Data::pointer).collect();
    let pointers: Vec<*mut u8> = alias.iter().map(|&i| own[i]).collect();
    // SAFETY: the tests' indices stay within their data.
    unsafe { compiled.run(&pointers).unwrap() };
    // If nothing is updated in place, a second run gives the same result.
    if alias.iter().enumerate().all(|(i, &a)| i == a) {
        let first = data.clone();
        // SAFETY: as above.
        unsafe { compiled.run(&pointers).unwrap() };
        assert_eq!(first, data);
    }
    data
}

/// Runs with one thread and with two: the results must be bit-identical.
fn run_all(kernel: &Fusion, data: &[Data], alias: &[usize]) -> Vec<Data> {
    crate::pool::set_threads(1);
    let one = run(kernel, data, alias);
    crate::pool::set_threads(2);
    let two = run(kernel, data, alias);
    crate::pool::set_threads(0);
    assert_eq!(one, two, "results depend on the number of threads");
    two
}

/// Whether a result matches the interpreter's, up to a relative error for floats.
fn close(got: Scalar, want: Scalar, tolerance: f64) -> bool {
    match (got, want) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * b.abs().max(1.0)
        }
        _ => got == want,
    }
}
