//! One step of training: forward passes, gradients, the update. It happens completely or not at all.
//!
//! A step of one batch can be [replayed](Step::recordings): it is then computed at once, and the update is a choice between
//! the old and the new values. If that chooses the old ones, the step is computed again, to find the reason.

use phynexus::{
    DType, Tensor,
    gradient::Gradients,
    interrupt::Shield,
    no_grad,
    tensor::{Generator, GeneratorState},
};

use super::{Recordings, Session, objective};
use crate::{
    Error, Result,
    data::{Batch, HostArray},
    nn::{Module, Parameter, Role},
    optim::{Optimizer, gradient_norm, scale_to_norm},
};

/// The forward pass over a batch.
pub struct Pass {
    /// The mean loss of the batch, a scalar.
    pub loss: Tensor,
    /// The loss with penalties, if there are any. It is minimised instead of the loss.
    pub penalized: Option<Tensor>,
    /// What [`Step::read`] reads, such as predictions.
    pub measured: Option<Tensor>,
}

impl Pass {
    /// What is minimised.
    pub fn minimized(&self) -> &Tensor {
        self.penalized.as_ref().unwrap_or(&self.loss)
    }

    /// Reads the loss, or why it does not allow a step.
    fn read_loss(&self) -> Result<std::result::Result<f64, NotFinite>> {
        let loss = objective::scalar_value(&self.loss)?;
        let minimized = self.penalized.as_ref().map_or(Ok(loss), objective::scalar_value)?;
        let is_finite = loss.is_finite() && minimized.is_finite();
        Ok(if is_finite { Ok(loss) } else { Err(NotFinite::Loss(loss, minimized)) })
    }
}

/// Why a step was not taken.
pub enum NotFinite {
    /// The loss of a batch, and the loss with penalties, are these values.
    Loss(f64, f64),
    /// The norm of these gradients is not finite, so they cannot be clipped.
    Norm(Gradients),
}

/// What [`take_step`] calls, for a step of one batch in this order: `upload`, `forward`, `gradients`, `direction`, `read`. For
/// several batches, or if [`Step::accumulates`], each one goes through `upload`, `forward`, `backward` and `read`; `direction`
/// follows.
pub trait Step {
    /// Why a step fails.
    type Error: From<Error> + From<phynexus::Error>;
    /// A batch of the step.
    type Batch;

    /// The optimiser that updates the parameters.
    fn optimizer(&mut self) -> &mut Optimizer;

    /// State that forward passes change, such as running statistics.
    fn buffers(&self) -> &[Parameter];

    /// The weight of a batch in the mean over a step's batches, such as its number of rows.
    fn weight(&self, batch: &Self::Batch) -> f64;

    /// Whether the gradients of a step's only batch are added to those of the parameters, too.
    fn accumulates(&self) -> bool {
        false
    }

    /// The recordings of the run's steps, if steps of this batch alone are replayed. A replay calls `upload` and `read`
    /// only.
    fn recordings(&self, batch: &Self::Batch) -> Option<Recordings> {
        let _ = batch;
        None
    }

    /// Whether the gradients of the next batch are only accumulated, and not yet those of all processes.
    fn set_accumulating(&mut self, accumulating: bool) {
        let _ = accumulating;
    }

    /// The inputs and targets of a batch on the device.
    fn upload(&self, batch: &Self::Batch) -> Result<[Tensor; 2], Self::Error>;

    /// Records the forward pass over inputs and targets, which are those of the batch.
    fn forward(&mut self, batch: &Self::Batch, data: &[Tensor; 2]) -> Result<Pass, Self::Error>;

    /// The gradients of the step's only batch.
    fn gradients(&mut self, pass: &Pass) -> Result<Gradients, Self::Error> {
        Ok(pass.minimized().leaf_gradients()?)
    }

    /// Adds the gradients of a batch to those of the parameters. `loss` is the batch's share of the step's.
    fn backward(&mut self, loss: &Tensor) -> Result<(), Self::Error> {
        Ok(loss.backward()?)
    }

    /// What the optimiser gets for the (clipped) gradients.
    fn direction(&mut self, gradients: Gradients) -> Result<Gradients, Self::Error> {
        Ok(gradients)
    }

