//! What the operators and methods of values do; `slots` has them in Python's form.

use std::sync::atomic::Ordering::Relaxed;

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    pyclass::CompareOp,
    types::PyFloat,
};

use crate::{
    Reduced, backward,
    device::{DeviceId, PyDevice},
    launch, reduced,
    value::{
        Value,
        graph::{Function, Op},
        object::{self, Held, as_value, share},
    },
};

impl Value {
    /// A result on a device: computed now on the CPU, with all others when it is read on a GPU.
    #[inline]
    pub(crate) fn result(py: Python<'_>, device_id: DeviceId, op: Op) -> PyResult<Py<Value>> {
        if !device_id.is_cpu() {
            return Value::recorded(py, device_id, op);
        }
        let data = op.evaluate();
        object::new(py, Value::with(data, device_id, op))
    }

    /// A result on a GPU. Not inlined, so that sums and products on the CPU fit into their slots.
    #[inline(never)]
    fn recorded(py: Python<'_>, device_id: DeviceId, op: Op) -> PyResult<Py<Value>> {
        let value = object::new(py, Value::with(0.0, device_id, op))?;
        value.get().pending.store(true, Relaxed);
        launch::remember(py, &value);
        Ok(value)
    }
}

#[inline]
fn sum(py: Python<'_>, a: Py<Value>, b: Py<Value>) -> PyResult<Py<Value>> {
    let device_id = common(a.get().device_id, b.get().device_id)?;
    Value::result(py, device_id, Op::Add(a, b))
}

#[inline]
fn product(py: Python<'_>, a: Py<Value>, b: Py<Value>) -> PyResult<Py<Value>> {
    let device_id = common(a.get().device_id, b.get().device_id)?;
    Value::result(py, device_id, Op::Mul(a, b))
}

#[inline]
fn inverse(value: &Bound<'_, Value>) -> PyResult<Py<Value>> {
    Value::result(value.py(), value.get().device_id, Op::Pow(share(value), -1.0))
}

/// The device of both operands; an error if they differ.
#[inline]
pub(crate) fn common(a: DeviceId, b: DeviceId) -> PyResult<DeviceId> {
    if a == b {
        return Ok(a);
    }
    Err(PyValueError::new_err(format!(
        "Cannot perform operation on values from different devices: {} and {}. Use .to() to move values to the same \
         device.",
        a.kind(),
        b.kind()
    )))
}

