//! Topological order of values, and gradients.

use std::{
    marker::PhantomData,
    ptr::null_mut,
    sync::{Mutex, atomic::Ordering::Relaxed},
};

use pyo3::{prelude::*, sync::MutexExt};

use crate::{graph::Kind, launch, object::Held, value::Value};

/// The number of walks so far. Each walk marks the values that it visits with its number. Holding the lock gives the
/// right to add to gradients.
static WALKS: Mutex<u64> = Mutex::new(0);

/// Serializes differentiation on GPUs: a launch reads gradients before it runs and stores them afterwards, so
/// concurrent launches would lose updates.
static TURN: Mutex<()> = Mutex::new(());

/// The right to mark and link values, with the number of the walk.
pub(crate) struct Walk(u64);

/// Runs a function as a new walk, with exclusive access.
pub(crate) fn walking<R>(py: Python<'_>, function: impl FnOnce(&Walk) -> R) -> R {
    let mut walks = WALKS.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
    *walks += 1;
    function(&Walk(*walks))
}

/// An iterator over values, each before its operands. It follows the links, which belong to the walk.
pub(crate) struct Order<'a, 'w> {
    next: *mut Value,
    /// Whether any of the values came from another device.
    pub(crate) moved: bool,
    values: PhantomData<(&'a Value, &'w Walk)>,
}

impl<'a> Order<'a, '_> {
    /// Collects the values in a list, operands first.
    pub(crate) fn operands_first(self) -> Vec<&'a Value> {
        let mut values: Vec<&Value> = self.collect();
        values.reverse();
        values
    }
}

impl<'a> Iterator for Order<'a, '_> {
    type Item = &'a Value;

    #[inline]
    fn next(&mut self) -> Option<&'a Value> {
        // SAFETY: null, or a value that `order` found and `root` keeps alive. No other walk changes the links.
        let value = unsafe { self.next.as_ref() }?;
        self.next = value.link.load(Relaxed).cast();
        Some(value)
    }
}

/// The order of `root` and the values that it depends on, limited to `wanted` ones: all results, or only pending
/// values. Operands of unwanted values are not visited.
///
/// A value links to the value from which the walk reached it and, once all its operands are in the order, to the value
/// before it in the order. The walk therefore allocates no memory and handles chains of any length.
pub(crate) fn order<'a, 'w>(
    root: &'a Value,
    walk: &'w Walk,
    wanted: impl Fn(&Value) -> bool,
) -> Order<'a, 'w> {
    let new = |value: &Value| value.stamp.load(Relaxed) != walk.0 && wanted(value);
    let pointer = |value: &Value| std::ptr::from_ref(value).cast_mut();
    let enter = |value: &Value, from: *mut Value| {
        value.stamp.store(walk.0, Relaxed);
        value.link.store(from.cast(), Relaxed);
    };
    let mut order = Order { next: null_mut(), moved: false, values: PhantomData };
    if !wanted(root) {
        return order;
    }
    enter(root, null_mut());
    let mut value = root;
    loop {
        if let Some(operand) = value.kind.find_operand(walk.0, new) {
            enter(operand, pointer(value));
            value = operand;
            continue;
        }
        order.moved |= matches!(value.kind, Kind::Moved(_));
        let from: *mut Value = value.link.load(Relaxed).cast();
        value.link.store(order.next.cast(), Relaxed);
        order.next = pointer(value);
        // SAFETY: null, or a value that the walk came from, which `root` keeps alive.
        match unsafe { from.as_ref() } {
            Some(from) => value = from,
            None => return order,
        }
    }
}

/// Adds to the gradient of every value that `root` depends on.
pub(crate) fn run(root: &Bound<'_, Value>) -> PyResult<()> {
    let (py, value) = (root.py(), root.get());
    let elsewhere = walking(py, |walk| {
        let order = order(value, walk, |value| !matches!(value.kind, Kind::Leaf));
        value.grad.set(1.0);
        if order.moved || !value.place.is_cpu() {
            let moved = order.moved;
            return Some((order.operands_first(), moved));
        }
        for value in order {
            value.kind.differentiate(value.data.get(), value.grad.get());
        }
        None
    });
    match elsewhere {
        None => Ok(()),
        Some((order, moved)) => {
            let _turn = TURN.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
            launch::backward(root, order, moved)
        }
    }
}
