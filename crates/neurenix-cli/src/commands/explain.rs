//! `neurenix explain`: the kernels of a few well-known computations. Shows what is fused.

use clap::ValueEnum;
use neurenix::{
    Result,
    loss::Loss,
    nn::{Function, Linear, Module, Sequential},
    phynexus::{
        DType, Device, Tensor, schedule,
        tensor::{GeluApproximation, Generator, Reduction},
    },
};
use serde::Serialize;

use super::{
    bench::workloads::{Gpt, cnn},
    print_json, write_out,
};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Computation {
    /// softmax over the rows of a 1024 x 1000 matrix
    Softmax,
    /// layer normalisation of a 1024 x 768 matrix
    LayerNorm,
    /// gelu(a * b + c) * d over a million elements
    Gelu,
    /// gradients of the cross-entropy of a 784-512-10 network for 128 samples
    Mlp,
    /// gradients of a small convolutional network for 64 images of 3 x 32 x 32
    Cnn,
    /// gradients of a small GPT (4 layers, width 128) for 8 texts of 128 tokens
    Gpt,
}

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The computation
    computation: Computation,
    #[arg(long, help = super::DEVICE)]
    device: Option<String>,
    /// Print every fused kernel's instructions
    #[arg(long)]
    kernels: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Step {
    name: String,
    detail: String,
    device: String,
    inputs: usize,
    outputs: usize,
    bytes_read: usize,
    bytes_written: usize,
    operations: u64,
    notes: Vec<String>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let device = super::device(arguments.device.as_deref())?;
    let target = build(arguments.computation, device)?;
    let Some(plan) = schedule::explain(&target)? else {
        say!("nothing to compute")?;
        return Ok(super::SUCCESS);
    };
    if arguments.json {
        let steps: Vec<Step> = plan
            .summaries()
            .into_iter()
            .map(|s| Step {
                name: s.name,
                detail: s.detail,
                device: s.device,
                inputs: s.inputs,
                outputs: s.outputs,
                bytes_read: s.bytes_read,
                bytes_written: s.bytes_written,
                operations: s.operations,
                notes: s.notes,
            })
            .collect();
        print_json(&steps)?;
        return Ok(super::SUCCESS);
    }
    write_out(format_args!("{plan}"))?;
    if arguments.kernels {
        for (number, step) in plan.summaries().iter().enumerate() {
            if let Some(listing) = &step.listing {
                write_out(format_args!("\nkernel of step {}: {listing}", number + 1))?;
            }
        }
    }
    Ok(super::SUCCESS)
}

fn build(computation: Computation, device: Device) -> Result<Tensor> {
    let generator = Generator::new(0);
    let random = |shape: &[usize]| -> Result<Tensor> {
        let tensor = generator.randn(shape, DType::F32, device)?;
        tensor.evaluate()?;
        Ok(tensor)
    };
    let integers = |below: i64, shape: &[usize]| -> Result<Tensor> {
        let tensor = generator.randint(0, below, shape, DType::I64, device)?;
        tensor.evaluate()?;
        Ok(tensor)
    };
    Ok(match computation {
        Computation::Softmax => random(&[1024, 1000])?.softmax(-1)?,
        Computation::LayerNorm => random(&[1024, 768])?.layer_norm(&[768], None, None, 1e-5)?,
        Computation::Gelu => {
            let [a, b, c, d] = [(); 4].map(|()| random(&[1 << 20]));
            a?.mul(&b?)?.add(&c?)?.gelu(GeluApproximation::Tanh)?.mul(&d?)?
        }
        Computation::Mlp => {
            let model = Sequential::new()
                .with(Linear::new(784, 512, true, device, &generator)?)
                .with(Function::new("ReLU", Tensor::relu))
                .with(Linear::new(512, 10, true, device, &generator)?);
            gradients(&model, &random(&[128, 784])?, &integers(10, &[128])?)?
        }
        Computation::Cnn => {
            let images = random(&[64, 3, 32, 32])?;
            gradients(&cnn(device, &generator)?, &images, &integers(10, &[64])?)?
        }
        Computation::Gpt => {
            let tokens = integers(512, &[8, 128])?;
            gradients(&Gpt::new(device, &generator)?, &tokens, &integers(512, &[8 * 128])?)?
        }
    })
}

/// A scalar that depends on every gradient of the cross-entropy.
fn gradients(model: &dyn Module, inputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let loss = Loss::cross_entropy(0.0).forward(&model.forward(inputs)?, labels, Reduction::Mean)?;
    let gradients = loss.leaf_gradients()?;
    let mut total = loss.detach()?;
    for gradient in gradients.iter() {
        total = total.add(&gradient.mul(gradient)?.sum(&[], false)?)?;
    }
    Ok(total)
}
