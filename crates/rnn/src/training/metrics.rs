//! Metrics.

use ndarray::Array2;

use crate::{LossFunction, NetworkError, Result, convert};

/// Metrics of predictions against targets. All return an error if the shapes differ, there are no rows, or a number is
/// NaN.
#[derive(Clone, Copy, Debug)]
pub struct Metrics;

/// The metrics of a configuration.
const NAMES: [&str; 8] = ["loss", "accuracy", "precision", "recall", "f1", "mae", "rmse", "r2"];

impl Metrics {
    /// The share of rows whose largest prediction is at the place of the largest target. For a single column, the share
    /// of rows where both are on the same side of 0.5.
    pub fn accuracy(predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<f64> {
        check(predictions, targets)?;
        let rows = predictions.rows().into_iter().zip(targets.rows());
        let right = |p: ndarray::ArrayView1<'_, f64>, t: ndarray::ArrayView1<'_, f64>| match p.len() {
            1 => (p[0] >= 0.5) == (t[0] >= 0.5),
            _ => convert::argmax(p) == convert::argmax(t),
        };
        Ok(share(rows.filter(|(p, t)| right(*p, *t)).count(), predictions.nrows()))
    }

    /// Among elements predicted at or above the threshold, the share whose target is too; 0 if there are none.
    pub fn precision(predictions: &Array2<f64>, targets: &Array2<f64>, threshold: f64) -> Result<f64> {
        let (hits, false_alarms, _) = counts(predictions, targets, threshold)?;
        Ok(share(hits, hits + false_alarms))
    }

    /// Among elements whose target is at or above the threshold, the share whose prediction is too; 0 if there are
    /// none.
    pub fn recall(predictions: &Array2<f64>, targets: &Array2<f64>, threshold: f64) -> Result<f64> {
        let (hits, _, missed) = counts(predictions, targets, threshold)?;
        Ok(share(hits, hits + missed))
    }

    /// The harmonic mean of precision and recall.
    pub fn f1_score(predictions: &Array2<f64>, targets: &Array2<f64>, threshold: f64) -> Result<f64> {
        let (hits, false_alarms, missed) = counts(predictions, targets, threshold)?;
        Ok(share(2 * hits, 2 * hits + false_alarms + missed))
    }

    /// The mean absolute error.
    pub fn mae(predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<f64> {
        check(predictions, targets)?;
        let sum: f64 = predictions.iter().zip(targets).map(|(p, t)| (p - t).abs()).sum();
        Ok(sum / predictions.len().max(1) as f64)
    }

    /// The root mean squared error.
    pub fn rmse(predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<f64> {
        check(predictions, targets)?;
        let sum: f64 = predictions.iter().zip(targets).map(|(p, t)| (p - t).powi(2)).sum();
        Ok((sum / predictions.len().max(1) as f64).sqrt())
    }

    /// The coefficient of determination; 0 for targets without variance.
    pub fn r2_score(predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<f64> {
        check(predictions, targets)?;
        let (mut unexplained, mut all) = (0.0, 0.0);
        for (p, t) in predictions.columns().into_iter().zip(targets.columns()) {
            let mean = t.mean().unwrap_or(0.0);
            unexplained += p.iter().zip(&t).map(|(p, t)| (p - t).powi(2)).sum::<f64>();
            all += t.iter().map(|t| (t - mean).powi(2)).sum::<f64>();
        }
        Ok(if all == 0.0 { 0.0 } else { 1.0 - unexplained / all })
    }

    /// Checks that a metric of this name exists.
    pub(crate) fn check_name(name: &str) -> Result<()> {
        if NAMES.contains(&name) {
            return Ok(());
        }
        Err(NetworkError::invalid_parameter(
            "metrics",
            format!("{name:?}"),
            format!("use {}", NAMES.join(", ")),
        ))
    }

    /// The metric of this name, for a network with this loss and `classes` outputs per question.
    pub(crate) fn by_name(
        name: &str,
        loss: LossFunction,
        classes: usize,
        predictions: &Array2<f64>,
        targets: &Array2<f64>,
    ) -> Result<f64> {
        let (mut p, mut t) = (by_question(predictions, classes)?, targets.clone());
        if targets.ncols() == predictions.ncols() {
            t = by_question(targets, classes)?;
        }
        match loss {
            LossFunction::SparseCategoricalCrossEntropy => {
                t = Array2::zeros(p.dim());
                for (mut row, class) in t.rows_mut().into_iter().zip(targets) {
                    row[*class as usize] = 1.0;
                }
            }
            // From -1 and 1 to 0 and 1.
            LossFunction::HingeLoss | LossFunction::SquaredHingeLoss
                if !matches!(name, "mae" | "rmse" | "r2") =>
            {
                p.mapv_inplace(|x| (x + 1.0) / 2.0);
                t.mapv_inplace(|x| (x + 1.0) / 2.0);
            }
            _ => {}
        }
        // The outputs of a diverged run may be NaN.
        if p.is_empty() || p.iter().any(|x| x.is_nan()) {
            return Ok(f64::NAN);
        }
        match name {
            // Each column is a separate question.
            "accuracy" if loss.asks_by_column() => {
                check(&p, &t)?;
                let right = p.iter().zip(&t).filter(|(p, t)| (**p >= 0.5) == (**t >= 0.5));
                Ok(share(right.count(), p.len()))
            }
            "accuracy" => Metrics::accuracy(&p, &t),
            "precision" => Metrics::precision(&p, &t, 0.5),
            "recall" => Metrics::recall(&p, &t, 0.5),
            "f1" => Metrics::f1_score(&p, &t, 0.5),
            "mae" => Metrics::mae(&p, &t),
            "rmse" => Metrics::rmse(&p, &t),
            "r2" => Metrics::r2_score(&p, &t),
            _ => Err(Metrics::check_name(name).err().unwrap_or_else(|| {
                NetworkError::invalid_parameter("metric", name, "the loss is always measured")
            })),
        }
    }
}

/// Outputs or targets with a row for each question. A network's row may have several questions.
fn by_question(numbers: &Array2<f64>, classes: usize) -> Result<Array2<f64>> {
    let columns = classes.max(1);
    convert::from_values(numbers.len() / columns, columns, convert::elements(numbers))
}

fn check(predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<()> {
    convert::check_rows(predictions, targets)?;
    if predictions.ncols() != targets.ncols() {
        let (expected, actual) = (predictions.ncols().to_string(), targets.ncols().to_string());
        return Err(NetworkError::dimension_mismatch("columns of targets", expected, actual));
    }
    if predictions.is_empty() {
        return Err(NetworkError::data("there are no predictions: give at least one row"));
    }
    for (what, numbers) in [("predictions", predictions), ("targets", targets)] {
        if let Some(((row, column), _)) = numbers.indexed_iter().find(|(_, x)| x.is_nan()) {
            let message = format!("{what} have NaN in row {row}, column {column}: remove or replace it");
            return Err(NetworkError::data(message));
        }
    }
    Ok(())
}

/// Hits, false alarms and misses.
fn counts(p: &Array2<f64>, t: &Array2<f64>, threshold: f64) -> Result<(usize, usize, usize)> {
    check(p, t)?;
    let mut counts = (0, 0, 0);
    for (p, t) in p.iter().zip(t) {
        match (*p >= threshold, *t >= threshold) {
            (true, true) => counts.0 += 1,
            (true, false) => counts.1 += 1,
            (false, true) => counts.2 += 1,
            (false, false) => {}
        }
    }
    Ok(counts)
}

fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}
