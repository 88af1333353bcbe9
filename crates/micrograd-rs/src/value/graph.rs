//! The operations that create values, with their forward and backward rules.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use pyo3::prelude::*;

use super::{Value, object::Held};

/// A number that several threads may read and write.
pub(crate) struct Number(AtomicU64);

impl Number {
    #[inline]
    pub(crate) fn new(value: f64) -> Number {
        Number(AtomicU64::new(value.to_bits()))
    }
    #[inline]
    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
    #[inline]
    pub(crate) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
    /// Adds; two threads that do so to one gradient at a time take turns with [`crate::walk`]'s lock.
    #[inline]
    pub(crate) fn add(&self, value: f64) {
        self.set(self.get() + value);
    }
}

/// A function of one number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Function {
    Relu,
    Exp,
    Log,
    Tanh,
    Sigmoid,
}

/// The inputs that the neurons of a layer share.
pub(crate) struct Inputs {
    pub(crate) values: Box<[Py<Value>]>,
    /// The last walk that visited these inputs.
    stamp: AtomicU64,
    /// The number of inputs that the walk has passed. Other weighted sums with the same inputs skip them.
    passed: AtomicUsize,
}

impl Inputs {
    pub(crate) fn new(values: Box<[Py<Value>]>) -> Arc<Inputs> {
        Arc::new(Inputs { values, stamp: AtomicU64::new(0), passed: AtomicUsize::new(0) })
    }
}

/// A neuron's weighted sum.
pub(crate) struct Dot {
    /// The weights, then the bias: leaves.
    pub(crate) parameters: Arc<[Py<Value>]>,
    pub(crate) inputs: Arc<Inputs>,
}

impl Dot {
    /// Each weight with its input.
    #[inline]
    pub(crate) fn pairs(&self) -> impl DoubleEndedIterator<Item = (&Py<Value>, &Py<Value>)> {
        let weights = self.parameters.split_last().map_or(&[][..], |(_, weights)| weights);
        weights.iter().zip(self.inputs.values.iter())
    }
    /// The bias.
    #[inline]
    pub(crate) fn bias(&self) -> Option<&Py<Value>> {
        self.parameters.last()
    }
}

/// How a value was made.
pub(crate) enum Op {
    Leaf,
    Add(Py<Value>, Py<Value>),
    Mul(Py<Value>, Py<Value>),
    Pow(Py<Value>, f64),
    Apply(Function, Py<Value>),
    /// A copy from another device.
    Moved(Py<Value>),
    Dot(Box<Dot>),
}

impl Op {
    /// Computes the number from the operands' numbers.
    #[inline]
    pub(crate) fn evaluate(&self) -> f64 {
        match self {
            Op::Add(a, b) => a.get().data.get() + b.get().data.get(),
            Op::Mul(a, b) => a.get().data.get() * b.get().data.get(),
            _ => self.evaluate_rarer(),
        }
    }

    /// [`Op::evaluate`] for everything but sums and products. Not inlined, to keep those short at the call site.
    #[inline(never)]
    fn evaluate_rarer(&self) -> f64 {
        match self {
            Op::Leaf | Op::Add(..) | Op::Mul(..) => 0.0,
            Op::Pow(a, exponent) => a.get().data.get().powf(*exponent),
            Op::Moved(a) => a.get().data.get(),
            Op::Apply(function, a) => function.of(a.get().data.get()),
            Op::Dot(dot) => {
                // In micrograd's order, so that the sum is bit-identical.
                let bias = dot.bias().map_or(0.0, |bias| bias.get().data.get());
                dot.pairs().fold(bias, |sum, (w, x)| sum + w.get().data.get() * x.get().data.get())
            }
        }
    }

