//! What a network's calls do by themselves: rows forwards, copies, weights drawn again, files by their other names, gradients of
//! what is frozen.

use std::path::Path;

use rnn::{
    ActivationFunction, Array1, Array2, GpuManager, GpuTensor, LayerBuilder, LearningRateSchedule,
    MemoryLayout, Network, Optimizer, Precision, Result, TrainingConfig, TrainingHistory,
};

use super::{close, dense, dense_gradients, epochs, flat, linear, numbers};

/// A mean and the mean square of the distances to it, of a column.
fn moments(x: &Array2<f64>, column: usize) -> (f64, f64) {
    let mean = |of: &dyn Fn(f64) -> f64| {
        (0..x.nrows()).map(|row| of(x[[row, column]])).sum::<f64>() / x.nrows() as f64
    };
    let middle = mean(&|x| x);
    (middle, mean(&|x| (x - middle).powi(2)))
}

#[test]
fn one_row_is_a_row_of_many() -> Result<()> {
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(4).activation(ActivationFunction::Tanh))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .precision(Precision::Float64)
        .device("cpu")
        .build()?;
    let w = [numbers(4, 3, 1), numbers(1, 4, 2), numbers(2, 4, 3), numbers(1, 2, 4)];
    network.set_weights(&w)?;
    let x = numbers(5, 3, 5);
    let expected = dense(&dense(&x, &w[0], &w[1]).mapv(f64::tanh), &w[2], &w[3]);
    for (row, expected) in x.rows().into_iter().zip(expected.rows()) {
        let found: Array1<f64> = network.predict_one(&row.to_owned())?;
        close(&found.to_vec(), &expected.to_vec(), 1e-12, "a row");
    }
    close(&flat(&network.forward(&x, false)?), &flat(&expected), 1e-12, "all rows");
    assert!(network.predict_one(&Array1::zeros(2)).is_err());
    Ok(())
}

#[test]
fn rows_forwards_in_training_are_normalised_by_themselves() -> Result<()> {
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::batch_norm())
        .precision(Precision::Float64)
        .device("cpu")
        .build()?;
    let x = numbers(6, 3, 6).mapv(|x| 2.0 * x + 1.0);
    let moments: Vec<(f64, f64)> = (0..3).map(|column| moments(&x, column)).collect();
    let normal = |of: &dyn Fn((f64, f64)) -> (f64, f64)| {
        flat(&Array2::from_shape_fn((6, 3), |(row, column)| {
            let (mean, variance) = of(moments[column]);
            (x[[row, column]] - mean) / (variance + 1e-5).sqrt()
        }))
    };
    let begun = normal(&|_| (0.0, 1.0));
    close(&flat(&network.forward(&x, false)?), &begun, 1e-9, "before");
    let own = normal(&|moments| moments);
    close(&flat(&network.forward(&x, true)?), &own, 1e-9, "while training");
    // A tenth of the batch's mean and unbiased variance is in the running ones.
    let after = normal(&|(mean, variance)| (0.1 * mean, 0.9 + 0.1 * variance * 6.0 / 5.0));
    close(&flat(&network.forward(&x, false)?), &after, 1e-6, "afterwards");
    close(&flat(&network.predict(&x)?), &after, 1e-6, "predictions");
    Ok(())
}

#[test]
fn dropouts_drop_forwards_in_training_alone() -> Result<()> {
    let build = || {
        Network::with_input_size(1000)?.add_layer(LayerBuilder::dropout(0.25)?).device("cpu").seed(5).build()
    };
    let (mut network, ones) = (build()?, Array2::ones((2, 1000)));
    assert_eq!(network.forward(&ones, false)?, ones);
    let dropped = network.forward(&ones, true)?;
    assert!(dropped.iter().all(|x| *x == 0.0 || (x - 4.0 / 3.0).abs() < 1e-6));
    let zeros = dropped.iter().filter(|x| **x == 0.0).count();
    assert!((400..600).contains(&zeros), "{zeros} of 2000");
    assert_eq!(build()?.forward(&ones, true)?, dropped);
    assert_eq!(network.forward(&ones, false)?, ones);
    Ok(())
}

/// A normalisation and a layer, trained.
fn trained() -> Result<Network> {
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::batch_norm())
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear).name("last"))
        .name("small")
        .precision(Precision::Float64)
        .device("cpu")
        .seed(5)
        .build()?;
    network.train(&numbers(20, 3, 1).mapv(|x| x + 1.0), &numbers(20, 2, 2), &epochs(3))?;
    Ok(network)
}

