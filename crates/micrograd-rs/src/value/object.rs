//! The class of values and its objects, implemented with Python's C API instead of `#[pyclass]`.
//!
//! Every operator of an expression creates an object, and it is freed soon. PyO3's per-object overhead dominated an
//! operator's time: its classes support the cycle collector, look up allocation functions for every object, and count
//! each call into Rust. Values need none of this: an operand is always older than its result, so no cycle can form, and
//! no other attributes can be set. The class's methods are in `slots`.
//!
//! Everything used here is in Python's stable ABI of 3.10, including inline reference counting, which the headers
//! compile to an addition where PyO3 calls a function. That ABI requires a GIL. Every thread that gets here holds it,
//! so no other thread counts references or creates and frees objects meanwhile. For free-threaded Python this does not
//! compile, because its objects have no such count. PyPy and GraalPy count references differently, so this is for
//! CPython only.

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
    graph::{Dot, Op},
};

/// The memory layout of a value object.
#[repr(C)]
struct Object {
    head: ffi::PyObject,
    value: Value,
}

/// Values can be shared between threads.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Value>();
};

static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The class ``Value``; the first call creates it with these slots and the one that frees.
///
/// # Safety
///
/// Each slot has the type that its number requires. The tables that slots point to live as long as the program and end
/// with an empty entry.
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
    // The terminator.
    slots.push(ffi::PyType_Slot::default());
    // Without `Py_TPFLAGS_BASETYPE` there are no subclasses, so every instance has exactly the layout of `Object`.
    let mut spec = ffi::PyType_Spec {
        name: c"micrograd_rs.Value".as_ptr(),
        basicsize: size_of::<Object>() as c_int,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: every slot has the type that its number requires, and an empty slot ends the list. Python copies the
    // slots, and keeps the name and the tables of methods and attributes, which are never freed. It returns a new
    // reference or null.
    let class = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? };
    // Makes NumPy return NotImplemented for operators with values, so that the value's operator runs.
    class.setattr("__array_ufunc__", py.None())?;
    Ok(class.cast_into::<PyType>()?.unbind())
}

// SAFETY: there is one class without subclasses, so its instances are `Object`s. `register` creates it before any value
// exists; without it there is no module.
unsafe impl PyTypeInfo for Value {
    #[inline]
    fn type_object_raw(py: Python<'_>) -> *mut ffi::PyTypeObject {
        CLASS.get(py).map_or(std::ptr::null_mut(), |class| class.as_ptr().cast())
    }
}

/// Access to the value in an object.
pub(crate) trait Held {
    fn get(&self) -> &Value;
}

