//! What a network makes of rows.

use std::collections::HashMap;

use ndarray::{Array1, Array2};
use neurenix::phynexus::{Tensor, no_grad};

use super::Network;
use crate::{
    Layer, NetworkError, Result, TrainingConfig, TrainingHistory, convert,
    training::{Metrics, Run},
};

/// Rows that are computed at once where nobody says how many.
const ROWS: usize = 1024;

impl Network {
    /// What the network makes of rows, in inference mode.
    ///
    /// # Errors
    /// Rows of another size, numbers that are not finite, and the device's.
    pub fn predict(&self, input: &Array2<f64>) -> Result<Array2<f64>> {
        self.check_input("data", input)?;
        self.set_training(false);
        let _guard = no_grad();
        let mut values = Vec::new();
        for part in input.axis_chunks_iter(ndarray::Axis(0), ROWS) {
            let rows = self.rows(&part.iter().copied().collect::<Vec<_>>(), part.nrows())?;
            values.extend(convert::values(&self.outputs(&rows, true)?)?);
        }
        convert::from_values(input.nrows(), self.output_dim(), values)
    }

    /// What the network makes of one row.
    ///
    /// # Errors
    /// As [`Network::predict`].
    pub fn predict_one(&self, input: &Array1<f64>) -> Result<Array1<f64>> {
        Ok(self.predict(&convert::row(input))?.index_axis_move(ndarray::Axis(0), 0))
    }

    /// What the network makes of rows; while training, dropouts drop and batch normalisation uses the batch.
    ///
    /// # Errors
    /// As [`Network::predict`].
    pub fn forward(&mut self, input: &Array2<f64>, training: bool) -> Result<Array2<f64>> {
        self.check_input("data", input)?;
        self.set_training(training);
        let _guard = no_grad();
        let rows = self.rows(&convert::elements(input), input.nrows())?;
        let outputs = self.outputs(&rows, true)?;
        self.settle(&[&outputs])?;
        convert::array(&outputs)
    }

    /// The loss of rows against targets, and its derivatives with respect to all weights, in the order of
    /// [`Network::get_weights`]; a frozen weight has zeros. In inference mode, so that it is a function of its arguments.
    ///
    /// # Errors
    /// As [`Network::predict`], and targets that do not fit.
    pub fn loss_and_gradients(
        &self,
        input: &Array2<f64>,
        targets: &Array2<f64>,
    ) -> Result<(f64, Vec<Array2<f64>>)> {
        self.check_input("data", input)?;
        self.plan().loss.check_targets("targets", targets, self.output_shape(), self.dtype())?;
        convert::check_rows(input, targets)?;
        self.set_training(false);
        let rows = self.rows(&convert::elements(input), input.nrows())?;
        let targets = convert::matrix(targets, self.dtype(), self.engine_device())?;
        let scores = self.loss_takes_scores(&self.plan().loss);
        let loss = self.loss_of(&self.plan().loss, &self.outputs(&rows, !scores)?, &targets)?;
        // Where all is frozen, there is nothing to differentiate.
        let gradients = if loss.requires_grad() { Some(loss.leaf_gradients()?) } else { None };
        let all = self.weights().into_iter().map(|(_, parameter)| {
            let leaf = parameter.tensor();
            match gradients.as_ref().and_then(|gradients| gradients.get(&leaf)) {
                Some(gradient) => convert::array(gradient),
                None => convert::array(&leaf.zeros_like()?),
            }
        });
        Ok((convert::values(&loss)?[0], all.collect::<Result<_>>()?))
    }

    /// Loss and metrics over rows: `loss`; `accuracy` where targets are classes (the share of rows whose class is right; for the
    /// binary cross-entropy and hinge losses, of single answers, one a column); `mae`, `rmse` and `r2` where they are
    /// numbers.
    ///
    /// # Errors
    /// Data and targets that do not fit the network or each other.
    pub fn evaluate(
        &self,
        test_data: &Array2<f64>,
        test_targets: &Array2<f64>,
    ) -> Result<HashMap<String, f64>> {
        self.plan().loss.check_targets("targets", test_targets, self.output_shape(), self.dtype())?;
        convert::check_rows(test_data, test_targets)?;
        let loss = self.mean_loss(test_data, test_targets, &self.plan().loss)?;
        let predictions = self.predict(test_data)?;
        let (function, classes) = (self.loss_function(), self.plan().loss.classes(self.output_shape()));
        let names: &[&str] = match function.is_classification_loss() {
            true => &["accuracy"],
            false => &["mae", "rmse", "r2"],
        };
        let mut all = HashMap::from([("loss".to_owned(), loss)]);
        for name in names {
            let value = Metrics::by_name(name, function, classes, &predictions, test_targets)?;
            all.insert((*name).to_owned(), value);
        }
        Ok(all)
    }

