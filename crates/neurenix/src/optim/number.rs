//! Numbers that depend on a parameter's step count. After conditional steps only the device knows the count, so they
//! are computed there; otherwise on the host.

use phynexus::{Scalar, Tensor};

use super::Rule;
use crate::Result;

/// A number that an update rule uses in a step.
#[derive(Clone)]
pub(super) enum Number {
    /// Known to the host.
    Host(f64),
    /// A scalar on the parameter's device.
    Device(Tensor),
}

impl Number {
    fn map(
        &self,
        host: impl FnOnce(f64) -> f64,
        device: impl FnOnce(&Tensor) -> phynexus::Result<Tensor>,
    ) -> Result<Number> {
        Ok(match self {
            Number::Host(value) => Number::Host(host(*value)),
            Number::Device(value) => Number::Device(device(value)?),
        })
    }

    /// `self + value`.
    pub(super) fn plus(&self, value: f64) -> Result<Number> {
        self.map(|x| x + value, |x| x.add_scalar(value))
    }

    /// `self * value`.
    pub(super) fn times(&self, value: f64) -> Result<Number> {
        self.map(|x| x * value, |x| x.mul_scalar(value))
    }

    /// `value / self`.
    pub(super) fn under(&self, value: f64) -> Result<Number> {
        self.map(|x| value / x, |x| x.rdiv_scalar(value))
    }

    /// `1 - self`.
    pub(super) fn complement(&self) -> Result<Number> {
        self.map(|x| 1.0 - x, |x| x.rsub_scalar(1.0))
    }

    pub(super) fn sqrt(&self) -> Result<Number> {
        self.map(f64::sqrt, Tensor::sqrt)
    }

    /// `base^self`, for a base from 0 to 1 and an exponent above 0.
    pub(super) fn power_of(&self, base: f64) -> Result<Number> {
        self.map(|x| base.powf(x), |x| x.mul_scalar(base.ln())?.exp())
    }

    /// `1 - base^self`, for a base from 0 to 1 and an exponent above 0.
    pub(super) fn lost(&self, base: f64) -> Result<Number> {
        // Subtracting from 1 in float32 would cancel for bases near 1.
        self.map(|x| 1.0 - base.powf(x), |x| x.mul_scalar(base.ln())?.expm1()?.neg())
    }

    pub(super) fn mul(&self, other: &Number) -> Result<Number> {
        self.combine(other, |x, y| x * y, Tensor::mul)
    }

    pub(super) fn div(&self, other: &Number) -> Result<Number> {
        self.combine(other, |x, y| x / y, Tensor::div)
    }

    fn combine(
        &self,
        other: &Number,
        host: impl FnOnce(f64, f64) -> f64,
        device: impl FnOnce(&Tensor, &Tensor) -> phynexus::Result<Tensor>,
    ) -> Result<Number> {
        Ok(match (self, other) {
            (Number::Host(x), Number::Host(y)) => Number::Host(host(*x, *y)),
            (Number::Device(x), y) => Number::Device(device(x, &y.like(x)?)?),
            (x, Number::Device(y)) => Number::Device(device(&x.like(y)?, y)?),
        })
    }

    /// `above` if `self > limit`, else `otherwise`.
    pub(super) fn choose(&self, limit: f64, above: &Number, otherwise: f64) -> Result<Number> {
        Ok(match self {
            Number::Host(value) if *value > limit => above.clone(),
            Number::Host(_) => Number::Host(otherwise),
            Number::Device(value) => {
                let otherwise = Number::Host(otherwise).like(value)?;
                Number::Device(value.gt_scalar(limit)?.where_(&above.like(value)?, &otherwise)?)
            }
        })
    }

    /// The number as a scalar with another tensor's dtype and device.
    fn like(&self, other: &Tensor) -> Result<Tensor> {
        Ok(match self {
            Number::Host(value) => Tensor::full(&[], Scalar::Float(*value), other.dtype(), other.device())?,
            Number::Device(tensor) => tensor.clone(),
        })
    }
}

impl Rule {
    /// The numbers that [`Rule::update`] takes: those that depend on the parameter's step count, which starts at 1.
    /// `rate` is the learning rate.
    pub(super) fn numbers(&self, step: &Number, rate: &Number, share: f64) -> Result<Vec<Number>> {
        Ok(match *self {
            Rule::Sgd { dampening, .. } if dampening > 0.0 => {
                vec![step.choose(1.5, &Number::Host(1.0 - dampening), 1.0)?]
            }
            Rule::Adam { beta1, beta2, .. } | Rule::AdamW { beta1, beta2, .. } => {
                vec![step.lost(beta2)?.sqrt()?.under(1.0)?, rate.div(&step.lost(beta1)?)?]
            }
            Rule::NAdam { beta1, beta2, momentum_decay, .. } => {
                let mu = |t: &Number| -> Result<Number> {
                    t.times(momentum_decay)?.power_of(0.96)?.times(-0.5)?.plus(1.0)?.times(beta1)
                };
                let (now, next) = (mu(step)?, mu(&step.plus(1.0)?)?);
                let of_gradient = now.complement()?.mul(rate)?;
                let of_mean = next.mul(rate)?;
                vec![now, next, step.lost(beta2)?.under(1.0)?, of_gradient, of_mean]
            }
            Rule::RAdam { beta1, beta2, .. } => {
                let longest = 2.0 / (1.0 - beta2) - 1.0;
                let lost = step.lost(beta2)?;
                let taken = step.times(2.0)?.mul(&step.power_of(beta2)?)?.div(&lost)?;
                let length = taken.times(-1.0)?.plus(longest)?;
                let above = length.plus(-4.0)?.mul(&length.plus(-2.0)?)?.times(longest)?;
                let rectified = above.div(&length.times((longest - 4.0) * (longest - 2.0))?)?.sqrt()?;
                let rectified = rectified.mul(&lost.sqrt()?)?;
                // Selecting a number instead of a formula keeps the graph the same before and after rectification.
                let plain = length.choose(5.0, &Number::Host(0.0), 1.0)?;
                vec![length.choose(5.0, &rectified, 0.0)?, plain, rate.div(&step.lost(beta1)?)?]
            }
            Rule::Adagrad { learning_rate_decay, .. } => {
                vec![rate.div(&step.plus(-1.0)?.times(learning_rate_decay)?.plus(1.0)?)?]
            }
            Rule::AdaMax { beta1, .. } => vec![rate.div(&step.lost(beta1)?)?],
            Rule::AdaBound { beta1, beta2, final_rate, gamma, .. } => {
                let corrected = step.lost(beta2)?.sqrt()?.mul(rate)?.div(&step.lost(beta1)?)?;
                // As in the authors' code, the bounds follow the schedule of the learning rate.
                let final_rate = final_rate * share;
                let least = step.times(gamma)?.plus(1.0)?.under(1.0)?.complement()?.times(final_rate)?;
                let most = step.times(gamma)?.under(1.0)?.plus(1.0)?.times(final_rate)?;
                vec![corrected, least, most]
            }
            Rule::Sgd { .. } | Rule::RmsProp { .. } | Rule::Adadelta { .. } | Rule::Lion { .. } => vec![],
        })
    }
}
