//! Metrics against their definitions: by themselves, and as runs and evaluations report them.

use rnn::{ActivationFunction, Array2, LayerBuilder, LossFunction, Metrics, Network, Result, TrainingConfig};

use super::{close, dense, epochs, linear, numbers, sigmoid};

/// A part of a whole, 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

/// Precision, recall and F1.
fn by_counts(predictions: &Array2<f64>, targets: &Array2<f64>, threshold: f64) -> [f64; 3] {
    let (mut hits, mut alarms, mut missed) = (0.0, 0.0, 0.0);
    for (p, t) in predictions.iter().zip(targets) {
        match (*p >= threshold, *t >= threshold) {
            (true, true) => hits += 1.0,
            (true, false) => alarms += 1.0,
            (false, true) => missed += 1.0,
            (false, false) => {}
        }
    }
    let (precision, recall) = (share(hits, hits + alarms), share(hits, hits + missed));
    [precision, recall, share(2.0 * precision * recall, precision + recall)]
}

/// The mean distance, the root of the mean square, and the explained share of the variance.
fn by_distances(predictions: &Array2<f64>, targets: &Array2<f64>) -> [f64; 3] {
    let (mut sum, mut squares, mut variance) = (0f64, 0f64, 0f64);
    for column in 0..targets.ncols() {
        let mean =
            (0..targets.nrows()).map(|row| targets[[row, column]]).sum::<f64>() / targets.nrows() as f64;
        for row in 0..targets.nrows() {
            let off = predictions[[row, column]] - targets[[row, column]];
            sum += off.abs();
            squares += off * off;
            variance += (targets[[row, column]] - mean).powi(2);
        }
    }
    let count = targets.len() as f64;
    [sum / count, (squares / count).sqrt(), 1.0 - squares / variance]
}

/// The place of the greatest of a row.
fn greatest(scores: &Array2<f64>, row: usize) -> usize {
    (0..scores.ncols()).max_by(|a, b| scores[[row, *a]].total_cmp(&scores[[row, *b]])).unwrap()
}

#[test]
fn precision_recall_and_f1_count_hits() -> Result<()> {
    let (p, t) = (numbers(40, 3, 1), numbers(40, 3, 2));
    for threshold in [-0.3, 0.0, 0.5] {
        let expected = by_counts(&p, &t, threshold);
        assert!(expected.iter().all(|figure| *figure > 0.0 && *figure < 1.0), "{expected:?}");
        let found = [
            Metrics::precision(&p, &t, threshold)?,
            Metrics::recall(&p, &t, threshold)?,
            Metrics::f1_score(&p, &t, threshold)?,
        ];
        close(&found, &expected, 1e-12, &format!("at {threshold}"));
    }
    // Two hits, and what lies at the threshold is a false alarm.
    let p = ndarray::arr2(&[[0.9, 0.2], [0.5, 0.7]]);
    let t = ndarray::arr2(&[[1.0, 0.0], [0.0, 1.0]]);
    let found =
        [Metrics::precision(&p, &t, 0.5)?, Metrics::recall(&p, &t, 0.5)?, Metrics::f1_score(&p, &t, 0.5)?];
    close(&found, &[2.0 / 3.0, 1.0, 0.8], 1e-12, "two hits");
    // Nothing predicted, and nothing to predict.
    let (zeros, ones) = (Array2::<f64>::zeros((3, 1)), Array2::<f64>::ones((3, 1)));
    for (p, t) in [(&zeros, &ones), (&ones, &zeros), (&zeros, &zeros)] {
        assert_eq!(Metrics::precision(p, t, 0.5)?, 0.0);
        assert_eq!(Metrics::recall(p, t, 0.5)?, 0.0);
        assert_eq!(Metrics::f1_score(p, t, 0.5)?, 0.0);
    }
    Ok(())
}

#[test]
fn accuracy_is_the_share_of_right_rows() -> Result<()> {
    let (p, t) = (numbers(50, 4, 3), numbers(50, 4, 4));
    let right = (0..50).filter(|&row| greatest(&p, row) == greatest(&t, row)).count();
    assert!((5..45).contains(&right), "{right}");
    assert_eq!(Metrics::accuracy(&p, &t)?, right as f64 / 50.0);
    let (p, t) = (numbers(50, 1, 5), numbers(50, 1, 6));
    let right = (0..50).filter(|&row| (p[[row, 0]] >= 0.5) == (t[[row, 0]] >= 0.5)).count();
    assert_eq!(Metrics::accuracy(&p, &t)?, right as f64 / 50.0);
    // Of equal scores the first is the greatest.
    let even = ndarray::arr2(&[[0.5, 0.5]]);
    assert_eq!(Metrics::accuracy(&even, &ndarray::arr2(&[[1.0, 0.0]]))?, 1.0);
    assert_eq!(Metrics::accuracy(&even, &ndarray::arr2(&[[0.0, 1.0]]))?, 0.0);
    Ok(())
}

#[test]
fn distances_and_explained_variance() -> Result<()> {
    let (p, t) = (numbers(30, 3, 7), numbers(30, 3, 8).mapv(|x| 2.0 * x + 1.0));
    let found = [Metrics::mae(&p, &t)?, Metrics::rmse(&p, &t)?, Metrics::r2_score(&p, &t)?];
    close(&found, &by_distances(&p, &t), 1e-12, "distances");
    assert_eq!((Metrics::mae(&t, &t)?, Metrics::rmse(&t, &t)?, Metrics::r2_score(&t, &t)?), (0.0, 0.0, 1.0));
    // A column's mean explains nothing of it; what does not vary cannot be explained.
    let mean = |column: usize| (0..30).map(|row| t[[row, column]]).sum::<f64>() / 30.0;
    let means = Array2::from_shape_fn((30, 3), |(_, column)| mean(column));
    assert!(Metrics::r2_score(&means, &t)?.abs() < 1e-12);
    assert_eq!(Metrics::r2_score(&p, &Array2::ones((30, 3)))?, 0.0);
    Ok(())
}

