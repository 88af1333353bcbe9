//! Optimisers: rules that turn gradients into new parameters.

mod clip;
mod rules;
mod schedule;

pub use clip::{clip_gradient_norm, clip_gradient_value};
pub use rules::Rule;
pub use schedule::Schedule;

use std::collections::BTreeMap;

use phynexus::{Tensor, graph::Gradients, no_grad, tensor::WeakTensor};

use crate::{Error, Result, nn::Parameter};

/// An optimiser: a [`Rule`] with its state for a list of parameters.
///
/// A step records the update of every parameter and evaluates all of them together, so that the engine makes few
/// kernels of them and overwrites parameters and state in place.
pub struct Optimizer {
    rule: Rule,
    groups: Vec<Group>,
    steps: u64,
}

/// Parameters that share a learning rate.
struct Group {
    learning_rate: f64,
    weight_decay: f64,
    members: Vec<Member>,
}

struct Member {
    parameter: Parameter,
    state: Vec<Tensor>,
}

impl Optimizer {
    /// An optimiser of these parameters with one learning rate.
    ///
    /// # Errors
    /// If there is no parameter, or the learning rate or a setting of the rule is outside its range.
    pub fn new(rule: Rule, parameters: Vec<Parameter>, learning_rate: f64) -> Result<Optimizer> {
        rule.check()?;
        let mut optimizer = Optimizer { rule, groups: Vec::new(), steps: 0 };
        optimizer.add_group(parameters, learning_rate, 0.0)?;
        Ok(optimizer)
    }

    /// The optimiser with weight decay for all parameters it has: added to the gradient, or, for rules whose name ends
    /// in W and for Lion, subtracted from the parameter.
    pub fn with_weight_decay(mut self, weight_decay: f64) -> Result<Optimizer> {
        check_range("weight_decay", weight_decay)?;
        self.groups.iter_mut().for_each(|g| g.weight_decay = weight_decay);
        Ok(self)
    }

    /// Adds parameters with a learning rate and weight decay of their own.
    pub fn add_group(
        &mut self,
        parameters: Vec<Parameter>,
        learning_rate: f64,
        weight_decay: f64,
    ) -> Result<()> {
        check_range("learning rate", learning_rate)?;
        check_range("weight_decay", weight_decay)?;
        if parameters.is_empty() {
            return Err(Error::data("optimizer", "there are no trainable parameters to optimise"));
        }
        let members =
            parameters.into_iter().map(|parameter| Member { parameter, state: Vec::new() }).collect();
        self.groups.push(Group { learning_rate, weight_decay, members });
        Ok(())
    }

    /// The first group's learning rate.
    pub fn learning_rate(&self) -> f64 {
        self.groups[0].learning_rate
    }

    /// Sets the learning rate of every group.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        check_range("learning rate", learning_rate)?;
        self.groups.iter_mut().for_each(|g| g.learning_rate = learning_rate);
        Ok(())
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The rule.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.groups.iter().flat_map(|g| &g.members).map(|m| &m.parameter)
    }

    /// Updates every parameter that has a gradient, and computes `also` (the loss, metrics) in the same plan.
    ///
    /// If the computation fails, parameters, state and the step count are as they were.
    pub fn step(&mut self, gradients: Gradients, also: &[&Tensor]) -> Result<()> {
        let _guard = no_grad();
        let mut before = Vec::new();
        let result = self.record(gradients, &mut before).and_then(|updated| {
            let roots: Vec<&Tensor> = updated.iter().chain(also.iter().copied()).collect();
            Ok(Tensor::evaluate_all(&roots)?)
        });
        match result {
            Ok(()) => {
                self.steps += 1;
                self.parameters().try_for_each(|p| p.leaf().map(drop))
            }
            Err(error) => {
                let members = self.groups.iter_mut().flat_map(|g| &mut g.members);
                for (member, (value, state)) in members.zip(before) {
                    // What fails has stored nothing, and its graph still holds what it would have read.
                    if let Some(value) = value.upgrade() {
                        member.parameter.set(value)?;
                    }
                    member.state = state.iter().filter_map(WeakTensor::upgrade).collect();
                }
                Err(error)
            }
        }
    }

    /// Records the updates and puts them into their places. What was there before is noted in `before` without being
    /// held: the old values belong to the graph alone, so that evaluation may overwrite them.
    fn record(
        &mut self,
        mut gradients: Gradients,
        before: &mut Vec<(WeakTensor, Vec<WeakTensor>)>,
    ) -> Result<Vec<Tensor>> {
        let mut updated = Vec::new();
        for group in &mut self.groups {
            let Some(first) = group.members.first() else { continue };
            let device = first.parameter.tensor().device();
            let settings =
                rules::Settings::new(group.learning_rate, group.weight_decay, self.steps + 1, device);
            for member in &mut group.members {
                let old = member.parameter.tensor();
                before.push((old.downgrade(), member.state.iter().map(Tensor::downgrade).collect()));
                let Some(gradient) = gradients.take(&old) else { continue };
                if member.state.is_empty() {
                    member.state = self.rule.initial_state(&old)?;
                }
                let (new, state) = self.rule.update(&old, &gradient, &member.state, &settings)?;
                updated.push(new.clone());
                updated.extend(state.iter().cloned());
                member.parameter.set(new)?;
                member.state = state;
            }
        }
        Ok(updated)
    }

    /// The state by name (`0.exp_avg` is the first parameter's), for a checkpoint.
    pub fn state(&self) -> BTreeMap<String, Tensor> {
        let mut named = BTreeMap::new();
        for (i, member) in self.groups.iter().flat_map(|g| &g.members).enumerate() {
            for (name, tensor) in self.rule.state_names().iter().zip(&member.state) {
                named.insert(format!("{i}.{name}"), tensor.clone());
            }
        }
        named
    }

    /// Restores what [`Optimizer::state`] and [`Optimizer::steps`] gave. Nothing changes unless everything fits.
    pub fn load_state(&mut self, state: &BTreeMap<String, Tensor>, steps: u64) -> Result<()> {
        let names = self.rule.state_names();
        let members = self.groups.iter().flat_map(|g| &g.members);
        let mut loaded = Vec::new();
        for (i, member) in members.enumerate() {
            let parameter = member.parameter.tensor();
            let expected = self.rule.initial_state(&parameter)?;
            let mut tensors = Vec::with_capacity(names.len());
            for (name, expected) in names.iter().zip(&expected) {
                let name = format!("{i}.{name}");
                match state.get(&name) {
                    Some(given) if given.shape() == expected.shape() && given.dtype() == expected.dtype() => {
                        tensors.push(given.to_device(parameter.device())?);
                    }
                    Some(given) => {
                        let message =
                            format!("{name} has shape {:?}, needed is {:?}", given.shape(), expected.shape());
                        return Err(Error::data("optimizer state", message));
                    }
                    // A parameter that never had a gradient has no state yet.
                    None => {}
                }
            }
            if !tensors.is_empty() && tensors.len() != names.len() {
                return Err(Error::data(
                    "optimizer state",
                    format!("parameter {i} has only a part of its state"),
                ));
            }
            loaded.push(tensors);
        }
        for (member, tensors) in self.groups.iter_mut().flat_map(|g| &mut g.members).zip(loaded) {
            member.state = tensors;
        }
        self.steps = steps;
        Ok(())
    }
}

fn check_range(what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(Error::data(what, format!("{value} is not a finite number of at least 0")))
    }
}
