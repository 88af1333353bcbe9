//! The class ``Tensor``: a place that holds a tensor of the engine.
//!
//! The engine's tensors are values. Python's are places: an operation in place puts a new value into its place, an
//! optimiser too, and everybody who holds the place sees it. Views are values of their own.

pub(crate) mod autograd;
pub(crate) mod dlpack;
mod elementwise;
mod index;
pub(crate) mod movement;
pub(crate) mod numpy;
mod operators;
mod reduce;
mod select;
pub(crate) mod stand_in;

use neurenix::nn::Parameter;
use phynexus::{
    DType, Device, Element, Error, Tensor, graph::gradient::is_enabled, schedule::capture::is_recording,
    shape::show_shape,
};
use pyo3::{
    prelude::*,
    types::{PyList, PyString, PyTuple, PyType},
};

use self::stand_in::Special;
use crate::{
    argument::{Given, Shape, spread},
    device::{Named, PyDevice, chosen},
    dtype::{Meant, PyDType, Wanted, meant},
    error::{Result, runtime_error, type_error, value_error},
    interrupt::compute,
};

/// A multi-dimensional array of numbers of one type on one device, whose gradients can be found.
///
/// Operations are recorded and computed when somebody reads: printing, ``item``, ``numpy``, an optimiser's step.
///
/// >>> import neurenix as nx
/// >>> x = nx.Tensor([[1.0, 2.0], [3.0, 4.0]])
/// >>> (x @ x).sum().item()
/// 54.0
#[pyclass(name = "Tensor", module = "neurenix", frozen, subclass, weakref)]
pub(crate) struct PyTensor {
    /// The place, but where this thread has a stand-in for it: see [`PyTensor::place`].
    own: Parameter,
    /// The parameter whose gradient this is: changes in place go there too.
    owner: Option<Parameter>,
    /// Whether it is the values of a place without its gradients, which ``data`` gives, or has stand-ins.
    special: Special,
}

impl PyTensor {
    /// A new place.
    pub(crate) fn wrap(tensor: Tensor) -> PyTensor {
        PyTensor { own: Parameter::buffer(tensor), owner: None, special: Special::none() }
    }

    fn trainable(tensor: &Tensor) -> Result<PyTensor> {
        Ok(PyTensor { own: Parameter::new(tensor)?, owner: None, special: Special::none() })
    }

    /// The value now: for one that requires gradients, the leaf that collects them.
    #[inline]
    pub(crate) fn tensor(&self) -> Result<Tensor> {
        if self.special.is_any() {
            return self.special_tensor();
        }
        if self.own.is_trainable() { Ok(self.own.leaf()?) } else { Ok(self.own.tensor()) }
    }

    /// A new tensor from this one's value.
    #[inline]
    fn map(&self, function: impl FnOnce(&Tensor) -> phynexus::Result<Tensor>) -> Result<PyTensor> {
        Ok(PyTensor::wrap(function(&self.tensor()?)?))
    }

    /// Puts a value of the same shape into the place, brought to its dtype and device.
    pub(crate) fn assign(&self, value: Tensor) -> Result<()> {
        let place = self.place();
        let old = if place.is_trainable() { place.leaf()? } else { place.tensor() };
        if value.shape() != old.shape() {
            let hint = "an operation in place cannot change the shape";
            return Err(Error::shape("in place", &[old.shape(), value.shape()], hint).into());
        }
        if value.dtype().is_float() && !old.dtype().is_float() {
            let hint = format!("a {} tensor cannot take {} values in place", old.dtype(), value.dtype());
            return Err(Error::dtype("in place", &[old.dtype(), value.dtype()], hint).into());
        }
        let value = value.to_dtype(old.dtype())?.to_device(old.device())?;
        let trainable = place.is_trainable();
        if self.collects() && is_enabled() {
            return Err(runtime_error(
                "a leaf that requires gradients is changed in place: change it under `with neurenix.no_grad():`",
            ));
        }
        let value = if trainable { value.detach()? } else { value };
        let gradient = old.grad();
        if let Some(owner) = &self.owner {
            let leaf = owner.leaf()?;
            if leaf.grad().is_some_and(|grad| grad.is_same(&old)) {
                leaf.set_grad(Some(value.clone()));
            }
        }
        place.set(value)?;
        if trainable && gradient.is_some() {
            place.leaf()?.set_grad(gradient);
        }
        Ok(())
    }

