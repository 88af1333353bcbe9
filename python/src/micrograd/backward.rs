//! The order in which values were made, and gradients.

use std::sync::{Mutex, atomic::Ordering::Relaxed};

use pyo3::{prelude::*, sync::MutexExt};

use super::{graph::Kind, launch, object::Held, value::Value};
use crate::error::Result;

/// The number of walks so far: each marks the values that it visits with its own. Holding it is the right to add to
/// gradients.
static WALKS: Mutex<u64> = Mutex::new(0);

/// Whose turn it is to differentiate on GPUs: a launch reads gradients before it and stores them after it, so that two at a
/// time would lose some.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a function with the number of a new walk, while no other one walks.
pub(super) fn walking<R>(py: Python<'_>, function: impl FnOnce(u64) -> R) -> R {
    let mut walks = WALKS.lock_py_attached(py).unwrap_or_else(std::sync::PoisonError::into_inner);
    *walks += 1;
    function(*walks)
}

/// What an order is made of: results, or only those that are still to be computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    Results,
    Pending,
}

/// What `root` was made from and itself, operands first, without leaves; and whether some of it came from another
/// device. The stack is a list, so that a chain may be long.
pub(super) fn order(root: &Value, walk: u64, wanted: Walk) -> (Vec<&Value>, bool) {
    let takes = |value: &Value| match wanted {
        Walk::Results => !matches!(value.kind, Kind::Leaf),
        Walk::Pending => value.pending.load(Relaxed),
    };
    let (mut order, mut moved) = (Vec::with_capacity(64), false);
    let mut stack: Vec<(&Value, usize)> = Vec::with_capacity(64);
    if takes(root) {
        root.stamp.store(walk, Relaxed);
        stack.push((root, 0));
    }
    while let Some(top) = stack.last_mut() {
        let (value, at) = *top;
        top.1 += 1;
        let operand = match (&value.kind, at) {
            (Kind::Add(a, _) | Kind::Mul(a, _) | Kind::Pow(a, _) | Kind::Apply(_, a) | Kind::Moved(a), 0)
            | (Kind::Add(_, a) | Kind::Mul(_, a), 1) => Some(a),
            // Weights are leaves, and the inputs are the same for every neuron of a layer.
            (Kind::Dot(dot), 0) if dot.inputs.stamp.swap(walk, Relaxed) == walk => None,
            (Kind::Dot(dot), at) => dot.inputs.values.get(at),
            _ => None,
        };
        match operand {
            Some(operand) => {
                let operand = operand.get();
                if operand.stamp.load(Relaxed) != walk && takes(operand) {
                    operand.stamp.store(walk, Relaxed);
                    stack.push((operand, 0));
                }
            }
            None => {
                moved |= matches!(value.kind, Kind::Moved(_));
                order.push(value);
                stack.pop();
            }
        }
    }
    (order, moved)
}

/// Adds to the gradient of every value that `root` was made from.
pub(super) fn run(root: &Bound<'_, Value>) -> Result<()> {
    let (py, value) = (root.py(), root.get());
    let elsewhere = walking(py, |walk| {
        let (order, moved) = order(value, walk, Walk::Results);
        value.grad.set(1.0);
        if moved || !value.place.is_cpu() {
            return Some((order, moved));
        }
        for value in order.into_iter().rev() {
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
