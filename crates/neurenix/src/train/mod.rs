//! The training loop.

mod checkpoint;
mod history;
mod objective;

use std::{path::PathBuf, time::Instant};

use phynexus::{
    Device, Tensor, no_grad,
    tensor::{Generator, GeneratorState},
};

pub use checkpoint::{
    Progress, load_checkpoint, load_model, save_checkpoint, save_model, to_arrays, to_tensors,
};
pub use history::{EpochRecord, History};
pub use objective::Objective;

use crate::{
    Error, Result,
    data::{BatchOptions, Batches, Dataset},
    nn::Module,
    optim::{Optimizer, Schedule, clip_gradient_norm},
};

/// How to train.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Passes over the training data.
    pub epochs: usize,
    /// Rows of a batch.
    pub batch_size: usize,
    /// The seed of the order of batches and of dropout.
    pub seed: u64,
    /// How the learning rate changes.
    pub schedule: Schedule,
    /// Gradients longer than this (their joint Euclidean norm) are shortened to it.
    pub clip_norm: Option<f64>,
    /// Stops after this many epochs without a better validation loss.
    pub patience: Option<usize>,
    /// Where to write a checkpoint after each epoch, and when interrupted.
    pub checkpoint: Option<PathBuf>,
    /// The run's settings as the caller words them, kept in the checkpoint.
    pub settings: serde_json::Value,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            epochs: 10,
            batch_size: 64,
            seed: 0,
            schedule: Schedule::Constant,
            clip_norm: None,
            patience: None,
            checkpoint: None,
            settings: serde_json::Value::Null,
        }
    }
}

/// What an observer is told after each step.
#[derive(Clone, Copy, Debug)]
pub struct StepReport {
    /// The epoch, from 1.
    pub epoch: usize,
    /// The batch within the epoch, from 1.
    pub batch: usize,
    /// Batches of the epoch.
    pub batches: usize,
    /// Mean loss over the epoch so far.
    pub loss: f64,
    /// Accuracy over the epoch so far.
    pub accuracy: Option<f64>,
}

/// Told how training goes; can stop it.
pub trait Observer {
    /// After each step. `false` stops the run: a checkpoint is written if the options name a place for it.
    fn step(&mut self, report: &StepReport) -> bool {
        let _ = report;
        true
    }
    /// After each epoch.
    fn epoch(&mut self, record: &EpochRecord) {
        let _ = record;
    }
}

/// An observer that only listens.
#[derive(Debug, Default)]
pub struct Silent;
impl Observer for Silent {}

/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All epochs are done.
    Finished,
    /// The validation loss did not improve for as long as the options allow.
    EarlyStop,
    /// The observer stopped it.
    Interrupted,
}

/// A model in training.
pub struct Trainer<'a> {
    /// The network.
    pub model: &'a dyn Module,
    /// Its optimiser.
    pub optimizer: Optimizer,
    /// What is minimised.
    pub objective: Objective,
    /// Random numbers of dropout.
    pub generator: &'a Generator,
    /// Where it runs.
    pub device: Device,
    /// How.
    pub options: TrainOptions,
    progress: Progress,
}

/// Loss and accuracy over a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean loss a row.
    pub loss: f64,
    /// Share of rows classified correctly; absent for regression.
    pub accuracy: Option<f64>,
}

