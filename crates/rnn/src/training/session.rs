//! The hooks of a run in the framework's training loop.

use std::time::Instant;

use neurenix::{
    data::random::{RandomStream, epoch_order},
    nn::Parameter,
    optim::Optimizer,
    phynexus::Tensor,
    train::{After, EpochBatches, Hooks, Progress, Recordings, take_step},
};

use super::{
    LearningRateScheduler, TrainingCallback, TrainingHistory, TrainingState,
    direction::Direction,
    forward::Model,
    report::shown,
    run::{Epoch, Run},
    search::Searching,
    step::lost,
};
use crate::{NetworkError, Result, network::put};

/// A run in progress.
pub(super) struct Session<'a, 'c, 'd> {
    pub(super) run: &'a Run<'a>,
    pub(super) model: &'a Model<'a>,
    pub(super) optimizer: Optimizer,
    /// If steps are replayed.
    pub(super) recordings: Option<Recordings>,
    /// For an optimiser that does not follow the gradient itself.
    pub(super) direction: Option<Direction>,
    /// The norm that gradients are shortened to; a direction does this itself.
    pub(super) clip_norm: Option<f64>,
    /// The network's running statistics.
    pub(super) buffers: Vec<Parameter>,
    pub(super) scheduler: Option<LearningRateScheduler>,
    /// For a method that uses all rows at once: an iteration is a step, and an epoch.
    pub(super) searching: Option<Searching<'a>>,
    pub(super) callbacks: &'c mut [&'d mut dyn TrainingCallback],
    pub(super) progress: Progress,
    pub(super) state: TrainingState,
    /// Measurements of the current epoch.
    pub(super) done: Epoch,
    /// Random numbers for the current epoch's augmentation.
    pub(super) random: RandomStream,
    /// With early stopping, the weights and running statistics of the best epoch.
    pub(super) best: Vec<Tensor>,
    /// When the run began.
    pub(super) begun: Instant,
    /// When the epoch began.
    pub(super) started: Instant,
}

impl Session<'_, '_, '_> {
    fn tell(&mut self, of: impl Fn(&mut dyn TrainingCallback, &mut TrainingState)) {
        self.callbacks.iter_mut().for_each(|callback| of(*callback, &mut self.state));
    }

    /// Reports that the run begins.
    pub(super) fn begin(&mut self) {
        let Run { network, config, .. } = *self.run;
        if config.verbose && self.run.reports() {
            let (rows, device) = (self.run.data.inputs.rows(), self.run.place());
            println!("training {} parameters on {rows} rows, on {device}", network.parameter_count());
        }
        self.tell(|callback, _| callback.on_train_begin(config));
    }

    /// Ends the run. If it stopped early, the weights of the best epoch are restored.
    pub(super) fn finish(mut self, stopped_early: bool) -> Result<TrainingHistory> {
        let network = self.run.network;
        if stopped_early {
            let parameters = network.named_state().into_iter().map(|(_, _, parameter)| parameter);
            let values: Vec<(Parameter, Tensor)> = parameters
                .zip(&self.best)
                .map(|(parameter, value)| Ok((parameter, value.detach()?)))
                .collect::<Result<_>>()?;
            put(values)?;
        }
        network.set_training(false);
        // No loss is computed after the last step.
        if !network.is_finite()? {
            return Err(lost());
        }
        self.state.history.total_time = self.begun.elapsed();
        self.tell(|callback, state| callback.on_train_end(state));
        Ok(self.state.history)
    }
}

