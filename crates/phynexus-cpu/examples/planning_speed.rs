//! Planning time in milliseconds of the first training step of manually unrolled LSTM cells, for several lengths:
//! `cargo run --release -p phynexus-cpu --example planning_speed [length ..]`.

use std::time::Instant;

use phynexus::{DType, Device, Result, Tensor};

const BATCH: usize = 4;
const HIDDEN: usize = 8;

/// The loss of the last state, and its gradients for the input weights, the state weights and the bias.
fn step(weights: &[Tensor; 3], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let device = inputs[0].device();
    let mut state = Tensor::zeros(&[BATCH, HIDDEN], DType::F64, device)?;
    let mut cell = state.clone();
    for x in inputs {
        let gates = x.matmul(&weights[0])?.add(&state.matmul(&weights[1])?)?.add(&weights[2])?;
        let gate = |i: usize| gates.narrow(1, i * HIDDEN, HIDDEN);
        let (input, forget, output) = (gate(0)?.sigmoid()?, gate(1)?.sigmoid()?, gate(3)?.sigmoid()?);
        cell = forget.mul(&cell)?.add(&input.mul(&gate(2)?.tanh()?)?)?;
        state = output.mul(&cell.tanh()?)?;
    }
    let loss = state.square()?.mean(&[], false)?;
    let mut gradients = loss.leaf_gradients()?;
    Ok(weights.iter().filter_map(|weight| gradients.take(weight)).chain([loss.detach()?]).collect())
}

fn main() -> Result<()> {
    phynexus_cpu::register();
    let device = Device::find("cpu")?;
    let random = |shape: &[usize]| Tensor::randn(shape, DType::F64, device)?.evaluated();
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|length| length.parse().ok()).collect();
    let lengths = if asked.is_empty() { vec![25, 50, 100, 200, 299] } else { asked };
    for length in lengths {
        let weights = [
            random(&[HIDDEN, 4 * HIDDEN])?.with_grad()?,
            random(&[HIDDEN, 4 * HIDDEN])?.with_grad()?,
            random(&[4 * HIDDEN])?.with_grad()?,
        ];
        let inputs: Vec<Tensor> = (0..length).map(|_| random(&[BATCH, HIDDEN])).collect::<Result<_>>()?;
        let mut times = [0.0; 2];
        for time in &mut times {
            let begin = Instant::now();
            let results = step(&weights, &inputs)?;
            Tensor::evaluate_all(&results.iter().collect::<Vec<_>>())?;
            *time = begin.elapsed().as_secs_f64() * 1e3;
        }
        println!("{length:4} cells: the first step {:8.2} ms, the second {:8.2} ms", times[0], times[1]);
    }
    Ok(())
}
