//! Optimisers: rules that turn gradients into new parameters.

mod clip;
mod number;
mod replay;
mod rules;
mod schedule;
mod step;
mod update;

pub(crate) use clip::scale_to_norm;
pub use clip::{clip_gradient_norm, clip_gradient_value, gradient_norm};
pub(crate) use replay::{RecordedStep, noting_steps, take_conditions};
pub use rules::{Rule, Setting};
pub use schedule::{Schedule, half_cosine, one_cycle};

use std::collections::BTreeMap;

use phynexus::{DType, Tensor};
use step::Replaced;

use crate::{Error, Result, nn::Parameter};

/// An optimiser: groups of parameters, each with a [`Rule`], and their state.
///
/// A step records the updates of all parameters and evaluates them together, so that the engine fuses them into few
/// kernels and overwrites parameters and state in place.
pub struct Optimizer {
    /// Unique in this process.
    id: u64,
    learning_rate: f64,
    /// The learning rate that it was created with.
    initial_rate: f64,
    groups: Vec<ParameterGroup>,
    steps: u64,
    /// The number of these steps that a condition skipped, while only the device knows it.
    skipped: Option<Parameter>,
}

/// Parameters that share a rule and a learning rate.
struct ParameterGroup {
    rule: Rule,
    /// The factor on the optimiser's learning rate.
    factor: f64,
    weight_decay: f64,
    members: Vec<Member>,
}

struct Member {
    parameter: Parameter,
    state: Vec<Parameter>,
    /// What the current step replaces; `None` if it does not update this parameter.
    replaced: Option<Replaced>,
    /// The number of steps in which this parameter had a gradient.
    step: u64,
    /// The number of these steps that a condition skipped, while only the device knows it: a float32 scalar. Parameters
    /// with the same history hold the same tensor.
    skipped: Option<Parameter>,
}

impl Member {
    /// The variables of its state.
    fn variables(&self) -> impl Iterator<Item = &Parameter> {
        self.state.iter().chain(&self.skipped)
    }
}

/// A state that was checked against an optimiser: each parameter's tensors and step count, and the number of steps.
pub(crate) struct Fitting {
    members: Vec<(Vec<Tensor>, u64)>,
    steps: u64,
}

/// The name of the optimiser's step count in a state.
const STEPS: &str = "steps";
/// The name of a parameter's step count in a state, as in PyTorch.
const STEP: &str = "step";

impl Optimizer {
    /// Creates an optimiser of these parameters with one learning rate.
    ///
    /// # Errors
    /// If there is no parameter, a parameter is given twice, or the learning rate or a setting of the rule is outside
    /// its range.
    pub fn new(rule: Rule, parameters: Vec<Parameter>, learning_rate: f64) -> Result<Optimizer> {
        rule.check()?;
        check_range("learning rate", learning_rate)?;
        let mut optimizer = Optimizer {
            id: replay::next_id(),
            learning_rate,
            initial_rate: learning_rate,
            groups: Vec::new(),
            steps: 0,
            skipped: None,
        };
        optimizer.add_group_with(rule, parameters, 1.0, 0.0)?;
        Ok(optimizer)
    }

    /// Sets the weight decay of all parameters added so far. The decay is added to the gradient; AdamW and Lion
    /// subtract it from the parameter instead.
    ///
    /// # Errors
    /// If the weight decay is negative or not finite.
    pub fn with_weight_decay(mut self, weight_decay: f64) -> Result<Optimizer> {
        check_range("weight_decay", weight_decay)?;
        self.groups.iter_mut().for_each(|g| g.weight_decay = weight_decay);
        Ok(self)
    }

    /// Adds a group of parameters with the first group's rule and its own weight decay. Its learning rate is always
    /// `factor` times the optimiser's, also when a schedule changes it.
    ///
    /// # Errors
    /// If there is no parameter, the optimiser already has one of them, or a number is outside its range.
    pub fn add_group(&mut self, parameters: Vec<Parameter>, factor: f64, weight_decay: f64) -> Result<()> {
        self.add_group_with(self.rule().clone(), parameters, factor, weight_decay)
    }

    /// Like [`Optimizer::add_group`], with another rule. A step updates all groups or none.
    ///
    /// # Errors
    /// As for [`Optimizer::add_group`], or if a setting of the rule is outside its range.
    pub fn add_group_with(
        &mut self,
        rule: Rule,
        parameters: Vec<Parameter>,
        factor: f64,
        weight_decay: f64,
    ) -> Result<()> {
        rule.check()?;
        check_range("factor of the learning rate", factor)?;
        check_range("weight_decay", weight_decay)?;
        if parameters.is_empty() {
            return Err(Error::data("optimizer", "there are no trainable parameters to optimise"));
        }
        for (i, parameter) in parameters.iter().enumerate() {
            if self.parameters().chain(&parameters[..i]).any(|known| known.is_same(parameter)) {
                let message = format!("parameter {i} of the group is given twice: it would be updated twice");
                return Err(Error::data("optimizer", message));
            }
        }
        let members = parameters
            .into_iter()
            .map(|parameter| Member { parameter, state: Vec::new(), replaced: None, step: 0, skipped: None })
            .collect();
        self.groups.push(ParameterGroup { rule, factor, weight_decay, members });
        Ok(())
    }

