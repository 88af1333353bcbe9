//! The training loop.

mod checkpoint;
mod early_stopping;
mod history;
mod hooks;
mod objective;
mod observer;
mod parallel;
mod recorded;
mod step;

use std::{collections::BTreeMap, ops::Range, path::PathBuf, sync::Arc, time::Instant};

use phynexus::{
    DType, Device, Tensor,
    distributed::Group,
    no_grad,
    tensor::{Generator, GeneratorState},
};

pub use checkpoint::{
    Checkpoint, Progress, load_model, read_checkpoint, save_checkpoint, save_model, to_arrays, to_tensors,
};
pub use early_stopping::EarlyStopping;
pub use history::{EpochRecord, History};
pub use hooks::{After, EpochBatches, Hooks, run};
pub use objective::Objective;
pub use observer::{Observer, Silent, StepReport};
pub use recorded::{Recorded, Recordings, Replay};
pub use step::{NotFinite, Pass, Step, take_step};

use parallel::Parallel;
use step::Measured;

use crate::{
    Error, Result,
    data::{Batch, BatchOptions, Batches, Dataset},
    error::Location,
    nn::{Module, Parameter},
    optim::{Optimizer, Schedule},
};

/// How to train.
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Passes over the training data.
    pub epochs: usize,
    /// Rows per batch.
    pub batch_size: usize,
    /// Batches per step. Their gradients are averaged over all rows, as if they were one batch.
    pub accumulate: usize,
    /// The seed of the order of rows.
    pub seed: u64,
    /// The schedule of the learning rate.
    pub schedule: Schedule,
    /// The limit to which gradients are scaled down if their joint Euclidean norm exceeds it.
    pub clip_norm: Option<f64>,
    /// Records a step for each shape of its batch and replays it, which costs less and computes the same. The model's
    /// code runs only while a step is recorded, so what it computes must depend on nothing that changes but its input,
    /// parameters, buffers, modes and random generators. The layers of [`nn`](crate::nn) are such models. A model that
    /// reads values of tensors, copies between devices, or sets the state of a generator cannot be recorded. At most 16
    /// shapes are kept. Steps run as they are until every parameter has had a gradient.
    pub replay: bool,
    /// Stops after this many epochs without a better validation loss. The state of the best epoch is kept for
    /// [`Trainer::restore_best`].
    pub patience: Option<usize>,
    /// The file for a checkpoint after each epoch, and after an interruption.
    pub checkpoint: Option<PathBuf>,
    /// The caller's settings of the run. They are kept in the checkpoint.
    pub settings: serde_json::Value,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            epochs: 10,
            batch_size: 64,
            accumulate: 1,
            seed: 0,
            schedule: Schedule::Constant,
            clip_norm: None,
            replay: false,
            patience: None,
            checkpoint: None,
            settings: serde_json::Value::Null,
        }
    }
}

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
    /// Random numbers for dropout.
    pub generator: &'a Generator,
    /// Where it runs.
    pub device: Device,
    /// How to train.
    pub options: TrainOptions,
    progress: Progress,
    /// With `patience`, the model's state after the best epoch.
    best: Option<BTreeMap<String, Tensor>>,
    /// The processes that train together.
    group: Option<Arc<Group>>,
}

/// The loss and accuracy over a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss per row.
    pub loss: f64,
    /// The share of correctly classified rows; absent for regression.
    pub accuracy: Option<f64>,
}

