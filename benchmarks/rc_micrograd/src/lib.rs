//! micrograd for Python, written in Rust in the obvious way: each value is a node behind `Rc<RefCell<..>>` that refers
//! to its operands, the topological order is found by recursion with a `HashSet` of visited nodes, and the classes are
//! bound to one thread. `benchmarks/micrograd.py` uses it to represent such packages, for example the `micrograd_rs`
//! published before this one. It has no devices, which cost that package a little time.

use std::{cell::RefCell, collections::HashSet, rc::Rc};

use pyo3::{prelude::*, types::PyList};

/// The operation that made a node.
enum Operation {
    Leaf,
    Add(Node, Node),
    Mul(Node, Node),
    Pow(Node, f64),
    Relu(Node),
}

struct Inner {
    data: f64,
    grad: f64,
    operation: Operation,
}

#[derive(Clone)]
struct Node(Rc<RefCell<Inner>>);

impl Node {
    fn new(data: f64, operation: Operation) -> Node {
        Node(Rc::new(RefCell::new(Inner { data, grad: 0.0, operation })))
    }
    fn leaf(data: f64) -> Node {
        Node::new(data, Operation::Leaf)
    }
    fn data(&self) -> f64 {
        self.0.borrow().data
    }
    fn receive(&self, gradient: f64) {
        self.0.borrow_mut().grad += gradient;
    }

    fn add(&self, other: &Node) -> Node {
        Node::new(self.data() + other.data(), Operation::Add(self.clone(), other.clone()))
    }
    fn mul(&self, other: &Node) -> Node {
        Node::new(self.data() * other.data(), Operation::Mul(self.clone(), other.clone()))
    }
    fn pow(&self, exponent: f64) -> Node {
        Node::new(self.data().powf(exponent), Operation::Pow(self.clone(), exponent))
    }
    fn neg(&self) -> Node {
        self.mul(&Node::leaf(-1.0))
    }
    fn relu(&self) -> Node {
        Node::new(self.data().max(0.0), Operation::Relu(self.clone()))
    }

    /// Appends the nodes that this node depends on, operands first, then the node itself.
    fn order(&self, seen: &mut HashSet<*const RefCell<Inner>>, order: &mut Vec<Node>) {
        if !seen.insert(Rc::as_ptr(&self.0)) {
            return;
        }
        match &self.0.borrow().operation {
            Operation::Leaf => {}
            Operation::Add(a, b) | Operation::Mul(a, b) => {
                a.order(seen, order);
                b.order(seen, order);
            }
            Operation::Pow(a, _) | Operation::Relu(a) => a.order(seen, order),
        }
        order.push(self.clone());
    }

    fn backward(&self) {
        let mut order = Vec::new();
        self.order(&mut HashSet::new(), &mut order);
        self.0.borrow_mut().grad = 1.0;
        for node in order.iter().rev() {
            // Both operands may be the same node, but never the node itself.
            let node = node.0.borrow();
            match &node.operation {
                Operation::Leaf => {}
                Operation::Add(a, b) => {
                    a.receive(node.grad);
                    b.receive(node.grad);
                }
                Operation::Mul(a, b) => {
                    let (left, right) = (a.data(), b.data());
                    a.receive(right * node.grad);
                    b.receive(left * node.grad);
                }
                Operation::Pow(a, exponent) => {
                    let slope = exponent * a.data().powf(exponent - 1.0);
                    a.receive(slope * node.grad);
                }
                Operation::Relu(a) => {
                    let slope = if node.data > 0.0 { 1.0 } else { 0.0 };
                    a.receive(slope * node.grad);
                }
            }
        }
    }
}

/// A number that records how it was computed.
#[pyclass(unsendable)]
struct Value(Node);

#[derive(FromPyObject)]
enum Operand<'py> {
    Value(PyRef<'py, Value>),
    Number(f64),
}

impl Operand<'_> {
    fn node(&self) -> Node {
        match self {
            Operand::Value(value) => value.0.clone(),
            Operand::Number(number) => Node::leaf(*number),
        }
    }
}

