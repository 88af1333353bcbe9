//! The class ``Value`` as Python calls it: functions of C's kind round those of `operators`, and the tables that name them.
//!
//! Python is attached whenever it calls one of these functions, but PyO3 does not know it. That only affects the drop
//! of a `Py`, which PyO3 would defer to its next call into Rust. The functions therefore call `Python::attach`, except
//! for *plain* operations on CPU values and Python numbers. Those drop nothing, and attaching would take longer than
//! the operation.

use std::{
    any::Any,
    ffi::{CStr, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::null_mut,
};

use pyo3::{
    Borrowed, IntoPyObjectExt, PyTypeInfo,
    exceptions::{PyAttributeError, PyTypeError},
    ffi,
    panic::PanicException,
    prelude::*,
    pyclass::CompareOp,
    types::{PyBool, PyDict, PyFloat, PyInt, PyTuple, PyType},
};

use crate::{
    device::DeviceId,
    operators::{self, Answer},
    value::{
        Value,
        graph::{Function, Op},
        object::{self, Held, as_value, share},
    },
};

type Pointer = *mut ffi::PyObject;

/// Runs a method. An error or panic becomes a Python exception, and the function returns `failed`.
#[inline]
fn run<T>(py: Python<'_>, plain: bool, failed: T, function: impl FnOnce() -> PyResult<T>) -> T {
    let attached = || if plain { function() } else { Python::attach(|_| function()) };
    let error = match catch_unwind(AssertUnwindSafe(attached)) {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => error,
        Err(panic) => panicked(panic),
    };
    error.restore(py);
    failed
}

/// The exception that PyO3 raises for a panic.
#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> PyErr {
    let message = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(message), _) => message.clone(),
        (None, Some(message)) => (*message).to_owned(),
        (None, None) => "panic from Rust code".to_owned(),
    };
    PanicException::new_err(message)
}

/// Runs an operator.
#[inline]
fn operator(py: Python<'_>, plain: bool, function: impl FnOnce() -> Answer) -> Pointer {
    run(py, plain, null_mut(), || {
        Ok(match function()? {
            Some(value) => value.into_ptr(),
            None => py.NotImplemented().into_ptr(),
        })
    })
}

/// Whether an operand is a CPU value, or a number that can be read without running Python code.
#[inline]
fn is_plain(operand: &Bound<'_, PyAny>) -> bool {
    match as_value(operand) {
        Some(value) => is_here(value),
        None => PyFloat::is_exact_type_of(operand) || PyInt::is_exact_type_of(operand),
    }
}

/// Whether a value is on the CPU, where nothing is pending.
#[inline]
fn is_here(value: &Bound<'_, Value>) -> bool {
    value.get().device_id.is_cpu()
}

/// Wraps an object that Python passes.
///
/// # Safety
///
/// The object must live for `'a`, and the thread must be attached for `'py`.
#[inline]
unsafe fn passed<'a, 'py>(object: Pointer) -> Borrowed<'a, 'py, PyAny> {
    // SAFETY: guaranteed by the caller.
    unsafe { Borrowed::from_ptr(Python::assume_attached(), object) }
}

/// Wraps the value whose method Python calls.
///
/// # Safety
///
/// As for [`passed`]. The object must be a value, which Python checks before it calls a method.
#[inline]
unsafe fn this<'a, 'py>(object: Pointer) -> Borrowed<'a, 'py, Value> {
    // SAFETY: guaranteed by the caller.
    unsafe { passed(object).cast_unchecked() }
}

/// The fast path for two CPU values, the most common operands, which needs no handling of errors and panics. `None` for
/// other operands, and if memory runs out: then `operator` reports the error.
#[inline]
fn of_two_here(
    left: &Bound<'_, PyAny>,
    right: &Bound<'_, PyAny>,
    op: impl FnOnce(Py<Value>, Py<Value>) -> Op,
) -> Option<Py<Value>> {
    let (left, right) = (as_value(left)?, as_value(right)?);
    if !(is_here(left) && is_here(right)) {
        return None;
    }
    Value::result(left.py(), DeviceId::CPU, op(share(left), share(right))).ok()
}

macro_rules! binary_operators {
    ($($name:ident $($op:expr)?;)*) => {$(
        unsafe extern "C" fn $name(left: Pointer, right: Pointer) -> Pointer {
            // SAFETY: Python calls slots on attached threads, with objects that it keeps alive until they return.
            let (left, right) = unsafe { (passed(left), passed(right)) };
            $(if let Some(result) = of_two_here(&left, &right, $op) {
                return result.into_ptr();
            })?
            let plain = is_plain(&left) && is_plain(&right);
            operator(left.py(), plain, || operators::$name(&left, &right))
        }
    )*};
}