    /// Changes a group's rule or its settings, for example when a schedule changes the momentum at each step. State
    /// with a name that both rules use is kept; other state is reset.
    ///
    /// # Errors
    /// If there is no such group, or a setting is outside its range. Nothing is changed in that case.
    pub fn set_rule(&mut self, group: usize, rule: Rule) -> Result<()> {
        rule.check()?;
        let count = self.groups.len();
        let Some(group) = self.groups.get_mut(group) else {
            return Err(Error::data("optimizer", format!("there is no group {group}: there are {count}")));
        };
        if group.rule == rule {
            return Ok(());
        }
        let (old, new) = (group.rule.state_names(), rule.state_names());
        if old != new {
            let mut states = Vec::with_capacity(group.members.len());
            for member in &group.members {
                let mut state = Vec::new();
                if !member.state.is_empty() || (old.is_empty() && member.step > 0) {
                    state = rule.initial_state(&member.parameter.tensor())?;
                    for (name, known) in old.iter().zip(&member.state) {
                        if let Some(at) = new.iter().position(|other| other == name) {
                            state[at] = known.clone();
                        }
                    }
                }
                states.push(state);
            }
            group.members.iter_mut().zip(states).for_each(|(member, state)| member.state = state);
        }
        group.rule = rule;
        Ok(())
    }

    /// Changes a group's learning rate factor and its weight decay. Groups are numbered from 0 in the order in which
    /// they were added.
    ///
    /// # Errors
    /// If there is no such group, or a number is outside its range.
    pub fn set_group(&mut self, group: usize, factor: f64, weight_decay: f64) -> Result<()> {
        check_range("factor of the learning rate", factor)?;
        check_range("weight_decay", weight_decay)?;
        let count = self.groups.len();
        let Some(group) = self.groups.get_mut(group) else {
            return Err(Error::data("optimizer", format!("there is no group {group}: there are {count}")));
        };
        (group.factor, group.weight_decay) = (factor, weight_decay);
        Ok(())
    }

