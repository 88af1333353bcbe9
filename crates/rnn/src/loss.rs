//! Losses.

mod targets;

use ndarray::Array2;
use neurenix::{
    loss::Loss,
    phynexus::{DType, Scalar, Tensor, tensor::Reduction, text::show_shape},
};
use serde::{Deserialize, Serialize};

use crate::{
    ActivationFunction, Layer, NetworkError, Result,
    choices::choices,
    convert, device,
    error::{positive, within},
};

choices! {
    /// A loss. All are means over all elements, except that the categorical cross-entropies are means over rows (for
    /// sequences, over all steps), and the cosine similarity has one value per row.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum LossFunction {
        /// Squared differences.
        #[default]
        MeanSquaredError,
        /// Absolute differences.
        MeanAbsoluteError,
        /// `-t log p - (1 - t) log (1 - p)` for probabilities.
        BinaryCrossEntropy,
        /// `-sum t log p` for a row of probabilities, normalised to the sum 1. Targets are one-hot rows or other
        /// probabilities with the sum 1. Rows (or steps of a sequence) with a lower sum count less, rows of zeros not
        /// at all.
        CategoricalCrossEntropy,
        /// `-log p` of the correct class. Targets are a column of class numbers.
        SparseCategoricalCrossEntropy,
        /// Half the squared difference up to delta (1 by default), linear above.
        HuberLoss,
        /// `max(0, 1 - t p)` for targets 1 and -1.
        HingeLoss,
        /// `max(0, 1 - t p)` squared.
        SquaredHingeLoss,
        /// `t log (t / p)` for probabilities.
        KLDivergence,
        /// `p - t log p` for expected counts.
        PoissonLoss,
        /// 1 minus the cosine similarity of each row.
        CosineSimilarityLoss,
        /// `log cosh (p - t)`.
        LogCoshLoss,
        /// Differences weighted by a quantile (0.5 by default).
        QuantileLoss,
    }
}

/// Before a logarithm, probabilities are clamped to this distance from 0 and 1.
const LEAST: f64 = 1e-15;

impl LossFunction {
    /// The loss of predictions against targets, in `float64` on the CPU.
    ///
    /// # Errors
    /// If shapes do not match, or an element is not finite.
    pub fn compute(&self, predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<f64> {
        LossConfig::new(*self).compute(predictions, targets)
    }

    /// The derivative of [`LossFunction::compute`] with respect to the predictions.
    pub fn gradient(&self, predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<Array2<f64>> {
        LossConfig::new(*self).gradient(predictions, targets)
    }

    /// True if targets are classes. Accuracy is measured then.
    pub fn is_classification_loss(&self) -> bool {
        use LossFunction::*;
        matches!(
            self,
            BinaryCrossEntropy
                | CategoricalCrossEntropy
                | SparseCategoricalCrossEntropy
                | HingeLoss
                | SquaredHingeLoss
        )
    }

    /// True if each column is a separate question with two answers.
    pub(crate) fn asks_by_column(self) -> bool {
        use LossFunction::{BinaryCrossEntropy, HingeLoss, SquaredHingeLoss};
        matches!(self, BinaryCrossEntropy | HingeLoss | SquaredHingeLoss)
    }

    /// True if targets are real numbers.
    pub fn is_regression_loss(&self) -> bool {
        use LossFunction::*;
        matches!(
            self,
            MeanSquaredError | MeanAbsoluteError | HuberLoss | PoissonLoss | LogCoshLoss | QuantileLoss
        )
    }
}

/// The parameters of losses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossParameters {
    /// The difference at which [`LossFunction::HuberLoss`] becomes linear.
    pub huber_delta: Option<f64>,
    /// The quantile of [`LossFunction::QuantileLoss`].
    pub quantile: Option<f64>,
    /// The part of each categorical target that is spread over all classes.
    pub label_smoothing: Option<f64>,
    /// The weight of each class in a categorical cross-entropy.
    pub class_weights: Option<Vec<f64>>,
}

impl Default for LossParameters {
    fn default() -> LossParameters {
        LossParameters {
            huber_delta: Some(1.0),
            quantile: Some(0.5),
            label_smoothing: None,
            class_weights: None,
        }
    }
}

/// A loss with its parameters. A [`LossFunction`] converts to one with default parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LossConfig {
    /// The loss function.
    pub function: LossFunction,
    /// The parameters.
    pub parameters: LossParameters,
}

