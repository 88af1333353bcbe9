//! Networks of values: ``Neuron``, ``Layer``, ``MLP``.
//!
//! A call creates one value for each neuron's weighted sum and one for its ReLU, instead of one for each product and
//! sum.

use std::sync::Arc;

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyList, PyTuple, PyType},
};

use crate::{
    Reduced,
    device::{DeviceId, PyDevice},
    host::Count,
    operators::common,
    reduced,
    value::{
        Value,
        graph::{Dot, Function, Inputs, Op},
        object::Held,
    },
};

/// A neuron's parameters.
#[derive(Clone)]
struct Unit {
    /// The weights, then the bias.
    parameters: Arc<[Py<Value>]>,
    nonlinear: bool,
}

impl Unit {
    fn new(uniform: &Bound<'_, PyAny>, nin: usize, nonlinear: bool, device_id: DeviceId) -> PyResult<Unit> {
        let py = uniform.py();
        let mut parameters = Vec::new();
        for _ in 0..nin {
            parameters.push(Value::leaf(py, uniform.call1((-1.0, 1.0))?.extract()?, device_id)?);
        }
        parameters.push(Value::leaf(py, 0.0, device_id)?);
        Ok(Unit { parameters: parameters.into(), nonlinear })
    }

    fn call(&self, py: Python<'_>, device_id: DeviceId, inputs: &Arc<Inputs>) -> PyResult<Py<Value>> {
        let dot = Dot { parameters: self.parameters.clone(), inputs: inputs.clone() };
        let sum = Value::result(py, device_id, Op::Dot(Box::new(dot)))?;
        if self.nonlinear {
            return Value::result(py, device_id, Op::Apply(Function::Relu, sum));
        }
        Ok(sum)
    }

    fn show(&self) -> String {
        let kind = if self.nonlinear { "ReLU" } else { "Linear" };
        format!("{kind}Neuron({})", self.parameters.len() - 1)
    }
}

/// The pickled form of a row of neurons: the number of inputs, the device, and for each neuron whether it has a ReLU
/// and its parameters.
type Kept = (usize, String, Vec<(bool, Vec<Py<Value>>)>);

/// Neurons with the same inputs.
#[derive(Clone)]
struct Row {
    units: Vec<Unit>,
    nin: usize,
    device_id: DeviceId,
}

impl Row {
    /// Draws weights like micrograd, with Python's `random.uniform`.
    fn new(py: Python<'_>, nin: usize, nout: usize, nonlinear: bool, device_id: DeviceId) -> PyResult<Row> {
        let uniform = py.import("random")?.getattr("uniform")?;
        let mut units = Vec::new();
        for _ in 0..nout {
            units.push(Unit::new(&uniform, nin, nonlinear, device_id)?);
        }
        Ok(Row { units, nin, device_id })
    }

    fn call(&self, py: Python<'_>, values: Vec<Py<Value>>) -> PyResult<Vec<Py<Value>>> {
        if values.len() != self.nin {
            let (count, nin) = (values.len(), self.nin);
            return Err(PyValueError::new_err(format!(
                "this network expects {nin} inputs, got {count}: pass a list with one Value for each"
            )));
        }
        for value in &values {
            common(self.device_id, value.get().device_id)?;
        }
        let inputs = Inputs::new(values.into());
        self.units.iter().map(|unit| unit.call(py, self.device_id, &inputs)).collect()
    }

    fn parameters<'a>(&'a self, py: Python<'a>) -> impl Iterator<Item = Py<Value>> + 'a {
        let all = self.units.iter().flat_map(|unit| unit.parameters.iter());
        all.map(move |parameter| parameter.clone_ref(py))
    }

    fn zero_grad(&self) {
        for parameter in self.units.iter().flat_map(|unit| unit.parameters.iter()) {
            parameter.get().grad.set(0.0);
        }
    }

    /// The pickled form. It contains the parameter objects themselves, so that references to them stay shared.
    fn kept(&self, py: Python<'_>) -> Kept {
        let unit = |unit: &Unit| {
            (unit.nonlinear, unit.parameters.iter().map(|parameter| parameter.clone_ref(py)).collect())
        };
        (self.nin, self.device_id.name().to_owned(), self.units.iter().map(unit).collect())
    }

