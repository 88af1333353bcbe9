//! Custom kernels.

use std::collections::BTreeMap;

use neurenix::languages;
use phynexus::{
    DType, Element, Scalar, Tensor,
    custom::{CustomKernel, Elements, ElementsMut, HostCall, SourceLanguage},
    text::counted,
};
use pyo3::{
    IntoPyObjectExt,
    prelude::*,
    types::{IntoPyDict, PyBytes, PyList, PyTuple},
};

use crate::{
    argument::{Count, kind, number, tensors},
    device::Named,
    dtype::Wanted,
    error::{Failure, Result, through_engine, type_error, value_error},
    interrupt::compute,
    tensor::{PyTensor, numpy},
};

/// A custom kernel, callable as an operation on tensors.
#[pyclass(name = "CustomKernel", module = "neurenix", frozen)]
pub(crate) struct PyCustomKernel {
    kernel: CustomKernel,
    /// Input names.
    inputs: Vec<String>,
}

/// Name, dtype, shape pattern.
type Parameter = (String, Wanted, String);

fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    T::write_bytes(values, &mut bytes);
    bytes
}

/// The bytes of an input and the dtype under which NumPy reads them: NumPy has no `bfloat16`, so it becomes `float32`.
fn exported(elements: &Elements<'_>) -> (Vec<u8>, DType) {
    macro_rules! as_they_are {
        ($($variant:ident)+) => {
            match elements {
                $(Elements::$variant(values) => (bytes(values), DType::$variant),)+
                // Never operands of kernels.
                Elements::F8E4M3(values) => (bytes(values), DType::U8),
                Elements::F8E5M2(values) => (bytes(values), DType::U8),
                Elements::BF16(values) => {
                    (bytes(&values.iter().map(|value| value.to_f32()).collect::<Vec<_>>()), DType::F32)
                }
            }
        };
    }
    as_they_are!(Bool U8 U16 U32 U64 I8 I16 I32 I64 F16 F32 F64)
}

