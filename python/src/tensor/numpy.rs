//! Conversion from and to Python numbers and NumPy arrays.

use std::borrow::Cow;

use phynexus::{
    DType, Device, Scalar, Tensor, device::Storage, host_memory, schedule::capture::refuse_reading,
    tensor::default_dtype, text::counted,
};
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyTuple},
};

use super::{PyTensor, dlpack::import::exchanged};
use crate::{
    argument::{fits, kind, number},
    device::Named,
    dtype::Wanted,
    error::{Result, runtime_error, type_error, value_error},
    interrupt::compute,
};

/// NumPy, imported on first use.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || Ok::<_, PyErr>(py.import("numpy")?.unbind()))?.bind(py))
}

/// Creates a tensor from numbers, nested lists and tuples, NumPy arrays, anything that NumPy converts to an array, or
/// DLPack exporters.
pub(crate) fn import(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Device) -> Result<Tensor> {
    if data.is_none() {
        return Err(type_error(
            "expected a number, nested lists or an array, got None: to create a tensor of a given shape use zeros()",
        ));
    }
    // NumPy scalars keep their dtype.
    if data.hasattr("dtype")? {
        return from_array(data, dtype, device);
    }
    if let Some(scalar) = number(data)? {
        let dtype = dtype.unwrap_or_else(|| natural(&[scalar]));
        fits(scalar, dtype)?;
        let bytes = phynexus::dtype::scalar_bytes(scalar, dtype);
        return Ok(Tensor::from_bytes(&bytes, dtype, &[], device)?);
    }
    if data.is_instance_of::<PyList>() || data.is_instance_of::<PyTuple>() {
        return from_lists(data, dtype, device);
    }
    from_array(data, dtype, device)
}

/// The contents of nested lists, in row-major order.
struct Nested<'py> {
    shape: Vec<usize>,
    numbers: Vec<Scalar>,
    /// The promoted dtype if there are NumPy scalars among the numbers.
    dtype: Option<DType>,
    /// Tensors and arrays in the lists, each with the count of numbers before it.
    parts: Vec<(usize, Bound<'py, PyAny>)>,
}

fn from_lists(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Device) -> Result<Tensor> {
    let mut nested = Nested { shape: Vec::new(), numbers: Vec::new(), dtype: None, parts: Vec::new() };
    nested.walk(data, 0)?;
    if !nested.parts.is_empty() {
        let stacked = nested.stacked(device)?;
        return Ok(stacked.to_dtype(dtype.unwrap_or(stacked.dtype()))?);
    }
    let dtype = dtype.or(nested.dtype).unwrap_or_else(|| natural(&nested.numbers));
    let mut bytes = host_memory::room(nested.numbers.len() * dtype.size())?;
    for &scalar in &nested.numbers {
        fits(scalar, dtype)?;
        bytes.extend_from_slice(&phynexus::dtype::scalar_bytes(scalar, dtype));
    }
    Ok(Tensor::from_bytes(&bytes, dtype, &nested.shape, device)?)
}

/// The default dtype of Python numbers: `bool` if all are bools, `int64` for integers (`uint64` if one needs it), else
/// the default dtype of floats.
fn natural(numbers: &[Scalar]) -> DType {
    if numbers.is_empty() || numbers.iter().any(|n| matches!(n, Scalar::Float(_))) {
        default_dtype()
    } else if numbers.iter().all(|n| matches!(n, Scalar::Bool(_))) {
        DType::Bool
    } else if numbers.iter().any(|n| matches!(n, Scalar::UInt(_))) {
        DType::U64
    } else {
        DType::I64
    }
}

impl<'py> Nested<'py> {
    /// Stacks the tensors, arrays and numbers into one tensor. If all tensors have one element they count as numbers,
    /// as in PyTorch. Otherwise the result's shape is that of the lists followed by that of the tensors.
    fn stacked(self, device: Device) -> Result<Tensor> {
        let mut numbers =
            self.numbers.iter().map(|&scalar| Tensor::full(&[], scalar, natural(&[scalar]), device));
        let (mut tensors, mut taken, mut are_single) = (Vec::new(), 0, true);
        for (before, part) in &self.parts {
            for number in numbers.by_ref().take(before - taken) {
                tensors.push(number?);
            }
            taken = *before;
            let tensor = match part.cast::<PyTensor>() {
                Ok(tensor) => tensor.get().tensor()?.detach()?.to_device(device)?,
                Err(_) => from_array(part, None, device)?,
            };
            are_single &= part.is_instance_of::<PyTensor>() && tensor.len() == 1;
            tensors.push(tensor);
        }
        for number in numbers {
            tensors.push(number?);
        }
        if !are_single && !self.numbers.is_empty() {
            return Err(value_error(
                "a list mixes numbers with arrays or with tensors of several elements: use tensors of one shape only",
            ));
        }
        let dtype = tensors.iter().map(Tensor::dtype).reduce(DType::promote).unwrap_or_else(default_dtype);
        for tensor in &mut tensors {
            *tensor = if are_single { tensor.reshape(&[])? } else { tensor.clone() }.to_dtype(dtype)?;
        }
        let stacked = Tensor::stack(&tensors.iter().collect::<Vec<_>>(), 0)?;
        let shape: Vec<usize> = self.shape.iter().chain(&stacked.shape()[1..]).copied().collect();
        Ok(stacked.reshape(&shape)?)
    }

