//! The update formula of each rule.

use std::cell::RefCell;

use phynexus::{DType, Device, Scalar, Tensor, dtype::scalar_bytes};

use super::{Rule, number::Number};
use crate::{Error, Result};

/// The settings of a step that the parameters of a group on one device share.
pub(super) struct Settings {
    pub(super) learning_rate: f64,
    /// The learning rate divided by the optimiser's initial one.
    pub(super) share: f64,
    weight_decay: f64,
    /// Whether the rule's settings are leaves too, because they change between steps.
    varying: bool,
    pub(super) device: Device,
    /// The leaves created so far, which parameters share.
    leaves: RefCell<Vec<(f64, DType, Tensor)>>,
}

impl Settings {
    pub(super) fn new(
        learning_rate: f64,
        share: f64,
        weight_decay: f64,
        varying: bool,
        device: Device,
    ) -> Settings {
        Settings { learning_rate, share, weight_decay, varying, device, leaves: RefCell::default() }
    }

    /// Multiplies a tensor by a setting of the rule.
    fn scaled(&self, tensor: &Tensor, setting: f64) -> Result<Tensor> {
        Ok(if self.varying {
            tensor.mul(&self.leaf(setting, tensor)?)?
        } else {
            tensor.mul_scalar(setting)?
        })
    }

    /// A number as a scalar in the dtype of `like`.
    pub(super) fn tensor(&self, number: &Number, like: &Tensor) -> Result<Tensor> {
        match number {
            Number::Host(value) => self.leaf(*value, like),
            Number::Device(tensor) => Ok(tensor.to_dtype(like.dtype())?),
        }
    }

    /// A number that changes between steps, as a leaf with the dtype of `like`. A constant would need a new plan for
    /// each value.
    pub(super) fn leaf(&self, value: f64, like: &Tensor) -> Result<Tensor> {
        let mut leaves = self.leaves.borrow_mut();
        let known =
            leaves.iter().find(|(v, dtype, _)| v.to_bits() == value.to_bits() && *dtype == like.dtype());
        if let Some((_, _, leaf)) = known {
            return Ok(leaf.clone());
        }
        let bytes = scalar_bytes(Scalar::Float(value).cast(like.dtype()), like.dtype());
        let leaf = Tensor::from_bytes(&bytes, like.dtype(), &[], self.device)?;
        leaves.push((value, like.dtype(), leaf.clone()));
        Ok(leaf)
    }
}

