//! Training rows, changed at random.

use neurenix::{
    data::random::RandomStream,
    phynexus::{Tensor, tensor::Generator},
};
use serde::{Deserialize, Serialize};

use crate::{NetworkError, Result, convert, error::within};

/// How training rows are changed at random, anew in every epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataAugmentationConfig {
    /// The standard deviation of noise that is added.
    pub gaussian_noise: Option<f64>,
    /// The probability with which a number becomes 0.
    pub input_dropout: Option<f64>,
    /// The part of each target that is spread over all columns.
    pub label_smoothing: Option<f64>,
    /// Rows are mixed in pairs, with shares from a beta distribution of this parameter (Zhang et al., 2018).
    pub mixup_alpha: Option<f64>,
    /// The probability with which a run of a quarter of a row becomes 0 (DeVries and Taylor, 2017; along the row's elements).
    pub cutout_prob: Option<f64>,
}

impl DataAugmentationConfig {
    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<()> {
        let or = |value: Option<f64>, name: &str, most: f64| {
            value.map_or(Ok(()), |value| within(name, value, 0.0, most))
        };
        or(self.gaussian_noise, "gaussian_noise", f64::INFINITY)?;
        or(self.input_dropout, "input_dropout", 1.0)?;
        or(self.label_smoothing, "label_smoothing", 1.0)?;
        or(self.cutout_prob, "cutout_prob", 1.0)?;
        match self.mixup_alpha.filter(|alpha| !(alpha.is_finite() && *alpha > 0.0)) {
            Some(alpha) => {
                Err(NetworkError::invalid_parameter("mixup_alpha", alpha, "it must be finite and above 0"))
            }
            None => Ok(()),
        }
    }

    /// Changes a batch.
    pub(super) fn apply(
        &self,
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
            let columns = y.shape()[1].max(1) as f64;
            y = y.mul_scalar(1.0 - part)?.add_scalar(part / columns)?;
        }
        Ok((x, y))
    }
}

/// A number of the symmetric beta distribution: a gamma number over the sum of two.
fn beta(alpha: f64, random: &mut RandomStream) -> f64 {
    let first = gamma(alpha, random);
    let second = gamma(alpha, random);
    if first + second > 0.0 { first / (first + second) } else { 0.5 }
}

/// A number of the gamma distribution (Marsaglia and Tsang, 2000).
fn gamma(shape: f64, random: &mut RandomStream) -> f64 {
    if shape < 1.0 {
        let power = random.uniform().max(f64::MIN_POSITIVE).powf(1.0 / shape);
        return gamma(shape + 1.0, random) * power;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (u, v) = (random.uniform().max(f64::MIN_POSITIVE), random.uniform());
        let normal = (-2.0f64 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos();
        let cube = (1.0 + c * normal).powi(3);
        if cube > 0.0 {
            let accepted = random.uniform().max(f64::MIN_POSITIVE).ln();
            if accepted < 0.5 * normal * normal + d - d * cube + d * cube.ln() {
                return d * cube;
            }
        }
    }
}
