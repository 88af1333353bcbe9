//! A method for each row in the table of the composites' functions.

use phynexus::Tensor;
use pyo3::prelude::*;

use super::PyTensor;
use crate::{argument, error::Result};

/// What the kinds of arguments are in Python.
type Operand<'a> = Option<&'a PyTensor>;
type Count = argument::Count;
type Number = f64;

/// An argument of a row: `Held` is its value in the engine, of which the method takes what `lend` returns.
trait Argument {
    type Held: Held;
    fn hold(self) -> Result<Self::Held>;
}

trait Held {
    type Lent<'a>
    where
        Self: 'a;
    fn lend(&self) -> Self::Lent<'_>;
}

impl Argument for Operand<'_> {
    type Held = Option<Tensor>;
    fn hold(self) -> Result<Option<Tensor>> {
        self.map(PyTensor::tensor).transpose()
    }
}

impl Held for Option<Tensor> {
    type Lent<'a> = Option<&'a Tensor>;
    fn lend(&self) -> Option<&Tensor> {
        self.as_ref()
    }
}

impl Argument for Count {
    type Held = usize;
    fn hold(self) -> Result<usize> {
        Ok(self.0)
    }
}

impl Held for usize {
    type Lent<'a> = usize;
    fn lend(&self) -> usize {
        *self
    }
}

impl Argument for Number {
    type Held = f64;
    fn hold(self) -> Result<f64> {
        Ok(self)
    }
}

impl Held for f64 {
    type Lent<'a> = f64;
    fn lend(&self) -> f64 {
        *self
    }
}

macro_rules! methods {
    ($(
        $(#[doc = $doc:literal])+
        $precision:ident $name:ident($($argument:ident: $kind:ident $(= $default:tt)?),*) => $composite:expr;
    )+) => {
        $(
            #[pymethods]
            impl PyTensor {
                $(#[doc = $doc])+
                #[pyo3(signature = ($($argument $(= $default)?),*))]
                fn $name(&self $(, $argument: $kind)*) -> Result<PyTensor> {
                    $(let $argument = $argument.hold()?;)*
                    self.map(|t| t.$name($($argument.lend()),*))
                }
            }
        )+
    };
}

phynexus::composite_functions!(methods);
