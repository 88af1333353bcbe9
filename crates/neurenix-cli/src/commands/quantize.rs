//! `neurenix quantize`.

use std::{
    collections::HashMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use indicatif::ProgressBar;
use neurenix::{
    Error, Result,
    data::{self, HostArray},
    error::printable,
    io::write_bytes_atomically,
    npu::{self, Compiled, Place, Search},
    onnx::{self, Value, edit::Network},
    phynexus::{DType, Device, Tensor, no_grad, tensor::Generator},
    quantize::{self, Accuracy, Calibrator, Format, Options, Quantized, Rounding, Sample, WeightOnly},
};

use super::{export, predict, run_folder::RunFolder};
use crate::report::{PlacementRow, render_deployment};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of a finished run, or an ONNX file
    model: PathBuf,
    /// The file to write. Default: quantized.onnx in the run's folder, or NAME.quantized.onnx beside the ONNX file
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Typical inputs, from which the ranges of activations follow: NumPy .npy, MNIST IDX, or CSV with the columns of the
    /// training file; for an ONNX file .npy, or .npz with an array for each input
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Rows of that file to use, evenly spaced
    #[arg(long, value_name = "NUMBER", default_value = "256", value_parser = super::positive::<usize>)]
    rows: usize,
    /// The class of each row of that file, NumPy .npy or MNIST IDX: the report then has the accuracy
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    labels: Option<PathBuf>,
    /// Keep layers as floats until the accuracy is at most this much lower, such as 0.003
    #[arg(long, value_name = "SHARE", requires = "labels")]
    max_drop: Option<f64>,
    /// The format of activations
    #[arg(long, default_value = "uint8", value_parser = format)]
    activations: Format,
    /// The format of weights
    #[arg(long, default_value = "int8", value_parser = format)]
    weights: Format,
    /// One scale for a whole weight instead of one for each output channel
    #[arg(long)]
    per_tensor: bool,
    /// How the range of an activation is chosen
    #[arg(long, value_enum, default_value = "minmax")]
    calibrator: CalibratorName,
    /// Nodes or types of operators that stay floats
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// Balance the channels of adjacent layers first
    #[arg(long)]
    equalize: bool,
    /// Move outliers of activations into weights first, with this share from 0 to 1
    #[arg(long, value_name = "ALPHA")]
    smooth: Option<f32>,
    /// Remove the mean error of each layer
    #[arg(long)]
    bias_correction: bool,
    /// Learn for each weight whether to round up or down
    #[arg(long)]
    adaptive_rounding: bool,
    /// Only make weights smaller, to this number of bits (16, 8 or 4); needs no data
    #[arg(long, value_name = "BITS", conflicts_with_all = ["calibrate", "dynamic"])]
    weight_only: Option<usize>,
    /// Find the ranges of activations while the network runs; needs no data
    #[arg(long, conflicts_with = "calibrate")]
    dynamic: bool,
    /// Compile for this NPU, such as npu:0, run the calibration rows there, and compare with the CPU
    #[arg(long, requires = "calibrate")]
    device: Option<String>,
    /// Fail if a node does not run on that device
    #[arg(long, requires = "device")]
    strict: bool,
    /// Write the report as an HTML page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum CalibratorName {
    /// From the least to the greatest number
    Minmax,
    /// Without the outermost 0.01 %
    Percentile,
    /// The range that keeps most information
    Entropy,
    /// The range with the least squared error
    Mse,
}

fn format(name: &str) -> Result<Format, String> {
    let known = Format::ALL.into_iter().find(|format| format.to_string() == name);
    known
        .ok_or_else(|| format!("expected one of {}", Format::ALL.map(|format| format.to_string()).join(", ")))
}

