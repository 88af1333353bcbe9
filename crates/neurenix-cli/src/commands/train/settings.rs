//! What a run is asked to do, as the command line words it and as its folder keeps it.

use std::path::PathBuf;

use clap::{ValueEnum, builder::PossibleValuesParser};
use neurenix::{
    Error, Result,
    optim::{Rule, Schedule},
};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use crate::{
    commands::{positive, whole},
    models::{ModelKind, ModelSpec},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::commands) enum Source {
    /// 1797 handwritten digits of 8 x 8 pixels, bundled
    Digits,
    /// The four IDX files of MNIST (or Fashion-MNIST) in a folder: --path
    Mnist,
    /// The binary version of CIFAR-10 in a folder: --path
    Cifar10,
    /// A table of numbers, with or without a header: --path, --label
    Csv,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::commands) enum ScheduleName {
    Constant,
    Step,
    Cosine,
    OneCycle,
    Plateau,
}

/// Everything that decides what a run computes. A resumed run takes it from its folder.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub(in crate::commands) struct Settings {
    /// The data set
    #[arg(value_enum, required_unless_present = "resume")]
    pub(in crate::commands) data: Option<Source>,
    /// The file or folder with the data
    #[arg(long)]
    pub(in crate::commands) path: Option<PathBuf>,
    /// The column of a CSV file to predict: its name, or its number from 1; default: the last
    #[arg(long)]
    pub(in crate::commands) label: Option<String>,
    /// What separates the cells of a CSV file, such as ";", or tab; default: a comma
    #[arg(long, value_parser = delimiter)]
    pub(in crate::commands) delimiter: Option<char>,
    /// Predict numbers rather than classes (CSV)
    #[arg(long)]
    pub(in crate::commands) regression: bool,
    /// The network
    #[arg(long, value_enum, default_value = "mlp")]
    pub(in crate::commands) model: ModelKind,
    /// Sizes of hidden layers; default: 256,128 (mlp), 16,32 (cnn), 96 (lstm), 64 (transformer)
    #[arg(long, value_delimiter = ',', value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub(in crate::commands) hidden: Vec<usize>,
    /// The dropout probability in training
    #[arg(long, default_value_t = 0.1, allow_negative_numbers = true)]
    pub(in crate::commands) dropout: f64,
    /// Passes over the training data
    #[arg(long, default_value_t = 40, value_parser = positive::<usize>, allow_negative_numbers = true)]
    pub(in crate::commands) epochs: usize,
    /// Samples in a batch
    #[arg(long, default_value_t = 64, value_parser = positive::<usize>, allow_negative_numbers = true)]
    pub(in crate::commands) batch_size: usize,
    /// Batches per step (gradient accumulation): as one large batch, in the memory of a small one
    #[arg(
        long,
        value_name = "BATCHES",
        default_value_t = 1,
        value_parser = positive::<usize>,
        allow_negative_numbers = true
    )]
    #[serde(default = "one")]
    pub(in crate::commands) accumulate: usize,
    /// The highest learning rate
    #[arg(long, default_value_t = 2e-3, allow_negative_numbers = true)]
    pub(in crate::commands) learning_rate: f64,
    /// The optimiser
    #[arg(long, value_parser = PossibleValuesParser::new(Rule::NAMES), default_value = "adamw")]
    #[serde(deserialize_with = "known_rule")]
    pub(in crate::commands) optimizer: String,
    /// Weight decay
    #[arg(long, default_value_t = 0.01, allow_negative_numbers = true)]
    pub(in crate::commands) weight_decay: f64,
    /// The learning rate schedule
    #[arg(long, value_enum, default_value = "cosine")]
    pub(in crate::commands) schedule: ScheduleName,
    /// Label smoothing: the share of probability spread over all classes
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    pub(in crate::commands) label_smoothing: f64,
    /// Scale gradients down to this norm if they exceed it
    #[arg(long, allow_negative_numbers = true)]
    pub(in crate::commands) clip_norm: Option<f64>,
    /// Stop after this many epochs without improvement, and keep the best epoch's model
    #[arg(long, value_parser = positive::<usize>, allow_negative_numbers = true)]
    pub(in crate::commands) patience: Option<usize>,
    /// The seed of all random numbers
    #[arg(long, default_value_t = 0, value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(in crate::commands) seed: u64,
    /// The device; of a run that has begun, its name
    #[arg(long, help = crate::commands::DEVICE)]
    pub(in crate::commands) device: Option<String>,
}

/// The name of an update rule; an error for a name that no rule has.
fn known_rule<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    match Rule::NAMES.contains(&name.as_str()) {
        true => Ok(name),
        false => Err(D::Error::custom(format!("unknown optimizer {name:?}"))),
    }
}

/// Runs that began before there was the option have steps of one batch.
fn one() -> usize {
    1
}

fn delimiter(text: &str) -> Result<char, String> {
    match (text, text.as_bytes()) {
        ("tab" | "\\t", _) => Ok('\t'),
        (_, &[one]) if !one.is_ascii_alphanumeric() && !matches!(one, b'"' | b'.' | b'-' | b'+') => {
            Ok(char::from(one))
        }
        _ => Err("a character of ASCII that numbers do not have is wanted, such as \";\", or tab".to_owned()),
    }
}

