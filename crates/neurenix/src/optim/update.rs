//! The update formula of each rule.

use std::cell::RefCell;

use phynexus::{DType, Device, Tensor, schedule::capture::is_recording};

use super::{Rule, replay::Fed};
use crate::{Error, Result, nn::Parameter};

/// A number of an update that may change from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Quantity {
    /// The learning rate.
    Rate,
    /// The weight decay.
    Decay,
    /// The share of the parameter that decoupled weight decay keeps.
    Kept,
    /// A setting of the rule.
    Setting(&'static str),
    /// 1 minus a setting of the rule.
    Rest(&'static str),
    /// One of [`Rule::numbers`].
    Number(usize),
    /// The number of steps, where only the device knows how many of them were skipped.
    Steps,
}

/// The settings of a step that the parameters of a group on one device share.
pub(super) struct Settings<'a> {
    pub(super) rates: Rates,
    rule: &'a Rule,
    pub(super) device: Device,
    /// The leaves created so far, which parameters share.
    leaves: RefCell<Vec<(Quantity, DType, Tensor)>>,
    pub(super) fed: &'a Fed,
    group: usize,
}

/// A group's numbers outside its rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) learning_rate: f64,
    /// The learning rate divided by the optimiser's initial one.
    pub(super) share: f64,
    pub(super) weight_decay: f64,
}

impl Rates {
    /// The value of a quantity that does not depend on the step count.
    pub(super) fn value(&self, rule: &Rule, quantity: Quantity) -> f64 {
        match quantity {
            Quantity::Rate => self.learning_rate,
            Quantity::Decay => self.weight_decay,
            Quantity::Kept => 1.0 - self.learning_rate * self.weight_decay,
            Quantity::Setting(name) => rule.setting(name),
            Quantity::Rest(name) => 1.0 - rule.setting(name),
            Quantity::Number(_) | Quantity::Steps => f64::NAN,
        }
    }
}

impl<'a> Settings<'a> {
    pub(super) fn new(
        rates: Rates,
        rule: &'a Rule,
        device: Device,
        group: usize,
        fed: &'a Fed,
    ) -> Settings<'a> {
        Settings { rates, rule, device, leaves: RefCell::default(), fed, group }
    }

    /// Multiplies a tensor by a number that rarely changes: it is built into the plan, except in a recorded step.
    fn scaled(&self, tensor: &Tensor, quantity: Quantity) -> Result<Tensor> {
        Ok(match is_recording() {
            true => tensor.mul(&self.shared(quantity, tensor)?)?,
            false => tensor.mul_scalar(self.rates.value(self.rule, quantity))?,
        })
    }

    /// A quantity that all parameters of the group share, as a leaf with the dtype of `like`. As a constant of each
    /// update it would make their kernels differ.
    pub(super) fn shared(&self, quantity: Quantity, like: &Tensor) -> Result<Tensor> {
        let mut leaves = self.leaves.borrow_mut();
        let known = leaves.iter().find(|(known, dtype, _)| *known == quantity && *dtype == like.dtype());
        if let Some((_, _, leaf)) = known {
            return Ok(leaf.clone());
        }
        let value = self.rates.value(self.rule, quantity);
        let leaf = self.fed.leaf(value, (like.dtype(), self.device), (self.group, None), quantity)?;
        leaves.push((quantity, like.dtype(), leaf.clone()));
        Ok(leaf)
    }

    /// A number that depends on the step count of the group's parameter `member`, as a leaf with the dtype of `like`.
    pub(super) fn of_member(
        &self,
        member: usize,
        quantity: Quantity,
        value: f64,
        like: &Tensor,
    ) -> Result<Tensor> {
        self.fed.leaf(value, (like.dtype(), self.device), (self.group, Some(member)), quantity)
    }
}

impl Rule {
    /// The state before the first step.
    pub(super) fn initial_state(&self, parameter: &Tensor) -> Result<Vec<Parameter>> {
        let initial = |name: &&str| {
            let (dtype, device) = (parameter.dtype(), parameter.device());
            let value = match *name {
                "mu_product" => Tensor::full(&[], 1.0, dtype.compute(), device)?,
                _ => Tensor::full(parameter.shape(), 0.0, dtype, device)?,
            };
            Ok(Parameter::buffer(value))
        };
        self.state_names().iter().map(initial).collect()
    }

