//! Optimisers: bindings of `neurenix::optim` over tensors that Python holds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use neurenix::optim::{Optimizer, Rule};
use phynexus::{Tensor, gradient::Gradients};
use pyo3::{prelude::*, sync::MutexExt};

use crate::{
    error::{Result, value_error},
    interrupt::{compute, compute_undisturbed},
    placement,
    tensor::PyTensor,
};

/// An update rule and its state, for groups of parameters with their own settings.
#[pyclass(name = "Optimizer", module = "neurenix._engine", frozen)]
pub(crate) struct PyOptimizer {
    rule: String,
    optimizer: Mutex<Optimizer>,
}

/// A rule's settings by name.
type Options = HashMap<String, f64>;
/// A parameter group as Python passes it: parameters, learning rate, weight decay, options of the rule.
type ParameterGroup<'py> = (Vec<Bound<'py, PyTensor>>, f64, f64, Options);

fn known(name: &str) -> Result<Rule> {
    Rule::named(name).ok_or_else(|| value_error(format!("unknown update rule {name:?}")))
}

fn rule(name: &str, options: &Options) -> Result<Rule> {
    let rule = known(name)?;
    let settings = rule.settings();
    match options.keys().find(|key| settings.iter().all(|setting| setting.name != *key)) {
        None => Ok(rule.with(|setting| options.get(setting).copied())),
        Some(unknown) => Err(value_error(format!("{name} has no setting {unknown:?}"))),
    }
}

/// Has the values that these buffers get next computed by the next step of an optimiser, or by the next call.
#[pyfunction]
pub(crate) fn follow_step(py: Python<'_>, buffers: Vec<Bound<'_, PyTensor>>) -> Result<()> {
    let variables = variables(&buffers);
    compute(py, || variables.iter().try_for_each(|variable| variable.follow_step()))
}

/// The names of the settings of a rule.
#[pyfunction]
pub(crate) fn optimizer_settings(rule: &str) -> Result<Vec<&'static str>> {
    Ok(known(rule)?.settings().iter().map(|setting| setting.name).collect())
}

/// The value at an angle of half a cosine: ``start`` at 0, ``end`` at pi.
#[pyfunction]
pub(crate) fn half_cosine(start: f64, end: f64, angle: f64) -> f64 {
    neurenix::optim::half_cosine(start, end, angle)
}

fn variables(parameters: &[Bound<'_, PyTensor>]) -> Vec<neurenix::nn::Parameter> {
    parameters.iter().map(|parameter| parameter.get().variable().clone()).collect()
}

impl PyOptimizer {
    /// Locks the optimiser. Releases the GIL while it waits, because the thread that holds the lock may need the GIL.
    pub(crate) fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Optimizer> {
        self.optimizer.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyOptimizer {
    #[new]
    fn new(name: String, groups: Vec<ParameterGroup<'_>>) -> Result<PyOptimizer> {
        let mut optimizer: Option<Optimizer> = None;
        for (parameters, rate, decay, options) in groups {
            let (rule, variables) = (rule(&name, &options)?, variables(&parameters));
            // The base learning rate is 1, so a group's factor is its learning rate.
            match &mut optimizer {
                None => {
                    let mut first = Optimizer::new(rule, variables, 1.0)?;
                    first.set_group(0, rate, decay)?;
                    optimizer = Some(first);
                }
                Some(optimizer) => optimizer.add_group_with(rule, variables, rate, decay)?,
            }
        }
        match optimizer {
            Some(optimizer) => Ok(PyOptimizer { rule: name, optimizer: Mutex::new(optimizer) }),
            None => Err(value_error("the optimizer got no parameters: pass at least one parameter group")),
        }
    }
    /// Adds a parameter group.
    fn add_group(&self, py: Python<'_>, group: ParameterGroup<'_>) -> Result<()> {
        let (parameters, rate, decay, options) = group;
        let rule = rule(&self.rule, &options)?;
        Ok(self.lock(py).add_group_with(rule, variables(&parameters), rate, decay)?)
    }
    /// Replaces the options of the rule for one group.
    fn set_options(&self, py: Python<'_>, group: usize, options: Options) -> Result<()> {
        Ok(self.lock(py).set_rule(group, rule(&self.rule, &options)?)?)
    }
    /// Updates every parameter that has a gradient. If it fails, no parameter changes. Gradients are kept. ``settings``
    /// holds the learning rate and weight decay of each group. ``condition`` is a ``bool`` scalar; the device decides
    /// from it whether the update takes effect.
    #[pyo3(signature = (settings, condition=None))]
    fn step(&self, py: Python<'_>, settings: Vec<(f64, f64)>, condition: Option<&PyTensor>) -> Result<()> {
        let condition = condition.map(PyTensor::tensor).transpose()?;
        let result = compute_undisturbed(py, || -> Result<()> {
            let mut optimizer = self.optimizer.lock().unwrap_or_else(PoisonError::into_inner);
            for (group, (rate, decay)) in settings.into_iter().enumerate() {
                optimizer.set_group(group, rate, decay)?;
            }
            let variables: Vec<_> = optimizer.parameters().cloned().collect();
            let collectors = || {
                let trainable = variables.iter().filter(|variable| variable.is_trainable());
                trainable.map(|variable| variable.collector()).collect::<neurenix::Result<Vec<_>>>()
            };
            // No handle to a leaf lives on, so that the step can overwrite the parameters.
            let (gradients, kept) = {
                let leaves = collectors()?;
                let kept: Vec<Option<Tensor>> = leaves.iter().map(Tensor::grad).collect();
                (Gradients::take_from(&leaves.iter().collect::<Vec<_>>()), kept)
            };
            let result = match &condition {
                Some(condition) => optimizer.step_where(condition, gradients, &[]),
                None => optimizer.step(gradients, &[]),
            };
            let leaves = collectors();
            leaves.iter().flatten().zip(kept).for_each(|(leaf, gradient)| leaf.set_grad(gradient));
            result?;
            leaves?;
            Ok(())
        });
        placement::behind(py, result)
    }
    /// Whether every parameter has its state, so that a step can be recorded.
    fn has_state(&self, py: Python<'_>) -> bool {
        self.lock(py).has_state()
    }
    /// Returns the optimiser state as tensors by name.
    fn state(&self, py: Python<'_>) -> Result<BTreeMap<String, PyTensor>> {
        let state = compute_undisturbed(py, || -> Result<_> {
            let mut optimizer = self.optimizer.lock().unwrap_or_else(PoisonError::into_inner);
            optimizer.settle()?;
            Ok(optimizer.state()?)
        })?;
        Ok(state.into_iter().map(|(name, tensor)| (name, PyTensor::wrap(tensor))).collect())
    }
    /// Restores a state that ``state`` returned. If any entry does not match, nothing changes.
    fn load_state(&self, py: Python<'_>, state: HashMap<String, Bound<'_, PyTensor>>) -> Result<()> {
        let state = state
            .into_iter()
            .map(|(name, tensor)| Ok((name, tensor.get().tensor()?)))
            .collect::<Result<BTreeMap<_, _>>>()?;
        compute_undisturbed(py, || -> Result<()> {
            let mut optimizer = self.optimizer.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(optimizer.load_state(&state)?)
        })
    }
}
