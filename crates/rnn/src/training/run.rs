//! A training run.

use std::{sync::Arc, time::Instant};

use ndarray::{Array2, s};
use neurenix::{
    data::{HostArray, random::RandomStream},
    nn::Parameter,
    optim::Optimizer,
    phynexus::{DType, Tensor, tensor::Generator},
    train::{self, Progress, Recordings},
};

use super::{
    EarlyStopping, LearningRateScheduler, TrainingCallback, TrainingConfig, TrainingHistory, TrainingMethod,
    TrainingState,
    direction::Direction,
    forward::{Batch, Model},
    search::Searching,
    session::Session,
    workers::Worker,
};
use crate::{LossConfig, LossFunction, Network, NetworkError, OptimizerType, Result, convert, network::time};

/// A checked training run, before it begins.
pub(crate) struct Run<'a> {
    pub(super) network: &'a Network,
    pub(super) config: &'a TrainingConfig,
    pub(super) loss: LossConfig,
    pub(super) optimizer: crate::Optimizer,
    pub(super) data: Arc<Data>,
    pub(super) seed: u64,
    /// If the network is the copy of one of several workers.
    pub(super) worker: Option<Worker<'a>>,
}

/// The rows of a run.
pub(super) struct Data {
    pub(super) inputs: HostArray,
    pub(super) targets: Array2<f64>,
    uploaded_targets: HostArray,
    pub(super) validation: Option<(Array2<f64>, Array2<f64>)>,
}

/// Measurements on the training rows of an epoch.
#[derive(Default)]
pub(super) struct Epoch {
    pub(super) loss_sum: f64,
    /// The total weight of the rows.
    pub(super) mass: f64,
    pub(super) predictions: Vec<f64>,
    pub(super) order: Vec<usize>,
    /// Whether the run ends after this epoch.
    pub(super) ended: bool,
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
        loss.check_layers(network.layers())?;
        let outputs = network.output_shape();
        let check = |names: [&str; 2], data: &Array2<f64>, targets: &Array2<f64>| -> Result<()> {
            network.check_input(names[0], data)?;
            convert::check_rows_of(names[1], data, targets)?;
            loss.check_targets(names[1], targets, outputs, network.dtype())
        };
        check(["data", "targets"], data, targets)?;
        if let Some((data, targets)) = validation {
            check(["validation data", "validation targets"], data, targets)?;
        }
        let augmentation = config.data_augmentation.clone().unwrap_or_default();
        let mixes = augmentation.label_smoothing.is_some() || augmentation.mixup_alpha.is_some();
        if mixes && loss.target_columns(outputs) != network.output_dim() {
            let message = "label smoothing and mixup need one target column per class: use one-hot targets and CategoricalCrossEntropy";
            return Err(NetworkError::training(message));
        }
        let embeds = network.vocabulary().is_some();
        if embeds && augmentation.changes_inputs() {
            let message =
                "the integer inputs of an embedding cannot be augmented: leave data_augmentation out";
            return Err(NetworkError::training(message));
        }
        if embeds && config.regularization.gradient_penalty.is_some() {
            let message = "the integer inputs of an embedding have no gradient: leave gradient_penalty out";
            return Err(NetworkError::training(message));
        }
        let least_squares =
            loss.function == LossFunction::MeanSquaredError && !config.regularization.penalises();
        if config.method == TrainingMethod::LevenbergMarquardt && !least_squares {
            let message = "LevenbergMarquardt minimises a sum of squares: use MeanSquaredError without penalties, or another method";
            return Err(NetworkError::training(message));
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
        let inputs = convert::host(data.slice(s![..rows, ..]), &network.batch_shape(rows), dtype)?;
        let targets = own(targets);
        let weights = loss.parameters.class_weights.as_deref();
        let counts_nothing = weights.is_some_and(|weights| weights.iter().all(|weight| *weight == 0.0));
        if counts_nothing || loss.mass(rows, targets.iter().copied()) == 0.0 {
            let message =
                "class_weights are 0 for the classes of all rows: set a positive weight for one of them";
            return Err(NetworkError::training(message));
        }
        let uploaded_targets = convert::host(targets.view(), &[rows, targets.ncols()], dtype)?;
        let optimizer = config.optimizer.clone().unwrap_or_else(|| network.plan().optimizer.clone());
        optimizer.check()?;
        let parts = config.mixed_precision || config.gradient_accumulation_steps > 1;
        let by_batch = config.method == TrainingMethod::Backpropagation;
        if by_batch && parts && optimizer.optimizer_type() == OptimizerType::Newton {
            let message = "Newton needs second derivatives of a whole batch in the network's precision: leave gradient_accumulation_steps and mixed_precision out, or use LBFGS";
            return Err(NetworkError::training(message));
        }
        if by_batch && network.needs_rows() && (rows == 1 || config.batch_size == 1) {
            let message = "batch normalisation needs more than one row per batch: set batch_size to at least 2, and train on at least 2 rows";
            return Err(NetworkError::training(message));
        }
        let seed = config.seed.unwrap_or_else(time);
        let data = Arc::new(Data { inputs, targets, uploaded_targets, validation });
        Ok(Run { network, config, loss, optimizer, data, seed, worker: None })
    }

