//! `neurenix train`.

mod parts;
mod progress;
pub(in crate::commands) mod settings;
mod summary;

use std::{
    cell::Cell,
    ffi::OsString,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use neurenix::{
    Error, Result,
    error::printable,
    loss::Loss,
    optim::Optimizer,
    phynexus::{self, Device, tensor::Generator},
    train::{Ending, Objective, TrainOptions, Trainer, save_model},
};
use serde::Serialize;

use super::{
    counted, described, launch,
    member::{self, Member},
    nature, print_json,
    run_folder::{RunConfig, RunFolder, StoredColumns, StoredNormalization},
};
use crate::report;
use parts::Parts;
pub(super) use progress::stop_training;
use progress::{Follower, Progress, measure_peaks};
use settings::Settings;

#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// Number of CPU threads; default: all cores
    #[arg(long, value_parser = super::positive::<usize>, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Train on this many devices of the chosen kind, with a process for each: every batch is divided among them
    #[arg(long, value_parser = super::positive::<usize>, allow_negative_numbers = true)]
    devices: Option<usize>,
    /// The run's folder; default: runs/DATA-MODEL, with a number appended if it exists
    #[arg(long)]
    out: Option<PathBuf>,
    /// Continue an interrupted run from its folder, with the same settings
    #[arg(long, conflicts_with = "out")]
    resume: Option<PathBuf>,
    /// Write TensorBoard event files into the run's folder
    #[arg(long)]
    tensorboard: bool,
    /// If the device is full, move the least recently used tensors to host memory
    #[arg(long)]
    spill: bool,
    /// Measure every kernel and transfer, and write a table (profile.txt) and a timeline (trace.json, for Perfetto)
    /// into this folder; default: the run's folder
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    profile: Option<Option<PathBuf>>,
    /// Show no progress, and print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The result of a finished run, printed as JSON.
#[derive(Serialize)]
struct Outcome<'a> {
    folder: &'a Path,
    ending: &'static str,
    epochs: usize,
    test_loss: f64,
    test_accuracy: Option<f64>,
    /// Only for regression.
    #[serde(flatten)]
    fit: Option<summary::Fit>,
    seconds: f64,
    device: String,
    /// `host CPU`, `hardware` or `emulator`.
    device_nature: &'static str,
}

/// `command` starts this command again, and `own` this program; `is_given` returns whether an option was given on the
/// command line.
pub(super) fn run(
    arguments: &Arguments,
    command: &[OsString],
    own: &[OsString],
    is_given: &dyn Fn(&str) -> bool,
) -> Result<u8> {
    if member::may_restart() && arguments.out.is_none() && arguments.resume.is_none() {
        let message =
            "the launcher restarts processes that fail: name a folder, to continue from its checkpoint";
        super::report(&Error::data("--out", message));
        return Ok(super::USAGE);
    }
    let member = Member::join(arguments.threads)?;
    if let Some(devices) = arguments.devices.filter(|devices| *devices > 1 && member.is_none()) {
        return launch::copies(command, own, devices);
    }
    if let Some(threads) = arguments.threads {
        neurenix::set_threads(threads)?;
    }
    let has_begun = Cell::new(false);
    let result = train(arguments, member.as_ref(), is_given, &has_begun);
    match &result {
        Err(error) if (member.is_some() || member::may_restart()) && !has_begun.get() && recurs(error) => {
            super::report(error);
            Ok(super::USAGE)
        }
        _ => result,
    }
}

/// Whether an error before training would occur again if the processes were restarted.
fn recurs(error: &Error) -> bool {
    use phynexus::Error::{Argument, UnknownDevice};
    matches!(error, Error::Data { .. } | Error::Engine(Argument { .. } | UnknownDevice { .. }))
}

