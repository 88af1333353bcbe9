//! Optimisers.

use neurenix::optim::Rule;
use serde::{Deserialize, Serialize};

use crate::{NetworkError, Result, choices::choices, error::within};

choices! {
    /// How parameters follow from their gradients.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum OptimizerType {
        /// Stochastic gradient descent.
        SGD,
        /// SGD with momentum.
        Momentum,
        /// SGD that looks ahead along the velocity.
        Nesterov,
        /// Divides by the root of the sum of squared gradients.
        Adagrad,
        /// Steps in the parameter's own units.
        Adadelta,
        /// Divides by the root of the mean of squared gradients.
        RMSprop,
        /// Adaptive moments.
        #[default]
        Adam,
        /// Adam by the greatest gradient.
        AdaMax,
        /// Adam with Nesterov momentum.
        Nadam,
        /// Adam by the greatest mean of squared gradients so far.
        AMSGrad,
        /// Adam whose rates are bounded ever closer.
        AdaBound,
        /// Limited-memory BFGS from the gradients of batches, which goes along its direction by the learning rate; a line search
        /// over all rows is [`TrainingMethod::QuasiNewton`](crate::TrainingMethod::QuasiNewton).
        LBFGS,
        /// Newton's direction by the second derivatives of each batch's loss, for up to 2000 weights; with steps that never make the
        /// loss greater it is [`TrainingMethod::Newton`](crate::TrainingMethod::Newton).
        Newton,
    }
}

impl OptimizerType {
    /// True if it goes along another direction than the gradient's, weight by weight.
    pub(crate) fn has_direction(self) -> bool {
        matches!(self, OptimizerType::LBFGS | OptimizerType::Newton)
    }
}

/// The numbers of an optimiser. A type refuses a `decay`, `momentum`, `final_lr` or `gamma` that it has no use for; the others
/// have values without being named, which count where a type has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// The learning rate.
    pub learning_rate: f64,
    /// The decay of RMSprop's (0.9 without) and Adadelta's (0.95) means; of Adagrad's rate a step (0), of Nadam's momentum
    /// schedule (0.004).
    pub decay: Option<f64>,
    /// Of Momentum and Nesterov (0.9 without); RMSprop takes one too.
    pub momentum: Option<f64>,
    /// Decay of the mean of gradients.
    pub beta1: Option<f64>,
    /// Decay of the mean of squared gradients.
    pub beta2: Option<f64>,
    /// Keeps denominators from 0.
    pub epsilon: f64,
    /// Added to the gradient: this times the parameter.
    pub weight_decay: Option<f64>,
    /// Gradients whose joint Euclidean norm is greater are scaled down to it.
    pub gradient_clip: Option<f64>,
    /// The rate that all of AdaBound's come to (0.1 without); a schedule changes it in proportion.
    pub final_lr: Option<f64>,
    /// How fast they do (0.001 without).
    pub gamma: Option<f64>,
    /// The differences of weights and gradients that LBFGS and the method QuasiNewton keep (20 without).
    pub memory_size: Option<usize>,
    /// What Newton adds to the diagonal of the second derivatives (0.0001 without); where the methods Newton and
    /// LevenbergMarquardt begin.
    pub damping: Option<f64>,
}

impl Default for OptimizerConfig {
    fn default() -> OptimizerConfig {
        OptimizerConfig {
            learning_rate: 0.001,
            decay: None,
            momentum: None,
            beta1: Some(0.9),
            beta2: Some(0.999),
            epsilon: 1e-8,
            weight_decay: None,
            gradient_clip: None,
            final_lr: None,
            gamma: None,
            memory_size: Some(20),
            damping: Some(1e-4),
        }
    }
}

/// An optimiser's type and numbers. Its state belongs to a training run, which begins without any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimizer {
    optimizer_type: OptimizerType,
    config: OptimizerConfig,
}

impl Default for Optimizer {
    /// Adam with a learning rate of 0.001.
    fn default() -> Optimizer {
        Optimizer { optimizer_type: OptimizerType::Adam, config: OptimizerConfig::default() }
    }
}

/// What an optimiser is, in a network's summary.
pub type OptimizerSummary = Optimizer;

