//! Activations.

use ndarray::{Array1, Array2, Axis};
use neurenix::{
    nn::{Function, Module, activation::PReLU},
    phynexus::{self, DType, Device, Tensor, tensor::GeluApproximation},
};
use serde::{Deserialize, Serialize};

use crate::{Result, choices::choices, convert, device};

choices! {
    /// An activation function. It applies to each element; softmax applies to the last dimension.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[non_exhaustive]
    pub enum ActivationFunction {
        /// `x`.
        Linear,
        /// `1 / (1 + exp(-x))`.
        Sigmoid,
        /// The hyperbolic tangent.
        Tanh,
        /// `max(x, 0)`.
        #[default]
        ReLU,
        /// `x` above 0, `0.01 x` below.
        LeakyReLU,
        /// `x` above 0, `exp(x) - 1` below.
        ELU,
        /// `x * sigmoid(x)`.
        Swish,
        /// `x * P(X <= x)` for a standard normal X.
        GELU,
        /// `exp(x) / sum(exp(x))` over the last dimension.
        Softmax,
        /// `log(1 + exp(x))`.
        Softplus,
        /// `x * tanh(softplus(x))`.
        Mish,
        /// `min(max(x / 6 + 1/2, 0), 1)`.
        HardSigmoid,
        /// `min(max(x, -1), 1)`.
        HardTanh,
        /// `x` above 0, `a x` below, with a slope `a` that the layer learns. It begins at 0.25, which is its value
        /// without a layer.
        PReLU,
    }
}

/// The initial slope of [`ActivationFunction::PReLU`].
const PRELU: f64 = 0.25;

impl ActivationFunction {
    /// Applies the function to a tensor.
    pub(crate) fn apply(self, x: &Tensor) -> phynexus::Result<Tensor> {
        match self {
            ActivationFunction::Linear => Ok(x.clone()),
            ActivationFunction::Sigmoid => x.sigmoid(),
            ActivationFunction::Tanh => x.tanh(),
            ActivationFunction::ReLU => x.relu(),
            ActivationFunction::LeakyReLU => x.leaky_relu(0.01),
            ActivationFunction::ELU => x.elu(1.0),
            ActivationFunction::Swish => x.silu(),
            ActivationFunction::GELU => x.gelu(GeluApproximation::None),
            ActivationFunction::Softmax => x.softmax(-1),
            ActivationFunction::Softplus => x.softplus(1.0, 20.0),
            ActivationFunction::Mish => x.mish(),
            ActivationFunction::HardSigmoid => x.hardsigmoid(),
            ActivationFunction::HardTanh => x.hardtanh(-1.0, 1.0),
            ActivationFunction::PReLU => x.leaky_relu(PRELU),
        }
    }

    /// The function as a module; `None` for the identity.
    pub(crate) fn module(self, device: Device) -> Result<Option<Box<dyn Module>>> {
        Ok(match self {
            ActivationFunction::Linear => None,
            ActivationFunction::PReLU => Some(Box::new(PReLU::new(1, PRELU, device)?)),
            _ => Some(Box::new(Function::new(self.name(), move |x| self.apply(x)))),
        })
    }

    /// Applies the function to a matrix, in `float64` on the CPU.
    pub fn apply_matrix(&self, x: &Array2<f64>) -> Result<Array2<f64>> {
        let x = convert::matrix(x, DType::F64, device::cpu()?)?;
        convert::array(&self.apply(&x)?)
    }

    /// Applies the function to a vector, in `float64` on the CPU.
    pub fn apply_vector(&self, x: &Array1<f64>) -> Result<Array1<f64>> {
        Ok(self.apply_matrix(&convert::row(x))?.index_axis_move(Axis(0), 0))
    }

    /// The derivative of every element with respect to its own argument. For softmax, the diagonal of each row's
    /// Jacobian.
    pub fn derivative_matrix(&self, x: &Array2<f64>) -> Result<Array2<f64>> {
        let x = convert::matrix(x, DType::F64, device::cpu()?)?;
        if *self == ActivationFunction::Softmax {
            let y = x.softmax(-1)?;
            return convert::array(&y.mul(&y.rsub_scalar(1.0)?)?);
        }
        let x = x.with_grad()?;
        let sum = self.apply(&x)?.sum(&[], false)?;
        let gradients = sum.gradients(&[&x])?;
        convert::array(&gradients[0])
    }