binary_operators! {
    add Op::Add;
    subtract;
    multiply Op::Mul;
    divide;
}

unsafe extern "C" fn power(base: Pointer, exponent: Pointer, modulus: Pointer) -> Pointer {
    // SAFETY: as for the other operators.
    let (base, exponent, modulus) = unsafe { (passed(base), passed(exponent), passed(modulus)) };
    let plain = is_plain(&base) && is_plain(&exponent);
    operator(base.py(), plain, || match modulus.is_none() {
        true => operators::power(&base, &exponent),
        false => Ok(None),
    })
}

unsafe extern "C" fn negative(value: Pointer) -> Pointer {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    operator(value.py(), is_here(&value), || operators::negative(&value).map(Some))
}

macro_rules! functions {
    ($($name:ident: $function:ident,)*) => {$(
        unsafe extern "C" fn $name(value: Pointer, _: Pointer) -> Pointer {
            // SAFETY: Python calls methods on attached threads, with values that it keeps alive until they return.
            let value = unsafe { this(value) };
            operator(value.py(), is_here(&value), || operators::apply(&value, Function::$function).map(Some))
        }
    )*};
}

functions! {
    relu: Relu,
    exp: Exp,
    log: Log,
    tanh: Tanh,
    sigmoid: Sigmoid,
}

unsafe extern "C" fn compare(left: Pointer, right: Pointer, comparison: c_int) -> Pointer {
    // SAFETY: as for operators.
    let (left, right) = unsafe { (passed(left), passed(right)) };
    let (py, plain) = (left.py(), is_plain(&left) && is_plain(&right));
    run(py, plain, null_mut(), || {
        let holds = match CompareOp::from_raw(comparison) {
            Some(comparison) => operators::compare(&left, &right, comparison)?,
            None => None,
        };
        Ok(match holds {
            Some(holds) => PyBool::new(py, holds).to_owned().into_ptr(),
            None => py.NotImplemented().into_ptr(),
        })
    })
}

unsafe extern "C" fn hash(value: Pointer) -> ffi::Py_hash_t {
    value.addr().cast_signed() >> 4
}

/// Creates a Python float. Returns null with the exception set if memory runs out.
fn float(number: f64) -> Pointer {
    // SAFETY: only the functions below call this, on attached threads.
    unsafe { ffi::PyFloat_FromDouble(number) }
}

/// The number that an attribute is set to.
///
/// # Safety
///
/// As for [`passed`]. Null means that Python deletes the attribute.
unsafe fn number_given(number: Pointer) -> PyResult<f64> {
    if number.is_null() {
        return Err(PyAttributeError::new_err("attributes of a Value cannot be deleted"));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { passed(number) }.extract()
}

/// Whether an attribute is set to a number that can be read without running Python code.
///
/// # Safety
///
/// As for [`number_given`].
#[inline]
unsafe fn is_plainly_given(number: Pointer) -> bool {
    // SAFETY: guaranteed by the caller.
    !number.is_null() && is_plain(&*unsafe { passed(number) })
}

unsafe extern "C" fn data(value: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    run(value.py(), is_here(&value), null_mut(), || operators::data(&value).map(float))
}

unsafe extern "C" fn set_data(value: Pointer, number: Pointer, _: *mut c_void) -> c_int {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    // SAFETY: Python keeps the number alive, or passes null.
    let plain = is_here(&value) && unsafe { is_plainly_given(number) };
    run(value.py(), plain, -1, || {
        // SAFETY: Python holds the number, or passes null.
        operators::set_data(&value, unsafe { number_given(number) }?)?;
        Ok(0)
    })
}

unsafe extern "C" fn grad(value: Pointer, _: *mut c_void) -> Pointer {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    run(value.py(), true, null_mut(), || Ok(float(operators::grad(&value))))
}

unsafe extern "C" fn set_grad(value: Pointer, number: Pointer, _: *mut c_void) -> c_int {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    // SAFETY: Python keeps the number alive, or passes null.
    let plain = unsafe { is_plainly_given(number) };
    run(value.py(), plain, -1, || {
        // SAFETY: Python holds the number, or passes null.
        operators::set_grad(&value, unsafe { number_given(number) }?);
        Ok(0)
    })
}

/// Functions that need only the value and return an object: getters and methods.
macro_rules! givers {
    ($($name:ident($second:ty): $function:ident,)*) => {$(
        unsafe extern "C" fn $name(value: Pointer, _: $second) -> Pointer {
            // SAFETY: as for methods.
            let value = unsafe { this(value) };
            let py = value.py();
            run(py, false, null_mut(), || Ok(operators::$function(&value)?.into_py_any(py)?.into_ptr()))
        }
    )*};
}

givers! {
    device(*mut c_void): device,
    operands(*mut c_void): operands,
    operation(*mut c_void): operation,
    backward(Pointer): differentiate,
    zero_grad(Pointer): zero_grad,
    reduce(Pointer): reduce,
}

unsafe extern "C" fn shown(value: Pointer) -> Pointer {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    let py = value.py();
    run(py, false, null_mut(), || Ok(operators::shown(&value)?.into_py_any(py)?.into_ptr()))
}

/// Parses positional and keyword arguments into the order of their names. A missing argument is Python's `None`; the
/// first `required` arguments must be present.
///
/// # Safety
///
/// As for [`passed`]. The objects must be a tuple, and a dictionary or null.
unsafe fn arguments<'py, const N: usize>(
    function: &str,
    names: [&str; N],
    required: usize,
    positional: Pointer,
    named: Pointer,
) -> PyResult<[Bound<'py, PyAny>; N]> {
    // SAFETY: guaranteed by the caller.
    let (py, positional, named) = unsafe {
        let py: Python<'py> = Python::assume_attached();
        let named = Borrowed::from_ptr_or_opt(py, named).map(|named| named.cast_unchecked::<PyDict>());
        (py, passed(positional).cast_unchecked::<PyTuple>(), named)
    };
    if positional.len() > N {
        let count = positional.len();
        return Err(PyTypeError::new_err(format!("{function}() takes at most {N} arguments, got {count}")));
    }
    let mut found: [Option<Bound<'py, PyAny>>; N] = std::array::from_fn(|_| None);
    for (place, argument) in found.iter_mut().zip(positional.iter()) {
        *place = Some(argument);
    }
    if let Some(named) = named {
        for (name, argument) in named.iter() {
            let name = name.extract::<String>()?;
            match names.iter().position(|known| *known == name) {
                Some(at) if found[at].is_none() => found[at] = Some(argument),
                Some(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() got multiple values for argument '{name}'"
                    )));
                }
                None => {
                    return Err(PyTypeError::new_err(format!(
                        "{function}() got an unexpected keyword argument '{name}'"
                    )));
                }
            }
        }
    }
    if let Some(missing) = found.iter().take(required).position(Option::is_none) {
        return Err(PyTypeError::new_err(format!(
            "{function}() missing required argument '{}'",
            names[missing]
        )));
    }
    Ok(found.map(|argument| argument.unwrap_or_else(|| py.None().into_bound(py))))
}

