//! Gradients.

use std::sync::{Mutex, PoisonError};

use pyo3::{prelude::*, sync::MutexExt};

use crate::{
    launch,
    value::{Value, graph::Op, object::Held},
    walk::{order, walking},
};

/// Serialises differentiation on GPUs: a launch reads gradients before it runs and stores them afterwards, so
/// concurrent launches would lose updates.
static TURN: Mutex<()> = Mutex::new(());

/// Adds to the gradient of every value that `root` depends on.
pub(crate) fn run(root: &Bound<'_, Value>) -> PyResult<()> {
    let (py, value) = (root.py(), root.get());
    let elsewhere = walking(py, |walk| {
        let order = order(value, walk, |value| !matches!(value.op, Op::Leaf));
        value.grad.set(1.0);
        if order.moved || !value.device_id.is_cpu() {
            let moved = order.moved;
            return Some((order.operands_first(), moved));
        }
        for value in order {
            value.op.differentiate(value.data.get(), value.grad.get());
        }
        None
    });
    match elsewhere {
        None => Ok(()),
        Some((order, moved)) => {
            let _turn = TURN.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
            launch::backward(root, order, moved)
        }
    }
}
