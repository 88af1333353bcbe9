//! Functions that read and change variables, recorded once and replayed.
//!
//! While a thread records a function, every variable that it reads becomes an argument of the recording, and every one
//! that it changes is a result. A replay takes the current values, and puts the results in their place.

mod variable;

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use phynexus::{
    Error as EngineError, Tensor,
    gradient::is_enabled,
    schedule::capture::{Recording, adopt, in_rows, outside},
};

use self::variable::{Gradient, Variable};
use super::Parameter;
use crate::{Error, Result};

thread_local! {
    /// Whether this thread records. Reading it costs less than looking at `TOUCHED`.
    static IS_ACTIVE: Cell<bool> = const { Cell::new(false) };
    static TOUCHED: RefCell<Touched> = RefCell::default();
}

/// What the function that this thread records has read and changed so far.
#[derive(Default)]
struct Touched {
    /// By the variable's id: its position in `variables`, or `None` for a variable that the function made.
    known: HashMap<u64, Option<usize>>,
    variables: Vec<Touch>,
    arguments: Vec<Argument>,
    /// Why a variable could not become an argument.
    error: Option<Error>,
}

/// A variable that the function has touched.
struct Touch {
    parameter: Parameter,
    is_trainable: bool,
    /// Its value before the function, and the leaf that stands for it.
    before: Tensor,
    start: Tensor,
    /// What stands for its gradient before the function.
    gradient: Option<Tensor>,
    now: Tensor,
    /// The earlier variable that holds the same tensor.
    twin: Option<usize>,
}

/// Where a replay gets an argument from.
#[derive(Clone, Copy)]
enum Argument {
    Given(usize),
    Value(usize),
    Gradient(usize),
    Number,
}

/// Ends the recording when it is dropped.
struct Active;

impl Active {
    fn enter() -> Active {
        IS_ACTIVE.set(true);
        Active
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        IS_ACTIVE.set(false);
        // Dropped outside the borrow.
        drop(TOUCHED.take());
    }
}

/// Notes that the function made this variable itself.
pub(super) fn note_made(parameter: &Parameter) {
    if IS_ACTIVE.get() {
        TOUCHED.with_borrow_mut(|touched| touched.known.insert(parameter.id(), None));
    }
}

/// The variable's position among those touched; `None` outside a recording and for variables that the function made.
fn position(parameter: &Parameter) -> Option<usize> {
    if !IS_ACTIVE.get() {
        return None;
    }
    let known = TOUCHED.with_borrow(|touched| touched.known.get(&parameter.id()).copied());
    if let Some(known) = known {
        return known;
    }
    // Making a copy may run signal handlers, which may touch variables too: no borrow is held meanwhile.
    let is_trainable = parameter.is_trainable();
    let (before, failure) = match outside(|| settled(parameter)) {
        Ok(before) => (before, None),
        Err(error) => (parameter.stored(), Some(error)),
    };
    let twin = TOUCHED.with_borrow(|touched| {
        let twin = touched.variables.iter().position(|touch| touch.before.is_same(&before));
        twin.map(|twin| (twin, touched.variables[twin].start.clone()))
    });
    let adopted = match &twin {
        Some((_, start)) => Ok((start.clone(), start.grad())),
        None => stand_in(&before),
    };
    let has_hooks = has_hooks(&before).then(|| {
        let message = "a tensor that the compiled function reads has hooks (register_hook), which a replay would not call: \
                       remove them, or call the function itself";
        EngineError::argument("compile", message).into()
    });
    // After an error nothing may touch the variable's own leaf.
    let (adopted, error) = match adopted {
        Ok(adopted) => (adopted, failure.or(has_hooks)),
        Err(error) => {
            let value = Tensor::detach(&before).unwrap_or_else(|_| before.clone());
            ((value, None), Some(error.into()))
        }
    };
    let (start, gradient) = adopted;
    TOUCHED.with_borrow_mut(|touched| {
        touched.error = error.or(touched.error.take());
        let position = touched.variables.len();
        if twin.is_none() {
            touched.arguments.push(Argument::Value(position));
            touched.arguments.extend(gradient.as_ref().map(|_| Argument::Gradient(position)));
        }
        let (parameter, now, twin) = (parameter.clone(), start.clone(), twin.map(|(twin, _)| twin));
        touched.known.insert(parameter.id(), Some(position));
        touched.variables.push(Touch { parameter, is_trainable, before, start, gradient, now, twin });
        Some(position)
    })
}

