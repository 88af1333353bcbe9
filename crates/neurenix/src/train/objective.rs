//! What training minimises, and how outputs are judged.

use std::ops::Range;

use phynexus::{DType, Device, Tensor, tensor::Reduction};

use crate::{
    Error, Result,
    data::{Batch, Dataset, HostArray},
    loss::Loss,
};

/// What is minimised: the mean of a loss over a batch.
#[derive(Clone, Debug)]
pub enum Objective {
    /// Class scores `[rows, classes]` against labels `[rows]`, for example by cross-entropy. Accuracy is measured too.
    Classification(Loss),
    /// Outputs against targets of the same shape, for example by the mean squared error.
    Regression(Loss),
}

impl Objective {
    /// The objective for a data set: cross-entropy if it has class names, else the mean squared error.
    pub fn of(dataset: &Dataset) -> Objective {
        match dataset.class_names().is_empty() {
            true => Objective::Regression(Loss::MSE),
            false => Objective::Classification(Loss::cross_entropy(0.0)),
        }
    }

    /// The mean loss of a batch, a scalar.
    pub fn loss(&self, outputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let (Objective::Classification(loss) | Objective::Regression(loss)) = self;
        loss.forward(outputs, targets, Reduction::Mean)
    }

    /// The number of correctly classified rows, an `int64` scalar; `None` for regression.
    pub fn correct(&self, outputs: &Tensor, targets: &Tensor) -> Result<Option<Tensor>> {
        match self {
            Objective::Regression(_) => Ok(None),
            Objective::Classification(_) => {
                let hits = outputs.detach()?.argmax(Some(-1), false)?.eq(targets)?;
                Ok(Some(hits.sum(&[], false)?))
            }
        }
    }

    /// Checks that data fit a network whose outputs for one row have the shape `outputs`: every label is a class that has
    /// a score, or targets have the outputs' shape.
    pub fn check(&self, data: &Dataset, outputs: &[usize]) -> Result<()> {
        if let Objective::Regression(_) = self {
            let targets = &data.stored_targets().shape()[1..];
            if outputs != targets {
                let message = format!(
                    "the targets have shape {targets:?} per row, but the network's outputs have {outputs:?}: give the last layer as many outputs"
                );
                return Err(Error::data(data.description(), message));
            }
            return Ok(());
        }
        let &[classes] = outputs else {
            let message =
                format!("expected outputs of shape [classes] per row from a classifier, got {outputs:?}");
            return Err(Error::data(data.description(), message));
        };
        // A data set with class names has checked its labels.
        let named = data.class_names().len();
        if named > 0 && named <= classes {
            return Ok(());
        }
        let labels = data.stored_targets();
        if labels.shape().len() != 1 || !labels.dtype().is_integer() {
            let message = format!(
                "labels must be integers of shape [rows], got {} of shape {:?}",
                labels.dtype(),
                labels.shape()
            );
            return Err(Error::data(data.description(), message));
        }
        let outside = |&(_, label): &(usize, i64)| usize::try_from(label).map_or(true, |l| l >= classes);
        match labels.to_vec::<i64>()?.into_iter().enumerate().find(outside) {
            None => Ok(()),
            Some((row, label)) => {
                let message = format!(
                    "row {row} has label {label}, but the network has {classes} outputs: labels must be from 0 to {}",
                    classes.saturating_sub(1)
                );
                Err(Error::data(data.description(), message))
            }
        }
    }
}

/// The inputs and targets of some rows of a batch on a device. Floats are converted to `dtype`; integers (token ids, labels)
/// stay integers.
pub(crate) fn to_device(
    batch: &Batch,
    rows: Range<usize>,
    dtype: DType,
    device: Device,
) -> Result<[Tensor; 2]> {
    let upload = |array: &HostArray| -> Result<Tensor> {
        let part = match rows.len() == array.rows() {
            true => None,
            false => Some(array.take_rows(&rows.clone().collect::<Vec<_>>())?),
        };
        let array = part.as_ref().unwrap_or(array);
        let cast = (array.dtype().is_float() && array.dtype() != dtype).then(|| array.cast(dtype));
        let array = cast.as_ref().unwrap_or(array);
        Ok(Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device)?)
    };
    Ok([upload(&batch.inputs)?, upload(&batch.targets)?])
}

/// The value of a scalar tensor of any dtype.
pub(crate) fn scalar_value(tensor: &Tensor) -> Result<f64> {
    Ok(match tensor.dtype() {
        DType::F32 => f64::from(tensor.item::<f32>()?),
        _ => tensor.to_dtype(DType::F64)?.item::<f64>()?,
    })
}
