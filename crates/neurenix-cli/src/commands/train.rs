//! `neurenix train`.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use neurenix::{
    Error, Result,
    data::{self, CsvOptions, Dataset},
    io::tensorboard::EventWriter,
    loss::Loss,
    optim::{Optimizer, Rule, Schedule},
    phynexus::{Device, schedule::profile, tensor::Generator},
    train::{Ending, EpochRecord, Objective, Observer, StepReport, TrainOptions, Trainer, save_model},
};
use serde::Serialize;

use super::{
    print_json,
    run_folder::{RunConfig, RunFolder, StoredNormalization, label_column},
};
use crate::{
    models::{ModelKind, ModelSpec},
    report,
};

mod summary;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Source {
    /// 1797 handwritten digits of 8 x 8 pixels, bundled
    Digits,
    /// The four IDX files of MNIST (or Fashion-MNIST) in a folder: --path
    Mnist,
    /// The binary version of CIFAR-10 in a folder: --path
    Cifar10,
    /// A table with a header: --path, --label
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OptimizerName {
    Sgd,
    Adam,
    Adamw,
    Nadam,
    Radam,
    Rmsprop,
    Adagrad,
    Adadelta,
    Lion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ScheduleName {
    Constant,
    Step,
    Cosine,
    OneCycle,
    Plateau,
}

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The data to learn
    #[arg(value_enum)]
    data: Source,
    /// The file or folder with the data
    #[arg(long)]
    path: Option<PathBuf>,
    /// The column of a CSV file to predict: its name, or its number from 1
    #[arg(long)]
    label: Option<String>,
    /// Predict numbers rather than classes (CSV)
    #[arg(long)]
    regression: bool,
    /// The network
    #[arg(long, value_enum, default_value = "mlp")]
    model: ModelKind,
    /// Sizes of hidden layers, such as 256,128
    #[arg(long, value_delimiter = ',')]
    hidden: Vec<usize>,
    /// The share of activations dropped while training
    #[arg(long, default_value_t = 0.1)]
    dropout: f64,
    /// Passes over the training data
    #[arg(long, default_value_t = 40)]
    epochs: usize,
    /// Samples in a step
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// The highest learning rate
    #[arg(long, default_value_t = 2e-3)]
    learning_rate: f64,
    /// The optimiser
    #[arg(long, value_enum, default_value = "adamw")]
    optimizer: OptimizerName,
    /// Weight decay
    #[arg(long, default_value_t = 0.01)]
    weight_decay: f64,
    /// How the learning rate changes
    #[arg(long, value_enum, default_value = "cosine")]
    schedule: ScheduleName,
    /// The share of probability spread over all classes
    #[arg(long, default_value_t = 0.0)]
    label_smoothing: f64,
    /// Shorten gradients longer than this
    #[arg(long)]
    clip_norm: Option<f64>,
    /// Stop after this many epochs without improvement, and keep the best epoch's model
    #[arg(long)]
    patience: Option<usize>,
    /// The seed of everything random
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The device
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads of the CPU device; all cores if not given
    #[arg(long)]
    threads: Option<usize>,
    /// The run's folder; runs/DATA-MODEL if not given
    #[arg(long)]
    out: Option<PathBuf>,
    /// Continue an interrupted run from its folder
    #[arg(long, conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Write TensorBoard event files into the run's folder
    #[arg(long)]
    tensorboard: bool,
    /// No progress, and the result as JSON
    #[arg(long)]
    json: bool,
}

/// A data set in parts: to learn from, to watch progress and decide when to stop, and to judge the result once.
struct Parts {
    training: Dataset,
    validation: Dataset,
    test: Dataset,
}

/// One training sample in this many is kept for validation.
const VALIDATION_SHARE: usize = 10;

/// What a program reads of a finished run.
#[derive(Serialize)]
struct Outcome<'a> {
    folder: &'a Path,
    ending: &'static str,
    epochs: usize,
    test_loss: f64,
    test_accuracy: Option<f64>,
    seconds: f64,
    device: String,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(threads) = arguments.threads {
        neurenix::set_threads(threads)?;
    }
    let device = Device::find(&arguments.device)?;
    let parts = load(arguments)?;
    let objective = match Objective::of(&parts.training) {
        Objective::Regression(loss) => Objective::Regression(loss),
        Objective::Classification(_) => {
            if !(0.0..1.0).contains(&arguments.label_smoothing) {
                return Err(Error::data("--label-smoothing", "it must be at least 0 and below 1"));
            }
            Objective::Classification(Loss::cross_entropy(arguments.label_smoothing))
        }
    };
    let outputs = match objective {
        Objective::Regression(_) => parts.training.stored_targets().shape().iter().skip(1).product(),
        Objective::Classification(_) => parts.training.class_names().len(),
    };
    objective.check(&parts.training, &[outputs])?;
    objective.check(&parts.validation, &[outputs])?;
    objective.check(&parts.test, &[outputs])?;
    let config = config(arguments, &parts.training, outputs);
    let folder = match &arguments.resume {
        Some(folder) => {
            let folder = RunFolder(folder.clone());
            if folder.read_config()? != config {
                let message = "the run there has other settings: give the same options as when it began";
                return Err(Error::data("--resume", message));
            }
            folder
        }
        None => RunFolder::choose(
            arguments.out.as_deref(),
            &format!("{}-{}", config.data, config.model.kind.name()),
        )?,
    };
    folder.write_config(&config)?;

