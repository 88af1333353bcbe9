//! A network learns to read 1797 handwritten digits, is saved, and read again.
//! `cargo run --release -p rnn --example digits_network`

use neurenix::{data::digits, phynexus::DType};
use rnn::{ActivationFunction, Array2, LayerBuilder, LossFunction, Network, TrainingConfig};

fn main() -> rnn::Result<()> {
    let (inputs, labels) = load()?;
    let mut network = Network::with_input_shape(&[1, 8, 8])?
        .add_layer(LayerBuilder::conv2d(16, (3, 3)).padding(1).activation(ActivationFunction::ReLU))
        .add_layer(LayerBuilder::max_pool2d((2, 2)))
        .add_layer(LayerBuilder::dense(64).activation(ActivationFunction::ReLU))
        .add_layer(LayerBuilder::dropout(0.2)?)
        .add_layer(LayerBuilder::dense(10).activation(ActivationFunction::Softmax))
        .loss(LossFunction::CategoricalCrossEntropy)
        .seed(1)
        .build()?;
    let config =
        TrainingConfig { max_epochs: 10, batch_size: 64, seed: Some(1), ..TrainingConfig::default() };
    let history = network.train(&inputs, &labels, &config)?;
    let accuracy = history.val_metrics["accuracy"].last().copied().unwrap_or(0.0);
    assert!(accuracy > 0.85, "{accuracy}");

    let path = std::env::temp_dir().join(format!("digits-{}.safetensors", std::process::id()));
    network.save_safetensors(&path)?;
    let read = Network::load_safetensors(&path)?;
    assert_eq!(read.predict(&inputs)?, network.predict(&inputs)?);
    println!("saved to {}, and read again", path.display());
    Ok(())
}

/// Pictures as rows of 64 numbers, and for each a row with a 1 at its digit.
fn load() -> rnn::Result<(Array2<f64>, Array2<f64>)> {
    let digits = digits()?;
    let pictures = digits.stored_inputs().cast(DType::F64).to_vec::<f64>()?;
    let classes = digits.stored_targets().to_vec::<i64>()?;
    let inputs = Array2::from_shape_vec((classes.len(), 64), pictures);
    let inputs = inputs.map_err(|error| rnn::NetworkError::data(error.to_string()))?;
    let greatest = inputs.iter().copied().fold(1.0, f64::max);
    let labels = Array2::from_shape_fn((classes.len(), 10), |(row, digit)| {
        f64::from(u8::from(classes[row] == digit as i64))
    });
    Ok((inputs / greatest, labels))
}