    /// Takes the value of a batch's loss, and reads what its pass measured, which is computed by then.
    fn read(&mut self, batch: &Self::Batch, loss: f64, measured: Option<Tensor>) -> Result<(), Self::Error>;

    /// The error for a step that was not taken. The model is as it was before the step.
    fn refusal(&mut self, batches: &[Self::Batch], reason: NotFinite) -> Self::Error;
}

/// Updates a model from the batches of one step. Gradients are averaged over batches by [`Step::weight`], and shortened to
/// `clip_norm` if their joint Euclidean norm is greater.
///
/// # Errors
/// Those of the hooks, a loss that is not finite, and with `clip_norm` a norm that is not. Parameters, buffers, the
/// optimiser and the generators are then as they were.
pub fn take_step<S: Step>(
    step: &mut S,
    batches: &[S::Batch],
    generators: &[&Generator],
    clip_norm: Option<f64>,
) -> Result<(), S::Error> {
    if let Some(limit) = clip_norm
        && !(limit.is_finite() && limit > 0.0)
    {
        return Err(Error::data("clip_norm", format!("{limit} is not a finite number above 0")).into());
    }
    let before: Vec<Tensor> = step.buffers().iter().map(Parameter::tensor).collect();
    let states: Vec<GeneratorState> = generators.iter().map(|generator| generator.state()).collect();
    let restore = |step: &S| -> Result<()> {
        generators.iter().zip(&states).for_each(|(generator, state)| generator.set_state(*state));
        step.buffers().iter().zip(&before).try_for_each(|(buffer, value)| buffer.set(value.clone()))
    };
    let outcome = match batches {
        [batch] if !step.accumulates() => single(step, batch, clip_norm, restore),
        _ => accumulated(step, batches, clip_norm),
    };
    let Some(reason) = outcome.transpose() else { return Ok(()) };
    restore(step)?;
    step.optimizer().parameters().for_each(|parameter| parameter.tensor().set_grad(None));
    let error = reason.map_or_else(|error| error, |reason| step.refusal(batches, reason));
    // Finding the reason may have run the model.
    restore(step)?;
    Err(error)
}

/// Without replay, the loss and the norm to clip are read before the update is computed: that costs less than a choice between
/// old and new values in the update of every parameter.
fn single<S: Step>(
    step: &mut S,
    batch: &S::Batch,
    clip_norm: Option<f64>,
    restore: impl Fn(&S) -> Result<()>,
) -> Result<Option<NotFinite>, S::Error> {
    let data = step.upload(batch)?;
    let mut refused = None;
    if let Some(recordings) = step.recordings(batch).filter(|_| step.optimizer().has_state()) {
        match replayed(step, batch, &data, clip_norm, &recordings)? {
            (true, loss, measured) => return step.read(batch, loss, measured).map(|()| None),
            (false, loss, _) => refused = Some(loss),
        }
        restore(step)?;
    }
    let pass = step.forward(batch, &data)?;
    let gradients = step.gradients(&pass)?;
    let norm = clip_norm.map_or(Ok(None), |_| gradient_norm(&gradients))?;
    let roots = std::iter::once(&pass.loss).chain(&pass.penalized).chain(&norm);
    Tensor::evaluate_all(&roots.collect::<Vec<_>>())?;
    let loss = match pass.read_loss()? {
        Ok(loss) => loss,
        Err(reason) => return Ok(Some(reason)),
    };
    if let Some(loss) = refused {
        // It is the norm, or the code has drawn other random numbers this time.
        let is_norm =
            norm.map_or(Ok(false), |norm| objective::scalar_value(&norm).map(|norm| !norm.is_finite()))?;
        return Ok(Some(if is_norm { NotFinite::Norm(gradients) } else { NotFinite::Loss(loss, loss) }));
    }
    let buffers: Vec<Tensor> = step.buffers().iter().map(Parameter::tensor).collect();
    let also: Vec<&Tensor> = pass.measured.iter().chain(&buffers).collect();
    let refused = update(step, gradients, norm.zip(clip_norm), &also)?;
    if refused.is_none() {
        step.read(batch, loss, pass.measured)?;
    }
    Ok(refused)
}

