//! Checks of targets.

use ndarray::{Array2, Axis};
use neurenix::phynexus::{DType, text::show_shape};

use super::{LossConfig, LossFunction};
use crate::{NetworkError, Result, convert};

impl LossConfig {
    /// Checks that there is a weight for each class.
    pub(crate) fn check_class_weights(&self, outputs: &[usize]) -> Result<()> {
        let classes = self.classes(outputs);
        match self.parameters.class_weights.as_ref().filter(|weights| weights.len() != classes) {
            None => Ok(()),
            Some(weights) => {
                let (expected, actual) = (format!("{classes}, one per class"), weights.len().to_string());
                Err(NetworkError::dimension_mismatch("class_weights", expected, actual))
            }
        }
    }

    /// Checks that the probabilities of classes have at most the sum 1. Rows or steps with a lower sum count less.
    fn check_sums(&self, what: &str, targets: &Array2<f64>, classes: usize) -> Result<()> {
        if self.function != LossFunction::CategoricalCrossEntropy {
            return Ok(());
        }
        for (row, numbers) in targets.rows().into_iter().enumerate() {
            for question in numbers.axis_chunks_iter(Axis(0), classes.max(1)) {
                let sum = question.sum();
                // Probabilities rounded to two decimals may have a slightly greater sum.
                if sum > 1.001 + 0.005 * classes.min(10) as f64 {
                    let message = format!(
                        "{what} of row {row} have the sum {sum}: CategoricalCrossEntropy takes probabilities of classes of which one \
                         is right; BinaryCrossEntropy takes answers of which several may be"
                    );
                    return Err(NetworkError::data(message));
                }
            }
        }
        Ok(())
    }

    /// Checks that targets fit outputs of this shape and dtype. `what` names them in the error.
    pub(crate) fn check_targets(
        &self,
        what: &str,
        targets: &Array2<f64>,
        outputs: &[usize],
        dtype: DType,
    ) -> Result<()> {
        let columns = self.target_columns(outputs);
        if outputs.len() > 1 && targets.nrows() > 0 && targets.ncols() != columns {
            let expected = format!(
                "rows of {columns} for outputs of shape {} (LayerBuilder::flatten() before the last layer gives one answer a row)",
                show_shape(outputs)
            );
            let actual = show_shape(&[targets.nrows(), targets.ncols()]);
            return Err(NetworkError::dimension_mismatch(what, expected, actual));
        }
        convert::check_data(what, targets, columns, dtype)?;
        self.check_class_weights(outputs)?;
        let classes = self.classes(outputs);
        let wrong = |x: &f64| match self.function {
            LossFunction::SparseCategoricalCrossEntropy => {
                x.fract() != 0.0 || *x < 0.0 || *x >= classes as f64
            }
            LossFunction::BinaryCrossEntropy
            | LossFunction::CategoricalCrossEntropy
            | LossFunction::KLDivergence => !(0.0..=1.0).contains(x),
            LossFunction::HingeLoss | LossFunction::SquaredHingeLoss => x.abs() != 1.0,
            LossFunction::PoissonLoss => *x < 0.0,
            _ => false,
        };
        let Some(((row, _), x)) = targets.indexed_iter().find(|(_, x)| wrong(x)) else {
            return self.check_sums(what, targets, classes);
        };
        let allowed = match self.function {
            LossFunction::SparseCategoricalCrossEntropy => {
                format!("integers from 0 to {}", classes.saturating_sub(1))
            }
            LossFunction::HingeLoss | LossFunction::SquaredHingeLoss => "1 and -1".to_owned(),
            LossFunction::PoissonLoss => "counts of at least 0".to_owned(),
            _ => "probabilities between 0 and 1".to_owned(),
        };
        let name = self.function.name();
        Err(NetworkError::data(format!("{what} has {x} in row {row}: {name} takes {allowed}")))
    }
}
