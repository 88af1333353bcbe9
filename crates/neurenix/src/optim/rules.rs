//! The update rules: one table of names and settings, which Rust, Python and the command use. The formulas are those of
//! `torch.optim`, whose documentation gives the sources.

use crate::{Error, Result};

/// The values that a setting may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    /// Finite and at least 0.
    Finite,
    /// At least 0 and below 1.
    Share,
    /// 0 for false, anything else for true.
    Switch,
}

impl Range {
    /// Checks a value; the error says what it must be.
    fn check(self, value: f64) -> Result<(), &'static str> {
        let (is_inside, words) = match self {
            Range::Finite => (value.is_finite() && value >= 0.0, "finite and at least 0"),
            Range::Share => ((0.0..1.0).contains(&value), "at least 0 and below 1"),
            Range::Switch => (true, ""),
        };
        if is_inside { Ok(()) } else { Err(words) }
    }
}

/// A setting of a rule. A switch is 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The values that it may have.
    range: Range,
}

/// A setting's type, which is converted from and to a number.
trait FromNumber {
    fn of(number: f64) -> Self;
}

impl FromNumber for f64 {
    fn of(number: f64) -> f64 {
        number
    }
}

impl FromNumber for bool {
    fn of(number: f64) -> bool {
        number != 0.0
    }
}

/// Defines [`Rule`] from rows
///
/// ```text
/// /// What it does.
/// Variant constructor "name" {
///     /// What the setting is.
///     setting: type = default, range;
/// }
/// ```
macro_rules! rules {
    ($($(#[$about:meta])* $variant:ident $constructor:ident $name:literal {
        $($(#[$meaning:meta])* $setting:ident: $type:ty = $default:literal, $range:ident;)*
    })*) => {
        /// How a parameter is updated from its gradient.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Rule {
            $($(#[$about])* $variant { $($(#[$meaning])* $setting: $type,)* },)*
        }

        impl Rule {
            /// Every rule, with its default settings.
            pub const ALL: &[Rule] = &[$(Rule::$variant { $($setting: $default),* }),*];

            /// The names of all rules in lower case, as the command's `--optimizer` takes them.
            pub const NAMES: &[&str] = &[$(stringify!($constructor)),*];

            $(
                #[doc = concat!("[`Rule::", stringify!($variant), "`] with PyTorch's defaults, or its authors' if PyTorch lacks it.")]
                pub fn $constructor() -> Rule {
                    Rule::$variant { $($setting: $default),* }
                }
            )*

            /// The rule's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Rule::$variant { .. } => $name,)*
                }
            }

            /// Its settings.
            pub fn settings(&self) -> Vec<Setting> {
                match *self {
                    $(Rule::$variant { $($setting),* } => vec![$(
                        Setting {
                            name: stringify!($setting),
                            value: f64::from($setting),
                            range: Range::$range,
                        }
                    ),*],)*
                }
            }

            /// The value of a setting; NaN if the rule has none of this name.
            pub(super) fn setting(&self, name: &str) -> f64 {
                match *self {
                    $(Rule::$variant { $($setting),* } => match name {
                        $(stringify!($setting) => f64::from($setting),)*
                        _ => f64::NAN,
                    },)*
                }
            }

            /// The rule with the settings for which `value` returns a number changed to it.
            pub fn with(mut self, value: impl Fn(&str) -> Option<f64>) -> Rule {
                match &mut self {
                    $(Rule::$variant { $($setting),* } => {
                        $(*$setting = value(stringify!($setting)).map_or(*$setting, FromNumber::of);)*
                    })*
                }
                self
            }
        }
    };
}

rules! {
    /// Stochastic gradient descent, with momentum if `momentum` is above 0.
    Sgd sgd "SGD" {
        /// The factor on the previous velocity.
        momentum: f64 = 0.0, Finite;
        /// The share of the gradient that is not added to the velocity, except in a parameter's first step.
        dampening: f64 = 0.0, Share;
        /// Uses Nesterov momentum.
        nesterov: bool = false, Switch;
    }
    /// Adaptive moments (Kingma and Ba, 2015).
    Adam adam "Adam" {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, Share;
        /// Decay of the mean of squared gradients.
        beta2: f64 = 0.999, Share;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
        /// Divides by the greatest mean of squared gradients so far (Reddi et al., 2018).
        amsgrad: bool = false, Switch;
    }
    /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019): see
    /// [`Optimizer::with_weight_decay`](super::Optimizer::with_weight_decay).
    AdamW adamw "AdamW" {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, Share;
        /// Decay of the mean of squared gradients.
        beta2: f64 = 0.999, Share;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
        /// Divides by the greatest mean of squared gradients so far (Reddi et al., 2018).
        amsgrad: bool = false, Switch;
    }
    /// Adam with Nesterov momentum (Dozat, 2016).
    NAdam nadam "NAdam" {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, Share;
        /// Decay of the mean of squared gradients.
        beta2: f64 = 0.999, Share;
        /// Decay of the momentum's schedule.
        momentum_decay: f64 = 4e-3, Finite;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
    }
    /// Adam with a rectified variance (Liu et al., 2020).
    RAdam radam "RAdam" {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, Share;
        /// Decay of the mean of squared gradients.
        beta2: f64 = 0.999, Share;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
    }
    /// Divides by the root of the mean of squared gradients (Hinton, 2012).
    RmsProp rmsprop "RMSprop" {
        /// Decay of the mean.
        alpha: f64 = 0.99, Share;
        /// Momentum of the scaled gradients.
        momentum: f64 = 0.0, Finite;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
        /// Divides by the estimated standard deviation instead.
        centered: bool = false, Switch;
    }
    /// Divides by the root of the sum of squared gradients (Duchi et al., 2011).
    Adagrad adagrad "Adagrad" {
        /// Decay of the learning rate per step.
        learning_rate_decay: f64 = 0.0, Finite;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-10, Finite;
    }
    /// Scales each step by the ratio of the root mean squares of updates and gradients (Zeiler, 2012).
    Adadelta adadelta "Adadelta" {
        /// Decay of both means of squares.
        rho: f64 = 0.9, Share;
        /// Keeps both roots above 0.
        epsilon: f64 = 1e-6, Finite;
    }
    /// Adam with the infinity norm of gradients instead of the mean square (Kingma and Ba, 2015).
    AdaMax adamax "Adamax" {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, Share;
        /// Decay of the infinity norm.
        beta2: f64 = 0.999, Share;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
    }
    /// Adam with bounds on each element's rate that converge to one rate, as in SGD (Luo et al., 2019).
    AdaBound adabound "AdaBound" {
        /// Decay of the mean of gradients.
        beta1: f64 = 0.9, Share;
        /// Decay of the mean of squared gradients.
        beta2: f64 = 0.999, Share;
        /// The rate to which the bounds converge; it changes in proportion to the learning rate.
        final_rate: f64 = 0.1, Finite;
        /// The speed of convergence.
        gamma: f64 = 1e-3, Share;
        /// Keeps the denominator from 0.
        epsilon: f64 = 1e-8, Finite;
    }
    /// The sign of an interpolated momentum (Chen et al., 2023).
    Lion lion "Lion" {
        /// Interpolation for the step.
        beta1: f64 = 0.9, Share;
        /// Decay of the momentum.
        beta2: f64 = 0.99, Share;
    }
}