impl<'a> Trainer<'a> {
    /// A new run.
    pub fn new(
        model: &'a dyn Module,
        optimizer: Optimizer,
        objective: Objective,
        generator: &'a Generator,
        device: Device,
        options: TrainOptions,
    ) -> Trainer<'a> {
        let progress = Progress::default();
        Trainer { model, optimizer, objective, generator, device, options, progress, best: None, group: None }
    }

    /// Trains together with the other ranks of a group, each of which does the same: a batch is divided among them, and
    /// the losses are those of whole batches. The model becomes that of rank 0. Batch normalisation uses the statistics
    /// of a rank's rows; the running ones are those of rank 0. If it needs more than one row, ranks that would get one
    /// leave a small batch to others. Rank 0 writes the checkpoints, and all ranks stop if one is told to.
    #[must_use]
    pub fn with_group(mut self, group: Arc<Group>) -> Trainer<'a> {
        self.group = Some(group);
        self
    }

    /// Continues from a checkpoint. The same steps follow as if the run had not been interrupted, bit for bit; only the
    /// seconds differ.
    ///
    /// # Errors
    /// If the file cannot be read or is corrupt, or the checkpoint belongs to another model, optimiser or run. Nothing
    /// changes then.
    pub fn resume(&mut self, path: &std::path::Path) -> Result<()> {
        let mut checkpoint = read_checkpoint(path, self.device)?;
        let best = checkpoint.best.take();
        let settings = &checkpoint.progress.settings;
        if *settings != self.options.settings {
            let message = format!(
                "its run had other settings: {settings} in the checkpoint, {} in this run; resume with the same settings or start a new run",
                self.options.settings
            );
            return Err(Error::format(path, "checkpoint", Location::Whole, message));
        }
        self.progress = checkpoint.restore(self.model, &mut self.optimizer)?;
        self.best = best;
        let state = |(seed, counter)| GeneratorState { seed, counter };
        self.generator.set_state(state(self.progress.generator));
        Generator::default_generator().set_state(state(self.progress.default_generator));
        Ok(())
    }

    /// The measurements so far.
    pub fn history(&self) -> &History {
        &self.progress.history
    }

    /// Restores the parameters and buffers of the best epoch ([`History::best`]) and returns that epoch. `None` without
    /// [`TrainOptions::patience`], as nothing was kept.
    ///
    /// A run that continues afterwards continues from that state. A run that is resumed continues from the last epoch,
    /// which the checkpoint holds too.
    ///
    /// # Errors
    /// If the best state, from a checkpoint, does not fit the model.
    pub fn restore_best(&self) -> Result<Option<usize>> {
        let Some(best) = &self.best else { return Ok(None) };
        self.model.load_state(best)?;
        Ok(self.progress.history.best().map(|record| record.epoch))
    }

    /// Trains until the end, or until the observer stops it.
    ///
    /// If a loss is not finite, its step is not taken: the run ends with an error that names the step and the tensor.
    /// The model, the optimiser and the checkpoint on disk stay as they were before the step.
    ///
    /// # Errors
    /// Data that do not fit the network; a loss that is not finite; files that cannot be written.
    pub fn run(
        &mut self,
        training: &Dataset,
        validation: Option<&Dataset>,
        observer: &mut dyn Observer,
    ) -> Result<Ending> {
        if self.options.batch_size == 0 || self.options.accumulate == 0 {
            return Err(Error::data("training", "batch_size and accumulate must be at least 1"));
        }
        for data in std::iter::once(training).chain(validation) {
            self.check(data)?;
        }
        let batches = training.len().div_ceil(self.options.batch_size);
        if self.progress.batches_done > batches {
            let message = format!(
                "the run to resume had finished {} batches of its epoch, but these data have {batches}: resume with the same data",
                self.progress.batches_done
            );
            return Err(Error::data(training.description(), message));
        }
        let (epochs, accumulate) = (self.options.epochs, self.options.accumulate);
        let patience = self.options.patience.unwrap_or(usize::MAX);
        let mut stopping = EarlyStopping::new(patience, 0.0).resume(self.progress.best, self.progress.waited);
        let buffers = step::buffers(self.model);
        let (measured, started) = (Measured::default(), Instant::now());
        let recordings = self.options.replay.then(Recordings::default);
        let parallel = self.group.as_ref().map(|group| self.parallel(group, training)).transpose()?;
        let mut session = Session {
            parallel,
            trainer: self,
            training,
            validation,
            observer,
            batches,
            buffers,
            recordings,
            measured,
            started,
        };
        run(&mut session, epochs, accumulate, &mut stopping)
    }

    /// The run's part in data parallelism.
    fn parallel(&self, group: &Arc<Group>, training: &Dataset) -> Result<Parallel> {
        let [row, _] = self.upload(&training.batch(&[0])?, 0..1)?;
        let generators = [self.generator, Generator::default_generator()];
        Parallel::new(self.model, group, parallel::least_rows(self.model, &row, generators)?)
    }

    /// The share of the epoch's rows so far that were correctly classified; absent for regression.
    fn accuracy(&self) -> Option<f64> {
        let is_classifier = matches!(self.objective, Objective::Classification(_));
        is_classifier.then(|| self.progress.correct as f64 / self.progress.rows as f64)
    }

    /// The inputs and targets of rows of a batch on the device. Floats have the dtype of the parameters.
    fn upload(&self, batch: &Batch, rows: Range<usize>) -> Result<[Tensor; 2]> {
        let dtype = self.optimizer.parameters().next().map_or(DType::F32, |p| p.tensor().dtype());
        objective::to_device(batch, rows, dtype, self.device)
    }

    /// Checks that a data set fits the network, by recording a forward pass over some rows without computing it.
    ///
    /// # Errors
    /// If there are no rows, the network does not accept the inputs, or its outputs do not match the targets.
    pub fn check(&self, data: &Dataset) -> Result<()> {
        if data.is_empty() {
            return Err(Error::data(data.description(), "there are no rows"));
        }
        let _guard = no_grad();
        self.model.eval();
        let rows: Vec<usize> = (0..data.len().min(2)).collect();
        let [inputs, _] = self.upload(&data.batch(&rows)?, 0..rows.len())?;
        let outputs = self.model.forward(&inputs)?;
        self.objective.check(data, outputs.shape().get(1..).unwrap_or_default())
    }

    /// The loss and accuracy of the model over a data set. Leaves the model in inference mode.
    ///
    /// # Errors
    /// If there are no rows, or the data do not fit the network.
    pub fn evaluate(&self, data: &Dataset) -> Result<Evaluation> {
        self.check(data)?;
        let _guard = no_grad();
        let (mut loss_sum, mut hits, mut rows) = (0.0, None, 0usize);
        let options =
            BatchOptions { batch_size: self.options.batch_size.max(256), ..BatchOptions::default() };
        for batch in Batches::new(data, &options)? {
            let batch = batch?;
            let [inputs, targets] = self.upload(&batch, 0..batch.indices.len())?;
            let outputs = self.model.forward(&inputs)?;
            let loss = self.objective.loss(&outputs, &targets)?;
            let correct = self.objective.correct(&outputs, &targets)?;
            Tensor::evaluate_all(&std::iter::once(&loss).chain(&correct).collect::<Vec<_>>())?;
            loss_sum += objective::scalar_value(&loss)? * batch.indices.len() as f64;
            rows += batch.indices.len();
            if let Some(correct) = correct {
                *hits.get_or_insert(0) += correct.item::<i64>()?;
            }
        }
        let share = |hits: i64| hits as f64 / rows as f64;
        Ok(Evaluation { loss: loss_sum / rows as f64, accuracy: hits.map(share) })
    }

    /// Writes a checkpoint, if the options name a file for it.
    ///
    /// # Errors
    /// If a parameter is not finite, because its gradient was not although the loss was: the file stays as it was. If
    /// the file cannot be written.
    fn checkpoint(&mut self) -> Result<()> {
        self.progress.learning_rate = self.optimizer.learning_rate();
        let pair = |state: GeneratorState| (state.seed, state.counter);
        self.progress.generator = pair(self.generator.state());
        self.progress.default_generator = pair(Generator::default_generator().state());
        self.progress.settings = self.options.settings.clone();
        let Some(path) = &self.options.checkpoint else { return Ok(()) };
        if let Some(name) = step::not_finite(self.model)? {
            let message = format!(
                "after step {} parameter {name} is not finite because its gradient overflowed: lower the learning rate or clip gradients{}",
                self.progress.steps,
                self.kept()
            );
            return Err(Error::data("training", message));
        }
        save_checkpoint(path, self.model, &self.optimizer, &self.progress, self.best.as_ref())
    }

    /// The part of an error message about the checkpoint that is kept.
    fn kept(&self) -> &'static str {
        match &self.options.checkpoint {
            Some(path) if path.exists() => " (the last checkpoint is unchanged)",
            _ => "",
        }
    }
}

