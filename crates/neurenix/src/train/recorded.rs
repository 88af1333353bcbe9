//! Training steps that replay: recorded once, then computed without running their code again.

use std::sync::{Arc, Mutex, PoisonError};

use phynexus::{Error as EngineError, Tensor, interrupt::Shield};

use crate::{
    Error, Result,
    nn::recording,
    optim::{Optimizer, RecordedStep, noting_steps, take_conditions},
};

/// The maximum number of recordings that [`Recordings`] keeps.
const CAPACITY: usize = 16;

/// A function of tensors, variables and optimisers that was recorded: its plan, the variables that it reads and
/// changes, and the optimisers' steps that it takes.
///
/// Each variable that the function reads through [`Parameter`](crate::nn::Parameter) is an argument of the recording,
/// and so are the numbers of optimisers' steps: learning rates, weight decays, settings, and what depends on step
/// counts. Other numbers and branches of the function are part of the recording.
pub struct Recorded {
    function: recording::Recorded,
    steps: Vec<RecordedStep>,
}

impl Recorded {
    /// Records a function without computing anything. Its steps need optimisers that
    /// [have their state](Optimizer::has_state).
    ///
    /// # Errors
    /// Errors of the function, and [`EngineError::Argument`] if it reads a value, uses a parameter that it has updated,
    /// copies between devices, or sets the state of a random generator.
    pub fn of<E: From<EngineError> + From<Error>>(
        given: &[Tensor],
        function: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>, E>,
    ) -> Result<Recorded, E> {
        let with_conditions = |given: &[Tensor]| {
            let mut results = function(given)?;
            results.extend(take_conditions());
            Ok::<_, E>(results)
        };
        let (function, steps) = noting_steps(|| recording::Recorded::of(given, with_conditions));
        Ok(Recorded { function: function?, steps })
    }

    /// Returns how many optimisers' steps a call takes.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// Computes the function, changes the variables and counts the steps that were taken. `optimizers` has the optimiser
    /// of each step, in order. Returns `None`, and changes nothing, if the recording does not fit: it was made for other shapes,
    /// dtypes, devices or states of gradients, or for another formula of an update.
    ///
    /// # Errors
    /// Those of the computation. Variables and optimisers are then as they were.
    pub fn run(&self, given: &[Tensor], optimizers: &mut [&mut Optimizer]) -> Result<Option<Vec<Tensor>>> {
        if optimizers.len() != self.steps.len() {
            return Ok(None);
        }
        let mut numbers = Vec::new();
        for (step, optimizer) in self.steps.iter().zip(&*optimizers) {
            match optimizer.numbers_for(step)? {
                Some(more) if step.optimizer() == optimizer.id() => numbers.extend(more),
                _ => return Ok(None),
            }
        }
        let Some(mut results) = self.function.run(given, numbers)? else { return Ok(None) };
        // The new values are in place; an interruption now would leave the counts behind.
        let _shield = Shield::new();
        let conditional = self.steps.iter().filter(|step| step.is_read()).count();
        let mut conditions = results.split_off(results.len() - conditional).into_iter();
        for (step, optimizer) in self.steps.iter().zip(optimizers) {
            let condition = if step.is_read() { conditions.next() } else { None };
            if condition.map_or(Ok(true), |condition| condition.item::<bool>())? {
                optimizer.count_replayed(step);
            }
        }
        Ok(Some(results))
    }
}

/// The recordings of a function of tensors, variables and at most one optimiser: one for each structure.
#[derive(Clone, Default)]
pub struct Recordings(Arc<Mutex<Vec<Arc<Recorded>>>>);

