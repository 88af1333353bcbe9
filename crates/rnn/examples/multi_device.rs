//! Training on all GPUs of the machine, or in two workers on the CPU. Says how the gradients travelled.
//! `cargo run --release -p rnn --example multi_device`

use neurenix::phynexus::schedule::placement::observe;
use rnn::{
    ActivationFunction, Array2, DistributedTraining, GpuDeviceType, GpuManager, LayerBuilder, LossFunction,
    Network, TrainingConfig,
};

fn main() -> rnn::Result<()> {
    let data = Array2::from_shape_fn((256, 8), |(row, column)| ((row * 8 + column) as f64 * 0.37).sin());
    let labels = Array2::from_shape_fn((256, 2), |(row, class)| {
        f64::from(u8::from((data[[row, 0]] > 0.0) == (class == 0)))
    });
    let network = Network::with_input_size(8)?
        .add_layer(LayerBuilder::dense(32).activation(ActivationFunction::ReLU))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Softmax))
        .loss(LossFunction::CategoricalCrossEntropy)
        .device("cpu")
        .seed(1)
        .build()?;
    let manager = GpuManager::new();
    let gpus: Vec<_> = manager
        .devices()
        .iter()
        .filter(|device| device.device_type != GpuDeviceType::Generic && !device.is_emulated)
        .collect();
    let trainer = match gpus.len() {
        0 | 1 => DistributedTraining::with_cpu_workers(2)?,
        _ => DistributedTraining::new(gpus)?,
    };
    println!("on {:?}", trainer.devices());
    let family = trainer.devices()[0].split(':').next().unwrap_or_default().to_owned();
    let config = TrainingConfig { max_epochs: 20, seed: Some(1), ..TrainingConfig::default() };
    let trainer = trainer.with_config(config);
    // The first worker trains on this thread. What its device leaves to the CPU is observed.
    let (history, placed) = observe(|| trainer.train(&network, &data, &labels));
    let history = history?;
    assert!(history.train_loss.last() < history.train_loss.first());
    match placed.iter().find(|placement| placement.step == "all_reduce") {
        Some(placement) => println!("gradients went through the host: {}", placement.reason),
        None => match family.as_str() {
            "cuda" => println!("gradients went by NCCL"),
            "hip" => println!("gradients went by RCCL"),
            _ => println!("gradients went through memory of the host"),
        },
    }
    let steps = history.steps as f64;
    println!(
        "{:.3} ms a step",
        history.epoch_times.iter().sum::<std::time::Duration>().as_secs_f64() * 1e3 / steps
    );
    Ok(())
}
