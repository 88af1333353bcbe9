//! A training step that the tests of faults disturb.

use neurenix::{
    nn::{Linear, Module, Sequential},
    optim::{Optimizer, Rule},
};
use phynexus::{DType, Device, Error, Result, Tensor, tensor::Generator};

use crate::driver::device;

/// A network in training, with a gather in its loss.
pub(crate) struct Training {
    model: Sequential,
    pub(crate) optimizer: Optimizer,
    pub(crate) inputs: Tensor,
    labels: Tensor,
}

impl Training {
    pub(crate) fn new(device: Device) -> neurenix::Result<Training> {
        let generator = Generator::new(7);
        let model = Sequential::new()
            .with(Linear::new(5, 6, true, device, &generator)?)
            .with(Linear::new(6, 3, true, device, &generator)?);
        let optimizer = Optimizer::new(Rule::adam(), model.parameters(), 1e-2)?;
        let inputs = generator.randn(&[4, 5], DType::F32, device)?.evaluated()?;
        let labels = Tensor::from_slice(&[0i64, 2, 1, 2], &[4], device)?;
        Ok(Training { model, optimizer, inputs, labels })
    }

    pub(crate) fn step(&mut self) -> neurenix::Result<f32> {
        let scores = self.model.forward(&self.inputs)?.log_softmax(-1)?;
        let chosen = scores.gather(1, &self.labels.reshape(&[4, 1])?)?;
        let loss = chosen.neg()?.mean(&[], false)?;
        self.optimizer.step(loss.leaf_gradients()?, &[&loss])?;
        Ok(loss.item::<f32>()?)
    }

    pub(crate) fn values(&self) -> Result<Vec<Vec<f32>>> {
        let state =
            self.optimizer.state().map_err(|_| Error::internal("test", "the state is not readable"))?;
        let parameters = self.model.parameters().into_iter().map(|p| p.tensor());
        let floats = state.into_values().filter(|tensor| tensor.dtype() == DType::F32);
        parameters.chain(floats).map(|tensor| tensor.to_vec::<f32>()).collect()
    }
}

/// The result of the training step without failures.
pub(crate) fn undisturbed(name: &str, steps: usize) -> neurenix::Result<Vec<Vec<f32>>> {
    let mut training = Training::new(device(name, true).0)?;
    for _ in 0..steps {
        training.step()?;
    }
    Ok(training.values()?)
}
