//! A network's loss over all rows, as a function of its trainable weights.

use neurenix::{
    nn::Parameter,
    phynexus::{Tensor, gradient::Gradients, no_grad},
};

use super::{
    Curvature, Objective,
    derivatives::{add_share, products_of_gradients, second_derivatives},
};
use crate::{
    Result, convert,
    network::put,
    training::forward::{Batch, Measured, Model},
};

/// The loss over all rows. Dropout is inactive and normalisations use their running statistics, so that the same
/// weights give the same loss.
pub(crate) struct NetworkObjective<'a> {
    model: &'a Model<'a>,
    batches: Vec<Batch>,
    /// The total weight of all rows.
    mass: f64,
    parameters: Vec<Parameter>,
}

impl<'a> NetworkObjective<'a> {
    /// The loss over these batches, as a function of these weights.
    pub(crate) fn new(
        model: &'a Model<'a>,
        batches: Vec<Batch>,
        parameters: Vec<Parameter>,
    ) -> NetworkObjective<'a> {
        let mass = batches.iter().map(|batch| batch.mass).sum();
        NetworkObjective { model, batches, mass, parameters }
    }

    /// The current weights.
    pub(crate) fn weights(&self) -> Result<Vec<f64>> {
        flattened(self.parameters.iter().map(|parameter| Ok(parameter.tensor())))
    }

    /// Sets the weights.
    pub(crate) fn put(&self, weights: &[f64]) -> Result<()> {
        let values = split(&self.parameters, weights).map(|(parameter, own)| Ok((parameter.clone(), own?)));
        put(values.collect::<Result<Vec<_>>>()?)
    }

    /// The mean loss without penalties, and the outputs row by row if `predictions` is set.
    pub(crate) fn measure(&self, predictions: bool) -> Result<Measured> {
        let _guard = no_grad();
        let Model { network, loss, .. } = self.model;
        let scores = network.loss_takes_scores(loss);
        let mut measured = Measured { loss: 0.0, predictions: Vec::new() };
        for batch in &self.batches {
            let [inputs, targets] = &batch.data;
            let outputs = network.outputs(inputs, !scores)?;
            let value = network.loss_of(loss, &outputs, targets)?;
            measured.loss += convert::values(&value)?[0] * batch.mass / self.mass;
            if predictions {
                let outputs = if scores { network.last_activation(&outputs)? } else { outputs };
                measured.predictions.extend(convert::values(&outputs)?);
            }
        }
        Ok(measured)
    }

    fn leaves(&self) -> Result<Vec<Tensor>> {
        Ok(self.parameters.iter().map(Parameter::leaf).collect::<neurenix::Result<_>>()?)
    }

    /// The loss of a batch with penalties, times the batch's share of all rows.
    fn total(&self, batch: &Batch) -> Result<Tensor> {
        Ok(self.model.forward(&batch.data)?.minimized().mul_scalar(batch.mass / self.mass)?)
    }
}

impl Objective for NetworkObjective<'_> {
    fn value(&mut self, at: &[f64]) -> Result<f64> {
        self.put(at)?;
        // A gradient penalty needs the graph.
        let _guard = self.model.regularization.gradient_penalty.is_none().then(no_grad);
        let mut sum = 0.0;
        for batch in &self.batches {
            sum += convert::values(&self.total(batch)?)?[0];
        }
        Ok(if sum.is_finite() { sum } else { f64::INFINITY })
    }

    fn value_and_gradient(&mut self, at: &[f64]) -> Result<(f64, Vec<f64>)> {
        self.put(at)?;
        let (mut sum, mut gradient) = (0.0, Vec::new());
        for batch in &self.batches {
            let total = self.total(batch)?;
            let gradients = total.leaf_gradients()?;
            Tensor::evaluate_all(&gradients.iter().chain([&total]).collect::<Vec<_>>())?;
            sum += convert::values(&total)?[0];
            let own = flattened(self.parameters.iter().map(|parameter| gradient_of(&gradients, parameter)))?;
            add_share(&mut gradient, 1.0, &own);
        }
        Ok((sum, gradient))
    }

    fn curvature(&mut self, at: &[f64], kind: Curvature) -> Result<(f64, Vec<f64>, Vec<f64>)> {
        let (mut gradient, mut matrix) = (Vec::new(), Vec::new());
        if kind == Curvature::GaussNewton {
            let (value, gradient) = self.value_and_gradient(at)?;
            let (leaves, network) = (self.leaves()?, self.model.network);
            for batch in &self.batches {
                let outputs = network.outputs(&batch.data[0], true)?;
                let share = 2.0 / outputs.shape()[1] as f64 / self.mass;
                add_share(&mut matrix, share, &products_of_gradients(&outputs, &leaves)?);
            }
            return Ok((value, gradient, matrix));
        }
        self.put(at)?;
        let (mut sum, leaves) = (0.0, self.leaves()?);
        for batch in &self.batches {
            let total = self.total(batch)?;
            let (first, own) = second_derivatives(&total, &leaves)?;
            sum += convert::values(&total)?[0];
            add_share(&mut gradient, 1.0, &first);
            add_share(&mut matrix, 1.0, &own);
        }
        Ok((sum, gradient, matrix))
    }
}

/// The gradient of a weight; zeros if the loss does not depend on it.
pub(crate) fn gradient_of(gradients: &Gradients, parameter: &Parameter) -> Result<Tensor> {
    let leaf = parameter.tensor();
    match gradients.get(&leaf) {
        Some(gradient) => Ok(gradient.clone()),
        None => Ok(leaf.detach()?.zeros_like()?),
    }
}

/// Each weight with its part of a vector of all weights, as a tensor of its shape.
pub(crate) fn split<'a>(
    parameters: &'a [Parameter],
    vector: &'a [f64],
) -> impl Iterator<Item = (&'a Parameter, Result<Tensor>)> {
    parameters.iter().scan(vector, |rest, parameter| {
        let tensor = parameter.tensor();
        let (own, after) = rest.split_at(tensor.len());
        *rest = after;
        Some((parameter, convert::tensor(own, tensor.shape(), tensor.dtype(), tensor.device())))
    })
}

/// The elements of tensors, one tensor after another.
pub(crate) fn flattened(tensors: impl IntoIterator<Item = Result<Tensor>>) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for tensor in tensors {
        all.extend(convert::values(&tensor?)?);
    }
    Ok(all)
}
