//! A training run.

use std::{collections::HashMap, time::Instant};

use ndarray::{Array2, s};
use neurenix::{
    data::{
        HostArray,
        random::{RandomStream, epoch_order},
    },
    nn::Parameter,
    optim::Optimizer,
    phynexus::{
        Tensor,
        tensor::{Generator, GeneratorState},
    },
};

use super::{
    EarlyStopping, LearningRateScheduler, Metrics, TrainingCallback, TrainingConfig, TrainingHistory,
    TrainingMethod, TrainingState,
    shards::Shards,
    step::{Batch, HALF, Stepper},
};
use crate::{
    LossConfig, Network, NetworkError, Result, convert,
    network::{put, time},
};

/// A training run that is about to begin.
pub(crate) struct Run<'a> {
    network: &'a Network,
    config: &'a TrainingConfig,
    loss: LossConfig,
    optimizer: crate::Optimizer,
    inputs: HostArray,
    targets: Array2<f64>,
    uploaded_targets: HostArray,
    validation: Option<(Array2<f64>, Array2<f64>)>,
    seed: u64,
    shards: Option<Shards>,
}

/// What an epoch measured on the rows that it trained on.
#[derive(Default)]
struct Epoch {
    loss_sum: f64,
    rows: usize,
    predictions: Vec<f64>,
    order: Vec<usize>,
    out_of_time: bool,
}

