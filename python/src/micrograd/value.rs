//! The class ``Value``: a number that knows how it was made.
//!
//! A value is one Python object that holds number, gradient and references to its operands: building an expression takes
//! one allocation a value, and a dropped expression is freed at once.

use std::{
    mem::replace,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use pyo3::{exceptions::PyTypeError, prelude::*, pyclass::CompareOp, types::PyFloat};

use super::{
    backward,
    device::{Place, PlaceDevice},
    graph::{Function, Kind, Number, release},
    launch,
};
use crate::error::{Result, value_error};

/// A number on a device, whose gradient can be found.
///
/// >>> from micrograd_rs import Value
/// >>> a, b = Value(2.0), Value(-3.0)
/// >>> c = a * b + a**2
/// >>> c.backward()
/// >>> c.data, a.grad, b.grad
/// (-2.0, 1.0, 2.0)
///
/// ``==`` and ``hash`` are those of the object, so that values can be kept in sets; ``<`` and its kin compare numbers.
#[pyclass(name = "Value", module = "micrograd_rs", frozen)]
pub(crate) struct Value {
    pub(super) data: Number,
    pub(super) grad: Number,
    /// The last walk that came by.
    pub(super) stamp: AtomicU64,
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// True while the number is still to be computed, on a GPU.
    pub(super) pending: AtomicBool,
}

impl Drop for Value {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.kind, Kind::Leaf) {
            release(replace(&mut self.kind, Kind::Leaf));
        }
    }
}

impl Value {
    #[inline]
    fn with(data: f64, place: Place, kind: Kind) -> Value {
        Value {
            data: Number::new(data),
            grad: Number::new(0.0),
            stamp: AtomicU64::new(0),
            kind,
            place,
            pending: AtomicBool::new(false),
        }
    }

    /// A leaf.
    #[inline]
    pub(super) fn leaf(py: Python<'_>, data: f64, place: Place) -> Result<Py<Value>> {
        Ok(Py::new(py, Value::with(data, place, Kind::Leaf))?)
    }

    /// A result on a device: computed now on the CPU, with all others when it is read on a GPU.
    #[inline]
    pub(super) fn result(py: Python<'_>, place: Place, kind: Kind) -> Result<Py<Value>> {
        if place.is_cpu() {
            let data = kind.evaluate();
            return Ok(Py::new(py, Value::with(data, place, kind))?);
        }
        let value = Py::new(py, Value::with(0.0, place, kind))?;
        value.get().pending.store(true, Relaxed);
        launch::remember(py, &value);
        Ok(value)
    }

    #[inline]
    fn unary(slf: &Bound<'_, Value>, function: Function) -> Result<Py<Value>> {
        Value::result(slf.py(), slf.get().place, Kind::Apply(function, slf.clone().unbind()))
    }

    #[inline]
    fn sum(py: Python<'_>, a: Py<Value>, b: Py<Value>) -> Result<Py<Value>> {
        let place = common(a.get().place, b.get().place)?;
        Value::result(py, place, Kind::Add(a, b))
    }

    #[inline]
    fn product(py: Python<'_>, a: Py<Value>, b: Py<Value>) -> Result<Py<Value>> {
        let place = common(a.get().place, b.get().place)?;
        Value::result(py, place, Kind::Mul(a, b))
    }

    /// The number of this leaf or result, computed.
    fn number(slf: &Bound<'_, Value>) -> Result<f64> {
        if slf.get().pending.load(Relaxed) {
            launch::evaluate(slf)?;
        }
        Ok(slf.get().data.get())
    }
}

/// The one place of both operands.
#[inline]
pub(super) fn common(a: Place, b: Place) -> Result<Place> {
    if a == b {
        return Ok(a);
    }
    Err(value_error(format!(
        "Cannot perform operation on values from different devices: {} and {}. Use .to() to move values to the same \
         device.",
        a.kind(),
        b.kind()
    )))
}