    /// The value, computed, while other threads of Python go on.
    pub(crate) fn evaluated(&self, py: Python<'_>) -> Result<Tensor> {
        let tensor = self.tensor()?;
        if !tensor.is_evaluated() {
            compute(py, || tensor.evaluate())?;
        }
        Ok(tensor)
    }
}

/// A tensor from whatever Python has: a tensor, numbers, lists, NumPy's arrays.
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

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (data=Given(None), shape=None, dtype=None, device=None, requires_grad=false), text_signature = "(data=..., shape=None, dtype=None, device=None, requires_grad=False)")]
    fn new(
        data: Given<'_>,
        shape: Option<Shape>,
        dtype: Option<Wanted>,
        device: Option<Named>,
        requires_grad: bool,
    ) -> Result<PyTensor> {
        let dtype = dtype.map(|dtype| dtype.0);
        let mut tensor = match data.0 {
            Some(data) => convert(&data, dtype, device)?,
            None => {
                let sizes = shape.as_ref().map_or(&[][..], |shape| &shape.0);
                let sizes = if shape.is_some() { sizes } else { &[0] };
                Tensor::zeros(sizes, dtype.unwrap_or(DType::F32), chosen(device)?)?
            }
        };
        if let Some(shape) = shape {
            tensor = tensor.reshape(&shape.0)?;
        }
        if requires_grad { PyTensor::trainable(&tensor) } else { Ok(PyTensor::wrap(tensor)) }
    }

    /// The size of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.own.tensor().shape())
    }
    /// The number of dimensions.
    #[getter]
    fn ndim(&self) -> usize {
        self.own.tensor().rank()
    }
    /// The number of dimensions.
    fn dim(&self) -> usize {
        self.ndim()
    }
    /// The number of elements.
    fn numel(&self) -> usize {
        self.own.tensor().len()
    }
    /// Bytes of an element.
    fn element_size(&self) -> usize {
        self.own.tensor().dtype().size()
    }
    /// Bytes of an element.
    #[getter]
    fn itemsize(&self) -> usize {
        self.element_size()
    }
    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.numel() * self.element_size()
    }
    /// The type of the elements.
    #[getter]
    fn dtype(&self) -> PyDType {
        PyDType(self.own.tensor().dtype())
    }
    /// The device that holds the elements.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.own.tensor().device())
    }
    /// Whether an NVIDIA GPU holds the elements.
    #[getter]
    fn is_cuda(&self) -> bool {
        self.own.tensor().device().name().starts_with("cuda")
    }
    fn is_floating_point(&self) -> bool {
        self.own.tensor().dtype().is_float()
    }
    /// Whether the elements lie in memory one after the other, the last dimension fastest.
    fn is_contiguous(&self, py: Python<'_>) -> Result<bool> {
        let storage = self.evaluated(py)?.storage()?;
        Ok(storage.layout.is_contiguous())
    }

    /// The only element as a number of Python's.
    ///
    /// Raises ``ValueError`` unless there is exactly one.
    fn item<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.evaluated(py)?;
        if tensor.len() != 1 {
            let shape = show_shape(tensor.shape());
            return Err(value_error(format!("item: a tensor of shape {shape} is no single number")));
        }
        numbers(py, &tensor)?.get_item(0).map_err(Into::into)
    }

    /// The elements as nested lists of Python's numbers.
    fn tolist<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let tensor = self.evaluated(py)?;
        let flat = numbers(py, &tensor)?;
        nest(&flat, tensor.shape(), &mut 0)
    }

    /// The same values as a tensor of another dtype, or on another device: ``x.to("cuda:0")``, ``x.to(nx.float16)``,
    /// ``x.to(device, dtype)``, ``x.to(other)``.
    #[pyo3(signature = (*args, dtype=None, device=None, non_blocking=false, copy=false))]
    fn to<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        dtype: Option<Wanted>,
        device: Option<Named>,
        non_blocking: bool,
        copy: bool,
    ) -> Result<Bound<'py, PyTensor>> {
        let _ = non_blocking;
        let (mut dtype, mut device) = (dtype.map(|d| d.0), device.map(|d| d.0));
        for argument in args.iter().filter(|argument| !argument.is_none()) {
            if let Ok(other) = argument.cast::<PyTensor>() {
                let other = other.get().own.tensor();
                (dtype, device) = (Some(other.dtype()), Some(other.device()));
                continue;
            }
            match meant(&argument)? {
                Meant::DType(wanted) => dtype = Some(wanted),
                Meant::Device(named) => device = Some(named),
            }
        }
        let tensor = slf.get().tensor()?;
        let dtype = dtype.unwrap_or(tensor.dtype());
        let device = device.unwrap_or(tensor.device());
        if !copy && dtype == tensor.dtype() && device == tensor.device() {
            return Ok(slf.clone());
        }
        let moved = tensor.to_dtype(dtype)?.to_device(device)?;
        Ok(Bound::new(slf.py(), PyTensor::wrap(moved))?)
    }
    /// On the CPU.
    fn cpu<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTensor>> {
        slf.get().moved(slf, crate::device::find("cpu")?)
    }
    /// On an NVIDIA GPU, the first unless another is named.
    #[pyo3(signature = (device=None))]
    fn cuda<'py>(slf: &Bound<'py, Self>, device: Option<i64>) -> Result<Bound<'py, PyTensor>> {
        slf.get().moved(slf, crate::device::find(&format!("cuda:{}", device.unwrap_or(0)))?)
    }
    /// As ``float32``.
    fn float(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::F32))
    }
    /// As ``float64``.
    fn double(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::F64))
    }
    /// As ``float16``.
    fn half(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::F16))
    }
    /// As ``bfloat16``.
    fn bfloat16(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::BF16))
    }
    /// As ``int32``.
    fn int(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::I32))
    }
    /// As ``int64``.
    fn long(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::I64))
    }
    /// As ``bool``: true where not zero.
    fn bool(&self) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(DType::Bool))
    }
    /// As another dtype.
    fn r#type(&self, dtype: Wanted) -> Result<PyTensor> {
        self.map(|t| t.to_dtype(dtype.0))
    }
    /// The same bytes read as elements of another dtype of the same size.
    fn bitcast(&self, dtype: Wanted) -> Result<PyTensor> {
        self.map(|t| t.bitcast(dtype.0))
    }
    /// A tensor of the same values, in a place of its own.
    fn clone(&self) -> Result<PyTensor> {
        self.map(|t| Ok(t.clone()))
    }
    /// A tensor whose elements lie one after the other.
    fn contiguous(&self) -> Result<PyTensor> {
        self.map(Tensor::contiguous)
    }
    /// Computes the values now, and gives the tensor back.
    fn evaluate<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, PyTensor>> {
        slf.get().evaluated(slf.py())?;
        Ok(slf.clone())
    }
    /// Whether the values are there, so that reading computes nothing.
    #[getter]
    fn is_evaluated(&self) -> bool {
        self.own.tensor().is_evaluated()
    }

    fn __repr__(&self, py: Python<'_>) -> Result<String> {
        // A computation that fails raises here as everywhere, but for a print in what is being recorded.
        let tensor = if is_recording() { self.tensor()? } else { self.evaluated(py)? };
        let text = compute(py, || Ok::<_, Error>(tensor.to_string()))?;
        Ok(text.replace("requires_grad)", "requires_grad=True)"))
    }
    fn __bool__(&self, py: Python<'_>) -> Result<bool> {
        let tensor = self.evaluated(py)?;
        if tensor.len() != 1 {
            let shape = show_shape(tensor.shape());
            let message = format!("the truth of a tensor of shape {shape} is not clear: use any() or all()");
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
        let dtype = self.own.tensor().dtype();
        if !dtype.is_integer() {
            return Err(type_error(format!("a {dtype} tensor is no index: only integers are")));
        }
        self.item(py)
    }
    fn __len__(&self) -> Result<usize> {
        match self.own.tensor().shape().first() {
            Some(&size) => Ok(size),
            None => Err(type_error("a tensor of no dimensions has no len()")),
        }
    }
    fn __iter__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        if self.ndim() == 0 {
            return Err(type_error("a tensor without dimensions cannot be iterated over: use .item()"));
        }
        let parts = self.unbind(0)?;
        Ok(PyList::new(
            py,
            parts.into_iter().map(|part| Bound::new(py, part)).collect::<PyResult<Vec<_>>>()?,
        )?
        .call_method0("__iter__")?)
    }
    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> Result<bool> {
        let tensor = self.tensor()?;
        let Some(value) = crate::argument::number(value)? else {
            return Err(type_error("only a number can be looked for in a tensor"));
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
        text.cast_into().map_err(|_| type_error("format() gave no text"))
    }
    /// Pickles and copies carry the values: through NumPy, bit for bit.
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
    /// The namespace of the array API standard: the package itself.
    #[pyo3(signature = (*, api_version=None))]
    fn __array_namespace__<'py>(
        &self,
        py: Python<'py>,
        api_version: Option<&str>,
    ) -> Result<Bound<'py, PyAny>> {
        const VERSIONS: [&str; 4] = ["2021.12", "2022.12", "2023.12", "2024.12"];
        match api_version {
            Some(version) if !VERSIONS.contains(&version) => Err(value_error(format!(
                "version {version} of the array API is not here: the latest is 2024.12"
            ))),
            _ => Ok(py.import("neurenix")?.into_any()),
        }
    }
    /// On another device.
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

