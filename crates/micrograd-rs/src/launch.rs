//! Expressions on a GPU. They are recorded as they are written and computed when a number is read: one launch of an
//! interpreter kernel for the whole expression, or several if it is very long. Numbers are f64 if the device supports
//! it, else f32.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
};

use pyo3::{exceptions::PyRuntimeError, prelude::*, sync::MutexExt};

use crate::{
    device::DeviceId,
    host::host,
    kernel::launch,
    value::{
        Value,
        graph::{Function, Op},
        object::{Held, is_held_elsewhere},
    },
    walk::{order, walking},
};

/// Pending values in the order of their creation. Values without other references are dropped from time to time.
#[derive(Default)]
struct Recorded {
    values: Vec<Py<Value>>,
    /// The list is pruned when it reaches this length.
    limit: usize,
}

static RECORDED: Mutex<Recorded> = Mutex::new(Recorded { values: Vec::new(), limit: 1024 });

impl Recorded {
    fn prune(&mut self, py: Python<'_>) {
        let mut kept = Vec::new();
        // Start with the newest: dropping it may leave its operands with references from this list only.
        while let Some(value) = self.values.pop() {
            if value.get().pending.load(Relaxed) && is_held_elsewhere(value.bind(py)) {
                kept.push(value);
            }
        }
        kept.reverse();
        self.limit = 1024.max(2 * kept.len());
        self.values = kept;
    }
}

fn recorded<R>(py: Python<'_>, function: impl FnOnce(&mut Recorded) -> R) -> R {
    function(&mut RECORDED.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
}

/// Records a value to compute later.
pub(crate) fn remember(py: Python<'_>, value: &Py<Value>) {
    recorded(py, |recorded| {
        if recorded.values.len() >= recorded.limit {
            recorded.prune(py);
        }
        recorded.values.push(value.clone_ref(py));
    });
}

/// Drops computed values from the list, if that is no more work than the computation was.
fn forget(py: Python<'_>, computed: usize) {
    recorded(py, |recorded| {
        if recorded.values.len() <= 4 * computed + 64 {
            recorded.prune(py);
        }
    });
}

/// Computes a value and the values that it depends on.
pub(crate) fn evaluate(root: &Bound<'_, Value>) -> PyResult<()> {
    let py = root.py();
    let pending = |value: &Value| value.pending.load(Relaxed);
    let order = walking(py, |walk| order(root.get(), walk, pending).operands_first());
    compute(py, root.get().device_id, &order)
}

/// Computes all recorded values of a device.
pub(crate) fn evaluate_all(py: Python<'_>, device_id: DeviceId) -> PyResult<()> {
    let all: Vec<Py<Value>> = recorded(py, |recorded| {
        let here = recorded.values.iter().filter(|value| value.get().device_id == device_id);
        here.map(|value| value.clone_ref(py)).collect()
    });
    let pending: Vec<&Value> =
        all.iter().map(|value| value.get()).filter(|value| value.pending.load(Relaxed)).collect();
    compute(py, device_id, &pending)
}

fn compute(py: Python<'_>, device_id: DeviceId, order: &[&Value]) -> PyResult<()> {
    if order.is_empty() {
        return Ok(());
    }
    for piece in pieces(order) {
        Tape::of(piece).run(py, device_id, false)?;
    }
    forget(py, order.len());
    Ok(())
}

/// Computes the pending values of an order and adds to the gradients of their operands.
fn differentiate(py: Python<'_>, device_id: DeviceId, order: &[&Value]) -> PyResult<()> {
    let pieces = pieces(order);
    if pieces.len() > 1 {
        for piece in &pieces {
            Tape::of(piece).run(py, device_id, false)?;
        }
    }
    for piece in pieces.iter().rev() {
        Tape::of(piece).run(py, device_id, true)?;
    }
    forget(py, order.len());
    Ok(())
}

/// The maximum work of one launch, in iterations of the kernel's loops; it corresponds to 2,500 sums or products.
/// Drivers abort kernels that run for seconds, and Mesa's emulator silently stops loops after about 32,000 iterations.
const WORK: usize = 30_000;

/// Splits an order into one part per launch.
fn pieces<'a, 'b>(order: &'b [&'a Value]) -> Vec<&'b [&'a Value]> {
    let (mut pieces, mut start, mut work) = (Vec::new(), 0, 0);
    for (at, value) in order.iter().enumerate() {
        // The cost of copying the value and operands from other parts, for which up to twice the room is reserved, and
        // of visiting them forward and backward.
        let more = match &value.op {
            Op::Dot(dot) => 12 + 10 * dot.parameters.len(),
            _ => 12,
        };
        if work + more > WORK && at > start {
            pieces.push(&order[start..at]);
            (start, work) = (at, 0);
        }
        work += more;
    }
    pieces.push(&order[start..]);
    pieces
}

