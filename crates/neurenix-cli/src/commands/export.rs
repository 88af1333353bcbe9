//! `neurenix export`.

use std::{path::PathBuf, sync::Arc};

use neurenix::{
    Result,
    error::printable,
    nn::Module,
    onnx::{self, Export, proto::ModelProto},
    phynexus::{Device, Tensor, tensor::Generator},
    train::load_model,
};

use super::run_folder::{RunConfig, RunFolder, StoredNormalization};

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of a finished run
    run: PathBuf,
    /// The file to write, such as network.onnx
    file: PathBuf,
    /// The version of ONNX's operators, from 13 to 28
    #[arg(long, default_value_t = onnx::OPSET)]
    opset: i64,
}

/// Numbers of rows for which the network is recorded, so that the file can have any.
const ROWS: [usize; 2] = [3, 2];

pub(super) fn run(arguments: &Arguments) -> Result<u8> {
    let folder = RunFolder::at(&arguments.run);
    folder.must_be_finished()?;
    let config = folder.read_config()?;
    let file = file_of(&folder, &config, arguments.opset)?;
    super::make_folder_of(&arguments.file)?;
    onnx::save(&file, &arguments.file)?;
    let sizes: Vec<String> = config.model.input.iter().map(usize::to_string).collect();
    let path = printable(&arguments.file.to_string_lossy()).into_owned();
    say!("{path}: input [rows, {}], output {}", sizes.join(", "), output(&config))?;
    Ok(super::SUCCESS)
}

/// The name of the output.
fn output(config: &RunConfig) -> &'static str {
    if config.classes.is_empty() { "values" } else { "probabilities" }
}

/// The network of a finished run as a file: its input is stored rows, its output what `predict` shows.
pub(super) fn file_of(folder: &RunFolder, config: &RunConfig, opset: i64) -> Result<ModelProto> {
    let device = super::device(Some("cpu"))?;
    let model = config.model.build(device, &Arc::new(Generator::new(config.settings.seed)))?;
    load_model(&folder.model_path(), model.as_ref(), device)?;
    model.eval();
    let state: Vec<(String, Tensor)> =
        model.named_state().into_iter().map(|(name, _, parameter)| (name, parameter.tensor())).collect();
    let [first, second] = ROWS.map(|rows| record(model.as_ref(), config, device, rows));
    let (first, second) = (first?, second?);
    let output = output(config);
    Ok(onnx::export_as(&first.export(output, &state), &second.export(output, &state), opset)?)
}

/// The network's output, pending, and what it is computed from.
struct Recorded {
    input: Tensor,
    output: Tensor,
}

/// Records the network for so many rows of stored inputs, with what `predict` does before and after it.
fn record(model: &dyn Module, config: &RunConfig, device: Device, rows: usize) -> Result<Recorded> {
    let shape: Vec<usize> = [rows].into_iter().chain(config.model.input.iter().copied()).collect();
    // Views of it are recorded only if it may need a gradient.
    let zeros = vec![0f32; shape.iter().product()];
    let input = Tensor::from_slice(&zeros, &shape, device)?.with_grad()?;
    let mut x = input.clone();
    if let Some(StoredNormalization { scale, mean, std }) = &config.normalization {
        let [mean, std] = [per_channel(mean, &shape, device)?, per_channel(std, &shape, device)?];
        x = x.mul_scalar(*scale)?.sub(&mean)?.div(&std)?;
    }
    let mut output = model.forward(&x)?;
    if !config.classes.is_empty() {
        output = output.softmax(-1)?;
    }
    if let Some(StoredNormalization { mean, std, .. }) = &config.target_normalization {
        let [mean, std] = [mean, std].map(|numbers| Tensor::from_slice(numbers, &[numbers.len()], device));
        output = output.mul(&std?)?.add(&mean?)?;
    }
    Ok(Recorded { input, output })
}

/// Numbers for each channel, the second axis, or one for all.
fn per_channel(numbers: &[f32], shape: &[usize], device: Device) -> Result<Tensor> {
    let mut extents = vec![1; shape.len()];
    if let [_, channels, ..] = &mut extents[..] {
        *channels = numbers.len();
    }
    Ok(Tensor::from_slice(numbers, &extents, device)?)
}

impl Recorded {
    fn export<'a>(&'a self, output: &str, state: &'a [(String, Tensor)]) -> Export<'a> {
        Export {
            inputs: vec![("input".to_owned(), &self.input)],
            outputs: vec![(output.to_owned(), &self.output)],
            names: state.iter().map(|(name, tensor)| (name.clone(), tensor)).collect(),
            symbols: vec![(0, 0, "rows".to_owned())],
        }
    }
}