    /// Returns the parameter and the state after a step. The parameter, the gradient, the state and `numbers` (from
    /// [`Rule::numbers`]) have one dtype.
    pub(super) fn update(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        state: &[Tensor],
        numbers: &[Tensor],
        settings: &Settings<'_>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        use Quantity::{Decay, Kept, Rate, Rest, Setting};
        let decay = settings.rates.weight_decay;
        let decoupled = matches!(self, Rule::AdamW { .. } | Rule::Lion { .. });
        let gradient = match decay > 0.0 && !decoupled {
            true => gradient.add(&settings.scaled(parameter, Decay)?)?,
            false => gradient.clone(),
        };
        let parameter = match decay > 0.0 && decoupled {
            true => parameter.mul(&settings.shared(Kept, parameter)?)?,
            false => parameter.clone(),
        };
        let (p, g) = (&parameter, &gradient);
        let rate = || settings.shared(Rate, p);
        let mean = |old: &Tensor, new: &Tensor, beta: &'static str| -> Result<Tensor> {
            Ok(settings.scaled(old, Setting(beta))?.add(&settings.scaled(new, Rest(beta))?)?)
        };
        match *self {
            Rule::Sgd { momentum: 0.0, .. } => Ok((p.sub(&g.mul(&rate()?)?)?, vec![])),
            Rule::Sgd { dampening, nesterov, .. } => {
                let added = match dampening == 0.0 {
                    true => g.clone(),
                    false => g.mul(&numbers[0])?,
                };
                let velocity = settings.scaled(&state[0], Setting("momentum"))?.add(&added)?;
                let direction = if nesterov {
                    g.add(&settings.scaled(&velocity, Setting("momentum"))?)?
                } else {
                    velocity.clone()
                };
                Ok((p.sub(&direction.mul(&rate()?)?)?, vec![velocity]))
            }
            Rule::Adam { epsilon, .. } | Rule::AdamW { epsilon, .. } => {
                let first = mean(&state[0], g, "beta1")?;
                let second = mean(&state[1], &g.mul(g)?, "beta2")?;
                // Only `amsgrad` has a third tensor.
                let greatest = state.get(2).map(|greatest| greatest.maximum(&second)).transpose()?;
                let root = greatest.as_ref().unwrap_or(&second).sqrt()?.mul(&numbers[0])?;
                let step = first.mul(&numbers[1])?;
                let new = p.sub(&step.div(&root.add_scalar(epsilon)?)?)?;
                Ok((new, [first, second].into_iter().chain(greatest).collect()))
            }
            Rule::NAdam { epsilon, .. } => {
                let first = mean(&state[0], g, "beta1")?;
                let second = mean(&state[1], &g.mul(g)?, "beta2")?;
                let product = state[2].mul(&numbers[0])?;
                let root = second.mul(&numbers[2])?.sqrt()?.add_scalar(epsilon)?;
                let of_gradient = numbers[3].div(&product.rsub_scalar(1.0)?)?;
                let of_mean = numbers[4].div(&product.mul(&numbers[1])?.rsub_scalar(1.0)?)?;
                let step = g.mul(&of_gradient)?.add(&first.mul(&of_mean)?)?.div(&root)?;
                Ok((p.sub(&step)?, vec![first, second, product]))
            }
            Rule::RAdam { epsilon, .. } => {
                let first = mean(&state[0], g, "beta1")?;
                let second = mean(&state[1], &g.mul(g)?, "beta2")?;
                let scale = second.sqrt()?.add_scalar(epsilon)?.rdiv_scalar(1.0)?.mul(&numbers[0])?;
                let step = first.mul(&numbers[2])?.mul(&scale.add(&numbers[1])?)?;
                Ok((p.sub(&step)?, vec![first, second]))
            }
            Rule::RmsProp { epsilon, momentum, centered, .. } => {
                let square = mean(&state[0], &g.mul(g)?, "alpha")?;
                let average = if centered { Some(mean(&state[1], g, "alpha")?) } else { None };
                let root = match &average {
                    Some(average) => square.sub(&average.mul(average)?)?.sqrt()?,
                    None => square.sqrt()?,
                };
                let scaled = g.div(&root.add_scalar(epsilon)?)?;
                let (direction, velocity) = match state.last().filter(|_| momentum > 0.0) {
                    Some(before) => {
                        let velocity = settings.scaled(before, Setting("momentum"))?.add(&scaled)?;
                        (velocity.clone(), Some(velocity))
                    }
                    None => (scaled, None),
                };
                let state = std::iter::once(square).chain(average).chain(velocity).collect();
                Ok((p.sub(&direction.mul(&rate()?)?)?, state))
            }
            Rule::Adagrad { epsilon, .. } => {
                let sum = state[0].add(&g.mul(g)?)?;
                let step = g.div(&sum.sqrt()?.add_scalar(epsilon)?)?.mul(&numbers[0])?;
                Ok((p.sub(&step)?, vec![sum]))
            }
            Rule::Adadelta { epsilon, .. } => {
                let square = mean(&state[0], &g.mul(g)?, "rho")?;
                let root = |x: &Tensor| -> Result<Tensor> { Ok(x.add_scalar(epsilon)?.sqrt()?) };
                let delta = g.mul(&root(&state[1])?)?.div(&root(&square)?)?;
                let accumulated = mean(&state[1], &delta.mul(&delta)?, "rho")?;
                Ok((p.sub(&delta.mul(&rate()?)?)?, vec![square, accumulated]))
            }
            Rule::AdaMax { epsilon, .. } => {
                let first = mean(&state[0], g, "beta1")?;
                let greatest =
                    settings.scaled(&state[1], Setting("beta2"))?.maximum(&g.abs()?.add_scalar(epsilon)?)?;
                let step = first.mul(&numbers[0])?.div(&greatest)?;
                Ok((p.sub(&step)?, vec![first, greatest]))
            }
            Rule::AdaBound { epsilon, .. } => {
                let first = mean(&state[0], g, "beta1")?;
                let second = mean(&state[1], &g.mul(g)?, "beta2")?;
                let [rate, least, most] = numbers else {
                    return Err(Error::data("AdaBound", "numbers of another rule"));
                };
                let rates = rate.div(&second.sqrt()?.add_scalar(epsilon)?)?.maximum(least)?.minimum(most)?;
                Ok((p.sub(&rates.mul(&first)?)?, vec![first, second]))
            }
            Rule::Lion { .. } => {
                let direction = mean(&state[0], g, "beta1")?.sign()?;
                let momentum = mean(&state[0], g, "beta2")?;
                Ok((p.sub(&direction.mul(&rate()?)?)?, vec![momentum]))
            }
        }
    }
}