    /// As [`ActivationFunction::derivative_matrix`], for a vector.
    pub fn derivative_vector(&self, x: &Array1<f64>) -> Result<Array1<f64>> {
        Ok(self.derivative_matrix(&convert::row(x))?.index_axis_move(Axis(0), 0))
    }

    /// The function of a number (1 for softmax). NaN if there is not enough memory.
    pub fn apply_scalar(&self, x: f64) -> f64 {
        self.apply_matrix(&Array2::from_elem((1, 1), x)).map_or(f64::NAN, |y| y[[0, 0]])
    }

    /// The derivative at a number. NaN if there is not enough memory.
    pub fn derivative_scalar(&self, x: f64) -> f64 {
        self.derivative_matrix(&Array2::from_elem((1, 1), x)).map_or(f64::NAN, |y| y[[0, 0]])
    }

    /// The range of the function. Targets of a network whose last layer has this activation should be in the range.
    pub fn recommended_range(&self) -> (f64, f64) {
        use ActivationFunction::*;
        match self {
            Linear | LeakyReLU | PReLU => (f64::NEG_INFINITY, f64::INFINITY),
            Sigmoid | Softmax | HardSigmoid => (0.0, 1.0),
            Tanh | HardTanh => (-1.0, 1.0),
            ReLU | Softplus => (0.0, f64::INFINITY),
            ELU => (-1.0, f64::INFINITY),
            // The minima are at -1.27846, -0.75179 and -1.19243.
            Swish => (-0.278_464_542_761_073_8, f64::INFINITY),
            GELU => (-0.169_971_207_479_903_69, f64::INFINITY),
            Mish => (-0.308_843_413_017_250_27, f64::INFINITY),
        }
    }

    /// True for common activations of last layers: identity, sigmoid, tanh, softmax.
    pub fn is_output_suitable(&self) -> bool {
        use ActivationFunction::{Linear, Sigmoid, Softmax, Tanh};
        matches!(self, Linear | Sigmoid | Softmax | Tanh)
    }
}

/// An activation with parameters: the slope below 0 of [`ActivationFunction::PReLU`] and
/// [`ActivationFunction::LeakyReLU`], the scale of [`ActivationFunction::ELU`]. Others have none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParametricActivation {
    /// The function.
    pub function_type: ActivationFunction,
    /// The parameters; missing ones have their default.
    pub parameters: Vec<f64>,
}

impl ParametricActivation {
    /// An activation with parameters.
    pub fn new(function_type: ActivationFunction, parameters: Vec<f64>) -> ParametricActivation {
        ParametricActivation { function_type, parameters }
    }

    /// `x` above 0, `alpha x` below.
    pub fn prelu(alpha: f64) -> ParametricActivation {
        ParametricActivation::new(ActivationFunction::PReLU, vec![alpha])
    }

    /// `x` above 0, `alpha (exp(x) - 1)` below.
    pub fn elu(alpha: f64) -> ParametricActivation {
        ParametricActivation::new(ActivationFunction::ELU, vec![alpha])
    }

    /// The parameter, if the function has one. It applies below 0.
    fn below(&self) -> Option<f64> {
        let usual = match self.function_type {
            ActivationFunction::PReLU => PRELU,
            ActivationFunction::LeakyReLU => 0.01,
            ActivationFunction::ELU => 1.0,
            _ => return None,
        };
        Some(self.parameters.first().copied().unwrap_or(usual))
    }

    /// The function of a number.
    pub fn apply(&self, x: f64) -> f64 {
        match (self.function_type, self.below()) {
            (_, None) => self.function_type.apply_scalar(x),
            (_, Some(_)) if x > 0.0 => x,
            (ActivationFunction::ELU, Some(alpha)) => alpha * x.exp_m1(),
            (_, Some(alpha)) => alpha * x,
        }
    }

    /// The derivative at a number.
    pub fn derivative(&self, x: f64) -> f64 {
        match (self.function_type, self.below()) {
            (_, None) => self.function_type.derivative_scalar(x),
            (_, Some(_)) if x > 0.0 => 1.0,
            (ActivationFunction::ELU, Some(alpha)) => alpha * x.exp(),
            (_, Some(alpha)) => alpha,
        }
    }

    /// The derivative with respect to each parameter.
    pub fn parameter_derivative(&self, x: f64) -> Vec<f64> {
        match (self.function_type, self.below()) {
            (_, None) => Vec::new(),
            (_, Some(_)) if x > 0.0 => vec![0.0],
            (ActivationFunction::ELU, Some(_)) => vec![x.exp_m1()],
            (_, Some(_)) => vec![x],
        }
    }
}
