//! `neurenix quantize`.

mod accuracy;
mod rows;
mod target;

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use indicatif::ProgressBar;
use neurenix::{
    Error, Result,
    error::printable,
    io::write_bytes_atomically,
    npu::CompiledFile,
    onnx::{self, edit::Network},
    phynexus::text::show_bytes,
    quantize::{self, Accuracy, Calibrator, Format, Options, Quantized, Rounding, Sample, WeightOnly},
};

use self::{
    accuracy::accuracy,
    rows::{Batch, Rows},
    target::{Outcome, Target},
};
use super::{export, run_folder::RunFolder};
use crate::report::{PlacementRow, render_deployment};

/// Options that apply only if the ranges of activations come from typical inputs.
const STATIC_ONLY: [&str; 7] =
    ["activations", "calibrator", "equalize", "smooth", "bias_correction", "adaptive_rounding", "max_drop"];

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of a finished run, or an ONNX file
    model: PathBuf,
    /// The file to write. Default: quantized.onnx in the run's folder, or NAME.quantized.onnx beside the ONNX file
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Typical inputs, from which the ranges of activations follow: NumPy .npy, MNIST IDX, or CSV with the columns of
    /// the training file; for an ONNX file .npy, or .npz with an array for each input. With --dynamic and
    /// --weight-only, they only serve the comparison with the float network and --device
    #[arg(long, value_name = "FILE")]
    calibrate: Option<PathBuf>,
    /// Rows of that file to use, evenly spaced
    #[arg(long, value_name = "NUMBER", default_value = "256", requires = "calibrate", allow_negative_numbers = true,
          value_parser = super::positive::<usize>)]
    rows: usize,
    /// The class of each row of that file, NumPy .npy or MNIST IDX: the report then has the accuracy
    #[arg(long, value_name = "FILE", requires = "calibrate")]
    labels: Option<PathBuf>,
    /// Keep layers as floats until the accuracy is at most this much lower, such as 0.003
    #[arg(long, value_name = "SHARE", requires = "labels", allow_negative_numbers = true, value_parser = share)]
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
    #[arg(long, value_name = "BITS", allow_negative_numbers = true, conflicts_with_all = STATIC_ONLY,
          conflicts_with_all = ["dynamic", "weights", "per_tensor"])]
    weight_only: Option<usize>,
    /// Find the ranges of activations while the network runs; needs no data
    #[arg(long, conflicts_with_all = STATIC_ONLY)]
    dynamic: bool,
    /// Compile for this NPU, such as npu:0, run the rows of --calibrate there, and compare with the CPU. For an NPU
    /// elsewhere, such as ethos-u55-128 or edgetpu, write its .tflite file beside the output
    #[arg(long)]
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

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0 to 1, such as 0.003".to_owned())
}