    /// Trains the network on rows and their targets, and returns what was measured. `config` says how; its default keeps the
    /// last fifth of the rows for validation and stops after ten epochs without a better validation loss.
    ///
    /// # Errors
    /// Data and targets that do not fit the network or each other; settings outside their ranges; a loss that is not
    /// finite: the network is then as it was before that step, or, where the run was to put normalisations into it, before
    /// the run. Gradients that are not finite, though the loss is, are refused before the step with `gradient_clip` (where
    /// they must not be too large to be squared either), accumulation, mixed precision and LBFGS; without, the error after it
    /// says that the weights are lost.
    pub fn train(
        &mut self,
        train_data: &Array2<f64>,
        train_targets: &Array2<f64>,
        config: &TrainingConfig,
    ) -> Result<TrainingHistory> {
        self.train_with_validation(train_data, train_targets, None, None, config)
    }

    /// As [`Network::train`], with rows of their own for validation, if both are given.
    ///
    /// # Errors
    /// As [`Network::train`].
    pub fn train_with_validation(
        &mut self,
        train_data: &Array2<f64>,
        train_targets: &Array2<f64>,
        val_data: Option<&Array2<f64>>,
        val_targets: Option<&Array2<f64>>,
        config: &TrainingConfig,
    ) -> Result<TrainingHistory> {
        self.train_with_callbacks(train_data, train_targets, val_data, val_targets, config, &mut [])
    }

    /// As [`Network::train_with_validation`], telling others how it goes.
    ///
    /// # Errors
    /// As [`Network::train`].
    pub fn train_with_callbacks(
        &mut self,
        train_data: &Array2<f64>,
        train_targets: &Array2<f64>,
        val_data: Option<&Array2<f64>>,
        val_targets: Option<&Array2<f64>>,
        config: &TrainingConfig,
        callbacks: &mut [&mut dyn crate::TrainingCallback],
    ) -> Result<TrainingHistory> {
        let validation = match (val_data, val_targets) {
            (Some(data), Some(targets)) => Some((data, targets)),
            (None, None) => None,
            _ => return Err(NetworkError::data("validation needs data and targets, or neither")),
        };
        let run = Run::new(self, train_data, train_targets, validation, config)?;
        let history = match self.lacks_norms(&config.regularization) {
            false => run.all(callbacks)?,
            true => {
                drop(run);
                // A run that fails leaves the layers, and the weights, as they were.
                let normalised = self.normalised_as(&config.regularization)?;
                let history =
                    Run::new(&normalised, train_data, train_targets, validation, config)?.all(callbacks)?;
                *self = normalised;
                history
            }
        };
        self.set_history(history.clone());
        Ok(history)
    }

    /// The mean loss over rows, in inference mode.
    pub(crate) fn mean_loss(
        &self,
        data: &Array2<f64>,
        targets: &Array2<f64>,
        config: &crate::LossConfig,
    ) -> Result<f64> {
        self.check_input("data", data)?;
        self.set_training(false);
        let _guard = no_grad();
        let scores = self.loss_takes_scores(config);
        let (mut sum, mut all) = (0.0, 0.0);
        let parts = data.axis_chunks_iter(ndarray::Axis(0), ROWS);
        for (part, targets) in parts.zip(targets.axis_chunks_iter(ndarray::Axis(0), ROWS)) {
            let mass = config.mass(part.nrows(), targets.iter().copied());
            let rows = self.rows(&part.iter().copied().collect::<Vec<_>>(), part.nrows())?;
            let targets = convert::matrix(&targets.to_owned(), self.dtype(), self.engine_device())?;
            let loss = self.loss_of(config, &self.outputs(&rows, !scores)?, &targets)?;
            // Of classes that count nothing there is no mean.
            if mass > 0.0 {
                sum += convert::values(&loss)?[0] * mass;
                all += mass;
            }
        }
        Ok(sum / all)
    }

    /// Whether a loss is computed from what goes into the last activation.
    pub(crate) fn loss_takes_scores(&self, loss: &crate::LossConfig) -> bool {
        self.layers.last().is_some_and(|last| loss.takes_scores(last.activation()))
    }

    /// The shape of a row that comes out.
    pub(crate) fn output_shape(&self) -> &[usize] {
        self.layers.last().map_or(&[][..], |layer| layer.output_shape())
    }

