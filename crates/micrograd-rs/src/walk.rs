//! The order in which values were made.

use std::{
    marker::PhantomData,
    ptr::null_mut,
    sync::{Mutex, atomic::Ordering::Relaxed},
};

use pyo3::{Python, sync::MutexExt};

use crate::value::{Value, graph::Op};

/// The number of walks so far: each marks the values that it visits with its own. Holding it is the right to add to
/// gradients.
static WALKS: Mutex<u64> = Mutex::new(0);

/// The right to mark and link values, and the number of who has it.
pub(crate) struct Walk(u64);

/// Runs a function as a new walk, while no other one walks.
pub(crate) fn walking<R>(py: Python<'_>, function: impl FnOnce(&Walk) -> R) -> R {
    let mut walks = WALKS.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
    *walks += 1;
    function(&Walk(*walks))
}

/// Values, each before its operands: an iterator along their links, which are the walk's.
pub(crate) struct Order<'a, 'w> {
    next: *mut Value,
    /// Whether some of it came from another device.
    pub(crate) moved: bool,
    values: PhantomData<(&'a Value, &'w Walk)>,
}

impl<'a> Order<'a, '_> {
    /// As a list, operands first.
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
        // SAFETY: null, or a value that `order` found, of those that `root` keeps alive. No other walk changes the links.
        let value = unsafe { self.next.as_ref() }?;
        self.next = value.link.load(Relaxed).cast();
        Some(value)
    }
}

/// What `root` was made from and itself, as far as `wanted`: results, or only those that are still to be computed. Operands
/// are reached through wanted values only.
///
/// Values link to where the walk came from, and once all their operands are in the order, to the value before them in it. So
/// it needs no memory, and a chain may be long.
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
        if let Some(operand) = value.op.find_operand(walk.0, new) {
            enter(operand, pointer(value));
            value = operand;
            continue;
        }
        order.moved |= matches!(value.op, Op::Moved(_));
        let from: *mut Value = value.link.load(Relaxed).cast();
        value.link.store(order.next.cast(), Relaxed);
        order.next = pointer(value);
        // SAFETY: null, or a value from which the walk came, which `root` keeps alive.
        match unsafe { from.as_ref() } {
            Some(from) => value = from,
            None => return order,
        }
    }
}
