//! Several workers measure, stop and write files as one device does.

use std::time::Duration;

use rnn::{
    ActivationFunction, DistributedTraining, LayerBuilder, LearningRateSchedule, Network, Optimizer,
    Precision, Result, TrainingConfig,
};

use super::configuration::{base, data};

fn network() -> Result<Network> {
    Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(8).activation(ActivationFunction::Tanh))
        // It keeps all, but each worker's copy has another seed.
        .add_layer(LayerBuilder::dropout(0.0)?.seed(3))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .optimizer(Optimizer::adam(0.1)?)
        .precision(Precision::Float64)
        .device("cpu")
        .seed(5)
        .build()
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let near = found.iter().zip(expected).all(|(f, e)| (f - e).abs() <= 1e-9 * (1.0 + e.abs()));
    assert!(near, "{what}: {found:?} is not {expected:?}");
}

fn weights(network: &Network) -> Result<Vec<f64>> {
    Ok(network.get_weights()?.iter().flatten().copied().collect())
}

#[test]
fn a_run_of_workers_ends_and_is_kept_as_that_of_one_device() -> Result<()> {
    let (x, y) = data();
    let folder = tempfile::tempdir().unwrap();
    let config = |name: &str| TrainingConfig {
        max_epochs: 40,
        // Batches of 8 rows, and one of 6.
        validation_split: 0.25,
        early_stopping_patience: Some(3),
        early_stopping_min_delta: 0.01,
        lr_schedule: Some(LearningRateSchedule::ReduceOnPlateau { factor: 0.5, patience: 0, min_lr: 1e-6 }),
        metrics: vec!["mae".to_owned(), "r2".to_owned()],
        checkpoint_frequency: Some(1),
        checkpoint_folder: folder.path().join(name),
        ..base()
    };
    let mut alone = network()?;
    let expected = alone.train(&x, &y, &config("alone"))?;
    // It stops early, after a plateau, and not with the weights of its last epoch.
    let rates = &expected.learning_rate;
    assert!(expected.epochs() < 40 && expected.best_epoch != Some(expected.epochs() - 1), "{expected:?}");
    assert!(rates[rates.len() - 1] < rates[0], "{rates:?}");
    let last = format!("epoch-{:04}.safetensors", expected.epochs());
    for workers in [1, 2, 3, 9] {
        let (together, name) = (network()?, workers.to_string());
        let trainer = DistributedTraining::with_cpu_workers(workers)?.with_config(config(&name));
        let found = trainer.train(&together, &x, &y)?;
        assert_eq!(found.device, vec!["cpu"; workers].join(", "));
        let counts = |history: &rnn::TrainingHistory| (history.epochs(), history.steps, history.best_epoch);
        assert_eq!(counts(&found), counts(&expected), "{workers} workers");
        close(&found.train_loss, &expected.train_loss, "losses");
        close(&found.val_loss, &expected.val_loss, "validation losses");
        close(&found.learning_rate, &expected.learning_rate, "learning rates");
        for metric in ["mae", "r2"] {
            close(&found.train_metrics[metric], &expected.train_metrics[metric], metric);
            close(&found.val_metrics[metric], &expected.val_metrics[metric], metric);
        }
        close(&weights(&together)?, &weights(&alone)?, "the best weights");
        let load = |name: &str| Network::load_safetensors(folder.path().join(name).join(&last));
        let (kept, one) = (load(&name)?, load("alone")?);
        close(&weights(&kept)?, &weights(&one)?, "the last checkpoint");
        assert_eq!(format!("{:?}", kept.layers()), format!("{:?}", one.layers()));
        let steps = |network: &Network| network.history().steps;
        assert_eq!((steps(&kept), kept.history().epochs()), (steps(&one), expected.epochs()));
    }
    Ok(())
}

#[test]
fn all_workers_stop_in_time() -> Result<()> {
    let (x, y) = data();
    let config = TrainingConfig { max_training_time: Some(Duration::ZERO), ..base() };
    let history = DistributedTraining::with_cpu_workers(3)?.with_config(config).train(&network()?, &x, &y)?;
    assert_eq!((history.steps, history.epochs()), (1, 1));
    Ok(())
}
