//! Regularisation.

use neurenix::{
    nn::Parameter,
    phynexus::{Scalar, Tensor, no_grad, tensor::Generator},
};
use serde::{Deserialize, Serialize};

use crate::{LayerBuilder, Network, Result, error::within, layer::LayerKind, network::put};

/// Penalties and constraints on weights and outputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegularizationConfig {
    /// Adds this times the sum of the weights' magnitudes, without biases, to the loss.
    pub l1_lambda: Option<f64>,
    /// Adds this times the sum of the weights' squares, without biases, to the loss.
    pub l2_lambda: Option<f64>,
    /// Applies dropout during training after every hidden dense, convolutional, recurrent, attention and residual
    /// layer, and after the normalisations and activations that follow it.
    pub dropout_rate: Option<f64>,
    /// Inserts a batch normalisation after every hidden dense layer and convolution that has none. It stays in the
    /// network.
    pub batch_norm: bool,
    /// Inserts a layer normalisation in the same places. It stays in the network.
    pub layer_norm: bool,
    /// After every step, divides weights by their largest singular value if it is above 1.
    pub spectral_norm: bool,
    /// Adds this times the mean squared length of the gradient with respect to a row to the loss. The gradient is that
    /// of the sum of outputs, before a softmax or sigmoid that is fused with the loss.
    pub gradient_penalty: Option<f64>,
}

impl RegularizationConfig {
    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<()> {
        for (name, value) in [
            ("l1_lambda", self.l1_lambda),
            ("l2_lambda", self.l2_lambda),
            ("gradient_penalty", self.gradient_penalty),
        ] {
            value.map_or(Ok(()), |value| within(name, value, 0.0, f64::INFINITY))?;
        }
        self.dropout_rate.map_or(Ok(()), |rate| within("dropout_rate", rate, 0.0, 1.0))
    }

    /// Layers with the normalisations that are asked for, one after each hidden dense layer and convolution that has
    /// none; for each layer, its place among those given.
    pub(super) fn normalised(&self, given: &[LayerBuilder]) -> (Vec<LayerBuilder>, Vec<Option<usize>>) {
        let norms: Vec<LayerBuilder> =
            [self.batch_norm.then(LayerBuilder::batch_norm), self.layer_norm.then(LayerBuilder::layer_norm)]
                .into_iter()
                .flatten()
                .collect();
        let (mut layers, mut origins) = (Vec::new(), Vec::new());
        for (place, layer) in given.iter().enumerate() {
            layers.push(layer.clone());
            origins.push(Some(place));
            let has_weights = matches!(layer.kind, LayerKind::Dense { .. } | LayerKind::Convolution(_));
            // A normalisation may follow after a dropout.
            let passes =
                |next: &&LayerBuilder| next.kind.refines() || matches!(next.kind, LayerKind::Dropout { .. });
            let following: Vec<_> = given[place + 1..].iter().take_while(passes).collect();
            for norm in &norms {
                let has_norm = following.iter().any(|next| next.kind.layer_type() == norm.kind.layer_type());
                if has_weights && place + 1 < given.len() && !has_norm {
                    layers.push(norm.clone());
                    origins.push(None);
                }
            }
        }
        (layers, origins)
    }

    /// True if a penalty is added to the loss.
    pub(super) fn penalises(&self) -> bool {
        [self.l1_lambda, self.l2_lambda, self.gradient_penalty].into_iter().any(|part| part.is_some())
    }

    /// The penalties on weights.
    pub(super) fn of_weights(&self, network: &Network) -> Result<Option<Tensor>> {
        let mut total: Option<Tensor> = None;
        let mut add = |term: Tensor| -> Result<()> {
            total = Some(match total.take() {
                Some(total) => total.add(&term)?,
                None => term,
            });
            Ok(())
        };
        if self.l1_lambda.is_none() && self.l2_lambda.is_none() {
            return Ok(None);
        }
        for weight in matrices(network) {
            let weight = weight.leaf()?;
            if let Some(lambda) = self.l1_lambda {
                add(weight.abs()?.sum(&[], false)?.mul_scalar(lambda)?)?;
            }
            if let Some(lambda) = self.l2_lambda {
                add(weight.square()?.sum(&[], false)?.mul_scalar(lambda)?)?;
            }
        }
        Ok(total)
    }

    /// The penalty on the gradient of the outputs with respect to the inputs.
    pub(super) fn of_inputs(&self, outputs: &Tensor, inputs: &Tensor) -> Result<Option<Tensor>> {
        let Some(lambda) = self.gradient_penalty else { return Ok(None) };
        let gradients = outputs.sum(&[], false)?.gradients_create_graph(&[inputs])?;
        let rows = inputs.shape()[0].max(1) as f64;
        Ok(Some(gradients[0].square()?.sum(&[], false)?.mul_scalar(lambda / rows)?))
    }

    /// Divides weights by their largest singular value if it is above 1.
    pub(super) fn limit_weights(&self, network: &Network) -> Result<()> {
        if !self.spectral_norm {
            return Ok(());
        }
        let _guard = no_grad();
        let mut values = Vec::new();
        for parameter in matrices(network).filter(Parameter::is_trainable) {
            let weight = parameter.tensor().detach()?;
            let rows = weight.shape()[0];
            let matrix = weight.reshape(&[rows, weight.len() / rows.max(1)])?;
            // The power method on the smaller of the two products of the matrix and its transpose.
            let product = match matrix.shape()[0] <= matrix.shape()[1] {
                true => matrix.matmul(&matrix.t()?)?,
                false => matrix.t()?.matmul(&matrix)?,
            };
            // A random start is almost never orthogonal to the dominant singular vector.
            let start = [product.shape()[0], 1];
            let mut vector = Generator::new(0).randn(&start, product.dtype(), product.device())?;
            let mut square = product.frobenius_norm(true)?;
            for _ in 0..30 {
                let next = product.matmul(&vector)?;
                square = next.frobenius_norm(true)?.div(&vector.frobenius_norm(true)?.add_scalar(1e-30)?)?;
                vector = next.div(&next.frobenius_norm(true)?.add_scalar(1e-30)?)?;
            }
            let divisor = square.sqrt()?.reshape(&[])?.clamp(Some(Scalar::Float(1.0)), None)?;
            values.push((parameter, weight.div(&divisor)?));
        }
        put(values)
    }
}

/// Weights of at least two dimensions: neither biases nor weights of normalisations.
fn matrices(network: &Network) -> impl Iterator<Item = Parameter> {
    let weights = network.weights().into_iter();
    weights.filter(|(name, p)| !name.contains("bias") && p.tensor().rank() >= 2).map(|(_, p)| p)
}