/// Trains in this process. `has_begun` is set when options and data have been checked.
fn train(
    arguments: &Arguments,
    member: Option<&Member>,
    is_given: &dyn Fn(&str) -> bool,
    has_begun: &Cell<bool>,
) -> Result<u8> {
    let begun = match &arguments.resume {
        Some(folder) => Some(folder.clone()),
        None => begun(member, arguments)?,
    };
    let follows = member.is_some_and(|member| !member.leads());
    let open = |path: PathBuf| match follows {
        false => RunFolder::to_resume(&path),
        true => Ok((RunFolder::at(&path), RunFolder::at(&path).read_config()?)),
    };
    let resumed = begun.map(open).transpose()?;
    let mut settings = match &resumed {
        Some((_, config)) => {
            arguments.settings.must_agree(&config.settings, is_given)?;
            config.settings.clone()
        }
        None => arguments.settings.resolved(),
    };
    settings.check()?;
    let device = super::device(settings.device.as_deref())?;
    settings.device = Some(device.name().to_owned());
    let device = member.map_or(Ok(device), |member| member.device(device))?;
    if arguments.spill {
        spill(device)?;
    }
    let parts = Parts::load(&settings)?;
    let objective = match Objective::of(&parts.training) {
        Objective::Regression(loss) => Objective::Regression(loss),
        Objective::Classification(_) => {
            Objective::Classification(Loss::cross_entropy(settings.label_smoothing))
        }
    };
    let config = config(settings, &parts);
    if resumed.as_ref().is_some_and(|(_, there)| *there != config) {
        let message = "the data differ from those that the run started with";
        return Err(Error::data("--resume", message));
    }
    let settings = &config.settings;

    let generator = Arc::new(Generator::new(settings.seed));
    let model = config.model.build(device, &generator)?;
    let optimizer = Optimizer::new(settings.rule()?, model.parameters(), settings.learning_rate)?
        .with_weight_decay(settings.weight_decay)?;
    let batches = parts.training.len().div_ceil(settings.batch_size);
    let steps_per_epoch = batches.div_ceil(settings.accumulate) as u64;
    let options = TrainOptions {
        epochs: settings.epochs,
        batch_size: settings.batch_size,
        accumulate: settings.accumulate,
        seed: settings.seed,
        schedule: settings.learning_rates(steps_per_epoch),
        clip_norm: settings.clip_norm,
        replay: true,
        patience: settings.patience,
        checkpoint: None,
        settings: serde_json::to_value(&config).map_err(|e| Error::data("settings", e.to_string()))?,
    };
    let mut trainer = Trainer::new(model.as_ref(), optimizer, objective, &generator, device, options);
    for part in [&parts.training, &parts.validation, &parts.test] {
        trainer.check(part)?;
    }
    if let Some(member) = member {
        trainer = trainer.with_group(member.group.clone());
        if !member.leads() {
            if let Some((folder, _)) = resumed {
                trainer.resume(&folder.checkpoint_path())?;
            }
            has_begun.set(true);
            let ending = trainer.run(&parts.training, Some(&parts.validation), &mut Follower::default())?;
            return Ok(if ending == Ending::Interrupted { super::interrupted() } else { super::SUCCESS });
        }
    }
    // All options are valid at this point: create the folder only now.
    let folder = match resumed {
        Some((folder, _)) => {
            trainer.resume(&folder.checkpoint_path())?;
            folder
        }
        None => RunFolder::choose(arguments.out.as_deref(), &config.name())?,
    };
    has_begun.set(true);
    trainer.options.checkpoint = Some(folder.checkpoint_path());
    let result = announce(arguments, &config, &parts, &trainer, &folder)
        .and_then(|()| learn(arguments, &config, &parts, &mut trainer, &folder));
    match result {
        Ok(super::SUCCESS) => folder.unlock(),
        Ok(_) => {}
        Err(_) => folder.leave_unless_begun(),
    }
    result
}

/// The folder of the run that a failure ended, if the launcher has started its processes again.
fn begun(member: Option<&Member>, arguments: &Arguments) -> Result<Option<PathBuf>> {
    let Some(out) = arguments.out.as_ref().filter(|_| member::may_restart()) else { return Ok(None) };
    if !member::is_restarted()? {
        return Ok(None);
    }
    let is_there = RunFolder::at(out).checkpoint_path().exists();
    // Ranks must agree, and files may reach other machines late.
    let is_there = member.map_or(Ok(is_there), |member| member.decided(is_there))?;
    Ok(is_there.then(|| out.clone()))
}

/// Writes the configuration and prints a summary of the task.
fn announce(
    arguments: &Arguments,
    config: &RunConfig,
    parts: &Parts,
    trainer: &Trainer<'_>,
    folder: &RunFolder,
) -> Result<()> {
    folder.write_config(config)?;
    if arguments.json {
        return Ok(());
    }
    say!("{}", printable(parts.training.description()))?;
    say!(
        "{} training, {} validation and {} test samples; {} with {} parameters on {}",
        parts.training.len(),
        parts.validation.len(),
        parts.test.len(),
        config.model.kind.name(),
        trainer.model.parameter_count(),
        described(trainer.device),
    )?;
    match trainer.history().epochs.len() {
        0 => say!("writing to {}", shown(&folder.path)),
        epochs => say!("continuing after epoch {epochs} in {}", shown(&folder.path)),
    }
}

