//! Networks in files: what is read computes what was written; what is damaged is refused.

use std::fs;

use rnn::{
    ActivationFunction, Array2, LayerBuilder, LossFunction, Network, NetworkError, Optimizer, Precision,
    Result, TrainingConfig,
};

fn network(precision: Precision) -> Result<Network> {
    let mut network = Network::with_input_shape(&[1, 6, 6])?
        .add_layer(LayerBuilder::conv2d(3, (3, 3)).activation(ActivationFunction::ReLU))
        .add_layer(LayerBuilder::batch_norm())
        .add_layer(LayerBuilder::max_pool2d((2, 2)))
        .add_layer(LayerBuilder::reshape(&[3, 4]))
        .add_layer(LayerBuilder::lstm(5))
        .add_layer(LayerBuilder::residual(vec![LayerBuilder::dense(5).activation(ActivationFunction::PReLU)]))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear).name("last"))
        .name("mixed")
        .author("somebody")
        .precision(precision)
        .device("cpu")
        .seed(4)
        .build()?;
    let (x, y) = data();
    let config = TrainingConfig { max_epochs: 2, verbose: false, seed: Some(1), ..TrainingConfig::default() };
    network.train(&x, &y, &config)?;
    network.freeze_layers(&[0])?;
    Ok(network)
}

fn data() -> (Array2<f64>, Array2<f64>) {
    let x = Array2::from_shape_fn((20, 36), |(i, j)| ((i * 36 + j) as f64 * 0.31).sin());
    let y = Array2::from_shape_fn((20, 2), |(i, j)| ((i * 2 + j) as f64 * 1.3).cos());
    (x, y)
}

type Save = fn(&Network, &std::path::Path) -> Result<()>;
type Load = fn(&std::path::Path) -> Result<Network>;

const FORMATS: [(&str, Save, Load); 3] = [
    ("json", |n, p| n.save(p), |p| Network::load(p)),
    ("binary", |n, p| n.save_binary(p), |p| Network::load_binary(p)),
    ("safetensors", |n, p| n.save_safetensors(p), |p| Network::load_safetensors(p)),
];

#[test]
fn round_trips_are_exact() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let (x, _) = data();
    for precision in [Precision::Float32, Precision::Float64] {
        let network = network(precision)?;
        for (name, save, load) in FORMATS {
            let path = folder.path().join(name);
            save(&network, &path)?;
            let read = load(&path)?;
            assert_eq!(read.get_weights()?, network.get_weights()?, "{name}");
            assert_eq!(read.to_device("cpu")?.predict(&x)?, network.predict(&x)?, "{name}");
            assert_eq!(read.history(), network.history(), "{name}");
            assert_eq!(read.metadata(), network.metadata(), "{name}");
            let (mut read, own) = (read.summary(), network.summary());
            read.device.clone_from(&own.device);
            assert_eq!(read, own, "{name}");
        }
    }
    Ok(())
}

#[test]
fn other_files_are_refused() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let network = network(Precision::Float32)?;
    for (name, save, load) in FORMATS {
        let path = folder.path().join(name);
        assert!(matches!(load(&path), Err(NetworkError::Io { .. })), "{name}");
        save(&network, &path)?;
        let whole = fs::read(&path).unwrap();
        for length in [0, 5, 40, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..length]).unwrap();
            let error = load(&path).map(drop).unwrap_err();
            assert!(matches!(error, NetworkError::Serialization { .. }), "{name} cut to {length}: {error}");
        }
        fs::write(&path, b"something else").unwrap();
        assert!(matches!(load(&path), Err(NetworkError::Serialization { .. })), "{name}");
    }
    let path = folder.path().join("json");
    network.save(&path)?;
    let text = fs::read_to_string(&path).unwrap().replace("\"version\":1,", "\"version\":99,");
    fs::write(&path, text).unwrap();
    let error = Network::load(&path).map(drop).unwrap_err().to_string();
    assert!(error.contains("version 99") && error.contains("this crate reads 1"), "{error}");
    // A flipped bit is found.
    let path = folder.path().join("binary");
    network.save_binary(&path)?;
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() - 100;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(Network::load_binary(&path).is_err());
    Ok(())
}

#[test]
fn binary_networks_are_known_and_missing_folders_made() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/folder/network.bin");
    network(Precision::Float32)?.save_binary(&path)?;
    let error = Network::load(&path).map(drop).unwrap_err();
    assert!(matches!(error, NetworkError::Serialization { .. }), "{error}");
    assert!(error.to_string().contains("load_binary"), "{error}");
    Ok(())
}

