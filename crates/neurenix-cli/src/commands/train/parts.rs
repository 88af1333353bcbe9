//! The data of a run in their parts.

use neurenix::{
    Error, Result,
    data::{self, CsvOptions, CsvTask, Dataset},
};

use super::super::run_folder::label_column;
use super::settings::{Settings, Source};

/// A data set in parts: to learn from, to watch progress and decide when to stop, and to judge the result once.
pub(super) struct Parts {
    pub(super) training: Dataset,
    pub(super) validation: Dataset,
    pub(super) test: Dataset,
}

/// One training sample in this many is kept for validation.
const VALIDATION_SHARE: usize = 10;
/// The share of a table's rows that is kept for testing.
const TEST_SHARE: f64 = 0.2;
/// A row for each part.
const FEWEST_ROWS: usize = 3;

impl Parts {
    /// Reads the data and splits them. What is standardised is measured on the training rows alone: nothing of the
    /// other rows may reach the network.
    pub(super) fn load(settings: &Settings) -> Result<Parts> {
        let path = || {
            settings.path.as_deref().ok_or_else(|| {
                Error::data("--path", "these data are not bundled: name the file or folder that holds them")
            })
        };
        let source = settings.source()?;
        let (learnt, test) = match source {
            Source::Digits => data::digits_split()?,
            Source::Mnist => data::mnist(path()?)?,
            Source::Cifar10 => data::cifar10(path()?)?,
            Source::Csv => {
                let task = if settings.regression { CsvTask::Regression } else { CsvTask::Detect };
                let label = label_column(settings.label.as_deref());
                let delimiter = settings.delimiter();
                let options = CsvOptions { task, label, delimiter, ..CsvOptions::default() };
                let table = data::read_csv(path()?, &options)?;
                check_table(&table)?;
                table.split_off(TEST_SHARE, settings.seed)?
            }
        };
        if learnt.input_shape() != test.input_shape() {
            let message = format!(
                "training inputs have shape {:?} and test inputs {:?}: these files do not belong together",
                learnt.input_shape(),
                test.input_shape()
            );
            return Err(Error::data(learnt.description(), message));
        }
        let validation = (learnt.len() / VALIDATION_SHARE).max(1);
        let count = learnt.len().saturating_sub(validation);
        let (training, validation) = learnt.shuffled(data::DIGITS_SPLIT_SEED).split_at(count)?;
        let parts = Parts { training, validation, test };
        if source == Source::Csv { parts.standardized() } else { Ok(parts) }
    }

    fn standardized(self) -> Result<Parts> {
        let inputs = self.training.statistics(1.0)?;
        let targets = match self.training.class_names().is_empty() {
            true => Some(self.training.target_statistics()?),
            false => None,
        };
        let standardized = |part: Dataset| {
            let part = part.with_normalization(inputs.clone());
            match &targets {
                Some(targets) => part.with_target_normalization(targets.clone()),
                None => part,
            }
        };
        Ok(Parts {
            training: standardized(self.training),
            validation: standardized(self.validation),
            test: standardized(self.test),
        })
    }
}

fn check_table(table: &Dataset) -> Result<()> {
    if let [class] = table.class_names() {
        let message = format!("every row has the same class, {class}: there is nothing to tell apart");
        return Err(Error::data(table.description(), message));
    }
    if table.len() < FEWEST_ROWS {
        let message = format!(
            "{} rows are too few for training, validation and test: at least {FEWEST_ROWS} are needed",
            table.len()
        );
        return Err(Error::data(table.description(), message));
    }
    Ok(())
}
