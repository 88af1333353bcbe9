//! Data augmentation: random changes of training rows.

use neurenix::{
    data::random::RandomStream,
    phynexus::{Tensor, tensor::Generator},
};
use serde::{Deserialize, Serialize};

use super::random::beta;
use crate::{
    LossFunction, Result, convert,
    error::{positive, within},
};

/// Random changes of training rows, drawn again in every epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataAugmentationConfig {
    /// The standard deviation of noise that is added to the inputs.
    pub gaussian_noise: Option<f64>,
    /// The probability with which an input becomes 0.
    pub input_dropout: Option<f64>,
    /// The part of each target that is spread over all columns. If each column is a separate question (binary
    /// cross-entropy, hinge losses, a single column), it is spread over the column's two answers.
    pub label_smoothing: Option<f64>,
    /// Rows are mixed in pairs, with shares from a beta distribution with this parameter (Zhang et al., 2018).
    pub mixup_alpha: Option<f64>,
    /// The probability with which a quarter of a row, in one piece, becomes 0 (DeVries and Taylor, 2017).
    pub cutout_prob: Option<f64>,
}

impl DataAugmentationConfig {
    /// True if it changes or mixes inputs.
    pub(super) fn changes_inputs(&self) -> bool {
        let DataAugmentationConfig { gaussian_noise, input_dropout, mixup_alpha, cutout_prob, .. } = self;
        [gaussian_noise, input_dropout, mixup_alpha, cutout_prob].into_iter().any(Option::is_some)
    }

    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<()> {
        let or = |value: Option<f64>, name: &str, most: f64| {
            value.map_or(Ok(()), |value| within(name, value, 0.0, most))
        };
        or(self.gaussian_noise, "gaussian_noise", f64::INFINITY)?;
        or(self.input_dropout, "input_dropout", 1.0)?;
        or(self.label_smoothing, "label_smoothing", 1.0)?;
        or(self.cutout_prob, "cutout_prob", 1.0)?;
        self.mixup_alpha.map_or(Ok(()), |alpha| positive("mixup_alpha", alpha))
    }

    /// Changes a batch.
    pub(super) fn apply(
        &self,
        loss: LossFunction,
        classes: usize,
        inputs: Tensor,
        targets: Tensor,
        random: &mut RandomStream,
        generator: &Generator,
    ) -> Result<(Tensor, Tensor)> {
        let (mut x, mut y) = (inputs, targets);
        let (rows, dtype, device) = (x.shape()[0], x.dtype(), x.device());
        if let Some(alpha) = self.mixup_alpha {
            let share = beta(alpha, random);
            let mut order: Vec<i64> = (0..rows as i64).collect();
            random.shuffle(&mut order);
            let order = Tensor::from_slice(&order, &[rows], device)?;
            let share = convert::tensor(&[share], &[], dtype, device)?;
            let rest = share.rsub_scalar(1.0)?;
            let mixed = |t: &Tensor| t.mul(&share)?.add(&t.index_select(0, &order)?.mul(&rest)?);
            (x, y) = (mixed(&x)?, mixed(&y)?);
        }
        if let Some(deviation) = self.gaussian_noise {
            x = x.add(&generator.randn(x.shape(), dtype, device)?.mul_scalar(deviation)?)?;
        }
        if let Some(probability) = self.input_dropout {
            x = x.mul(&generator.bernoulli(1.0 - probability, x.shape(), dtype, device)?)?;
        }
        if let Some(probability) = self.cutout_prob {
            let width = x.len() / rows.max(1);
            let run = width.div_ceil(4);
            let mut mask = vec![1.0; rows * width];
            for row in mask.chunks_exact_mut(width) {
                if random.uniform() < probability {
                    let start = random.below((width - run + 1) as u64) as usize;
                    row[start..start + run].fill(0.0);
                }
            }
            x = x.mul(&convert::tensor(&mask, x.shape(), dtype, device)?)?;
        }
        if let Some(part) = self.label_smoothing {
            let even = match loss {
                LossFunction::HingeLoss | LossFunction::SquaredHingeLoss => 0.0,
                LossFunction::BinaryCrossEntropy => 0.5,
                _ => 1.0 / classes.max(2) as f64,
            };
            y = y.mul_scalar(1.0 - part)?.add_scalar(part * even)?;
        }
        Ok((x, y))
    }
}
