//! Activation functions as modules.

use phynexus::{DType, Device, Tensor, tensor::GeluApproximation};

use super::{Function, Module, Parameter, Visitor};
use crate::{Error, Result};

macro_rules! activations {
    ($($(#[$doc:meta])+ $name:ident = $text:literal, $function:expr;)+) => { $(
        $(#[$doc])+
        pub fn $name() -> Function {
            Function::new($text, $function)
        }
    )+ };
}

activations! {
    /// `max(x, 0)`.
    relu = "ReLU()", Tensor::relu;
    /// `min(max(x, 0), 6)`.
    relu6 = "ReLU6()", Tensor::relu6;
    /// `x * P(X <= x)` for a standard normal variable X.
    gelu = "GELU()", |x: &Tensor| x.gelu(GeluApproximation::None);
    /// The tanh approximation of GELU.
    gelu_tanh = "GELU(approximate='tanh')", |x: &Tensor| x.gelu(GeluApproximation::Tanh);
    /// `x * sigmoid(x)`.
    silu = "SiLU()", Tensor::silu;
    /// `x * tanh(softplus(x))`.
    mish = "Mish()", Tensor::mish;
    /// `1 / (1 + exp(-x))`.
    sigmoid = "Sigmoid()", Tensor::sigmoid;
    /// The hyperbolic tangent.
    tanh = "Tanh()", Tensor::tanh;
    /// `log(1 + exp(x))`.
    softplus = "Softplus()", |x: &Tensor| x.softplus(1.0, 20.0);
    /// `x / (1 + |x|)`.
    softsign = "Softsign()", Tensor::softsign;
    /// Scaled exponential linear units.
    selu = "SELU()", Tensor::selu;
    /// A piecewise linear sigmoid.
    hardsigmoid = "Hardsigmoid()", Tensor::hardsigmoid;
    /// `x * hardsigmoid(x)`.
    hardswish = "Hardswish()", Tensor::hardswish;
    /// `log(sigmoid(x))`.
    log_sigmoid = "LogSigmoid()", Tensor::logsigmoid;
    /// `x - tanh(x)`.
    tanhshrink = "Tanhshrink()", Tensor::tanhshrink;
}

/// `x` if positive, else `negative_slope * x`.
pub fn leaky_relu(negative_slope: f64) -> Function {
    Function::new(format!("LeakyReLU({negative_slope})"), move |x| x.leaky_relu(negative_slope))
}

/// `x` if positive, else `alpha * (exp(x) - 1)`.
pub fn elu(alpha: f64) -> Function {
    Function::new(format!("ELU({alpha})"), move |x| x.elu(alpha))
}

/// `max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)`.
pub fn celu(alpha: f64) -> Function {
    Function::new(format!("CELU({alpha})"), move |x| x.celu(alpha))
}

/// Clamps `x` to `min..=max`.
pub fn hardtanh(min: f64, max: f64) -> Function {
    Function::new(format!("Hardtanh(min_val={min}, max_val={max})"), move |x| x.hardtanh(min, max))
}

/// `x` where `|x| > lambda`, else 0.
pub fn hardshrink(lambda: f64) -> Function {
    Function::new(format!("Hardshrink({lambda})"), move |x| x.hardshrink(lambda))
}

/// Shrinks `x` towards 0 by `lambda`; 0 where `|x| <= lambda`.
pub fn softshrink(lambda: f64) -> Function {
    Function::new(format!("Softshrink({lambda})"), move |x| x.softshrink(lambda))
}

/// `x` above `threshold`, else `value`.
pub fn threshold(threshold: f64, value: f64) -> Function {
    Function::new(format!("Threshold({threshold}, {value})"), move |x| x.threshold(threshold, value))
}

/// `x` if positive, else `weight * x`, with a trained weight: one in all, or one per channel (the second dimension).
#[derive(Debug)]
pub struct PReLU {
    weight: Parameter,
}

impl PReLU {
    /// Creates `count` weights (1 or the number of channels) with the value `initial`. PyTorch's defaults are 1 and
    /// 0.25.
    pub fn new(count: usize, initial: f64, device: Device) -> Result<PReLU> {
        if count == 0 {
            return Err(Error::data("PReLU", "the number of weights must be at least 1"));
        }
        Ok(PReLU { weight: Parameter::new(&Tensor::full(&[count], initial, DType::F32, device)?)? })
    }
}

impl Module for PReLU {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.prelu(&self.weight.leaf()?)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.weight("weight", &self.weight);
    }
    fn describe(&self) -> String {
        format!("PReLU(num_parameters={})", self.weight.tensor().len())
    }
}

/// `exp(x) / sum(exp(x))` along a dimension.
pub fn softmax(dim: i64) -> Function {
    Function::new(format!("Softmax(dim={dim})"), move |x| x.softmax(dim))
}

/// The logarithm of softmax along a dimension.
pub fn log_softmax(dim: i64) -> Function {
    Function::new(format!("LogSoftmax(dim={dim})"), move |x| x.log_softmax(dim))
}

/// Flattens all dimensions but the first.
pub fn flatten() -> Function {
    Function::new("Flatten()", |x| x.flatten(1, -1))
}
