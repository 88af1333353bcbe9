//! Long training runs that check a device's memory: after the first steps it must not grow.

use std::{fmt, sync::Arc, time::Instant};

use phynexus::{
    Device, Tensor,
    device::{DeviceNature, MemoryStatistics},
    tensor::{Generator, Reading, Reduction},
    text::counted,
};

use crate::{
    Result,
    loss::Loss,
    nn::{Conv2d, ConvOptions, Dropout, Linear, MaxPool2d, Module, Sequential, activation},
    optim::{Optimizer, Rule},
};

/// The number of steps after which memory use must be constant.
const FIRST: usize = 10;
const BATCH: usize = 32;
const SIDE: usize = 8;
const CLASSES: usize = 10;

/// The result of training a network.
#[derive(Clone, Debug)]
pub struct Steady {
    /// The name of the network.
    pub network: &'static str,
    /// The number of steps.
    pub steps: usize,
    /// The device's memory after the first ten steps and at the end.
    pub memory: [MemoryStatistics; 2],
    /// The mean loss of the first ten steps and of the last ten.
    pub losses: [f32; 2],
    /// The seconds from the eleventh step to the last.
    pub seconds: f64,
    /// The first step in which memory exceeded that after ten steps.
    pub grown: Option<usize>,
}

impl Steady {
    /// True if memory did not grow and the loss decreased.
    pub fn passed(&self) -> bool {
        self.grown.is_none() && self.losses[1] < self.losses[0]
    }
}

impl fmt::Display for Steady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, last] = &self.memory;
        write!(
            f,
            "{}: {} in {:.2} s, loss {:.3} to {:.3}; allocated {} then {}, reserved {} then {}, pinned {} then {}: {}",
            self.network,
            counted(self.steps, "step"),
            self.seconds,
            self.losses[0],
            self.losses[1],
            first.allocated,
            last.allocated,
            first.reserved,
            last.reserved,
            first.pinned,
            last.pinned,
            match self.grown {
                None if self.passed() => "flat".to_owned(),
                None => "flat, but NOTHING LEARNED".to_owned(),
                Some(step) => format!("GROWN in step {step}"),
            }
        )
    }
}

/// Trains a perceptron and a convolutional network with dropout for `steps` steps each. Batches come from the host, and
/// a loss is read one step after it is computed.
pub fn steady(device: Device, steps: usize) -> Result<Vec<Steady>> {
    let generator = Arc::new(Generator::new(1));
    let dropout = || Ok::<_, crate::Error>(Dropout::new(0.2)?.with_generator(generator.clone()));
    let padded = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
    let perceptron = Sequential::new()
        .with(activation::flatten())
        .with(Linear::new(SIDE * SIDE, 128, true, device, &generator)?)
        .with(activation::relu())
        .with(dropout()?)
        .with(Linear::new(128, CLASSES, true, device, &generator)?);
    let convolutional = Sequential::new()
        .with(Conv2d::new(1, 8, [3, 3], padded, device, &generator)?)
        .with(activation::relu())
        .with(MaxPool2d::new([2, 2]))
        .with(dropout()?)
        .with(Conv2d::new(8, 16, [3, 3], padded, device, &generator)?)
        .with(activation::relu())
        .with(MaxPool2d::new([2, 2]))
        .with(activation::flatten())
        .with(Linear::new(16 * SIDE * SIDE / 16, CLASSES, true, device, &generator)?);
    Ok(vec![
        train("perceptron", &perceptron, device, steps)?,
        train("convolutional network", &convolutional, device, steps)?,
    ])
}

fn train(network: &'static str, model: &Sequential, device: Device, steps: usize) -> Result<Steady> {
    model.train(true);
    let mut optimizer = Optimizer::new(Rule::adam(), model.parameters(), 2e-3)?;
    let loss = Loss::cross_entropy(0.0);
    let mut losses = Vec::with_capacity(steps);
    let mut reading: Option<Reading<f32>> = None;
    let mut numbers = Numbers(1);
    let mut grown = None;
    let mut first = device.memory();
    let mut begun = Instant::now();
    for step in 1..=steps {
        let (inputs, labels) = numbers.batch();
        let inputs = Tensor::from_slice(&inputs, &[BATCH, 1, SIDE, SIDE], device)?;
        let labels = Tensor::from_slice(&labels, &[BATCH], device)?;
        let value = loss.forward(&model.forward(&inputs)?, &labels, Reduction::Mean)?;
        optimizer.step(value.leaf_gradients()?, &[&value])?;
        let next = value.to_vec_async()?;
        if let Some(reading) = reading.replace(next) {
            losses.extend(reading.wait()?);
        }
        let now = device.memory();
        if step <= FIRST {
            (first, begun) = (now, Instant::now());
        } else if grown.is_none() && is_more(device, &first, &now) {
            grown = Some(step);
        }
    }
    if let Some(reading) = reading {
        losses.extend(reading.wait()?);
    }
    device.synchronize()?;
    let seconds = begun.elapsed().as_secs_f64();
    let mean = |losses: &[f32]| losses.iter().sum::<f32>() / losses.len().max(1) as f32;
    let few = losses.len().min(FIRST);
    let losses = [mean(&losses[..few]), mean(&losses[losses.len() - few..])];
    Ok(Steady { network, steps, memory: [first, device.memory()], losses, seconds, grown })
}

/// Whether a device uses more memory than before. On the CPU, thread workspaces do not count: a thread allocates its
/// own when it first needs one.
fn is_more(device: Device, before: &MemoryStatistics, now: &MemoryStatistics) -> bool {
    let own = device.info().nature != DeviceNature::HostCpu;
    now.allocated > before.allocated
        || now.cached > before.cached
        || own && (now.reserved > before.reserved || now.pinned > before.pinned)
}

/// Pseudo-random numbers on the host (a linear congruential generator with Knuth's constants).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    /// Noise images in which one of the first ten pixels is bright; its position is the class.
    fn batch(&mut self) -> (Vec<f32>, Vec<i64>) {
        let mut inputs: Vec<f32> = (0..BATCH * SIDE * SIDE).map(|_| self.next()).collect();
        let labels: Vec<i64> = (0..BATCH).map(|_| ((self.next() * CLASSES as f32) as i64).min(9)).collect();
        for (image, &label) in inputs.chunks_mut(SIDE * SIDE).zip(&labels) {
            image[label as usize] += 2.0;
        }
        (inputs, labels)
    }
}
