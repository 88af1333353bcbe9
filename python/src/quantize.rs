//! Quantization of networks.

use std::collections::HashMap;

use neurenix::{
    onnx::edit::Network,
    quantize::{
        self, Accuracy, Calibrator, Format, Options, Quantized, Report, Rounding, Sample, WeightOnly,
    },
};
use neurenix_cli::report::{PlacementRow, render_deployment};
use pyo3::prelude::*;

use crate::{
    device::registered,
    error::{Failure, Result, value_error},
    interrupt::compute,
    onnx::{PyOnnxFile, given},
};

impl From<quantize::Error> for Failure {
    fn from(error: quantize::Error) -> Failure {
        match error {
            quantize::Error::Network(error) => (*error).into(),
            quantize::Error::Engine(error) => (*error).into(),
            other => value_error(other.to_string()),
        }
    }
}

/// What quantization did to a network.
#[pyclass(name = "QuantizationReport", module = "neurenix._engine", frozen)]
pub(crate) struct PyReport(Report);

#[pymethods]
impl PyReport {
    /// The report as JSON.
    fn json(&self) -> Result<String> {
        serde_json::to_string(&self.0).map_err(|error| value_error(error.to_string()))
    }
    /// The report of this JSON.
    #[staticmethod]
    fn parse(json: &str) -> Result<PyReport> {
        serde_json::from_str(json).map(PyReport).map_err(|error| value_error(error.to_string()))
    }
    /// It never changes: copies share it.
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> Bound<'py, Self> {
        let _ = memo;
        slf.clone()
    }
    /// Pickles hold the JSON.
    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (String,))> {
        Ok((py.get_type::<PyReport>().getattr("parse")?, (self.json()?,)))
    }
    /// The report as a table for terminals.
    fn table(&self) -> String {
        self.0.table()
    }
    /// The report as one HTML page. ``placement`` has node, operator, device and reason for each node.
    fn html(&self, title: &str, placement: Vec<(String, String, String, String)>) -> String {
        let row = |(node, operator, device, reason)| PlacementRow { node, operator, device, reason };
        let placement: Vec<PlacementRow> = placement.into_iter().map(row).collect();
        render_deployment(title, &self.0, &placement)
    }
}

/// The settings of static quantization, from a dictionary.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Settings {
    activations: String,
    weights: String,
    per_channel: bool,
    symmetric: bool,
    calibrator: String,
    percentile: f64,
    excluded: Vec<String>,
    operators: Option<Vec<String>>,
    equalize: bool,
    smooth: Option<f32>,
    bias_correction: bool,
    adaptive_rounding: Option<usize>,
}

impl Settings {
    fn options(self) -> Result<Options> {
        let calibrator = match self.calibrator.as_str() {
            "minmax" => Calibrator::MinMax,
            "percentile" => Calibrator::Percentile(self.percentile),
            "entropy" => Calibrator::Entropy,
            "mse" => Calibrator::MeanSquaredError,
            other => {
                return Err(value_error(format!(
                    "calibrator is {other:?}, it must be \"minmax\", \"percentile\", \"entropy\" or \"mse\""
                )));
            }
        };
        Ok(Options {
            activations: format(&self.activations)?,
            weights: format(&self.weights)?,
            per_channel: self.per_channel,
            symmetric_activations: self.symmetric,
            calibrator,
            excluded: self.excluded,
            operators: self.operators,
            equalize: self.equalize,
            smooth: self.smooth,
            bias_correction: self.bias_correction,
            adaptive_rounding: self.adaptive_rounding.map(|steps| Rounding { steps, ..Rounding::default() }),
            ..Options::default()
        })
    }
}

fn format(name: &str) -> Result<Format> {
    let known = Format::ALL.into_iter().find(|format| format.to_string() == name);
    known.ok_or_else(|| {
        let names = Format::ALL.map(|format| format!("\"{format}\""));
        value_error(format!("the format is {name:?}, it must be one of {}", names.join(", ")))
    })
}

/// Inputs by name, for each sample.
pub(crate) type Samples<'py> = Vec<HashMap<String, Bound<'py, PyAny>>>;

pub(crate) fn samples(all: Samples<'_>) -> Result<Vec<Sample>> {
    let sample = |inputs: HashMap<String, Bound<'_, PyAny>>| {
        inputs.into_iter().map(|(name, value)| Ok((name, given(&value)?))).collect()
    };
    all.into_iter().map(sample).collect()
}

