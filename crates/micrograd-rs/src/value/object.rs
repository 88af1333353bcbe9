//! The objects that hold values, and their class, made with Python's C interface instead of `#[pyclass]`.
//!
//! An expression makes an object for every operator and frees it again: what PyO3 does round that was most of an operator's
//! time. Its classes take part in the search for cycles, find the functions that make and free memory anew for every object,
//! and count each call into Rust. Values need none of it: their operands are older than they are, so that no cycle can form,
//! and nothing else can be put into them. `slots` has what the class's methods are.
//!
//! All of it is in Python's stable interface of 3.10, counting references included: its headers compile `Py_INCREF` to an
//! addition, where PyO3 calls a function. That interface is of Pythons with a lock, which every thread that gets here holds, so
//! that nobody else counts, makes or frees meanwhile. For Pythons without it this does not compile: their objects have no such
//! count. PyPy and GraalPy keep count in another way: this is for CPython alone.

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr::null_mut,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed},
    },
};

use pyo3::{
    PyTypeInfo, ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyFloat, PyInt, PyType},
};

use super::{
    Value,
    graph::{Dot, Kind},
};

/// A value as Python has it.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    value: Value,
}

/// Threads may share values.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Value>();
};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The class ``Value``; the first call creates it with these slots and the one that frees.
///
/// # Safety
///
/// Each slot has the type that its number requires. The tables that slots point to live as long as the program and end with
/// an empty entry.
pub(crate) unsafe fn class(
    py: Python<'_>,
    slots: impl FnOnce() -> Vec<ffi::PyType_Slot>,
) -> PyResult<&Bound<'_, PyType>> {
    // SAFETY: the caller's.
    Ok(CLASS.get_or_try_init(py, || unsafe { make_class(py, slots()) })?.bind(py))
}

/// # Safety
///
/// As for [`class`].
unsafe fn make_class(py: Python<'_>, mut slots: Vec<ffi::PyType_Slot>) -> PyResult<Py<PyType>> {
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
    Ok(class.cast_into::<PyType>()?.unbind())
}

// SAFETY: it is one class, whose objects are `Object`s, since it has no subclasses. `register` makes it before anything that is
// made of values; without it there is no module.
unsafe impl PyTypeInfo for Value {
    #[inline]
    fn type_object_raw(py: Python<'_>) -> *mut ffi::PyTypeObject {
        CLASS.get(py).map_or(std::ptr::null_mut(), |class| class.as_ptr().cast())
    }
}

