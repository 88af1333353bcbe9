//! What a network is trained for: the loss, and how its outputs are judged.

use phynexus::{DType, Device, Scalar, Tensor, tensor::Reduction};

use crate::{
    Error, Result,
    data::{Batch, Dataset, HostArray},
    loss::Loss,
};

/// What is minimised: the mean of a loss over a batch.
#[derive(Clone, Debug)]
pub enum Objective {
    /// Of class scores `[rows, classes]` against labels `[rows]`: cross-entropy, say. Accuracy is measured too.
    Classification(Loss),
    /// Against targets of the outputs' shape: squared errors, say.
    Regression(Loss),
}

impl Objective {
    /// The objective that fits a data set: cross-entropy where there are class names, else the mean squared error.
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

    /// The number of rows classified correctly, an `int64` scalar; `None` for regression.
    pub fn correct(&self, outputs: &Tensor, targets: &Tensor) -> Result<Option<Tensor>> {
        match self {
            Objective::Regression(_) => Ok(None),
            Objective::Classification(_) => {
                let hits = outputs.detach()?.argmax(Some(-1), false)?.eq(targets)?;
                Ok(Some(hits.sum(&[], false)?))
            }
        }
    }

    /// Checks that a network whose outputs for one row have shape `outputs` fits the data: every label is a class with
    /// a score, or targets have the outputs' shape.
    ///
    /// # Errors
    /// The row and its label, or the shapes.
    pub fn check(&self, data: &Dataset, outputs: &[usize]) -> Result<()> {
        if let Objective::Regression(_) = self {
            let targets = &data.stored_targets().shape()[1..];
            if outputs != targets {
                let message =
                    format!("a row's targets have shape {targets:?}, the network's outputs {outputs:?}");
                return Err(Error::data(data.description(), message));
            }
            return Ok(());
        }
        let &[classes] = outputs else {
            let message = format!("a classifier gives [classes] scores for a row, not {outputs:?}");
            return Err(Error::data(data.description(), message));
        };
        // A data set made of classes has checked its own labels.
        let named = data.class_names().len();
        if named > 0 && named <= classes {
            return Ok(());
        }
        let labels = data.stored_targets();
        if labels.shape().len() != 1 || !labels.dtype().is_integer() {
            let message =
                format!("labels must be integers [rows], not {} {:?}", labels.dtype(), labels.shape());
            return Err(Error::data(data.description(), message));
        }
        let outside = |&(_, label): &(usize, i64)| usize::try_from(label).map_or(true, |l| l >= classes);
        match labels.to_vec::<i64>()?.into_iter().enumerate().find(outside) {
            None => Ok(()),
            Some((row, label)) => {
                let message = format!(
                    "row {row} has label {label}, but the network has {classes} outputs: labels must be below that"
                );
                Err(Error::data(data.description(), message))
            }
        }
    }
}

/// A batch on a device. Floats become `dtype`, the network's; integers (token ids, labels) stay integers.
pub(crate) fn to_device(batch: &Batch, dtype: DType, device: Device) -> Result<(Tensor, Tensor)> {
    let upload = |array: &HostArray| -> Result<Tensor> {
        let cast = (array.dtype().is_float() && array.dtype() != dtype).then(|| array.cast(dtype));
        let array = cast.as_ref().unwrap_or(array);
        Ok(Tensor::from_bytes(array.bytes(), array.dtype(), array.shape(), device)?)
    };
    Ok((upload(&batch.inputs)?, upload(&batch.targets)?))
}

/// The value of a scalar tensor of any dtype.
pub(crate) fn scalar_value(tensor: &Tensor) -> Result<f64> {
    let wide = tensor.to_dtype(DType::F64)?;
    Ok(Scalar::from(wide.item::<f64>()?).as_f64())
}