/// Rows of a calibration batch.
const BATCH: usize = 32;

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.calibrate.is_none() && arguments.weight_only.is_none() && !arguments.dynamic {
        let message = "give --calibrate FILE, or choose --dynamic or --weight-only BITS, which need no data";
        return Err(Error::data("quantize", message));
    }
    let cpu = super::device(Some("cpu"))?;
    let folder = arguments.model.is_dir().then(|| RunFolder::at(&arguments.model));
    let network = match &folder {
        Some(folder) => {
            folder.must_be_finished()?;
            Network::new(export::file_of(folder, &folder.read_config()?, onnx::OPSET)?)?
        }
        None => Network::load(&arguments.model)?,
    };
    let rows = match &arguments.calibrate {
        Some(path) => rows(path, &network, folder.as_ref(), arguments.rows)?,
        None => Rows::default(),
    };
    let labels = arguments.labels.as_deref().map(|path| labels(path, &rows)).transpose()?;
    let samples = rows.samples(cpu)?;
    let progress = ProgressBar::new_spinner().with_message("quantizing");
    progress.enable_steady_tick(std::time::Duration::from_millis(100));
    let quantized = quantized(arguments, &network, &samples, labels.as_deref());
    progress.finish_and_clear();
    let Quantized { network: result, report } = quantized?;
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&arguments.model));
    let placement =
        arguments.device.as_deref().map(|name| compiled(name, &result, &samples, arguments.strict));
    let placement = placement.transpose()?.unwrap_or_default();
    onnx::save(&result.to_proto(), &output)?;
    say!("{}", report.table().trim_end())?;
    for row in &placement {
        let reason = if row.reason.is_empty() { String::new() } else { format!("  {}", row.reason) };
        say!("{:<10} {:<24} {}{reason}", row.device, row.operator, row.node)?;
    }
    if let Some(path) = &arguments.report {
        let title =
            arguments.model.file_name().unwrap_or(OsStr::new("network")).to_string_lossy().into_owned();
        write_bytes_atomically(path, render_deployment(&title, &report, &placement).as_bytes())?;
    }
    say!("{}", printable(&output.to_string_lossy()))?;
    Ok(super::SUCCESS)
}

fn default_output(model: &Path) -> PathBuf {
    if model.is_dir() { model.join("quantized.onnx") } else { model.with_extension("quantized.onnx") }
}

fn quantized(
    arguments: &Arguments,
    network: &Network,
    samples: &[Sample],
    labels: Option<&[usize]>,
) -> Result<Quantized> {
    let options = Options {
        activations: arguments.activations,
        weights: arguments.weights,
        per_channel: !arguments.per_tensor,
        calibrator: match arguments.calibrator {
            CalibratorName::Minmax => Calibrator::MinMax,
            CalibratorName::Percentile => Calibrator::Percentile(99.99),
            CalibratorName::Entropy => Calibrator::Entropy,
            CalibratorName::Mse => Calibrator::MeanSquaredError,
        },
        excluded: arguments.exclude.clone(),
        equalize: arguments.equalize,
        smooth: arguments.smooth,
        bias_correction: arguments.bias_correction,
        adaptive_rounding: arguments.adaptive_rounding.then(Rounding::default),
        ..Options::default()
    };
    if let Some(bits) = arguments.weight_only {
        let options = WeightOnly { bits, excluded: arguments.exclude.clone(), ..WeightOnly::default() };
        return Ok(quantize::quantize_weights(network, &options)?);
    }
    if arguments.dynamic {
        return Ok(quantize::quantize_dynamically(network, &options)?);
    }
    let Some(labels) = labels else { return Ok(quantize::quantize(network, samples, &options)?) };
    let mut measure = |network: &Network| Ok(accuracy(network, samples, labels)?);
    match arguments.max_drop {
        Some(max_drop) => {
            let accuracy = Accuracy { max_drop, ..Accuracy::default() };
            Ok(quantize::quantize_within(network, samples, &options, &accuracy, &mut measure)?)
        }
        None => {
            let mut quantized = quantize::quantize(network, samples, &options)?;
            quantized.report.accuracy = Some((measure(network)?, measure(&quantized.network)?));
            Ok(quantized)
        }
    }
}

/// The share of rows whose class is the one with the greatest output.
fn accuracy(network: &Network, samples: &[Sample], labels: &[usize]) -> Result<f64, onnx::Error> {
    let _guard = no_grad();
    let model = network.model(Device::find("cpu")?)?;
    let mut classes = Vec::with_capacity(labels.len());
    for sample in samples {
        let outputs = model.run(sample.clone(), &Generator::new(0))?;
        let first =
            outputs.first().ok_or_else(|| onnx::Error::Invalid("the network has no output".to_owned()))?;
        let best = first.tensor()?.argmax(Some(-1), false)?.to_dtype(DType::I64)?.to_vec::<i64>()?;
        classes.extend(best.into_iter().map(|class| class as usize));
    }
    let right = classes.iter().zip(labels).filter(|(class, label)| class == label).count();
    Ok(right as f64 / labels.len().max(1) as f64)
}

