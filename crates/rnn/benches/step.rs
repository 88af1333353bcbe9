//! The time from nothing to the first training step of the document's network (784-512-256-10, batches of 128), in processes of
//! its own. Then a training step by this crate, and the same step written with the framework's layers and optimiser, from the
//! same weights: times side by side in one run, and their ratio. On the CPU: `cargo bench -p rnn --no-default-features --bench
//! step`; on another device, with its feature: `cargo bench -p rnn --bench step -- vulkan:0`.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use neurenix::{
    data::HostArray,
    loss::Loss,
    nn::{Linear, Module, Sequential, activation},
    optim::{Optimizer as FrameworkOptimizer, Rule},
    phynexus::{
        Device, Tensor,
        tensor::{Generator, Reduction},
    },
};
use rnn::{
    ActivationFunction, Array2, LayerBuilder, LossFunction, Network, NetworkError, TrainingCallback,
    TrainingConfig, TrainingState,
};

const SIZES: [usize; 4] = [784, 512, 256, 10];
const BATCH: usize = 128;
/// Steps of a round, and rounds; each side's figure is the median of its rounds' means.
const STEPS: usize = 50;
const ROUNDS: usize = 15;
/// Processes that take a first step.
const PROCESSES: usize = 5;
/// The variable that says to this program that it is one of them.
const FIRST: &str = "RNN_BENCH_FIRST";

fn data(rows: usize) -> (Array2<f64>, Array2<f64>) {
    let inputs = Array2::from_shape_fn((rows, SIZES[0]), |(i, j)| ((i * 31 + j * 17) as f64 * 0.013).sin());
    let targets = Array2::from_shape_fn((rows, SIZES[3]), |(i, class)| f64::from(u8::from(class == i % 10)));
    (inputs, targets)
}

fn network(device: &str) -> rnn::Result<Network> {
    Network::with_input_size(SIZES[0])?
        .add_layer(LayerBuilder::dense(SIZES[1]).activation(ActivationFunction::ReLU))
        .add_layer(LayerBuilder::dense(SIZES[2]).activation(ActivationFunction::ReLU))
        .add_layer(LayerBuilder::dense(SIZES[3]).activation(ActivationFunction::Softmax))
        .loss(LossFunction::CategoricalCrossEntropy)
        .device(device)
        .seed(1)
        .build()
}

fn config() -> TrainingConfig {
    TrainingConfig {
        max_epochs: 1,
        batch_size: BATCH,
        validation_split: 0.0,
        shuffle: false,
        verbose: false,
        early_stopping_patience: None,
        ..TrainingConfig::default()
    }
}

/// From the beginning of the first batch to the end of the last.
#[derive(Default)]
struct Clock {
    begun: Option<Instant>,
    taken: Duration,
}

impl TrainingCallback for Clock {
    fn on_batch_begin(&mut self, _: usize, _: &TrainingState) {
        self.begun.get_or_insert_with(Instant::now);
    }
    fn on_batch_end(&mut self, _: usize, _: &mut TrainingState) {
        self.taken = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
    }
}

/// The framework's own step: what a program writes that measures loss and accuracy of each batch, as `rnn` does.
struct Framework {
    model: Sequential,
    optimizer: FrameworkOptimizer,
    device: Device,
}

impl Framework {
    /// With these weights, layer by layer, each layer's weight before its bias.
    fn new(weights: &[Array2<f64>], device: Device) -> neurenix::Result<Framework> {
        let generator = Generator::new(1);
        let mut model = Sequential::new();
        for (place, pair) in SIZES.windows(2).enumerate() {
            model = model.with(Linear::new(pair[0], pair[1], true, device, &generator)?);
            if place + 2 < SIZES.len() {
                model = model.with(activation::relu());
            }
        }
        for (parameter, weight) in model.parameters().iter().zip(weights) {
            let shape = parameter.tensor().shape().to_vec();
            parameter.set(Tensor::from_slice(&narrow(weight), &shape, device)?)?;
            parameter.leaf()?;
        }
        let optimizer = adam(&model)?;
        Ok(Framework { model, optimizer, device })
    }

    /// Forgets the optimiser's state, as a training run does that begins.
    fn begin(&mut self) -> neurenix::Result<()> {
        self.optimizer = adam(&self.model)?;
        Ok(())
    }

