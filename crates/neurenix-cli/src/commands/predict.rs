//! `neurenix predict`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use neurenix::{
    Error, Result,
    data::{self, HostArray, Normalization},
    nn::Module,
    phynexus::{DType, Device, Tensor, no_grad, tensor::Generator},
    train::load_model,
};
use serde::Serialize;

use super::{
    print_json,
    run_folder::{RunConfig, RunFolder, label_column},
};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of a finished run
    run: PathBuf,
    /// Inputs: NumPy .npy, MNIST IDX, or CSV with the training file's columns
    file: PathBuf,
    /// The device
    #[arg(long, default_value = "cpu")]
    device: String,
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

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let device = Device::find(&arguments.device)?;
    let folder = RunFolder(arguments.run.clone());
    let config = folder.read_config()?;
    let model = config.model.build(device, &Arc::new(Generator::new(config.seed)))?;
    load_model(&folder.model_path(), model.as_ref(), device)?;
    let inputs = read(&arguments.file, &config)?;
    let predictions = predict(&inputs, &config, model.as_ref(), device)?;
    if arguments.json {
        print_json(&predictions)?;
        return Ok(ExitCode::SUCCESS);
    }
    for p in &predictions {
        match (&p.class, p.probability) {
            (Some(class), Some(probability)) => {
                println!("{:>6}  {class:<16} {:.2} %", p.row, probability * 100.0);
            }
            _ => println!("{:>6}  {:?}", p.row, p.values),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The file's inputs as the network sees them, `[rows, ..]`.
fn read(path: &Path, config: &RunConfig) -> Result<HostArray> {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let array = if name.ends_with(".npy") {
        data::read_npy(path)?
    } else if name.ends_with(".csv") {
        data::read_csv_features(
            path,
            config.model.input.iter().product(),
            &label_column(config.label.as_deref()),
        )?
    } else if name.contains("ubyte") || name.contains("idx") {
        data::read_idx(path)?
    } else {
        let message = "the ending of the name must be .npy or .csv, or the name that of an IDX file";
        return Err(Error::data(path.display().to_string(), message));
    };
    let features: usize = config.model.input.iter().product();
    let sample: usize = array.shape().iter().skip(1).product();
    // One sample may come without a leading dimension of rows.
    let rows = match array.shape() {
        shape if shape == config.model.input => 1,
        [rows, ..] if sample == features => *rows,
        shape => {
            let message =
                format!("its shape is {shape:?}, the network takes rows of {:?}", config.model.input);
            return Err(Error::data(path.display().to_string(), message));
        }
    };
    let shape: Vec<usize> = [rows].into_iter().chain(config.model.input.iter().copied()).collect();
    let array = array.reshape(&shape)?;
    match &config.normalization {
        Some(n) => Normalization { scale: n.scale, mean: n.mean.clone(), std: n.std.clone() }.apply(&array),
        None => Ok(array.cast(DType::F32)),
    }
}

fn predict(
    inputs: &HostArray,
    config: &RunConfig,
    model: &dyn Module,
    device: Device,
) -> Result<Vec<Prediction>> {
    let _guard = no_grad();
    model.eval();
    let mut predictions = Vec::new();
    let rows: Vec<usize> = (0..inputs.rows()).collect();
    for chunk in rows.chunks(256) {
        let batch = inputs.take_rows(chunk)?;
        let x = Tensor::from_bytes(batch.bytes(), batch.dtype(), batch.shape(), device)?;
        let outputs = model.forward(&x)?;
        let outputs = if config.classes.is_empty() { outputs } else { outputs.softmax(-1)? };
        let values = outputs.to_dtype(DType::F32)?.to_vec::<f32>()?;
        for (&row, scores) in chunk.iter().zip(values.chunks(config.model.outputs.max(1))) {
            let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
            predictions.push(match best {
                Some((class, &probability)) if !config.classes.is_empty() => Prediction {
                    row,
                    class: config.classes.get(class).cloned(),
                    probability: Some(probability),
                    values: Vec::new(),
                },
                _ => Prediction { row, class: None, probability: None, values: scores.to_vec() },
            });
        }
    }
    Ok(predictions)
}