impl Rule {
    /// The state before the first step.
    pub(super) fn initial_state(&self, parameter: &Tensor) -> Result<Vec<Tensor>> {
        let initial = |name: &&str| match *name {
            "mu_product" => Ok(Tensor::full(&[], 1.0, parameter.dtype().compute(), parameter.device())?),
            _ => Ok(Tensor::full(parameter.shape(), 0.0, parameter.dtype(), parameter.device())?),
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
        settings: &Settings,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let decay = settings.weight_decay;
        let decoupled = matches!(self, Rule::AdamW { .. } | Rule::Lion { .. });
        let gradient = match decay > 0.0 && !decoupled {
            true => gradient.add(&settings.scaled(parameter, decay)?)?,
            false => gradient.clone(),
        };
        let parameter = match decay > 0.0 && decoupled {
            true => parameter.mul(&settings.leaf(1.0 - settings.learning_rate * decay, parameter)?)?,
            false => parameter.clone(),
        };
        let (p, g) = (&parameter, &gradient);
        let lr = settings.learning_rate;
        let leaf = |value: f64| settings.leaf(value, p);
        let mean = |old: &Tensor, new: &Tensor, beta: f64| -> Result<Tensor> {
            Ok(settings.scaled(old, beta)?.add(&settings.scaled(new, 1.0 - beta)?)?)
        };
        match *self {
            Rule::Sgd { momentum: 0.0, .. } => Ok((p.sub(&g.mul(&leaf(lr)?)?)?, vec![])),
            Rule::Sgd { momentum, dampening, nesterov } => {
                let added = match dampening == 0.0 {
                    true => g.clone(),
                    false => g.mul(&numbers[0])?,
                };
                let velocity = settings.scaled(&state[0], momentum)?.add(&added)?;
                let direction =
                    if nesterov { g.add(&settings.scaled(&velocity, momentum)?)? } else { velocity.clone() };
                Ok((p.sub(&direction.mul(&leaf(lr)?)?)?, vec![velocity]))
            }
            Rule::Adam { beta1, beta2, epsilon, .. } | Rule::AdamW { beta1, beta2, epsilon, .. } => {
                let first = mean(&state[0], g, beta1)?;
                let second = mean(&state[1], &g.mul(g)?, beta2)?;
                // Only `amsgrad` has a third tensor.
                let greatest = state.get(2).map(|greatest| greatest.maximum(&second)).transpose()?;
                let root = greatest.as_ref().unwrap_or(&second).sqrt()?.mul(&numbers[0])?;
                let step = first.mul(&numbers[1])?;
                let new = p.sub(&step.div(&root.add_scalar(epsilon)?)?)?;
                Ok((new, [first, second].into_iter().chain(greatest).collect()))
            }
            Rule::NAdam { beta1, beta2, epsilon, .. } => {
                let first = mean(&state[0], g, beta1)?;
                let second = mean(&state[1], &g.mul(g)?, beta2)?;
                let product = state[2].mul(&numbers[0])?;
                let root = second.mul(&numbers[2])?.sqrt()?.add_scalar(epsilon)?;
                let of_gradient = numbers[3].div(&product.rsub_scalar(1.0)?)?;
                let of_mean = numbers[4].div(&product.mul(&numbers[1])?.rsub_scalar(1.0)?)?;
                let step = g.mul(&of_gradient)?.add(&first.mul(&of_mean)?)?.div(&root)?;
                Ok((p.sub(&step)?, vec![first, second, product]))
            }
            Rule::RAdam { beta1, beta2, epsilon } => {
                let first = mean(&state[0], g, beta1)?;
                let second = mean(&state[1], &g.mul(g)?, beta2)?;
                let scale = second.sqrt()?.add_scalar(epsilon)?.rdiv_scalar(1.0)?.mul(&numbers[0])?;
                let step = first.mul(&numbers[2])?.mul(&scale.add(&numbers[1])?)?;
                Ok((p.sub(&step)?, vec![first, second]))
            }
            Rule::RmsProp { alpha, epsilon, momentum, centered } => {
                let square = mean(&state[0], &g.mul(g)?, alpha)?;
                let average = if centered { Some(mean(&state[1], g, alpha)?) } else { None };
                let root = match &average {
                    Some(average) => square.sub(&average.mul(average)?)?.sqrt()?,
                    None => square.sqrt()?,
                };
                let scaled = g.div(&root.add_scalar(epsilon)?)?;
                let (direction, velocity) = match state.last().filter(|_| momentum > 0.0) {
                    Some(before) => {
                        let velocity = settings.scaled(before, momentum)?.add(&scaled)?;
                        (velocity.clone(), Some(velocity))
                    }
                    None => (scaled, None),
                };
                let state = std::iter::once(square).chain(average).chain(velocity).collect();
                Ok((p.sub(&direction.mul(&leaf(lr)?)?)?, state))
            }
            Rule::Adagrad { epsilon, .. } => {
                let sum = state[0].add(&g.mul(g)?)?;
                let step = g.div(&sum.sqrt()?.add_scalar(epsilon)?)?.mul(&numbers[0])?;
                Ok((p.sub(&step)?, vec![sum]))
            }
            Rule::Adadelta { rho, epsilon } => {
                let square = mean(&state[0], &g.mul(g)?, rho)?;
                let root = |x: &Tensor| -> Result<Tensor> { Ok(x.add_scalar(epsilon)?.sqrt()?) };
                let delta = g.mul(&root(&state[1])?)?.div(&root(&square)?)?;
                let accumulated = mean(&state[1], &delta.mul(&delta)?, rho)?;
                Ok((p.sub(&delta.mul(&leaf(lr)?)?)?, vec![square, accumulated]))
            }
            Rule::AdaMax { beta1, beta2, epsilon } => {
                let first = mean(&state[0], g, beta1)?;
                let greatest = state[1].mul_scalar(beta2)?.maximum(&g.abs()?.add_scalar(epsilon)?)?;
                let step = first.mul(&numbers[0])?.div(&greatest)?;
                Ok((p.sub(&step)?, vec![first, greatest]))
            }
            Rule::AdaBound { beta1, beta2, epsilon, .. } => {
                let first = mean(&state[0], g, beta1)?;
                let second = mean(&state[1], &g.mul(g)?, beta2)?;
                let [rate, least, most] = numbers else {
                    return Err(Error::data("AdaBound", "numbers of another rule"));
                };
                let rates = rate.div(&second.sqrt()?.add_scalar(epsilon)?)?.maximum(least)?.minimum(most)?;
                Ok((p.sub(&rates.mul(&first)?)?, vec![first, second]))
            }
            Rule::Lion { beta1, beta2 } => {
                let direction = mean(&state[0], g, beta1)?.sign()?;
                let momentum = mean(&state[0], g, beta2)?;
                Ok((p.sub(&direction.mul(&leaf(lr)?)?)?, vec![momentum]))
            }
        }
    }
}
