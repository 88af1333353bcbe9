//! The update rules. Formulas are those of PyTorch's `torch.optim`, whose documentation gives the sources.

use std::cell::RefCell;

use phynexus::{DType, Device, Scalar, Tensor, dtype::scalar_bytes};

use super::number::Number;
use crate::{Error, Result};

/// How a parameter follows from its gradient.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// Stochastic gradient descent, with momentum if `momentum` is above 0.
    Sgd {
        /// The share of the last velocity that is kept.
        momentum: f64,
        /// The share of the gradient that is left out of the velocity, but for a parameter's first step.
        dampening: f64,
        /// Looks ahead along the velocity.
        nesterov: bool,
    },
    /// Adaptive moments (Kingma and Ba, 2015).
    Adam {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
        /// Divides by the greatest mean of squared gradients so far (Reddi et al., 2018).
        amsgrad: bool,
    },
    /// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019).
    AdamW {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
        /// Divides by the greatest mean of squared gradients so far (Reddi et al., 2018).
        amsgrad: bool,
    },
    /// Adam with Nesterov momentum (Dozat, 2016).
    NAdam {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
        /// How the momentum's schedule decays.
        momentum_decay: f64,
    },
    /// Adam with a rectified variance (Liu et al., 2020).
    RAdam {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
    },
    /// Divides by the root of the mean of squared gradients (Hinton, 2012).
    RmsProp {
        /// Decay of that mean.
        alpha: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
        /// Momentum of the scaled gradients.
        momentum: f64,
        /// Divides by the standard deviation instead.
        centered: bool,
    },
    /// Divides by the root of the sum of squared gradients (Duchi et al., 2011).
    Adagrad {
        /// Decay of the learning rate a step.
        learning_rate_decay: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
    },
    /// Steps in the parameter's own units (Zeiler, 2012).
    Adadelta {
        /// Decay of both means.
        rho: f64,
        /// Keeps both roots from 0.
        epsilon: f64,
    },
    /// Adam by the greatest gradient rather than the mean square (Kingma and Ba, 2015).
    AdaMax {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the greatest gradient.
        beta2: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
    },
    /// Adam whose rates are bounded ever closer around that of SGD (Luo et al., 2019).
    AdaBound {
        /// Decay of the mean of gradients.
        beta1: f64,
        /// Decay of the mean of squared gradients.
        beta2: f64,
        /// Keeps the denominator from 0.
        epsilon: f64,
        /// The rate that all rates come to; it follows changes of the learning rate in proportion.
        final_rate: f64,
        /// How fast they do.
        gamma: f64,
    },
    /// The sign of an interpolated momentum (Chen et al., 2023).
    Lion {
        /// Interpolation for the step.
        beta1: f64,
        /// Decay of the momentum.
        beta2: f64,
    },
}

/// The numbers of one step that parameters of a group share.
pub(super) struct Settings {
    pub(super) learning_rate: f64,
    /// The learning rate as a share of that at the beginning, which a schedule changes.
    pub(super) share: f64,
    weight_decay: f64,
    /// Whether the rule's settings are data too.
    varying: bool,
    pub(super) device: Device,
    /// The leaves made so far: parameters share them.
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

    /// A tensor times a setting of the rule.
    fn scaled(&self, tensor: &Tensor, setting: f64) -> Result<Tensor> {
        Ok(if self.varying {
            tensor.mul(&self.leaf(setting, tensor)?)?
        } else {
            tensor.mul_scalar(setting)?
        })
    }

    /// A number of a step in a tensor's dtype.
    pub(super) fn tensor(&self, number: &Number, like: &Tensor) -> Result<Tensor> {
        match number {
            Number::Host(value) => self.leaf(*value, like),
            Number::Device(tensor) => Ok(tensor.to_dtype(like.dtype())?),
        }
    }