/// The value of a Python number, or of an object with `__float__` and without a length; `None` for anything else.
#[inline]
fn number(given: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let number = match object::exact_number(given) {
        Some(number) => number,
        // NumPy converts an array of one element to a number, whatever its dimensions.
        None if !given.is_instance_of::<PyFloat>() && given.len().is_ok() => return Ok(None),
        None => given.extract::<f64>(),
    };
    match number {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyTypeError>(given.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The other operand of an operator: a value, or a number converted to a leaf on the same device; `None` for anything
/// else.
#[inline]
fn operand(value: &Bound<'_, Value>, other: &Bound<'_, PyAny>) -> PyResult<Option<Py<Value>>> {
    if let Some(other) = as_value(other) {
        return Ok(Some(share(other)));
    }
    let leaf = |number| Value::leaf(value.py(), number, value.get().device_id);
    number(other)?.map(leaf).transpose()
}

/// The result of an operator. `None` stands for `NotImplemented`, from which Python makes a `TypeError`.
pub(crate) type Answer = PyResult<Option<Py<Value>>>;

/// The operands of an operator; one of them is a value.
enum Operands<'a, 'py> {
    /// The value is on the left.
    Left(&'a Bound<'py, Value>, &'a Bound<'py, PyAny>),
    /// The left operand is not a value. The value still comes first here.
    Right(&'a Bound<'py, Value>, &'a Bound<'py, PyAny>),
    /// Only possible if the class's methods are called directly.
    Neither,
}

impl<'a, 'py> Operands<'a, 'py> {
    #[inline]
    fn of(left: &'a Bound<'py, PyAny>, right: &'a Bound<'py, PyAny>) -> Operands<'a, 'py> {
        match as_value(left) {
            Some(value) => Operands::Left(value, right),
            None => as_value(right).map_or(Operands::Neither, |value| Operands::Right(value, left)),
        }
    }
}

/// ``a + b``; the value is the first operand.
#[inline]
pub(crate) fn add(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> Answer {
    match Operands::of(left, right) {
        Operands::Left(value, other) | Operands::Right(value, other) => {
            let Some(other) = operand(value, other)? else { return Ok(None) };
            sum(value.py(), share(value), other).map(Some)
        }
        Operands::Neither => Ok(None),
    }
}

/// ``a * b``; the value is the first operand.
#[inline]
pub(crate) fn multiply(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> Answer {
    match Operands::of(left, right) {
        Operands::Left(value, other) | Operands::Right(value, other) => {
            let Some(other) = operand(value, other)? else { return Ok(None) };
            product(value.py(), share(value), other).map(Some)
        }
        Operands::Neither => Ok(None),
    }
}

/// ``a - b`` is ``a + b * -1``. A number is subtracted by adding its negative.
#[inline]
pub(crate) fn subtract(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> Answer {
    match Operands::of(left, right) {
        Operands::Left(a, b) => {
            let (py, device_id) = (a.py(), a.get().device_id);
            let negated = match as_value(b) {
                Some(b) => {
                    common(device_id, b.get().device_id)?;
                    negative(b)?
                }
                None => match number(b)? {
                    Some(number) => Value::leaf(py, -number, device_id)?,
                    None => return Ok(None),
                },
            };
            sum(py, share(a), negated).map(Some)
        }
        Operands::Right(b, a) => {
            let Some(a) = operand(b, a)? else { return Ok(None) };
            sum(b.py(), negative(b)?, a).map(Some)
        }
        Operands::Neither => Ok(None),
    }
}

/// ``a / b`` is ``a * b**-1``.
#[inline]
pub(crate) fn divide(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> Answer {
    match Operands::of(left, right) {
        Operands::Left(a, b) => {
            let (py, device_id) = (a.py(), a.get().device_id);
            let inverse = match as_value(b) {
                Some(b) => {
                    common(device_id, b.get().device_id)?;
                    inverse(b)?
                }
                None => match number(b)? {
                    Some(number) => Value::leaf(py, number.powf(-1.0), device_id)?,
                    None => return Ok(None),
                },
            };
            product(py, share(a), inverse).map(Some)
        }
        Operands::Right(b, a) => {
            let Some(a) = operand(b, a)? else { return Ok(None) };
            product(b.py(), inverse(b)?, a).map(Some)
        }
        Operands::Neither => Ok(None),
    }
}

/// ``-a`` is ``a * -1``.
#[inline]
pub(crate) fn negative(value: &Bound<'_, Value>) -> PyResult<Py<Value>> {
    let minus_one = Value::leaf(value.py(), -1.0, value.get().device_id)?;
    product(value.py(), share(value), minus_one)
}

/// ``a ** n``, where ``n`` is a number.
#[inline]
pub(crate) fn power(base: &Bound<'_, PyAny>, exponent: &Bound<'_, PyAny>) -> Answer {
    let Some(value) = as_value(base) else { return Ok(None) };
    if as_value(exponent).is_some() {
        return Ok(None);
    }
    let power = |number| Value::result(value.py(), value.get().device_id, Op::Pow(share(value), number));
    number(exponent)?.map(power).transpose()
}

/// Compares numbers. ``==`` and ``!=`` are left to Python, which compares identity.
#[inline]
pub(crate) fn compare(
    left: &Bound<'_, PyAny>,
    right: &Bound<'_, PyAny>,
    comparison: CompareOp,
) -> PyResult<Option<bool>> {
    let Some(left) = as_value(left) else { return Ok(None) };
    if matches!(comparison, CompareOp::Eq | CompareOp::Ne) {
        return Ok(None);
    }
    let right = match as_value(right) {
        Some(right) => data(right)?,
        None => match number(right)? {
            Some(number) => number,
            None => return Ok(None),
        },
    };
    let left = data(left)?;
    Ok(Some(match comparison {
        CompareOp::Lt => left < right,
        CompareOp::Le => left <= right,
        CompareOp::Gt => left > right,
        _ => left >= right,
    }))
}

/// Applies a function to a value.
#[inline]
pub(crate) fn apply(value: &Bound<'_, Value>, function: Function) -> PyResult<Py<Value>> {
    Value::result(value.py(), value.get().device_id, Op::Apply(function, share(value)))
}

/// Implements the constructor.
pub(crate) fn made(data: &Bound<'_, PyAny>, device: &Bound<'_, PyAny>) -> PyResult<Py<Value>> {
    let number = data.extract::<f64>()?;
    let device = if device.is_none() { None } else { Some(py_device(device)?) };
    Value::leaf(data.py(), number, PyDevice::chosen(data.py(), device.map(|device| device.get()))?)
}

fn py_device<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyDevice>> {
    Ok(object.cast::<PyDevice>()?)
}

/// Returns the number, computing it if necessary.
#[inline]
pub(crate) fn data(value: &Bound<'_, Value>) -> PyResult<f64> {
    if value.get().pending.load(Relaxed) {
        launch::evaluate(value)?;
    }
    Ok(value.get().data.get())
}

/// Replaces the number.
#[inline]
pub(crate) fn set_data(value: &Bound<'_, Value>, number: f64) -> PyResult<()> {
    let held = value.get();
    if !held.device_id.is_cpu() {
        // Recorded expressions must use the old number.
        launch::evaluate_all(value.py(), held.device_id)?;
    }
    held.data.set(number);
    Ok(())
}

pub(crate) fn grad(value: &Bound<'_, Value>) -> f64 {
    value.get().grad.get()
}

pub(crate) fn set_grad(value: &Bound<'_, Value>, gradient: f64) {
    value.get().grad.set(gradient);
}

pub(crate) fn device(value: &Bound<'_, Value>) -> PyResult<PyDevice> {
    Ok(PyDevice::at(value.get().device_id))
}

/// Returns the operands, in order.
pub(crate) fn operands(value: &Bound<'_, Value>) -> PyResult<Vec<Py<Value>>> {
    Ok(value.get().op.operands(value.py()))
}

/// Returns the name of the operation that created the value; empty for a leaf.
pub(crate) fn operation(value: &Bound<'_, Value>) -> PyResult<String> {
    Ok(match &value.get().op {
        Op::Leaf => String::new(),
        Op::Add(..) => "+".to_owned(),
        Op::Mul(..) => "*".to_owned(),
        Op::Pow(_, exponent) => format!("**{exponent}"),
        Op::Apply(function, _) => function.name().to_owned(),
        Op::Moved(_) => "to_device".to_owned(),
        Op::Dot(_) => "dot".to_owned(),
    })
}

/// Returns the value on another device, or the value itself if it is already there.
pub(crate) fn to(value: &Bound<'_, Value>, device: &Bound<'_, PyAny>) -> PyResult<Py<Value>> {
    let device_id = py_device(device)?.get().device_id(value.py())?;
    if device_id == value.get().device_id {
        return Ok(share(value));
    }
    object::new(value.py(), Value::with(data(value)?, device_id, Op::Moved(share(value))))
}

/// Adds to the gradient of every value that this one depends on. Returns Python's `None`.
pub(crate) fn differentiate(value: &Bound<'_, Value>) -> PyResult<Py<PyAny>> {
    backward::run(value)?;
    Ok(value.py().None())
}

/// Sets the gradient to 0. Returns Python's `None`.
pub(crate) fn zero_grad(value: &Bound<'_, Value>) -> PyResult<Py<PyAny>> {
    value.get().grad.set(0.0);
    Ok(value.py().None())
}

/// A pickled or copied value is a leaf with the number, the gradient and the device. Its operands are not included.
pub(crate) fn reduce<'py>(value: &Bound<'py, Value>) -> Reduced<'py, (f64, f64, &'static str)> {
    let held = value.get();
    reduced::<Value, _>(value.py(), (data(value)?, held.grad.get(), held.device_id.name()))
}

/// Restores a value from a pickle or copy.
pub(crate) fn restored(
    data: &Bound<'_, PyAny>,
    grad: &Bound<'_, PyAny>,
    device: &Bound<'_, PyAny>,
) -> PyResult<Py<Value>> {
    let py = data.py();
    let device_id = DeviceId::restored(py, &device.extract::<String>()?)?;
    let value = Value::leaf(py, data.extract::<f64>()?, device_id)?;
    value.get().grad.set(grad.extract::<f64>()?);
    Ok(value)
}

pub(crate) fn shown(value: &Bound<'_, Value>) -> PyResult<String> {
    Ok(format!("Value(data={}, grad={})", data(value)?, value.get().grad.get()))
}