    let generator = Arc::new(Generator::new(arguments.seed));
    let model = config.model.build(device, &generator)?;
    let steps_per_epoch = parts.training.len().div_ceil(config.batch_size.max(1)) as u64;
    let optimizer = Optimizer::new(rule(arguments.optimizer), model.parameters(), config.learning_rate)?
        .with_weight_decay(config.weight_decay)?;
    let options = TrainOptions {
        epochs: config.epochs,
        batch_size: config.batch_size,
        accumulate: 1,
        seed: config.seed,
        schedule: schedule(arguments, steps_per_epoch),
        clip_norm: config.clip_norm,
        patience: config.patience,
        checkpoint: Some(folder.checkpoint_path()),
        settings: serde_json::to_value(&config).map_err(|e| Error::data("settings", e.to_string()))?,
    };
    let mut trainer = Trainer::new(model.as_ref(), optimizer, objective, &generator, device, options);
    if arguments.resume.is_some() {
        trainer.resume(&folder.checkpoint_path())?;
    }
    if !arguments.json {
        println!("{}", parts.training.description());
        println!(
            "{} training, {} validation and {} test samples; {} with {} parameters on {}",
            parts.training.len(),
            parts.validation.len(),
            parts.test.len(),
            config.model.kind.name(),
            model.parameter_count(),
            device
        );
    }
    let mut observer = Progress::new(arguments, &folder, config.epochs)?;
    profile::start();
    let started = Instant::now();
    let ending = trainer.run(&parts.training, Some(&parts.validation), &mut observer)?;
    let seconds = started.elapsed().as_secs_f64();
    observer.bar.finish_and_clear();
    if let Some(error) = observer.failure.take() {
        return Err(error);
    }
    let profile = profile::finish();
    folder.write_metrics(trainer.history())?;
    if ending == Ending::Interrupted {
        eprintln!(
            "interrupted; to continue: neurenix train {} --resume {} with the same options",
            config.data,
            folder.0.display()
        );
        return Ok(ExitCode::from(130));
    }
    let best = trainer.restore_best()?;
    save_model(&folder.model_path(), model.as_ref(), std::collections::BTreeMap::new())?;
    let evaluation = trainer.evaluate(&parts.test)?;
    let report = summary::report(
        &config,
        &parts.test,
        trainer.history(),
        evaluation,
        model.as_ref(),
        device,
        &profile,
        seconds,
    )?;
    report::write(&folder.0, &report)?;
    let outcome = Outcome {
        folder: &folder.0,
        ending: if ending == Ending::EarlyStop { "stopped early" } else { "finished" },
        epochs: trainer.history().epochs.len(),
        test_loss: evaluation.loss,
        test_accuracy: evaluation.accuracy,
        seconds,
        device: device.name().to_owned(),
    };
    if arguments.json {
        print_json(&outcome)?;
    } else {
        let accuracy =
            evaluation.accuracy.map_or(String::new(), |a| format!(", accuracy {:.2} %", a * 100.0));
        println!("{} after {} epochs in {seconds:.1} s", outcome.ending, outcome.epochs);
        if let Some(best) = best {
            println!("the model is that of epoch {best}, the best");
        }
        println!("test loss {:.4}{accuracy}", evaluation.loss);
        println!("report: {}", folder.0.join("report.html").display());
    }
    Ok(ExitCode::SUCCESS)
}

