//! Training on all GPUs of the machine, or in two workers on the CPU.
//! `cargo run --release -p rnn --example multi_device`

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
    let config = TrainingConfig { max_epochs: 20, seed: Some(1), ..TrainingConfig::default() };
    let history = trainer.with_config(config).train(&network, &data, &labels)?;
    assert!(history.train_loss.last() < history.train_loss.first());
    Ok(())
}