impl From<LossFunction> for LossConfig {
    fn from(function: LossFunction) -> LossConfig {
        LossConfig::new(function)
    }
}

impl LossConfig {
    /// A loss with default parameters.
    pub fn new(function: LossFunction) -> LossConfig {
        LossConfig { function, parameters: LossParameters::default() }
    }

    /// Sets the delta of the Huber loss.
    ///
    /// # Errors
    /// If it is not finite and above 0.
    pub fn with_huber_delta(mut self, delta: f64) -> Result<LossConfig> {
        self.parameters.huber_delta = Some(delta);
        self.checked()
    }

    /// Sets the quantile.
    ///
    /// # Errors
    /// If it is not between 0 and 1.
    pub fn with_quantile(mut self, quantile: f64) -> Result<LossConfig> {
        self.parameters.quantile = Some(quantile);
        self.checked()
    }

    /// Sets the label smoothing.
    ///
    /// # Errors
    /// If it is not between 0 and 1, or the loss is not a categorical cross-entropy.
    pub fn with_label_smoothing(mut self, smoothing: f64) -> Result<LossConfig> {
        self.parameters.label_smoothing = Some(smoothing);
        self.checked()
    }

    /// Sets a weight for each class.
    ///
    /// # Errors
    /// If one is negative or not finite, or the loss is not a categorical cross-entropy.
    pub fn with_class_weights(mut self, weights: Vec<f64>) -> Result<LossConfig> {
        self.parameters.class_weights = Some(weights);
        self.checked()
    }

    fn checked(self) -> Result<LossConfig> {
        self.check()?;
        Ok(self)
    }

    /// Checks the parameters.
    pub(crate) fn check(&self) -> Result<()> {
        let LossParameters { huber_delta, quantile, label_smoothing, class_weights } = &self.parameters;
        huber_delta.map_or(Ok(()), |delta| positive("huber_delta", delta))?;
        quantile.map_or(Ok(()), |quantile| within("quantile", quantile, 0.0, 1.0))?;
        label_smoothing.map_or(Ok(()), |part| within("label_smoothing", part, 0.0, 1.0))?;
        for &weight in class_weights.iter().flatten() {
            within("class_weights", weight, 0.0, f64::INFINITY)?;
        }
        if (label_smoothing.is_some() || class_weights.is_some()) && !self.is_categorical() {
            let name = self.function.name();
            let reason = "label smoothing and class weights need a categorical cross-entropy";
            return Err(NetworkError::invalid_parameter("loss", name, reason));
        }
        Ok(())
    }

    fn is_categorical(&self) -> bool {
        use LossFunction::{CategoricalCrossEntropy, SparseCategoricalCrossEntropy};
        matches!(self.function, CategoricalCrossEntropy | SparseCategoricalCrossEntropy)
    }