impl Held for Py<Value> {
    #[inline]
    fn get(&self) -> &Value {
        // SAFETY: a `Py<Value>` refers to an instance of the class, which is an `Object`, and keeps it alive. Its value
        // is changed only through atomics.
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

/// The object as a value, if it is an instance of the class.
#[inline]
pub(crate) fn as_value<'a, 'py>(object: &'a Bound<'py, PyAny>) -> Option<&'a Bound<'py, Value>> {
    // `cast` would create an error for every number.
    if Value::is_exact_type_of(object) {
        // SAFETY: it is an instance of the class.
        return Some(unsafe { object.cast_unchecked::<Value>() });
    }
    None
}

/// Converts a Python float or integer directly, without an intermediate float object; `None` for anything else.
#[inline]
pub(crate) fn exact_number(object: &Bound<'_, PyAny>) -> Option<PyResult<f64>> {
    if PyFloat::is_exact_type_of(object) {
        // SAFETY: it is a float, so reading it cannot fail.
        return Some(Ok(unsafe { ffi::PyFloat_AsDouble(object.as_ptr()) }));
    }
    if !PyInt::is_exact_type_of(object) {
        return None;
    }
    // SAFETY: it is an integer. -1 may indicate an error, which is then set.
    let number = unsafe { ffi::PyLong_AsDouble(object.as_ptr()) };
    if number == -1.0
        && let Some(error) = PyErr::take(object.py())
    {
        return Some(Err(error));
    }
    Some(Ok(number))
}

/// Creates another reference to a value.
#[inline]
pub(crate) fn share(value: &Bound<'_, Value>) -> Py<Value> {
    let object = value.as_ptr();
    // SAFETY: the object is alive and this thread holds the GIL. The counted reference belongs to the result.
    unsafe {
        (*object).ob_refcnt += 1;
        Bound::from_owned_ptr(value.py(), object).cast_into_unchecked::<Value>().unbind()
    }
}

/// Whether there are references to the object other than this one. The object may be of any class: the extension module
/// also uses this for tensors.
pub fn is_held_elsewhere<T>(object: &Bound<'_, T>) -> bool {
    // SAFETY: the reference keeps the object alive, and the thread is attached.
    unsafe { ffi::Py_REFCNT(object.as_ptr()) > 1 }
}

/// Creates an object.
#[inline]
pub(crate) fn new(py: Python<'_>, value: Value) -> PyResult<Py<Value>> {
    let mut object = reused(py);
    if object.is_null() {
        object = made(py)?;
    }
    // SAFETY: the memory is allocated and not shared. After its value is written it is a complete object, and this is
    // its only reference.
    unsafe {
        (&raw mut (*object).value).write(value);
        Ok(Bound::from_owned_ptr(py, object.cast()).cast_into_unchecked::<Value>().unbind())
    }
}

/// An object allocated by Python whose value is uninitialised.
#[inline(never)]
fn made(py: Python<'_>) -> PyResult<*mut Object> {
    // SAFETY: the class defines the size of an `Object`, and Python initialises the header.
    let object = unsafe { ffi::PyObject_New::<Object>(Value::type_object_raw(py)) };
    if object.is_null() {
        return Err(PyErr::fetch(py));
    }
    Ok(object)
}

/// Freed objects for reuse: allocation and deallocation by Python would take longer than the rest of an operator.
static SPARE: AtomicPtr<Object> = AtomicPtr::new(null_mut());
/// The number of spare objects.
static SPARES: AtomicUsize = AtomicUsize::new(0);
/// The maximum number of spare objects, which take 40 kilobytes. The expressions of small networks fit.
const MOST_SPARES: usize = 512;

/// The link to the next object in a list.
///
/// # Safety
///
/// The memory belongs to an object that was allocated, and is not returned to Python during `'a`.
#[inline]
unsafe fn link<'a>(object: *mut Object) -> &'a AtomicPtr<()> {
    // SAFETY: guaranteed by the caller.
    unsafe { &(*object).value.link }
}

/// Takes a spare object, with one reference and an uninitialised value; null if there is none.
#[inline]
fn reused(_: Python<'_>) -> *mut Object {
    let object = SPARE.load(Relaxed);
    if !object.is_null() {
        // SAFETY: only the list refers to the object, and this thread may use the list because it holds the GIL. The
        // class and memory are those that Python set; the count is that of a new object.
        unsafe {
            SPARE.store(link(object).load(Relaxed).cast(), Relaxed);
            (*object).head.ob_refcnt = 1;
        }
        SPARES.store(SPARES.load(Relaxed) - 1, Relaxed);
    }
    object
}

/// Keeps an object as a spare or returns its memory to Python.
///
/// # Safety
///
/// The thread must be attached. Nothing may refer to the object, its operation must be moved out, and the value's other
/// fields must not need a drop.
#[inline]
unsafe fn recycle(object: *mut Object) {
    let spares = SPARES.load(Relaxed);
    // SAFETY: guaranteed by the caller. The memory is from `PyObject_New`, which took a reference to the class.
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

/// Called by Python when the last reference to a value is gone. Operands without other references are freed in this
/// loop: recursion through Python would exhaust the stack for long chains.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    let mut unused = object.cast::<Object>();
    // SAFETY: Python frees objects on attached threads. The list contains `Object`s without other references, each
    // until its operation is moved out.
    unsafe {
        link(unused).store(null_mut(), Relaxed);
        while !unused.is_null() {
            let object = unused;
            unused = link(object).load(Relaxed).cast();
            let op = (&raw const (*object).value.op).read();
            recycle(object);
            match op {
                Op::Leaf => (),
                Op::Add(a, b) | Op::Mul(a, b) => {
                    let_go(a, &mut unused);
                    let_go(b, &mut unused);
                }
                Op::Pow(a, _) | Op::Apply(_, a) | Op::Moved(a) => let_go(a, &mut unused),
                Op::Dot(dot) => let_go_of_sum(*dot, &mut unused),
            }
        }
    }
}

/// Releases a reference. If it was the last one, the value is added to the list. Dropping a `Py` would be deferred to
/// PyO3's next call into Rust, because PyO3 does not know about this call.
///
/// # Safety
///
/// The thread must be attached. Nothing else may refer to the objects in the list.
#[inline]
unsafe fn let_go(value: Py<Value>, unused: &mut *mut Object) {
    let object = value.into_ptr();
    // SAFETY: the reference keeps the object alive, and it is released once.
    unsafe {
        if (*object).ob_refcnt == 1 {
            link(object.cast()).store((*unused).cast(), Relaxed);
            *unused = object.cast();
        } else {
            (*object).ob_refcnt -= 1;
        }
    }
}

/// Releases a weighted sum's share of its inputs and parameters.
///
/// # Safety
///
/// As for [`let_go`].
unsafe fn let_go_of_sum(dot: Dot, unused: &mut *mut Object) {
    if let Some(inputs) = Arc::into_inner(dot.inputs) {
        for value in inputs.values {
            // SAFETY: guaranteed by the caller.
            unsafe { let_go(value, unused) };
        }
    }
    if Arc::strong_count(&dot.parameters) == 1 {
        // The network is gone. Parameters are leaves, so their drops do not nest. During Python's finalization no
        // thread can attach; then PyO3 keeps the references, which does no harm.
        let _ = Python::try_attach(|_| drop(dot.parameters));
    }
}