#[test]
fn shapes_must_be_the_same() {
    let (p, columns, rows) = (Array2::zeros((3, 2)), Array2::zeros((3, 1)), Array2::zeros((2, 2)));
    for wrong in [&columns, &rows] {
        for refused in [
            Metrics::accuracy(&p, wrong),
            Metrics::precision(&p, wrong, 0.5),
            Metrics::recall(&p, wrong, 0.5),
            Metrics::f1_score(&p, wrong, 0.5),
            Metrics::mae(&p, wrong),
            Metrics::rmse(&p, wrong),
            Metrics::r2_score(&p, wrong),
        ] {
            let message = refused.expect_err("other shapes").to_string();
            assert!(message.contains("targets"), "{message}");
        }
    }
}

#[test]
fn what_is_no_number_is_not_judged() {
    let (numbers, none) = (Array2::<f64>::ones((2, 2)), Array2::<f64>::zeros((0, 2)));
    let mut nan = numbers.clone();
    nan[[1, 0]] = f64::NAN;
    for (p, t, told) in [
        (&nan, &numbers, "predictions have NaN in row 1, column 0"),
        (&numbers, &nan, "targets have NaN in row 1, column 0"),
        (&none, &none, "at least one row"),
    ] {
        for refused in [
            Metrics::accuracy(p, t),
            Metrics::precision(p, t, 0.5),
            Metrics::recall(p, t, 0.5),
            Metrics::f1_score(p, t, 0.5),
            Metrics::mae(p, t),
            Metrics::rmse(p, t),
            Metrics::r2_score(p, t),
        ] {
            let message = refused.expect_err(told).to_string();
            assert!(message.contains(told), "{message}");
        }
    }
}

#[test]
fn a_run_reports_what_it_was_asked_for() -> Result<()> {
    let x = numbers(60, 3, 9);
    let t = Array2::from_shape_fn((60, 1), |(row, _)| f64::from(u8::from(x[[row, 0]] + x[[row, 1]] > 0.1)));
    let mut network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(1).activation(ActivationFunction::Sigmoid))
        .loss(LossFunction::BinaryCrossEntropy)
        .device("cpu")
        .seed(5)
        .build()?;
    let metrics = ["precision", "recall", "f1", "mae", "rmse", "r2"];
    let config = TrainingConfig { metrics: metrics.map(str::to_owned).to_vec(), ..epochs(3) };
    let before = network.get_weights()?;
    let history = network.train_with_validation(&x, &t, Some(&x), Some(&t), &config)?;
    let after = network.get_weights()?;
    // Of an epoch's own rows the predictions are those before its step.
    for (weights, measured, epoch) in [(before, &history.train_metrics, 0), (after, &history.val_metrics, 2)]
    {
        let p = dense(&x, &weights[0], &weights[1]).mapv(sigmoid);
        let expected = [by_counts(&p, &t, 0.5), by_distances(&p, &t)].concat();
        let found = metrics.map(|name| measured[name][epoch]);
        close(&found, &expected, 1e-5, "metrics of the run");
        let right = (0..60).filter(|&row| (p[[row, 0]] >= 0.5) == (t[[row, 0]] >= 0.5)).count();
        assert_eq!(measured["accuracy"][epoch], right as f64 / 60.0);
    }
    Ok(())
}

#[test]
fn evaluations_judge_as_the_loss_demands() -> Result<()> {
    let x = numbers(40, 3, 10);
    // Numbers of classes.
    let classes = Array2::from_shape_fn((40, 1), |(row, _)| (row % 4) as f64);
    let network = Network::with_input_size(3)?
        .add_layer(LayerBuilder::dense(4).activation(ActivationFunction::Softmax))
        .loss(LossFunction::SparseCategoricalCrossEntropy)
        .device("cpu")
        .seed(5)
        .build()?;
    let weights = network.get_weights()?;
    let scores = dense(&x, &weights[0], &weights[1]);
    let right = (0..40).filter(|&row| greatest(&scores, row) as f64 == classes[[row, 0]]).count();
    assert_eq!(network.evaluate(&x, &classes)?["accuracy"], right as f64 / 40.0);
    // Sides of 0.
    let sides = Array2::from_shape_fn((40, 1), |(row, _)| if row % 3 == 0 { 1.0 } else { -1.0 });
    for loss in [LossFunction::HingeLoss, LossFunction::SquaredHingeLoss] {
        let network = linear(3, 1)?.loss(loss).build()?;
        let weights = network.get_weights()?;
        let scores = dense(&x, &weights[0], &weights[1]);
        let right = (0..40).filter(|&row| (scores[[row, 0]] >= 0.0) == (sides[[row, 0]] > 0.0)).count();
        assert_eq!(network.evaluate(&x, &sides)?["accuracy"], right as f64 / 40.0, "{loss:?}");
    }
    // Numbers.
    let network = linear(3, 2)?.build()?;
    let (weights, t) = (network.get_weights()?, numbers(40, 2, 11));
    let found = network.evaluate(&x, &t)?;
    let expected = by_distances(&dense(&x, &weights[0], &weights[1]), &t);
    close(&["mae", "rmse", "r2"].map(|name| found[name]), &expected, 1e-5, "distances");
    close(&[found["loss"]], &[expected[1] * expected[1]], 1e-5, "mean squared error");
    Ok(())
}