/// Asserts that nothing but drawn weights is in such a network.
fn is_new(network: &Network) -> Result<()> {
    assert_eq!(network.history(), &TrainingHistory::default());
    let weights = network.get_weights()?;
    assert!(weights[0].iter().all(|scale| *scale == 1.0) && weights[1].iter().all(|shift| *shift == 0.0));
    // By Glorot and Bengio, of three inputs and two outputs.
    let bound = (6.0f64 / 5.0).sqrt();
    assert!(
        weights[2].iter().all(|weight| weight.abs() <= bound) && weights[3].iter().all(|bias| *bias == 0.0)
    );
    // The running mean is 0 and the running variance 1.
    let x = numbers(4, 3, 3);
    let expected = dense(&x.mapv(|x| x / 1.00001f64.sqrt()), &weights[2], &weights[3]);
    close(&flat(&network.predict(&x)?), &flat(&expected), 1e-9, "predictions of new weights");
    Ok(())
}

#[test]
fn architectures_are_copied_without_weights() -> Result<()> {
    let mut network = trained()?;
    network.freeze_layers(&[0])?;
    let before = network.get_weights()?;
    let mut copy = network.clone_architecture()?;
    assert_eq!(copy.summary(), network.summary());
    assert_ne!(copy.get_weights()?[2], before[2]);
    assert_ne!(copy.get_weights()?, network.clone_architecture()?.get_weights()?);
    is_new(&copy)?;
    // They change apart from each other, and what is frozen in one is in the other.
    let drawn = copy.get_weights()?;
    copy.train(&numbers(20, 3, 1), &numbers(20, 2, 2), &epochs(1))?;
    assert_eq!(copy.get_weights()?[..2], drawn[..2]);
    assert_ne!(copy.get_weights()?[2], drawn[2]);
    assert_eq!(network.get_weights()?, before);
    Ok(())
}

#[test]
fn weights_are_drawn_anew() -> Result<()> {
    let mut network = trained()?;
    let (before, summary) = (network.get_weights()?, network.summary());
    assert_eq!(network.history().epochs(), 3);
    network.reset_weights()?;
    assert_ne!(network.get_weights()?[2], before[2]);
    assert_eq!(network.summary(), summary);
    is_new(&network)
}

#[test]
fn exports_are_imported() -> Result<()> {
    type Export = fn(&Network, &Path) -> Result<()>;
    type Import = fn(&Path) -> Result<Network>;
    let formats: [(&str, Export, Import); 3] = [
        ("json", |network, path| network.export_json(path), |path| Network::import_json(path)),
        ("binary", |network, path| network.export_binary(path), |path| Network::import_binary(path)),
        ("weights", |network, path| network.export_weights(path), |path| Network::import_weights(path)),
    ];
    let mut network = linear(3, 2)?.precision(Precision::Float64).build()?;
    let weights = [numbers(2, 3, 1), numbers(1, 2, 2)];
    network.set_weights(&weights)?;
    let x = numbers(4, 3, 3);
    let folder = tempfile::tempdir().unwrap();
    for (name, export, import) in formats {
        let path = folder.path().join(name);
        export(&network, &path)?;
        let read = import(&path)?.to_device("cpu")?;
        assert_eq!(read.get_weights()?, weights, "{name}");
        close(&flat(&read.predict(&x)?), &flat(&dense(&x, &weights[0], &weights[1])), 1e-12, name);
        for (other, _, import) in formats.into_iter().filter(|(other, ..)| *other != name) {
            let error = import(&path).map(drop).expect_err("another format");
            assert_eq!(error.category(), "serialization", "{name} as {other}: {error}");
        }
    }
    Ok(())
}

#[test]
fn tensors_have_other_shapes() -> Result<()> {
    let mut manager = GpuManager::new();
    for device in manager.devices().to_vec() {
        let context = manager.create_context(device.id)?;
        let data = Array2::from_shape_fn((2, 3), |(i, j)| (3 * i + j) as f64);
        for layout in [MemoryLayout::RowMajor, MemoryLayout::ColumnMajor, MemoryLayout::GpuOptimized] {
            let x = GpuTensor::from_cpu_with_layout(&data, device.id, context, layout)?;
            let y = x.reshape(vec![3, 1, 2])?;
            assert_eq!((y.shape(), y.numel(), y.device_id()), (&[3, 1, 2][..], 6, device.id));
            // Row by row, however they lie.
            assert_eq!(y.to_values(context)?, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "{layout:?}");
            let expected = ndarray::arr2(&[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]);
            assert_eq!(y.reshape(vec![3, 2])?.to_cpu(context)?, expected, "{layout:?}");
            assert_eq!(x.shape(), [2, 3]);
        }
    }
    Ok(())
}