/// A device without an end is not read to it.
#[cfg(unix)]
#[test]
fn devices_are_no_networks() {
    let zero = std::path::Path::new("/dev/zero");
    for result in [Network::load(zero), Network::load_binary(zero)] {
        let error = result.map(drop).unwrap_err();
        assert!(matches!(error, NetworkError::Io { .. }), "{error}");
        assert!(error.to_string().contains("a regular file is needed"), "{error}");
    }
}

#[test]
fn figures_that_are_not_finite_are_kept() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let mut network = Network::with_input_size(2)?
        .add_layer(LayerBuilder::dense(1).activation(ActivationFunction::Linear))
        .device("cpu")
        .seed(1)
        .build()?;
    let (x, y) = (Array2::ones((4, 2)), Array2::ones((4, 1)));
    // The squares of these overflow.
    let far = Array2::from_elem((4, 2), 1e25);
    let config = TrainingConfig { max_epochs: 1, verbose: false, ..TrainingConfig::default() };
    let history = network.train_with_validation(&x, &y, Some(&far), Some(&y), &config)?;
    assert!(!history.val_loss[0].is_finite());
    network.metadata_mut().performance_metrics.insert("speed".into(), f64::NEG_INFINITY);
    for (name, save, load) in FORMATS {
        let path = folder.path().join(name);
        save(&network, &path)?;
        let read = load(&path)?;
        assert_eq!(format!("{:?}", read.history()), format!("{history:?}"), "{name}");
        assert_eq!(read.metadata(), network.metadata(), "{name}");
    }
    Ok(())
}

#[test]
fn files_changed_by_hand_are_refused() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("json");
    network(Precision::Float32)?.save(&path)?;
    let text = fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("\"stride\":[1,1]", "\"stride\":[]"),
        ("\"stride\":[1,1]", "\"stride\":[0,1]"),
        ("\"dilation\":[1,1]", "\"dilation\":[0,1]"),
        ("\"kernel\":[3,3]", "\"kernel\":[3]"),
        ("\"kernel\":[3,3]", "\"kernel\":[3,3,3,3]"),
        ("\"size\":[2,2]", "\"size\":[]"),
        ("\"momentum\":0.1", "\"momentum\":-7.5"),
        ("\"layers\":1,", "\"layers\":4294967296,"),
        ("\"input_shape\":[1,6,6]", "\"input_shape\":[]"),
        ("\"filters\":3", "\"filters\":4"),
        ("\"train_loss\":[", "\"train_loss\":[\"much\","),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        fs::write(&path, changed).unwrap();
        let error = Network::load(&path).map(drop).expect_err(to).to_string();
        assert!(error.len() > 15, "{error}");
    }
    Ok(())
}

#[test]
fn files_whose_loss_or_optimizer_does_not_fit_are_read_to_predict() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("json");
    let (x, y) = (Array2::ones((4, 2)), Array2::from_elem((4, 2), 0.5));
    let config =
        TrainingConfig { max_epochs: 1, verbose: false, validation_split: 0.0, ..TrainingConfig::default() };
    let network =
        Network::with_input_size(2)?.add_layer(LayerBuilder::dense(2)).device("cpu").seed(1).build()?;
    network.save(&path)?;
    let text = fs::read_to_string(&path).unwrap();
    for (from, to, told) in [
        ("\"MeanSquaredError\"", "\"CategoricalCrossEntropy\"", "ReLU"),
        ("\"decay\":null", "\"decay\":0.5", "Adam"),
    ] {
        let old = text.replace(from, to);
        assert_ne!(old, text, "{from}");
        fs::write(&path, old).unwrap();
        let mut read = Network::load_on(&path, "cpu")?;
        assert_eq!(read.predict(&x)?, network.predict(&x)?);
        let error = read.train(&x, &y, &config).map(drop).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        // Others can be named for a run.
        let named = TrainingConfig {
            loss_function: Some(LossFunction::MeanSquaredError),
            optimizer: Some(Optimizer::sgd(0.1)?),
            ..config.clone()
        };
        read.train(&x, &y, &named)?;
    }
    // What is out of its range is damage.
    fs::write(&path, text.replace("\"learning_rate\":0.001", "\"learning_rate\":-1.0")).unwrap();
    assert!(Network::load(&path).map(drop).unwrap_err().to_string().contains("learning_rate"));
    Ok(())
}
