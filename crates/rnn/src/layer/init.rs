//! Initial weights.

use neurenix::{
    nn::init,
    phynexus::{DType, Device, Tensor, tensor::Generator},
};
use serde::{Deserialize, Serialize};

use crate::{NetworkError, Result, error::within};

/// The distribution of initial weights. Biases begin at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum WeightInitialization {
    /// All weights are 0.
    Zeros,
    /// Uniform between `min` and `max`.
    Uniform {
        /// The minimum.
        min: f64,
        /// The maximum.
        max: f64,
    },
    /// A normal distribution.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Uniform with variance `2 / (inputs + outputs)` (Glorot and Bengio, 2010).
    #[default]
    XavierUniform,
    /// Normal with the same variance.
    XavierNormal,
    /// Uniform with variance `2 / inputs` (He et al., 2015).
    HeUniform,
    /// Normal with the same variance.
    HeNormal,
    /// Uniform with variance `1 / inputs` (LeCun et al., 1998).
    LeCunUniform,
    /// Normal with the same variance.
    LeCunNormal,
}

impl WeightInitialization {
    /// Checks the settings, and that all weights will be finite in a dtype.
    pub(super) fn check(self, dtype: DType) -> Result<()> {
        let finite = |name: &str, value: f64| within(name, value, f64::MIN, f64::INFINITY);
        match self {
            WeightInitialization::Uniform { min, max } => {
                finite("min", min)?;
                finite("max", max)?;
                if min > max {
                    let reason = format!("it must not be above max, which is {max}");
                    return Err(NetworkError::invalid_parameter("min", min, reason));
                }
                self.check_reach(min.abs().max(max.abs()).max(max - min), dtype)
            }
            WeightInitialization::Normal { mean, std } => {
                finite("mean", mean)?;
                within("std", std, 0.0, f64::INFINITY)?;
                // The generator draws no numbers farther from the mean.
                self.check_reach(mean.abs() + 10.0 * std, dtype)
            }
            _ => Ok(()),
        }
    }

    /// Checks that numbers of this size are finite in a dtype.
    fn check_reach(self, greatest: f64, dtype: DType) -> Result<()> {
        let most = if dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) };
        if greatest <= most {
            return Ok(());
        }
        let reason =
            format!("weights could exceed {most:e}, where {} ends: use smaller numbers", dtype.name());
        Err(NetworkError::invalid_parameter("weight_init", format!("{self:?}"), reason))
    }

    /// Draws a weight of shape `[outputs, inputs, kernel..]`.
    pub(crate) fn draw(
        self,
        shape: &[usize],
        dtype: DType,
        device: Device,
        generator: &Generator,
    ) -> Result<Tensor> {
        use init::Fan;
        let inputs = init::fans(shape).0.max(1) as f64;
        let uniform = |low, high| init::uniform(shape, low, high, dtype, device, generator);
        let normal = |mean, std| init::normal(shape, mean, std, dtype, device, generator);
        Ok(match self {
            WeightInitialization::Zeros => Tensor::full(shape, 0.0, dtype, device)?,
            WeightInitialization::Uniform { min, max } => uniform(min, max)?,
            WeightInitialization::Normal { mean, std } => normal(mean, std)?,
            WeightInitialization::XavierUniform => {
                init::xavier_uniform(shape, 1.0, dtype, device, generator)?
            }
            WeightInitialization::XavierNormal => init::xavier_normal(shape, 1.0, dtype, device, generator)?,
            WeightInitialization::HeUniform => {
                init::kaiming_uniform(shape, Fan::In, dtype, device, generator)?
            }
            WeightInitialization::HeNormal => init::kaiming_normal(shape, Fan::In, dtype, device, generator)?,
            WeightInitialization::LeCunUniform => {
                let bound = (3.0 / inputs).sqrt();
                uniform(-bound, bound)?
            }
            WeightInitialization::LeCunNormal => normal(0.0, (1.0 / inputs).sqrt())?,
        })
    }
}
