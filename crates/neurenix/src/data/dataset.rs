//! In-memory datasets: inputs, targets and their meaning.

use std::sync::Arc;

use phynexus::{DType, Scalar};

use super::batches::Batch;
use super::random::epoch_order;
use crate::array::HostArray;
use crate::{Error, Result};

/// Inputs and targets of a supervised task, row by row.
///
/// Cloning or splitting a dataset shares its rows without copying.
#[derive(Clone, Debug)]
pub struct Dataset {
    description: String,
    inputs: Arc<HostArray>,
    targets: Arc<HostArray>,
    class_names: Arc<[String]>,
    /// The rows of this dataset, in order; `None` means all.
    rows: Option<Arc<[usize]>>,
    normalization: Option<Arc<Normalization>>,
    target_normalization: Option<Arc<Normalization>>,
    columns: Option<Arc<Columns>>,
}

/// The columns of the table that a dataset was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// The feature names in order, or their numbers from 1 if the table has no header.
    pub features: Vec<String>,
    /// The name of the label column, or its number.
    pub label: String,
    /// Whether the table has a header.
    pub named: bool,
    /// The line number in the file of each stored row, from 1.
    pub lines: Vec<u64>,
}

/// How inputs are normalised: `(value * scale - mean) / std`, with a mean and std per channel.
///
/// The channel is the second axis of inputs with at least three axes (images: `[n, channel, height, width]`), and the
/// feature of `[n, features]`. A single mean and std apply to all channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// Multiplies the stored values first, for example 1/255 for bytes.
    pub scale: f32,
    /// The mean of each channel, after scaling.
    pub mean: Vec<f32>,
    /// The standard deviation of each channel, after scaling; never 0.
    pub std: Vec<f32>,
}

impl Normalization {
    /// Scales without shifting.
    pub fn scale(scale: f32) -> Normalization {
        Normalization { scale, mean: vec![0.0], std: vec![1.0] }
    }

    /// Normalises rows of inputs. Returns `float32` of the same shape.
    ///
    /// # Errors
    /// If the number of channels does not match.
    pub fn apply(&self, inputs: &HostArray) -> Result<HostArray> {
        let (channels, inner) = channels(inputs.shape());
        let count = self.mean.len();
        if count != self.std.len() || (count != 1 && count != channels) {
            return Err(Error::data(
                "normalization",
                format!(
                    "{count} means and {} deviations do not match inputs with {channels} channels",
                    self.std.len()
                ),
            ));
        }
        let mut values = match inputs.dtype() {
            DType::U8 => inputs.bytes().iter().map(|&byte| f32::from(byte)).collect(),
            _ => inputs.cast(DType::F32).to_vec::<f32>()?,
        };
        for (index, block) in values.chunks_mut(inner.max(1)).enumerate() {
            let channel = if count == 1 { 0 } else { index % channels };
            let (mean, std) = (self.mean[channel], self.std[channel]);
            if (mean, std) == (0.0, 1.0) {
                block.iter_mut().for_each(|value| *value *= self.scale);
            } else {
                block.iter_mut().for_each(|value| *value = (*value * self.scale - mean) / std);
            }
        }
        HostArray::from_values(inputs.shape(), &values)
    }
}

/// The number of channels, and the number of consecutive values of one channel in a row.
fn channels(shape: &[usize]) -> (usize, usize) {
    match shape {
        [_, channels, inner @ ..] => (*channels, inner.iter().product()),
        _ => (1, 1),
    }
}

