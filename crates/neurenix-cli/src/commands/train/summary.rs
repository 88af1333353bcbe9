//! The report of a finished run.

use std::{collections::BTreeMap, fmt};

use neurenix::{
    Result,
    data::{BatchOptions, Batches, Dataset, HostArray},
    nn::Module,
    phynexus::{
        DType, Device, Tensor,
        device::MemoryStatistics,
        no_grad,
        profile::{Clock, Profile, ProfileRow},
    },
    train::{Evaluation, History},
};

use serde::Serialize;

use super::super::{counted, described, run_folder::RunConfig};
use super::settings::{show, value_name};
use crate::report::{ConfusionMatrix, Fact, KernelRow, Mistake, Picture, Report, format};

/// Examples of mistakes shown.
const SHOWN_MISTAKES: usize = 24;
/// Features of an example from a table shown.
const SHOWN_FEATURES: usize = 6;

/// What the report tells about.
pub(super) struct Measured<'a> {
    pub(super) history: &'a History,
    pub(super) evaluation: Evaluation,
    pub(super) fit: Option<Fit>,
    pub(super) profile: &'a Profile,
    /// What the device's pool held when the training had ended.
    pub(super) memory: MemoryStatistics,
    /// Tensors may be moved to the host where the device is full.
    pub(super) spilling: bool,
    /// The profile is of the whole training and has the devices' times; else it is of one epoch and only counts.
    pub(super) detailed: bool,
    /// Epochs done before the run was resumed; their kernels are not in the profile.
    pub(super) done_before: usize,
    /// Of all epochs.
    pub(super) seconds: f64,
}

/// How well quantities are predicted, in their own unit.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Fit {
    /// The root of the mean squared error.
    #[serde(rename = "test_rmse")]
    root_mean_squared_error: f64,
    /// R2: 1 minus the mean squared error over the variance; 0 is as good as always saying the mean.
    #[serde(rename = "test_r2")]
    determination: f64,
}

impl Fit {
    /// Of one quantity whose loss is the mean squared error of standardised targets; `None` for other tasks.
    pub(super) fn of(test: &Dataset, evaluation: Evaluation) -> Result<Option<Fit>> {
        let Some(&[std]) = test.target_normalization().map(|n| &n.std[..]) else { return Ok(None) };
        let own = f64::from(test.target_statistics()?.std[0]);
        let std = f64::from(std);
        Ok(Some(Fit {
            root_mean_squared_error: evaluation.loss.sqrt() * std,
            determination: 1.0 - evaluation.loss * (std / own).powi(2),
        }))
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = format::number(self.root_mean_squared_error);
        write!(f, "root mean squared error {error}, R\u{b2} {:.3}", self.determination)
    }
}

pub(super) fn report(
    config: &RunConfig,
    test: &Dataset,
    measured: &Measured<'_>,
    model: &dyn Module,
    device: Device,
) -> Result<Report> {
    let fact = |name: &str, value: String, note: String| Fact { name: name.to_owned(), value, note };
    let Measured { history, evaluation, .. } = measured;
    let mut summary = Vec::new();
    if let Some(accuracy) = evaluation.accuracy {
        let right = (accuracy * test.len() as f64).round();
        let note = format!("{right} of {} test samples", test.len());
        summary.push(fact("Test accuracy", format!("{:.2} %", accuracy * 100.0), note));
    }
    let mut loss_note = String::new();
    if let Some(fit) = measured.fit {
        let note = format!("root mean squared error of {} test samples", test.len());
        summary.push(fact("Test error", format::number(fit.root_mean_squared_error), note));
        let note = "share of the variance that is explained".to_owned();
        summary.push(fact("Test R\u{b2}", format!("{:.3}", fit.determination), note));
        loss_note = "mean squared error of standardised values".to_owned();
    }
    summary.push(fact("Test loss", format::number(evaluation.loss), loss_note));
    summary.push(fact("Parameters", format::count(model.parameter_count() as u64), String::new()));
    let epochs = history.epochs.len();
    summary.push(fact("Training time", format::seconds(measured.seconds), counted(epochs, "epoch")));
    summary.push(fact("Device", described(device), device.info().model));
    let memory = &measured.memory;
    let note = "the most that tensors held at once".to_owned();
    summary.push(fact("Memory", format::bytes(memory.peak as u64), note));
    let (state, note) = match (measured.spilling, memory.spills) {
        (false, _) => ("off", String::new()),
        (true, 0) => ("on", "no tensor had to be moved to the host".to_owned()),
        (true, spills) => {
            let (times, there) = (format::count(spills), memory.spilled_tensors);
            let bytes = format::bytes(memory.spilled_bytes as u64);
            ("on", format!("{times} times a tensor was moved to the host; {there} of {bytes} are there now"))
        }
    };
    summary.push(fact("Spilling", state.to_owned(), note));
    let kernels = measured.profile.kernels().map(|row| KernelRow {
        name: row.name.clone(),
        device: row.device.clone(),
        count: row.count,
        seconds: row.time.as_secs_f64(),
        bytes: row.bytes,
    });
    let kernels_note = match (measured.detailed, measured.done_before) {
        (false, 0) => "Measured in the first epoch.".to_owned(),
        (false, done) => format!("Measured in epoch {}, in which the run was resumed.", done + 1),
        (true, 0) => String::new(),
        (true, done) => format!("Measured since the run was resumed in epoch {}.", done + 1),
    };
    let submitted = |row: &ProfileRow| row.clock == Clock::Host && row.device != "cpu";
    let data = config.settings.data.as_ref().map(value_name).unwrap_or_default();
    let mut report = Report {
        title: format!("{data} with {} on {}", config.model.kind.name(), described(device)),
        description: format!("{}.", test.description()),
        summary,
        epochs: history.epochs.clone(),
        kernels: kernels.collect(),
        kernels_note,
        kernels_submitted: !measured.detailed && measured.profile.kernels().any(submitted),
        profile: measured.detailed.then(|| measured.profile.clone()),
        configuration: configuration(config)?,
        ..Report::default()
    };
    if !config.classes.is_empty() {
        let judged = judge(test, model, device, &config.classes)?;
        report.mistakes_of = Some((judged.wrong, test.len()));
        report.confusion = Some(judged.confusion);
        report.mistakes = judged.mistakes;
    }
    Ok(report)
}