/// The elements in row-major order as a list of Python's numbers.
fn numbers<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyList>> {
    fn read<T: Element + Send>(py: Python<'_>, tensor: &Tensor) -> Result<Vec<T>> {
        compute(py, || tensor.to_vec::<T>())
    }
    Ok(match tensor.dtype() {
        DType::Bool => PyList::new(py, read::<bool>(py, tensor)?)?,
        DType::U64 => PyList::new(py, read::<u64>(py, tensor)?)?,
        dtype if dtype.is_integer() => PyList::new(py, read::<i64>(py, &tensor.to_dtype(DType::I64)?)?)?,
        _ => PyList::new(py, read::<f64>(py, &tensor.detach()?.to_dtype(DType::F64)?)?)?,
    })
}

/// Lists in lists, by the shape.
fn nest<'py>(flat: &Bound<'py, PyList>, shape: &[usize], next: &mut usize) -> Result<Bound<'py, PyAny>> {
    let Some((&size, inner)) = shape.split_first() else {
        *next += 1;
        return Ok(flat.get_item(*next - 1)?);
    };
    let parts = (0..size).map(|_| nest(flat, inner, next)).collect::<Result<Vec<_>>>()?;
    Ok(PyList::new(flat.py(), parts)?.into_any())
}

/// Sizes of a `reshape`, one of which may be -1.
fn reshaped(tensor: &Tensor, sizes: &Bound<'_, PyTuple>) -> Result<Tensor> {
    Ok(tensor.reshape_infer(&spread(sizes)?)?)
}