/// The file to write, which must be neither the model nor the report.
fn output(arguments: &Arguments) -> Result<PathBuf> {
    let output = arguments.output.clone().unwrap_or_else(|| default_output(&arguments.model));
    let real = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let files = [
        ("the model", Some(&arguments.model)),
        ("--output", Some(&output)),
        ("--report", arguments.report.as_ref()),
    ];
    for (at, (name, path)) in files.iter().enumerate() {
        for (other, same) in files.iter().take(at) {
            if let (Some(path), Some(same)) = (path, same)
                && real(path) == real(same)
            {
                let message =
                    format!("{other} and {name} are the same file, {}: give another", path.display());
                return Err(Error::data("quantize", message));
            }
        }
    }
    Ok(output)
}

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    if arguments.calibrate.is_none() && arguments.weight_only.is_none() && !arguments.dynamic {
        let message = "give --calibrate FILE, or choose --dynamic or --weight-only BITS, which need no data";
        return Err(Error::data("quantize", message));
    }
    let output = output(arguments)?;
    let cpu = super::device(Some("cpu"))?;
    let target = arguments.device.as_deref().map(|name| Target::find(name, arguments.calibrate.is_some()));
    let target = target.transpose()?;
    let (mut network, config) = match arguments.model.is_dir() {
        true => {
            let folder = RunFolder::at(&arguments.model);
            folder.must_be_finished()?;
            let config = folder.read_config()?;
            (Network::new(export::file_of(&folder, &config, onnx::OPSET)?)?, Some(config))
        }
        false => (Network::load(&arguments.model)?, None),
    };
    network.fix_defaults();
    if arguments.labels.is_some() && config.as_ref().is_some_and(|config| config.classes.is_empty()) {
        return Err(Error::data("--labels", "this run learned numbers, not classes"));
    }
    let rows = match &arguments.calibrate {
        Some(path) => Rows::read(path, &network, config.as_ref(), arguments.rows)?,
        None => Rows::default(),
    };
    let classes = arguments.labels.as_deref().map(|path| rows.classes(path)).transpose()?;
    let samples = rows.samples(cpu)?;
    let batches = classes.as_deref().map(|classes| rows.batches(&samples, classes));
    let progress = ProgressBar::new_spinner().with_message("quantizing");
    progress.enable_steady_tick(std::time::Duration::from_millis(100));
    let quantized = quantized(arguments, &network, &samples, batches.as_deref());
    progress.finish_and_clear();
    let Quantized { network: result, mut report } = quantized?;
    super::make_folder_of(&output)?;
    let compiled = target
        .map(|target| target.compile(&result, &samples, arguments.strict, &output.with_extension("tflite")));
    let Outcome { placement, file } = compiled.transpose()?.unwrap_or_default();
    onnx::save(&result.to_proto(), &output)?;
    // The last line has the accuracy.
    let accuracy = report.accuracy.take();
    report.table().lines().try_for_each(|line| say!("{}", printable(line)))?;
    report.accuracy = accuracy;
    placement.iter().try_for_each(show)?;
    if let Some(path) = &arguments.report {
        let title =
            arguments.model.file_name().unwrap_or(OsStr::new("network")).to_string_lossy().into_owned();
        write_bytes_atomically(path, render_deployment(&title, &report, &placement).as_bytes())?;
    }
    if let Some((before, after)) = accuracy {
        let (after, before) = (after * 100.0, before * 100.0);
        say!("accuracy {after:.2} %, {before:.2} % as floats, on {} calibration rows", rows.count())?;
    }
    say!("{}", printable(&output.to_string_lossy()))?;
    if let (Some(file), Some(target)) = (&file, &arguments.device) {
        show_file(file, target)?;
    }
    Ok(super::SUCCESS)
}

/// Prints where a node runs.
fn show(row: &PlacementRow) -> Result<()> {
    let text = format!("{:<10} {:<24} {}  {}", row.device, row.operator, row.node, row.reason);
    say!("{}", printable(text.trim_end()))
}

/// Prints what a compiler says of its file.
fn show_file(file: &CompiledFile, target: &str) -> Result<()> {
    let memory = [("SRAM", file.memory.sram), ("DRAM", file.memory.dram), ("flash", file.memory.flash)];
    let mut parts: Vec<String> = (memory.iter().filter(|(_, bytes)| *bytes > 0))
        .map(|(name, bytes)| {
            format!("{} of {name}", show_bytes(usize::try_from(*bytes).unwrap_or(usize::MAX)))
        })
        .collect();
    parts.extend(file.cycles.map(|cycles| format!("{cycles} cycles")));
    let figures = if parts.is_empty() { "no figures".to_owned() } else { parts.join(", ") };
    say!("{} for {target}; its compiler estimates {figures}", printable(&file.path.to_string_lossy()))
}

fn default_output(model: &Path) -> PathBuf {
    if model.is_dir() { model.join("quantized.onnx") } else { model.with_extension("quantized.onnx") }
}

fn quantized(
    arguments: &Arguments,
    network: &Network,
    samples: &[Sample],
    batches: Option<&[Batch<'_>]>,
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
    if let (Some(batches), Some(max_drop)) = (batches, arguments.max_drop) {
        let limit = Accuracy { max_drop, ..Accuracy::default() };
        let mut measure = |network: &Network| Ok(accuracy(network, batches)?);
        return Ok(quantize::quantize_within(network, samples, &options, &limit, &mut measure)?);
    }
    // The accuracy first: labels that do not fit are found before the work.
    let before = batches.map(|batches| accuracy(network, batches)).transpose()?;
    let mut quantized = match arguments.weight_only {
        Some(bits) => {
            let options = WeightOnly { bits, excluded: arguments.exclude.clone(), ..WeightOnly::default() };
            quantize::quantize_weights(network, &options)?
        }
        None if arguments.dynamic => quantize::quantize_dynamically(network, &options)?,
        None => quantize::quantize(network, samples, &options)?,
    };
    if (arguments.dynamic || arguments.weight_only.is_some()) && !samples.is_empty() {
        let samples = samples.get(..options.report_samples).unwrap_or(samples);
        quantized.report.compare(network, &quantized.network, samples)?;
    }
    if let (Some(before), Some(batches)) = (before, batches) {
        quantized.report.accuracy = Some((before, accuracy(&quantized.network, batches)?));
    }
    Ok(quantized)
}