fn configuration(config: &RunConfig) -> Result<Vec<(String, String)>> {
    let settings = config.settings.named()?;
    let given = settings.iter().filter(|(_, value)| !value.is_null());
    let mut rows: Vec<(String, String)> = given.map(|(name, value)| (name.clone(), show(value))).collect();
    rows.push(("input".to_owned(), format!("{:?}", config.model.input)));
    rows.push(("outputs".to_owned(), config.model.outputs.to_string()));
    Ok(rows)
}

struct Judged {
    confusion: ConfusionMatrix,
    mistakes: Vec<Mistake>,
    wrong: usize,
}

fn judge(test: &Dataset, model: &dyn Module, device: Device, classes: &[String]) -> Result<Judged> {
    let _guard = no_grad();
    model.eval();
    let mut counts = BTreeMap::new();
    let (mut mistakes, mut wrong) = (Vec::new(), 0);
    for batch in Batches::new(test, &BatchOptions { batch_size: 256, ..BatchOptions::default() })? {
        let batch = batch?;
        let inputs =
            Tensor::from_bytes(batch.inputs.bytes(), batch.inputs.dtype(), batch.inputs.shape(), device)?;
        let probabilities = model.forward(&inputs)?.softmax(-1)?.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let truths = batch.targets.to_vec::<i64>()?;
        for (row, (scores, truth)) in probabilities.chunks(classes.len()).zip(truths).enumerate() {
            let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
            let truth = truth as usize;
            *counts.entry((truth, best)).or_insert(0) += 1;
            if best == truth {
                continue;
            }
            wrong += 1;
            if mistakes.len() < SHOWN_MISTAKES {
                mistakes.push(Mistake {
                    picture: picture(&batch.inputs, row)?,
                    index: batch.indices[row],
                    line: test.source_line(batch.indices[row]),
                    features: features(test, batch.indices[row])?,
                    truth: classes[truth].clone(),
                    predicted: classes[best].clone(),
                    confidence: Some(f64::from(scores[best])),
                });
            }
        }
    }
    Ok(Judged { confusion: ConfusionMatrix { classes: classes.to_vec(), counts }, mistakes, wrong })
}

/// The first values of a row of a table, as the file has them.
fn features(test: &Dataset, index: usize) -> Result<Vec<(String, String)>> {
    let Some(columns) = test.columns() else { return Ok(Vec::new()) };
    let values = test.as_stored(&[index])?.to_vec::<f32>()?;
    let named = columns.features.iter().zip(values);
    Ok(named.take(SHOWN_FEATURES).map(|(name, value)| (name.clone(), value.to_string())).collect())
}

/// The image of a sample, stretched to the full range of grey; nothing for samples that are not images.
fn picture(inputs: &HostArray, row: usize) -> Result<Option<Picture>> {
    let (channels, height, width) = match *inputs.shape() {
        [_, h, w] => (1, h, w),
        [_, c @ (1 | 3), h, w] => (c, h, w),
        _ => return Ok(None),
    };
    let values = inputs.take_rows(&[row])?.cast(DType::F32).to_vec::<f32>()?;
    let low = values.iter().copied().fold(f32::INFINITY, f32::min);
    let high = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let grey = |v: f32| if high > low { ((v - low) / (high - low) * 255.0).round() as u8 } else { 0 };
    let plane = height * width;
    let pixels = (0..plane).flat_map(|p| (0..channels).map(move |c| c * plane + p)).map(|i| grey(values[i]));
    Ok(Some(Picture { width, height, channels, pixels: pixels.collect() }))
}
