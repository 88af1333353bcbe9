//! Loss functions, with PyTorch's names and arguments.

use phynexus::{
    Tensor,
    tensor::{CrossEntropyOptions, Reduction},
};

use crate::{Error, Result};

/// A loss function: measures the difference between an input, usually a network's output, and its target.
#[derive(Clone, Debug)]
pub enum Loss {
    /// `MSELoss`: the squared difference.
    MSE,
    /// `L1Loss`: the absolute difference.
    L1,
    /// `SmoothL1Loss`: `d² / (2 * beta)` for absolute differences `d` below `beta`, else `d - beta / 2`.
    SmoothL1 {
        /// The threshold; PyTorch's default is 1.
        beta: f64,
    },
    /// `HuberLoss`: `d² / 2` for absolute differences `d` up to `delta`, else `delta * (d - delta / 2)`.
    Huber {
        /// The threshold; PyTorch's default is 1.
        delta: f64,
    },
    /// `CrossEntropyLoss` of logits `[N, C, ..]` against class indices `[N, ..]` or probabilities `[N, C, ..]`.
    CrossEntropy {
        /// A weight for each class, `[C]`.
        weight: Option<Tensor>,
        /// Samples of this class are ignored; PyTorch's default is -100.
        ignore_index: i64,
        /// The share of the target distribution that is spread evenly over all classes, from 0 to 1.
        label_smoothing: f64,
    },
    /// `NLLLoss` of log-probabilities `[N, C, ..]` against class indices `[N, ..]`.
    NLL {
        /// A weight for each class, `[C]`.
        weight: Option<Tensor>,
        /// Samples of this class are ignored; PyTorch's default is -100.
        ignore_index: i64,
    },
    /// `BCELoss` between probabilities.
    BCE {
        /// A weight for each element, broadcast.
        weight: Option<Tensor>,
    },
    /// `BCEWithLogitsLoss`: `BCELoss` of the sigmoid of logits, computed without overflow.
    BCEWithLogits {
        /// A weight for each element, broadcast.
        weight: Option<Tensor>,
        /// The factor of the positive term, broadcast.
        pos_weight: Option<Tensor>,
    },
    /// `KLDivLoss` of log-probabilities against probabilities. For PyTorch's reduction `batchmean`, use the sum divided
    /// by the number of rows.
    KLDiv {
        /// Whether the target holds log-probabilities too.
        log_target: bool,
    },
    /// `HingeEmbeddingLoss` of distances against 1 (similar) or -1 (dissimilar).
    HingeEmbedding {
        /// The distance from which dissimilar pairs have no loss; PyTorch's default is 1.
        margin: f64,
    },
    /// `CosineEmbeddingLoss` of pairs of vectors against 1 (similar) or -1 (dissimilar): see [`Loss::forward_pair`].
    CosineEmbedding {
        /// The cosine up to which dissimilar pairs have no loss; PyTorch's default is 0.
        margin: f64,
    },
    /// `PoissonNLLLoss` of expected counts (not their logarithms) against counts: `x - t * log(x + 1e-8)`.
    PoissonNLL,
    /// Hinge loss for two classes: `max(0, 1 - target * input)` with targets 1 and -1, or its square. PyTorch has it
    /// only for several classes.
    Hinge {
        /// Whether to square it.
        squared: bool,
    },
    /// `log(cosh(d))` of the difference `d`: close to `d² / 2` near 0 and to `|d| - log(2)` far from it.
    LogCosh,
    /// The loss of quantile regression: `quantile * (target - input)` for inputs below the target, else `(1 - quantile)
    /// * (input - target)`.
    Quantile {
        /// From 0 to 1; 0.5 gives half the absolute difference.
        quantile: f64,
    },
    /// One minus the cosine similarity between the rows of input and target.
    CosineSimilarity,
}

impl Loss {
    /// Cross-entropy with equal class weights and `ignore_index` -100.
    pub fn cross_entropy(label_smoothing: f64) -> Loss {
        Loss::CrossEntropy { weight: None, ignore_index: -100, label_smoothing }
    }