    /// The same run as one of several workers does it, with a copy of the network.
    pub(super) fn of_worker<'w>(&'w self, network: &'w Network, worker: Worker<'w>) -> Run<'w> {
        let (loss, optimizer, data) = (self.loss.clone(), self.optimizer.clone(), self.data.clone());
        Run { network, config: self.config, loss, optimizer, data, seed: self.seed, worker: Some(worker) }
    }

    /// The weights that are not frozen.
    fn trainable(&self) -> Result<Vec<Parameter>> {
        let weights = self.network.weights().into_iter().map(|(_, parameter)| parameter);
        let trainable: Vec<Parameter> = weights.filter(Parameter::is_trainable).collect();
        if trainable.is_empty() {
            return Err(NetworkError::training("no layer has weights to train: unfreeze or add one"));
        }
        // Parameters that were unfrozen are not leaves yet.
        trainable.iter().try_for_each(|parameter| parameter.leaf().map(drop))?;
        Ok(trainable)
    }

    /// The framework's optimiser of weights.
    fn framework_optimizer(&self, parameters: Vec<Parameter>) -> Result<Optimizer> {
        let config = self.optimizer.config();
        let optimizer = Optimizer::new(self.optimizer.rule()?, parameters, config.learning_rate)?;
        // A direction includes the weight decay.
        let decay = config.weight_decay.filter(|_| !self.optimizer.optimizer_type().has_direction());
        Ok(optimizer.with_weight_decay(decay.unwrap_or(0.0))?)
    }

    /// Runs all epochs.
    pub(crate) fn all(&self, callbacks: &mut [&mut dyn TrainingCallback]) -> Result<TrainingHistory> {
        let begun = Instant::now();
        let (network, config) = (self.network, self.config);
        let trainable = self.trainable()?;
        let direction = match config.method {
            TrainingMethod::Backpropagation => Direction::of(&self.optimizer, &trainable)?,
            _ => None,
        };
        let optimizer = self.framework_optimizer(trainable.clone())?;
        let scheduler = match &config.lr_schedule {
            Some(schedule) => {
                let (rate, epochs) = (optimizer.learning_rate(), config.max_epochs);
                Some(LearningRateScheduler::new(schedule.clone(), rate, epochs)?)
            }
            None => None,
        };
        let generator = Generator::new(self.seed ^ 0x5851_f42d_4c95_7f2d);
        let twin = match config.mixed_precision {
            true => Some(network.twin(DType::BF16)?),
            false => None,
        };
        // The copies of several workers have their own.
        if config.seed.is_some() && self.worker.is_none() {
            network.seed_dropouts(self.seed, 0);
            twin.iter().for_each(|twin| twin.seed_dropouts(self.seed, 0));
        }
        let model = Model {
            network,
            loss: &self.loss,
            regularization: &config.regularization,
            twin,
            generator: &generator,
            predicts: self.measures_outputs(),
        };
        let searching = Searching::new(config.method, &self.optimizer, self.seed, &model, trainable, || {
            self.all_batches(&generator)
        })?;
        let patience = config.early_stopping_patience.unwrap_or(usize::MAX);
        let mut stopping = EarlyStopping::new(patience, config.early_stopping_min_delta);
        let state = TrainingState {
            epoch: 0,
            batch: 0,
            history: TrainingHistory {
                device: self.place(),
                parameter_count: network.parameter_count(),
                ..TrainingHistory::default()
            },
            current_lr: optimizer.learning_rate(),
            stop: false,
        };
        // Steps that read values before the update cannot be recorded.
        let is_replayed = direction.is_none()
            && self.worker.is_none()
            && config.gradient_accumulation_steps <= 1
            && !config.mixed_precision;
        let mut session = Session {
            run: self,
            recordings: is_replayed.then(Recordings::default),
            model: &model,
            optimizer,
            clip_norm: self.optimizer.config().gradient_clip.filter(|_| direction.is_none()),
            direction,
            buffers: network.buffers(),
            scheduler,
            searching,
            callbacks,
            progress: Progress::default(),
            state,
            done: Epoch::default(),
            random: RandomStream::new(self.seed, 0),
            best: Vec::new(),
            begun,
            started: begun,
        };
        session.begin();
        train::run(&mut session, config.max_epochs, config.gradient_accumulation_steps, &mut stopping)?;
        session.finish(stopping.is_over())
    }

    /// Divides rows into batches. If the network cannot train on a single row, a last single row joins the batch
    /// before.
    pub(super) fn batches(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let size = self.config.batch_size;
        let mut batches: Vec<Vec<usize>> = order.chunks(size).map(<[usize]>::to_vec).collect();
        if order.len() > size && order.len() % size == 1 && self.network.needs_rows() {
            batches.truncate(batches.len() - 2);
            batches.push(order[order.len() - 1 - size..].to_vec());
        }
        batches
    }

    /// Rows on the device, augmented as configured; of several workers, each has its part.
    pub(super) fn batch(
        &self,
        rows: &[usize],
        random: &mut RandomStream,
        generator: &Generator,
    ) -> Result<Batch> {
        let device = self.network.engine_device();
        let upload = |rows: &[usize]| -> Result<[Tensor; 2]> {
            let upload = |array: &HostArray| -> Result<Tensor> {
                let part = array.take_rows(rows)?;
                Ok(Tensor::from_bytes(part.bytes(), part.dtype(), part.shape(), device)?)
            };
            Ok([upload(&self.data.inputs)?, upload(&self.data.uploaded_targets)?])
        };
        let computed =
            self.worker.as_ref().map_or(0..rows.len(), |worker| worker.division().computed(rows.len()));
        let data = match &self.config.data_augmentation {
            // It may mix all rows of the batch, and all workers draw the same random numbers.
            Some(augmentation) => {
                let classes = self.loss.classes(self.network.output_shape());
                let [inputs, targets] = upload(rows)?;
                let (inputs, targets) =
                    augmentation.apply(self.loss.function, classes, inputs, targets, random, generator)?;
                let part = |tensor: Tensor| tensor.narrow(0, computed.start, computed.len());
                [part(inputs)?, part(targets)?]
            }
            None => upload(&rows[computed])?,
        };
        let mass = |rows: &[usize]| {
            let classes = rows.iter().flat_map(|&row| self.data.targets.row(row).into_iter().copied());
            self.loss.mass(rows.len(), classes)
        };
        let own = self.own(rows);
        Ok(Batch { data, mass: mass(rows), own: (own.len(), mass(own)) })
    }

    /// The rows of a batch that count here: of several workers, each has its part.
    pub(super) fn own<'r>(&self, rows: &'r [usize]) -> &'r [usize] {
        self.worker.as_ref().map_or(rows, |worker| &rows[worker.division().own(rows.len())])
    }

    /// All rows in order.
    fn all_batches(&self, generator: &Generator) -> Result<Vec<Batch>> {
        let mut random = RandomStream::new(self.seed, 0);
        let rows: Vec<usize> = (0..self.data.inputs.rows()).collect();
        rows.chunks(self.config.batch_size).map(|rows| self.batch(rows, &mut random, generator)).collect()
    }
}
