//! Optimisers.

use neurenix::optim::Rule;
use serde::{Deserialize, Serialize};

use crate::{
    NetworkError, Result,
    choices::choices,
    error::{below_one, positive, within},
};

choices! {
    /// An optimisation method.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum OptimizerType {
        /// Stochastic gradient descent.
        SGD,
        /// SGD with momentum.
        Momentum,
        /// SGD with Nesterov momentum.
        Nesterov,
        /// Divides gradients by the root of the sum of their squares.
        Adagrad,
        /// Divides gradients by the root of the mean of their squares, and scales by that of past updates.
        Adadelta,
        /// Divides gradients by the root of the mean of their squares.
        RMSprop,
        /// Adaptive moment estimation.
        #[default]
        Adam,
        /// Adam with the infinity norm.
        AdaMax,
        /// Adam with Nesterov momentum.
        Nadam,
        /// Adam with the maximum of the second moments so far.
        AMSGrad,
        /// Adam with increasingly tight bounds on learning rates.
        AdaBound,
        /// Limited-memory BFGS with gradients of batches, scaled by the learning rate. For a line search over all rows
        /// use [`TrainingMethod::QuasiNewton`](crate::TrainingMethod::QuasiNewton).
        LBFGS,
        /// Newton's method with second derivatives of each batch's loss, for up to 2000 weights. For steps that never
        /// increase the loss use [`TrainingMethod::Newton`](crate::TrainingMethod::Newton).
        Newton,
    }
}

impl OptimizerType {
    /// True if it follows a direction other than the gradient.
    pub(crate) fn has_direction(self) -> bool {
        matches!(self, OptimizerType::LBFGS | OptimizerType::Newton)
    }
}

/// The settings of an optimiser. A type refuses a `decay`, `momentum`, `final_lr` or `gamma` that it does not use. The
/// other settings have defaults, which types without them ignore.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// The learning rate.
    pub learning_rate: f64,
    /// The decay of the means of RMSprop (default 0.9) and Adadelta (0.95), of Adagrad's learning rate per step (0),
    /// and of Nadam's momentum schedule (0.004).
    pub decay: Option<f64>,
    /// The momentum of Momentum and Nesterov (default 0.9) and RMSprop (0).
    pub momentum: Option<f64>,
    /// The decay of the mean of gradients.
    pub beta1: Option<f64>,
    /// The decay of the mean of squared gradients.
    pub beta2: Option<f64>,
    /// Added to denominators, to avoid division by 0.
    pub epsilon: f64,
    /// Adds this times the parameter to its gradient.
    pub weight_decay: Option<f64>,
    /// The limit to which gradients are scaled down if their joint Euclidean norm exceeds it.
    pub gradient_clip: Option<f64>,
    /// The final learning rate of AdaBound (default 0.1). A schedule scales it too.
    pub final_lr: Option<f64>,
    /// How fast AdaBound's bounds converge (default 0.001).
    pub gamma: Option<f64>,
    /// The number of pairs of differences that LBFGS and the method QuasiNewton keep (default 20).
    pub memory_size: Option<usize>,
    /// The value that Newton adds to the diagonal of the second derivatives (default 0.0001). The methods Newton and
    /// LevenbergMarquardt begin with it.
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

/// An optimiser's type and settings. Its state belongs to a training run, and is empty at first. Constructors return an
/// error if a setting is out of range.
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

/// The optimiser in a network's summary.
pub type OptimizerSummary = Optimizer;

impl Optimizer {
    /// An optimiser.
    pub fn new(optimizer_type: OptimizerType, config: OptimizerConfig) -> Result<Optimizer> {
        let optimizer = Optimizer { optimizer_type, config };
        optimizer.check()?;
        Ok(optimizer)
    }

    /// Stochastic gradient descent.
    pub fn sgd(learning_rate: f64) -> Result<Optimizer> {
        Optimizer::new(OptimizerType::SGD, rated(learning_rate))
    }

    /// SGD with momentum.
    pub fn momentum(learning_rate: f64, momentum: f64) -> Result<Optimizer> {
        let config = OptimizerConfig { momentum: Some(momentum), ..rated(learning_rate) };
        Optimizer::new(OptimizerType::Momentum, config)
    }

