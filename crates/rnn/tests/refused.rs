//! Data and settings that are refused, by their words.

use rnn::{ActivationFunction, Array2, LayerBuilder, Network, Result, TrainingConfig};

fn words<T>(result: Result<T>) -> String {
    result.map(drop).expect_err("it must be refused").to_string()
}

fn brief() -> TrainingConfig {
    TrainingConfig { max_epochs: 1, validation_split: 0.0, verbose: false, ..TrainingConfig::default() }
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