impl Dataset {
    /// Creates a classification dataset. `labels` is `int64 [n]` with values from 0 to `class_names.len() - 1`.
    ///
    /// # Errors
    /// If the numbers of inputs and labels differ, or a label is out of range.
    pub fn classes(
        description: impl Into<String>,
        inputs: HostArray,
        labels: HostArray,
        class_names: Vec<String>,
    ) -> Result<Dataset> {
        let description = description.into();
        if labels.shape().len() != 1 {
            return Err(Error::data(
                description,
                format!("labels must have one axis, got shape {:?}", labels.shape()),
            ));
        }
        let out_of_range =
            |&(_, label): &(usize, i64)| usize::try_from(label).is_ok_and(|l| l < class_names.len());
        let values = labels.to_vec::<i64>()?;
        if let Some((row, label)) = values.into_iter().enumerate().find(|item| !out_of_range(item)) {
            let most = class_names.len() as i64 - 1;
            return Err(Error::data(
                description,
                format!("row {row} has label {label}, outside 0 to {most}"),
            ));
        }
        Dataset::new(description, inputs, labels, class_names)
    }

    /// Creates a regression dataset. `targets` is a float array with one row per input.
    ///
    /// # Errors
    /// If the numbers of inputs and targets differ, or the targets are not floats.
    pub fn regression(
        description: impl Into<String>,
        inputs: HostArray,
        targets: HostArray,
    ) -> Result<Dataset> {
        if !targets.dtype().is_float() {
            let error =
                phynexus::Error::dtype("Dataset::regression", &[targets.dtype()], "targets must be floats");
            return Err(error.into());
        }
        Dataset::new(description.into(), inputs, targets, Vec::new())
    }

    fn new(
        description: String,
        inputs: HostArray,
        targets: HostArray,
        class_names: Vec<String>,
    ) -> Result<Dataset> {
        let (input_shape, target_shape) = (inputs.shape(), targets.shape());
        if input_shape.is_empty() || target_shape.is_empty() || input_shape[0] != target_shape[0] {
            return Err(Error::data(
                description,
                format!("inputs {input_shape:?} and targets {target_shape:?} differ in their number of rows"),
            ));
        }
        Ok(Dataset {
            description,
            inputs: Arc::new(inputs),
            targets: Arc::new(targets),
            class_names: class_names.into(),
            rows: None,
            normalization: None,
            target_normalization: None,
            columns: None,
        })
    }

    /// Replaces the normalisation of the inputs.
    #[must_use]
    pub fn with_normalization(mut self, normalization: Normalization) -> Dataset {
        self.normalization = Some(Arc::new(normalization));
        self
    }

    /// Sets the normalisation of the targets: batches contain `(target - mean) / std`, so that training does not depend
    /// on the targets' scale. Predictions are converted back by `value * std + mean`.
    #[must_use]
    pub fn with_target_normalization(mut self, normalization: Normalization) -> Dataset {
        self.target_normalization = Some(Arc::new(normalization));
        self
    }

    /// Sets the columns of the table that the data comes from.
    #[must_use]
    pub fn with_columns(mut self, columns: Columns) -> Dataset {
        self.columns = Some(Arc::new(columns));
        self
    }

    /// The columns of the table that the data comes from, if it does.
    pub fn columns(&self) -> Option<&Columns> {
        self.columns.as_deref()
    }

    /// The line number, from 1, of a row in the table that it comes from.
    pub fn source_line(&self, index: usize) -> Option<u64> {
        self.columns.as_ref()?.lines.get(self.stored_row(index).ok()?).copied()
    }

    /// A description for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.as_ref().map_or(self.inputs.rows(), |rows| rows.len())
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The array of all inputs as read. Parts of a split share it; use [`Dataset::batch`] or [`Dataset::all`] to get
    /// the rows of this part.
    pub fn stored_inputs(&self) -> &HostArray {
        &self.inputs
    }

    /// The array of all targets as read: `int64 [n]` labels, or floats. Shared like [`Dataset::stored_inputs`].
    pub fn stored_targets(&self) -> &HostArray {
        &self.targets
    }

    /// The shape of one input.
    pub fn input_shape(&self) -> &[usize] {
        &self.inputs.shape()[1..]
    }