impl<'a> Run<'a> {
    /// Checks data and settings against the network.
    pub(crate) fn new(
        network: &'a Network,
        data: &Array2<f64>,
        targets: &Array2<f64>,
        validation: Option<(&Array2<f64>, &Array2<f64>)>,
        config: &'a TrainingConfig,
    ) -> Result<Run<'a>> {
        config.check()?;
        let mut loss = network.plan().loss.clone();
        if let Some(function) = config.loss_function {
            loss = if function == loss.function { loss } else { LossConfig::new(function) };
        }
        let outputs = network.output_dim();
        let check = |data: &Array2<f64>, targets: &Array2<f64>| -> Result<()> {
            network.check_input(data)?;
            convert::check_rows(data, targets)?;
            loss.check_targets(targets, outputs)
        };
        check(data, targets)?;
        if let Some((data, targets)) = validation {
            check(data, targets)?;
        }
        let augmentation = config.data_augmentation.clone().unwrap_or_default();
        let mixes = augmentation.label_smoothing.is_some() || augmentation.mixup_alpha.is_some();
        if mixes && loss.target_columns(outputs) != outputs {
            let message = "label smoothing and mixup need a column for each class: use one-hot targets and CategoricalCrossEntropy";
            return Err(NetworkError::training(message));
        }
        if augmentation != super::DataAugmentationConfig::default() && network.vocabulary().is_some() {
            return Err(NetworkError::training("integers for an embedding cannot be augmented"));
        }
        let held = match validation {
            Some(_) => 0,
            None => (data.nrows() as f64 * config.validation_split).round() as usize,
        };
        let rows = data.nrows() - held;
        if rows == 0 {
            let message = format!("{} rows leave none to train on: lower validation_split", data.nrows());
            return Err(NetworkError::training(message));
        }
        let own = |array: &Array2<f64>| array.slice(s![..rows, ..]).to_owned();
        let kept = |array: &Array2<f64>| array.slice(s![rows.., ..]).to_owned();
        let validation = match validation {
            Some((data, targets)) => Some((data.clone(), targets.clone())),
            None if held > 0 => Some((kept(data), kept(targets))),
            None => None,
        };
        let dtype = network.dtype();
        let host = |array: &Array2<f64>, shape: &[usize]| -> Result<HostArray> {
            Ok(HostArray::from_values(shape, &convert::elements(array))?.cast(dtype))
        };
        let (data, targets) = (own(data), own(targets));
        let inputs = host(&data, &network.batch_shape(rows))?;
        let uploaded_targets = host(&targets, &[rows, targets.ncols()])?;
        let optimizer = config.optimizer.clone().unwrap_or_else(|| network.plan().optimizer.clone());
        let seed = config.seed.unwrap_or_else(time);
        Ok(Run {
            network,
            config,
            loss,
            optimizer,
            inputs,
            targets,
            uploaded_targets,
            validation,
            seed,
            shards: None,
        })
    }

    /// The framework's optimiser of all weights that are not frozen.
    fn framework_optimizer(&self) -> Result<Optimizer> {
        let weights = self.network.weights().into_iter().map(|(_, parameter)| parameter);
        let trainable: Vec<Parameter> = weights.filter(Parameter::is_trainable).collect();
        if trainable.is_empty() {
            return Err(NetworkError::training("no layer has weights to train: unfreeze or add one"));
        }
        // Leaves, whatever was frozen or thawed before.
        trainable.iter().try_for_each(|parameter| parameter.leaf().map(drop))?;
        let config = self.optimizer.config();
        let optimizer = Optimizer::new(self.optimizer.rule()?, trainable, config.learning_rate)?;
        Ok(optimizer.with_weight_decay(config.weight_decay.unwrap_or(0.0))?)
    }

    /// All epochs.
    pub(crate) fn all(&self, callbacks: &mut [&mut dyn TrainingCallback]) -> Result<TrainingHistory> {
        let TrainingMethod::Backpropagation = self.config.method;
        let begun = Instant::now();
        let (network, config) = (self.network, self.config);
        let mut optimizer = self.framework_optimizer()?;
        let mut scheduler = match &config.lr_schedule {
            Some(schedule) => {
                let (rate, epochs) = (optimizer.learning_rate(), config.max_epochs);
                Some(LearningRateScheduler::new(schedule.clone(), rate, epochs)?)
            }
            None => None,
        };
        if config.seed.is_some() {
            network.dropouts().set_state(GeneratorState { seed: self.seed, counter: 0 });
        }
        let generator = Generator::new(self.seed ^ 0x5851_f42d_4c95_7f2d);
        let twin = match config.mixed_precision {
            true => Some(network.copy_on(network.device(), HALF)?),
            false => None,
        };
        let stepper = Stepper {
            network,
            loss: &self.loss,
            regularization: &config.regularization,
            gradient_clip: self.optimizer.config().gradient_clip,
            twin,
            generator: &generator,
        };
        let patience = config.early_stopping_patience.unwrap_or(usize::MAX);
        let mut stopping = EarlyStopping::new(patience, config.early_stopping_min_delta);
        let mut best: Option<(usize, f64, Vec<Tensor>)> = None;
        let mut state = TrainingState {
            epoch: 0,
            batch: 0,
            history: TrainingHistory {
                device: network.device().to_owned(),
                parameter_count: network.parameter_count(),
                ..TrainingHistory::default()
            },
            current_lr: optimizer.learning_rate(),
            stop: false,
        };
        if config.verbose {
            let (rows, device) = (self.inputs.rows(), network.device());
            println!("training {} parameters on {rows} rows, on {device}", state.history.parameter_count);
        }
        callbacks.iter_mut().for_each(|callback| callback.on_train_begin(config));
        let mut stopped_early = false;
        for epoch in 0..config.max_epochs {
            let started = Instant::now();
            (state.epoch, state.batch) = (epoch, 0);
            callbacks.iter_mut().for_each(|callback| callback.on_epoch_begin(epoch, &state));
            let done =
                self.epoch(&stepper, &mut optimizer, scheduler.as_mut(), &mut state, callbacks, begun)?;
            let score = self.record(&done, &mut state.history)?;
            if best.as_ref().is_none_or(|(_, least, _)| score < *least) && score.is_finite() {
                let keep = config.early_stopping_patience.is_some();
                let weights = network.named_state().into_iter().filter(|_| keep);
                best = Some((epoch, score, weights.map(|(_, _, p)| p.tensor()).collect()));
            }
            if let Some(scheduler) = &mut scheduler {
                scheduler.epoch(score);
                optimizer.set_learning_rate(scheduler.get_lr())?;
            }
            let history = &mut state.history;
            history.learning_rate.push(state.current_lr);
            history.epoch_times.push(started.elapsed());
            history.total_time = begun.elapsed();
            history.steps = optimizer.steps() as usize;
            history.best_epoch = best.as_ref().map(|(epoch, _, _)| *epoch);
            history.best_val_loss =
                best.as_ref().filter(|_| self.validation.is_some()).map(|(_, score, _)| *score);
            state.current_lr = optimizer.learning_rate();
            if config.verbose {
                println!("{}", shown(epoch, config.max_epochs, history));
            }
            self.checkpoint(epoch)?;
            callbacks.iter_mut().for_each(|callback| callback.on_epoch_end(epoch, &mut state));
            stopped_early = stopping.should_stop(score);
            if stopped_early || state.stop || done.out_of_time {
                break;
            }
        }
        if stopped_early && let Some((_, _, weights)) = best {
            let parameters = network.named_state().into_iter().map(|(_, _, parameter)| parameter);
            let values: Vec<(Parameter, Tensor)> = parameters
                .zip(weights)
                .map(|(parameter, value)| Ok((parameter, value.detach()?)))
                .collect::<Result<_>>()?;
            put(values)?;
        }
        network.set_training(false);
        state.history.total_time = begun.elapsed();
        callbacks.iter_mut().for_each(|callback| callback.on_train_end(&state));
        Ok(state.history)
    }

    /// One pass over the rows.
    fn epoch(
        &self,
        stepper: &Stepper<'_>,
        optimizer: &mut Optimizer,
        mut scheduler: Option<&mut LearningRateScheduler>,
        state: &mut TrainingState,
        callbacks: &mut [&mut dyn TrainingCallback],
        begun: Instant,
    ) -> Result<Epoch> {
        let config = self.config;
        let count = self.inputs.rows();
        let order = match config.shuffle {
            true => epoch_order(self.seed, state.epoch as u64, count),
            false => (0..count).collect(),
        };
        let mut random = RandomStream::new(self.seed, state.epoch as u64 + 1);
        let mut done = Epoch::default();
        self.network.set_training(true);
        if let Some(twin) = &stepper.twin {
            twin.set_training(true);
        }
        let batches: Vec<&[usize]> = order.chunks(config.batch_size).collect();
        for group in batches.chunks(config.gradient_accumulation_steps) {
            if let Some(scheduler) = &mut scheduler {
                optimizer.set_learning_rate(scheduler.get_lr())?;
            }
            let mut uploaded = Vec::with_capacity(group.len());
            for rows in group {
                uploaded.push(self.batch(rows, &mut random, stepper.generator)?);
            }
            let measured = match (&self.shards, uploaded.as_slice()) {
                (Some(shards), [batch]) => {
                    let clip = stepper.gradient_clip;
                    shards.step(self.network, &self.loss, batch, clip, optimizer)?
                }
                _ => stepper.step(&uploaded, optimizer)?,
            };
            let rows: usize = group.iter().map(|rows| rows.len()).sum();
            done.loss_sum += measured.loss * rows as f64;
            done.rows += rows;
            done.predictions.extend(measured.predictions);
            done.order.extend(group.iter().flat_map(|rows| rows.iter().copied()));
            state.batch += group.len();
            state.current_lr = optimizer.learning_rate();
            if let Some(scheduler) = &mut scheduler {
                scheduler.step();
            }
            let batch = state.batch - 1;
            callbacks.iter_mut().for_each(|callback| callback.on_batch_end(batch, state));
            done.out_of_time = config.max_training_time.is_some_and(|most| begun.elapsed() >= most);
            if done.out_of_time {
                break;
            }
        }
        Ok(done)
    }

    /// Rows on the device, changed as the configuration says.
    fn batch(&self, rows: &[usize], random: &mut RandomStream, generator: &Generator) -> Result<Batch> {
        let device = self.network.engine_device();
        let upload = |array: &HostArray| -> Result<Tensor> {
            let part = array.take_rows(rows)?;
            Ok(Tensor::from_bytes(part.bytes(), part.dtype(), part.shape(), device)?)
        };
        let (inputs, targets) = (upload(&self.inputs)?, upload(&self.uploaded_targets)?);
        let (inputs, targets) = match &self.config.data_augmentation {
            Some(augmentation) => augmentation.apply(inputs, targets, random, generator)?,
            None => (inputs, targets),
        };
        Ok(Batch { inputs, targets })
    }

    /// Puts an epoch's figures into the history; the score by which epochs are compared.
    fn record(&self, done: &Epoch, history: &mut TrainingHistory) -> Result<f64> {
        let loss = done.loss_sum / done.rows.max(1) as f64;
        history.train_loss.push(loss);
        let columns = self.network.output_dim();
        let predictions = convert::from_values(done.rows, columns, done.predictions.clone())?;
        let targets = self.targets.select(ndarray::Axis(0), &done.order);
        self.measure(&predictions, &targets, loss, &mut history.train_metrics)?;
        let Some((data, targets)) = &self.validation else { return Ok(loss) };
        let loss = self.network.mean_loss(data, targets, &self.loss)?;
        history.val_loss.push(loss);
        let predictions = self.network.predict(data)?;
        self.measure(&predictions, targets, loss, &mut history.val_metrics)?;
        Ok(loss)
    }

    fn measure(
        &self,
        predictions: &Array2<f64>,
        targets: &Array2<f64>,
        loss: f64,
        metrics: &mut HashMap<String, Vec<f64>>,
    ) -> Result<()> {
        let mut names: Vec<&str> = vec!["loss"];
        names.extend(self.loss.function.is_classification_loss().then_some("accuracy"));
        for name in &self.config.metrics {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for name in names {
            let value = match name {
                "loss" => loss,
                _ => Metrics::by_name(name, self.loss.function, predictions, targets)?,
            };
            metrics.entry(name.to_owned()).or_default().push(value);
        }
        Ok(())
    }

    fn checkpoint(&self, epoch: usize) -> Result<()> {
        let Some(frequency) = self.config.checkpoint_frequency else { return Ok(()) };
        let number = epoch + 1;
        if !number.is_multiple_of(frequency) {
            return Ok(());
        }
        let folder = &self.config.checkpoint_folder;
        std::fs::create_dir_all(folder).map_err(|error| neurenix::Error::io("create", folder, error))?;
        self.network.save_safetensors(folder.join(format!("epoch-{number:04}.safetensors")))
    }
}

