//! Kernels written by users.

use std::collections::BTreeMap;

use phynexus::{
    Error, Scalar, Tensor,
    custom::{CustomKernel, SourceLanguage},
};
use pyo3::{prelude::*, types::PyTuple};

use crate::{
    argument::{Number, tensors},
    device::Named,
    dtype::Wanted,
    error::{Result, value_error},
    tensor::PyTensor,
};

/// A kernel in the languages of devices, as an operation of tensors.
#[pyclass(name = "CustomKernel", module = "neurenix", frozen)]
pub(crate) struct PyCustomKernel(CustomKernel);

/// Name, dtype, shape pattern.
type Parameter = (String, Wanted, String);

fn python_error(op: &'static str, error: &PyErr) -> Error {
    Error::argument(op, error.to_string())
}

#[pymethods]
impl PyCustomKernel {
    /// A kernel from its signature and its sources.
    ///
    /// ``inputs`` and ``outputs`` are triples of name, dtype and shape pattern (``"m k"``, ``"batch.. 3"``); ``scalars``
    /// pairs of name and dtype; ``sources`` maps ``"cuda"``, ``"hip"``, ``"opencl"``, ``"wgsl"`` to source text.
    /// ``gradient(inputs, outputs, gradients)`` gives the gradient of each input, or ``None``.
    #[new]
    #[pyo3(signature = (name, *, inputs, outputs, sources, scalars=Vec::new(), entry_point=None, work_group_size=None, groups=None, gradient=None))]
    fn new(
        name: &str,
        inputs: Vec<Parameter>,
        outputs: Vec<Parameter>,
        sources: BTreeMap<String, String>,
        scalars: Vec<(String, Wanted)>,
        entry_point: Option<&str>,
        work_group_size: Option<[usize; 3]>,
        groups: Option<[usize; 3]>,
        gradient: Option<Py<PyAny>>,
    ) -> Result<PyCustomKernel> {
        let mut builder = CustomKernel::builder(name);
        for (name, Wanted(dtype), shape) in &inputs {
            builder = builder.input(name, *dtype, shape);
        }
        for (name, Wanted(dtype), shape) in &outputs {
            builder = builder.output(name, *dtype, shape.as_str());
        }
        for (name, Wanted(dtype)) in &scalars {
            builder = builder.scalar(name, *dtype);
        }
        for (language, source) in &sources {
            let Some(known) = SourceLanguage::parse(language) else {
                return Err(value_error(format!(
                    "{language:?} is no language of kernels: see the documentation"
                )));
            };
            builder = builder.source(known, source);
        }
        if let Some(entry_point) = entry_point {
            builder = builder.entry_point(entry_point);
        }
        if let Some(size) = work_group_size {
            builder = builder.work_group_size(size);
        }
        if let Some(groups) = groups {
            builder = builder.groups(groups);
        }
        if let Some(gradient) = gradient {
            builder = builder.gradient(move |call| {
                Python::attach(|py| {
                    let wrap = |list: &[Tensor]| -> Vec<PyTensor> {
                        list.iter().map(|tensor| PyTensor::wrap(tensor.clone())).collect()
                    };
                    let arguments = (wrap(call.inputs), wrap(call.outputs), wrap(call.gradients));
                    let given =
                        gradient.bind(py).call1(arguments).map_err(|e| python_error("gradient", &e))?;
                    let given: Vec<Option<Bound<'_, PyTensor>>> =
                        given.extract().map_err(|e| python_error("gradient", &e))?;
                    given
                        .into_iter()
                        .map(|one| one.map(|tensor| tensor.get().tensor()).transpose())
                        .collect::<Result<Vec<_>>>()
                        .map_err(|error| python_error("gradient", &PyErr::from(error)))
                })
            });
        }
        Ok(PyCustomKernel(builder.build()?))
    }
    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }
    /// Compiles for a device now, rather than at the first launch.
    fn compile(&self, py: Python<'_>, device: Named) -> Result<()> {
        Ok(py.detach(|| self.0.compile(device.0))?)
    }
    /// The outputs for these tensors and then numbers: a tensor, or a tuple of several.
    #[pyo3(signature = (*arguments))]
    fn __call__<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        let count = arguments.iter().take_while(|argument| argument.cast::<PyTensor>().is_ok()).count();
        let inputs = tensors(arguments.get_slice(0, count).as_any())?;
        let scalars = arguments
            .iter()
            .skip(count)
            .map(|argument| Ok(argument.extract::<Number>()?.0))
            .collect::<Result<Vec<Scalar>>>()?;
        let results = self.0.launch(&inputs.iter().collect::<Vec<_>>(), &scalars)?;
        let mut results: Vec<PyTensor> = results.into_iter().map(PyTensor::wrap).collect();
        if results.len() == 1
            && let Some(only) = results.pop()
        {
            return Ok(Bound::new(py, only)?.into_any());
        }
        let results =
            results.into_iter().map(|result| Bound::new(py, result)).collect::<PyResult<Vec<_>>>()?;
        Ok(PyTuple::new(py, results)?.into_any())
    }
    fn __repr__(&self) -> String {
        format!("CustomKernel({:?}, gives {})", self.0.name(), self.0.output_dtype())
    }
}