    /// The names of the classes; empty for regression.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// How inputs are normalised in batches.
    pub fn normalization(&self) -> Option<&Normalization> {
        self.normalization.as_deref()
    }

    /// How targets are normalised in batches.
    pub fn target_normalization(&self) -> Option<&Normalization> {
        self.target_normalization.as_deref()
    }

    /// The inputs and targets of the rows with these indices. If the dataset has a normalisation, they are normalised
    /// `float32`.
    ///
    /// # Errors
    /// If an index is out of range.
    pub fn batch(&self, indices: &[usize]) -> Result<Batch> {
        let stored = indices.iter().map(|&index| self.stored_row(index)).collect::<Result<Vec<usize>>>()?;
        let inputs = self.inputs.take_rows(&stored)?;
        let inputs = match &self.normalization {
            Some(normalization) => normalization.apply(&inputs)?,
            None => inputs,
        };
        let targets = self.targets.take_rows(&stored)?;
        let targets = match &self.target_normalization {
            Some(normalization) => normalization.apply(&targets)?,
            None => targets,
        };
        Ok(Batch { inputs, targets, indices: indices.to_vec() })
    }

    /// The inputs of the rows with these indices as read, without normalisation.
    ///
    /// # Errors
    /// If an index is out of range.
    pub fn as_stored(&self, indices: &[usize]) -> Result<HostArray> {
        let stored = indices.iter().map(|&index| self.stored_row(index)).collect::<Result<Vec<usize>>>()?;
        self.inputs.take_rows(&stored)
    }

    /// All rows in order, as one batch.
    ///
    /// # Errors
    /// If the normalisation does not match the inputs.
    pub fn all(&self) -> Result<Batch> {
        self.batch(&(0..self.len()).collect::<Vec<_>>())
    }

    /// Splits into the first `count` rows and the rest.
    ///
    /// # Errors
    /// If there are fewer rows than `count`.
    pub fn split_at(&self, count: usize) -> Result<(Dataset, Dataset)> {
        if count > self.len() {
            let message = format!("cannot split {count} rows off {} rows", self.len());
            return Err(Error::data(self.description.clone(), message));
        }
        let rows = self.stored_rows();
        Ok((self.part(&rows[..count]), self.part(&rows[count..])))
    }

    /// The same rows in the order of [`epoch_order`] with this seed at epoch 0.
    #[must_use]
    pub fn shuffled(&self, seed: u64) -> Dataset {
        let rows = self.stored_rows();
        let order: Vec<usize> =
            epoch_order(seed, 0, rows.len()).into_iter().map(|index| rows[index]).collect();
        self.part(&order)
    }

    /// Shuffles the rows by a seed and splits off a fraction, such as 0.2 for testing. Of `n` rows, `n * share` rounded
    /// to the nearest integer are in the second part.
    ///
    /// # Errors
    /// If the share is not between 0 and 1.
    pub fn split_off(&self, share: f64, seed: u64) -> Result<(Dataset, Dataset)> {
        if !(0.0..=1.0).contains(&share) {
            let message = format!("the share must be between 0 and 1, got {share}");
            return Err(Error::data(self.description.clone(), message));
        }
        let taken = (self.len() as f64 * share).round() as usize;
        self.shuffled(seed).split_at(self.len() - taken)
    }

    /// The mean and standard deviation of each channel of these rows after scaling, computed in float64, for
    /// [`Dataset::with_normalization`]. A constant channel gets a standard deviation of 1.
    ///
    /// # Errors
    /// If there are no rows, or a value is not finite.
    pub fn statistics(&self, scale: f32) -> Result<Normalization> {
        self.measure(&self.inputs, scale)
    }

    /// The mean and standard deviation of the targets of these rows, for [`Dataset::with_target_normalization`]. See
    /// [`Dataset::statistics`].
    ///
    /// # Errors
    /// If there are no rows, or a target is not finite.
    pub fn target_statistics(&self) -> Result<Normalization> {
        self.measure(&self.targets, 1.0)
    }