/// Trains a network on several devices at once.
pub(crate) fn train_on(
    network: &Network,
    data: &Array2<f64>,
    targets: &Array2<f64>,
    config: &TrainingConfig,
    devices: &[String],
) -> Result<TrainingHistory> {
    let plain = super::RegularizationConfig::default();
    if config.gradient_accumulation_steps > 1 || config.mixed_precision || config.regularization != plain {
        let message = "distributed training takes no accumulation, mixed precision or regularisation: use weight_decay of the optimiser, or one device";
        return Err(NetworkError::training(message));
    }
    let mut run = Run::new(network, data, targets, None, config)?;
    run.shards = Some(Shards::new(network, devices)?);
    let mut history = run.all(&mut [])?;
    history.device = devices.join(", ");
    Ok(history)
}

/// An epoch's figures in a line.
fn shown(epoch: usize, epochs: usize, history: &TrainingHistory) -> String {
    let last = |figures: &[f64]| figures.last().map_or(String::new(), |x| format!("{x:.4}"));
    let mut line = format!("epoch {}/{epochs}: loss {}", epoch + 1, last(&history.train_loss));
    if let Some(accuracy) = history.train_metrics.get("accuracy") {
        line += &format!(", accuracy {}", last(accuracy));
    }
    if !history.val_loss.is_empty() {
        line += &format!(", validation loss {}", last(&history.val_loss));
    }
    if let Some(accuracy) = history.val_metrics.get("accuracy") {
        line += &format!(", validation accuracy {}", last(accuracy));
    }
    let time = history.epoch_times.last().copied().unwrap_or_default();
    line + &format!(", {:.2} s", time.as_secs_f64())
}