    fn restored(py: Python<'_>, (nin, device, units): Kept) -> PyResult<Row> {
        let device_id = DeviceId::restored(py, &device)?;
        let unit = |(nonlinear, parameters): (bool, Vec<Py<Value>>)| {
            if Some(parameters.len()) != nin.checked_add(1) {
                let count = parameters.len();
                return Err(PyValueError::new_err(format!(
                    "a neuron with {nin} inputs cannot have {count} parameters"
                )));
            }
            for parameter in &parameters {
                common(device_id, parameter.get().device_id)?;
                if !matches!(parameter.get().op, Op::Leaf) {
                    return Err(PyValueError::new_err("the parameters of a neuron must be leaf values"));
                }
            }
            Ok(Unit { parameters: parameters.into(), nonlinear })
        };
        Ok(Row { units: units.into_iter().map(unit).collect::<PyResult<_>>()?, nin, device_id })
    }

    fn show(&self) -> String {
        let all: Vec<String> = self.units.iter().map(Unit::show).collect();
        format!("Layer of [{}]", all.join(", "))
    }
}

/// The inputs of a call: a list or tuple of values.
fn inputs(x: &Bound<'_, PyAny>) -> PyResult<Vec<Py<Value>>> {
    let one = |item: Bound<'_, PyAny>| match item.cast_into::<Value>() {
        Ok(value) => Ok(value.unbind()),
        Err(error) => {
            let kind = error.into_inner().get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "the inputs of a network must be Values, but one has type {kind}: convert each number to a Value, as \
                 in [Value(number) for number in numbers]"
            )))
        }
    };
    if let Ok(list) = x.cast::<PyList>() {
        return list.iter().map(one).collect();
    }
    if let Ok(tuple) = x.cast::<PyTuple>() {
        return tuple.iter().map(one).collect();
    }
    let kind = x.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "a network expects a list or tuple of Values, got an object of type {kind}"
    )))
}

/// A single result as a value, several as a list.
fn given<'py>(py: Python<'py>, mut results: Vec<Py<Value>>) -> PyResult<Bound<'py, PyAny>> {
    match (results.len(), results.pop()) {
        (1, Some(only)) => Ok(only.into_bound(py).into_any()),
        (_, last) => {
            results.extend(last);
            Ok(PyList::new(py, results)?.into_any())
        }
    }
}

/// A neuron: the ReLU of a weighted sum of its inputs, or the sum itself with ``nonlin=False``.
///
/// >>> from micrograd_rs import Neuron, Value
/// >>> Neuron(2)
/// ReLUNeuron(2)
/// >>> len(Neuron(2).parameters())
/// 3
#[pyclass(module = "micrograd_rs", frozen)]
pub(crate) struct Neuron(Row);

#[pymethods]
impl Neuron {
    #[new]
    #[pyo3(signature = (nin, nonlin=true, device=None))]
    fn new(
        py: Python<'_>,
        nin: Count,
        nonlin: bool,
        device: Option<&Bound<'_, PyDevice>>,
    ) -> PyResult<Neuron> {
        let device_id = PyDevice::chosen(py, device.map(|device| device.get()))?;
        Ok(Neuron(Row::new(py, nin.0, 1, nonlin, device_id)?))
    }
    fn __call__<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        given(x.py(), self.0.call(x.py(), inputs(x)?)?)
    }
    /// The weights, as a new list of the neuron's values.
    #[getter]
    fn w(&self, py: Python<'_>) -> Vec<Py<Value>> {
        let mut all = self.parameters(py);
        all.pop();
        all
    }
    /// The bias.
    #[getter]
    fn b(&self, py: Python<'_>) -> Option<Py<Value>> {
        self.parameters(py).pop()
    }
    /// Whether the neuron applies ReLU.
    #[getter]
    fn nonlin(&self) -> bool {
        self.0.units.iter().all(|unit| unit.nonlinear)
    }
    /// Returns the weights, then the bias.
    fn parameters(&self, py: Python<'_>) -> Vec<Py<Value>> {
        self.0.parameters(py).collect()
    }
    /// Sets the gradients of the parameters to 0.
    fn zero_grad(&self) {
        self.0.zero_grad();
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Kept,)> {
        reduced::<Neuron, _>(py, (self.0.kept(py),))
    }
    #[classmethod]
    fn _restored(class: &Bound<'_, PyType>, kept: Kept) -> PyResult<Neuron> {
        match kept.2.len() {
            1 => Ok(Neuron(Row::restored(class.py(), kept)?)),
            count => Err(PyValueError::new_err(format!("a Neuron must be one neuron, got {count}"))),
        }
    }
    fn __repr__(&self) -> String {
        self.0.units.iter().map(Unit::show).collect()
    }
}

