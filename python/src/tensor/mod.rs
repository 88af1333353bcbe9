//! The attributes and methods of the class ``Tensor``.

pub(crate) mod autograd;
mod collect;
mod composites;
pub(crate) mod dlpack;
mod elementwise;
mod in_place;
mod index;
mod lists;
pub(crate) mod movement;
pub(crate) mod numpy;
pub(crate) mod operand;
mod operators;
pub(crate) mod reading;
pub(crate) mod reduce;
mod select;
pub(crate) mod transforms;
mod views;

use phynexus::{
    DType, Device, Error, Tensor,
    schedule::capture::is_recording,
    shape::{contiguous_strides, normalize_axis},
    tensor::default_dtype,
    text::show_shape,
};
use pyo3::{
    IntoPyObjectExt, PyTraverseError, PyVisit,
    prelude::*,
    types::{PyBool, PyInt, PyString, PyTuple, PyType},
};

use self::lists::numbers;
pub(crate) use crate::variable::PyTensor;
use crate::{
    argument::{Given, Shape, varargs_sizes},
    complex::{self, PyPair},
    device::{Named, PyDevice, chosen},
    dtype::{AnyDType, Meant, PyDType, Wanted, meant},
    error::{Result, type_error, value_error},
    interrupt::compute,
    size::size_of,
};

/// Converts a tensor, numbers, nested lists or NumPy arrays to a tensor.
pub(crate) fn convert(
    data: &Bound<'_, PyAny>,
    dtype: Option<DType>,
    device: Option<Named>,
) -> Result<Tensor> {
    if let Ok(tensor) = data.cast::<PyTensor>() {
        let tensor = tensor.get().tensor()?.detach()?;
        let tensor = match dtype {
            Some(dtype) => tensor.to_dtype(dtype)?,
            None => tensor,
        };
        return match device {
            Some(device) => Ok(tensor.to_device(device.0)?),
            None => Ok(tensor),
        };
    }
    numpy::import(data, dtype, chosen(device)?)
}

/// Splits the constructor's arguments into data and shape.
fn arguments<'py>(
    args: &Bound<'py, PyTuple>,
    Given(data): Given<'py>,
    shape: Option<Shape>,
) -> Result<(Option<Bound<'py, PyAny>>, Option<Shape>)> {
    if args.is_empty() {
        return Ok((data, shape));
    }
    if data.is_some() || shape.is_some() && args.len() > 1 {
        return Err(type_error("Tensor: data or shape was given twice, by position and by name"));
    }
    let is_size =
        |each: &Bound<'py, PyAny>| each.is_instance_of::<PyInt>() && !each.is_instance_of::<PyBool>();
    if shape.is_none() && args.iter().all(|each| is_size(&each)) {
        return Ok((None, Some(Shape(varargs_sizes(args)?))));
    }
    let data = Some(args.get_item(0)?);
    match args.len() {
        1 => Ok((data, shape)),
        2 => Ok((data, Some(args.get_item(1)?.extract()?))),
        _ => Err(type_error(
            "Tensor: expected data or sizes, as in Tensor([1.0, 2.0]) or Tensor(2, 3): pass dtype= and device= by name",
        )),
    }
}

#[pymethods]
impl PyTensor {
    /// ``Tensor(data)``, or as in PyTorch ``Tensor(2, 3)``, where integers are sizes.
    #[new]
    #[pyo3(signature = (*args, data=Given(None), shape=None, dtype=None, device=None, requires_grad=false), text_signature = "(*args, data=..., shape=None, dtype=None, device=None, requires_grad=False)")]
    fn new(
        args: &Bound<'_, PyTuple>,
        data: Given<'_>,
        shape: Option<Shape>,
        dtype: Option<Wanted>,
        device: Option<Named>,
        requires_grad: bool,
    ) -> Result<PyTensor> {
        let dtype = dtype.map(|dtype| dtype.0);
        let given = arguments(args, data, shape)?;
        let (data, shape) = (given.0, given.1);
        if let Some(pair) = data.as_ref().and_then(|data| data.cast::<PyPair>().ok()) {
            return pair.get().tensor(requires_grad);
        }
        let mut tensor = match data {
            Some(data) => convert(&data, dtype, device)?,
            None => {
                let sizes = shape.as_ref().map_or(&[0][..], |shape| &shape.0);
                Tensor::zeros(sizes, dtype.unwrap_or_else(default_dtype), chosen(device)?)?
            }
        };
        if let Some(shape) = shape {
            tensor = tensor.reshape(&shape.0)?;
        }
        if requires_grad { PyTensor::trainable(&tensor) } else { Ok(PyTensor::wrap(tensor)) }
    }