impl Rule {
    /// SGD with momentum.
    pub fn momentum(momentum: f64) -> Rule {
        Rule::Sgd { momentum, dampening: 0.0, nesterov: false }
    }
    /// SGD with Nesterov momentum (Nesterov, 1983).
    pub fn nesterov(momentum: f64) -> Rule {
        Rule::Sgd { momentum, dampening: 0.0, nesterov: true }
    }

    /// The rule with this name and its default settings. The name is not case-sensitive.
    pub fn named(name: &str) -> Option<Rule> {
        Rule::ALL.iter().find(|rule| rule.name().eq_ignore_ascii_case(name)).cloned()
    }

    /// Returns whether an update of the other rule is the same formula with other numbers.
    pub(super) fn is_alike(&self, other: &Rule) -> bool {
        let alike = |(a, b): (Setting, Setting)| match a.name {
            "epsilon" => a.value == b.value,
            _ if a.range == Range::Switch => a.value == b.value,
            _ => (a.value == 0.0) == (b.value == 0.0),
        };
        self.name() == other.name() && self.settings().into_iter().zip(other.settings()).all(alike)
    }

    /// Checks that every setting is in its range.
    pub(super) fn check(&self) -> Result<()> {
        for Setting { name, value, range } in self.settings() {
            if let Err(words) = range.check(value) {
                return Err(Error::data(self.name(), format!("{name} is {value}, it must be {words}")));
            }
        }
        match *self {
            Rule::Sgd { momentum, dampening, nesterov: true } if momentum == 0.0 || dampening != 0.0 => {
                Err(Error::data("SGD", "Nesterov momentum needs a momentum above 0 and no dampening"))
            }
            Rule::AdaBound { gamma: 0.0, .. } => {
                Err(Error::data("AdaBound", "gamma is 0, it must be above 0 and below 1"))
            }
            _ => Ok(()),
        }
    }

    /// The names of the state tensors, as in PyTorch's checkpoints.
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
}