    /// Adds this result's contribution to the operands' gradients. `data` is the result's number.
    #[inline]
    pub(crate) fn differentiate(&self, data: f64, gradient: f64) {
        match self {
            Op::Leaf => (),
            Op::Add(a, b) => {
                a.get().grad.add(gradient);
                b.get().grad.add(gradient);
            }
            Op::Mul(a, b) => {
                let (a, b) = (a.get(), b.get());
                a.grad.add(b.data.get() * gradient);
                b.grad.add(a.data.get() * gradient);
            }
            // The result is constant 1; the rule would give 0 times infinity at 0.
            Op::Pow(_, 0.0) => (),
            Op::Pow(a, exponent) => {
                let a = a.get();
                a.grad.add(exponent * a.data.get().powf(exponent - 1.0) * gradient);
            }
            Op::Moved(a) => a.get().grad.add(gradient),
            Op::Apply(function, a) => {
                let a = a.get();
                a.grad.add(function.derivative(a.data.get(), data) * gradient);
            }
            Op::Dot(dot) => {
                for (w, x) in dot.pairs() {
                    let (w, x) = (w.get(), x.get());
                    w.grad.add(x.data.get() * gradient);
                    x.grad.add(w.data.get() * gradient);
                }
                if let Some(bias) = dot.bias() {
                    bias.get().grad.add(gradient);
                }
            }
        }
    }

    /// The first operand that a walk has not visited.
    #[inline]
    pub(crate) fn find_operand(&self, walk: u64, new: impl Fn(&Value) -> bool) -> Option<&Value> {
        match self {
            Op::Leaf => None,
            Op::Add(a, b) | Op::Mul(a, b) => {
                let (a, b) = (a.get(), b.get());
                if new(a) { Some(a) } else { new(b).then_some(b) }
            }
            Op::Pow(a, _) | Op::Apply(_, a) | Op::Moved(a) => {
                let a = a.get();
                new(a).then_some(a)
            }
            // Weights are leaves, and all neurons of a layer have the same inputs.
            Op::Dot(dot) => {
                let inputs = &*dot.inputs;
                if inputs.stamp.load(Relaxed) != walk {
                    inputs.stamp.store(walk, Relaxed);
                    inputs.passed.store(0, Relaxed);
                }
                let passed = inputs.passed.load(Relaxed);
                let found = inputs.values[passed..].iter().position(|input| new(input.get()));
                inputs.passed.store(found.map_or(inputs.values.len(), |found| passed + found + 1), Relaxed);
                found.map(|found| inputs.values[passed + found].get())
            }
        }
    }

    /// The operands, in order.
    pub(crate) fn operands(&self, py: Python<'_>) -> Vec<Py<Value>> {
        match self {
            Op::Leaf => Vec::new(),
            Op::Add(a, b) | Op::Mul(a, b) => vec![a.clone_ref(py), b.clone_ref(py)],
            Op::Pow(a, _) | Op::Apply(_, a) | Op::Moved(a) => vec![a.clone_ref(py)],
            Op::Dot(dot) => {
                let mut all = Vec::with_capacity(2 * dot.parameters.len());
                all.extend(dot.pairs().map(|(w, _)| w.clone_ref(py)));
                all.extend(dot.pairs().map(|(_, x)| x.clone_ref(py)));
                all.extend(dot.bias().map(|bias| bias.clone_ref(py)));
                all
            }
        }
    }
}

impl Function {
    #[inline]
    fn of(self, x: f64) -> f64 {
        match self {
            Function::Relu => {
                if x < 0.0 {
                    0.0
                } else {
                    x
                }
            }
            Function::Exp => x.exp(),
            Function::Log => x.ln(),
            Function::Tanh => x.tanh(),
            // The form that does not overflow for negative x.
            Function::Sigmoid if x < 0.0 => {
                let e = x.exp();
                e / (1.0 + e)
            }
            Function::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        }
    }

    /// The derivative at `x`, where `y` is the function's value.
    #[inline]
    fn derivative(self, x: f64, y: f64) -> f64 {
        match self {
            Function::Relu => f64::from(u8::from(y > 0.0)),
            Function::Exp => y,
            Function::Log => 1.0 / x,
            Function::Tanh => 1.0 - y * y,
            Function::Sigmoid => y * (1.0 - y),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Function::Relu => "ReLU",
            Function::Exp => "exp",
            Function::Log => "log",
            Function::Tanh => "tanh",
            Function::Sigmoid => "sigmoid",
        }
    }
}
