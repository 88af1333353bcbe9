//! Forward passes.

use ndarray::{Array1, Array2};
use neurenix::phynexus::{Tensor, no_grad};

use super::Network;
use crate::{Layer, NetworkError, Result, convert};

/// Rows that are computed at a time in predictions and evaluations.
const ROWS: usize = 1024;

impl Network {
    /// The outputs for rows, in inference mode.
    ///
    /// # Errors
    /// If rows have another size, a number is not finite, or the device fails.
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

    /// The outputs for one row, in inference mode.
    pub fn predict_one(&self, input: &Array1<f64>) -> Result<Array1<f64>> {
        Ok(self.predict(&convert::row(input))?.index_axis_move(ndarray::Axis(0), 0))
    }

    /// The outputs for rows. With `training`, dropout is active and batch normalisation uses the batch's statistics.
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
    /// [`Network::get_weights`]. Those of frozen weights are zeros. Computed in inference mode, so that equal arguments
    /// give equal results.
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
        // If all weights are frozen, the loss has no gradient.
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
            // The mean over rows without weight is undefined.
            if mass > 0.0 {
                sum += convert::values(&loss)?[0] * mass;
                all += mass;
            }
        }
        Ok(sum / all)
    }

    /// Whether a loss is computed from the input of the last activation.
    pub(crate) fn loss_takes_scores(&self, loss: &crate::LossConfig) -> bool {
        self.layers.last().is_some_and(|last| loss.takes_scores(last.activation()))
    }

    /// The shape of an output row.
    pub(crate) fn output_shape(&self) -> &[usize] {
        self.layers.last().map_or(&[][..], |layer| layer.output_shape())
    }

    /// The loss of the results of [`Network::outputs`], which are activated unless the loss takes scores. If an output
    /// row has several questions with a class each, such as the steps of a sequence, each of them counts as a row.
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

    /// Checks that data are valid inputs. `what` names them in the error.
    pub(crate) fn check_input(&self, what: &str, data: &Array2<f64>) -> Result<()> {
        convert::check_data(what, data, self.input_dim(), self.dtype())?;
        let Some(count) = self.vocabulary() else { return Ok(()) };
        let wrong = |x: f64| x.fract() != 0.0 || x < 0.0 || x >= count as f64;
        match data.indexed_iter().find(|(_, x)| wrong(**x)) {
            None => Ok(()),
            Some(((row, column), x)) => Err(NetworkError::data(format!(
                "{what} has {x} in row {row}, column {column}: an embedding takes integers from 0 to {}",
                count - 1
            ))),
        }
    }

    /// Values as input rows on the device.
    pub(crate) fn rows(&self, values: &[f64], rows: usize) -> Result<Tensor> {
        convert::tensor(values, &self.batch_shape(rows), self.dtype, self.device)
    }

    /// The shape of a batch of this many rows.
    pub(crate) fn batch_shape(&self, rows: usize) -> Vec<usize> {
        std::iter::once(rows).chain(self.plan.input_shape.iter().copied()).collect()
    }

    /// True if training needs more than one row per batch.
    pub(crate) fn needs_rows(&self) -> bool {
        self.layers.iter().any(Layer::needs_rows)
    }

    /// Switches all layers that are not frozen to training or inference mode.
    pub(crate) fn set_training(&self, training: bool) {
        self.layers.iter().for_each(|layer| layer.set_training(training));
    }

    /// The outputs for rows, `[rows, outputs]`, without the last activation unless `activated`.
    pub(crate) fn outputs(&self, rows: &Tensor, activated: bool) -> Result<Tensor> {
        let mut x = rows.clone();
        for (place, layer) in self.layers.iter().enumerate() {
            let last = place + 1 == self.layers.len();
            x = layer.run(&x, activated || !last)?;
        }
        as_rows(x)
    }

    /// As [`Network::outputs`], with dropout after every hidden layer that mixes its inputs by weights, and after the
    /// normalisations and activations that follow it.
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

    /// Applies the last layer's activation to the results of [`Network::outputs`] without it.
    pub(crate) fn last_activation(&self, scores: &Tensor) -> Result<Tensor> {
        let Some(last) = self.layers.last() else { return Ok(scores.clone()) };
        match last.output_shape() {
            [_] => Ok(last.activation().apply(scores)?),
            // Softmax is along the last dimension of the layer's output shape.
            shape => {
                let rows = scores.shape()[0];
                let shape: Vec<usize> = std::iter::once(rows).chain(shape.iter().copied()).collect();
                as_rows(last.activation().apply(&scores.reshape(&shape)?)?)
            }
        }
    }
}

/// Reshapes outputs to `[rows, outputs]`.
fn as_rows(x: Tensor) -> Result<Tensor> {
    match x.rank() {
        2 => Ok(x),
        _ => Ok(x.flatten(1, -1)?),
    }
}