/// A path that is safe to show in a terminal.
fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// Enables spilling: a full device moves tensors to the host.
fn spill(device: Device) -> Result<()> {
    device.set_spilling(true).map_err(|error| match error {
        phynexus::Error::Argument { .. } => Error::data(
            "--spill",
            format!(
                "{device} has no memory of its own: omit this option, or choose an accelerator with --device"
            ),
        ),
        error => error.into(),
    })
}

/// Trains, evaluates and writes all results.
fn learn(
    arguments: &Arguments,
    config: &RunConfig,
    parts: &Parts,
    trainer: &mut Trainer<'_>,
    folder: &RunFolder,
) -> Result<u8> {
    let done_before = trainer.history().epochs.len();
    let mut observer = Progress::new(arguments, folder, trainer.history().clone(), config.settings.epochs)?;
    let ending = trainer.run(&parts.training, Some(&parts.validation), &mut observer)?;
    observer.bar.finish_and_clear();
    if let Some(error) = observer.failure.take() {
        return Err(error);
    }
    let mut profile = observer.profile()?;
    // Read before the peaks are measured, because that measurement allocates memory.
    let memory = trainer.device.memory();
    folder.write_metrics(trainer.history())?;
    let mut write_profile = || -> Result<()> {
        let Some(place) = &arguments.profile else { return Ok(()) };
        measure_peaks(&mut profile, arguments.json)?;
        folder.write_profile(place.as_deref(), &profile)
    };
    if ending == Ending::Interrupted {
        // Everything before the subcommand: under Python, the first word is the interpreter.
        let mut words: Vec<String> = std::env::args().collect();
        words.truncate(words.iter().position(|word| word == "train").unwrap_or(0));
        let program = if words.is_empty() { "neurenix".to_owned() } else { words.join(" ") };
        let devices = arguments.devices.map_or(String::new(), |devices| format!(" --devices {devices}"));
        let option = if arguments.tensorboard { " --tensorboard" } else { "" };
        // If standard error is closed, the exit code still reports the interruption.
        let _ = writeln!(
            std::io::stderr(),
            "interrupted; to continue: {program} train --resume {}{devices}{option}",
            shown(&folder.path)
        );
        write_profile()?;
        return Ok(super::interrupted());
    }
    let best = trainer.restore_best()?;
    save_model(&folder.model_path(), trainer.model, std::collections::BTreeMap::new())?;
    let evaluation = trainer.evaluate(&parts.test)?;
    let fit = summary::Fit::of(&parts.test, evaluation)?;
    let seconds = trainer.history().epochs.iter().map(|epoch| epoch.seconds).sum();
    write_profile()?;
    let measured = summary::Measured {
        history: trainer.history(),
        evaluation,
        fit,
        profile: &profile,
        memory,
        spilling: arguments.spill,
        detailed: arguments.profile.is_some(),
        done_before,
        seconds,
    };
    let report = summary::report(config, &parts.test, &measured, trainer.model, trainer.device)?;
    report::write(&folder.path, &report)?;
    let outcome = Outcome {
        folder: &folder.path,
        ending: if ending == Ending::EarlyStop { "stopped early" } else { "finished" },
        epochs: trainer.history().epochs.len(),
        test_loss: evaluation.loss,
        test_accuracy: evaluation.accuracy,
        fit,
        seconds,
        device: trainer.device.name().to_owned(),
        device_nature: nature(trainer.device.info().nature),
    };
    if arguments.json {
        print_json(&outcome)?;
        return Ok(super::SUCCESS);
    }
    say!("{} after {} in {seconds:.1} s", outcome.ending, counted(outcome.epochs, "epoch"))?;
    if let Some(best) = best {
        say!("saved the model of the best epoch, {best}")?;
    }
    match (evaluation.accuracy, fit) {
        (Some(accuracy), _) => {
            say!("test loss {:.4}, accuracy {:.2} %", evaluation.loss, accuracy * 100.0)?;
        }
        (None, Some(fit)) => say!("test: {fit}")?,
        (None, None) => say!("test loss {:.4}", evaluation.loss)?,
    }
    say!("report: {}", shown(&report::page(&folder.path)))?;
    Ok(super::SUCCESS)
}

fn config(settings: Settings, parts: &Parts) -> RunConfig {
    let training = &parts.training;
    let outputs = match training.class_names().len() {
        0 => training.stored_targets().shape().iter().skip(1).product(),
        classes => classes,
    };
    RunConfig {
        model: settings.network(training.input_shape(), outputs),
        classes: training.class_names().to_vec(),
        columns: training.columns().filter(|columns| columns.named).map(|columns| StoredColumns {
            features: columns.features.clone(),
            label: columns.label.clone(),
        }),
        normalization: training.normalization().map(StoredNormalization::from),
        target_normalization: training.target_normalization().map(StoredNormalization::from),
        settings,
    }
}
