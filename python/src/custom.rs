//! Kernels written by users.

use std::collections::BTreeMap;

use phynexus::{
    DType, Element, Scalar, Tensor,
    custom::{CustomKernel, Elements, ElementsMut, HostCall, SourceLanguage},
};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{IntoPyDict, PyBytes, PyList, PyTuple},
};

use crate::{
    argument::{Number, tensors},
    device::Named,
    dtype::Wanted,
    error::{Result, through_engine, value_error},
    interrupt::compute,
    tensor::{PyTensor, numpy},
};

/// A kernel in the languages of devices, as an operation of tensors.
#[pyclass(name = "CustomKernel", module = "neurenix", frozen)]
pub(crate) struct PyCustomKernel(CustomKernel);

/// Name, dtype, shape pattern.
type Parameter = (String, Wanted, String);

fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    T::write_bytes(values, &mut bytes);
    bytes
}

/// The bytes of what is read, and the type that NumPy reads them as: it has no `bfloat16`.
fn exported(elements: &Elements<'_>) -> (Vec<u8>, DType) {
    macro_rules! as_they_are {
        ($($variant:ident)+) => {
            match elements {
                $(Elements::$variant(values) => (bytes(values), DType::$variant),)+
                Elements::BF16(values) => {
                    (bytes(&values.iter().map(|value| value.to_f32()).collect::<Vec<_>>()), DType::F32)
                }
            }
        };
    }
    as_they_are!(Bool U8 U16 U32 U64 I8 I16 I32 I64 F16 F32 F64)
}

/// Stores bytes of the type that `exported` has for the elements'.
fn import(elements: &mut ElementsMut<'_>, bytes: &[u8]) {
    macro_rules! as_they_are {
        ($($variant:ident)+) => {
            match elements {
                $(ElementsMut::$variant(values) => values.copy_from_slice(&Element::read_bytes(bytes)),)+
                ElementsMut::BF16(values) => {
                    for (value, given) in values.iter_mut().zip(f32::read_bytes(bytes)) {
                        *value = half::bf16::from_f32(given);
                    }
                }
            }
        };
    }
    as_they_are!(Bool U8 U16 U32 U64 I8 I16 I32 I64 F16 F32 F64);
}

/// Calls the function for the CPU with NumPy's arrays and stores what it gives.
fn run_on_host(function: &Bound<'_, PyAny>, mut call: HostCall<'_>) -> PyResult<()> {
    let py = function.py();
    let numpy = numpy::numpy(py)?;
    let mut arguments = Vec::with_capacity(call.inputs.len() + call.scalars.len());
    for input in &call.inputs {
        let (bytes, dtype) = exported(&input.elements);
        let array =
            numpy.call_method1("frombuffer", (PyBytes::new(py, &bytes), numpy::type_string(dtype)))?;
        arguments.push(array.call_method1("reshape", (PyTuple::new(py, input.shape)?,))?);
    }
    for scalar in call.scalars {
        arguments.push(match *scalar {
            Scalar::Bool(value) => value.into_bound_py_any(py)?,
            Scalar::Int(value) => value.into_bound_py_any(py)?,
            Scalar::UInt(value) => value.into_bound_py_any(py)?,
            Scalar::Float(value) => value.into_bound_py_any(py)?,
        });
    }
    let given = function.call1(PyTuple::new(py, arguments)?)?;
    let several = given.is_instance_of::<PyTuple>() || given.is_instance_of::<PyList>();
    let results: Vec<Bound<'_, PyAny>> = if several { given.extract()? } else { vec![given] };
    if results.len() != call.outputs.len() {
        let message = format!("{} arrays were given for {} outputs", results.len(), call.outputs.len());
        return Err(value_error(message).into());
    }
    for (output, given) in call.outputs.iter_mut().zip(results) {
        let dtype = match output.elements.dtype() {
            DType::BF16 => DType::F32,
            dtype => dtype,
        };
        let array = numpy.call_method1("asarray", (given,))?;
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        if shape != output.shape {
            let message =
                format!("an array of shape {shape:?} was given for an output of {:?}", output.shape);
            return Err(value_error(message).into());
        }
        // A kind of numbers that loses too much (numbers with fractions as whole ones) is NumPy's error.
        let casting = [("casting", "same_kind")].into_py_dict(py)?;
        let array = array.call_method("astype", (numpy::type_string(dtype),), Some(&casting))?;
        let bytes = array.call_method0("tobytes")?;
        import(&mut output.elements, bytes.cast::<PyBytes>()?.as_bytes());
    }
    Ok(())
}

#[pymethods]
impl PyCustomKernel {
    /// A kernel from its signature and its sources.
    ///
    /// ``inputs`` and ``outputs`` are triples of name, dtype and shape pattern (``"m k"``, ``"batch.. 3"``); ``scalars``
    /// pairs of name and dtype; ``sources`` maps ``"cuda"``, ``"hip"``, ``"opencl"``, ``"wgsl"`` to source text; a kernel for the CPU alone has none.
    /// ``cpu(*inputs, *scalars)`` computes it on the CPU: from NumPy's arrays an array for each output, or only the array
    /// of a single one. ``gradient(inputs, outputs, gradients)`` gives the gradient of each input, or ``None``.
    #[new]
    #[pyo3(signature = (name, *, inputs, outputs, sources=BTreeMap::new(), scalars=Vec::new(), entry_point=None, work_group_size=None, groups=None, cpu=None, gradient=None))]
    fn new(
        name: &str,
        inputs: Vec<Parameter>,
        outputs: Vec<Parameter>,
        sources: BTreeMap<String, String>,
        scalars: Vec<(String, Wanted)>,
        entry_point: Option<&str>,
        work_group_size: Option<[usize; 3]>,
        groups: Option<[usize; 3]>,
        cpu: Option<Py<PyAny>>,
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
            let known = SourceLanguage::from_name(language)?;
            // What is binary does not come as text.
            if known.is_binary() {
                return Err(value_error(format!(
                    "{language:?} is binary, and sources are text: use \"wgsl\""
                )));
            }
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
        if let Some(function) = cpu {
            builder = builder.cpu(move |call| {
                Python::attach(|py| run_on_host(function.bind(py), call)).map_err(through_engine)
            });
        }
        if let Some(gradient) = gradient {
            builder = builder.gradient(move |call| {
                Python::attach(|py| {
                    let wrap = |list: &[Tensor]| -> Vec<PyTensor> {
                        list.iter().map(|tensor| PyTensor::wrap(tensor.clone())).collect()
                    };
                    let arguments = (wrap(call.inputs), wrap(call.outputs), wrap(call.gradients));
                    let given = gradient.bind(py).call1(arguments).map_err(through_engine)?;
                    let given: Vec<Option<Bound<'_, PyTensor>>> = given.extract().map_err(through_engine)?;
                    given
                        .into_iter()
                        .map(|one| one.map(|tensor| tensor.get().tensor()).transpose())
                        .collect::<Result<Vec<_>>>()
                        .map_err(|error| through_engine(error.into()))
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
        compute(py, || self.0.compile(device.0))
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