    /// The name in PyTorch.
    pub fn name(&self) -> &'static str {
        match self {
            Loss::MSE => "MSELoss",
            Loss::L1 => "L1Loss",
            Loss::SmoothL1 { .. } => "SmoothL1Loss",
            Loss::Huber { .. } => "HuberLoss",
            Loss::CrossEntropy { .. } => "CrossEntropyLoss",
            Loss::NLL { .. } => "NLLLoss",
            Loss::BCE { .. } => "BCELoss",
            Loss::BCEWithLogits { .. } => "BCEWithLogitsLoss",
            Loss::KLDiv { .. } => "KLDivLoss",
            Loss::HingeEmbedding { .. } => "HingeEmbeddingLoss",
            Loss::CosineEmbedding { .. } => "CosineEmbeddingLoss",
            Loss::PoissonNLL => "PoissonNLLLoss",
            Loss::Hinge { .. } => "HingeLoss",
            Loss::LogCosh => "LogCoshLoss",
            Loss::Quantile { .. } => "QuantileLoss",
            Loss::CosineSimilarity => "CosineSimilarityLoss",
        }
    }

    /// Computes the loss of an input against a target. PyTorch's default reduction is [`Reduction::Mean`].
    ///
    /// # Errors
    /// If shapes or dtypes do not match, an argument is out of range, or the loss compares two inputs.
    pub fn forward(&self, input: &Tensor, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        Ok(match self {
            Loss::MSE => input.mse_loss(target, reduction)?,
            Loss::L1 => input.l1_loss(target, reduction)?,
            Loss::SmoothL1 { beta } => input.smooth_l1_loss(target, *beta, reduction)?,
            Loss::Huber { delta } => input.huber_loss(target, *delta, reduction)?,
            Loss::CrossEntropy { weight, ignore_index, label_smoothing } => {
                let (weight, ignore_index, label_smoothing) =
                    (weight.as_ref(), *ignore_index, *label_smoothing);
                let options = CrossEntropyOptions { weight, ignore_index, label_smoothing, reduction };
                input.cross_entropy_with(target, &options)?
            }
            Loss::NLL { weight, ignore_index } => {
                let (weight, ignore_index) = (weight.as_ref(), *ignore_index);
                let options = CrossEntropyOptions { weight, ignore_index, reduction, ..Default::default() };
                input.nll_loss(target, &options)?
            }
            Loss::BCE { weight } => input.binary_cross_entropy(target, weight.as_ref(), reduction)?,
            Loss::BCEWithLogits { weight, pos_weight } => {
                let (weight, pos_weight) = (weight.as_ref(), pos_weight.as_ref());
                input.binary_cross_entropy_with_logits(target, weight, pos_weight, reduction)?
            }
            Loss::KLDiv { log_target } => input.kl_div(target, *log_target, reduction)?,
            Loss::HingeEmbedding { margin } => input.hinge_embedding_loss(target, *margin, reduction)?,
            Loss::CosineEmbedding { .. } => {
                return Err(Error::data(self.name(), "this loss compares two inputs: use forward_pair"));
            }
            Loss::PoissonNLL
            | Loss::Hinge { .. }
            | Loss::LogCosh
            | Loss::Quantile { .. }
            | Loss::CosineSimilarity => {
                let losses = self.elements(input, target)?;
                match reduction {
                    Reduction::None => losses,
                    Reduction::Mean => losses.mean(&[], false)?,
                    Reduction::Sum => losses.sum(&[], false)?,
                }
            }
        })
    }

    /// The elementwise losses (row-wise for the cosine) that PyTorch does not have.
    fn elements(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        if input.shape() != target.shape() {
            let hint = "input and target must have the same shape";
            return Err(phynexus::Error::shape(self.name(), &[input.shape(), target.shape()], hint).into());
        }
        Ok(match *self {
            Loss::PoissonNLL => input.sub(&target.mul(&input.add_scalar(1e-8)?.log()?)?)?,
            Loss::Hinge { squared } => {
                let lacking = input.mul(target)?.rsub_scalar(1.0)?.relu()?;
                if squared { lacking.square()? } else { lacking }
            }
            Loss::LogCosh => {
                // log(cosh(d)) = d + log(1 + exp(-2 d)) - log(2), which does not overflow.
                let difference = input.sub(target)?;
                let tail = difference.mul_scalar(-2.0)?.softplus(1.0, 20.0)?;
                difference.add(&tail)?.sub_scalar(std::f64::consts::LN_2)?
            }
            Loss::Quantile { quantile } => {
                if !(0.0..=1.0).contains(&quantile) {
                    let message = format!("the quantile must be between 0 and 1, got {quantile}");
                    return Err(Error::data(self.name(), message));
                }
                let below = target.sub(input)?;
                below.mul_scalar(quantile)?.maximum(&below.mul_scalar(quantile - 1.0)?)?
            }
            _ => input.cosine_similarity(target, -1, 1e-8)?.rsub_scalar(1.0)?,
        })
    }

    /// Computes the loss of two inputs against a target, for [`Loss::CosineEmbedding`]: vectors `[N, D]` (or `[D]`) and
    /// one target per pair.
    ///
    /// # Errors
    /// If shapes do not match, or the loss takes one input.
    pub fn forward_pair(
        &self,
        first: &Tensor,
        second: &Tensor,
        target: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let Loss::CosineEmbedding { margin } = self else {
            return Err(Error::data(self.name(), "this loss takes one input: use forward"));
        };
        Ok(first.cosine_embedding_loss(second, target, *margin, reduction)?)
    }
}
