//! Data and settings that are refused, by their words.

use rnn::{
    ActivationFunction, Array2, GpuManager, GpuTensor, LayerBuilder, LossConfig, LossFunction, Network,
    Precision, Result, TrainingConfig, WeightInitialization, gpu::GpuOps,
};

use super::bad_input::words;

fn brief() -> TrainingConfig {
    TrainingConfig { max_epochs: 1, validation_split: 0.0, verbose: false, ..TrainingConfig::default() }
}

fn classes(loss: impl Into<LossConfig>) -> Result<Network> {
    let softmax = LayerBuilder::dense(2).activation(ActivationFunction::Softmax);
    Network::with_input_size(3)?.add_layer(softmax).loss(loss).device("cpu").seed(1).build()
}

#[test]
fn shares_of_classes_are_at_most_a_whole() -> Result<()> {
    let loss = LossFunction::CategoricalCrossEntropy;
    let (x, ones) = (Array2::ones((4, 3)), Array2::ones((4, 2)));
    let error = words(classes(loss)?.train(&x, &ones, &brief()));
    assert!(error.contains("row 0 have the sum 2") && error.contains("BinaryCrossEntropy"), "{error}");
    assert!(words(loss.compute(&Array2::from_elem((4, 2), 0.5), &ones)).contains("sum 2"));
    // Rounded, and rows that count less or nothing: steps that fill a sequence up.
    for share in [0.505, 0.25, 0.0] {
        classes(loss)?.train(&x, &Array2::from_elem((4, 2), share), &brief())?;
    }
    Ok(())
}

#[test]
fn weights_of_classes_fit_the_classes() -> Result<()> {
    let weighted = |weights: &[f64]| {
        LossConfig::new(LossFunction::CategoricalCrossEntropy).with_class_weights(weights.to_vec())
    };
    assert!(words(classes(weighted(&[1.0])?)).contains("class_weights: expected 2, one per class, got 1"));
    let mut idle = classes(weighted(&[0.0, 0.0])?)?;
    let targets = Array2::from_elem((4, 2), 0.5);
    assert!(words(idle.train(&Array2::ones((4, 3)), &targets, &brief())).contains("class_weights are 0"));
    Ok(())
}

#[test]
fn targets_of_rows_for_outputs_of_steps_are_told_how() -> Result<()> {
    let mut network = Network::with_input_shape(&[4, 2])?
        .add_layer(LayerBuilder::attention(1))
        .add_layer(LayerBuilder::dense(2).activation(ActivationFunction::Linear))
        .device("cpu")
        .build()?;
    let error = words(network.train(&Array2::ones((20, 8)), &Array2::ones((20, 2)), &brief()));
    assert!(error.contains("rows of 8 for outputs of shape (4, 2)") && error.contains("flatten"), "{error}");
    Ok(())
}

#[test]
fn weights_that_would_not_be_finite_are_not_drawn() -> Result<()> {
    let begun = |rule: WeightInitialization, precision: Precision| {
        let layer = LayerBuilder::dense(2).weight_init(rule);
        Network::with_input_size(3)?.add_layer(layer).precision(precision).device("cpu").seed(1).build()
    };
    let (normal, uniform) = (
        WeightInitialization::Normal { mean: 0.0, std: 1e300 },
        WeightInitialization::Uniform { min: -1e39, max: 1e39 },
    );
    for rule in [normal, uniform] {
        let error = words(begun(rule, Precision::Float32));
        assert!(error.contains("weight_init") && error.contains("float32 ends"), "{error}");
        begun(rule, Precision::Float64)?;
    }
    let all = WeightInitialization::Uniform { min: -f64::MAX, max: f64::MAX };
    assert!(words(begun(all, Precision::Float64)).contains("float64 ends"));
    Ok(())
}

#[test]
fn validation_rows_are_called_so() -> Result<()> {
    let linear = LayerBuilder::dense(2).activation(ActivationFunction::Linear);
    let mut network = Network::with_input_size(3)?.add_layer(linear).device("cpu").seed(1).build()?;
    let (x, y) = (Array2::zeros((4, 3)), Array2::zeros((4, 2)));
    let mut refused = |x_other: &Array2<f64>, y_other: &Array2<f64>| {
        words(network.train_with_validation(&x, &y, Some(x_other), Some(y_other), &brief()))
    };
    let (nan_x, nan_y) = (Array2::from_elem((4, 3), f64::NAN), Array2::from_elem((4, 2), f64::NAN));
    assert!(refused(&nan_x, &y).contains("validation data has NaN in row 0, column 0"));
    assert!(refused(&x, &nan_y).contains("validation targets has NaN in row 0, column 0"));
    assert!(refused(&x, &Array2::zeros((5, 2))).contains("validation targets: expected 4 rows"));
    assert!(words(network.train(&nan_x, &y, &brief())).starts_with("data: data has NaN"));
    Ok(())
}

#[test]
fn numbers_of_normalisations_have_their_ranges() -> Result<()> {
    let mut manager = GpuManager::new();
    let cpu = manager.devices().iter().find(|d| d.engine_name == "cpu").map(|d| d.id).unwrap_or(0);
    let context = manager.create_context(cpu)?;
    let x = GpuTensor::from_cpu(&Array2::ones((4, 4)), cpu, context)?;
    let of_four = GpuTensor::from_cpu(&Array2::ones((1, 4)), cpu, context)?.reshape(vec![4])?;
    for epsilon in [f64::NAN, -1.0] {
        assert!(words(context.batch_norm(&x, None, None, epsilon)).contains("epsilon"));
        assert!(
            words(context.batch_norm_by(&x, &of_four, &of_four, None, None, epsilon)).contains("epsilon")
        );
    }
    for momentum in [5.0, -0.1, f64::NAN] {
        assert!(words(context.running_statistics(&x, &of_four, &of_four, momentum)).contains("momentum"));
    }
    context.running_statistics(&x, &of_four, &of_four, 1.0)?;
    Ok(())
}
