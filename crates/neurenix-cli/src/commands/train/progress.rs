//! What a run shows and writes on its way, and Ctrl-C.

use std::{
    io::IsTerminal,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use neurenix::{
    Error, Result,
    io::tensorboard::EventWriter,
    phynexus::profile::{Detail, Profile, Profiler},
    train::{EpochRecord, History, Observer, StepReport},
};

use super::super::{run_folder::RunFolder, write_out};
use super::Arguments;

/// The training runs of this process that go on.
static RUNS: AtomicUsize = AtomicUsize::new(0);
/// Whether they were asked to stop.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Lets the training runs of this process end their step and write a checkpoint. False if there are none, or they were asked
/// before: then a program that was interrupted should end at once.
pub(in crate::commands) fn stop_training() -> bool {
    RUNS.load(Ordering::SeqCst) > 0 && !STOPPED.swap(true, Ordering::SeqCst)
}

/// Whether the training runs of this process were asked to stop.
fn is_stopped() -> bool {
    STOPPED.load(Ordering::SeqCst)
}

/// A training run that goes on.
struct Run;

impl Run {
    fn begin() -> Run {
        if RUNS.fetch_add(1, Ordering::SeqCst) == 0 {
            STOPPED.store(false, Ordering::SeqCst);
        }
        Run
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        RUNS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The observer of a process that trains while another one writes the folder: it only watches for Ctrl-C.
pub(super) struct Follower {
    /// While it lives, [`stop_training`] has something to stop.
    _run: Run,
}

impl Default for Follower {
    fn default() -> Follower {
        Follower { _run: Run::begin() }
    }
}

impl Observer for Follower {
    fn step(&mut self, _: &StepReport) -> bool {
        !is_stopped()
    }
}

/// The progress bar, the figures of each epoch, the TensorBoard file, and Ctrl-C.
pub(super) struct Progress<'a> {
    pub(super) bar: ProgressBar,
    /// What went wrong in a place that cannot return it; it ends the run.
    pub(super) failure: Option<Error>,
    folder: &'a RunFolder,
    history: History,
    /// While it lives, [`stop_training`] has something to stop.
    _run: Run,
    events: Option<EventWriter>,
    quiet: bool,
    epochs: usize,
    /// Ended with the first epoch, unless it is wanted for the whole run.
    profiler: Option<Profiler>,
    profile: Option<Profile>,
    detailed: bool,
}

impl Progress<'_> {
    /// `history` holds the epochs that are done already.
    pub(super) fn new<'a>(
        arguments: &Arguments,
        folder: &'a RunFolder,
        history: History,
        epochs: usize,
    ) -> Result<Progress<'a>> {
        let hidden = arguments.json || !std::io::stderr().is_terminal();
        let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len}  {msg}  {eta}") {
            bar.set_style(style.progress_chars("=> "));
        }
        let events = match arguments.tensorboard {
            true => Some(EventWriter::create(&folder.path)?),
            false => None,
        };
        let detailed = arguments.profile.is_some();
        let profiler = Profiler::start(if detailed { Detail::Timeline } else { Detail::Counts })?;
        Ok(Progress {
            bar,
            failure: None,
            folder,
            history,
            _run: Run::begin(),
            events,
            quiet: arguments.json,
            epochs,
            profiler: Some(profiler),
            profile: None,
            detailed,
        })
    }

    /// What the profiler noted; ends it if it still runs.
    pub(super) fn profile(&mut self) -> Result<Profile> {
        match (self.profile.take(), self.profiler.take()) {
            (Some(profile), _) => Ok(profile),
            (None, Some(profiler)) => Ok(profiler.finish()?),
            (None, None) => {
                Err(neurenix::phynexus::Error::internal("train", "the profile was asked for twice").into())
            }
        }
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

    fn tell(&mut self, record: &EpochRecord) -> Result<()> {
        self.history.epochs.push(record.clone());
        if !self.detailed && self.profile.is_none() {
            self.profile = Some(self.profile()?);
        }
        self.folder.write_metrics(&self.history)?;
        self.write_events(record)?;
        if self.quiet {
            return Ok(());
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
            return write_out(format_args!("{line}\n"));
        }
        self.bar.println(line);
        Ok(())
    }
}

impl Observer for Progress<'_> {
    fn step(&mut self, report: &StepReport) -> bool {
        // A step has several batches where gradients are accumulated, and a resumed epoch begins in its middle.
        if !self.bar.is_hidden() {
            let accuracy =
                report.accuracy.map_or(String::new(), |a| format!("  accuracy {:.1} %", a * 100.0));
            self.bar.set_length(report.batches as u64);
            self.bar.set_prefix(format!("epoch {:>3}/{}", report.epoch, self.epochs));
            self.bar.set_message(format!("loss {:.4}{accuracy}", report.loss));
            self.bar.set_position(report.batch as u64);
        }
        !is_stopped() && self.failure.is_none()
    }

    fn epoch(&mut self, record: &EpochRecord) {
        if let Err(error) = self.tell(record) {
            self.failure.get_or_insert(error);
        }
    }
}

/// Measures what a profile's devices can do where their drivers do not tell, and tells on standard error what it does: a device
/// that compiles slowly takes seconds.
pub(super) fn measure_peaks(profile: &mut Profile, quiet: bool) -> Result<()> {
    let hidden = quiet || !std::io::stderr().is_terminal();
    let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    if !hidden {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    let measured = profile.measure_peaks_with(&mut |what: &str| bar.set_message(format!("measuring {what}")));
    bar.finish_and_clear();
    Ok(measured?)
}
