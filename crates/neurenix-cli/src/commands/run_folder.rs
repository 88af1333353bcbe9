//! The folder of a training run: configuration, checkpoint, model, figures, report.

use std::{
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

use super::train::settings::{Settings, value_name};
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
#[derive(Clone, Debug)]
pub(super) struct RunFolder(pub(super) PathBuf);

impl RunFolder {
    /// A new folder: the one given, which must not hold a run that has begun, or `runs/NAME`, or `runs/NAME-2` and so
    /// on where that exists.
    pub(super) fn choose(out: Option<&Path>, name: &str) -> Result<RunFolder> {
        if let Some(out) = out {
            let folder = RunFolder(out.to_owned());
            if folder.checkpoint_path().exists() || folder.model_path().exists() {
                let message = format!(
                    "{} already holds a run: choose another folder, or continue it with --resume",
                    out.display()
                );
                return Err(Error::data("--out", message));
            }
            std::fs::create_dir_all(out).map_err(|e| Error::io("create", out, e))?;
            return Ok(folder);
        }
        let runs = Path::new("runs");
        std::fs::create_dir_all(runs).map_err(|e| Error::io("create", runs, e))?;
        let mut number = 1;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let path = runs.join(format!("{name}{suffix}"));
            // Of two runs that begin at once each gets a folder: the system creates one only once.
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(RunFolder(path)),
                Err(e) if e.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(Error::io("create", &path, e)),
            }
        }
    }

    /// The folder of a run that was interrupted, and its configuration. Temporary files that a killed process left are
    /// removed.
    pub(super) fn to_resume(path: &Path) -> Result<(RunFolder, RunConfig)> {
        let folder = RunFolder(path.to_owned());
        let config = folder.read_config()?;
        let wrong = |message: String| Err(Error::data("--resume", message));
        if report::page(path).exists() {
            return wrong(format!("the run in {} is finished: nothing is left to do", path.display()));
        }
        if !folder.checkpoint_path().exists() {
            let message = format!(
                "the run in {} ended before its first epoch did: start it anew with --out {0}",
                path.display()
            );
            return wrong(message);
        }
        let entries = std::fs::read_dir(path).map_err(|e| Error::io("read", path, e))?;
        for entry in entries.filter_map(|entry| entry.ok()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if FILES.iter().any(|file| name.starts_with(&format!(".{file}."))) && name.ends_with(".tmp") {
                std::fs::remove_file(entry.path()).map_err(|e| Error::io("remove", &entry.path(), e))?;
            }
        }
        Ok((folder, config))
    }

    /// After a failure: without a checkpoint nothing can be continued, so that nothing is left to be in the way.
    pub(super) fn leave_unless_begun(&self) {
        if !self.checkpoint_path().exists() {
            // The failure is what is reported; what cannot be removed does no harm: `--out` takes such a folder.
            let _ = std::fs::remove_file(self.config_path());
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    /// Refuses a run without a model.
    pub(super) fn must_be_finished(&self) -> Result<()> {
        if !self.config_path().exists() || self.model_path().exists() {
            return Ok(());
        }
        let message = "the run there is not finished: continue it with train --resume";
        Err(Error::data(self.0.display().to_string(), message))
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.0.join("config.json")
    }
    pub(super) fn checkpoint_path(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }
    pub(super) fn model_path(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    pub(super) fn write_config(&self, config: &RunConfig) -> Result<()> {
        self.write_json("config.json", config)
    }

    pub(super) fn read_config(&self) -> Result<RunConfig> {
        let path = self.config_path();
        let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
        serde_json::from_str(&text).map_err(|e| {
            Error::format(&path, "run configuration", Place::Line(e.line() as u64), e.to_string())
        })
    }

    /// `metrics.csv` and `metrics.json`.
    pub(super) fn write_metrics(&self, history: &History) -> Result<()> {
        write_bytes_atomically(&self.0.join("metrics.csv"), history.to_csv().as_bytes())?;
        self.write_json("metrics.json", history)
    }

    /// `profile.txt` and `trace.json`, in the folder given or in the run's own.
    pub(super) fn write_profile(&self, folder: Option<&Path>, profile: &Profile) -> Result<()> {
        let folder = folder.unwrap_or(&self.0);
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        write_bytes_atomically(&folder.join("profile.txt"), profile.to_string().as_bytes())?;
        write_bytes_atomically(&folder.join("trace.json"), profile.chrome_trace().as_bytes())
    }

    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.0.join(name);
        let text = serde_json::to_string_pretty(value).map_err(|e| Error::data(name, e.to_string()))?;
        write_bytes_atomically(&path, text.as_bytes())
    }
}
