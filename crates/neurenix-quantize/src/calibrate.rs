//! Ranges of activations, from what a network computes for samples.

mod histogram;

use std::collections::HashMap;

use neurenix_onnx::{Model, edit::Network};
use phynexus::{DType, Device, Tensor, tensor::Generator};

use crate::{Calibrator, Error, Format, Result, Sample, scheme::Range};
use histogram::Histogram;

/// A network that is run to see some of its values.
pub(crate) struct Probe {
    model: Model,
    device: Device,
}

impl Probe {
    /// Of values that are tensors of floats.
    pub(crate) fn new(network: &Network, values: &[String]) -> Result<Probe> {
        let device = Device::find("cpu")?;
        Ok(Probe { model: network.with_outputs(values).model(device)?, device })
    }

    /// The numbers of the values for a sample.
    pub(crate) fn run(&self, sample: &Sample) -> Result<Vec<Vec<f32>>> {
        let mut inputs = HashMap::with_capacity(sample.len());
        for (name, value) in sample {
            inputs.insert(name.clone(), value.to_device(self.device)?);
        }
        let values = self.model.run(inputs, &Generator::new(0))?;
        let tensors = values
            .iter()
            .map(|value| Ok(value.tensor()?.to_dtype(DType::F32)?))
            .collect::<Result<Vec<Tensor>>>()?;
        Tensor::evaluate_all(&tensors.iter().collect::<Vec<_>>())?;
        tensors.iter().map(|tensor| Ok(tensor.to_vec::<f32>()?)).collect()
    }
}

/// The range of each of these values of a network. Runs the samples one after the other and keeps no activations: once
/// for least and greatest numbers, and once more for histograms if the calibrator needs them.
pub(crate) fn calibrate(
    network: &Network,
    values: &[String],
    samples: &[Sample],
    calibrator: Calibrator,
    format: Format,
    symmetric: bool,
) -> Result<HashMap<String, Range>> {
    if values.is_empty() {
        return Ok(HashMap::new());
    }
    let probe = Probe::new(network, values)?;
    let mut ranges = vec![Range::ZERO; values.len()];
    for (at, sample) in samples.iter().enumerate() {
        for ((numbers, value), range) in probe.run(sample)?.iter().zip(values).zip(&mut ranges) {
            if let Some(&found) = numbers.iter().find(|x| !x.is_finite()) {
                return Err(Error::NotFinite { value: value.clone(), found, sample: Some(at) });
            }
            *range = range.union(Range::of(numbers));
        }
    }
    let is_done = match calibrator {
        Calibrator::MinMax => true,
        Calibrator::Percentile(percentage) => percentage >= 100.0,
        Calibrator::Entropy | Calibrator::MeanSquaredError => format.is_float(),
    };
    if !is_done {
        let mut histograms: Vec<Histogram> =
            ranges.iter().map(|range| Histogram::new(range.magnitude())).collect();
        for sample in samples {
            for (numbers, histogram) in probe.run(sample)?.iter().zip(&mut histograms) {
                numbers.iter().for_each(|&x| histogram.add(x));
            }
        }
        for (range, histogram) in ranges.iter_mut().zip(&histograms) {
            *range = match calibrator {
                Calibrator::MinMax => *range,
                Calibrator::Percentile(percentage) => histogram.percentile(*range, percentage, symmetric),
                Calibrator::Entropy => histogram.entropy(*range, format, symmetric),
                Calibrator::MeanSquaredError => histogram.least_error(*range, format, symmetric),
            };
        }
    }
    Ok(values.iter().cloned().zip(ranges).collect())
}
