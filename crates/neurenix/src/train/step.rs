//! One step of training: forwards, backwards, update; all of it or nothing.

use phynexus::{
    DType, Tensor,
    gradient::Gradients,
    no_grad,
    tensor::{Generator, GeneratorState},
};

use super::{Trainer, objective};
use crate::{
    Error, Result,
    data::{Batch, HostArray},
    nn::{Module, Parameter, Role},
    optim::{gradient_norm, scale_to_norm},
};

/// What a step measured on the rows of its batches.
pub(super) struct Measured {
    /// The sum over batches of mean loss times rows.
    pub loss_sum: f64,
    /// Rows classified correctly; absent for regression.
    pub correct: Option<u64>,
    /// Rows.
    pub rows: u64,
}

/// The buffers of a model: state that forward passes change.
pub(super) fn buffers(model: &dyn Module) -> Vec<Parameter> {
    let state = model.named_state().into_iter();
    state.filter(|(_, role, _)| *role == Role::Buffer).map(|(_, _, parameter)| parameter).collect()
}

/// The name of the first parameter or buffer that holds something that is not finite.
pub(super) fn not_finite(model: &dyn Module) -> Result<Option<String>> {
    let _guard = no_grad();
    let mut flags = Vec::new();
    for (name, _, parameter) in model.named_state() {
        let tensor = parameter.tensor();
        if tensor.dtype().is_float() {
            flags.push((name, tensor.detach()?.isfinite()?.all(&[], false)?));
        }
    }
    Tensor::evaluate_all(&flags.iter().map(|(_, flag)| flag).collect::<Vec<_>>())?;
    for (name, flag) in flags {
        if !flag.item::<bool>()? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

impl Trainer<'_> {
    /// A step over the batches of one update. If it fails, or the loss is not finite, the model, the optimiser and the
    /// random generators are as they were.
    pub(super) fn step(&mut self, batches: &[Batch], buffers: &[Parameter]) -> Result<Measured> {
        let before: Vec<Tensor> = buffers.iter().map(Parameter::tensor).collect();
        let random: [GeneratorState; 2] = [self.generator.state(), Generator::default_generator().state()];
        let result = match batches {
            [batch] => self.single(batch, buffers),
            _ => self.accumulated(batches, buffers),
        };
        if let Ok(Some(measured)) = result {
            return Ok(measured);
        }
        let restore = || -> Result<()> {
            self.generator.set_state(random[0]);
            Generator::default_generator().set_state(random[1]);
            buffers.iter().zip(&before).try_for_each(|(buffer, value)| buffer.set(value.clone()))
        };
        restore()?;
        self.optimizer.parameters().for_each(|parameter| parameter.tensor().set_grad(None));
        let explanation = match result {
            Err(error) => return Err(error),
            Ok(_) => self.explain(batches),
        };
        restore()?;
        let explanation = explanation?;
        let step = self.progress.steps + 1;
        let message = format!(
            "at step {step} {explanation}; the step was not taken: lower the learning rate, clip gradients, or look for bad values in the data{}",
            self.kept()
        );
        Err(Error::data("training", message))
    }

    /// `None` if the loss, or the norm to clip, is not finite. They are read before the update is computed: that costs
    /// less than a choice between old and new values in the update of every parameter.
    fn single(&mut self, batch: &Batch, buffers: &[Parameter]) -> Result<Option<Measured>> {
        let (loss, correct) = self.forward(batch)?;
        let gradients = loss.leaf_gradients()?;
        let norm = if self.options.clip_norm.is_some() { gradient_norm(&gradients)? } else { None };
        Tensor::evaluate_all(&std::iter::once(&loss).chain(&norm).collect::<Vec<_>>())?;
        let value = objective::scalar_value(&loss)?;
        if !value.is_finite() {
            return Ok(None);
        }
        let Some(gradients) = self.clipped(gradients, norm)? else { return Ok(None) };
        let buffers: Vec<Tensor> = buffers.iter().map(Parameter::tensor).collect();
        self.optimizer.step(gradients, &correct.iter().chain(&buffers).collect::<Vec<_>>())?;
        let rows = batch.indices.len() as u64;
        let correct = correct.map(|c| c.item::<i64>()).transpose()?.map(|c| c as u64);
        Ok(Some(Measured { loss_sum: value * rows as f64, correct, rows }))
    }

    /// The gradients, limited as the options say; `None` if their norm is not finite.
    fn clipped(&self, gradients: Gradients, norm: Option<Tensor>) -> Result<Option<Gradients>> {
        let (Some(limit), Some(norm)) = (self.options.clip_norm, norm) else { return Ok(Some(gradients)) };
        if !(limit.is_finite() && limit > 0.0) {
            return Err(Error::data("clip_norm", format!("{limit} is not a finite number above 0")));
        }
        if !objective::scalar_value(&norm)?.is_finite() {
            return Ok(None);
        }
        scale_to_norm(gradients, &norm, limit).map(Some)
    }

    /// Batch by batch, so that memory holds one forward pass at a time; `None` if a loss is not finite.
    fn accumulated(&mut self, batches: &[Batch], buffers: &[Parameter]) -> Result<Option<Measured>> {
        let total: usize = batches.iter().map(|batch| batch.indices.len()).sum();
        let mut measured = Measured { loss_sum: 0.0, correct: None, rows: total as u64 };
        let leaves: Vec<Tensor> = self.optimizer.parameters().map(Parameter::leaf).collect::<Result<_>>()?;
        for batch in batches {
            let (loss, correct) = self.forward(batch)?;
            let rows = batch.indices.len() as f64;
            loss.mul_scalar(rows / total as f64)?.backward()?;
            let changed: Vec<Tensor> =
                leaves.iter().filter_map(Tensor::grad).chain(buffers.iter().map(Parameter::tensor)).collect();
            let roots: Vec<&Tensor> = std::iter::once(&loss).chain(&correct).chain(&changed).collect();
            Tensor::evaluate_all(&roots)?;
            let value = objective::scalar_value(&loss)?;
            if !value.is_finite() {
                return Ok(None);
            }
            measured.loss_sum += value * rows;
            if let Some(correct) = correct {
                *measured.correct.get_or_insert(0) += correct.item::<i64>()? as u64;
            }
        }
        let gradients = Gradients::take_from(&leaves.iter().collect::<Vec<_>>());
        // The optimiser overwrites what nobody else holds.
        drop(leaves);
        let norm = if self.options.clip_norm.is_some() { gradient_norm(&gradients)? } else { None };
        let Some(gradients) = self.clipped(gradients, norm)? else { return Ok(None) };
        self.optimizer.step(gradients, &[])?;
        Ok(Some(measured))
    }

    /// The mean loss of a batch and the number of rows classified correctly.
    fn forward(&self, batch: &Batch) -> Result<(Tensor, Option<Tensor>)> {
        let (inputs, targets) = self.upload(batch)?;
        let outputs = self.model.forward(&inputs)?;
        Ok((self.objective.loss(&outputs, &targets)?, self.objective.correct(&outputs, &targets)?))
    }

    /// Names the first tensor on the way to the loss that is not finite, by going the way again.
    fn explain(&self, batches: &[Batch]) -> Result<String> {
        if let Some(name) = not_finite(self.model)? {
            return Ok(format!("parameter {name} is not finite"));
        }
        let _guard = no_grad();
        for batch in batches {
            for (what, array) in [("input", &batch.inputs), ("target", &batch.targets)] {
                if let Some(row) = row_not_finite(array)? {
                    return Ok(format!("the {what} of row {} of the data is not finite", batch.indices[row]));
                }
            }
            let (inputs, targets) = self.upload(batch)?;
            let outputs = self.model.forward(&inputs)?.detach()?;
            if !outputs.isfinite()?.all(&[], false)?.item::<bool>()? {
                return Ok("the network's outputs are not finite".to_owned());
            }
            let loss = objective::scalar_value(&self.objective.loss(&outputs, &targets)?)?;
            if !loss.is_finite() {
                return Ok(format!("the loss is {loss}, though the network's outputs are finite"));
            }
        }
        Ok("the norm of the gradients is not finite".to_owned())
    }
}

/// The first row that holds something that is not finite.
fn row_not_finite(array: &HostArray) -> Result<Option<usize>> {
    if !array.dtype().is_float() {
        return Ok(None);
    }
    let values = array.cast(DType::F64).to_vec::<f64>()?;
    let width = (values.len() / array.rows().max(1)).max(1);
    Ok(values.iter().position(|x| !x.is_finite()).map(|place| place / width))
}
