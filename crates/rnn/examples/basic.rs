//! A network learns exclusive or. `cargo run --release -p rnn --example basic`

use rnn::{ActivationFunction, Array2, LayerBuilder, LossFunction, Network, Optimizer, TrainingConfig};

fn main() -> rnn::Result<()> {
    let inputs =
        Array2::from_shape_vec((4, 2), vec![0., 0., 0., 1., 1., 0., 1., 1.]).expect("four rows of two");
    let targets = Array2::from_shape_vec((4, 1), vec![0., 1., 1., 0.]).expect("four rows of one");
    let mut network = Network::with_input_size(2)?
        .add_layer(LayerBuilder::dense(16).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(1).activation(ActivationFunction::Sigmoid))
        .loss(LossFunction::BinaryCrossEntropy)
        .optimizer(Optimizer::adam(0.05)?)
        .seed(1)
        .build()?;
    let config = TrainingConfig {
        max_epochs: 200,
        validation_split: 0.0,
        verbose: false,
        ..TrainingConfig::default()
    };
    let history = network.train(&inputs, &targets, &config)?;
    println!("{}", network.summary());
    println!("on {}: loss {:?}", history.device, history.train_loss.last());
    let outputs = network.predict(&inputs)?;
    println!("{outputs:.3}");
    assert!(outputs.iter().zip(&targets).all(|(output, target)| (output - target).abs() < 0.2));
    Ok(())
}