    fn measure(&self, array: &HostArray, scale: f32) -> Result<Normalization> {
        let (channels, inner) = channels(array.shape());
        let (mut count, mut mean, mut squares) = (0.0f64, vec![0.0f64; channels], vec![0.0f64; channels]);
        let rows = self.stored_rows();
        for block in rows.chunks(256) {
            let values = Normalization::scale(scale).apply(&array.take_rows(block)?)?.to_vec::<f32>()?;
            // Welford's update, one channel of a row at a time: its sum and its squared distance from its own mean.
            for row in values.chunks((channels * inner).max(1)) {
                let added = inner as f64;
                for (channel, part) in row.chunks(inner.max(1)).enumerate() {
                    let part_mean = part.iter().map(|&x| f64::from(x)).sum::<f64>() / added;
                    let part_squares: f64 = part.iter().map(|&x| (f64::from(x) - part_mean).powi(2)).sum();
                    let delta = part_mean - mean[channel];
                    squares[channel] += part_squares + delta * delta * count * added / (count + added);
                    mean[channel] += delta * added / (count + added);
                }
                count += added;
            }
        }
        if count == 0.0 || mean.iter().chain(&squares).any(|x| !x.is_finite()) {
            let message = "statistics need at least one row, and finite values only".to_owned();
            return Err(Error::data(self.description.clone(), message));
        }
        let deviation = |sum: f64| if sum > 0.0 { (sum / count).sqrt() as f32 } else { 1.0 };
        Ok(Normalization {
            scale,
            mean: mean.iter().map(|&m| m as f32).collect(),
            std: squares.into_iter().map(deviation).map(|std| if std > 0.0 { std } else { 1.0 }).collect(),
        })
    }

    /// The number of rows of each class, in the order of [`Dataset::class_names`].
    ///
    /// # Errors
    /// None in practice: the labels were checked when the dataset was created.
    pub fn class_counts(&self) -> Result<Vec<usize>> {
        let mut counts = vec![0; self.class_names.len()];
        for row in self.stored_rows() {
            if let Scalar::Int(label) = self.targets.scalar(row)?
                && let Some(count) = usize::try_from(label).ok().and_then(|label| counts.get_mut(label))
            {
                *count += 1;
            }
        }
        Ok(counts)
    }

    fn stored_row(&self, index: usize) -> Result<usize> {
        let found = match &self.rows {
            Some(rows) => rows.get(index).copied(),
            None => (index < self.inputs.rows()).then_some(index),
        };
        let (index, size) = (index as i64, self.len());
        found
            .ok_or_else(|| phynexus::Error::Index { op: "Dataset::batch", index, size, axis: Some(0) }.into())
    }

    fn stored_rows(&self) -> Vec<usize> {
        self.rows.as_ref().map_or_else(|| (0..self.inputs.rows()).collect(), |rows| rows.to_vec())
    }

