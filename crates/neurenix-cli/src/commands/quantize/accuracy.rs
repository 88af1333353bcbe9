//! The accuracy of a classifier.

use neurenix::{
    onnx::{Error, edit::Network},
    phynexus::{DType, Device, no_grad, tensor::Generator},
};

use super::rows::Batch;

/// The share of rows whose class has the greatest score. The network's first output must be scores,
/// `[rows, classes]`.
pub(super) fn accuracy(network: &Network, batches: &[Batch<'_>]) -> Result<f64, Error> {
    let _guard = no_grad();
    let model = network.model(Device::find("cpu")?)?;
    let (mut right, mut total) = (0usize, 0usize);
    for Batch { sample, classes } in batches {
        let outputs = model.run((*sample).clone(), &Generator::new(0))?;
        let first = outputs.first().ok_or_else(|| Error::Invalid("the network has no output".to_owned()))?;
        let scores = first.tensor()?;
        let count = scores.shape().last().copied().unwrap_or(1);
        let rows = scores.shape().iter().rev().skip(1).product::<usize>();
        if count < 2 || rows != classes.len() {
            let name = network.graph.output.first().map_or("", |output| output.name.as_str());
            return Err(Error::Invalid(format!(
                "the output {name:?} has the shape {:?} for {} rows: --labels needs a score for each class, \
                 [rows, classes]",
                scores.shape(),
                classes.len(),
            )));
        }
        if let Some(class) = classes.iter().find(|class| **class >= count) {
            return Err(Error::Invalid(format!(
                "--labels has the class {class}, the network has {count} classes"
            )));
        }
        let best = scores.argmax(Some(-1), false)?.to_dtype(DType::I64)?.to_vec::<i64>()?;
        right +=
            best.iter().zip(*classes).filter(|(best, class)| usize::try_from(**best) == Ok(**class)).count();
        total += classes.len();
    }
    Ok(right as f64 / total.max(1) as f64)
}