/// Replays a step. Returns whether it was taken, which needs everything to be finite, the loss, and what was measured.
fn replayed<S: Step>(
    step: &mut S,
    batch: &S::Batch,
    data: &[Tensor; 2],
    clip_norm: Option<f64>,
    recordings: &Recordings,
) -> Result<(bool, f64, Option<Tensor>), S::Error> {
    let record = |step: &mut S, given: &[Tensor]| -> Result<Vec<Tensor>, S::Error> {
        let [inputs, targets] = given else {
            return Err(phynexus::Error::internal("train", "a step has inputs and targets").into());
        };
        let pass = step.forward(batch, &[inputs.clone(), targets.clone()])?;
        let mut gradients = step.gradients(&pass)?;
        let mut condition = pass.loss.isfinite()?;
        if let Some(penalized) = &pass.penalized {
            condition = condition.logical_and(&penalized.isfinite()?)?;
        }
        if let Some(limit) = clip_norm
            && let Some(norm) = gradient_norm(&gradients)?
        {
            condition = condition.logical_and(&norm.isfinite()?)?;
            gradients = scale_to_norm(gradients, &norm, limit)?;
        }
        let direction = step.direction(gradients)?;
        step.optimizer().step_if(&condition.reshape(&[])?, direction, &[])?;
        Ok(std::iter::once(pass.loss).chain(pass.measured).collect())
    };
    let steps = step.optimizer().steps();
    let mut results = recordings.call(step, S::optimizer, data, record)?.into_iter();
    // The new values are in place, so that an interruption would come too late.
    let _shield = Shield::new();
    let loss = results.next().map_or(Ok(f64::NAN), |loss| objective::scalar_value(&loss))?;
    Ok((step.optimizer().steps() > steps, loss, results.next()))
}

/// Batch by batch, so that memory holds one forward pass at a time.
fn accumulated<S: Step>(
    step: &mut S,
    batches: &[S::Batch],
    clip_norm: Option<f64>,
) -> Result<Option<NotFinite>, S::Error> {
    let total: f64 = batches.iter().map(|batch| step.weight(batch)).sum();
    let leaves: Vec<Tensor> = step.optimizer().parameters().map(Parameter::leaf).collect::<Result<_>>()?;
    for (at, batch) in batches.iter().enumerate() {
        let data = step.upload(batch)?;
        let pass = step.forward(batch, &data)?;
        step.set_accumulating(at + 1 < batches.len());
        let share = if total > 0.0 { step.weight(batch) / total } else { 0.0 };
        step.backward(&pass.minimized().mul_scalar(share)?)?;
        let gradients = leaves.iter().filter_map(Tensor::grad);
        let changed: Vec<Tensor> = gradients.chain(step.buffers().iter().map(Parameter::tensor)).collect();
        let roots = std::iter::once(&pass.loss).chain(&pass.penalized).chain(&pass.measured).chain(&changed);
        Tensor::evaluate_all(&roots.collect::<Vec<_>>())?;
        match pass.read_loss()? {
            Ok(loss) => step.read(batch, loss, pass.measured)?,
            Err(reason) => return Ok(Some(reason)),
        }
    }
    let gradients = Gradients::take_from(&leaves.iter().collect::<Vec<_>>());
    // The optimiser overwrites gradients that nothing else holds.
    drop(leaves);
    let norm = clip_norm.map_or(Ok(None), |_| gradient_norm(&gradients))?;
    update(step, gradients, norm.zip(clip_norm), &[])
}

/// Clips gradients to a limit, given their norm, and updates the parameters.
fn update<S: Step>(
    step: &mut S,
    mut gradients: Gradients,
    clip: Option<(Tensor, f64)>,
    also: &[&Tensor],
) -> Result<Option<NotFinite>, S::Error> {
    if let Some((norm, limit)) = clip {
        if !objective::scalar_value(&norm)?.is_finite() {
            return Ok(Some(NotFinite::Norm(gradients)));
        }
        gradients = scale_to_norm(gradients, &norm, limit)?;
    }
    let direction = step.direction(gradients)?;
    step.optimizer().step(direction, also)?;
    Ok(None)
}