    fn part(&self, rows: &[usize]) -> Dataset {
        Dataset { rows: Some(rows.into()), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Result<Dataset> {
        let inputs = HostArray::from_values(&[4, 2, 1, 2], &(0..16).map(|i| i as u8).collect::<Vec<_>>())?;
        let labels = HostArray::from_values(&[4], &[0i64, 1, 1, 0])?;
        Dataset::classes("sample", inputs, labels, vec!["a".into(), "b".into()])
    }

    #[test]
    fn labels_out_of_range_are_errors_that_name_the_row() -> Result<()> {
        for label in [-1i64, 2] {
            let inputs = HostArray::from_values(&[2, 1], &[0f32, 1.0])?;
            let labels = HostArray::from_values(&[2], &[1, label])?;
            let result = Dataset::classes("sample", inputs, labels, vec!["a".into(), "b".into()]);
            let message = result.err().map(|e| e.to_string()).unwrap_or_default();
            assert_eq!(message, format!("sample: row 1 has label {label}, outside 0 to 1"));
        }
        let (three, two) =
            (HostArray::from_values(&[3], &[0f32; 3])?, HostArray::from_values(&[2], &[0f32; 2])?);
        assert!(Dataset::regression("x", three.clone(), two).is_err());
        assert!(Dataset::regression("x", three.clone(), three.cast(DType::I32)).is_err());
        Ok(())
    }

    #[test]
    fn splits_are_disjoint_complete_and_repeatable() -> Result<()> {
        let data = sample()?;
        let (train, test) = data.split_off(0.25, 5)?;
        assert_eq!((train.len(), test.len()), (3, 1));
        let mut seen = train.batch(&[0, 1, 2])?.inputs.bytes().to_vec();
        seen.extend_from_slice(test.batch(&[0])?.inputs.bytes());
        seen.sort_unstable();
        assert_eq!(seen, (0..16).collect::<Vec<u8>>());
        let again = data.split_off(0.25, 5)?.1;
        assert_eq!(again.batch(&[0])?.inputs, test.batch(&[0])?.inputs);
        assert!(train.batch(&[3]).is_err() && data.batch(&[4]).is_err());
        assert!(data.split_off(1.5, 0).is_err() && data.split_at(5).is_err());
        assert!(data.split_off(f64::NAN, 0).is_err());
        assert_eq!(train.class_counts()?.iter().sum::<usize>(), 3);
        assert!(data.split_off(0.0, 0)?.1.is_empty());
        Ok(())
    }

    #[test]
    fn targets_are_normalized_in_batches_alone() -> Result<()> {
        let targets = HostArray::from_values(&[3, 1], &[100_000f32, 300_000.0, 500_000.0])?;
        let data = Dataset::regression("prices", targets.clone(), targets.clone())?;
        let statistics = data.target_statistics()?;
        // The variance of -200000, 0 and 200000 is 8e10 / 3, by hand.
        assert_eq!(statistics.mean, [300_000.0]);
        assert!((f64::from(statistics.std[0]) - (8e10f64 / 3.0).sqrt()).abs() < 0.1, "{statistics:?}");
        let data = data.with_target_normalization(statistics);
        let batch = data.batch(&[2, 1])?.targets.to_vec::<f32>()?;
        assert!((f64::from(batch[0]) - 1.5f64.sqrt()).abs() < 1e-6 && batch[1] == 0.0, "{batch:?}");
        assert_eq!(*data.stored_targets(), targets);
        Ok(())
    }

    #[test]
    fn statistics_normalize_to_mean_zero_and_deviation_one() -> Result<()> {
        let data = sample()?;
        let statistics = data.statistics(0.5)?;
        // Channel 0 holds 0, 1, 4, 5, 8, 9, 12, 13 and channel 1 two more each: the variance is 20.25, by hand.
        assert_eq!(statistics.mean, [3.25, 4.25]);
        assert!(
            statistics.std.iter().all(|&std| (std - 20.25f32.sqrt() / 2.0).abs() < 1e-6),
            "{statistics:?}"
        );
        let again = data.with_normalization(statistics).all()?.inputs;
        let values = again.to_vec::<f32>()?;
        let mean: f32 = values.iter().sum::<f32>() / 16.0;
        assert!(mean.abs() < 1e-6 && (values[0] + 3.25 / 2.25).abs() < 1e-6);
        let constant = HostArray::from_values(&[2, 1], &[3f32, 3.0])?;
        let data = Dataset::regression("constant", constant.clone(), constant)?;
        assert_eq!(data.statistics(1.0)?.std, [1.0]);
        assert!(data.split_at(0)?.0.statistics(1.0).is_err());
        let nan = HostArray::from_values(&[1, 1], &[f32::NAN])?;
        assert!(Dataset::regression("nan", nan.clone(), nan)?.statistics(1.0).is_err());
        Ok(())
    }
}