/// The variable's value, as a leaf if it is trainable.
fn settled(parameter: &Parameter) -> Result<Tensor> {
    if parameter.is_trainable() {
        return parameter.stored_leaf();
    }
    let value = parameter.stored();
    if !value.has_graph() {
        return Ok(value);
    }
    if is_enabled() {
        let message = "the compiled function reads a tensor that was computed outside from tensors that require gradients: \
                       compute it in the function, or detach it";
        return Err(EngineError::argument("compile", message).into());
    }
    Ok(value.detach()?)
}

/// The leaves that stand for a value and for its gradient.
fn stand_in(value: &Tensor) -> std::result::Result<(Tensor, Option<Tensor>), EngineError> {
    let start = adopt(value)?;
    if let Some(reducer) = value.reducer().filter(|_| start.requires_grad()) {
        start.set_reducer(Some(reducer))?;
    }
    let gradient = value.grad().map(|gradient| adopt(&gradient)).transpose()?;
    start.set_grad(gradient.clone());
    Ok((start, gradient))
}

fn has_hooks(value: &Tensor) -> bool {
    value.hooks_of_gradient().is_some_and(|hooks| !hooks.is_empty())
}

/// True in a recorded function for a variable that the function did not make.
pub(super) fn is_outside(parameter: &Parameter) -> bool {
    IS_ACTIVE.get() && TOUCHED.with_borrow(|touched| touched.known.get(&parameter.id()) != Some(&None))
}

/// The variable's value in the function that this thread records.
pub(super) fn current(parameter: &Parameter) -> Option<Tensor> {
    position(parameter).map(|position| TOUCHED.with_borrow(|touched| touched.variables[position].now.clone()))
}

/// The leaf that collects the variable's gradients in the function that this thread records.
pub(super) fn collector(parameter: &Parameter) -> Option<Tensor> {
    position(parameter).map(|position| {
        TOUCHED.with_borrow(|touched| {
            let touch = &touched.variables[position];
            let is_leaf = touch.now.requires_grad() && touch.now.is_leaf();
            if is_leaf { touch.now.clone() } else { touch.start.clone() }
        })
    })
}

/// Changes the variable in the function that this thread records. Otherwise returns the value, for the variable itself.
pub(super) fn change(parameter: &Parameter, value: Tensor) -> Option<Tensor> {
    let Some(position) = position(parameter) else { return Some(value) };
    let former =
        TOUCHED.with_borrow_mut(|touched| std::mem::replace(&mut touched.variables[position].now, value));
    drop(former);
    None
}

/// Does work that is no part of the function that this thread records.
pub(crate) fn unrecorded<T>(work: impl FnOnce() -> T) -> T {
    let is_active = IS_ACTIVE.replace(false);
    let result = outside(work);
    IS_ACTIVE.set(is_active);
    result
}

/// Makes a number of the host an argument of the function that this thread records. Otherwise returns it as it is.
pub(crate) fn adopt_number(number: Tensor) -> Result<Tensor> {
    if !IS_ACTIVE.get() {
        return Ok(number);
    }
    let adopted = adopt(&number)?;
    TOUCHED.with_borrow_mut(|touched| touched.arguments.push(Argument::Number));
    Ok(adopted)
}

/// A recorded function: its plan, the variables that it reads, and those that it changes.
pub(crate) struct Recorded {
    recording: Recording,
    arguments: Vec<Argument>,
    variables: Vec<Variable>,
    /// For each result, whether it is the new value of a variable that collects gradients.
    leaves: Vec<bool>,
    /// The number of results that the function returns; those of variables follow.
    returned: usize,
}