    /// A number that changes from step to step, as data of a tensor's dtype: so the plan stays the same.
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
    /// SGD without momentum.
    pub fn sgd() -> Rule {
        Rule::Sgd { momentum: 0.0, dampening: 0.0, nesterov: false }
    }
    /// SGD with momentum.
    pub fn momentum(momentum: f64) -> Rule {
        Rule::Sgd { momentum, dampening: 0.0, nesterov: false }
    }
    /// SGD that looks ahead along the velocity (Nesterov, 1983).
    pub fn nesterov(momentum: f64) -> Rule {
        Rule::Sgd { momentum, dampening: 0.0, nesterov: true }
    }
    /// Adam with PyTorch's defaults.
    pub fn adam() -> Rule {
        Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, amsgrad: false }
    }
    /// AdamW with PyTorch's defaults, without the weight decay: see [`super::Optimizer::with_weight_decay`].
    pub fn adamw() -> Rule {
        Rule::AdamW { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, amsgrad: false }
    }
    /// NAdam with PyTorch's defaults.
    pub fn nadam() -> Rule {
        Rule::NAdam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, momentum_decay: 4e-3 }
    }
    /// RAdam with PyTorch's defaults.
    pub fn radam() -> Rule {
        Rule::RAdam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
    /// RMSprop with PyTorch's defaults.
    pub fn rmsprop() -> Rule {
        Rule::RmsProp { alpha: 0.99, epsilon: 1e-8, momentum: 0.0, centered: false }
    }
    /// Adagrad with PyTorch's defaults.
    pub fn adagrad() -> Rule {
        Rule::Adagrad { learning_rate_decay: 0.0, epsilon: 1e-10 }
    }
    /// Adadelta with PyTorch's defaults.
    pub fn adadelta() -> Rule {
        Rule::Adadelta { rho: 0.9, epsilon: 1e-6 }
    }
    /// AdaMax with PyTorch's defaults.
    pub fn adamax() -> Rule {
        Rule::AdaMax { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
    /// AdaBound with its authors' defaults.
    pub fn adabound() -> Rule {
        Rule::AdaBound { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, final_rate: 0.1, gamma: 1e-3 }
    }
    /// Lion with its authors' defaults.
    pub fn lion() -> Rule {
        Rule::Lion { beta1: 0.9, beta2: 0.99 }
    }

    /// The rule's name.
    pub fn name(&self) -> &'static str {
        match self {
            Rule::Sgd { .. } => "SGD",
            Rule::Adam { .. } => "Adam",
            Rule::AdamW { .. } => "AdamW",
            Rule::NAdam { .. } => "NAdam",
            Rule::RAdam { .. } => "RAdam",
            Rule::RmsProp { .. } => "RMSprop",
            Rule::Adagrad { .. } => "Adagrad",
            Rule::Adadelta { .. } => "Adadelta",
            Rule::AdaMax { .. } => "Adamax",
            Rule::AdaBound { .. } => "AdaBound",
            Rule::Lion { .. } => "Lion",
        }
    }

    /// Checks that every setting is in its range.
    pub(super) fn check(&self) -> Result<()> {
        let share = |name: &str, value: f64| match (0.0..1.0).contains(&value) {
            true => Ok(()),
            false => {
                Err(Error::data(self.name(), format!("{name} is {value}, it must be at least 0 and below 1")))
            }
        };
        let positive = |name: &str, value: f64| match value.is_finite() && value >= 0.0 {
            true => Ok(()),
            false => {
                Err(Error::data(self.name(), format!("{name} is {value}, it must be finite and at least 0")))
            }
        };
        match *self {
            Rule::Sgd { momentum, dampening, nesterov } => {
                positive("momentum", momentum)?;
                share("dampening", dampening)?;
                if nesterov && (momentum == 0.0 || dampening != 0.0) {
                    return Err(Error::data(
                        "SGD",
                        "Nesterov momentum needs a momentum above 0 and no dampening",
                    ));
                }
                Ok(())
            }
            Rule::NAdam { beta1, beta2, epsilon, momentum_decay } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                positive("momentum_decay", momentum_decay)?;
                positive("epsilon", epsilon)
            }
            Rule::Adam { beta1, beta2, epsilon, .. }
            | Rule::AdamW { beta1, beta2, epsilon, .. }
            | Rule::RAdam { beta1, beta2, epsilon }
            | Rule::AdaMax { beta1, beta2, epsilon } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                positive("epsilon", epsilon)
            }
            Rule::AdaBound { beta1, beta2, epsilon, final_rate, gamma } => {
                share("beta1", beta1)?;
                share("beta2", beta2)?;
                positive("final_rate", final_rate)?;
                share("gamma", gamma)?;
                if gamma == 0.0 {
                    return Err(Error::data(self.name(), "gamma is 0, it must be above 0 and below 1"));
                }
                positive("epsilon", epsilon)
            }
            Rule::RmsProp { alpha, epsilon, momentum, .. } => {
                share("alpha", alpha)?;
                positive("momentum", momentum)?;
                positive("epsilon", epsilon)
            }
            Rule::Adagrad { learning_rate_decay, epsilon } => {
                positive("learning_rate_decay", learning_rate_decay)?;
                positive("epsilon", epsilon)
            }
            Rule::Adadelta { rho, epsilon } => {
                share("rho", rho)?;
                positive("epsilon", epsilon)
            }
            Rule::Lion { beta1, beta2 } => {
                share("beta1", beta1)?;
                share("beta2", beta2)
            }
        }
    }

    /// The names of the tensors of the state, one a tensor, as PyTorch's checkpoints have them.
    pub(super) fn state_names(&self) -> &'static [&'static str] {
        match self {
            Rule::Sgd { momentum: 0.0, .. } => &[],
            Rule::Sgd { .. } => &["momentum_buffer"],
            Rule::Adam { amsgrad: true, .. } | Rule::AdamW { amsgrad: true, .. } => {
                &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
            }
            Rule::Adam { .. } | Rule::AdamW { .. } | Rule::RAdam { .. } | Rule::AdaBound { .. } => {
                &["exp_avg", "exp_avg_sq"]
            }
            Rule::AdaMax { .. } => &["exp_avg", "exp_inf"],
            Rule::NAdam { .. } => &["exp_avg", "exp_avg_sq", "mu_product"],
            Rule::RmsProp { momentum: 0.0, centered: false, .. } => &["square_avg"],
            Rule::RmsProp { momentum: 0.0, .. } => &["square_avg", "grad_avg"],
            Rule::RmsProp { centered: false, .. } => &["square_avg", "momentum_buffer"],
            Rule::RmsProp { .. } => &["square_avg", "grad_avg", "momentum_buffer"],
            Rule::Adagrad { .. } => &["sum"],
            Rule::Adadelta { .. } => &["square_avg", "acc_delta"],
            Rule::Lion { .. } => &["exp_avg"],
        }
    }

    /// The state before the first step.
    pub(super) fn initial_state(&self, parameter: &Tensor) -> Result<Vec<Tensor>> {
        let initial = |name: &&str| match *name {
            "mu_product" => Ok(Tensor::full(&[], 1.0, parameter.dtype().compute(), parameter.device())?),
            _ => Ok(Tensor::full(parameter.shape(), 0.0, parameter.dtype(), parameter.device())?),
        };
        self.state_names().iter().map(initial).collect()
    }

    /// The parameter and the state after a step, computed in the dtype that the parameter, the gradient,
    /// the state and [`Rule::numbers`] have.
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
                // There is a third tensor with `amsgrad`.
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
