//! The folder of a training run: configuration, checkpoint, model, figures, report.

use std::path::{Path, PathBuf};

use neurenix::{Error, Result, data::LabelColumn, error::Place, io::write_bytes_atomically, train::History};
use serde::{Deserialize, Serialize};

use crate::models::ModelSpec;

/// What a run was asked to do: everything needed to build the network again and to repeat or continue the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunConfig {
    /// The data: `digits`, `mnist`, `cifar10`, `csv`.
    pub(super) data: String,
    /// Where the data are, for data that come from files.
    pub(super) path: Option<PathBuf>,
    /// The label column of a CSV file.
    pub(super) label: Option<String>,
    /// The network.
    pub(super) model: ModelSpec,
    /// Class names; empty for regression.
    pub(super) classes: Vec<String>,
    /// How stored inputs become what the network sees.
    pub(super) normalization: Option<StoredNormalization>,
    pub(super) epochs: usize,
    pub(super) batch_size: usize,
    pub(super) learning_rate: f64,
    pub(super) optimizer: String,
    pub(super) weight_decay: f64,
    pub(super) schedule: String,
    pub(super) label_smoothing: f64,
    pub(super) clip_norm: Option<f64>,
    pub(super) patience: Option<usize>,
    pub(super) seed: u64,
    pub(super) device: String,
}

/// [`neurenix::data::Normalization`] as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredNormalization {
    pub(super) scale: f32,
    pub(super) mean: Vec<f32>,
    pub(super) std: Vec<f32>,
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
    pub(super) fn create(path: PathBuf) -> Result<RunFolder> {
        std::fs::create_dir_all(&path).map_err(|e| Error::io("create", &path, e))?;
        Ok(RunFolder(path))
    }

    /// The folder given, or `runs/NAME`, or `runs/NAME-2` and so on where that exists.
    pub(super) fn choose(out: Option<&Path>, name: &str) -> Result<RunFolder> {
        if let Some(out) = out {
            let folder = RunFolder(out.to_owned());
            if folder.config_path().exists() {
                let message = format!(
                    "{} already holds a run: choose another folder, or continue it with --resume",
                    out.display()
                );
                return Err(Error::data("--out", message));
            }
            return RunFolder::create(out.to_owned());
        }
        let mut number = 1;
        loop {
            let suffix = if number == 1 { String::new() } else { format!("-{number}") };
            let path = Path::new("runs").join(format!("{name}{suffix}"));
            if !path.exists() {
                return RunFolder::create(path);
            }
            number += 1;
        }
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

    pub(super) fn write_json(&self, name: &str, value: &impl Serialize) -> Result<()> {
        let path = self.0.join(name);
        let text = serde_json::to_string_pretty(value).map_err(|e| Error::data(name, e.to_string()))?;
        write_bytes_atomically(&path, text.as_bytes())
    }
}