impl Hooks for Session<'_, '_, '_> {
    type Error = NetworkError;
    type Batch = Vec<usize>;

    fn progress(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn begin_epoch(&mut self) -> Result<EpochBatches<Self>> {
        let (run, epoch) = (self.run, self.progress.epochs_done);
        self.started = Instant::now();
        (self.state.epoch, self.state.batch) = (epoch, 0);
        self.tell(|callback, state| callback.on_epoch_begin(epoch, state));
        self.done = Epoch::default();
        self.random = RandomStream::new(run.seed, epoch as u64 + 1);
        run.network.set_training(self.searching.is_none());
        if let Some(twin) = &self.model.twin {
            twin.set_training(true);
        }
        let rows = run.data.inputs.rows();
        let batches = match (&self.searching, run.config.shuffle) {
            (Some(_), _) => vec![(0..rows).collect()],
            (None, true) => run.batches(&epoch_order(run.seed, epoch as u64, rows)),
            (None, false) => run.batches(&(0..rows).collect::<Vec<_>>()),
        };
        Ok(Box::new(batches.into_iter().map(Ok)))
    }

    fn step(&mut self, batches: Vec<Vec<usize>>) -> Result<()> {
        if let Some(scheduler) = &self.scheduler {
            self.optimizer.set_learning_rate(scheduler.get_lr())?;
        }
        let mut uploaded = Vec::with_capacity(batches.len());
        for (place, rows) in batches.iter().enumerate() {
            let number = self.state.batch + place;
            self.tell(|callback, state| callback.on_batch_begin(number, state));
            if self.searching.is_none() {
                uploaded.push(self.run.batch(rows, &mut self.random, self.model.generator)?);
            }
        }
        match &mut self.searching {
            Some(searching) => {
                let (measured, is_over) = searching.iterate(self.model.predicts)?;
                (self.done.loss_sum, self.done.mass, self.done.ended) = (measured.loss, 1.0, is_over);
                self.done.predictions = measured.predictions;
            }
            None => {
                let (network, model) = (self.run.network, self.model);
                let generators = [network.dropouts(), model.generator];
                if let Err(error) = take_step(self, &uploaded, &generators, self.clip_norm) {
                    return Err(if matches!(network.is_finite(), Ok(false)) { lost() } else { error });
                }
                self.run.config.regularization.limit_weights(network)?;
            }
        }
        batches.iter().for_each(|rows| self.done.order.extend(self.run.own(rows)));
        Ok(())
    }

    fn after_step(&mut self) -> Result<After> {
        self.state.batch = self.progress.batches_done;
        self.state.current_lr = self.optimizer.learning_rate();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.step();
        }
        let batch = self.state.batch - 1;
        self.tell(|callback, state| callback.on_batch_end(batch, state));
        if let Some(most) = self.run.config.max_training_time {
            let is_over = self.begun.elapsed() >= most;
            self.done.ended |= match &self.run.worker {
                Some(worker) => worker.of_first(f64::from(u8::from(is_over)))? == 1.0,
                None => is_over,
            };
        }
        Ok(if self.done.ended { After::EndOfEpoch } else { After::Next })
    }

    fn end_epoch(&mut self) -> Result<f64> {
        let run = self.run;
        if let Some(worker) = &run.worker {
            worker.align(run.network)?;
            if run.measures_outputs() {
                worker.gather(&mut self.done)?;
            }
        }
        let own = match run.reports() {
            true => run.record(&mut self.done, &mut self.state.history)?,
            false => f64::NAN,
        };
        let score = run.worker.as_ref().map_or(Ok(own), |worker| worker.of_first(own))?;
        if let Some(scheduler) = &mut self.scheduler {
            self.optimizer.set_learning_rate(scheduler.epoch(score))?;
        }
        Ok(score)
    }

    fn after_epoch(&mut self, is_best: bool) -> Result<bool> {
        let (config, epoch, reports) = (self.run.config, self.progress.epochs_done - 1, self.run.reports());
        let history = &mut self.state.history;
        if is_best {
            history.best_epoch = Some(epoch);
            history.best_val_loss = self.progress.best.filter(|_| self.run.data.validation.is_some());
        }
        if is_best && reports && config.early_stopping_patience.is_some() {
            let state = self.run.network.named_state().into_iter();
            self.best = state.map(|(_, _, parameter)| parameter.tensor()).collect();
        }
        history.learning_rate.push(self.state.current_lr);
        history.epoch_times.push(self.started.elapsed());
        history.total_time = self.begun.elapsed();
        history.steps = self.progress.steps as usize;
        if config.verbose && reports {
            println!("{}", shown(epoch, config.max_epochs, history));
        }
        self.state.current_lr = self.optimizer.learning_rate();
        if reports {
            self.run.checkpoint(epoch, &self.state.history)?;
        }
        self.tell(|callback, state| callback.on_epoch_end(epoch, state));
        Ok(!(self.state.stop || self.done.ended))
    }
}
