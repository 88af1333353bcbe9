//! Activations as modules.

use phynexus::{Tensor, tensor::GeluApproximation};

use super::Function;

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
    /// `x * P(X <= x)` for a standard normal X.
    gelu = "GELU()", |x: &Tensor| x.gelu(GeluApproximation::None);
    /// GELU by its tanh approximation.
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

/// `x` above 0 and `negative_slope * x` below.
pub fn leaky_relu(negative_slope: f64) -> Function {
    Function::new(format!("LeakyReLU({negative_slope})"), move |x| x.leaky_relu(negative_slope))
}

/// `x` above 0 and `alpha * (exp(x) - 1)` below.
pub fn elu(alpha: f64) -> Function {
    Function::new(format!("ELU({alpha})"), move |x| x.elu(alpha))
}

/// `exp(x) / sum(exp(x))` along a dimension.
pub fn softmax(dim: i64) -> Function {
    Function::new(format!("Softmax(dim={dim})"), move |x| x.softmax(dim))
}

/// The logarithm of the softmax along a dimension.
pub fn log_softmax(dim: i64) -> Function {
    Function::new(format!("LogSoftmax(dim={dim})"), move |x| x.log_softmax(dim))
}

/// All dimensions from the second on as one.
pub fn flatten() -> Function {
    Function::new("Flatten()", |x| x.flatten(1, -1))
}