    fn walk(&mut self, item: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        let sequence = if let Ok(list) = item.cast::<PyList>() {
            Cow::Borrowed(list.as_any())
        } else if let Ok(tuple) = item.cast::<PyTuple>() {
            Cow::Borrowed(tuple.as_any())
        } else {
            return self.leaf(item, depth);
        };
        if depth >= phynexus::shape::MAX_RANK {
            return Err(value_error(format!(
                "lists are nested deeper than {} levels",
                phynexus::shape::MAX_RANK
            )));
        }
        let size = sequence.len()?;
        let first = self.shape.len() == depth && self.numbers.is_empty() && self.parts.is_empty();
        if first {
            self.shape.push(size);
        }
        if self.shape.get(depth) != Some(&size) {
            let expected = match self.shape.get(depth) {
                Some(expected) => format!("{expected} were expected"),
                None => "a number was expected".to_owned(),
            };
            let message = format!(
                "the lists are ragged: {} at depth {depth}, but {expected}",
                counted(size, "element")
            );
            return Err(value_error(message));
        }
        for item in sequence.try_iter()? {
            self.walk(&item?, depth + 1)?;
        }
        Ok(())
    }

    /// As in PyTorch, one NumPy scalar makes all numbers take part in dtype promotion.
    fn note_dtype(&mut self, item: &Bound<'py, PyAny>, scalar: Scalar) -> Result<()> {
        let is_python = item.is_exact_instance_of::<PyFloat>()
            || item.is_exact_instance_of::<PyInt>()
            || item.is_exact_instance_of::<PyBool>();
        let own = match is_python {
            true => None,
            false => item.getattr("dtype").ok().and_then(|kind| kind.extract::<Wanted>().ok()),
        };
        let own = match (own, self.dtype) {
            (None, None) => return Ok(()),
            (Some(Wanted(own)), None) if self.numbers.is_empty() => own,
            (Some(Wanted(own)), None) => own.promote(natural(&self.numbers)),
            (Some(Wanted(own)), Some(before)) => own.promote(before),
            (None, Some(before)) => before.promote(natural(&[scalar])),
        };
        self.dtype = Some(own);
        Ok(())
    }

    fn leaf(&mut self, item: &Bound<'py, PyAny>, depth: usize) -> Result<()> {
        if depth != self.shape.len() {
            let message =
                format!("the lists are ragged: {} at depth {depth}, but a list was expected", kind(item));
            return Err(value_error(message));
        }
        let is_array = item.cast::<PyTensor>().is_ok()
            || (item.hasattr("__array_interface__")? && item.getattr("shape")?.len()? > 0);
        if is_array {
            self.parts.push((self.numbers.len(), item.clone()));
            return Ok(());
        }
        match number(item)? {
            Some(scalar) => {
                self.note_dtype(item, scalar)?;
                host_memory::push(&mut self.numbers, scalar)?;
                if self.numbers.len().is_multiple_of(1 << 16) {
                    item.py().check_signals()?;
                }
            }
            None => return Err(crate::argument::not_a_number(item)),
        }
        Ok(())
    }
}

/// Converts an object with NumPy. Returns the array and its dtype.
fn as_array<'py>(data: &Bound<'py, PyAny>) -> PyResult<(Bound<'py, PyAny>, DType)> {
    let array = numpy(data.py())?.call_method1("asarray", (data,))?;
    let kind = array.getattr("dtype")?;
    match kind.extract() {
        Ok(Wanted(given)) => return Ok((array, given)),
        Err(refusal) if crate::refusal::is_refusal(data.py(), &refusal) => return Err(refusal),
        Err(_) => {}
    }
    let name: String = kind.getattr("name")?.extract()?;
    Err(PyErr::from(type_error(format!(
        "an array of {name} cannot be converted to a tensor: convert it to a numeric type first"
    ))))
}

/// The memory of an array that needs no conversion by NumPy.
struct Plain {
    start: usize,
    dtype: DType,
    shape: Vec<usize>,
}