/// Computes the gradients for the last value of `order`, if not all values are on the CPU. The values on one device
/// between two copies take one launch.
pub(crate) fn backward(root: &Bound<'_, Value>, order: Vec<&Value>, moved: bool) -> PyResult<()> {
    let (py, root) = (root.py(), root.get());
    if !moved {
        return differentiate(py, root.device_id, &order);
    }
    let pending: Vec<&Value> = order.iter().copied().filter(|value| value.pending.load(Relaxed)).collect();
    compute(py, root.device_id, &pending)?;
    // The number of copies between a value and its leaves. A value never depends on one with the same number on another
    // device.
    let mut moves: HashMap<*const Value, usize> = HashMap::new();
    let mut groups: HashMap<(usize, u8), (DeviceId, Vec<&Value>)> = HashMap::new();
    for value in order {
        let mut count = 0;
        for operand in value.op.operands(py) {
            count = count.max(moves.get(&std::ptr::from_ref(operand.get())).copied().unwrap_or(0));
        }
        count += usize::from(matches!(value.op, Op::Moved(_)));
        moves.insert(value, count);
        groups
            .entry((count, value.device_id.number()))
            .or_insert_with(|| (value.device_id, Vec::new()))
            .1
            .push(value);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_unstable_by_key(|(key, _)| std::cmp::Reverse(*key));
    for (_, (device_id, values)) in groups {
        if !device_id.is_cpu() && values.iter().any(|value| !matches!(value.op, Op::Moved(_))) {
            differentiate(py, device_id, &values)?;
        }
        walking(py, |_| {
            for value in values.iter().rev() {
                if device_id.is_cpu() || matches!(value.op, Op::Moved(_)) {
                    value.op.differentiate(value.data.get(), value.grad.get());
                }
            }
        });
    }
    Ok(())
}

/// Values in the form that the kernel reads.
#[derive(Default)]
struct Tape<'a> {
    values: Vec<&'a Value>,
    slots: HashMap<*const Value, i32>,
    /// For each value: operation, two operands, and whether the number is known.
    code: Vec<[i32; 4]>,
    /// The operands of weighted sums: weights, inputs, bias.
    operands: Vec<i32>,
}

/// The kernel's operation codes.
mod opcode {
    pub(super) const LEAF: i32 = 0;
    pub(super) const ADD: i32 = 1;
    pub(super) const MUL: i32 = 2;
    pub(super) const POW: i32 = 3;
    pub(super) const DOT: i32 = 4;
    pub(super) const RELU: i32 = 5;
    pub(super) const EXP: i32 = 6;
    pub(super) const LOG: i32 = 7;
    pub(super) const TANH: i32 = 8;
    pub(super) const SIGMOID: i32 = 9;
}

impl<'a> Tape<'a> {
    /// Encodes the values of an order. Operands outside the order become leaves.
    fn of(order: &[&'a Value]) -> Tape<'a> {
        let mut tape = Tape::default();
        for value in order {
            let code = match &value.op {
                Op::Leaf | Op::Moved(_) => [opcode::LEAF, 0, 0],
                Op::Add(a, b) => [opcode::ADD, tape.slot(a.get()), tape.slot(b.get())],
                Op::Mul(a, b) => [opcode::MUL, tape.slot(a.get()), tape.slot(b.get())],
                Op::Pow(a, _) => [opcode::POW, tape.slot(a.get()), 0],
                Op::Apply(function, a) => {
                    let code = match function {
                        Function::Relu => opcode::RELU,
                        Function::Exp => opcode::EXP,
                        Function::Log => opcode::LOG,
                        Function::Tanh => opcode::TANH,
                        Function::Sigmoid => opcode::SIGMOID,
                    };
                    [code, tape.slot(a.get()), 0]
                }
                Op::Dot(dot) => {
                    let weights: Vec<i32> = dot.pairs().map(|(w, _)| tape.slot(w.get())).collect();
                    let inputs: Vec<i32> = dot.pairs().map(|(_, x)| tape.slot(x.get())).collect();
                    let bias = dot.bias().map(|bias| tape.slot(bias.get()));
                    let (start, count) = (tape.operands.len(), weights.len());
                    tape.operands.extend(weights.into_iter().chain(inputs).chain(bias));
                    [opcode::DOT, small(start), small(count)]
                }
            };
            let [opcode, a, b] = code;
            tape.push(value, [opcode, a, b, i32::from(!value.pending.load(Relaxed))]);
        }
        tape
    }

    fn push(&mut self, value: &'a Value, code: [i32; 4]) -> i32 {
        let slot = small(self.values.len());
        self.slots.insert(value, slot);
        self.values.push(value);
        self.code.push(code);
        slot
    }

    fn slot(&mut self, value: &'a Value) -> i32 {
        match self.slots.get(&std::ptr::from_ref(value)) {
            Some(slot) => *slot,
            None => self.push(value, [opcode::LEAF, 0, 0, 1]),
        }
    }

    /// Computes pending numbers and, if `gradients` is set, gradients, and writes both back.
    fn run(self, py: Python<'_>, device_id: DeviceId, gradients: bool) -> PyResult<()> {
        let Some(device) = device_id.device() else { return Ok(()) };
        let count = self.values.len();
        // Use few distinct sizes, so that plans and memory are reused.
        let room = count.next_power_of_two().max(16);
        if i32::try_from(4 * room + 4).is_err() || i32::try_from(self.operands.len()).is_err() {
            return Err(PyRuntimeError::new_err(format!(
                "an expression of {count} values is too long for one launch"
            )));
        }
        let mut code = vec![small(count), i32::from(gradients), 0, 0];
        code.extend(self.code.iter().flatten());
        code.resize(4 * room + 4, 0);
        let mut operands = self.operands;
        operands.resize(operands.len().next_power_of_two().max(16), 0);
        let mut given = vec![0.0; 3 * room];
        for (at, value) in self.values.iter().enumerate() {
            given[at] = value.data.get();
            given[room + at] = if let Op::Pow(_, exponent) = value.op { exponent } else { 0.0 };
            given[2 * room + at] = value.grad.get();
        }
        let results = (host()?.compute)(py, Box::new(|| launch(device, &code, &operands, given)))?;
        for (at, value) in self.values.iter().enumerate() {
            if value.pending.swap(false, Relaxed) {
                value.data.set(results[at]);
            }
            if gradients {
                value.grad.set(results[room + at]);
            }
        }
        Ok(())
    }
}

/// Converts a count that [`Tape::run`] checks.
fn small(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