#[test]
fn the_best_epoch_has_the_least_loss() -> Result<()> {
    let x = numbers(40, 3, 1);
    let y = dense(&x, &numbers(2, 3, 2), &numbers(1, 2, 3));
    // The rate grows until the loss does.
    let run = |validation_split: f64| -> Result<TrainingHistory> {
        let config = TrainingConfig {
            validation_split,
            optimizer: Some(Optimizer::sgd(0.05)?),
            lr_schedule: Some(LearningRateSchedule::ExponentialDecay { gamma: 1.25 }),
            ..epochs(40)
        };
        linear(3, 2)?.precision(Precision::Float64).build()?.train(&x, &y, &config)
    };
    let least = |losses: &[f64]| {
        let mut best = 0;
        for (epoch, loss) in losses.iter().enumerate() {
            best = if *loss < losses[best] { epoch } else { best };
        }
        best
    };
    let history = run(0.25)?;
    let best = least(&history.val_loss);
    assert!(0 < best && best < 39, "{:?}", history.val_loss);
    assert_eq!((history.best_epoch, history.best_val_loss), (Some(best), Some(history.val_loss[best])));
    let history = run(0.0)?;
    assert!(history.val_loss.is_empty());
    assert_eq!((history.best_epoch, history.best_val_loss), (Some(least(&history.train_loss)), None));
    Ok(())
}

/// Two layers without activation, and the gradients of their mean squared error.
fn two_layers(x: &Array2<f64>, y: &Array2<f64>) -> Result<(Network, Vec<Array2<f64>>)> {
    let layer = |units| LayerBuilder::dense(units).activation(ActivationFunction::Linear);
    let mut network = Network::with_input_size(3)?
        .add_layer(layer(4))
        .add_layer(layer(2))
        .precision(Precision::Float64)
        .device("cpu")
        .build()?;
    let w = [numbers(4, 3, 1), numbers(1, 4, 2), numbers(2, 4, 3), numbers(1, 2, 4)];
    network.set_weights(&w)?;
    let hidden = dense(x, &w[0], &w[1]);
    let [of_weight, of_bias] = dense_gradients(&hidden, &w[2], &w[3], y);
    let output = dense(&hidden, &w[2], &w[3]);
    let derivative = |row: usize, unit: usize| -> f64 {
        let off = |k: usize| 2.0 * (output[[row, k]] - y[[row, k]]) / y.len() as f64;
        (0..2).map(|k| off(k) * w[2][[k, unit]]).sum()
    };
    let rows = || 0..x.nrows();
    let first = Array2::from_shape_fn((4, 3), |(unit, i)| {
        rows().map(|row| derivative(row, unit) * x[[row, i]]).sum::<f64>()
    });
    let bias =
        Array2::from_shape_fn((1, 4), |(_, unit)| rows().map(|row| derivative(row, unit)).sum::<f64>());
    Ok((network, vec![first, bias, of_weight, of_bias]))
}

#[test]
fn gradients_of_frozen_weights_are_zeros() -> Result<()> {
    let (x, y) = (numbers(7, 3, 5), numbers(7, 2, 6));
    for frozen in [&[][..], &[0], &[1]] {
        let (mut network, expected) = two_layers(&x, &y)?;
        network.freeze_layers(frozen)?;
        let (_, found) = network.loss_and_gradients(&x, &y)?;
        assert_eq!(found.len(), 4);
        for (place, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let what = format!("weight {place} with {frozen:?} frozen");
            match frozen.contains(&(place / 2)) {
                true => assert!(found.dim() == expected.dim() && found.iter().all(|x| *x == 0.0), "{what}"),
                false => close(&flat(found), &flat(expected), 1e-12, &what),
            }
        }
    }
    Ok(())
}

#[test]
fn a_network_that_is_all_frozen_has_a_loss_and_zeros() -> Result<()> {
    let (x, y) = (numbers(7, 3, 5), numbers(7, 2, 6));
    let (mut network, expected) = two_layers(&x, &y)?;
    let (loss, _) = network.loss_and_gradients(&x, &y)?;
    network.freeze_layers(&[0, 1])?;
    let (found, gradients) = network.loss_and_gradients(&x, &y)?;
    close(&[found], &[loss], 1e-12, "the loss");
    for (gradient, expected) in gradients.iter().zip(&expected) {
        assert!(gradient.dim() == expected.dim() && gradient.iter().all(|x| *x == 0.0), "{gradient}");
    }
    Ok(())
}