/// What a step measured on the rows of its batches.
#[derive(Default)]
pub(super) struct Measured {
    /// The sum over batches of mean loss times rows.
    pub loss_sum: f64,
    /// The number of correctly classified rows; 0 for regression.
    pub correct: u64,
    /// The number of rows.
    pub rows: u64,
}

impl Step for Session<'_, '_> {
    type Error = Error;
    type Batch = Batch;

    fn optimizer(&mut self) -> &mut Optimizer {
        &mut self.trainer.optimizer
    }

    fn buffers(&self) -> &[Parameter] {
        &self.buffers
    }

    fn weight(&self, batch: &Batch) -> f64 {
        batch.indices.len() as f64
    }

    /// A replay would see neither another mode nor another weight of this rank's rows.
    fn recordings(&self, batch: &Batch) -> Option<Recordings> {
        let rows = batch.indices.len();
        let is_even = self.parallel.as_ref().is_none_or(|parallel| parallel.division().is_even(rows));
        self.recordings.clone().filter(|_| is_even && self.trainer.model.is_training())
    }

    fn set_accumulating(&mut self, accumulating: bool) {
        if let Some(parallel) = &self.parallel {
            parallel.set_paused(accumulating);
        }
    }

    fn upload(&self, batch: &Batch) -> Result<[Tensor; 2]> {
        let rows = batch.indices.len();
        let own = self.parallel.as_ref().map_or(0..rows, |parallel| parallel.division().computed(rows));
        self.trainer.upload(batch, own)
    }

    fn forward(&mut self, batch: &Batch, [inputs, targets]: &[Tensor; 2]) -> Result<Pass> {
        let outputs = self.trainer.model.forward(inputs)?;
        let objective = &self.trainer.objective;
        let loss = objective.loss(&outputs, targets)?;
        let correct = objective.correct(&outputs, targets)?;
        let Some(parallel) = &self.parallel else {
            return Ok(Pass { loss, penalized: None, measured: correct });
        };
        let rows = batch.indices.len();
        let weighted = loss.mul_scalar(parallel.weight(rows))?;
        Ok(Pass {
            loss: parallel.mean(&weighted)?,
            penalized: Some(weighted),
            measured: correct.map(|correct| parallel.sum(&correct, rows)).transpose()?,
        })
    }

    fn read(&mut self, batch: &Batch, loss: f64, measured: Option<Tensor>) -> Result<()> {
        self.measured.loss_sum += loss * batch.indices.len() as f64;
        self.measured.rows += batch.indices.len() as u64;
        if let Some(correct) = measured {
            self.measured.correct += correct.item::<i64>()? as u64;
        }
        Ok(())
    }

    fn refusal(&mut self, batches: &[Batch], _: NotFinite) -> Error {
        let explanation = match self.explain(batches) {
            Ok(explanation) => explanation,
            Err(error) => return error,
        };
        let step = self.trainer.progress.steps + 1;
        let message = format!(
            "at step {step} {explanation}; the step was not taken: lower the learning rate, clip gradients, or look for bad values in the data{}",
            self.trainer.kept()
        );
        Error::data("training", message)
    }
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

impl Session<'_, '_> {
    /// Names the first tensor in the computation of the loss that is not finite, by computing it again.
    fn explain(&self, batches: &[Batch]) -> Result<String> {
        if let Some(name) = not_finite(self.trainer.model)? {
            return Ok(format!("parameter {name} is not finite"));
        }
        let _guard = no_grad();
        for batch in batches {
            for (what, array) in [("input", &batch.inputs), ("target", &batch.targets)] {
                if let Some(row) = row_not_finite(array)? {
                    return Ok(format!("the {what} of row {} of the data is not finite", batch.indices[row]));
                }
            }
            let [inputs, targets] = self.trainer.upload(batch, 0..batch.indices.len())?;
            let outputs = self.trainer.model.forward(&inputs)?.detach()?;
            if !outputs.isfinite()?.all(&[], false)?.item::<bool>()? {
                return Ok("the network's outputs are not finite".to_owned());
            }
            let loss = objective::scalar_value(&self.trainer.objective.loss(&outputs, &targets)?)?;
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