    /// The loss of predictions against targets, in `float64` on the CPU.
    ///
    /// # Errors
    /// If shapes do not match, or an element is not finite.
    pub fn compute(&self, predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<f64> {
        let (predictions, targets) = self.tensors(predictions, targets)?;
        Ok(self.of(&predictions, &targets, false)?.item::<f64>()?)
    }

    /// The derivative of [`LossConfig::compute`] with respect to the predictions.
    pub fn gradient(&self, predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<Array2<f64>> {
        let (predictions, targets) = self.tensors(predictions, targets)?;
        let predictions = predictions.with_grad()?;
        let gradients = self.of(&predictions, &targets, false)?.gradients(&[&predictions])?;
        convert::array(&gradients[0])
    }

    fn tensors(&self, predictions: &Array2<f64>, targets: &Array2<f64>) -> Result<(Tensor, Tensor)> {
        self.check()?;
        if predictions.ncols() == 0 {
            return Err(NetworkError::data("predictions have no columns: give one for each output"));
        }
        convert::check_finite("predictions", predictions)?;
        self.check_targets("targets", targets, &[predictions.ncols()], DType::F64)?;
        convert::check_rows(predictions, targets)?;
        let cpu = device::cpu()?;
        Ok((convert::matrix(predictions, DType::F64, cpu)?, convert::matrix(targets, DType::F64, cpu)?))
    }

    /// The number of outputs per question, for outputs of this shape: the last dimension, as for softmax, if outputs
    /// are probabilities of classes.
    pub(crate) fn classes(&self, outputs: &[usize]) -> usize {
        match self.is_categorical() || self.function == LossFunction::KLDivergence {
            true => outputs.last().copied().unwrap_or(0),
            false => outputs.iter().product(),
        }
    }

    /// The number of target columns for outputs of this shape.
    pub(crate) fn target_columns(&self, outputs: &[usize]) -> usize {
        let columns = outputs.iter().product::<usize>();
        match self.function {
            LossFunction::SparseCategoricalCrossEntropy => columns / self.classes(outputs).max(1),
            _ => columns,
        }
    }

    /// True if rows have different weights in a mean: classes have weights, and targets are class numbers.
    pub(crate) fn weighs_rows(&self) -> bool {
        let sparse = self.function == LossFunction::SparseCategoricalCrossEntropy;
        sparse && self.parameters.class_weights.is_some()
    }

    /// The weight of rows with these targets in a mean: their number, or the sum of their classes' weights.
    pub(crate) fn mass(&self, rows: usize, targets: impl Iterator<Item = f64>) -> f64 {
        match self.parameters.class_weights.as_ref().filter(|_| self.weighs_rows()) {
            Some(weights) => targets.map(|class| weights.get(class as usize).copied().unwrap_or(0.0)).sum(),
            None => rows as f64,
        }
    }

    /// Checks that a network with these layers can learn with this loss: if the loss takes a logarithm, it must exist
    /// for all values in the range of the last activation.
    pub(crate) fn check_layers(&self, layers: &[Layer]) -> Result<()> {
        let (name, linear) = (self.function.name(), ActivationFunction::Linear);
        let refused = |reason: String| Err(NetworkError::invalid_parameter("loss", name, reason));
        let shape = layers.last().map_or(&[][..], |layer| layer.output_shape());
        if self.is_categorical() && self.classes(shape) == 1 {
            return refused(format!(
                "outputs of shape {} have one class in the last dimension, whose probability is always 1: give it a unit for each \
                 class (put a flatten layer before the softmax), or use Sigmoid with BinaryCrossEntropy",
                show_shape(shape)
            ));
        }
        let (most, takes, remedy) = match self.function {
            LossFunction::PoissonLoss => (f64::INFINITY, "expected counts", "Softplus"),
            LossFunction::BinaryCrossEntropy => (1.0, "probabilities", "Sigmoid"),
            LossFunction::CategoricalCrossEntropy
            | LossFunction::SparseCategoricalCrossEntropy
            | LossFunction::KLDivergence => (1.0, "probabilities", "Softmax"),
            _ => return Ok(()),
        };
        let passes = |layer: &&Layer| layer.activation() == linear && layer.description().kind.keeps_range();
        let Some(last) = layers.iter().rev().find(|layer| !passes(layer)) else { return Ok(()) };
        let (low, high) = last.activation().recommended_range();
        if low >= 0.0 && high <= most {
            return Ok(());
        }
        refused(format!(
            "it takes {takes}, the last activation is {}, which gives numbers from {low} to {high}: name {remedy} (a dense layer \
             without an activation has ReLU)",
            last.activation().name()
        ))
    }

    /// Whether this loss is computed from the input of the last activation, which is more exact and avoids overflow.
    pub(crate) fn takes_scores(&self, last: ActivationFunction) -> bool {
        match self.function {
            LossFunction::CategoricalCrossEntropy | LossFunction::SparseCategoricalCrossEntropy => {
                last == ActivationFunction::Softmax
            }
            LossFunction::BinaryCrossEntropy => last == ActivationFunction::Sigmoid,
            _ => false,
        }
    }

    /// The mean loss of outputs against targets, both `[rows, columns]` on one device. With `scores`, the outputs are
    /// the inputs of the last activation.
    pub(crate) fn of(&self, outputs: &Tensor, targets: &Tensor, scores: bool) -> Result<Tensor> {
        let mean = Reduction::Mean;
        let framework = |loss: Loss| -> Result<Tensor> { Ok(loss.forward(outputs, targets, mean)?) };
        match self.function {
            LossFunction::MeanSquaredError => framework(Loss::MSE),
            LossFunction::MeanAbsoluteError => framework(Loss::L1),
            LossFunction::HuberLoss => {
                framework(Loss::Huber { delta: self.parameters.huber_delta.unwrap_or(1.0) })
            }
            LossFunction::HingeLoss => framework(Loss::Hinge { squared: false }),
            LossFunction::SquaredHingeLoss => framework(Loss::Hinge { squared: true }),
            LossFunction::PoissonLoss => framework(Loss::PoissonNLL),
            LossFunction::CosineSimilarityLoss => framework(Loss::CosineSimilarity),
            LossFunction::LogCoshLoss => framework(Loss::LogCosh),
            LossFunction::QuantileLoss => {
                framework(Loss::Quantile { quantile: self.parameters.quantile.unwrap_or(0.5) })
            }
            LossFunction::BinaryCrossEntropy if scores => {
                framework(Loss::BCEWithLogits { weight: None, pos_weight: None })
            }
            LossFunction::BinaryCrossEntropy => {
                let p = probabilities(outputs)?;
                let positive = targets.mul(&p.log()?)?;
                let negative = targets.rsub_scalar(1.0)?.mul(&p.rsub_scalar(1.0)?.log()?)?;
                Ok(positive.add(&negative)?.mean(&[], false)?.neg()?)
            }
            LossFunction::KLDivergence => Ok(probabilities(outputs)?.log()?.kl_div(targets, false, mean)?),
            LossFunction::CategoricalCrossEntropy | LossFunction::SparseCategoricalCrossEntropy => {
                self.categorical(outputs, targets, scores)
            }
        }
    }

    fn categorical(&self, outputs: &Tensor, targets: &Tensor, scores: bool) -> Result<Tensor> {
        let LossParameters { label_smoothing, class_weights, .. } = &self.parameters;
        let weight = match class_weights {
            None => None,
            Some(weights) => {
                Some(convert::tensor(weights, &[weights.len()], outputs.dtype(), outputs.device())?)
            }
        };
        let sparse = self.function == LossFunction::SparseCategoricalCrossEntropy;
        let targets = match sparse {
            true => targets.reshape(&[targets.len()])?.to_dtype(DType::I64)?,
            false => targets.clone(),
        };
        // The softmax of log-probabilities is the probabilities.
        let scores = if scores { outputs.clone() } else { probabilities(outputs)?.log()? };
        let mass = match &weight {
            Some(weight) if sparse => Some(weight.index_select(0, &targets)?.sum(&[], false)?),
            _ => None,
        };
        let loss = Loss::CrossEntropy {
            weight,
            ignore_index: -100,
            label_smoothing: label_smoothing.unwrap_or(0.0),
        };
        match mass {
            None => Ok(loss.forward(&scores, &targets, Reduction::Mean)?),
            // If all rows have weight 0, the loss is 0 rather than 0 / 0.
            Some(mass) => {
                let counts_nothing = mass.eq_scalar(0.0)?;
                let mass = counts_nothing.where_(&mass.ones_like()?, &mass)?;
                let mean = loss.forward(&scores, &targets, Reduction::Sum)?.div(&mass)?;
                Ok(counts_nothing.where_(&mean.zeros_like()?, &mean)?)
            }
        }
    }
}

/// Clamps probabilities so that their logarithms are finite.
fn probabilities(outputs: &Tensor) -> Result<Tensor> {
    // 1 - LEAST is 1 in float32.
    let least = if outputs.dtype() == DType::F64 { LEAST } else { 1e-7 };
    Ok(outputs.clamp(Some(Scalar::Float(least)), Some(Scalar::Float(1.0 - least)))?)
}