/// A number of Python's, or of what has `__float__`; `None` for anything else.
#[inline]
fn number(object: &Bound<'_, PyAny>) -> Result<Option<f64>> {
    if let Ok(float) = object.cast::<PyFloat>() {
        return Ok(Some(float.value()));
    }
    match object.extract::<f64>() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyTypeError>(object.py()) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The other operand of an operator: a value, or a number as a leaf on the same device; `None` for anything else.
#[inline]
fn operand(slf: &Bound<'_, Value>, other: &Bound<'_, PyAny>) -> Result<Option<Py<Value>>> {
    if let Ok(other) = other.cast::<Value>() {
        return Ok(Some(other.clone().unbind()));
    }
    let leaf = |number| Value::leaf(slf.py(), number, slf.get().place);
    number(other)?.map(leaf).transpose()
}

/// What an operator gives: the result, or `NotImplemented`, of which Python makes a `TypeError`.
#[inline]
fn operator<'py>(py: Python<'py>, result: Option<Py<Value>>) -> Bound<'py, PyAny> {
    match result {
        Some(value) => value.into_bound(py).into_any(),
        None => py.NotImplemented().into_bound(py),
    }
}

#[pymethods]
impl Value {
    /// NumPy leaves operators with values to them.
    #[classattr]
    #[pyo3(name = "__array_ufunc__")]
    const ARRAY_UFUNC: Option<()> = None;

    #[new]
    #[pyo3(signature = (data, device=None))]
    fn new(py: Python<'_>, data: f64, device: Option<&Bound<'_, PlaceDevice>>) -> Result<Value> {
        let place = PlaceDevice::chosen(py, device.map(Bound::get))?;
        Ok(Value::with(data, place, Kind::Leaf))
    }

    /// The number. On a GPU, reading it computes the expression, in one launch.
    #[getter]
    fn data(slf: &Bound<'_, Self>) -> Result<f64> {
        Value::number(slf)
    }
    #[setter]
    fn set_data(slf: &Bound<'_, Self>, data: f64) -> Result<()> {
        let value = slf.get();
        if !value.place.is_cpu() {
            // What was recorded before means the number of before.
            launch::evaluate_all(slf.py(), value.place)?;
        }
        value.data.set(data);
        Ok(())
    }
    /// The gradient that ``backward`` found.
    #[getter]
    fn grad(&self) -> f64 {
        self.grad.get()
    }
    #[setter]
    fn set_grad(&self, gradient: f64) {
        self.grad.set(gradient);
    }
    /// Where it is computed.
    #[getter]
    fn device(&self) -> PlaceDevice {
        PlaceDevice::at(self.place)
    }
    /// The operands, in order.
    #[getter]
    fn _prev(&self, py: Python<'_>) -> Vec<Py<Value>> {
        self.kind.operands(py)
    }
    /// The operation that made it; empty for a leaf.
    #[getter]
    fn _op(&self) -> String {
        match &self.kind {
            Kind::Leaf => String::new(),
            Kind::Add(..) => "+".to_owned(),
            Kind::Mul(..) => "*".to_owned(),
            Kind::Pow(_, exponent) => format!("**{exponent}"),
            Kind::Apply(function, _) => function.name().to_owned(),
            Kind::Moved(_) => "to_device".to_owned(),
            Kind::Dot(_) => "dot".to_owned(),
        }
    }