#[pymethods]
impl Value {
    #[new]
    fn new(data: f64) -> Value {
        Value(Node::leaf(data))
    }
    #[getter]
    fn data(&self) -> f64 {
        self.0.data()
    }
    #[setter]
    fn set_data(&self, data: f64) {
        self.0.0.borrow_mut().data = data;
    }
    #[getter]
    fn grad(&self) -> f64 {
        self.0.0.borrow().grad
    }
    #[setter]
    fn set_grad(&self, gradient: f64) {
        self.0.0.borrow_mut().grad = gradient;
    }
    fn __add__(&self, other: Operand<'_>) -> Value {
        Value(self.0.add(&other.node()))
    }
    fn __radd__(&self, other: f64) -> Value {
        Value(self.0.add(&Node::leaf(other)))
    }
    fn __mul__(&self, other: Operand<'_>) -> Value {
        Value(self.0.mul(&other.node()))
    }
    fn __rmul__(&self, other: f64) -> Value {
        Value(self.0.mul(&Node::leaf(other)))
    }
    fn __sub__(&self, other: Operand<'_>) -> Value {
        Value(match other {
            Operand::Value(other) => self.0.add(&other.0.neg()),
            Operand::Number(number) => self.0.add(&Node::leaf(-number)),
        })
    }
    fn __rsub__(&self, other: f64) -> Value {
        Value(self.0.neg().add(&Node::leaf(other)))
    }
    fn __truediv__(&self, other: Operand<'_>) -> Value {
        Value(match other {
            Operand::Value(other) => self.0.mul(&other.0.pow(-1.0)),
            Operand::Number(number) => self.0.mul(&Node::leaf(number.powf(-1.0))),
        })
    }
    fn __rtruediv__(&self, other: f64) -> Value {
        Value(self.0.pow(-1.0).mul(&Node::leaf(other)))
    }
    fn __neg__(&self) -> Value {
        Value(self.0.neg())
    }
    fn __pow__(&self, exponent: f64, _modulus: Option<i64>) -> Value {
        Value(self.0.pow(exponent))
    }
    fn relu(&self) -> Value {
        Value(self.0.relu())
    }
    fn backward(&self) {
        self.0.backward();
    }
}

struct Neuron {
    weights: Vec<Node>,
    bias: Node,
    nonlinear: bool,
}

impl Neuron {
    fn call(&self, x: &[Node]) -> Node {
        let products = self.weights.iter().zip(x).map(|(weight, x)| weight.mul(x));
        let sum = products.fold(self.bias.clone(), |sum, product| sum.add(&product));
        if self.nonlinear { sum.relu() } else { sum }
    }
}

/// Layers of neurons, all but the last with ReLU.
#[pyclass(name = "MLP", unsendable)]
struct Mlp(Vec<Vec<Neuron>>);

#[pymethods]
impl Mlp {
    #[new]
    fn new(py: Python<'_>, nin: usize, nouts: Vec<usize>) -> PyResult<Mlp> {
        let uniform = py.import("random")?.getattr("uniform")?;
        let mut layers = Vec::new();
        let mut width = nin;
        for (at, &nout) in nouts.iter().enumerate() {
            let mut layer = Vec::new();
            for _ in 0..nout {
                let weight = |_| Ok(Node::leaf(uniform.call1((-1.0, 1.0))?.extract()?));
                let weights = (0..width).map(weight).collect::<PyResult<_>>()?;
                layer.push(Neuron { weights, bias: Node::leaf(0.0), nonlinear: at + 1 < nouts.len() });
            }
            layers.push(layer);
            width = nout;
        }
        Ok(Mlp(layers))
    }
    fn __call__<'py>(&self, py: Python<'py>, x: Vec<PyRef<'py, Value>>) -> PyResult<Bound<'py, PyAny>> {
        let inputs: Vec<Node> = x.iter().map(|value| value.0.clone()).collect();
        let through =
            |x: Vec<Node>, layer: &Vec<Neuron>| layer.iter().map(|neuron| neuron.call(&x)).collect();
        let results = self.0.iter().fold(inputs, through);
        let mut values =
            results.into_iter().map(|node| Bound::new(py, Value(node))).collect::<PyResult<Vec<_>>>()?;
        match (values.len(), values.pop()) {
            (1, Some(only)) => Ok(only.into_any()),
            (_, last) => {
                values.extend(last);
                Ok(PyList::new(py, values)?.into_any())
            }
        }
    }
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let values = self.nodes().map(|node| Bound::new(py, Value(node.clone())));
        PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)
    }
    fn zero_grad(&self) {
        self.nodes().for_each(|node| node.0.borrow_mut().grad = 0.0);
    }
}

impl Mlp {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().flatten().flat_map(|neuron| neuron.weights.iter().chain([&neuron.bias]))
    }
}

/// `Value` and `MLP` with micrograd's interface.
#[pymodule]
fn rc_micrograd(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Value>()?;
    module.add_class::<Mlp>()
}