/// The memory of a contiguous array in native byte order; `None` for other arrays. bool is excluded because its bytes
/// may be other than 0 and 1.
fn plain(data: &Bound<'_, PyAny>) -> PyResult<Option<Plain>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = data.py();
    let class = CLASS.get_or_try_init(py, || Ok::<_, PyErr>(numpy(py)?.getattr("ndarray")?.unbind()))?;
    if !data.get_type().is(class) {
        return Ok(None);
    }
    let interface = data.getattr(intern!(py, "__array_interface__"))?;
    let kind = interface.get_item(intern!(py, "typestr"))?;
    let kind = kind.extract::<&str>()?;
    let known = |dtype: &DType| {
        *dtype != DType::Bool && bits_in_numpy(*dtype).is_none() && has_type_string(*dtype, kind)
    };
    let Some(dtype) = DType::ALL.into_iter().find(known) else { return Ok(None) };
    if !interface.get_item(intern!(py, "strides"))?.is_none() {
        return Ok(None);
    }
    let (start, _): (usize, bool) = interface.get_item(intern!(py, "data"))?.extract()?;
    Ok(Some(Plain { start, dtype, shape: interface.get_item(intern!(py, "shape"))?.extract()? }))
}

fn from_array(data: &Bound<'_, PyAny>, dtype: Option<DType>, device: Device) -> Result<Tensor> {
    if let Some(plain) = plain(data)? {
        return copied(data, plain, dtype, device);
    }
    let py = data.py();
    let (mut array, given) = match as_array(data) {
        // The array is on a GPU, has a dtype that NumPy lacks, or is of a type unknown to NumPy.
        Err(refusal)
            if refusal.is_instance_of::<PyTypeError>(py)
                && data.hasattr("__dlpack_device__")?
                && !data.hasattr("__array_interface__")? =>
        {
            let tensor = exchanged(data, Some(Named(device)), None)?;
            return Ok(tensor.to_dtype(dtype.unwrap_or(tensor.dtype()))?);
        }
        made => made?,
    };
    let kind = array.getattr("dtype")?;
    if let Some(bits) = bits_in_numpy(given) {
        array = array.call_method1("view", (bits,))?;
    }
    if given == DType::Bool {
        // A bool may be stored as a byte other than 0 and 1 if other bytes were reinterpreted as bool.
        array = array.call_method1("view", ("uint8",))?.call_method1("__ne__", (0,))?;
    }
    if !kind.getattr("isnative")?.extract::<bool>()? {
        array = array.call_method1("astype", (kind.call_method1("newbyteorder", ("=",))?,))?;
    }
    let shape: Vec<usize> = array.getattr("shape")?.extract()?;
    let array = numpy(py)?.call_method1("ascontiguousarray", (array,))?;
    let (start, _): (usize, bool) = array.getattr("__array_interface__")?.get_item("data")?.extract()?;
    copied(&array, Plain { start, dtype: given, shape }, dtype, device)
}

#[allow(unsafe_code)]
fn copied(array: &Bound<'_, PyAny>, plain: Plain, dtype: Option<DType>, device: Device) -> Result<Tensor> {
    let Plain { start, dtype: given, shape } = plain;
    // Cannot overflow: NumPy holds the array in memory.
    let size = shape.iter().product::<usize>() * given.size();
    compute(array.py(), || {
        let bytes = match size {
            0 => &[][..],
            // SAFETY: NumPy guarantees `size` contiguous bytes at this address while the array lives, and the array is
            // kept until they are copied. A concurrent write yields old or new bytes, as with NumPy's own copies.
            _ => unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(start), size) },
        };
        let tensor = Tensor::from_bytes(bytes, given, &shape, device)?;
        match dtype {
            Some(dtype) => tensor.to_dtype(dtype),
            None => Ok(tensor),
        }
    })
}

/// The memory of a CPU tensor as NumPy sees it. Arrays keep it alive.
#[pyclass(module = "neurenix._engine", frozen)]
struct ArrayInterface {
    storage: Storage,
    dtype: DType,
}

#[pymethods]
impl ArrayInterface {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let Some(start) = self.storage.buffer.0.host_pointer() else {
            return Err(runtime_error("the host cannot reach this memory"));
        };
        let (layout, size) = (&self.storage.layout, self.dtype.size());
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", type_string(self.dtype))?;
        interface.set_item("shape", PyTuple::new(py, layout.shape.iter())?)?;
        interface.set_item("strides", PyTuple::new(py, layout.strides.iter().map(|s| s * size as isize))?)?;
        // Read-only: tensors are immutable values and may share memory.
        interface.set_item("data", (start.addr() + layout.offset * size, true))?;
        Ok(interface)
    }
}