    fn __add__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.clone().unbind());
        let result = operand(slf, other)?.map(|other| Value::sum(py, this, other));
        Ok(operator(py, result.transpose()?))
    }
    fn __radd__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        Value::__add__(slf, other)
    }
    fn __mul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.clone().unbind());
        let result = operand(slf, other)?.map(|other| Value::product(py, this, other));
        Ok(operator(py, result.transpose()?))
    }
    fn __rmul__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        Value::__mul__(slf, other)
    }
    /// ``a - b`` is ``a + b * -1``; a number is subtracted by adding its negative.
    fn __sub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        let negated = match other.cast::<Value>() {
            Ok(other) => {
                common(slf.get().place, other.get().place)?;
                Some(Value::__neg__(other)?)
            }
            Err(_) => {
                let leaf = |number: f64| Value::leaf(py, -number, slf.get().place);
                number(other)?.map(leaf).transpose()?
            }
        };
        let result = negated.map(|negated| Value::sum(py, slf.clone().unbind(), negated));
        Ok(operator(py, result.transpose()?))
    }
    fn __rsub__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        let Some(other) = operand(slf, other)? else { return Ok(operator(py, None)) };
        Ok(operator(py, Some(Value::sum(py, Value::__neg__(slf)?, other)?)))
    }
    /// ``a / b`` is ``a * b**-1``.
    fn __truediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let (py, place) = (slf.py(), slf.get().place);
        let inverse = match other.cast::<Value>() {
            Ok(other) => {
                common(place, other.get().place)?;
                Some(Value::result(py, place, Kind::Pow(other.clone().unbind(), -1.0))?)
            }
            Err(_) => number(other)?.map(|number| Value::leaf(py, number.powf(-1.0), place)).transpose()?,
        };
        let result = inverse.map(|inverse| Value::product(py, slf.clone().unbind(), inverse));
        Ok(operator(py, result.transpose()?))
    }
    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        let Some(other) = operand(slf, other)? else { return Ok(operator(py, None)) };
        let inverse = Value::result(py, slf.get().place, Kind::Pow(slf.clone().unbind(), -1.0))?;
        Ok(operator(py, Some(Value::product(py, inverse, other)?)))
    }
    fn __neg__(slf: &Bound<'_, Self>) -> Result<Py<Value>> {
        let minus_one = Value::leaf(slf.py(), -1.0, slf.get().place)?;
        Value::product(slf.py(), slf.clone().unbind(), minus_one)
    }
    /// A power whose exponent is a number.
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        exponent: &Bound<'py, PyAny>,
        modulus: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        if !modulus.is_none() {
            return Ok(operator(py, None));
        }
        let power = |number| Value::result(py, slf.get().place, Kind::Pow(slf.clone().unbind(), number));
        Ok(operator(py, number(exponent)?.map(power).transpose()?))
    }
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        comparison: CompareOp,
    ) -> Result<Bound<'py, PyAny>> {
        let py = slf.py();
        // `NotImplemented` lets Python compare the objects themselves.
        if matches!(comparison, CompareOp::Eq | CompareOp::Ne) {
            return Ok(operator(py, None));
        }
        let right = match other.cast::<Value>() {
            Ok(other) => Value::number(other)?,
            Err(_) => match number(other)? {
                Some(number) => number,
                None => return Ok(operator(py, None)),
            },
        };
        let left = Value::number(slf)?;
        let truth = match comparison {
            CompareOp::Lt => left < right,
            CompareOp::Le => left <= right,
            CompareOp::Gt => left > right,
            _ => left >= right,
        };
        Ok(truth.into_pyobject(py).map(|truth| truth.to_owned().into_any()).map_err(PyErr::from)?)
    }
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        slf.as_ptr().addr().cast_signed() >> 4
    }

    /// The greater of the number and zero; its derivative at zero is zero.
    fn relu(slf: &Bound<'_, Self>) -> Result<Py<Value>> {
        Value::unary(slf, Function::Relu)
    }
    /// The exponential.
    fn exp(slf: &Bound<'_, Self>) -> Result<Py<Value>> {
        Value::unary(slf, Function::Exp)
    }
    /// The natural logarithm.
    fn log(slf: &Bound<'_, Self>) -> Result<Py<Value>> {
        Value::unary(slf, Function::Log)
    }
    /// The hyperbolic tangent.
    fn tanh(slf: &Bound<'_, Self>) -> Result<Py<Value>> {
        Value::unary(slf, Function::Tanh)
    }
    /// ``1 / (1 + exp(-x))``.
    fn sigmoid(slf: &Bound<'_, Self>) -> Result<Py<Value>> {
        Value::unary(slf, Function::Sigmoid)
    }
    /// The value on another device, through which gradients flow; on the same device the value itself.
    fn to(slf: &Bound<'_, Self>, device: &Bound<'_, PlaceDevice>) -> Result<Py<Value>> {
        let place = device.get().place(slf.py())?;
        if place == slf.get().place {
            return Ok(slf.clone().unbind());
        }
        let data = Value::number(slf)?;
        Ok(Py::new(slf.py(), Value::with(data, place, Kind::Moved(slf.clone().unbind())))?)
    }
    /// Adds to the gradient of every value that this one was made from; this one's own is set to 1.
    fn backward(slf: &Bound<'_, Self>) -> Result<()> {
        backward::run(slf)
    }
    /// Sets the gradient to 0.
    fn zero_grad(&self) {
        self.grad.set(0.0);
    }
    fn __repr__(slf: &Bound<'_, Self>) -> Result<String> {
        Ok(format!("Value(data={}, grad={})", Value::number(slf)?, slf.get().grad.get()))
    }
}