    /// The sizes of the dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        size_of(py, &self.sizes())
    }
    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.sizes().len()
    }
    /// Returns the number of dimensions.
    fn dim(&self) -> usize {
        self.ndim()
    }
    /// Returns the number of elements.
    fn numel(&self) -> usize {
        self.sizes().iter().product()
    }
    /// Returns the size of an element in bytes.
    fn element_size(&self) -> usize {
        self.variable().tensor().dtype().size() * if self.special.is_complex() { 2 } else { 1 }
    }
    /// The size of an element in bytes.
    #[getter]
    fn itemsize(&self) -> usize {
        self.element_size()
    }
    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.numel() * self.element_size()
    }
    /// The dtype of the elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        let dtype = self.variable().tensor().dtype();
        if self.special.is_complex() { PyDType::complex(dtype) } else { PyDType::real(dtype) }
    }
    /// The device that holds the elements.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.variable().tensor().device())
    }
    /// Whether the tensor is on an NVIDIA GPU.
    #[getter]
    fn is_cuda(&self) -> bool {
        self.variable().tensor().device().name().starts_with("cuda")
    }
    fn is_floating_point(&self) -> bool {
        !self.special.is_complex() && self.variable().tensor().dtype().is_float()
    }
    /// Returns whether the elements are contiguous in memory in row-major order; for a view, whether they are within
    /// the tensor that it was taken from. Evaluates other tensors.
    fn is_contiguous(&self, py: Python<'_>) -> Result<bool> {
        if self.variable().is_view() {
            let (tensor, strides) = (self.variable().tensor(), self.variable().strides());
            let expected = contiguous_strides(tensor.shape());
            let is_expected = |axis: usize| {
                tensor.shape()[axis] == 1 || strides.as_ref().is_some_and(|own| own[axis] == expected[axis])
            };
            return Ok(tensor.is_empty() || (0..tensor.rank()).all(is_expected));
        }
        let storage = self.evaluated(py)?.storage()?;
        Ok(storage.layout.is_contiguous())
    }
    /// Returns the distances of neighbours along each dimension, or along one. A tensor that is no view counts as
    /// contiguous.
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(&self, py: Python<'py>, dim: Option<i64>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.variable().tensor();
        let strides =
            self.variable().strides().unwrap_or_else(|| contiguous_strides(tensor.shape()).to_vec());
        Ok(match dim {
            None => PyTuple::new(py, strides)?.into_any(),
            Some(dim) => strides[normalize_axis("stride", dim, tensor.shape())?].into_bound_py_any(py)?,
        })
    }

    /// Returns the only element as a Python number.
    ///
    /// Raises ``ValueError`` unless there is exactly one.
    fn item<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.evaluated(py)?;
        if tensor.len() != 1 {
            let shape = show_shape(tensor.shape());
            return Err(value_error(format!("item: a tensor of shape {shape} is not a single number")));
        }
        numbers(py, &tensor.reshape(&[])?)
    }

    /// Returns the elements as nested lists of Python numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.evaluated(py)?;
        numbers(py, &tensor)
    }

    /// Converts to another dtype or device: ``x.to("cuda:0")``, ``x.to(nx.float16)``, ``x.to(device, dtype)``,
    /// ``x.to(other)``. ``non_blocking`` and ``memory_format`` have no effect.
    #[pyo3(signature = (*args, dtype=None, device=None, non_blocking=false, copy=false, memory_format=None))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        dtype: Option<AnyDType>,
        device: Option<Named>,
        non_blocking: bool,
        copy: bool,
        memory_format: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = (non_blocking, memory_format);
        let (mut dtype, mut device) = (dtype.map(|d| d.0), device.map(|d| d.0));
        for argument in args.iter().filter(|argument| !argument.is_none()) {
            if let Ok(other) = argument.cast::<PyTensor>() {
                let other = other.get();
                (dtype, device) = (Some(other.dtype()), Some(other.variable().tensor().device()));
                continue;
            }
            match meant(&argument)? {
                Meant::DType(wanted) => dtype = Some(wanted),
                Meant::Device(named) => device = Some(named),
            }
        }
        let tensor = slf.get().tensor()?;
        let device = device.unwrap_or(tensor.device());
        let dtype = match dtype {
            None => tensor.dtype(),
            Some(dtype) => match dtype.engine() {
                Ok(dtype) => dtype,
                Err(_) => return complex::from_real(slf.py(), &tensor.to_device(device)?, dtype.component()),
            },
        };
        if !copy && dtype == tensor.dtype() && device == tensor.device() {
            return Ok(slf.clone());
        }
        let moved = tensor.to_dtype(dtype)?.to_device(device)?;
        Ok(Bound::new(slf.py(), PyTensor::wrap(moved))?)
    }
    /// Moves the tensor to the CPU.
    fn cpu<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTensor>> {
        slf.get().moved(slf, crate::device::find("cpu")?)
    }
    /// Moves the tensor to an NVIDIA GPU, by default the first.
    #[pyo3(signature = (device=None))]
    fn cuda<'py>(slf: &Bound<'py, Self>, device: Option<i64>) -> Result<Bound<'py, PyTensor>> {
        slf.get().moved(slf, crate::device::find(&format!("cuda:{}", device.unwrap_or(0)))?)
    }
    /// Converts to another dtype.
    fn r#type<'py>(slf: &Bound<'py, Self>, dtype: AnyDType) -> Result<Bound<'py, PyTensor>> {
        match dtype.0.engine() {
            Ok(dtype) => converted(slf, dtype),
            Err(_) => complex::from_real(slf.py(), &slf.get().tensor()?, dtype.0.component()),
        }
    }
    /// Reinterprets the bytes as elements of another dtype of the same size.
    fn bitcast(&self, dtype: Wanted) -> Result<PyTensor> {
        self.map(|t| t.bitcast(dtype.0))
    }
    /// Returns a copy that in-place changes of this tensor do not affect. Gradients flow through it. ``memory_format`` has
    /// no effect.
    #[pyo3(signature = (*, memory_format=None))]
    fn clone(&self, memory_format: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let _ = memory_format;
        self.map(|t| Ok(t.clone()))
    }
    /// Returns a tensor with the same values, contiguous in memory. In-place changes of one do not affect the other.
    /// ``memory_format`` has no effect.
    #[pyo3(signature = (memory_format=None))]
    fn contiguous(&self, memory_format: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let _ = memory_format;
        self.map(Tensor::contiguous)
    }
    /// Evaluates the tensor now and returns it.
    fn evaluate<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTensor>> {
        slf.get().evaluated(slf.py())?;
        Ok(slf.clone())
    }
    /// Whether the tensor is evaluated, so that reading it computes nothing.
    #[getter]
    fn is_evaluated(&self) -> bool {
        self.variable().tensor().is_evaluated()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(&visit)
    }
    fn __clear__(&self) {
        self.clear();
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        // Errors of the computation are raised here. While recording, the repr shows the tensor without its values.
        let tensor = if is_recording() { self.tensor()? } else { self.evaluated(py)? };
        let text = compute(py, || Ok::<_, Error>(tensor.to_string()))?;
        Ok(text.replace("requires_grad)", "requires_grad=True)"))
    }
    fn __bool__(&self, py: Python<'_>) -> Result<bool> {
        let tensor = self.evaluated(py)?;
        if tensor.len() != 1 {
            let shape = show_shape(tensor.shape());
            let message =
                format!("the truth value of a tensor of shape {shape} is ambiguous: use any() or all()");
            return Err(value_error(message));
        }
        Ok(tensor.to_dtype(DType::Bool)?.item::<bool>()?)
    }
    fn __int__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let item = self.item(py)?;
        Ok(py.import("builtins")?.getattr("int")?.call1((item,))?)
    }
    fn __float__(&self, py: Python<'_>) -> Result<f64> {
        Ok(self.item(py)?.extract()?)
    }
    fn __index__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let dtype = self.variable().tensor().dtype();
        if !dtype.is_integer() {
            let dtype = self.dtype().name();
            return Err(type_error(format!(
                "a {dtype} tensor cannot be used as an index: only integer tensors can"
            )));
        }
        self.item(py)
    }
    fn __len__(&self) -> Result<usize> {
        match self.sizes().first() {
            Some(&size) => Ok(size),
            None => Err(type_error("a 0-d tensor has no len()")),
        }
    }
    fn __iter__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        if self.ndim() == 0 {
            return Err(type_error("cannot iterate over a 0-d tensor: use .item()"));
        }
        Ok(self.unbind(py, 0)?.call_method0("__iter__")?)
    }
    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<bool> {
        let tensor = self.tensor()?;
        let Some(value) = crate::argument::number(value)? else {
            return Err(type_error("`in` expects a number on its left side"));
        };
        compute(py, || tensor.eq_scalar(value)?.any(&[], false)?.item::<bool>())
    }
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        slf.as_ptr().addr().cast_signed() >> 4
    }
    fn __format__<'py>(slf: &Bound<'py, Self>, specification: &str) -> Result<Bound<'py, PyString>> {
        let py = slf.py();
        if specification.is_empty() || slf.get().numel() != 1 {
            return Ok(slf.str()?);
        }
        let format = py.import("builtins")?.getattr("format")?;
        let text = format.call1((slf.get().item(py)?, specification))?;
        text.cast_into().map_err(|_| type_error("format() did not return a string"))
    }
    /// Copies and pickles store the values through NumPy, bit for bit.
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = protocol;
        slf.py().import("neurenix._pickle")?.call_method1("reduce", (slf,))
    }
    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("neurenix._pickle")?.call_method1("deepcopy", (slf, memo))
    }
    /// Returns the array API namespace: the package itself.
    #[pyo3(signature = (*, api_version=None))]
    fn __array_namespace__<'py>(
        &self,
        py: Python<'py>,
        api_version: Option<&str>,
    ) -> Result<Bound<'py, PyAny>> {
        const VERSIONS: [&str; 4] = ["2021.12", "2022.12", "2023.12", "2024.12"];
        match api_version {
            Some(version) if !VERSIONS.contains(&version) => Err(value_error(format!(
                "array API version {version} is not supported: the latest supported version is 2024.12"
            ))),
            _ => Ok(py.import("neurenix")?.into_any()),
        }
    }
    /// Moves the tensor to another device.
    #[pyo3(signature = (device, /, *, stream=None))]
    fn to_device<'py>(
        slf: &Bound<'py, Self>,
        device: Named,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = stream;
        slf.get().moved(slf, device.0)
    }
    #[classmethod]
    fn __class_getitem__<'py>(class: &Bound<'py, PyType>, item: &Bound<'py, PyAny>) -> Bound<'py, PyType> {
        let _ = item;
        class.clone()
    }
}

