//! `neurenix predict`.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use neurenix::{
    Error, Result,
    data::{self, FeatureColumns, HostArray, Normalization},
    error::printable,
    nn::Module,
    phynexus::{DType, Device, Tensor, no_grad, tensor::Generator},
    train::load_model,
};
use serde::Serialize;

use super::{
    json,
    run_folder::{RunConfig, RunFolder, label_column},
    write_out,
};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of a finished run
    run: PathBuf,
    /// Inputs: NumPy .npy, MNIST IDX, or CSV with the columns of the training file
    file: PathBuf,
    #[arg(long, help = super::DEVICE)]
    device: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Prediction {
    row: usize,
    /// The class, for classification.
    class: Option<String>,
    /// Its probability, for classification.
    probability: Option<f32>,
    /// The predicted numbers, for regression.
    values: Vec<f32>,
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let folder = RunFolder::at(&arguments.run);
    folder.must_be_finished()?;
    let config = folder.read_config()?;
    let device = super::device(arguments.device.as_deref())?;
    let model = config.model.build(device, &Arc::new(Generator::new(config.settings.seed)))?;
    load_model(&folder.model_path(), model.as_ref(), device)?;
    let inputs = read(&arguments.file, &config)?;
    // Checks the whole file before printing anything. The batches are prepared again below: keeping them would hold a
    // large file twice.
    batches(&inputs).try_for_each(|rows| prepared(&inputs, rows, &config, &arguments.file).map(drop))?;
    let mut before = "[";
    for rows in batches(&inputs) {
        let x = prepared(&inputs, rows.clone(), &config, &arguments.file)?;
        let predictions = predict(&x, rows, &config, model.as_ref(), device)?;
        if arguments.json {
            // The list without its brackets: all batches are printed as one list.
            let list = json(&predictions)?;
            write_out(format_args!("{before}{}", list.trim_start_matches('[').trim_end_matches("\n]")))?;
            before = ",";
        } else {
            predictions.iter().try_for_each(show)?;
        }
    }
    if arguments.json {
        write_out(format_args!("{}\n", if before == "[" { "[]" } else { "\n]" }))?;
    }
    Ok(super::SUCCESS)
}

fn show(p: &Prediction) -> Result<()> {
    match (&p.class, p.probability) {
        (Some(class), Some(probability)) => {
            let class = printable(class);
            say!("{:>6}  {class:<16} {:.2} %", p.row, probability * 100.0)
        }
        _ => {
            let values: Vec<String> = p.values.iter().map(f32::to_string).collect();
            say!("{:>6}  {}", p.row, values.join(" "))
        }
    }
}

/// Rows to predict at once. Batching limits the memory for converted inputs.
fn batches(inputs: &HostArray) -> impl Iterator<Item = Range<usize>> {
    const BATCH: usize = 256;
    let rows = inputs.rows();
    (0..rows).step_by(BATCH).map(move |first| first..rows.min(first + BATCH))
}

/// The file's raw inputs, `[rows, ..]`.
pub(super) fn read(path: &Path, config: &RunConfig) -> Result<HostArray> {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let array = if name.ends_with(".npy") {
        data::read_npy(path)?
    } else if name.ends_with(".csv") {
        data::read_csv_features(path, &feature_columns(config), config.settings.delimiter())?
    } else if name.contains("ubyte") || name.contains("idx") {
        data::read_idx(path)?
    } else {
        let message = "the file name must end in .npy or .csv, or contain ubyte or idx (IDX files)";
        return Err(Error::data(path.display().to_string(), message));
    };
    let features: usize = config.model.input.iter().product();
    let sample: usize = array.shape().iter().skip(1).product();
    // A single sample may lack the leading dimension.
    let rows = match array.shape() {
        shape if shape == config.model.input => 1,
        [rows, ..] if sample == features => *rows,
        shape => {
            let message =
                format!("its shape is {shape:?}; the network expects rows of shape {:?}", config.model.input);
            return Err(Error::data(path.display().to_string(), message));
        }
    };
    let shape: Vec<usize> = [rows].into_iter().chain(config.model.input.iter().copied()).collect();
    array.reshape(&shape)
}

fn feature_columns(config: &RunConfig) -> FeatureColumns {
    match &config.columns {
        Some(columns) => {
            FeatureColumns::Named { features: columns.features.clone(), label: columns.label.clone() }
        }
        None => FeatureColumns::Numbered {
            width: config.model.input.iter().product(),
            label: label_column(config.settings.label.as_deref()),
        },
    }
}

/// Rows converted to the network's input.
fn prepared(inputs: &HostArray, rows: Range<usize>, config: &RunConfig, path: &Path) -> Result<HostArray> {
    let first = rows.start;
    let rows = inputs.take_rows(&rows.collect::<Vec<_>>())?.cast(DType::F32);
    must_be_finite(&rows, first, config, path)?;
    match &config.normalization {
        Some(normalization) => Normalization::from(normalization).apply(&rows),
        None => Ok(rows),
    }
}

/// The network would return a prediction even for a NaN or infinite input.
fn must_be_finite(array: &HostArray, first: usize, config: &RunConfig, path: &Path) -> Result<()> {
    let values = array.to_vec::<f32>()?;
    let Some(place) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
    let width = (values.len() / array.rows().max(1)).max(1);
    let (row, feature) = (first + place / width, place % width);
    let names = config.columns.as_ref().map(|columns| &columns.features[..]).unwrap_or_default();
    let column = match names.get(feature) {
        Some(name) => format!("column {name}"),
        None => format!("value {feature}"),
    };
    let message = format!("row {row}, {column} is {}: an input must be a finite number", values[place]);
    Err(Error::data(path.display().to_string(), message))
}

fn predict(
    inputs: &HostArray,
    rows: Range<usize>,
    config: &RunConfig,
    model: &dyn Module,
    device: Device,
) -> Result<Vec<Prediction>> {
    let _guard = no_grad();
    model.eval();
    let x = Tensor::from_bytes(inputs.bytes(), inputs.dtype(), inputs.shape(), device)?;
    let outputs = model.forward(&x)?;
    let outputs = if config.classes.is_empty() { outputs } else { outputs.softmax(-1)? };
    let mut values = outputs.to_dtype(DType::F32)?.to_vec::<f32>()?;
    if let Some(n) = &config.target_normalization {
        for (value, (mean, std)) in values.iter_mut().zip(n.mean.iter().zip(&n.std).cycle()) {
            *value = *value * std + mean;
        }
    }
    let prediction = |(row, scores): (usize, &[f32])| {
        let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        match best {
            Some((class, &probability)) if !config.classes.is_empty() => Prediction {
                row,
                class: config.classes.get(class).cloned(),
                probability: Some(probability),
                values: Vec::new(),
            },
            _ => Prediction { row, class: None, probability: None, values: scores.to_vec() },
        }
    };
    Ok(rows.zip(values.chunks(config.model.outputs.max(1))).map(prediction).collect())
}
