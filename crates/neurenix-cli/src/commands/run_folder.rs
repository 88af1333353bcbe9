//! The folder of a training run: configuration, checkpoint, model, figures, report.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use neurenix::{
    Error, Result,
    data::{LabelColumn, Normalization},
    error::Place,
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

/// What a run writes, apart from event files.
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

/// Whether a run writes files of this name into its folder.
fn is_of_a_run(name: &str) -> bool {
    FILES.contains(&name)
        || name == run_lock::LOCK
        || name.starts_with("events.out.tfevents.")
        || is_temporary(name)
}

/// Whether a file of this name is one that was not finished.
fn is_temporary(name: &str) -> bool {
    name.ends_with(".tmp") && FILES.iter().any(|file| name.starts_with(&format!(".{file}.")))
}

/// What a run was asked to do: everything needed to build the network again and to repeat or continue the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunConfig {
    /// The options it was started with, defaults included.
    pub(super) settings: Settings,
    /// The network.
    pub(super) model: ModelSpec,
    /// Class names; empty for regression.
    pub(super) classes: Vec<String>,
    /// The columns of a table with a header.
    pub(super) columns: Option<StoredColumns>,
    /// How stored inputs become what the network sees.
    pub(super) normalization: Option<StoredNormalization>,
    /// How stored targets become what the network predicts.
    pub(super) target_normalization: Option<StoredNormalization>,
}

impl RunConfig {
    /// What the run's folder is called: `digits-mlp`.
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

/// [`Normalization`] as it is written down.
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

/// The label column as the command line words it: a name, or a number from 1; the last column if not given.
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
    /// Of a run that writes into it.
    lock: Option<File>,
    /// This run made the folder.
    is_new: bool,
}

impl RunFolder {
    /// A folder to read from.
    pub(super) fn at(path: &Path) -> RunFolder {
        RunFolder { path: path.to_owned(), lock: None, is_new: false }
    }

    /// A new folder: the one given, which must be empty or hold what a run left that never had a checkpoint, or
    /// `runs/NAME`, or `runs/NAME-2` and so on where that exists.
    pub(super) fn choose(out: Option<&Path>, name: &str) -> Result<RunFolder> {
        let mut folder = RunFolder::at(Path::new("runs"));
        if let Some(out) = out {
            let above = out.parent().filter(|above| !above.as_os_str().is_empty());
            for path in above.into_iter().chain([out]) {
                if path.exists() && !path.is_dir() {
                    let message = format!("{} is a file: name a new folder, or an empty one", path.display());
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
            // Another run may have begun and ended meanwhile.
            folder.must_be_free()?;
            return Ok(folder);
        }
        fs::create_dir_all(&folder.path).map_err(|e| Error::io("create", &folder.path, e))?;
        let mut number = 1;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let path = Path::new("runs").join(format!("{name}{suffix}"));
            // Of two runs that begin at once each gets a folder: the system creates one only once.
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

    /// Refuses a folder in which a run could overwrite what it did not write.
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
            // Without the lock, files with a run's names are somebody else's too.
            false => names.first(),
        };
        match foreign {
            Some(name) => wrong(format!(
                "{shown} holds {name}, which is not a run's: choose a new folder, or an empty one"
            )),
            None => self.must_hold_no_links("--out"),
        }
    }

    /// Refuses links in the places of a run's files: writing would follow them out of the folder.
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

    /// What lies in the folder.
    fn names(&self) -> Result<Vec<String>> {
        let fail = |e| Error::io("read", &self.path, e);
        let entries = fs::read_dir(&self.path).map_err(fail)?;
        entries.map(|entry| Ok(entry.map_err(fail)?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// The folder of a run that was interrupted, and its configuration. Temporary files that a killed process left are
    /// removed.
    pub(super) fn to_resume(path: &Path) -> Result<(RunFolder, RunConfig)> {
        let mut folder = RunFolder::at(path);
        let config = folder.read_config()?;
        let wrong = |message: String| Error::data("--resume", message);
        let finished = || match report::page(path).exists() {
            true => Err(wrong(format!("the run in {} is finished: nothing is left to do", path.display()))),
            false => Ok(()),
        };
        finished()?;
        folder.must_hold_no_links("--resume")?;
        folder.lock = Some(run_lock::take(path, "--resume")?);
        // It may have been going on until now.
        finished()?;
        if !folder.checkpoint_path().exists() {
            let message = format!(
                "the run in {} ended before its first epoch did: start it anew with --out {0}",
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

    /// After a failure: without a checkpoint nothing can be continued, so that nothing is left to be in the way. Files that
    /// no run writes stay, and so does a folder that this run did not make.
    pub(super) fn leave_unless_begun(&self) {
        if self.checkpoint_path().exists() {
            return;
        }
        // The failure is what is reported; what cannot be removed does no harm: `--out` takes such a folder.
        let names = self.names().unwrap_or_default();
        for name in names.iter().filter(|name| is_of_a_run(name)) {
            let _ = fs::remove_file(self.path.join(name));
        }
        if self.is_new {
            let _ = fs::remove_dir(&self.path);
        }
    }

    /// Ends the lock of a run that is finished.
    pub(super) fn unlock(&self) {
        if self.lock.is_some() {
            // A lock that stays says nothing: it is not held when the process has ended.
            let _ = fs::remove_file(self.path.join(run_lock::LOCK));
        }
    }

    /// Refuses a run without a model.
    pub(super) fn must_be_finished(&self) -> Result<()> {
        if !self.config_path().exists() || self.model_path().exists() {
            return Ok(());
        }
        let message = "the run there is not finished: continue it with train --resume";
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
            Error::format(&path, "run configuration", Place::Line(e.line() as u64), e.to_string())
        })
    }

    /// `metrics.csv` and `metrics.json`.
    pub(super) fn write_metrics(&self, history: &History) -> Result<()> {
        write_bytes_atomically(&self.path.join("metrics.csv"), history.to_csv().as_bytes())?;
        self.write_json("metrics.json", history)
    }

    /// `profile.txt` and `trace.json`, in the folder given or in the run's own.
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