impl Recorded {
    /// Records a function of tensors and variables without computing anything.
    ///
    /// # Errors
    /// Errors of the function, and [`EngineError::Argument`] if it reads a value, copies between devices, or sets the
    /// state of a random generator.
    pub(crate) fn of<E: From<EngineError> + From<Error>>(
        given: &[Tensor],
        function: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>, E>,
    ) -> Result<Recorded, E> {
        let mut made = None;
        let recording = Recording::of(|| {
            let active = Active::enter();
            let copies = given.iter().map(adopt).collect::<phynexus::Result<Vec<Tensor>>>()?;
            TOUCHED.with_borrow_mut(|t| t.arguments.extend((0..given.len()).map(Argument::Given)));
            let mut results = function(&copies)?;
            let touched = TOUCHED.take();
            drop(active);
            if let Some(error) = touched.error {
                return Err(error.into());
            }
            let returned = results.len();
            let mut leaves = vec![false; returned];
            let mut variables = Vec::with_capacity(touched.variables.len());
            for touch in &touched.variables {
                variables.push(touch.outcome(&mut results, &mut leaves)?);
            }
            let is_given = |argument: &Argument| match *argument {
                Argument::Given(_) | Argument::Number => false,
                Argument::Value(variable) => variables[variable].value.is_some(),
                Argument::Gradient(variable) => variables[variable].gradient != Gradient::Stays,
            };
            let is_given = touched.arguments.iter().map(is_given).collect();
            made = Some((touched.arguments, variables, leaves, returned));
            Ok::<_, E>((results, is_given))
        })?;
        let Some((arguments, variables, leaves, returned)) = made else {
            return Err(EngineError::internal("recording", "the function did not run").into());
        };
        Ok(Recorded { recording, arguments, variables, leaves, returned })
    }

    /// Computes the function and changes the variables. `numbers` are those of [`adopt_number`], in order. Returns
    /// `None`, and changes nothing, if the recording was made for other shapes, dtypes, devices or states of gradients.
    ///
    /// # Errors
    /// Those of the computation. The variables are then as they were.
    pub(crate) fn run(&self, given: &[Tensor], numbers: Vec<Tensor>) -> Result<Option<Vec<Tensor>>> {
        for variable in &self.variables {
            if !variable.is_ready()? {
                return Ok(None);
            }
        }
        let (results, promises) = self.recording.promise(|result| self.leaves[result]);
        let Some(mut taken) = self.take(given, numbers, &results)? else { return Ok(None) };
        let outcome = match taken.fits && self.recording.fits(&taken.arguments) {
            true => self.recording.keep(&taken.arguments, &promises).map(|()| true),
            false => Ok(false),
        };
        let is_done = matches!(outcome, Ok(true));
        for (variable, place) in self.variables.iter().zip(&taken.places) {
            let old = taken.twins.get(&place.variable).unwrap_or(&taken.arguments[place.value]);
            match is_done {
                true => variable.put_gradient(old, &results),
                false => {
                    // Other replays may hold the promise already: it becomes the old value.
                    let gradient = place.gradient.map(|gradient| taken.arguments[gradient].clone());
                    variable.restore(old, gradient, &promises, &results);
                }
            }
        }
        drop(promises);
        taken.arguments.clear();
        outcome?;
        Ok(is_done.then(|| results[..self.returned].to_vec()))
    }