/// A trainer's run over data.
struct Session<'s, 't> {
    /// If several processes train together.
    parallel: Option<Parallel>,
    trainer: &'s mut Trainer<'t>,
    training: &'s Dataset,
    validation: Option<&'s Dataset>,
    observer: &'s mut dyn Observer,
    /// Batches of an epoch.
    batches: usize,
    buffers: Vec<Parameter>,
    /// If steps are replayed.
    recordings: Option<Recordings>,
    /// By the step under way.
    measured: Measured,
    /// When the epoch began, or was resumed.
    started: Instant,
}

impl Hooks for Session<'_, '_> {
    type Error = Error;
    type Batch = Batch;

    fn progress(&mut self) -> &mut Progress {
        &mut self.trainer.progress
    }

    fn begin_epoch(&mut self) -> Result<EpochBatches<Self>> {
        self.started = Instant::now();
        let Trainer { model, options, progress, .. } = &self.trainer;
        model.train(true);
        let options = BatchOptions {
            batch_size: options.batch_size,
            shuffle_seed: Some(options.seed),
            epoch: progress.epochs_done as u64,
            skip: progress.batches_done,
            ..BatchOptions::default()
        };
        Ok(Box::new(Batches::new(self.training, &options)?))
    }

    fn step(&mut self, batches: Vec<Batch>) -> Result<()> {
        let Trainer { options, optimizer, progress, .. } = &mut *self.trainer;
        let steps = self.batches.div_ceil(options.accumulate) as u64;
        if let Some(rate) = options.schedule.at_step(progress.steps, steps, options.epochs as u64) {
            optimizer.set_learning_rate(rate)?;
        }
        self.measured = Measured::default();
        let (generator, clip_norm) = (self.trainer.generator, self.trainer.options.clip_norm);
        take_step(self, &batches, &[generator, Generator::default_generator()], clip_norm)?;
        let (done, measured) = (&mut self.trainer.progress, &self.measured);
        done.rows += measured.rows;
        done.loss_sum += measured.loss_sum;
        done.correct += measured.correct;
        Ok(())
    }