    /// Adam.
    pub fn adam(learning_rate: f64) -> Result<Optimizer> {
        Optimizer::new(OptimizerType::Adam, rated(learning_rate))
    }

    /// Adam with these settings.
    pub fn adam_with_params(learning_rate: f64, beta1: f64, beta2: f64, epsilon: f64) -> Result<Optimizer> {
        let (beta1, beta2) = (Some(beta1), Some(beta2));
        let config = OptimizerConfig { beta1, beta2, epsilon, ..rated(learning_rate) };
        Optimizer::new(OptimizerType::Adam, config)
    }

    /// RMSprop with this decay of its mean.
    pub fn rmsprop(learning_rate: f64, decay: f64) -> Result<Optimizer> {
        let config = OptimizerConfig { decay: Some(decay), ..rated(learning_rate) };
        Optimizer::new(OptimizerType::RMSprop, config)
    }

    /// Adagrad.
    pub fn adagrad(learning_rate: f64) -> Result<Optimizer> {
        Optimizer::new(OptimizerType::Adagrad, rated(learning_rate))
    }

    /// Newton's method with this damping.
    pub fn newton(learning_rate: f64, damping: f64) -> Result<Optimizer> {
        let config = OptimizerConfig { damping: Some(damping), ..rated(learning_rate) };
        Optimizer::new(OptimizerType::Newton, config)
    }

    /// The type.
    pub fn optimizer_type(&self) -> OptimizerType {
        self.optimizer_type
    }

    /// The settings.
    pub fn config(&self) -> &OptimizerConfig {
        &self.config
    }

    /// The learning rate.
    pub fn get_learning_rate(&self) -> f64 {
        self.config.learning_rate
    }

    /// Sets the learning rate, which must be finite and above 0.
    pub fn update_learning_rate(&mut self, learning_rate: f64) -> Result<()> {
        positive("learning_rate", learning_rate)?;
        self.config.learning_rate = learning_rate;
        Ok(())
    }

    /// The type and settings.
    pub fn summary(&self) -> OptimizerSummary {
        self.clone()
    }

    /// Checks the settings, and that the type uses them.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_numbers()?;
        self.check_use()
    }

    /// Checks that the settings are in range.
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
        positive("learning_rate", self.config.learning_rate)?;
        within("epsilon", self.config.epsilon, 0.0, f64::INFINITY)?;
        weight_decay.map_or(Ok(()), |decay| within("weight_decay", decay, 0.0, f64::INFINITY))?;
        let shares = [("beta1", beta1), ("beta2", beta2), ("momentum", momentum), ("decay", decay)];
        for (name, value) in shares {
            value.map_or(Ok(()), |value| below_one(name, value))?;
        }
        gradient_clip.map_or(Ok(()), |clip| positive("gradient_clip", clip))?;
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

    /// Checks that the type uses the given settings.
    pub(crate) fn check_use(&self) -> Result<()> {
        use OptimizerType::{AdaBound, Adadelta, Adagrad, Momentum, Nadam, Nesterov, RMSprop};
        let OptimizerConfig { decay, momentum, final_lr, gamma, .. } = self.config;
        // A decay or momentum of 0 has no effect.
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
        let reason = format!("{} does not use it: leave it out, or use {}", own.name(), users.join(" or "));
        Err(NetworkError::invalid_parameter(name, value, reason))
    }

    /// The framework's rule with these settings.
    pub(crate) fn rule(&self) -> Result<Rule> {
        use OptimizerType::*;
        let OptimizerConfig { decay, momentum, beta1, beta2, epsilon, final_lr, gamma, .. } = self.config;
        let rule = match self.optimizer_type {
            // LBFGS and Newton compute a direction, which SGD follows.
            SGD | LBFGS | Newton => return Ok(Rule::sgd()),
            Nesterov if momentum == Some(0.0) => {
                let reason = "Nesterov needs a momentum above 0";
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

/// The default settings with this learning rate.
fn rated(learning_rate: f64) -> OptimizerConfig {
    OptimizerConfig { learning_rate, ..OptimizerConfig::default() }
}