    /// Puts the promised results into the variables, and returns the arguments. Results take over the memory of an
    /// argument that has no other handle, so the only handle to a replaced value is here.
    fn take(&self, given: &[Tensor], numbers: Vec<Tensor>, results: &[Tensor]) -> Result<Option<Taken>> {
        let count = |is: fn(&Argument) -> bool| self.arguments.iter().filter(|a| is(a)).count();
        let counts = (count(|a| matches!(a, Argument::Given(_))), count(|a| matches!(a, Argument::Number)));
        if counts != (given.len(), numbers.len()) {
            return Ok(None);
        }
        let given = given.iter().map(in_rows).collect::<phynexus::Result<Vec<Tensor>>>()?;
        let mut numbers = numbers.into_iter();
        // Two replays that each held some of the other's promises would wait for each other forever.
        static TAKING: Mutex<()> = Mutex::new(());
        let _alone = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        let is_apart = |variable: &Variable| {
            variable.twin.is_some_and(|twin| {
                !self.variables[twin].parameter.stored().is_same(&variable.parameter.stored())
            })
        };
        if self.variables.iter().any(is_apart) {
            return Ok(None);
        }
        let mut arguments: Vec<Tensor> = Vec::with_capacity(self.arguments.len());
        let mut places: Vec<ArgumentPositions> = (0..self.variables.len())
            .map(|variable| ArgumentPositions { variable, value: 0, gradient: None })
            .collect();
        let mut twins = HashMap::new();
        let mut fits = true;
        for argument in &self.arguments {
            let at = arguments.len();
            match *argument {
                Argument::Given(position) => arguments.push(given[position].clone()),
                Argument::Number => arguments.extend(numbers.next()),
                Argument::Value(position) => {
                    let variable = &self.variables[position];
                    let taken = variable.take(results);
                    let value = in_rows(&taken).unwrap_or_else(|_| {
                        fits = false;
                        taken
                    });
                    fits &= value.grad().is_some() == variable.has_gradient
                        && (value.requires_grad() || !variable.is_trainable);
                    places[position].value = at;
                    arguments.push(value);
                }
                Argument::Gradient(position) => {
                    let value = arguments[places[position].value].clone();
                    places[position].gradient = value.grad().map(|_| at);
                    arguments.push(value.grad().unwrap_or_else(|| value.clone()));
                    if self.variables[position].gradient != Gradient::Stays {
                        value.set_grad(None);
                    }
                }
            }
        }
        for (position, variable) in self.variables.iter().enumerate() {
            if let Some(twin) = variable.twin {
                let value = variable.take(results);
                places[position] = ArgumentPositions { variable: position, ..places[twin] };
                if !value.is_same(&arguments[places[twin].value]) {
                    fits = false;
                    places[position].gradient = None;
                    twins.insert(position, value);
                }
            }
        }
        Ok(Some(Taken { arguments, places, twins, fits }))
    }
}

/// The arguments of a replay, taken from the variables.
struct Taken {
    arguments: Vec<Tensor>,
    /// For each variable.
    places: Vec<ArgumentPositions>,
    /// The values of variables that no longer hold the tensor of their twin.
    twins: HashMap<usize, Tensor>,
    /// Whether the variables still are as the recording needs them.
    fits: bool,
}

/// Where a variable's value and its gradient are among the arguments.
#[derive(Clone, Copy)]
struct ArgumentPositions {
    variable: usize,
    value: usize,
    gradient: Option<usize>,
}

impl Touch {
    /// What the function made of the variable. Adds the new value and the new gradient to the results.
    fn outcome(
        &self,
        results: &mut Vec<Tensor>,
        leaves: &mut Vec<bool>,
    ) -> std::result::Result<Variable, EngineError> {
        let mut result = |tensor: &Tensor, is_leaf: bool| -> phynexus::Result<usize> {
            let tensor = tensor.detach()?;
            let known = (results.iter().zip(leaves.iter()))
                .position(|(known, &leaf)| known.is_same(&tensor) && leaf == is_leaf);
            Ok(known.unwrap_or_else(|| {
                results.push(tensor);
                leaves.push(is_leaf);
                results.len() - 1
            }))
        };
        let is_trainable = self.is_trainable;
        let value = match self.now.is_same(&self.start) {
            true => None,
            false => Some(result(&self.now, is_trainable)?),
        };
        let is_leaf = self.now.requires_grad() && self.now.is_leaf();
        let after = if is_leaf { self.now.grad() } else { self.start.grad() };
        let gradient = match (&self.gradient, after) {
            (None, None) => Gradient::Stays,
            (Some(_), None) => Gradient::Goes,
            (Some(before), Some(after)) if before.is_same(&after) => Gradient::Stays,
            (_, Some(after)) => Gradient::Result(result(&after, false)?),
        };
        let (parameter, has_gradient) = (self.parameter.clone(), self.gradient.is_some());
        Ok(Variable { parameter, is_trainable, has_gradient, twin: self.twin, value, gradient })
    }
}
