//! Fused kernels against an interpreter without tiles.

mod aliasing;
mod kernels;
mod random;
mod reference;

use phynexus::{DType, Scalar, dtype::scalar_bytes, kernel::fused::Fusion};

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
        bytes.chunks_exact(self.dtype.size()).take(self.len).map(|b| read(self.dtype, b)).collect()
    }

    fn pointer(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

fn read(dtype: DType, bytes: &[u8]) -> Scalar {
    use half::{bf16, f16};
    use phynexus::Element;
    macro_rules! read {
        ($t:ty) => {
            <$t>::read_bytes(bytes)[0].to_scalar()
        };
    }
    match dtype {
        DType::Bool => read!(bool),
        DType::U8 => read!(u8),
        DType::U16 => read!(u16),
        DType::U32 => read!(u32),
        DType::U64 => read!(u64),
        DType::I8 => read!(i8),
        DType::I16 => read!(i16),
        DType::I32 => read!(i32),
        DType::I64 => read!(i64),
        DType::F16 => read!(f16),
        DType::BF16 => read!(bf16),
        DType::F32 => read!(f32),
        DType::F64 => read!(f64),
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