    /// The learning rate.
    pub fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    /// Sets the learning rate. Each group's rate is this times its factor.
    ///
    /// # Errors
    /// If the learning rate is negative or not finite.
    pub fn set_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        check_range("learning rate", learning_rate)?;
        self.learning_rate = learning_rate;
        Ok(())
    }

    /// The number of steps taken. Rules that depend on a step count, such as Adam's bias correction, count for each
    /// parameter the steps in which it had a gradient, as in PyTorch.
    ///
    /// Every call of [`Optimizer::step_where`] counts until [`Optimizer::settle`] reads which steps were taken.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Reads how many steps of [`Optimizer::step_where`] were skipped, and subtracts them from the counts.
    ///
    /// # Errors
    /// If a computation fails.
    pub fn settle(&mut self) -> Result<()> {
        let steps = taken(self.steps, self.skipped.as_ref())?;
        let mut counts = Vec::new();
        for member in self.members() {
            counts.push(taken(member.step, member.skipped.as_ref())?);
        }
        self.steps = steps;
        self.members_mut().zip(counts).for_each(|(member, count)| member.step = count);
        self.count_skips_from_zero(Option::is_some)
    }

    /// Sets counts of skipped steps to 0: those in use, or those that `chosen` asks for. Parameters on one device hold
    /// the same tensor.
    fn count_skips_from_zero(&mut self, chosen: impl Fn(&Option<Parameter>) -> bool) -> Result<()> {
        let device = self.members().next().map(|member| member.parameter.tensor().device());
        let mut zeros: Vec<Tensor> = Vec::new();
        let own = device.map(|device| (&mut self.skipped, device));
        let members = self.groups.iter_mut().flat_map(|group| &mut group.members);
        let members = members.map(|member| {
            let device = member.parameter.tensor().device();
            (&mut member.skipped, device)
        });
        for (count, device) in own.into_iter().chain(members).filter(|(count, _)| chosen(count)) {
            let known = zeros.iter().find(|zero| zero.device() == device).cloned();
            let zero = match known {
                Some(zero) => zero,
                None => zeros.push_mut(Tensor::scalar(0.0f32, device)?).clone(),
            };
            match count {
                Some(count) => count.set(zero)?,
                None => *count = Some(Parameter::buffer(zero)),
            }
        }
        Ok(())
    }

    /// The rule of the first group.
    pub fn rule(&self) -> &Rule {
        // `new` adds the first group, and groups are never removed.
        &self.groups[0].rule
    }

    /// The parameters, in order.
    pub fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.members().map(|member| &member.parameter)
    }

    /// The members with their rules.
    fn ruled(&self) -> impl Iterator<Item = (&Rule, &Member)> {
        self.groups.iter().flat_map(|g| g.members.iter().map(|member| (&g.rule, member)))
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.groups.iter().flat_map(|g| &g.members)
    }

    fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.groups.iter_mut().flat_map(|g| &mut g.members)
    }

    /// The state by name, for a checkpoint: `0.exp_avg` belongs to the first parameter, `0.step` is its step count, and
    /// `steps` is the optimiser's (`int64` scalars). A parameter that never had a gradient has no state.
    ///
    /// # Errors
    /// If a device has no memory for the counts, or a pending computation fails.
    pub fn state(&self) -> Result<BTreeMap<String, Tensor>> {
        let count = |n: u64, of: &Parameter| Tensor::scalar(n as i64, of.tensor().device());
        let mut named = BTreeMap::new();
        for (i, (rule, member)) in self.ruled().enumerate() {
            if i == 0 {
                let steps = taken(self.steps, self.skipped.as_ref())?;
                named.insert(STEPS.to_owned(), count(steps, &member.parameter)?);
            }
            let step = taken(member.step, member.skipped.as_ref())?;
            if step == 0 {
                continue;
            }
            named.insert(format!("{i}.{STEP}"), count(step, &member.parameter)?);
            for (name, tensor) in rule.state_names().iter().zip(&member.state) {
                named.insert(format!("{i}.{name}"), tensor.tensor());
            }
        }
        Ok(named)
    }

    /// Restores a state from [`Optimizer::state`].
    ///
    /// # Errors
    /// If the state belongs to another rule or other parameters. Nothing is changed in that case.
    pub fn load_state(&mut self, state: &BTreeMap<String, Tensor>) -> Result<()> {
        let fitting = self.fit_state(state)?;
        self.put_state(fitting);
        Ok(())
    }

    /// Checks a state and copies its tensors to their parameters' devices, without changing the optimiser.
    pub(crate) fn fit_state(&self, state: &BTreeMap<String, Tensor>) -> Result<Fitting> {
        let wrong = |message: String| Error::data("optimizer state", message);
        let steps = state.get(STEPS).ok_or_else(|| wrong(format!("{STEPS} is missing")))?;
        let steps = count(steps)
            .ok_or_else(|| wrong(format!("{STEPS} is not a count: expected a whole number of at least 0")))?;
        let mut known = 1;
        let mut members = Vec::new();
        for (i, (rule, member)) in self.ruled().enumerate() {
            let (parameter, names) = (member.parameter.tensor(), rule.state_names());
            let has_step = state.contains_key(&format!("{i}.{STEP}"));
            let step = match state.get(&format!("{i}.{STEP}")) {
                Some(step) => count(step).ok_or_else(|| {
                    wrong(format!("{i}.{STEP} is not a count: expected a whole number of at least 0"))
                })?,
                None => 0,
            };
            let mut tensors = Vec::with_capacity(names.len());
            for (name, expected) in names.iter().zip(&rule.initial_state(&parameter)?) {
                let expected = expected.tensor();
                let name = format!("{i}.{name}");
                let Some(given) = state.get(&name) else { continue };
                if given.shape() != expected.shape() || given.dtype() != expected.dtype() {
                    let (shape, dtype) = (given.shape(), given.dtype());
                    let needed = format!("{} {:?}", expected.dtype(), expected.shape());
                    return Err(wrong(format!("{name} is {dtype} {shape:?}, expected {needed}")));
                }
                tensors.push(given.to_device(parameter.device())?.evaluated()?);
            }
            // A parameter that never had a gradient has no state, or one that its first step begins with.
            let is_first = has_step && !tensors.is_empty();
            let complete = if step > 0 || is_first { names.len() } else { 0 };
            if tensors.len() != complete {
                return Err(wrong(format!("the state of parameter {i} is incomplete")));
            }
            known += tensors.len() + usize::from(step > 0 || is_first);
            members.push((tensors, step));
        }
        if known != state.len() {
            let rule = self.rule().name();
            return Err(wrong(format!("it does not belong to {rule} with these parameters and settings")));
        }
        Ok(Fitting { members, steps })
    }

    /// Installs a state that [`Optimizer::fit_state`] checked.
    pub(crate) fn put_state(&mut self, fitting: Fitting) {
        (self.steps, self.skipped) = (fitting.steps, None);
        for (member, (tensors, step)) in self.members_mut().zip(fitting.members) {
            member.state = tensors.into_iter().map(Parameter::buffer).collect();
            (member.step, member.skipped) = (step, None);
        }
    }
}

/// The number of steps without those that a condition skipped.
fn taken(steps: u64, skipped: Option<&Parameter>) -> Result<u64> {
    let skipped = skipped.map_or(Ok(0.0), |skipped| skipped.tensor().item::<f32>())?;
    Ok(steps.saturating_sub(skipped as u64))
}

/// The non-negative whole number in a scalar. PyTorch stores counts as floats.
fn count(tensor: &Tensor) -> Option<u64> {
    let value = tensor.to_dtype(DType::F64).and_then(|wide| wide.item::<f64>()).ok()?;
    // Above 2^53, float64 does not represent every whole number.
    ((0.0..=9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}

fn check_range(what: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(Error::data(what, format!("{value} is not a finite number of at least 0")))
    }
}
