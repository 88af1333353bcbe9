//! The report of a finished run.

use neurenix::{
    Error, Result,
    data::{BatchOptions, Batches, Dataset, HostArray},
    nn::Module,
    phynexus::{DType, Device, Tensor, no_grad, schedule::profile::ProfileRow},
    train::{Evaluation, History},
};

use super::super::run_folder::RunConfig;
use crate::report::{ConfusionMatrix, Fact, KernelRow, Mistake, Picture, Report};

/// Examples of mistakes shown.
const SHOWN_MISTAKES: usize = 24;

pub(super) fn report(
    config: &RunConfig,
    test: &Dataset,
    history: &History,
    evaluation: Evaluation,
    model: &dyn Module,
    device: Device,
    profile: &[ProfileRow],
    seconds: f64,
) -> Result<Report> {
    let fact = |name: &str, value: String, note: String| Fact { name: name.to_owned(), value, note };
    let mut summary = Vec::new();
    if let Some(accuracy) = evaluation.accuracy {
        let right = (accuracy * test.len() as f64).round();
        let note = format!("{right} of {} test samples", test.len());
        summary.push(fact("Test accuracy", format!("{:.2} %", accuracy * 100.0), note));
    }
    summary.push(fact("Test loss", format!("{:.4}", evaluation.loss), String::new()));
    summary.push(fact("Parameters", model.parameter_count().to_string(), String::new()));
    summary.push(fact(
        "Training time",
        format!("{seconds:.1} s"),
        format!("{} epochs", history.epochs.len()),
    ));
    summary.push(fact("Device", device.name().to_owned(), device.info().model));
    let kernels = profile.iter().map(|row| KernelRow {
        name: row.name.clone(),
        device: row.device.clone(),
        count: row.count,
        seconds: row.time.as_secs_f64(),
        bytes: row.bytes,
        reason: String::new(),
    });
    let mut report = Report {
        title: format!("{} with {}", config.data, config.model.kind.name()),
        description: format!("{}. Trained on {}.", test.description(), device.name()),
        summary,
        epochs: history.epochs.clone(),
        kernels: kernels.collect(),
        configuration: settings(config)?,
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

fn settings(config: &RunConfig) -> Result<Vec<(String, String)>> {
    let value = serde_json::to_value(config).map_err(|e| Error::data("settings", e.to_string()))?;
    let Some(object) = value.as_object() else { return Ok(Vec::new()) };
    let show = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok(object.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), show(v))).collect())
}

struct Judged {
    confusion: ConfusionMatrix,
    mistakes: Vec<Mistake>,
    wrong: usize,
}

fn judge(test: &Dataset, model: &dyn Module, device: Device, classes: &[String]) -> Result<Judged> {
    let _guard = no_grad();
    model.eval();
    let mut counts = vec![0u64; classes.len() * classes.len()];
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
            counts[truth * classes.len() + best] += 1;
            if best == truth {
                continue;
            }
            wrong += 1;
            if mistakes.len() < SHOWN_MISTAKES {
                mistakes.push(Mistake {
                    picture: picture(&batch.inputs, row)?,
                    index: batch.indices[row],
                    truth: classes[truth].clone(),
                    predicted: classes[best].clone(),
                    confidence: Some(f64::from(scores[best])),
                });
            }
        }
    }
    Ok(Judged { confusion: ConfusionMatrix { classes: classes.to_vec(), counts }, mistakes, wrong })
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