unsafe extern "C" fn new(_: *mut ffi::PyTypeObject, positional: Pointer, named: Pointer) -> Pointer {
    // SAFETY: Python calls this on attached threads, with a tuple that it keeps alive until the call returns.
    let only = unsafe { passed(positional).cast_unchecked::<PyTuple>() };
    let py = only.py();
    // The most common call: a single number.
    if named.is_null()
        && only.len() == 1
        && let Ok(number) = only.get_borrowed_item(0)
        && PyFloat::is_exact_type_of(&number)
    {
        return run(py, true, null_mut(), || {
            Ok(Value::leaf(py, number.extract()?, DeviceId::CPU)?.into_ptr())
        });
    }
    run(py, false, null_mut(), || {
        // SAFETY: Python passes a tuple, and a dictionary or null, and keeps them alive.
        let [data, device] = unsafe { arguments("Value", ["data", "device"], 1, positional, named) }?;
        Ok(operators::made(&data, &device)?.into_ptr())
    })
}

unsafe extern "C" fn to(value: Pointer, positional: Pointer, named: Pointer) -> Pointer {
    // SAFETY: as for methods.
    let value = unsafe { this(value) };
    run(value.py(), false, null_mut(), || {
        // SAFETY: Python passes a tuple, and a dictionary or null, and keeps them alive.
        let [device] = unsafe { arguments("to", ["device"], 1, positional, named) }?;
        Ok(operators::to(&value, &device)?.into_ptr())
    })
}

unsafe extern "C" fn restored(_: Pointer, positional: Pointer) -> Pointer {
    // SAFETY: Python calls this on attached threads.
    let py = unsafe { Python::assume_attached() };
    run(py, false, null_mut(), || {
        let names = ["data", "grad", "device"];
        // SAFETY: Python passes a tuple and keeps it alive.
        let [data, grad, device] = unsafe { arguments("_restored", names, 3, positional, null_mut()) }?;
        Ok(operators::restored(&data, &grad, &device)?.into_ptr())
    })
}

const DOC: &CStr = c"Value(data, device=None)
--

A number on a device, with automatic differentiation.

>>> from micrograd_rs import Value
>>> a, b = Value(2.0), Value(-3.0)
>>> c = a * b + a**2
>>> c.backward()
>>> c.data, a.grad, b.grad
(-2.0, 1.0, 2.0)

``==`` and ``hash`` use object identity, so values can be kept in sets. ``<``, ``<=``, ``>`` and ``>=`` compare numbers.";