impl PyTensor {
    fn moved<'py>(&self, slf: &Bound<'py, Self>, device: Device) -> Result<Bound<'py, PyTensor>> {
        let tensor = self.tensor()?;
        if tensor.device() == device {
            return Ok(slf.clone());
        }
        Ok(Bound::new(slf.py(), PyTensor::wrap(tensor.to_device(device)?))?)
    }
}

/// A tensor with this dtype: this one if it has it.
fn converted<'py>(tensor: &Bound<'py, PyTensor>, dtype: DType) -> Result<Bound<'py, PyTensor>> {
    let value = tensor.get().tensor()?;
    if value.dtype() == dtype {
        return Ok(tensor.clone());
    }
    Ok(Bound::new(tensor.py(), PyTensor::wrap(value.to_dtype(dtype)?))?)
}

macro_rules! conversions {
    ($($(#[doc = $doc:literal])+ $name:ident $dtype:ident),*) => {
        #[pymethods]
        impl PyTensor {
            $($(#[doc = $doc])+
            fn $name<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTensor>> {
                converted(slf, DType::$dtype)
            })*
        }
    };
}
conversions!(
    /// Converts to ``float32``.
    float F32,
    /// Converts to ``float64``.
    double F64,
    /// Converts to ``float16``.
    half F16,
    /// Converts to ``bfloat16``.
    bfloat16 BF16,
    /// Converts to ``int32``.
    int I32,
    /// Converts to ``int64``.
    long I64,
    /// Converts to ``bool``: true where the element is nonzero.
    bool Bool
);