impl Recordings {
    /// Computes the function by a recording that fits, or by a new one. `optimizer` finds the optimiser, which
    /// [has its state](Optimizer::has_state), in what the function changes.
    ///
    /// # Errors
    /// As for [`Recorded::of`] and [`Recorded::run`].
    pub fn call<C, E: From<EngineError> + From<Error>>(
        &self,
        context: &mut C,
        optimizer: impl Fn(&mut C) -> &mut Optimizer,
        given: &[Tensor],
        function: impl FnOnce(&mut C, &[Tensor]) -> Result<Vec<Tensor>, E>,
    ) -> Result<Vec<Tensor>, E> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known: Vec<Arc<Recorded>> = lock().clone();
        for recorded in known.iter().rev() {
            if let Some(results) = run(recorded, given, optimizer(context))? {
                return Ok(results);
            }
        }
        let recorded = Arc::new(Recorded::of(given, |given| function(context, given))?);
        let results = run(&recorded, given, optimizer(context))?;
        let results =
            results.ok_or_else(|| EngineError::internal("replay", "a new recording does not fit"))?;
        let mut recordings = lock();
        let oldest = (recordings.len() >= CAPACITY).then(|| recordings.remove(0));
        recordings.push(recorded);
        drop(recordings);
        drop(oldest);
        Ok(results)
    }
}

/// A training step that is recorded once for each structure and then replayed.
///
/// ```
/// use neurenix::{nn::{Linear, Module}, optim::{Optimizer, Rule}, train::Replay};
/// use phynexus::{DType, Device, Tensor, tensor::{Generator, Reduction}};
///
/// neurenix::register_all();
/// let (device, g) = (Device::find("cpu")?, Generator::new(0));
/// let layer = Linear::new(3, 1, true, device, &g)?;
/// let mut optimizer = Optimizer::new(Rule::adam(), layer.parameters(), 0.01)?;
/// let step = Replay::new(|optimizer: &mut Optimizer, batch: &[Tensor]| -> neurenix::Result<Vec<Tensor>> {
///     let loss = layer.forward(&batch[0])?.mse_loss(&batch[1], Reduction::Mean)?;
///     optimizer.step(loss.leaf_gradients()?, &[&loss])?;
///     Ok(vec![loss])
/// });
/// let inputs = g.randn(&[8, 3], DType::F32, device)?;
/// let targets = g.randn(&[8, 1], DType::F32, device)?;
/// let first = step.call(&mut optimizer, &[inputs.clone(), targets.clone()])?[0].item::<f32>()?;
/// for _ in 0..100 {
///     step.call(&mut optimizer, &[inputs.clone(), targets.clone()])?;
/// }
/// let last = step.call(&mut optimizer, &[inputs, targets])?[0].item::<f32>()?;
/// assert!(last < first);
/// # Ok::<(), neurenix::Error>(())
/// ```
pub struct Replay<F> {
    function: F,
    recordings: Recordings,
}

impl<F, E> Replay<F>
where
    F: Fn(&mut Optimizer, &[Tensor]) -> Result<Vec<Tensor>, E>,
    E: From<EngineError> + From<Error>,
{
    /// A step whose only optimiser is the one that [`Replay::call`] gets.
    pub fn new(function: F) -> Replay<F> {
        Replay { function, recordings: Recordings::default() }
    }

    /// Takes a step. The first call of an optimiser without state runs the function as it is.
    ///
    /// # Errors
    /// As for [`Recorded::of`] and [`Recorded::run`].
    pub fn call(&self, optimizer: &mut Optimizer, given: &[Tensor]) -> Result<Vec<Tensor>, E> {
        if !optimizer.has_state() {
            return (self.function)(optimizer, given);
        }
        self.recordings.call(optimizer, |optimizer| optimizer, given, &self.function)
    }
}

fn run(recorded: &Recorded, given: &[Tensor], optimizer: &mut Optimizer) -> Result<Option<Vec<Tensor>>> {
    match recorded.steps() {
        0 => recorded.run(given, &mut []),
        1 => recorded.run(given, &mut [optimizer]),
        _ => Err(EngineError::argument("replay", "a step can update its parameters once").into()),
    }
}
