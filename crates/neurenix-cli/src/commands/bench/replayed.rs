//! A training step that is captured once and then replayed: see docs/lazy-evaluation.md.

use neurenix::{
    Error, Result,
    phynexus::{Device, Tensor, schedule::capture::Captured},
};

use super::workloads::{Step, Workload, labels, random, workload};

const WIDTHS: [usize; 4] = [784, 512, 256, 10];
/// Number of weight matrices and biases.
const PARAMETERS: usize = 2 * (WIDTHS.len() - 1);
/// Adam's settings: PyTorch's defaults.
const RATE: f64 = 1e-3;
const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;

pub(super) fn all() -> Vec<Workload> {
    let step =
        |batch| workload(format!("MLP Adam step, batch {batch}, replayed"), move |d| replayed(batch, d));
    [64, 128, 1024].map(step).into()
}

fn replayed(batch: usize, device: Device) -> Result<Step> {
    let captured = Captured::new(adam_step);
    // Parameters, first moments, second moments and the step count.
    let mut state: Vec<Tensor> = Vec::new();
    for widths in WIDTHS.windows(2) {
        let scale = 1.0 / (widths[0] as f64).sqrt();
        state.push(random(&[widths[1], widths[0]], device)?.mul_scalar(scale)?.evaluated()?);
        state.push(random(&[widths[1]], device)?.mul_scalar(scale)?.evaluated()?);
    }
    for at in 0..2 * PARAMETERS {
        state.push(state[at % PARAMETERS].zeros_like()?.evaluated()?);
    }
    state.push(Tensor::scalar(0f32, device)?);
    let inputs = [random(&[batch, WIDTHS[0]], device)?, labels(10, batch, device)?];
    Ok(Box::new(move || {
        let mut results = captured.call(&mut state, &inputs)?;
        results.pop();
        state = results;
        Ok(())
    }))
}

/// Forward, backward and update. Returns the new value of each tensor in `given`, followed by the loss.
fn adam_step(given: &[Tensor], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let parameters = given[..PARAMETERS].iter().map(Tensor::with_grad);
    let parameters: Vec<Tensor> = parameters.collect::<neurenix::phynexus::Result<_>>()?;
    let mut x = inputs[0].clone();
    for (layer, pair) in parameters.chunks(2).enumerate() {
        x = x.matmul(&pair[0].t()?)?.add(&pair[1])?;
        x = if layer + 2 < WIDTHS.len() { x.relu()? } else { x };
    }
    let loss = x.cross_entropy(&inputs[1], None, 0.0)?;
    let mut gradients = loss.leaf_gradients()?;
    let step = given[3 * PARAMETERS].add_scalar(1.0)?;
    // 1 - beta^step
    let corrected =
        |beta: f64| -> Result<Tensor> { Ok(step.mul_scalar(beta.ln())?.exp()?.rsub_scalar(1.0)?) };
    let [rate, scale] = [corrected(BETAS[0])?.rdiv_scalar(RATE)?, corrected(BETAS[1])?.rsqrt()?];
    let mean = |old: &Tensor, new: &Tensor, beta: f64| -> Result<Tensor> {
        Ok(old.mul_scalar(beta)?.add(&new.mul_scalar(1.0 - beta)?)?)
    };
    let mut updated: [Vec<Tensor>; 3] = Default::default();
    for (at, parameter) in parameters.iter().enumerate() {
        let Some(g) = gradients.take(parameter) else {
            return Err(Error::data("benchmark", "a parameter has no gradient"));
        };
        let first = mean(&given[PARAMETERS + at], &g, BETAS[0])?;
        let second = mean(&given[2 * PARAMETERS + at], &g.mul(&g)?, BETAS[1])?;
        let root = second.sqrt()?.mul(&scale)?.add_scalar(EPSILON)?;
        updated[0].push(given[at].sub(&first.mul(&rate)?.div(&root)?)?);
        updated[1].push(first);
        updated[2].push(second);
    }
    Ok(updated.into_iter().flatten().chain([step, loss.detach()?]).collect())
}