fn load(arguments: &Arguments) -> Result<Parts> {
    let path = || {
        arguments.path.as_deref().ok_or_else(|| {
            Error::data("--path", "these data are not bundled: name the file or folder that holds them")
        })
    };
    let (training, test) = match arguments.data {
        Source::Digits => data::digits_split()?,
        Source::Mnist => data::mnist(path()?)?,
        Source::Cifar10 => data::cifar10(path()?)?,
        Source::Csv => {
            let task = if arguments.regression { data::CsvTask::Regression } else { data::CsvTask::Detect };
            let label = label_column(arguments.label.as_deref());
            let options = CsvOptions { task, label, ..CsvOptions::default() };
            let table = data::read_csv(path()?, &options)?;
            table.split(0.8, arguments.seed)?
        }
    };
    let learnt = training.len() - training.len() / VALIDATION_SHARE;
    let (training, validation) = training.shuffled(data::DIGITS_SPLIT_SEED).split_at(learnt)?;
    if arguments.data != Source::Csv {
        return Ok(Parts { training, validation, test });
    }
    // Measured on what is learnt from alone: nothing of the other rows may reach the network.
    let normalization = training.statistics(1.0)?;
    let normalized = |part: Dataset| part.with_normalization(normalization.clone());
    Ok(Parts { training: normalized(training), validation: normalized(validation), test: normalized(test) })
}

fn config(arguments: &Arguments, training: &Dataset, outputs: usize) -> RunConfig {
    let normalization = training.normalization().map(|n| StoredNormalization {
        scale: n.scale,
        mean: n.mean.clone(),
        std: n.std.clone(),
    });
    let name = |value: &dyn ValueName| value.value_name();
    RunConfig {
        data: name(&arguments.data),
        path: arguments.path.clone(),
        label: arguments.label.clone(),
        model: ModelSpec {
            kind: arguments.model,
            input: training.input_shape().to_vec(),
            outputs,
            hidden: arguments.hidden.clone(),
            dropout: arguments.dropout,
        },
        classes: training.class_names().to_vec(),
        normalization,
        epochs: arguments.epochs,
        batch_size: arguments.batch_size,
        learning_rate: arguments.learning_rate,
        optimizer: name(&arguments.optimizer),
        weight_decay: arguments.weight_decay,
        schedule: name(&arguments.schedule),
        label_smoothing: arguments.label_smoothing,
        clip_norm: arguments.clip_norm,
        patience: arguments.patience,
        seed: arguments.seed,
        device: arguments.device.clone(),
    }
}

/// The spelling of a choice on the command line.
trait ValueName {
    fn value_name(&self) -> String;
}
impl<T: ValueEnum> ValueName for T {
    fn value_name(&self) -> String {
        self.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned())
    }
}

fn rule(name: OptimizerName) -> Rule {
    match name {
        OptimizerName::Sgd => Rule::nesterov(0.9),
        OptimizerName::Adam => Rule::adam(),
        OptimizerName::Adamw => Rule::adamw(),
        OptimizerName::Nadam => Rule::nadam(),
        OptimizerName::Radam => Rule::radam(),
        OptimizerName::Rmsprop => Rule::rmsprop(),
        OptimizerName::Adagrad => Rule::adagrad(),
        OptimizerName::Adadelta => Rule::adadelta(),
        OptimizerName::Lion => Rule::lion(),
    }
}

