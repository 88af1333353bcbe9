//! Normalisations.

use super::functions::apply;
use crate::{
    Error, Result, Scalar, Tensor, no_grad,
    op::{
        Axes,
        composite::{BatchNorm, LayerNorm},
        formula::Formula,
    },
};

impl Tensor {
    /// `(x - mean) / sqrt(variance + eps) * weight + bias` over the last axes, whose sizes are `normalized_shape`.
    /// Weight and bias have that shape. Uses the population variance. 16-bit floats are computed in `float32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the sizes of the last axes or of the parameters differ.
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        self.check_last_axes("layer_norm", normalized_shape)?;
        let composite = LayerNorm {
            axes: normalized_shape.len(),
            centred: true,
            epsilon: Scalar::Float(eps),
            weight: weight.is_some(),
            bias: bias.is_some(),
        };
        apply(composite, self, [weight, bias])
    }

    /// `x / sqrt(mean(x^2) + eps) * weight` over the last axes (Zhang and Sennrich, 2019). `eps` defaults to the
    /// machine epsilon of the dtype in which it is computed.
    pub fn rms_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
    ) -> Result<Tensor> {
        self.check_last_axes("rms_norm", normalized_shape)?;
        let smallest = if self.dtype() == crate::DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let composite = LayerNorm {
            axes: normalized_shape.len(),
            centred: false,
            epsilon: Scalar::Float(eps.unwrap_or(smallest)),
            weight: weight.is_some(),
            bias: false,
        };
        apply(composite, self, [weight])
    }

    /// Normalises each channel in each sample of `[N, C, ..]`. Weight and bias are `[C]`.
    pub fn instance_norm(&self, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        let Some(&channels) = self.shape().get(1) else {
            return Err(Error::shape("instance_norm", &[self.shape()], "the input must be (N, C, ..)"));
        };
        self.group_norm(channels, weight, bias, eps)
    }

    /// Normalises each channel of `[N, C, ..]`. Uses the statistics of the batch if `training` or if no running
    /// statistics are given, otherwise `running_mean` and `running_var` `[C]`. The running statistics are not updated,
    /// because tensors are immutable values: see [`Tensor::running_statistics`]. 16-bit floats are computed in
    /// `float32`; weight, bias and statistics may be `float32` then.
    pub fn batch_norm(
        &self,
        running_mean: Option<&Tensor>,
        running_var: Option<&Tensor>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        training: bool,
        eps: f64,
    ) -> Result<Tensor> {
        let (epsilon, weighted, biased) = (Scalar::Float(eps), weight.is_some(), bias.is_some());
        let composite = |training| BatchNorm { training, epsilon, weight: weighted, bias: biased };
        match (running_mean, running_var) {
            (Some(_), Some(_)) if !training => {
                apply(composite(false), self, [running_mean, running_var, weight, bias])
            }
            (Some(_), None) | (None, Some(_)) if !training => {
                Err(Error::argument("batch_norm", "give both running_mean and running_var, or neither"))
            }
            _ => {
                self.check_batch("batch_norm")?;
                apply(composite(true), self, [weight, bias])
            }
        }
    }

    /// The running mean and (unbiased) variance after this batch `[N, C, ..]`: `(1 - momentum) * running + momentum *
    /// batch`. No gradient flows through them.
    pub fn running_statistics(
        &self,
        running_mean: &Tensor,
        running_var: &Tensor,
        momentum: f64,
    ) -> Result<(Tensor, Tensor)> {
        self.check_batch("running_statistics")?;
        let _guard = no_grad();
        let axes = Axes::of((0..self.rank()).filter(|&axis| axis != 1));
        let x = Formula::of(self).cast(self.dtype().compute());
        // As the normalisation computes them, so that a step that does both computes them once.
        let (mean, variance) = x.moments(axes);
        let count = x.count(axes);
        let moved = |running: &Tensor, batch: Formula| -> Result<Tensor> {
            let batch = batch.reshape(&self.shape()[1..2]).tensor()?.to_dtype(running.dtype())?;
            running.mul_scalar(1.0 - momentum)?.add(&batch.mul_scalar(momentum)?)
        };
        Ok((moved(running_mean, mean)?, moved(running_var, variance * (count / (count - 1.0)))?))
    }

    fn check_last_axes(&self, op: &'static str, normalized_shape: &[usize]) -> Result<()> {
        if !normalized_shape.is_empty() && self.shape().ends_with(normalized_shape) {
            return Ok(());
        }
        let hint = format!("the last axes must be {}", crate::text::show_shape(normalized_shape));
        Err(Error::shape(op, &[self.shape()], hint))
    }

    /// A variance needs more than one value per channel.
    fn check_batch(&self, op: &'static str) -> Result<()> {
        let per_channel = |shape: &[usize]| shape[0] * shape[2..].iter().product::<usize>();
        if self.rank() >= 2 && per_channel(self.shape()) > 1 {
            return Ok(());
        }
        let hint = "training needs (N, C, ..) with more than one value per channel";
        Err(Error::shape(op, &[self.shape()], hint))
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Result, Tensor, oracle::reference_device};

    /// The batch's variance is computed from deviations from the mean of its first images, which may lie far off.
    #[test]
    fn variances_are_right_if_the_first_images_are_unlike_the_others() -> Result<()> {
        for first in [0.0, 1000.0, -3e6] {
            let value = |i: usize| if i < 8 { first + i as f32 } else { 5.0 + (i * i % 13) as f32 };
            let values: Vec<f32> = (0..160).map(value).collect();
            let x = Tensor::from_slice(&values, &[40, 1, 4], reference_device())?;
            let zero = Tensor::zeros(&[1], DType::F32, reference_device())?;
            let (mean, variance) = x.running_statistics(&zero, &zero, 1.0)?;
            let count = values.len() as f64;
            let expected = values.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
            let squares = values.iter().map(|&v| (f64::from(v) - expected).powi(2)).sum::<f64>();
            let close = |found: &Tensor, expected: f64| -> Result<bool> {
                Ok((f64::from(found.item::<f32>()?) - expected).abs() <= 1e-5 * expected.abs())
            };
            assert!(close(&mean, expected)? && close(&variance, squares / (count - 1.0))?, "{first}");
        }
        Ok(())
    }
}