impl<'a> Trainer<'a> {
    /// A run that has not begun.
    pub fn new(
        model: &'a dyn Module,
        optimizer: Optimizer,
        objective: Objective,
        generator: &'a Generator,
        device: Device,
        options: TrainOptions,
    ) -> Trainer<'a> {
        Trainer { model, optimizer, objective, generator, device, options, progress: Progress::default() }
    }

    /// Continues from a checkpoint: the same steps follow as if the run had not been interrupted.
    pub fn resume(&mut self, path: &std::path::Path) -> Result<()> {
        let progress = load_checkpoint(path, self.model, &mut self.optimizer, self.device)?;
        if progress.settings != self.options.settings {
            let message = format!(
                "its run had other settings: {} there, {} here; resume with the same settings or start anew",
                progress.settings, self.options.settings
            );
            return Err(Error::format(path, "checkpoint", crate::error::Place::Whole, message));
        }
        let (seed, counter) = progress.generator;
        self.generator.set_state(GeneratorState { seed, counter });
        self.progress = progress;
        Ok(())
    }

    /// What was measured so far.
    pub fn history(&self) -> &History {
        &self.progress.history
    }

    /// Trains to the end, or until the observer stops it.
    ///
    /// # Errors
    /// Data that do not fit the network; a loss that is not a number (the error names the step and the tensor); files
    /// that cannot be written.
    pub fn run(
        &mut self,
        training: &Dataset,
        validation: Option<&Dataset>,
        observer: &mut dyn Observer,
    ) -> Result<Ending> {
        if training.is_empty() {
            return Err(Error::data("training data", "there are no rows"));
        }
        while self.progress.epochs_done < self.options.epochs {
            let started = Instant::now();
            if !self.epoch(training, observer)? {
                self.checkpoint()?;
                return Ok(Ending::Interrupted);
            }
            let evaluation = validation.map(|data| self.evaluate(data)).transpose()?;
            let done = &mut self.progress;
            let record = EpochRecord {
                epoch: done.epochs_done + 1,
                steps: done.steps,
                learning_rate: self.optimizer.learning_rate(),
                train_loss: done.loss_sum / done.rows as f64,
                train_accuracy: matches!(self.objective, Objective::Classification { .. })
                    .then(|| done.correct as f64 / done.rows as f64),
                validation_loss: evaluation.map(|e| e.loss),
                validation_accuracy: evaluation.and_then(|e| e.accuracy),
                seconds: started.elapsed().as_secs_f64(),
            };
            let score = record.validation_loss.unwrap_or(record.train_loss);
            let improved = done.best.is_none_or(|(best, _)| score < best);
            done.best = match done.best {
                Some((best, since)) if !improved => Some((best, since + 1)),
                _ => Some((score, 0)),
            };
            observer.epoch(&record);
            done.history.epochs.push(record);
            done.epochs_done += 1;
            (done.batches_done, done.loss_sum, done.correct, done.rows) = (0, 0.0, 0, 0);
            let waited = done.best.map_or(0, |(_, since)| since);
            let rate = self.optimizer.learning_rate();
            let rate = self.options.schedule.after_epoch(rate, waited);
            self.optimizer.set_learning_rate(rate)?;
            self.checkpoint()?;
            if self.options.patience.is_some_and(|patience| waited >= patience) {
                return Ok(Ending::EarlyStop);
            }
        }
        Ok(Ending::Finished)
    }

    /// The rest of an epoch; `false` if the observer stopped it.
    fn epoch(&mut self, training: &Dataset, observer: &mut dyn Observer) -> Result<bool> {
        self.model.train(true);
        let options = BatchOptions {
            batch_size: self.options.batch_size,
            shuffle_seed: Some(self.options.seed),
            epoch: self.progress.epochs_done as u64,
            skip: self.progress.batches_done,
            ..BatchOptions::default()
        };
        let batches = training.len().div_ceil(self.options.batch_size.max(1));
        let total_steps = (batches * self.options.epochs) as u64;
        for batch in Batches::new(training, &options)? {
            let batch = batch?;
            let (inputs, targets) = objective::to_device(&batch, self.device)?;
            if let Some(rate) = self.options.schedule.at_step(self.progress.steps, total_steps) {
                self.optimizer.set_learning_rate(rate)?;
            }
            let (loss, correct) = self.step(&inputs, &targets)?;
            let rows = batch.indices.len() as u64;
            let done = &mut self.progress;
            done.steps += 1;
            done.batches_done += 1;
            done.rows += rows;
            done.loss_sum += loss * rows as f64;
            done.correct += correct.unwrap_or(0);
            let report = StepReport {
                epoch: done.epochs_done + 1,
                batch: done.batches_done,
                batches,
                loss: done.loss_sum / done.rows as f64,
                accuracy: correct.map(|_| done.correct as f64 / done.rows as f64),
            };
            if !observer.step(&report) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn step(&mut self, inputs: &Tensor, targets: &Tensor) -> Result<(f64, Option<u64>)> {
        let outputs = self.model.forward(inputs)?;
        let loss = self.objective.loss(&outputs, targets)?;
        let correct = self.objective.correct(&outputs, targets)?;
        drop(outputs);
        let mut gradients = loss.leaf_gradients()?;
        if let Some(limit) = self.options.clip_norm {
            gradients = clip_gradient_norm(gradients, limit)?;
        }
        let also: Vec<&Tensor> = [Some(&loss), correct.as_ref()].into_iter().flatten().collect();
        let before = self.progress.steps;
        self.optimizer.step(gradients, &also)?;
        let value = objective::scalar_value(&loss)?;
        if !value.is_finite() {
            let message = format!(
                "the loss became {value} at step {}: {}; lower the learning rate, clip gradients, or look for bad values in the data (the last checkpoint is as it was)",
                before + 1,
                self.first_bad_parameter()?
            );
            return Err(Error::data("training", message));
        }
        let correct = correct.map(|c| c.item::<i64>()).transpose()?;
        Ok((value, correct.map(|c| c as u64)))
    }

    /// Names the first parameter that is not finite.
    fn first_bad_parameter(&self) -> Result<String> {
        for (name, _, parameter) in self.model.named_state() {
            let tensor = parameter.tensor();
            if tensor.dtype().is_float() && !tensor.isfinite()?.all(&[], false)?.item::<bool>()? {
                return Ok(format!("parameter {name} holds values that are not finite"));
            }
        }
        Ok("every parameter is still finite, the loss itself is not".to_owned())
    }

    /// Loss and accuracy of the model over a data set, in inference mode.
    pub fn evaluate(&self, data: &Dataset) -> Result<Evaluation> {
        let _guard = no_grad();
        self.model.eval();
        let (mut loss_sum, mut hits, mut rows) = (0.0, None, 0usize);
        let options =
            BatchOptions { batch_size: self.options.batch_size.max(256), ..BatchOptions::default() };
        for batch in Batches::new(data, &options)? {
            let batch = batch?;
            let (inputs, targets) = objective::to_device(&batch, self.device)?;
            let outputs = self.model.forward(&inputs)?;
            let loss = self.objective.loss(&outputs, &targets)?;
            let correct = self.objective.correct(&outputs, &targets)?;
            loss.evaluate()?;
            loss_sum += objective::scalar_value(&loss)? * batch.indices.len() as f64;
            rows += batch.indices.len();
            if let Some(correct) = correct {
                *hits.get_or_insert(0) += correct.item::<i64>()?;
            }
        }
        let share = |hits: i64| hits as f64 / rows as f64;
        Ok(Evaluation { loss: loss_sum / rows as f64, accuracy: hits.map(share) })
    }

    fn checkpoint(&mut self) -> Result<()> {
        self.progress.learning_rate = self.optimizer.learning_rate();
        let state = self.generator.state();
        self.progress.generator = (state.seed, state.counter);
        self.progress.settings = self.options.settings.clone();
        match &self.options.checkpoint {
            Some(path) => save_checkpoint(path, self.model, &self.optimizer, &self.progress),
            None => Ok(()),
        }
    }
}