impl Settings {
    /// With the network's own hidden layers where none are given.
    pub(super) fn resolved(&self) -> Settings {
        let hidden = if self.hidden.is_empty() { self.model.hidden() } else { self.hidden.clone() };
        Settings { hidden, ..self.clone() }
    }

    pub(super) fn source(&self) -> Result<Source> {
        self.data.ok_or_else(|| Error::data("train", "name the data to learn: digits, mnist, cifar10 or csv"))
    }

    /// What separates the cells of a CSV file.
    pub(in crate::commands) fn delimiter(&self) -> u8 {
        // The command line takes no character of more bytes.
        self.delimiter.and_then(|delimiter| u8::try_from(delimiter).ok()).unwrap_or(b',')
    }

    /// Options that make no sense, alone or with these data.
    pub(super) fn check(&self) -> Result<()> {
        let source = self.source()?;
        let (digits, table) = (source == Source::Digits, source == Source::Csv);
        let finite_above_0 = |value: f64| value.is_finite() && value > 0.0;
        let rules = [
            ("--path", digits && self.path.is_some(), "the digits are bundled: leave it out"),
            ("--label", !table && self.label.is_some(), "only a CSV file has a column to choose"),
            ("--delimiter", !table && self.delimiter.is_some(), "only a CSV file has cells to separate"),
            ("--regression", !table && self.regression, "these data have classes: it is for CSV files"),
            ("--epochs", self.epochs == 0, "it must be at least 1"),
            ("--batch-size", self.batch_size == 0, "it must be at least 1"),
            ("--accumulate", self.accumulate == 0, "it must be at least 1"),
            ("--dropout", !(0.0..1.0).contains(&self.dropout), "it must be at least 0 and below 1"),
            ("--patience", self.patience == Some(0), "it must be at least 1"),
            (
                "--label-smoothing",
                !(0.0..1.0).contains(&self.label_smoothing),
                "it must be at least 0 and below 1",
            ),
            (
                "--label-smoothing",
                self.regression && self.label_smoothing != 0.0,
                "a regression has no classes to smooth",
            ),
            (
                "--clip-norm",
                self.clip_norm.is_some_and(|norm| !finite_above_0(norm)),
                "it must be a finite number above 0",
            ),
        ];
        match rules.into_iter().find(|(_, broken, _)| *broken) {
            Some((option, _, message)) => Err(Error::data(option, message)),
            None => Ok(()),
        }
    }

    /// Settings as names and values, in their order.
    pub(super) fn named(&self) -> Result<serde_json::Map<String, serde_json::Value>> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(settings)) => Ok(settings),
            Ok(_) => Err(Error::data("settings", "they have no names")),
            Err(error) => Err(Error::data("settings", error.to_string())),
        }
    }

    /// Refuses options on the command line (`is_given` tells which are) that a run in progress does not have.
    pub(super) fn must_agree(&self, there: &Settings, is_given: &dyn Fn(&str) -> bool) -> Result<()> {
        let (here, there) = (self.named()?, there.named()?);
        let mut differences = Vec::new();
        for (name, value) in here {
            let stored = there.get(&name).cloned().unwrap_or_default();
            if is_given(&name) && value != stored {
                differences.push(format!("{name}: {} there, {} here", show(&stored), show(&value)));
            }
        }
        if differences.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the run there has other settings ({}): leave these options out, or start a new run",
            differences.join("; ")
        );
        Err(Error::data("--resume", message))
    }

    pub(super) fn network(&self, input: &[usize], outputs: usize) -> ModelSpec {
        ModelSpec {
            kind: self.model,
            input: input.to_vec(),
            outputs,
            hidden: self.hidden.clone(),
            dropout: self.dropout,
        }
    }

    /// # Errors
    /// If there is no such rule; the command line takes no such name.
    pub(super) fn rule(&self) -> Result<Rule> {
        match self.optimizer.as_str() {
            "sgd" => Ok(Rule::nesterov(0.9)),
            name => Rule::named(name).ok_or_else(|| {
                Error::data(
                    "--optimizer",
                    format!("there is no optimizer {name:?}: use one of {:?}", Rule::NAMES),
                )
            }),
        }
    }

    pub(super) fn learning_rates(&self, steps_per_epoch: u64) -> Schedule {
        let rate = self.learning_rate;
        match self.schedule {
            ScheduleName::Constant => Schedule::Constant,
            ScheduleName::Step => {
                Schedule::Step { initial: rate, epochs: (self.epochs as u64 / 3).max(1), factor: 0.1 }
            }
            ScheduleName::Cosine => {
                Schedule::Cosine { initial: rate, final_rate: rate * 0.01, warmup: steps_per_epoch.min(100) }
            }
            ScheduleName::OneCycle => Schedule::OneCycle { peak: rate, rise: 0.3 },
            ScheduleName::Plateau => Schedule::Plateau { factor: 0.1, patience: 3, minimum: rate * 1e-3 },
        }
    }
}

/// A setting as people read it.
pub(super) fn show(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "not given".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(items) => items.iter().map(show).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The spelling of a choice on the command line.
pub(in crate::commands) fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |v| v.get_name().to_owned())
}