fn returned(quantized: Quantized) -> (PyOnnxFile, PyReport) {
    (PyOnnxFile::of(&quantized.network), PyReport(quantized.report))
}

/// The file as a network, with the devices that compute its constants and samples. Call it without the GIL.
fn network(file: &PyOnnxFile) -> Result<Network> {
    registered();
    Ok(Network::new((*file.0).clone())?)
}

/// Integers for activations and weights, with ranges from samples.
#[pyfunction]
pub(crate) fn quantize_onnx(
    py: Python<'_>,
    file: &PyOnnxFile,
    samples: Samples<'_>,
    settings: Settings,
) -> Result<(PyOnnxFile, PyReport)> {
    let (samples, options) = (self::samples(samples)?, settings.options()?);
    compute(py, || -> Result<_> { Ok(quantize::quantize(&network(file)?, &samples, &options)?) })
        .map(returned)
}

/// The same, but layers stay float where quantization would cost more than `max_drop` of the accuracy that `measure`
/// returns for a file.
#[pyfunction]
pub(crate) fn quantize_onnx_within(
    py: Python<'_>,
    file: &PyOnnxFile,
    samples: Samples<'_>,
    settings: Settings,
    max_drop: f64,
    measure: Py<PyAny>,
) -> Result<(PyOnnxFile, PyReport)> {
    let (samples, options) = (self::samples(samples)?, settings.options()?);
    let mut failure = None;
    let mut measured = |network: &Network| {
        let accuracy = Python::attach(|py| {
            measure.call1(py, (PyOnnxFile::of(network),)).and_then(|value| value.extract::<f64>(py))
        });
        accuracy.map_err(|error| {
            failure = Some(error);
            quantize::Error::Option {
                option: "measure",
                expected: "a number".to_owned(),
                given: "an exception".to_owned(),
            }
        })
    };
    let accuracy = Accuracy { max_drop, ..Accuracy::default() };
    let result = compute(py, || -> Result<_> {
        Ok(quantize::quantize_within(&self::network(file)?, &samples, &options, &accuracy, &mut measured)?)
    });
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(returned(result?)),
    }
}

/// Integers for weights only, with a scale for each group.
#[pyfunction]
pub(crate) fn quantize_onnx_weights(
    py: Python<'_>,
    file: &PyOnnxFile,
    bits: usize,
    group: Option<usize>,
    symmetric: bool,
    excluded: Vec<String>,
) -> Result<(PyOnnxFile, PyReport)> {
    let options = WeightOnly { bits, group, symmetric, excluded, ..WeightOnly::default() };
    compute(py, || -> Result<_> { Ok(quantize::quantize_weights(&network(file)?, &options)?) }).map(returned)
}

/// Integers for weights; activations are quantized while the network runs.
#[pyfunction]
pub(crate) fn quantize_onnx_dynamically(
    py: Python<'_>,
    file: &PyOnnxFile,
    per_channel: bool,
    excluded: Vec<String>,
) -> Result<(PyOnnxFile, PyReport)> {
    let options = Options { per_channel, excluded, ..Options::default() };
    compute(py, || -> Result<_> { Ok(quantize::quantize_dynamically(&network(file)?, &options)?) })
        .map(returned)
}

/// A network whose weights and activations are rounded as quantization will, for training.
#[pyfunction]
pub(crate) fn prepare_onnx_training(
    py: Python<'_>,
    file: &PyOnnxFile,
    samples: Samples<'_>,
    settings: Settings,
) -> Result<PyOnnxFile> {
    let (samples, options) = (self::samples(samples)?, settings.options()?);
    let prepared =
        compute(py, || -> Result<_> { Ok(quantize::prepare_training(&network(file)?, &samples, &options)?) });
    prepared.map(|network: Network| PyOnnxFile::of(&network))
}

/// The trained network with integers for weights.
#[pyfunction]
pub(crate) fn finish_onnx_training(py: Python<'_>, file: &PyOnnxFile) -> Result<PyOnnxFile> {
    let finished = compute(py, || -> Result<_> { Ok(quantize::finish_training(&network(file)?)?) });
    finished.map(|network: Network| PyOnnxFile::of(&network))
}