/// What an object holds.
pub(crate) trait Held {
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
pub(crate) fn as_value<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Value>> {
    // `cast` would make an error for every number.
    if Value::is_exact_type_of(object) {
        // SAFETY: it is of the class.
        return Some(unsafe { object.cast_unchecked::<Value>() });
    }
    None
}

/// The number that a float of Python's is, or an integer, without a float in between; `None` for anything else.
#[inline]
pub(crate) fn exact_number(object: &Bound<'_, PyAny>) -> Option<PyResult<f64>> {
    if PyFloat::is_exact_type_of(object) {
        // SAFETY: it is a float, of which reading cannot fail.
        return Some(Ok(unsafe { ffi::PyFloat_AsDouble(object.as_ptr()) }));
    }
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

/// Another reference to a value.
#[inline]
pub(crate) fn share(value: &Bound<'_, Value>) -> Py<Value> {
    let object = value.as_ptr();
    // SAFETY: the object is alive and this thread holds Python's lock. The reference that is counted is the result's.
    unsafe {
        (*object).ob_refcnt += 1;
        Bound::from_owned_ptr(value.py(), object).cast_into_unchecked::<Value>().unbind()
    }
}

/// Whether somebody but the holder of this reference has the object. It may be of any class: the extension module asks for
/// tensors.
pub fn is_held_elsewhere<T>(object: &Bound<'_, T>) -> bool {
    // SAFETY: the reference keeps the object alive, on a thread that is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) > 1 }
}

/// A new object.
#[inline]
pub(crate) fn new(py: Python<'_>, value: Value) -> PyResult<Py<Value>> {
    let mut object = reused(py);
    if object.is_null() {
        object = made(py)?;
    }
    // SAFETY: the memory is there and nobody else knows of it; with its value it is an object of the class, of which this is
    // the only reference.
    unsafe {
        (&raw mut (*object).value).write(value);
        Ok(Bound::from_owned_ptr(py, object.cast()).cast_into_unchecked::<Value>().unbind())
    }
}

/// An object that Python makes, whose value is still to be written.
#[inline(never)]
fn made(py: Python<'_>) -> PyResult<*mut Object> {
    // SAFETY: the class says how large an `Object` is; Python fills in the head.
    let object = unsafe { ffi::PyObject_New::<Object>(Value::type_object_raw(py)) };
    if object.is_null() {
        return Err(PyErr::fetch(py));
    }
    Ok(object)
}

/// Objects that nobody has, for the next ones that are made: Python's own making and freeing takes longer than all else
/// that an operator does.
static SPARE: AtomicPtr<Object> = AtomicPtr::new(null_mut());
/// How many there are.
static SPARES: AtomicUsize = AtomicUsize::new(0);
/// How many are kept at most, 40 kilobytes: the expressions of small networks come and go in them.
const MOST_SPARES: usize = 512;

/// Where an object has the next of a list that it is in.
///
/// # Safety
///
/// It is the memory of an object that was made, and is not given back to Python for `'a`.
#[inline]
unsafe fn link<'a>(object: *mut Object) -> &'a AtomicPtr<()> {
    // SAFETY: the caller's.
    unsafe { &(*object).value.link }
}

/// A spare object, with one reference and a value that is still to be written; null if there is none.
#[inline]
fn reused(_: Python<'_>) -> *mut Object {
    let object = SPARE.load(Relaxed);
    if !object.is_null() {
        // SAFETY: nobody but the list has the object, and the list is this thread's while it holds Python's lock. Class and
        // memory are still those that Python gave it; the count is what it gives a new one.
        unsafe {
            SPARE.store(link(object).load(Relaxed).cast(), Relaxed);
            (*object).head.ob_refcnt = 1;
        }
        SPARES.store(SPARES.load(Relaxed) - 1, Relaxed);
    }
    object
}

/// Keeps an object as a spare, or gives it back to Python.
///
/// # Safety
///
/// The thread is attached. Nobody has the object, whose kind was moved out; the value's other fields need no drop.
#[inline]
unsafe fn recycle(object: *mut Object) {
    let spares = SPARES.load(Relaxed);
    // SAFETY: the caller's. The memory is from `PyObject_New`, which took a reference to the class for it.
    unsafe {
        if spares < MOST_SPARES {
            link(object).store(SPARE.load(Relaxed).cast(), Relaxed);
            SPARE.store(object, Relaxed);
            SPARES.store(spares + 1, Relaxed);
        } else {
            let class = ffi::Py_TYPE(object.cast());
            ffi::PyObject_Free(object.cast());
            ffi::Py_DECREF(class.cast());
        }
    }
}

/// What Python calls when the last reference to a value is gone. Operands that nobody else has are freed in its loop instead of
/// by Python, which would come back here: long chains would exhaust the stack.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let mut unused = object.cast::<Object>();
    // SAFETY: Python frees objects on attached threads. Those of the list are `Object`s that nobody else has, each until its
    // kind is moved out.
    unsafe {
        link(unused).store(null_mut(), Relaxed);
        while !unused.is_null() {
            let object = unused;
            unused = link(object).load(Relaxed).cast();
            let kind = (&raw const (*object).value.kind).read();
            recycle(object);
            match kind {
                Kind::Leaf => (),
                Kind::Add(a, b) | Kind::Mul(a, b) => {
                    let_go(a, &mut unused);
                    let_go(b, &mut unused);
                }
                Kind::Pow(a, _) | Kind::Apply(_, a) | Kind::Moved(a) => let_go(a, &mut unused),
                Kind::Dot(dot) => let_go_of_sum(*dot, &mut unused),
            }
        }
    }
}

/// Gives up a reference; a value of which it was the last joins the list. The drop of a `Py` would leave it to PyO3's next
/// call into Rust, since PyO3 does not count this one.
///
/// # Safety
///
/// The thread is attached. What the list holds, nobody else has.
#[inline]
unsafe fn let_go(value: Py<Value>, unused: &mut *mut Object) {
    let object = value.into_ptr();
    // SAFETY: the reference keeps the object alive, and it is given up once.
    unsafe {
        if (*object).ob_refcnt == 1 {
            link(object.cast()).store((*unused).cast(), Relaxed);
            *unused = object.cast();
        } else {
            (*object).ob_refcnt -= 1;
        }
    }
}

/// Gives up a weighted sum's share of its lists.
///
/// # Safety
///
/// As for [`let_go`].
unsafe fn let_go_of_sum(dot: Dot, unused: &mut *mut Object) {
    if let Some(inputs) = Arc::into_inner(dot.inputs) {
        for value in inputs.values {
            // SAFETY: the caller's.
            unsafe { let_go(value, unused) };
        }
    }
    if Arc::strong_count(&dot.parameters) == 1 {
        // The network is gone. Parameters are leaves: their drops do not nest. Where Python is at its end and nobody can
        // attach, PyO3 keeps the references, and nothing needs them any more.
        let _ = Python::try_attach(|_| drop(dot.parameters));
    }
}
