//! Losses, with PyTorch's names and arguments.

use phynexus::{
    Tensor,
    tensor::{CrossEntropyOptions, Reduction},
};

use crate::{Error, Result};

/// A loss: how far an input, mostly a network's outputs, is from its target.
#[derive(Clone, Debug)]
pub enum Loss {
    /// `MSELoss`: the square of the difference.
    MSE,
    /// `L1Loss`: the distance.
    L1,
    /// `SmoothL1Loss`: squares of distances below beta, divided by twice beta; distances less half of beta beyond.
    SmoothL1 {
        /// Where squares end; 1 in PyTorch unless it is told otherwise.
        beta: f64,
    },
    /// `HuberLoss`: half of squares of distances below delta, delta times distances less half of delta beyond.
    Huber {
        /// Where squares end; 1 in PyTorch unless it is told otherwise.
        delta: f64,
    },
    /// `CrossEntropyLoss` of scores (logits) `[N, C, ..]` against class indices `[N, ..]` or probabilities `[N, C, ..]`.
    CrossEntropy {
        /// A weight for each class, `[C]`.
        weight: Option<Tensor>,
        /// Samples of this class do not count; -100 in PyTorch unless it is told otherwise.
        ignore_index: i64,
        /// The part of the target that is spread over all classes, 0 to 1.
        label_smoothing: f64,
    },
    /// `NLLLoss` of logarithms of probabilities `[N, C, ..]` against class indices `[N, ..]`.
    NLL {
        /// A weight for each class, `[C]`.
        weight: Option<Tensor>,
        /// Samples of this class do not count; -100 in PyTorch unless it is told otherwise.
        ignore_index: i64,
    },
    /// `BCELoss` of probabilities against probabilities.
    BCE {
        /// A weight for each element, broadcast.
        weight: Option<Tensor>,
    },
    /// `BCEWithLogitsLoss`: of the sigmoid of scores, without its overflow.
    BCEWithLogits {
        /// A weight for each element, broadcast.
        weight: Option<Tensor>,
        /// What the positive part is multiplied by, broadcast.
        pos_weight: Option<Tensor>,
    },
    /// `KLDivLoss` of logarithms of probabilities against probabilities. PyTorch's reduction `batchmean`, the divergence
    /// of a sample, is the sum divided by the rows.
    KLDiv {
        /// The target holds logarithms too.
        log_target: bool,
    },
    /// `HingeEmbeddingLoss` of distances against 1 (near) or -1 (apart).
    HingeEmbedding {
        /// How far apart suffices; 1 in PyTorch unless it is told otherwise.
        margin: f64,
    },
    /// `CosineEmbeddingLoss` of pairs of vectors against 1 (alike) or -1 (not alike): see [`Loss::forward_pair`].
    CosineEmbedding {
        /// The cosine from which on vectors are too much alike; 0 in PyTorch unless it is told otherwise.
        margin: f64,
    },
    /// `PoissonNLLLoss` of expected counts (not their logarithms) against counts: `x - t * log(x + 1e-8)`.
    PoissonNLL,
    /// The part of a margin of 1 that `target * input` lacks, for targets 1 and -1, or its square. PyTorch has it for
    /// several classes only.
    Hinge {
        /// The square.
        squared: bool,
    },
    /// The logarithm of the hyperbolic cosine of the difference: half its square near 0, its distance less log 2 afar.
    LogCosh,
    /// What quantile regression minimises: differences below the target count `quantile`, above it the rest of 1.
    Quantile {
        /// Between 0 and 1; one half gives half the distance.
        quantile: f64,
    },
    /// One less the cosine between the rows of input and target.
    CosineSimilarity,
}

impl Loss {
    /// Cross-entropy of classes of equal weight, all of which count but -100.
    pub fn cross_entropy(label_smoothing: f64) -> Loss {
        Loss::CrossEntropy { weight: None, ignore_index: -100, label_smoothing }
    }

    /// PyTorch's name.
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

    /// The loss of an input against a target. PyTorch's reduction is [`Reduction::Mean`] unless it is told otherwise.
    ///
    /// # Errors
    /// Shapes and dtypes that do not fit each other, arguments out of range, and a loss of pairs.
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
                return Err(Error::data(self.name(), "it compares two inputs: use forward_pair"));
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

    /// The losses of single elements, or of rows for the cosine, that PyTorch has no function for.
    fn elements(&self, input: &Tensor, target: &Tensor) -> Result<Tensor> {
        if input.shape() != target.shape() {
            let hint = "input and target must have one shape";
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
                    let message = format!("the quantile {quantile} is not between 0 and 1");
                    return Err(Error::data(self.name(), message));
                }
                let below = target.sub(input)?;
                below.mul_scalar(quantile)?.maximum(&below.mul_scalar(quantile - 1.0)?)?
            }
            _ => input.cosine_similarity(target, -1, 1e-8)?.rsub_scalar(1.0)?,
        })
    }

    /// The loss of two inputs against a target, for [`Loss::CosineEmbedding`]: vectors `[N, D]` (or `[D]`) and a target
    /// for each pair.
    ///
    /// # Errors
    /// Shapes that do not fit each other, and a loss of one input.
    pub fn forward_pair(
        &self,
        first: &Tensor,
        second: &Tensor,
        target: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let Loss::CosineEmbedding { margin } = self else {
            return Err(Error::data(self.name(), "it takes one input: use forward"));
        };
        Ok(first.cosine_embedding_loss(second, target, *margin, reduction)?)
    }
}