/// Rows of inputs, by name.
#[derive(Default)]
struct Rows {
    inputs: Vec<(String, HostArray)>,
    /// The rows of the file that they are.
    places: Vec<usize>,
    /// The number of rows in the file.
    total: usize,
}

impl Rows {
    fn samples(&self, device: Device) -> Result<Vec<Sample>> {
        let batches = (0..self.places.len()).step_by(BATCH);
        let sample = |first: usize| {
            let places: Vec<usize> = self.places[first..self.places.len().min(first + BATCH)].to_vec();
            let tensor = |(name, array): &(String, HostArray)| {
                let part = array.take_rows(&places)?;
                let tensor = Tensor::from_bytes(part.bytes(), part.dtype(), part.shape(), device)?;
                Ok((name.clone(), Value::from(tensor)))
            };
            self.inputs.iter().map(tensor).collect::<Result<HashMap<_, _>>>()
        };
        batches.map(sample).collect()
    }
}

/// The calibration file's rows.
fn rows(path: &Path, network: &Network, folder: Option<&RunFolder>, most: usize) -> Result<Rows> {
    let names: Vec<&str> = network.graph.input.iter().map(|input| input.name.as_str()).collect();
    let inputs: Vec<(String, HostArray)> = match folder {
        Some(folder) => {
            let rows = predict::read(path, &folder.read_config()?)?.cast(DType::F32);
            names.iter().map(|name| ((*name).to_owned(), rows.clone())).collect()
        }
        None if path.extension().is_some_and(|extension| extension == "npz") => {
            data::read_npz(path)?.into_iter().filter(|(name, _)| names.contains(&name.as_str())).collect()
        }
        None => match names[..] {
            [name] => vec![(name.to_owned(), data::read_npy(path)?)],
            _ => {
                let message = format!("the network has the inputs {}: give .npz with each", names.join(", "));
                return Err(Error::data(path.display().to_string(), message));
            }
        },
    };
    let total = inputs.iter().map(|(_, array)| array.rows()).min().unwrap_or(0);
    if total == 0 || inputs.len() != names.len() {
        let message = format!("it needs rows for each input: {}", names.join(", "));
        return Err(Error::data(path.display().to_string(), message));
    }
    let count = total.min(most);
    let places = (0..count).map(|row| row * total / count).collect();
    Ok(Rows { inputs, places, total })
}

/// The classes of the rows in use.
fn labels(path: &Path, rows: &Rows) -> Result<Vec<usize>> {
    let is_numpy = path.extension().is_some_and(|extension| extension == "npy");
    let array = if is_numpy { data::read_npy(path)? } else { data::read_idx(path)? };
    let all = array.cast(DType::I64).to_vec::<i64>()?;
    if all.len() != rows.total {
        let message = format!("it has {} classes for {} rows", all.len(), rows.total);
        return Err(Error::data(path.display().to_string(), message));
    }
    let class = |&row: &usize| {
        let wrong =
            || Error::data(path.display().to_string(), format!("row {row} has the class {}", all[row]));
        usize::try_from(all[row]).map_err(|_| wrong())
    };
    rows.places.iter().map(class).collect()
}

/// Compiles the network for an NPU, runs the samples there, and says where each node ran.
fn compiled(name: &str, network: &Network, samples: &[Sample], strict: bool) -> Result<Vec<PlacementRow>> {
    let device = npu::Device::find(name, &Search::default())?;
    let options = npu::Options { strict, ..npu::Options::default() };
    let mut compiled = Compiled::compile(network, &device, samples, &options)?;
    for sample in samples {
        compiled.run(sample)?;
    }
    let row = |placed: &npu::Placed| PlacementRow {
        node: placed.node.clone(),
        operator: placed.operator.clone(),
        device: match placed.place {
            Place::Device => device.name().to_owned(),
            Place::Cpu(_) => "cpu".to_owned(),
        },
        reason: match &placed.place {
            Place::Device => String::new(),
            Place::Cpu(reason) => reason.clone(),
        },
    };
    Ok(compiled.placement_report().nodes.iter().map(row).collect())
}