impl Optimizer {
    /// An optimiser.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub fn new(optimizer_type: OptimizerType, config: OptimizerConfig) -> Result<Optimizer> {
        let optimizer = Optimizer { optimizer_type, config };
        optimizer.check()?;
        Ok(optimizer)
    }

    /// Stochastic gradient descent.
    ///
    /// # Errors
    /// If the learning rate is not finite and above 0.
    pub fn sgd(learning_rate: f64) -> Result<Optimizer> {
        Optimizer::new(OptimizerType::SGD, rated(learning_rate))
    }

    /// SGD with momentum.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub fn momentum(learning_rate: f64, momentum: f64) -> Result<Optimizer> {
        let config = OptimizerConfig { momentum: Some(momentum), ..rated(learning_rate) };
        Optimizer::new(OptimizerType::Momentum, config)
    }

    /// Adam.
    ///
    /// # Errors
    /// If the learning rate is not finite and above 0.
    pub fn adam(learning_rate: f64) -> Result<Optimizer> {
        Optimizer::new(OptimizerType::Adam, rated(learning_rate))
    }

    /// Adam with other numbers than the usual ones.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub fn adam_with_params(learning_rate: f64, beta1: f64, beta2: f64, epsilon: f64) -> Result<Optimizer> {
        let (beta1, beta2) = (Some(beta1), Some(beta2));
        let config = OptimizerConfig { beta1, beta2, epsilon, ..rated(learning_rate) };
        Optimizer::new(OptimizerType::Adam, config)
    }

    /// RMSprop with the decay of its mean.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub fn rmsprop(learning_rate: f64, decay: f64) -> Result<Optimizer> {
        let config = OptimizerConfig { decay: Some(decay), ..rated(learning_rate) };
        Optimizer::new(OptimizerType::RMSprop, config)
    }

    /// Adagrad.
    ///
    /// # Errors
    /// If the learning rate is not finite and above 0.
    pub fn adagrad(learning_rate: f64) -> Result<Optimizer> {
        Optimizer::new(OptimizerType::Adagrad, rated(learning_rate))
    }

    /// Newton's direction with this added to the diagonal of the second derivatives.
    ///
    /// # Errors
    /// If a number is outside its range.
    pub fn newton(learning_rate: f64, damping: f64) -> Result<Optimizer> {
        let config = OptimizerConfig { damping: Some(damping), ..rated(learning_rate) };
        Optimizer::new(OptimizerType::Newton, config)
    }

    /// Its type.
    pub fn optimizer_type(&self) -> OptimizerType {
        self.optimizer_type
    }

    /// Its numbers.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// The learning rate.
    pub fn get_learning_rate(&self) -> f64 {
        self.config.learning_rate
    }

    /// Sets the learning rate.
    ///
    /// # Errors
    /// If it is not finite and above 0.
    pub fn update_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        check_rate(learning_rate)?;
        self.config.learning_rate = learning_rate;
        Ok(())
    }

    /// Type and numbers.
    pub fn summary(&self) -> OptimizerSummary {
        self.clone()
    }

    /// Checks the numbers, and that the type has a use for them.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_numbers()?;
        self.check_use()
    }

    /// Checks that the numbers are in their ranges.
    pub(crate) fn check_numbers(&self) -> Result<()> {
        let OptimizerConfig {
            weight_decay,
            gradient_clip,
            beta1,
            beta2,
            momentum,
            decay,
            final_lr,
            gamma,
            memory_size,
            damping,
            ..
        } = &self.config;
        check_rate(self.config.learning_rate)?;
        within("epsilon", self.config.epsilon, 0.0, f64::INFINITY)?;
        weight_decay.map_or(Ok(()), |decay| within("weight_decay", decay, 0.0, f64::INFINITY))?;
        let shares = [("beta1", beta1), ("beta2", beta2), ("momentum", momentum), ("decay", decay)];
        for (name, value) in shares {
            if let Some(value) = value.filter(|value| !(0.0..1.0).contains(value)) {
                let reason = "it must be at least 0 and below 1";
                return Err(NetworkError::invalid_parameter(name, value, reason));
            }
        }
        if let Some(clip) = gradient_clip.filter(|clip| !(clip.is_finite() && *clip > 0.0)) {
            let reason = "it must be finite and above 0";
            return Err(NetworkError::invalid_parameter("gradient_clip", clip, reason));
        }
        if let Some(gamma) = gamma.filter(|gamma| !(*gamma > 0.0 && *gamma < 1.0)) {
            return Err(NetworkError::invalid_parameter("gamma", gamma, "it must be above 0 and below 1"));
        }
        if *memory_size == Some(0) {
            return Err(NetworkError::invalid_parameter("memory_size", 0, "it must be at least 1"));
        }
        damping.map_or(Ok(()), |damping| within("damping", damping, 0.0, f64::INFINITY))?;
        final_lr.map_or(Ok(()), |rate| within("final_lr", rate, 0.0, f64::INFINITY))?;
        self.rule().map(drop)
    }

    /// Checks that the numbers which are named mean something to the type.
    pub(crate) fn check_use(&self) -> Result<()> {
        use OptimizerType::{AdaBound, Adadelta, Adagrad, Momentum, Nadam, Nesterov, RMSprop};
        let OptimizerConfig { decay, momentum, final_lr, gamma, .. } = self.config;
        // A decay or momentum of 0 is none.
        let settings: [(&str, Option<f64>, &[OptimizerType]); 4] = [
            ("decay", decay.filter(|decay| *decay != 0.0), &[RMSprop, Adadelta, Adagrad, Nadam]),
            ("momentum", momentum.filter(|momentum| *momentum != 0.0), &[Momentum, Nesterov, RMSprop]),
            ("final_lr", final_lr, &[AdaBound]),
            ("gamma", gamma, &[AdaBound]),
        ];
        let own = self.optimizer_type;
        let useless = |(_, value, users): &(&str, Option<f64>, &[OptimizerType])| {
            value.is_some() && !users.contains(&own)
        };
        let Some((name, Some(value), users)) = settings.into_iter().find(useless) else { return Ok(()) };
        let users: Vec<&str> = users.iter().map(OptimizerType::name).collect();
        let reason = format!("{} has none: leave it out, or use {}", own.name(), users.join(" or "));
        Err(NetworkError::invalid_parameter(name, value, reason))
    }

    /// The framework's rule, with the numbers that it has a use for.
    pub(crate) fn rule(&self) -> Result<Rule> {
        use OptimizerType::*;
        let OptimizerConfig { decay, momentum, beta1, beta2, epsilon, final_lr, gamma, .. } = self.config;
        let rule = match self.optimizer_type {
            // Of those with a direction of their own, the step along it.
            SGD | LBFGS | Newton => return Ok(Rule::sgd()),
            Nesterov if momentum == Some(0.0) => {
                let reason = "Nesterov looks ahead along a momentum: it must be above 0";
                return Err(NetworkError::invalid_parameter("momentum", 0.0, reason));
            }
            Momentum => Rule::momentum(0.9),
            Nesterov => Rule::nesterov(0.9),
            Adagrad => Rule::adagrad(),
            Adadelta => Rule::Adadelta { rho: 0.95, epsilon },
            RMSprop => Rule::RmsProp { alpha: 0.9, momentum: 0.0, epsilon, centered: false },
            Adam | AMSGrad => Rule::adam(),
            AdaMax => Rule::adamax(),
            Nadam => Rule::nadam(),
            AdaBound => Rule::adabound(),
        };
        Ok(rule.with(|setting| match setting {
            "alpha" | "rho" | "learning_rate_decay" | "momentum_decay" => decay,
            "momentum" => momentum,
            "beta1" => beta1,
            "beta2" => beta2,
            "epsilon" => Some(epsilon),
            "amsgrad" => Some(f64::from(self.optimizer_type == AMSGrad)),
            "final_rate" => final_lr,
            "gamma" => gamma,
            _ => None,
        }))
    }
}

/// The usual numbers with this learning rate.
fn rated(learning_rate: f64) -> OptimizerConfig {
    OptimizerConfig { learning_rate, ..OptimizerConfig::default() }
}

fn check_rate(rate: f64) -> Result<()> {
    if rate.is_finite() && rate > 0.0 {
        return Ok(());
    }
    Err(NetworkError::invalid_parameter("learning_rate", rate, "it must be finite and above 0"))
}