/// Stores bytes whose dtype is the one that `exported` chooses for these elements.
fn import(elements: &mut ElementsMut<'_>, bytes: &[u8]) {
    macro_rules! as_they_are {
        ($($variant:ident)+) => {
            match elements {
                $(ElementsMut::$variant(values) => values.copy_from_slice(&Element::read_bytes(bytes)),)+
                ElementsMut::F8E4M3(values) => values.copy_from_slice(&Element::read_bytes(bytes)),
                ElementsMut::F8E5M2(values) => values.copy_from_slice(&Element::read_bytes(bytes)),
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

/// Checks that an argument is callable and not a kernel.
fn function(kernel: &str, argument: &str, given: &Bound<'_, PyAny>) -> Result<Py<PyAny>> {
    if given.is_callable() && given.cast::<PyCustomKernel>().is_err() {
        return Ok(given.clone().unbind());
    }
    let kind = kind(given);
    Err(type_error(format!("custom kernel {kernel}: {argument}: expected a function, got {kind}")))
}

/// The source language of this name.
fn language(kernel: &str, name: &str) -> Result<SourceLanguage> {
    let textual = || languages::ALL.into_iter().filter(|language| !language.is_binary);
    textual().find(|language| language.short_name == name).ok_or_else(|| {
        let known: Vec<String> = textual().map(|language| format!("{:?}", language.short_name)).collect();
        let known = known.join(", ");
        value_error(format!(
            "custom kernel {kernel}: {name:?} is not a supported source language: use one of {known}"
        ))
    })
}

/// Calls the CPU function with NumPy arrays and stores its results.
fn run_on_host(kernel: &str, function: &Bound<'_, PyAny>, mut call: HostCall<'_>) -> PyResult<()> {
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
        let (given, wanted) = (results.len(), call.outputs.len());
        let message =
            format!("custom kernel {kernel}: cpu: expected {}, got {given}", counted(wanted, "array"));
        return Err(value_error(message).into());
    }
    for (output, given) in call.outputs.iter_mut().zip(results) {
        if given.is_none() {
            let message = format!(
                "custom kernel {kernel}: cpu: the function returned None: return an array for each output"
            );
            return Err(type_error(message).into());
        }
        let dtype = match output.elements.dtype() {
            DType::BF16 => DType::F32,
            dtype => dtype,
        };
        let array = numpy.call_method1("asarray", (given,))?;
        let shape: Vec<usize> = array.getattr("shape")?.extract()?;
        if shape != output.shape {
            let message = format!(
                "custom kernel {kernel}: cpu: got an array of shape {shape:?} for an output of shape {:?}",
                output.shape
            );
            return Err(value_error(message).into());
        }
        // `same_kind` makes NumPy refuse lossy conversions such as float to int.
        let casting = [("casting", "same_kind")].into_py_dict(py)?;
        let array = array
            .call_method("astype", (numpy::type_string(dtype),), Some(&casting))
            .map_err(|error| type_error(format!("custom kernel {kernel}: cpu: {}", error.value(py))))?;
        let bytes = array.call_method0("tobytes")?;
        import(&mut output.elements, bytes.cast::<PyBytes>()?.as_bytes());
    }
    Ok(())
}

#[pymethods]
impl PyCustomKernel {
    /// Creates a kernel from its signature and its sources.
    ///
    /// ``inputs`` and ``outputs`` are triples of name, dtype and shape pattern (``"m k"``, ``"batch.. 3"``).
    /// ``scalars`` are pairs of name and dtype. ``sources`` maps ``"cuda"``, ``"hip"``, ``"opencl"``, ``"wgsl"`` or
    /// ``"msl"`` to source text; a CPU-only kernel has none. ``cpu(*inputs, *scalars)`` computes the kernel on the CPU:
    /// it takes NumPy arrays and returns one array per output, or just the array if there is a single output.
    /// ``gradient(inputs, outputs, gradients)`` returns a gradient or ``None`` for each input. ``gradient`` can also be
    /// another kernel, which maps the inputs, the outputs and their gradients to the gradients of the floating-point
    /// inputs.
    #[new]
    #[pyo3(signature = (name, *, inputs, outputs, sources=BTreeMap::new(), scalars=Vec::new(), entry_point=None, work_group_size=None, groups=None, cpu=None, gradient=None))]
    fn new(
        name: &str,
        inputs: Vec<Parameter>,
        outputs: Vec<Parameter>,
        sources: BTreeMap<String, String>,
        scalars: Vec<(String, Wanted)>,
        entry_point: Option<&str>,
        work_group_size: Option<[Count; 3]>,
        groups: Option<[Count; 3]>,
        cpu: Option<&Bound<'_, PyAny>>,
        gradient: Option<&Bound<'_, PyAny>>,
    ) -> Result<PyCustomKernel> {
        let kernel = name;
        let mut builder = CustomKernel::builder(kernel);
        for (name, Wanted(dtype), shape) in &inputs {
            builder = builder.input(name, *dtype, shape);
        }
        for (name, Wanted(dtype), shape) in &outputs {
            builder = builder.output(name, *dtype, shape.as_str());
        }
        for (name, Wanted(dtype)) in &scalars {
            builder = builder.scalar(name, *dtype);
        }
        for (name, source) in &sources {
            builder = builder.source(language(kernel, name)?, source);
        }
        if let Some(entry_point) = entry_point {
            builder = builder.entry_point(entry_point);
        }
        if let Some(size) = work_group_size {
            builder = builder.work_group_size(size.map(|extent| extent.0));
        }
        if let Some(groups) = groups {
            builder = builder.groups(groups.map(|count| count.0));
        }
        if let Some(given) = cpu {
            let (kernel, function) = (kernel.to_owned(), function(kernel, "cpu", given)?);
            builder = builder.cpu(move |call| {
                Python::attach(|py| run_on_host(&kernel, function.bind(py), call)).map_err(through_engine)
            });
        }
        if let Some(given) = gradient.and_then(|given| given.cast::<PyCustomKernel>().ok()) {
            builder = builder.gradient_kernel(given.get().kernel.clone());
        } else if let Some(given) = gradient {
            let (kernel, gradient) = (kernel.to_owned(), function(kernel, "gradient", given)?);
            builder = builder.gradient(move |call| {
                Python::attach(|py| {
                    let wrap = |list: &[Tensor]| -> Vec<PyTensor> {
                        list.iter().map(|tensor| PyTensor::wrap(tensor.clone())).collect()
                    };
                    let arguments = (wrap(call.inputs), wrap(call.outputs), wrap(call.gradients));
                    let given = gradient.bind(py).call1(arguments).map_err(through_engine)?;
                    let mistake = |_| {
                        let kind = kind(&given);
                        let message = format!(
                            "custom kernel {kernel}: gradient: expected a list with a tensor or None for \
                             each input, got {kind}"
                        );
                        through_engine(type_error(message).into())
                    };
                    let given: Vec<Option<Bound<'_, PyTensor>>> = given.extract().map_err(mistake)?;
                    given
                        .into_iter()
                        .map(|one| one.map(|tensor| tensor.get().tensor()).transpose())
                        .collect::<Result<Vec<_>>>()
                        .map_err(|error| through_engine(error.into()))
                })
            });
        }
        let inputs = inputs.into_iter().map(|(name, ..)| name).collect();
        Ok(PyCustomKernel { kernel: builder.build()?, inputs })
    }
    /// The kernel's name.
    #[getter]
    fn name(&self) -> &str {
        self.kernel.name()
    }
    /// Compiles the kernel for a device now instead of at the first launch.
    fn compile(&self, py: Python<'_>, device: Named) -> Result<()> {
        compute(py, || self.kernel.compile(device.0))
    }
    /// Runs the kernel on these tensors followed by the scalars. Returns a tensor, or a tuple if there are several
    /// outputs.
    #[pyo3(signature = (*arguments))]
    fn __call__<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> Result<Bound<'py, PyAny>> {
        let name = self.kernel.name();
        let count = arguments.iter().take_while(|argument| argument.cast::<PyTensor>().is_ok()).count();
        if let Some(input) = self.inputs.get(count)
            && arguments.len() > count
        {
            let kind = kind(&arguments.get_item(count)?);
            return Err(type_error(format!(
                "custom kernel {name}: {input}: expected a tensor, got {kind}: convert it with \
                 nx.asarray(x) or nx.Tensor(x)"
            )));
        }
        let inputs = tensors(arguments.get_slice(0, count).as_any())?;
        let scalars = arguments
            .iter()
            .skip(count)
            .map(|argument| {
                let missing = || -> Failure {
                    let kind = kind(&argument);
                    type_error(format!("custom kernel {name}: expected a number, got {kind}"))
                };
                number(&argument)?.ok_or_else(missing)
            })
            .collect::<Result<Vec<Scalar>>>()?;
        let results = self.kernel.launch(&inputs.iter().collect::<Vec<_>>(), &scalars)?;
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
        format!("CustomKernel({:?}, gives {})", self.kernel.name(), self.kernel.output_dtype())
    }
}
