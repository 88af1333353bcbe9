//! Data preparation.

use ndarray::{Array1, Array2, Axis};

use super::RandomUtils;
use crate::{Matrix, NetworkError, Result, convert, error::within};

/// Prepares data for training. Columns are features, rows are examples.
#[derive(Clone, Copy, Debug)]
pub struct DataPreprocessing;

/// The maximum length of one-hot rows.
const MOST_CLASSES: usize = 1 << 24;

impl DataPreprocessing {
    /// Scales every column to the range from 0 to 1. Returns the columns' minima and maxima too. A constant column
    /// becomes 0.
    ///
    /// # Errors
    /// If there are no rows, or an element is not finite.
    pub fn min_max_normalize(data: &Array2<f64>) -> Result<(Array2<f64>, Array1<f64>, Array1<f64>)> {
        check(data)?;
        let least = data.fold_axis(Axis(0), f64::INFINITY, |a, b| a.min(*b));
        let greatest = data.fold_axis(Axis(0), f64::NEG_INFINITY, |a, b| a.max(*b));
        let normal = DataPreprocessing::apply_min_max_normalize(data, &least, &greatest)?;
        Ok((normal, least, greatest))
    }

    /// Scales data with the results of [`DataPreprocessing::min_max_normalize`].
    ///
    /// # Errors
    /// If the number of columns differs.
    pub fn apply_min_max_normalize(
        data: &Array2<f64>,
        min_vals: &Array1<f64>,
        max_vals: &Array1<f64>,
    ) -> Result<Array2<f64>> {
        same_length(data, min_vals, max_vals)?;
        Ok(scaled(data, min_vals, &(max_vals - min_vals)))
    }

    /// Scales every column to mean 0 and standard deviation 1. Returns the columns' means and deviations too. A
    /// constant column becomes 0.
    ///
    /// # Errors
    /// If there are no rows, or an element is not finite.
    pub fn standardize(data: &Array2<f64>) -> Result<(Array2<f64>, Array1<f64>, Array1<f64>)> {
        check(data)?;
        let rows = data.nrows() as f64;
        let means = data.sum_axis(Axis(0)) / rows;
        let deviations = ((data - &means).mapv(|x| x * x).sum_axis(Axis(0)) / rows).mapv(f64::sqrt);
        let standard = DataPreprocessing::apply_standardize(data, &means, &deviations)?;
        Ok((standard, means, deviations))
    }

    /// Scales data with the results of [`DataPreprocessing::standardize`].
    ///
    /// # Errors
    /// If the number of columns differs.
    pub fn apply_standardize(
        data: &Array2<f64>,
        means: &Array1<f64>,
        stds: &Array1<f64>,
    ) -> Result<Array2<f64>> {
        same_length(data, means, stds)?;
        Ok(scaled(data, means, stds))
    }

    /// One-hot rows for labels. The default number of classes is the largest label plus 1.
    ///
    /// # Errors
    /// If a label is not below the number of classes, or there is not enough memory.
    pub fn to_categorical(labels: &Array1<usize>, num_classes: Option<usize>) -> Result<Array2<f64>> {
        let needed = labels.iter().max().map_or(0, |label| label.saturating_add(1));
        let classes = num_classes.unwrap_or(needed);
        if needed > classes {
            let message =
                format!("expected labels below {classes}, got labels up to {}", needed.saturating_sub(1));
            return Err(NetworkError::data(message));
        }
        if classes > MOST_CLASSES {
            let message =
                format!("rows for {classes} classes are too long: use at most {MOST_CLASSES} classes");
            return Err(NetworkError::data(message));
        }
        let mut rows = convert::made((labels.len(), classes), || 0.0)?;
        for (mut row, label) in rows.rows_mut().into_iter().zip(labels) {
            row[*label] = 1.0;
        }
        Ok(rows)
    }

    /// The index of each row's first maximum; 0 for empty rows.
    pub fn from_categorical(one_hot: &Array2<f64>) -> Array1<usize> {
        one_hot.rows().into_iter().map(convert::argmax).collect()
    }

    /// Shuffles rows and targets in the same order.
    ///
    /// # Errors
    /// If the numbers of rows differ.
    pub fn shuffle(
        data: &Array2<f64>,
        targets: &Array2<f64>,
        seed: Option<u64>,
    ) -> Result<(Array2<f64>, Array2<f64>)> {
        convert::check_rows(data, targets)?;
        let order = RandomUtils::permutation(data.nrows(), seed);
        Ok((data.select(Axis(0), &order), targets.select(Axis(0), &order)))
    }

    /// Splits rows into training data, test data, training targets and test targets. `test_size` is the share of test
    /// rows, which are taken from the end.
    ///
    /// # Errors
    /// If the numbers of rows differ, the share is not between 0 and 1, or it is neither 0 nor 1 but one part has no
    /// rows.
    pub fn train_test_split(
        data: &Array2<f64>,
        targets: &Array2<f64>,
        test_size: f64,
        shuffle: bool,
        seed: Option<u64>,
    ) -> Result<(Matrix, Matrix, Matrix, Matrix)> {
        convert::check_rows(data, targets)?;
        within("test_size", test_size, 0.0, 1.0)?;
        let rows = data.nrows();
        let order = if shuffle { RandomUtils::permutation(rows, seed) } else { (0..rows).collect() };
        let held = (rows as f64 * test_size).round() as usize;
        if rows > 0 && test_size > 0.0 && test_size < 1.0 && (held == 0 || held >= rows) {
            let reason = format!("of {rows} rows it leaves {held} to test with: use another share");
            return Err(NetworkError::invalid_parameter("test_size", test_size, reason));
        }
        let (train, test) = order.split_at(rows - held.min(rows));
        let part = |of: &Array2<f64>, rows: &[usize]| of.select(Axis(0), rows);
        Ok((part(data, train), part(data, test), part(targets, train), part(targets, test)))
    }

    /// Adds normal noise with the standard deviation `noise_level`.
    ///
    /// # Errors
    /// If `noise_level` is negative or not finite.
    pub fn add_noise(data: &Array2<f64>, noise_level: f64, seed: Option<u64>) -> Result<Array2<f64>> {
        within("noise_level", noise_level, 0.0, f64::INFINITY)?;
        Ok(data + &RandomUtils::normal_random(data.dim(), 0.0, noise_level, seed)?)
    }
}

fn check(data: &Array2<f64>) -> Result<()> {
    if data.nrows() == 0 {
        return Err(NetworkError::data("there are no rows: give at least one"));
    }
    convert::check_finite("data", data)
}

/// Checks that two vectors have an element for each column.
fn same_length(data: &Array2<f64>, first: &Array1<f64>, second: &Array1<f64>) -> Result<()> {
    match [first, second].into_iter().find(|numbers| numbers.len() != data.ncols()) {
        None => Ok(()),
        Some(numbers) => {
            let (expected, actual) = (data.ncols().to_string(), numbers.len().to_string());
            Err(NetworkError::dimension_mismatch("numbers of columns", expected, actual))
        }
    }
}

/// Subtracts `less`, and divides by the elements of `by` that are not 0.
fn scaled(data: &Array2<f64>, less: &Array1<f64>, by: &Array1<f64>) -> Array2<f64> {
    (data - less) / by.mapv(|x| if x == 0.0 { 1.0 } else { x })
}