    fn after_step(&mut self) -> Result<After> {
        let done = &self.trainer.progress;
        let report = StepReport {
            epoch: done.epochs_done + 1,
            batch: done.batches_done,
            batches: self.batches,
            loss: done.loss_sum / done.rows as f64,
            accuracy: self.trainer.accuracy(),
        };
        let stops = !self.observer.step(&report);
        // All ranks take the same steps.
        let stops = self.parallel.as_ref().map_or(Ok(stops), |parallel| parallel.any(stops))?;
        if !stops {
            return Ok(After::Next);
        }
        self.trainer.progress.seconds += self.started.elapsed().as_secs_f64();
        self.checkpoint()?;
        Ok(After::Interruption)
    }

    fn end_epoch(&mut self) -> Result<f64> {
        if let Some(parallel) = &self.parallel {
            parallel.share(&self.buffers)?;
        }
        let mut evaluation = self.validation.map(|data| self.trainer.evaluate(data)).transpose()?;
        if let (Some(parallel), Some(own)) = (&self.parallel, &mut evaluation) {
            // Ranks on other processors may differ in the last digit, and all must stop in the same epoch.
            let accuracy = own.accuracy.unwrap_or_default();
            let [loss, accuracy] = parallel.numbers_of_rank_0([own.loss.to_bits(), accuracy.to_bits()])?;
            own.loss = f64::from_bits(loss);
            own.accuracy = own.accuracy.map(|_| f64::from_bits(accuracy));
        }
        let done = &self.trainer.progress;
        let record = EpochRecord {
            epoch: done.epochs_done + 1,
            steps: done.steps,
            learning_rate: self.trainer.optimizer.learning_rate(),
            train_loss: done.loss_sum / done.rows as f64,
            train_accuracy: self.trainer.accuracy(),
            validation_loss: evaluation.map(|e| e.loss),
            validation_accuracy: evaluation.and_then(|e| e.accuracy),
            seconds: done.seconds + self.started.elapsed().as_secs_f64(),
        };
        let score = record.validation_loss.unwrap_or(record.train_loss);
        self.observer.epoch(&record);
        self.trainer.progress.history.epochs.push(record);
        // An infinite loss is no improvement for early stopping either.
        Ok(if score.is_finite() { score } else { f64::NAN })
    }

    fn after_epoch(&mut self, is_best: bool) -> Result<bool> {
        let Trainer { model, options, optimizer, progress, best, .. } = &mut *self.trainer;
        if is_best {
            *best = options.patience.map(|_| model.state());
        }
        let rate = options.schedule.after_epoch(optimizer.learning_rate(), progress.waited);
        optimizer.set_learning_rate(rate)?;
        self.checkpoint()?;
        Ok(true)
    }
}

impl Session<'_, '_> {
    /// Writes a checkpoint, which all ranks can read when this returns.
    fn checkpoint(&mut self) -> Result<()> {
        let Some(parallel) = &self.parallel else { return self.trainer.checkpoint() };
        // Ranks with other numbers of rows have drawn other numbers. A run that is resumed has those of rank 0.
        for generator in [self.trainer.generator, Generator::default_generator()] {
            let GeneratorState { seed, counter } = generator.state();
            let [seed, counter] = parallel.numbers_of_rank_0([seed, counter])?;
            generator.set_state(GeneratorState { seed, counter });
        }
        // The others learn of a failure by the rank's end.
        if parallel.writes() {
            self.trainer.checkpoint()?;
        }
        parallel.barrier()
    }
}