    /// A loss of what [`Network::outputs`] gave, activated unless the loss takes scores. Where a row has several questions to
    /// be answered by a class, as the steps of a sequence, each of them counts as a row.
    pub(crate) fn loss_of(
        &self,
        loss: &crate::LossConfig,
        outputs: &Tensor,
        targets: &Tensor,
    ) -> Result<Tensor> {
        let (scores, classes) = (self.loss_takes_scores(loss), loss.classes(self.output_shape()));
        if outputs.shape()[1] == classes {
            return loss.of(outputs, targets, scores);
        }
        let questions = |x: &Tensor, columns: usize| x.reshape(&[x.len() / columns.max(1), columns]);
        let columns = if targets.shape()[1] == outputs.shape()[1] { classes } else { 1 };
        loss.of(&questions(outputs, classes)?, &questions(targets, columns)?, scores)
    }

    /// Checks that data, called so, are rows of the network's.
    pub(crate) fn check_input(&self, what: &str, data: &Array2<f64>) -> Result<()> {
        convert::check_data(what, data, self.input_dim(), self.dtype())?;
        let Some(count) = self.vocabulary() else { return Ok(()) };
        let wrong = |x: f64| x.fract() != 0.0 || x < 0.0 || x >= count as f64;
        match data.indexed_iter().find(|(_, x)| wrong(**x)) {
            None => Ok(()),
            Some(((row, column), x)) => Err(NetworkError::data(format!(
                "{what} has {x} in row {row}, column {column}: an embedding takes whole numbers from 0 to {}",
                count - 1
            ))),
        }
    }

    /// Numbers as rows on the device.
    pub(crate) fn rows(&self, values: &[f64], rows: usize) -> Result<Tensor> {
        convert::tensor(values, &self.batch_shape(rows), self.dtype, self.device)
    }

    /// The shape of so many rows.
    pub(crate) fn batch_shape(&self, rows: usize) -> Vec<usize> {
        std::iter::once(rows).chain(self.plan.input_shape.iter().copied()).collect()
    }

    /// True if one row alone is not enough to train on.
    pub(crate) fn needs_rows(&self) -> bool {
        self.layers.iter().any(Layer::needs_rows)
    }

    /// Switches all layers that are not frozen to training, or to inference.
    pub(crate) fn set_training(&self, training: bool) {
        self.layers.iter().for_each(|layer| layer.set_training(training));
    }

    /// The outputs of rows, `[rows, outputs]`, without the last activation if that is so asked.
    pub(crate) fn outputs(&self, rows: &Tensor, activated: bool) -> Result<Tensor> {
        let mut x = rows.clone();
        for (place, layer) in self.layers.iter().enumerate() {
            let last = place + 1 == self.layers.len();
            x = layer.run(&x, activated || !last)?;
        }
        as_rows(x)
    }

    /// As [`Network::outputs`], with dropout behind every hidden layer that mixes by weights: after the normalisations and
    /// activations that belong to it.
    pub(crate) fn training_outputs(
        &self,
        rows: &Tensor,
        activated: bool,
        dropout: Option<(f64, &neurenix::phynexus::tensor::Generator)>,
    ) -> Result<Tensor> {
        let Some((rate, generator)) = dropout else { return self.outputs(rows, activated) };
        let (mut x, mut mixed) = (rows.clone(), false);
        for (place, layer) in self.layers.iter().enumerate() {
            let next = self.layers.get(place + 1);
            x = layer.run(&x, activated || next.is_some())?;
            mixed |= layer.description().kind.mixes();
            if mixed && next.is_some_and(|next| !next.description().kind.refines()) {
                x = x.dropout_with(rate, true, generator)?;
                mixed = false;
            }
        }
        as_rows(x)
    }

    /// The last layer's activation of what [`Network::outputs`] gives without it.
    pub(crate) fn last_activation(&self, scores: &Tensor) -> Result<Tensor> {
        let Some(last) = self.layers.last() else { return Ok(scores.clone()) };
        match last.output_shape() {
            [_] => last.activation().apply(scores),
            // Softmax goes along the last dimension of the layer's own shape.
            shape => {
                let rows = scores.shape()[0];
                let shape: Vec<usize> = std::iter::once(rows).chain(shape.iter().copied()).collect();
                as_rows(last.activation().apply(&scores.reshape(&shape)?)?)
            }
        }
    }
}

/// Outputs of any shape as `[rows, outputs]`.
fn as_rows(x: Tensor) -> Result<Tensor> {
    match x.rank() {
        2 => Ok(x),
        _ => Ok(x.flatten(1, -1)?),
    }
}
