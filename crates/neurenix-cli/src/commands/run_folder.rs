//! The folder of a training run: configuration, checkpoint, model, figures, report.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use neurenix::{
    Error, Result,
    data::{LabelColumn, Normalization},
    error::Location,
    io::write_bytes_atomically,
    phynexus::profile::Profile,
    train::History,
};
use serde::{Deserialize, Serialize};

use super::{
    run_lock,
    train::settings::{Settings, value_name},
};
use crate::{models::ModelSpec, report};

/// The files that a run writes, except for event files.
const FILES: [&str; 9] = [
    "config.json",
    "metrics.csv",
    "metrics.json",
    "checkpoint.safetensors",
    "model.safetensors",
    "curves.png",
    "report.html",
    "profile.txt",
    "trace.json",
];

/// Whether a run writes a file with this name.
fn is_of_a_run(name: &str) -> bool {
    FILES.contains(&name)
        || name == run_lock::LOCK
        || name.starts_with("events.out.tfevents.")
        || is_temporary(name)
}

/// Whether this is the name of a partially written file.
fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp") && FILES.iter().any(|file| name.starts_with(&format!(".{file}.")))
}

/// The configuration of a run: everything needed to rebuild the network and to repeat or continue the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunConfig {
    /// The options it was started with, including defaults.
    pub(super) settings: Settings,
    /// The network.
    pub(super) model: ModelSpec,
    /// Class names; empty for regression.
    pub(super) classes: Vec<String>,
    /// The columns of a table with a header.
    pub(super) columns: Option<StoredColumns>,
    /// Converts stored inputs to the network's inputs.
    pub(super) normalization: Option<StoredNormalization>,
    /// Converts stored targets to the network's targets.
    pub(super) target_normalization: Option<StoredNormalization>,
}

impl RunConfig {
    /// The name of the run's folder, such as `digits-mlp`.
    pub(super) fn name(&self) -> String {
        let data = self.settings.data.as_ref().map(value_name).unwrap_or_default();
        format!("{data}-{}", self.model.kind.name())
    }
}

/// The names of a table's columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredColumns {
    /// The features in the network's order.
    pub(super) features: Vec<String>,
    /// The column that is predicted.
    pub(super) label: String,
}

/// [`Normalization`] in serialised form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredNormalization {
    pub(super) scale: f32,
    pub(super) mean: Vec<f32>,
    pub(super) std: Vec<f32>,
}

impl From<&Normalization> for StoredNormalization {
    fn from(n: &Normalization) -> StoredNormalization {
        StoredNormalization { scale: n.scale, mean: n.mean.clone(), std: n.std.clone() }
    }
}

impl From<&StoredNormalization> for Normalization {
    fn from(n: &StoredNormalization) -> Normalization {
        Normalization { scale: n.scale, mean: n.mean.clone(), std: n.std.clone() }
    }
}

/// Parses the label column from the command line: a name, or a number from 1. Default: the last column.
pub(super) fn label_column(label: Option<&str>) -> LabelColumn {
    match label.map(|label| (label, label.parse::<usize>())) {
        None => LabelColumn::Last,
        Some((_, Ok(number @ 1..))) => LabelColumn::Index(number - 1),
        Some((name, _)) => LabelColumn::Name(name.to_owned()),
    }
}

/// A run's folder.
#[derive(Debug)]
pub(super) struct RunFolder {
    pub(super) path: PathBuf,
    /// Held by a run that writes into the folder.
    lock: Option<File>,
    /// Whether this run created the folder.
    is_new: bool,
}

impl RunFolder {
    /// Opens a folder for reading.
    pub(super) fn at(path: &Path) -> RunFolder {
        RunFolder { path: path.to_owned(), lock: None, is_new: false }
    }

    /// Chooses the folder of a new run. `out` must be empty, or hold only leftovers of a run without a checkpoint. The
    /// default is `runs/NAME`, or the first free of `runs/NAME-2`, `runs/NAME-3` and so on.
    pub(super) fn choose(out: Option<&Path>, name: &str) -> Result<RunFolder> {
        let mut folder = RunFolder::at(Path::new("runs"));
        if let Some(out) = out {
            let above = out.parent().filter(|above| !above.as_os_str().is_empty());
            for path in above.into_iter().chain([out]) {
                if path.exists() && !path.is_dir() {
                    let message = format!("{} is a file: choose a new or empty folder", path.display());
                    return Err(Error::data("--out", message));
                }
            }
            above.map_or(Ok(()), |above| {
                fs::create_dir_all(above).map_err(|e| Error::io("create", above, e))
            })?;
            folder.path = out.to_owned();
            folder.is_new = match fs::create_dir(out) {
                Ok(()) => true,
                Err(_) if out.is_dir() => false,
                Err(e) => return Err(Error::io("create", out, e)),
            };
            folder.must_be_free()?;
            folder.lock = Some(run_lock::take(out, "--out")?);
            // Another run may have begun and ended in the meantime.
            folder.must_be_free()?;
            return Ok(folder);
        }
        fs::create_dir_all(&folder.path).map_err(|e| Error::io("create", &folder.path, e))?;
        let mut number = 1;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let path = Path::new("runs").join(format!("{name}{suffix}"));
            // `create_dir` fails if the folder exists, so concurrent runs get different folders.
            match fs::create_dir(&path) {
                Ok(()) => {
                    let lock = Some(run_lock::take(&path, "train")?);
                    return Ok(RunFolder { path, lock, is_new: true });
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(Error::io("create", &path, e)),
            }
        }
    }