/// The class ``Value``.
pub(crate) fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    // SAFETY: each slot has the type of its number. The tables are leaked, and end with an empty entry.
    unsafe { object::class(py, all) }
}

/// The slots of the class, but for the one that frees.
fn all() -> Vec<ffi::PyType_Slot> {
    let slot = |slot: c_int, pfunc: *mut c_void| ffi::PyType_Slot { slot, pfunc };
    vec![
        slot(ffi::Py_tp_doc, DOC.as_ptr().cast_mut().cast()),
        slot(ffi::Py_tp_new, new as ffi::newfunc as *mut c_void),
        slot(ffi::Py_tp_repr, shown as ffi::reprfunc as *mut c_void),
        slot(ffi::Py_tp_hash, hash as ffi::hashfunc as *mut c_void),
        slot(ffi::Py_tp_richcompare, compare as ffi::richcmpfunc as *mut c_void),
        slot(ffi::Py_nb_add, add as ffi::binaryfunc as *mut c_void),
        slot(ffi::Py_nb_subtract, subtract as ffi::binaryfunc as *mut c_void),
        slot(ffi::Py_nb_multiply, multiply as ffi::binaryfunc as *mut c_void),
        slot(ffi::Py_nb_true_divide, divide as ffi::binaryfunc as *mut c_void),
        slot(ffi::Py_nb_power, power as ffi::ternaryfunc as *mut c_void),
        slot(ffi::Py_nb_negative, negative as ffi::unaryfunc as *mut c_void),
        slot(ffi::Py_tp_getset, attributes().leak().as_mut_ptr().cast()),
        slot(ffi::Py_tp_methods, methods().leak().as_mut_ptr().cast()),
    ]
}

/// Attributes, ended by an empty entry.
fn attributes() -> Vec<ffi::PyGetSetDef> {
    let attribute = |name: &'static CStr, get: ffi::getter, set: Option<ffi::setter>, doc: &'static CStr| {
        ffi::PyGetSetDef { name: name.as_ptr(), get: Some(get), set, doc: doc.as_ptr(), closure: null_mut() }
    };
    vec![
        attribute(
            c"data",
            data,
            Some(set_data),
            c"The number. On a GPU, reading it computes the expression in one launch.",
        ),
        attribute(c"grad", grad, Some(set_grad), c"The gradient that ``backward`` accumulated."),
        attribute(c"device", device, None, c"The device."),
        attribute(c"_prev", operands, None, c"The operands, in order."),
        attribute(c"_op", operation, None, c"The operation that created the value; empty for a leaf."),
        ffi::PyGetSetDef::default(),
    ]
}

/// Methods, ended by an empty entry.
fn methods() -> Vec<ffi::PyMethodDef> {
    let method = |name: &'static CStr, function: ffi::PyCFunction, flags: c_int, doc: &'static CStr| {
        let ml_meth = ffi::PyMethodDefPointer { PyCFunction: function };
        ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth, ml_flags: flags, ml_doc: doc.as_ptr() }
    };
    let alone = ffi::METH_NOARGS;
    vec![
        method(
            c"relu",
            relu,
            alone,
            c"relu($self, /)\n--\n\nReturns ``max(0, x)``. The derivative at 0 is 0.",
        ),
        method(c"exp", exp, alone, c"exp($self, /)\n--\n\nReturns ``e ** x``."),
        method(c"log", log, alone, c"log($self, /)\n--\n\nReturns the natural logarithm."),
        method(c"tanh", tanh, alone, c"tanh($self, /)\n--\n\nReturns the hyperbolic tangent."),
        method(c"sigmoid", sigmoid, alone, c"sigmoid($self, /)\n--\n\nReturns ``1 / (1 + exp(-x))``."),
        ffi::PyMethodDef {
            ml_name: c"to".as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionWithKeywords: to },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: c"to($self, device)\n--\n\nCopies the value to another device; gradients flow through the copy. \
                Returns the value itself if it is already there."
                .as_ptr(),
        },
        method(
            c"backward",
            backward,
            alone,
            c"backward($self, /)\n--\n\nAdds to the gradient of every value that this one depends on. Its own gradient \
                is set to 1.",
        ),
        method(c"zero_grad", zero_grad, alone, c"zero_grad($self, /)\n--\n\nSets the gradient to 0."),
        method(
            c"__reduce__",
            reduce,
            alone,
            c"__reduce__($self, /)\n--\n\nPickles and copies are leaves with the number, the gradient and the device. \
                Operands are not included.",
        ),
        method(
            c"_restored",
            restored,
            ffi::METH_CLASS | ffi::METH_VARARGS,
            c"Restores a value from a pickle or copy.",
        ),
        ffi::PyMethodDef::zeroed(),
    ]
}
