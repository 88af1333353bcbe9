//! Elementwise functions.

use phynexus::{Tensor, tensor::GeluApproximation};
use pyo3::prelude::*;

use super::PyTensor;
use crate::{
    argument::one_of,
    error::{Result, value_error},
};

macro_rules! unary {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            fn $name(&self) -> Result<PyTensor> {
                self.map(Tensor::$name)
            }
        )+ }
    };
}

/// A method for each function in the engine's table.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $name:literal $class:ident($meaning:expr) $rest:tt)+) => {
        $( method! { $variant $method $(#[doc = $doc])+ } )+
    };
}

macro_rules! method {
    // `round` takes an argument in Python, so it is written by hand.
    (Round $($rest:tt)+) => {};
    ($variant:ident $method:ident $($doc:tt)+) => {
        #[pymethods]
        impl PyTensor {
            $($doc)+
            fn $method(&self) -> Result<PyTensor> {
                self.map(Tensor::$method)
            }
        }
    };
}

phynexus::unary_functions!(table);

unary! {
    /// The base-10 logarithm.
    log10;
    /// ``x * x``.
    square;
    /// True where the element is zero.
    logical_not;
    /// True where the element is neither infinite nor NaN.
    isfinite;
    /// ``max(0, x)``.
    relu;
    /// ``1 / (1 + exp(-x))``.
    sigmoid;
    /// ``log(sigmoid(x))``.
    logsigmoid;
    /// ``min(max(0, x), 6)``.
    relu6;
    /// The scaled exponential linear unit.
    selu;
    /// ``clamp(x / 6 + 1/2, 0, 1)``.
    hardsigmoid;
    /// ``x * hardsigmoid(x)``.
    hardswish;
    /// ``x / (1 + abs(x))``.
    softsign;
    /// ``x - tanh(x)``.
    tanhshrink;
}

#[pymethods]
impl PyTensor {
    /// Rounds to ``decimals`` decimal places; halves round to even.
    #[pyo3(signature = (decimals=0))]
    fn round(&self, decimals: i32) -> Result<PyTensor> {
        if decimals == 0 {
            return self.map(Tensor::round);
        }
        let scale = 10f64.powi(decimals);
        self.map(|t| t.mul_scalar(scale)?.round()?.div_scalar(scale))
    }
    /// Alias of ``abs``.
    fn absolute(&self) -> Result<PyTensor> {
        self.map(Tensor::abs)
    }
    /// ``-x``.
    fn negative(&self) -> Result<PyTensor> {
        self.map(Tensor::neg)
    }
    /// The Gaussian error linear unit. ``approximate`` is ``"none"`` or ``"tanh"``.
    #[pyo3(signature = (approximate=None))]
    fn gelu(&self, approximate: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let tanh = match approximate {
            None => false,
            Some(given) => match (given.extract::<bool>(), given.extract::<&str>()) {
                (Ok(tanh), _) => tanh,
                (_, Ok("none")) => false,
                (_, Ok("tanh")) => true,
                _ => {
                    return Err(value_error(format!(
                        "gelu: unknown approximate {given}: use \"none\" or \"tanh\""
                    )));
                }
            },
        };
        let kind = if tanh { GeluApproximation::Tanh } else { GeluApproximation::None };
        self.map(|t| t.gelu(kind))
    }
    /// ``x`` where it is positive, else ``negative_slope * x``.
    #[pyo3(signature = (negative_slope=0.01))]
    fn leaky_relu(&self, negative_slope: f64) -> Result<PyTensor> {
        self.map(|t| t.leaky_relu(negative_slope))
    }
    /// ``x`` where it is positive, else ``alpha * (exp(x) - 1)``.
    #[pyo3(signature = (alpha=1.0))]
    fn elu(&self, alpha: f64) -> Result<PyTensor> {
        self.map(|t| t.elu(alpha))
    }
    /// ``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``.
    #[pyo3(signature = (alpha=1.0))]
    fn celu(&self, alpha: f64) -> Result<PyTensor> {
        self.map(|t| t.celu(alpha))
    }
    /// Clamps the elements between ``min_val`` and ``max_val``.
    #[pyo3(signature = (min_val=-1.0, max_val=1.0))]
    fn hardtanh(&self, min_val: f64, max_val: f64) -> Result<PyTensor> {
        self.map(|t| t.hardtanh(min_val, max_val))
    }
    /// ``x`` outside ``[-lambd, lambd]``, else 0.
    #[pyo3(signature = (lambd=0.5))]
    fn hardshrink(&self, lambd: f64) -> Result<PyTensor> {
        self.map(|t| t.hardshrink(lambd))
    }
    /// ``x`` moved towards 0 by ``lambd``.
    #[pyo3(signature = (lambd=0.5))]
    fn softshrink(&self, lambd: f64) -> Result<PyTensor> {
        self.map(|t| t.softshrink(lambd))
    }
    /// ``x`` where it is greater than ``threshold``, else ``value``.
    fn threshold(&self, threshold: f64, value: f64) -> Result<PyTensor> {
        self.map(|t| t.threshold(threshold, value))
    }
    /// The first half of ``dim`` times the sigmoid of the second.
    #[pyo3(signature = (dim=-1))]
    fn glu(&self, dim: i64) -> Result<PyTensor> {
        self.map(|t| t.glu(dim))
    }
    /// ``x`` where it is positive, else ``weight * x``. ``weight`` has one element, or one per channel.
    fn prelu(&self, weight: &PyTensor) -> Result<PyTensor> {
        let weight = weight.tensor()?;
        self.map(|t| t.prelu(&weight))
    }
    /// ``exp(x) / sum(exp(x))`` along ``dim``.
    #[pyo3(signature = (dim=None, *, axis=None), text_signature = "($self, dim=-1, *, axis=None)")]
    fn softmax(&self, dim: Option<i64>, axis: Option<i64>) -> Result<PyTensor> {
        let dim = one_of(dim, axis)?.unwrap_or(-1);
        self.map(|t| t.softmax(dim))
    }
    /// The logarithm of ``softmax``.
    #[pyo3(signature = (dim=None, *, axis=None), text_signature = "($self, dim=-1, *, axis=None)")]
    fn log_softmax(&self, dim: Option<i64>, axis: Option<i64>) -> Result<PyTensor> {
        let dim = one_of(dim, axis)?.unwrap_or(-1);
        self.map(|t| t.log_softmax(dim))
    }
    /// ``softmax(-x)``.
    #[pyo3(signature = (dim=-1))]
    fn softmin(&self, dim: i64) -> Result<PyTensor> {
        self.map(|t| t.softmin(dim))
    }
}

macro_rules! in_place {
    ($($changed:ident = $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            #[doc = concat!("``", stringify!($name), "`` in place.")]
            fn $changed<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
                slf.get().assign(slf.get().tensor()?.$name()?)?;
                Ok(slf.clone())
            }
        )+ }
    };
}

in_place! {
    exp_ = exp;
    log_ = log;
    sqrt_ = sqrt;
    neg_ = neg;
    abs_ = abs;
    floor_ = floor;
    ceil_ = ceil;
    round_ = round;
    relu_ = relu;
    sigmoid_ = sigmoid;
    tanh_ = tanh;
    reciprocal_ = reciprocal;
}
