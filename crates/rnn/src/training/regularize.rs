//! What keeps weights small or outputs smooth.

use neurenix::{
    nn::Parameter,
    phynexus::{Scalar, Tensor, no_grad, tensor::Generator},
};
use serde::{Deserialize, Serialize};

use crate::{Network, Result, error::within, network::put};

/// What keeps weights small or outputs smooth.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegularizationConfig {
    /// Times the sum of the weights' magnitudes, biases left out, is added to the loss.
    pub l1_lambda: Option<f64>,
    /// Times the sum of the weights' squares, biases left out, is added to the loss.
    pub l2_lambda: Option<f64>,
    /// Dropout behind every hidden dense, convolutional, recurrent, attention and residual layer, after the normalisations and
    /// activations that follow it, while training.
    pub dropout_rate: Option<f64>,
    /// Puts a batch normalisation behind every hidden dense layer and convolution that has none; it stays in the network.
    pub batch_norm: bool,
    /// Puts a layer normalisation there; it stays in the network.
    pub layer_norm: bool,
    /// After every step, weights whose largest singular value is above 1 are divided by it.
    pub spectral_norm: bool,
    /// Times the mean over rows of the squared length of the derivative of the sum of outputs (before a softmax or sigmoid that
    /// is computed with the loss) with respect to the row is added to the loss.
    pub gradient_penalty: Option<f64>,
}

impl RegularizationConfig {
    /// Checks the numbers.
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

    /// True if something is added to the loss.
    pub(super) fn penalises(&self) -> bool {
        [self.l1_lambda, self.l2_lambda, self.gradient_penalty].into_iter().any(|part| part.is_some())
    }

    /// What the weights add to the loss.
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

    /// What the outputs' derivative with respect to the inputs adds to the loss.
    pub(super) fn of_inputs(&self, outputs: &Tensor, inputs: &Tensor) -> Result<Option<Tensor>> {
        let Some(lambda) = self.gradient_penalty else { return Ok(None) };
        let slopes = outputs.sum(&[], false)?.gradients_create_graph(&[inputs])?;
        let rows = inputs.shape()[0].max(1) as f64;
        Ok(Some(slopes[0].square()?.sum(&[], false)?.mul_scalar(lambda / rows)?))
    }

    /// Divides weights by their largest singular value where it is above 1.
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
            // The power method on the smaller of the two products with the transpose.
            let product = match matrix.shape()[0] <= matrix.shape()[1] {
                true => matrix.matmul(&matrix.t()?)?,
                false => matrix.t()?.matmul(&matrix)?,
            };
            // The same random vector each time: to it no direction that a matrix prefers is at a right angle.
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

/// Weights that are matrices, or more: not biases, nor those of normalisations.
fn matrices(network: &Network) -> impl Iterator<Item = Parameter> {
    let weights = network.weights().into_iter();
    weights.filter(|(name, p)| !name.contains("bias") && p.tensor().rank() >= 2).map(|(_, p)| p)
}