    /// A step over these rows: loss and predictions.
    fn step(
        &mut self,
        inputs: &HostArray,
        targets: &HostArray,
        rows: &[usize],
    ) -> neurenix::Result<(f64, Vec<f32>)> {
        let upload = |all: &HostArray| -> neurenix::Result<Tensor> {
            let part = all.take_rows(rows)?;
            Ok(Tensor::from_bytes(part.bytes(), part.dtype(), part.shape(), self.device)?)
        };
        let (inputs, targets) = (upload(inputs)?, upload(targets)?);
        let scores = self.model.forward(&inputs)?;
        let loss = Loss::cross_entropy(0.0).forward(&scores, &targets, Reduction::Mean)?;
        let predictions = scores.detach()?.softmax(-1)?;
        self.optimizer.step(loss.leaf_gradients()?, &[&loss, &predictions])?;
        Ok((f64::from(loss.item::<f32>()?), predictions.to_vec::<f32>()?))
    }
}

fn adam(model: &Sequential) -> neurenix::Result<FrameworkOptimizer> {
    FrameworkOptimizer::new(Rule::adam(), model.parameters(), 0.001)
}

fn narrow(array: &Array2<f64>) -> Vec<f32> {
    array.iter().map(|x| *x as f32).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Builds a network and takes its first step, before anything else has run; prints nanoseconds.
fn first_step(device: &str) -> rnn::Result<()> {
    let (inputs, targets) = data(BATCH);
    let begun = Instant::now();
    let mut first = network(device)?;
    let built = begun.elapsed();
    first.train(&inputs, &targets, &config())?;
    println!("{} {}", built.as_nanos(), begun.elapsed().as_nanos());
    Ok(())
}

/// The times of such a process until the network is built, and until its first step has ended.
fn first_times(device: &str) -> rnn::Result<(Duration, Duration)> {
    let failed = |what: String| NetworkError::computation(format!("a first step failed: {what}"));
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let output = Command::new(program).arg(device).env(FIRST, "1").output();
    let output = output.map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match times[..] {
        [built, stepped] => Ok((Duration::from_nanos(built), Duration::from_nanos(stepped))),
        _ => Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

fn main() -> rnn::Result<()> {
    // What cargo passes begins with dashes.
    let name = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or("cpu".to_owned());
    if std::env::var_os(FIRST).is_some() {
        return first_step(&name);
    }
    let firsts = (0..PROCESSES).map(|_| first_times(&name)).collect::<rnn::Result<Vec<_>>>()?;
    let (built, stepped): (Vec<Duration>, Vec<Duration>) = firsts.into_iter().unzip();
    let (built, stepped) = (milliseconds(median(built)), milliseconds(median(stepped)));
    println!("built in {built:.1} ms, first step after {stepped:.1} ms (medians of {PROCESSES} processes)");

    let (inputs, targets) = data(STEPS * BATCH);
    let mut ours = network(&name)?;
    println!("on {}", ours.device());
    let mut framework = Framework::new(&ours.get_weights()?, Device::find(&name)?)?;
    let host = |array: &Array2<f64>| HostArray::from_values(&[array.nrows(), array.ncols()], &narrow(array));
    let (host_inputs, host_targets) = (host(&inputs)?, host(&targets)?);
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let mut clock = Clock::default();
        let history =
            ours.train_with_callbacks(&inputs, &targets, None, None, &config(), &mut [&mut clock])?;
        framework.begin()?;
        let (begun, mut sum) = (Instant::now(), 0.0);
        for step in 0..STEPS {
            let rows: Vec<usize> = (step * BATCH..(step + 1) * BATCH).collect();
            sum += framework.step(&host_inputs, &host_targets, &rows)?.0;
        }
        let taken = begun.elapsed();
        // The first round plans and warms up, and shows that both do the same.
        if round > 0 {
            own.push(clock.taken / STEPS as u32);
            theirs.push(taken / STEPS as u32);
            continue;
        }
        let (a, b) = (history.train_loss[0], sum / STEPS as f64);
        println!("losses of the first round: rnn {a:.6}, framework {b:.6}");
        if (a - b).abs() > 1e-3 * a.abs() {
            return Err(NetworkError::computation("the two do not compute the same: times say nothing"));
        }
    }
    let (own, theirs) = (median(own), median(theirs));
    println!(
        "a step: rnn {:.3} ms, framework {:.3} ms, ratio {:.3}",
        milliseconds(own),
        milliseconds(theirs),
        own.as_secs_f64() / theirs.as_secs_f64()
    );
    Ok(())
}
