//! The objects that hold values, and their class, made with Python's C interface instead of `#[pyclass]`.
//!
//! An expression makes an object for every operator and frees it again: what PyO3 does round that was most of an operator's
//! time. Its classes take part in the search for cycles, find the functions that make and free memory anew for every object,
//! and count each call into Rust. Values need none of it: their operands are older than they are, so that no cycle can form,
//! and nothing else can be put into them. `slots` has what the class's methods are.
//!
//! All of it is in Python's stable interface of 3.10.

#![deny(unsafe_op_in_unsafe_fn)]

use std::{
    ffi::{c_int, c_uint, c_void},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use pyo3::{
    PyTypeInfo, ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyInt, PyType},
};

use super::{graph::Kind, slots, value::Value};
use crate::error::Result;

/// A value as Python has it.
#[repr(C)]
struct Object {
    _head: ffi::PyObject,
    value: Value,
}

/// Threads may share values.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Value>();
};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The class ``Value``.
pub(super) fn class(py: Python<'_>) -> Result<&Bound<'_, PyType>> {
    Ok(CLASS.get_or_try_init(py, || make_class(py))?.bind(py))
}

fn make_class(py: Python<'_>) -> Result<Py<PyType>> {
    let mut slots = slots::all();
    let free = dealloc as ffi::destructor as *mut c_void;
    slots.push(ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: free });
    // The end.
    slots.push(ffi::PyType_Slot::default());
    // Without `Py_TPFLAGS_BASETYPE`: whatever is of this class is an `Object`, and no more.
    let mut spec = ffi::PyType_Spec {
        name: c"micrograd_rs.Value".as_ptr(),
        basicsize: size_of::<Object>() as c_int,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the slots are of the types that their numbers ask for and end with an empty one; Python copies them. It keeps the
    // name and the tables of methods and attributes, which live as long as the program. It gives a new reference, or null.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    // NumPy leaves operators with values to them.
    class.setattr("__array_ufunc__", py.None())?;
    Ok(class.cast_into::<PyType>().map_err(PyErr::from)?.unbind())
}

// SAFETY: it is one class, whose objects are `Object`s, since it has no subclasses. `add_to` makes it before anything that is
// made of values; without it there is no module.
unsafe impl PyTypeInfo for Value {
    #[inline]
    fn type_object_raw(py: Python<'_>) -> *mut ffi::PyTypeObject {
        CLASS.get(py).map_or(std::ptr::null_mut(), |class| class.as_ptr().cast())
    }
}

/// What an object holds.
pub(super) trait Held {
    fn get(&self) -> &Value;
}

impl Held for Py<Value> {
    #[inline]
    fn get(&self) -> &Value {
        // SAFETY: what is a `Py<Value>` is of the class and thus an `Object`, which this reference keeps alive; its value is
        // changed through atomics only.
        unsafe { &(*self.as_ptr().cast::<Object>()).value }
    }
}

impl Held for Bound<'_, Value> {
    #[inline]
    fn get(&self) -> &Value {
        // SAFETY: as above.
        unsafe { &(*self.as_ptr().cast::<Object>()).value }
    }
}

/// The object as a value, if it is one.
#[inline]
pub(super) fn as_value<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Value>> {
    // `cast` would make an error for every number.
    if Value::is_exact_type_of(object) {
        // SAFETY: it is of the class.
        return Some(unsafe { object.cast_unchecked::<Value>() });
    }
    None
}

/// The number that an integer of Python's is, found without a float in between; `None` for anything else.
#[inline]
pub(super) fn integer(object: &Bound<'_, PyAny>) -> Option<PyResult<f64>> {
    if !PyInt::is_exact_type_of(object) {
        return None;
    }
    // SAFETY: it is an integer. -1 may stand for an error, which is then set.
    let number = unsafe { ffi::PyLong_AsDouble(object.as_ptr()) };
    if number == -1.0
        && let Some(error) = PyErr::take(object.py())
    {
        return Some(Err(error));
    }
    Some(Ok(number))
}

/// A new object.
#[inline]
pub(super) fn new(py: Python<'_>, value: Value) -> Result<Py<Value>> {
    // SAFETY: the class says how large an `Object` is; Python fills in the head.
    let object = unsafe { ffi::PyObject_New::<Object>(Value::type_object_raw(py)) };
    if object.is_null() {
        return Err(PyErr::fetch(py).into());
    }
    // SAFETY: the memory is there and nobody else knows of it; with its value it is an object of the class, of which this is
    // the only reference.
    unsafe {
        (&raw mut (*object).value).write(value);
        Ok(Bound::from_owned_ptr(py, object.cast()).cast_into_unchecked::<Value>().unbind())
    }
}

/// What Python calls when the last reference to a value is gone.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: it is an `Object` that nobody else has. The kind is moved out; the other fields need no drop. The memory is from
    // `PyObject_New`, which took a reference to the class for it.
    let kind = unsafe {
        let class = ffi::Py_TYPE(object);
        let kind = (&raw const (*object.cast::<Object>()).value.kind).read();
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
        kind
    };
    if !matches!(kind, Kind::Leaf) {
        // SAFETY: Python frees objects on threads that are attached.
        unsafe { release(kind) };
    }
}

/// How deep drops may nest before operands wait for the outermost one: long chains would exhaust the stack.
const DEPTH: u32 = 64;

/// The drops that Python is in the middle of: one thread's, which does not give Python's lock away meanwhile. Without that
/// lock threads would count together, so that some drops waited for others' sooner.
static NESTED: AtomicU32 = AtomicU32::new(0);
/// Whether there is anything in the list, which takes longer to look at.
static WAITS: AtomicBool = AtomicBool::new(false);
static WAITING: Mutex<Vec<Kind>> = Mutex::new(Vec::new());

fn waiting() -> MutexGuard<'static, Vec<Kind>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops operands, those of long chains in a loop.
///
/// # Safety
///
/// The thread is attached.
#[inline]
unsafe fn release(kind: Kind) {
    let depth = NESTED.load(Relaxed);
    if depth >= DEPTH {
        waiting().push(kind);
        WAITS.store(true, Relaxed);
        return;
    }
    NESTED.store(depth + 1, Relaxed);
    // SAFETY: the caller's.
    unsafe { let_go(kind) };
    while depth == 0 && WAITS.load(Relaxed) {
        let next = waiting().pop();
        match next {
            // SAFETY: the caller's.
            Some(next) => unsafe { let_go(next) },
            None => WAITS.store(false, Relaxed),
        }
    }
    NESTED.store(depth, Relaxed);
}

/// Drops operands. `Py` would leave them to PyO3's next call into Rust, since PyO3 does not count this one.
///
/// # Safety
///
/// The thread is attached.
#[inline]
unsafe fn let_go(kind: Kind) {
    let (first, second) = match kind {
        Kind::Leaf => return,
        Kind::Add(a, b) | Kind::Mul(a, b) => (a, Some(b)),
        Kind::Pow(a, _) | Kind::Apply(_, a) | Kind::Moved(a) => (a, None),
        Kind::Dot(dot) => {
            // Lists that are shared, of which this may be the last owner. Where Python is at its end and nobody can attach,
            // PyO3 keeps the references, and nothing needs them any more.
            let _ = Python::try_attach(|_| drop(dot));
            return;
        }
    };
    // SAFETY: each is a reference that is owned, given up once.
    unsafe {
        ffi::Py_DECREF(first.into_ptr());
        if let Some(second) = second {
            ffi::Py_DECREF(second.into_ptr());
        }
    }
}