/// A layer of neurons with the same inputs.
#[pyclass(module = "micrograd_rs", frozen)]
pub(crate) struct Layer(Row);

#[pymethods]
impl Layer {
    #[new]
    #[pyo3(signature = (nin, nout, nonlin=true, device=None))]
    fn new(
        py: Python<'_>,
        nin: Count,
        nout: Count,
        nonlin: bool,
        device: Option<&Bound<'_, PyDevice>>,
    ) -> PyResult<Layer> {
        let device_id = PyDevice::chosen(py, device.map(|device| device.get()))?;
        Ok(Layer(Row::new(py, nin.0, nout.0, nonlin, device_id)?))
    }
    /// Returns a value if there is one neuron, else a list of values.
    fn __call__<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        given(x.py(), self.0.call(x.py(), inputs(x)?)?)
    }
    /// The neurons, as a new list. They share the layer's parameters.
    #[getter]
    fn neurons(&self) -> Vec<Neuron> {
        let (nin, device_id) = (self.0.nin, self.0.device_id);
        self.0.units.iter().map(|unit| Neuron(Row { units: vec![unit.clone()], nin, device_id })).collect()
    }
    /// Returns the parameters of all neurons.
    fn parameters(&self, py: Python<'_>) -> Vec<Py<Value>> {
        self.0.parameters(py).collect()
    }
    /// Sets the gradients of the parameters to 0.
    fn zero_grad(&self) {
        self.0.zero_grad();
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Kept,)> {
        reduced::<Layer, _>(py, (self.0.kept(py),))
    }
    #[classmethod]
    fn _restored(class: &Bound<'_, PyType>, kept: Kept) -> PyResult<Layer> {
        Ok(Layer(Row::restored(class.py(), kept)?))
    }
    fn __repr__(&self) -> String {
        self.0.show()
    }
}

/// A multi-layer perceptron: a sequence of layers, all but the last with ReLU.
///
/// >>> from micrograd_rs import MLP
/// >>> len(MLP(10, [20, 20, 1]).parameters())
/// 661
#[pyclass(name = "MLP", module = "micrograd_rs", frozen)]
pub(crate) struct Mlp(Vec<Row>);

#[pymethods]
impl Mlp {
    #[new]
    #[pyo3(signature = (nin, nouts, device=None))]
    fn new(
        py: Python<'_>,
        nin: Count,
        nouts: Vec<Count>,
        device: Option<&Bound<'_, PyDevice>>,
    ) -> PyResult<Mlp> {
        let device_id = PyDevice::chosen(py, device.map(|device| device.get()))?;
        let widths = std::iter::once(&nin).chain(&nouts);
        let layer =
            |(at, (&Count(nin), &Count(nout)))| Row::new(py, nin, nout, at + 1 < nouts.len(), device_id);
        Ok(Mlp(widths.zip(&nouts).enumerate().map(layer).collect::<PyResult<_>>()?))
    }
    /// Returns a value if the last layer has one neuron, else a list of values.
    fn __call__<'py>(&self, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = x.py();
        given(py, self.0.iter().try_fold(inputs(x)?, |values, layer| layer.call(py, values))?)
    }
    /// The layers, as a new list. They share the network's parameters.
    #[getter]
    fn layers(&self) -> Vec<Layer> {
        self.0.iter().cloned().map(Layer).collect()
    }
    /// Returns the parameters of all layers.
    fn parameters(&self, py: Python<'_>) -> Vec<Py<Value>> {
        self.0.iter().flat_map(|layer| layer.parameters(py)).collect()
    }
    /// Sets the gradients of the parameters to 0.
    fn zero_grad(&self) {
        self.0.iter().for_each(Row::zero_grad);
    }
    fn __reduce__<'py>(&self, py: Python<'py>) -> Reduced<'py, (Vec<Kept>,)> {
        reduced::<Mlp, _>(py, (self.0.iter().map(|layer| layer.kept(py)).collect::<Vec<_>>(),))
    }
    #[classmethod]
    fn _restored(class: &Bound<'_, PyType>, kept: Vec<Kept>) -> PyResult<Mlp> {
        let layer = |kept| Row::restored(class.py(), kept);
        Ok(Mlp(kept.into_iter().map(layer).collect::<PyResult<_>>()?))
    }
    fn __repr__(&self) -> String {
        let all: Vec<String> = self.0.iter().map(Row::show).collect();
        format!("MLP of [{}]", all.join(", "))
    }
}