/// The byte order and kind characters of a NumPy type string.
fn order_and_kind(dtype: DType) -> (char, char) {
    let kind = match dtype {
        DType::Bool => 'b',
        _ if dtype.is_float() => 'f',
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 'u',
        _ => 'i',
    };
    let order = match (dtype.size(), cfg!(target_endian = "big")) {
        (1, _) => '|',
        (_, true) => '>',
        (_, false) => '<',
    };
    (order, kind)
}

/// The NumPy type string of a dtype.
pub(crate) fn type_string(dtype: DType) -> String {
    let (order, kind) = order_and_kind(dtype);
    format!("{order}{kind}{}", dtype.size())
}

/// The name of the integers with this dtype's bits, if NumPy lacks it.
fn bits_in_numpy(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::BF16 => Some("uint16"),
        DType::F8E4M3 | DType::F8E5M2 => Some("uint8"),
        _ => None,
    }
}

fn has_type_string(dtype: DType, name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().zip(letters.next()) == Some(order_and_kind(dtype))
        && letters.as_str().parse() == Ok(dtype.size())
}

fn export<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    // In a recording, the current values would be baked in as constants.
    refuse_reading()?;
    let dtype = tensor.dtype();
    if bits_in_numpy(dtype).is_some() {
        return Err(type_error(format!("NumPy does not support {dtype}: convert with .float() first")));
    }
    if tensor.device().name() != "cpu" {
        return Err(type_error(format!(
            "the tensor is on {}: copy it to the CPU with .cpu() first",
            tensor.device()
        )));
    }
    let numpy = numpy(py)?;
    if tensor.is_empty() {
        let shape = PyTuple::new(py, tensor.shape())?;
        return Ok(numpy.call_method1("empty", (shape, type_string(dtype)))?);
    }
    compute(py, || tensor.evaluate())?;
    let memory = Bound::new(py, ArrayInterface { storage: tensor.storage()?, dtype })?;
    Ok(numpy.call_method1("asarray", (memory,))?)
}

#[pymethods]
impl PyTensor {
    /// Returns the elements as a read-only NumPy array that shares memory. A tensor on another device or with gradients
    /// is an error unless ``force=True``, which also converts dtypes that NumPy lacks to ``float32``.
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(&self, py: Python<'py>, force: bool) -> Result<Bound<'py, PyAny>> {
        let tensor = self.tensor()?;
        if force {
            let mut tensor = tensor.detach()?.to_device(crate::device::find("cpu")?)?;
            if bits_in_numpy(tensor.dtype()).is_some() {
                tensor = tensor.to_dtype(DType::F32)?;
            }
            return export(py, &tensor);
        }
        if tensor.requires_grad() {
            return Err(runtime_error(
                "cannot convert a tensor that requires gradients to NumPy: use .detach().numpy()",
            ));
        }
        export(py, &tensor)
    }
    /// NumPy's array conversion protocol.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let array = self.numpy(py, false)?;
        if copy == Some(false) {
            let wanted = dtype.as_ref().map(|dtype| numpy_dtype(py, dtype)).transpose()?;
            let own = array.getattr("dtype")?;
            if wanted.is_some_and(|wanted| wanted.ne(&own).unwrap_or(true)) {
                return Err(value_error(format!(
                    "converting from {own} needs a copy, which copy=False forbids"
                )));
            }
        }
        let array = match dtype {
            Some(dtype) => array.call_method("astype", (dtype,), Some(&keyword(py, "copy", false)?))?,
            None => array,
        };
        // NumPy expects a copy to be writable.
        Ok(if copy == Some(true) { array.call_method0("copy")? } else { array })
    }
    /// Returns the elements as bytes in row-major order.
    fn tobytes<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyBytes>> {
        let tensor = self.evaluated(py)?;
        let bytes = compute(py, || tensor.to_bytes())?;
        Ok(PyBytes::new_with(py, bytes.len(), |place| {
            place.copy_from_slice(&bytes);
            Ok(())
        })?)
    }
}

/// Converts a dtype argument to a NumPy dtype.
fn numpy_dtype<'py>(py: Python<'py>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    numpy(py)?.call_method1("dtype", (dtype,))
}

fn keyword<'py>(py: Python<'py>, name: &str, value: bool) -> PyResult<Bound<'py, PyDict>> {
    let keywords = PyDict::new(py);
    keywords.set_item(name, value.into_bound_py_any(py)?)?;
    Ok(keywords)
}

/// Creates a tensor from bytes in row-major order.
#[pyfunction]
#[pyo3(signature = (data, dtype, shape, device=None))]
pub(crate) fn from_bytes(
    data: &Bound<'_, PyBytes>,
    dtype: Wanted,
    shape: crate::argument::Shape,
    device: Option<crate::device::Named>,
) -> Result<PyTensor> {
    let device = crate::device::chosen(device)?;
    Ok(PyTensor::wrap(Tensor::from_bytes(data.as_bytes(), dtype.0, &shape.0, device)?))
}
