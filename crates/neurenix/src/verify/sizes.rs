//! Programs whose sizes vary: kernels whose numbers are arguments give the results of kernels with the numbers built
//! in, bit for bit.

use phynexus::{
    DType, Device, Result, Tensor,
    tensor::{AttentionOptions, Generator},
};

use super::{execute::Outcome, tensors::Program};

/// Sizes for which kernels differ in numbers only, in two groups.
const SIZES: [usize; 8] = [5, 6, 7, 9, 11, 41, 43, 46];

macro_rules! programs {
    ($($name:literal: |$x:ident, $y:ident| $computation:expr;)+) => {
        /// Functions of two tensors of shape `[4, n, 6]`.
        pub(super) const PROGRAMS: &[Program] = &[$(Program {
            name: concat!("varying sizes: ", $name),
            run: |device| vary(device, |$x, $y| $computation),
        }),+];
    };
}

programs! {
    "elementwise": |x, y| x.mul(y)?.add_scalar(0.5)?.exp();
    "mean": |x, y| x.add(y)?.mean(&[1], false);
    "softmax": |x, _y| x.softmax(1);
    "layer norm": |x, _y| x.transpose(1, 2)?.layer_norm(&[x.shape()[1]], None, None, 1e-5);
    "product": |x, y| x.transpose(1, 2)?.matmul(y);
    "product of rows": |x, y| x.matmul(&y.transpose(1, 2)?);
    "attention": |x, y| x.scaled_dot_product_attention(y, y, None, AttentionOptions::default());
    "slice": |x, y| {
        let n = x.shape()[1];
        x.narrow(1, n / 3, n - n / 3)?.sum(&[1], false)?.add(&y.sum(&[1], false)?)
    };
    "concatenation": |x, y| Tensor::cat(&[x, y, x], 1)?.cumsum(1);
    "gather": |x, y| {
        let n = x.shape()[1] as i64;
        x.index_select(1, &Tensor::arange(0, n, 1, DType::I64, x.device())?.flip(&[0])?)?.sub(y)
    };
    "sort": |x, _y| Ok(x.sort(1, true)?.0);
    "greatest": |x, y| x.maximum(y)?.argmax(Some(1), false)?.to_dtype(DType::F32);
    "padding": |x, _y| x.pad(&[(0, 0), (2, 1), (0, 0)], 1.5)?.exp();
    "convolution": |x, y| {
        let weight = y.narrow(1, 0, 3)?.transpose(1, 2)?.narrow(0, 0, 2)?;
        x.transpose(1, 2)?.conv1d(&weight, None, [1], [1], [1], 1)
    };
    "pooling": |x, _y| x.transpose(1, 2)?.avg_pool1d([2], Some([1]), [0], false, true);
    "half precision": |x, y| {
        let [x, y] = [x.to_dtype(DType::F16)?, y.to_dtype(DType::F16)?];
        x.mul(&y)?.sum(&[1], false)?.to_dtype(DType::F32)
    };
}

fn vary(device: Device, computation: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Outcome> {
    let operands = |n: usize| {
        let g = Generator::new(n as u64);
        let made = || g.randn(&[4, n, 6], DType::F32, device)?.evaluated();
        Ok::<_, phynexus::Error>((made()?, made()?))
    };
    let mut results = Vec::new();
    for n in SIZES {
        let (x, y) = operands(n)?;
        results.push(computation(&x, &y)?.to_vec::<f32>()?);
    }
    let mut outcome = Outcome::default();
    for (at, (n, result)) in SIZES.into_iter().zip(results).enumerate() {
        let (x, y) = operands(n)?;
        let expected = computation(&x, &y)?;
        // With a chain of a different length each time, the graph is the first of its kind.
        let other = Tensor::from_slice(&[1.0f32], &[1], device)?;
        let other = (0..=at).try_fold(other, |other, _| other.exp())?;
        Tensor::evaluate_all(&[&expected, &other])?;
        let expected = expected.to_vec::<f32>()?;
        let differs = |(own, expected): (&f32, &f32)| own.to_bits() != expected.to_bits();
        outcome.compared += expected.len();
        if result.len() != expected.len() {
            outcome.failure = Some(format!("size {n}: {} elements, not {}", result.len(), expected.len()));
        } else if let Some(element) = result.iter().zip(&expected).position(differs) {
            let (own, expected) = (result[element], expected[element]);
            outcome.failure = Some(format!("size {n}: element {element} is {own}, not {expected}"));
        }
    }
    Ok(outcome)
}
