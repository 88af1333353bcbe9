//! Batch normalisation in training runs: rows that are left over, workers, precision, dropout.

use rnn::{
    ActivationFunction, Array2, DistributedTraining, LayerBuilder, Network, NetworkBuilder, Optimizer,
    RegularizationConfig, Result, TrainingConfig,
};

fn rows(count: usize) -> (Array2<f64>, Array2<f64>) {
    let x = Array2::from_shape_fn((count, 3), |(i, j)| ((i * 3 + j) as f64 * 0.7).sin() + 100.0);
    let y = Array2::from_shape_fn((count, 2), |(i, j)| ((i * 2 + j) as f64 * 1.3).cos());
    (x, y)
}

fn normalised(layer: LayerBuilder) -> Result<NetworkBuilder> {
    Ok(Network::with_input_size(3)?
        .add_layer(layer)
        .add_layer(LayerBuilder::dense(4).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .optimizer(Optimizer::sgd(0.01)?)
        .device("cpu")
        .seed(5))
}

fn base() -> TrainingConfig {
    TrainingConfig {
        max_epochs: 2,
        seed: Some(1),
        verbose: false,
        validation_split: 0.0,
        early_stopping_patience: None,
        ..TrainingConfig::default()
    }
}

#[test]
fn a_last_row_joins_the_batch_before() -> Result<()> {
    let (x, y) = rows(33);
    let mut network = normalised(LayerBuilder::batch_norm())?.build()?;
    // Of 33 rows, batches of 32 and 1.
    let history = network.train(&x, &y, &base())?;
    assert_eq!((history.epochs(), history.steps), (2, 2));
    let small = TrainingConfig { batch_size: 4, ..base() };
    assert_eq!(network.train(&x, &y, &small)?.steps, 2 * 8);
    // With the usual split of 41 rows, 33 are left.
    let (x, y) = rows(41);
    let split = TrainingConfig { validation_split: 0.2, ..base() };
    assert_eq!(network.train(&x, &y, &split)?.epochs(), 2);
    // Without a normalisation, and with a frozen one, a row stays a batch.
    let (x, y) = rows(33);
    for layer in [LayerBuilder::layer_norm(), LayerBuilder::batch_norm().trainable(false)] {
        assert_eq!(normalised(layer)?.build()?.train(&x, &y, &base())?.steps, 4);
    }
    Ok(())
}

#[test]
fn workers_have_two_rows_at_least() -> Result<()> {
    let inside = LayerBuilder::residual(vec![LayerBuilder::batch_norm()]);
    for layer in [LayerBuilder::batch_norm(), inside] {
        for count in [7, 4, 3, 2] {
            let (x, y) = rows(count);
            let network = normalised(layer.clone())?.build()?;
            let workers = DistributedTraining::with_cpu_workers(3)?.with_config(base());
            assert_eq!(workers.train(&network, &x, &y)?.steps, 2, "{count} rows");
        }
    }
    Ok(())
}

#[test]
fn one_row_at_a_time_is_refused_before_anything_changes() -> Result<()> {
    let (x, y) = rows(8);
    let mut network = normalised(LayerBuilder::batch_norm())?.build()?;
    let before = network.get_weights()?;
    let config = TrainingConfig { batch_size: 1, ..base() };
    let error = network.train(&x, &y, &config).expect_err("it must be refused").to_string();
    assert!(error.contains("batch_size"), "{error}");
    assert!(network.train(&rows(1).0, &rows(1).1, &base()).is_err());
    assert_eq!(network.get_weights()?, before);
    // Of a sequence, steps are values too.
    let mut steps = Network::with_input_shape(&[3, 1])?
        .add_layer(LayerBuilder::batch_norm())
        .add_layer(LayerBuilder::rnn(2))
        .device("cpu")
        .seed(5)
        .build()?;
    assert_eq!(steps.train(&x, &y, &config)?.steps, 16);
    Ok(())
}

#[test]
fn mixed_precision_keeps_exact_statistics() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let statistics = |mixed_precision: bool| -> Result<Vec<f64>> {
        let mut network = normalised(LayerBuilder::batch_norm())?.build()?;
        // Numbers that bfloat16 holds, so that the statistics of batches are the same.
        let x = Array2::from_shape_fn((32, 3), |(i, j)| ((i * 7 + j * 5) % 32) as f64 / 4.0 - 3.25);
        let config = TrainingConfig { batch_size: 8, max_epochs: 3, mixed_precision, ..base() };
        network.train(&x, &rows(32).1, &config)?;
        let path = folder.path().join("network");
        network.save(&path)?;
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let values = |name: &str| -> Vec<f64> {
            serde_json::from_value(file["tensors"][name]["values"].clone()).unwrap()
        };
        Ok([values("0.running_mean"), values("0.running_var")].concat())
    };
    let (exact, mixed) = (statistics(false)?, statistics(true)?);
    assert_eq!(exact.len(), 6);
    let near = exact.iter().zip(&mixed).all(|(a, b)| (a - b).abs() <= 1e-5 * (1.0 + a.abs()));
    assert!(near, "{mixed:?} is not {exact:?}");
    Ok(())
}

#[test]
fn dropout_comes_once_and_after_the_normalisation() -> Result<()> {
    const UNITS: usize = 400;
    let linear = |units| LayerBuilder::dense(units).activation(ActivationFunction::Linear);
    let build = |between: Option<LayerBuilder>| -> Result<Network> {
        let builder = Network::with_input_size(3)?.add_layer(linear(UNITS));
        let builder = between.into_iter().fold(builder, NetworkBuilder::add_layer);
        builder.add_layer(linear(1)).optimizer(Optimizer::sgd(0.1)?).device("cpu").seed(5).build()
    };
    let activation = LayerBuilder::activation_layer(ActivationFunction::PReLU);
    for (between, layer_norm) in
        [(None, true), (Some(LayerBuilder::layer_norm()), false), (Some(activation), false)]
    {
        let has_norm =
            layer_norm || between.as_ref().is_some_and(|layer| *layer == LayerBuilder::layer_norm());
        let mut network = build(between)?;
        let first = network.get_weights()?[0].clone();
        let dropout_rate = Some(0.5);
        let regularization =
            RegularizationConfig { dropout_rate, layer_norm, ..RegularizationConfig::default() };
        let config = TrainingConfig { max_epochs: 1, regularization, ..base() };
        let mut weights = network.get_weights()?;
        let place = weights.len() - 2;
        weights[place] = Array2::from_elem((1, UNITS), 0.01);
        network.set_weights(&weights)?;
        network.train(&Array2::from_elem((1, 3), 0.7), &Array2::from_elem((1, 1), 2.0), &config)?;
        let after = network.get_weights()?;
        // Half of the units fed nothing to the last layer.
        let kept = after[after.len() - 2].iter().filter(|weight| **weight != f64::from(0.01f32)).count();
        assert!((UNITS * 2 / 5..UNITS * 3 / 5).contains(&kept), "{kept}");
        // None was dropped before the normalisation, which all of them go into.
        let moved = (0..UNITS).filter(|unit| first.row(*unit) != after[0].row(*unit)).count();
        assert!(!has_norm || moved > UNITS * 9 / 10, "{moved}");
    }
    Ok(())
}