fn schedule(arguments: &Arguments, steps_per_epoch: u64) -> Schedule {
    let rate = arguments.learning_rate;
    match arguments.schedule {
        ScheduleName::Constant => Schedule::Constant,
        ScheduleName::Step => {
            Schedule::Step { initial: rate, epochs: (arguments.epochs as u64 / 3).max(1), factor: 0.1 }
        }
        ScheduleName::Cosine => {
            Schedule::Cosine { initial: rate, final_rate: rate * 0.01, warmup: steps_per_epoch.min(100) }
        }
        ScheduleName::OneCycle => Schedule::OneCycle { peak: rate, rise: 0.3 },
        ScheduleName::Plateau => Schedule::Plateau { factor: 0.1, patience: 3, minimum: rate * 1e-3 },
    }
}

/// The progress bar, the TensorBoard file, and Ctrl-C.
struct Progress {
    bar: ProgressBar,
    interrupted: Arc<AtomicBool>,
    events: Option<EventWriter>,
    quiet: bool,
    epochs: usize,
    failure: Option<Error>,
}

impl Progress {
    fn new(arguments: &Arguments, folder: &RunFolder, epochs: usize) -> Result<Progress> {
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        // The first Ctrl-C lets the step end and a checkpoint be written; the second ends the program at once.
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::SeqCst) {
                std::process::exit(130);
            }
        })
        .map_err(|e| Error::data("Ctrl-C", e.to_string()))?;
        let hidden = arguments.json || !std::io::stderr().is_terminal();
        let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len}  {msg}  {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        let events = match arguments.tensorboard {
            true => Some(EventWriter::create(&folder.0)?),
            false => None,
        };
        Ok(Progress { bar, interrupted, events, quiet: arguments.json, epochs, failure: None })
    }

    fn write_events(&mut self, record: &EpochRecord) -> Result<()> {
        let Some(events) = &mut self.events else { return Ok(()) };
        let mut scalars = vec![("loss/train", record.train_loss), ("learning_rate", record.learning_rate)];
        scalars.extend(record.train_accuracy.map(|a| ("accuracy/train", a)));
        scalars.extend(record.validation_loss.map(|l| ("loss/validation", l)));
        scalars.extend(record.validation_accuracy.map(|a| ("accuracy/validation", a)));
        for (tag, value) in scalars {
            events.scalar(tag, record.epoch as u64, value as f32)?;
        }
        events.flush()
    }
}

impl Observer for Progress {
    fn step(&mut self, report: &StepReport) -> bool {
        if report.batch == 1 {
            self.bar.set_length(report.batches as u64);
            self.bar.set_prefix(format!("epoch {:>3}/{}", report.epoch, self.epochs));
        }
        self.bar.set_position(report.batch as u64);
        if report.batch.is_multiple_of(8) || report.batch == report.batches {
            let accuracy =
                report.accuracy.map_or(String::new(), |a| format!("  accuracy {:.1} %", a * 100.0));
            self.bar.set_message(format!("loss {:.4}{accuracy}", report.loss));
        }
        !self.interrupted.load(Ordering::SeqCst) && self.failure.is_none()
    }

    fn epoch(&mut self, record: &EpochRecord) {
        if let Err(error) = self.write_events(record) {
            self.failure = Some(error);
        }
        if self.quiet {
            return;
        }
        let percent =
            |a: Option<f64>| a.map_or(String::new(), |a| format!("  accuracy {:>6.2} %", a * 100.0));
        let validation = record.validation_loss.map_or(String::new(), |loss| {
            format!("   validation loss {loss:.4}{}", percent(record.validation_accuracy))
        });
        let line = format!(
            "epoch {:>3}/{}  train loss {:.4}{}{validation}  {:.2} s",
            record.epoch,
            self.epochs,
            record.train_loss,
            percent(record.train_accuracy),
            record.seconds
        );
        if self.bar.is_hidden() {
            println!("{line}");
        } else {
            self.bar.println(line);
        }
    }
}
