//! A value: its number, how it was made, and the Python object that holds it. The three contain each other.
//!
//! A value is one Python object that holds number, gradient and references to its operands: building an expression takes
//! one object a value, and a dropped expression is freed at once.

pub(crate) mod graph;
pub(crate) mod object;

use std::{
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64},
};

use pyo3::prelude::*;

use self::graph::{Number, Op};
use crate::device::DeviceId;

/// A number on a device, whose gradient can be found.
pub(crate) struct Value {
    pub(crate) data: Number,
    pub(crate) grad: Number,
    /// The last walk that came by.
    pub(crate) stamp: AtomicU64,
    /// The next of a list that it is in: of a walk's, or of objects that are freed.
    pub(crate) link: AtomicPtr<()>,
    pub(crate) op: Op,
    pub(crate) device_id: DeviceId,
    /// True while the number is still to be computed, on a GPU.
    pub(crate) pending: AtomicBool,
}

impl Value {
    #[inline]
    pub(crate) fn with(data: f64, device_id: DeviceId, op: Op) -> Value {
        Value {
            data: Number::new(data),
            grad: Number::new(0.0),
            stamp: AtomicU64::new(0),
            link: AtomicPtr::new(null_mut()),
            op,
            device_id,
            pending: AtomicBool::new(false),
        }
    }

    /// A leaf.
    #[inline]
    pub(crate) fn leaf(py: Python<'_>, data: f64, device_id: DeviceId) -> PyResult<Py<Value>> {
        object::new(py, Value::with(data, device_id, Op::Leaf))
    }
}