    /// Refuses a folder in which a run could overwrite other files.
    fn must_be_free(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::data("--out", message));
        let shown = self.path.display();
        if self.checkpoint_path().exists() || self.model_path().exists() {
            return wrong(format!(
                "{shown} already holds a run: choose another folder, or continue it with --resume"
            ));
        }
        let names = self.names()?;
        let foreign = match names.iter().any(|name| name == run_lock::LOCK) {
            true => names.iter().find(|name| !is_of_a_run(name)),
            // Without the lock file, files with a run's names may belong to something else.
            false => names.first(),
        };
        match foreign {
            Some(name) => {
                wrong(format!("{shown} holds {name}, which no run wrote: choose a new or empty folder"))
            }
            None => self.must_hold_no_links("--out"),
        }
    }

    /// Refuses symbolic links with the names of a run's files: writing would follow them out of the folder.
    fn must_hold_no_links(&self, option: &str) -> Result<()> {
        for name in self.names()?.iter().filter(|name| is_of_a_run(name)) {
            if self.path.join(name).is_symlink() {
                let message = format!(
                    "{name} in {} is a symbolic link, which a run does not follow: remove it, or put the file there",
                    self.path.display()
                );
                return Err(Error::data(option, message));
            }
        }
        Ok(())
    }

    /// The names of the files in the folder.
    fn names(&self) -> Result<Vec<String>> {
        let fail = |e| Error::io("read", &self.path, e);
        let entries = fs::read_dir(&self.path).map_err(fail)?;
        entries.map(|entry| Ok(entry.map_err(fail)?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// Opens the folder of an interrupted run and reads its configuration. Removes temporary files left by a killed
    /// process.
    pub(super) fn to_resume(path: &Path) -> Result<(RunFolder, RunConfig)> {
        let mut folder = RunFolder::at(path);
        let config = folder.read_config()?;
        let wrong = |message: String| Error::data("--resume", message);
        let finished = || match report::page(path).exists() {
            true => Err(wrong(format!("the run in {} is already finished", path.display()))),
            false => Ok(()),
        };
        finished()?;
        folder.must_hold_no_links("--resume")?;
        folder.lock = Some(run_lock::take(path, "--resume")?);
        // The run may have finished before the lock was taken.
        finished()?;
        if !folder.checkpoint_path().exists() {
            let message = format!(
                "the run in {} ended before it completed an epoch: restart it with --out {0}",
                path.display()
            );
            return Err(wrong(message));
        }
        for name in folder.names()?.iter().filter(|name| is_temporary(name)) {
            let left = path.join(name);
            fs::remove_file(&left).map_err(|e| Error::io("remove", &left, e))?;
        }
        Ok((folder, config))
    }

    /// Cleans up after a failure. A run without a checkpoint cannot be continued, so its files are removed. Keeps files
    /// that no run writes, and the folder itself unless this run created it.
    pub(super) fn leave_unless_begun(mut self) {
        if self.checkpoint_path().exists() {
            return;
        }
        // Errors are ignored: the failure itself is what matters, and `--out` accepts a folder with leftovers.
        let names = self.names().unwrap_or_default();
        for name in names.iter().filter(|name| is_of_a_run(name)) {
            let _ = fs::remove_file(self.path.join(name));
        }
        // Windows may keep the lock file's name until the file is closed.
        self.lock = None;
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Removes the lock file of a finished run.
    pub(super) fn unlock(&self) {
        if self.lock.is_some() {
            // A leftover lock file is harmless: the lock itself ends with the process.
            let _ = fs::remove_file(self.path.join(run_lock::LOCK));
        }
    }

    /// Returns an error if the run has no model.
    pub(super) fn must_be_finished(&self) -> Result<()> {
        if !self.config_path().exists() || self.model_path().exists() {
            return Ok(());
        }
        let message = "the run is not finished: continue it with train --resume";
        Err(Error::data(self.path.display().to_string(), message))
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.path.join("config.json")
    }
    pub(super) fn checkpoint_path(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }
    pub(super) fn model_path(&self) -> PathBuf {
        self.path.join("model.safetensors")
    }

    pub(super) fn write_config(&self, config: &RunConfig) -> Result<()> {
        self.write_json("config.json", config)
    }

    pub(super) fn read_config(&self) -> Result<RunConfig> {
        let path = self.config_path();
        let text = fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
        serde_json::from_str(&text).map_err(|e| {
            Error::format(&path, "run configuration", Location::Line(e.line() as u64), e.to_string())
        })
    }

    /// Writes `metrics.csv` and `metrics.json`.
    pub(super) fn write_metrics(&self, history: &History) -> Result<()> {
        write_bytes_atomically(&self.path.join("metrics.csv"), history.to_csv().as_bytes())?;
        self.write_json("metrics.json", history)
    }

    /// Writes `profile.txt` and `trace.json` into `folder`, or into the run's own folder.
    pub(super) fn write_profile(&self, folder: Option<&Path>, profile: &Profile) -> Result<()> {
        let folder = folder.unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        write_bytes_atomically(&folder.join("profile.txt"), profile.to_string().as_bytes())?;
        write_bytes_atomically(&folder.join("trace.json"), profile.chrome_trace().as_bytes())
    }

    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.path.join(name);
        let text = serde_json::to_string_pretty(value).map_err(|e| Error::data(name, e.to_string()))?;
        write_bytes_atomically(&path, text.as_bytes())
    }
}
