//! Choosing elements: by position, order or mask; and products of matrices.

use phynexus::{DType, Tensor, op::Combine, text::show_shape};
use pyo3::prelude::*;

use super::{
    PyTensor,
    reduce::{pair, summand},
};
use crate::{
    argument::{Count, Number, fits, one_of},
    error::{Result, type_error, value_error},
    interrupt::compute,
    precision,
};

macro_rules! with_tensor {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            fn $name(&self, other: &PyTensor) -> Result<PyTensor> {
                let other = other.tensor()?;
                self.map(|t| t.$name(&other))
            }
        )+ }
    };
}

with_tensor! {
    /// The inner product of two vectors.
    dot;
    /// The products of all pairs of two vectors.
    outer;
    /// Kronecker's product.
    kron;
}

/// A tensor with one value where a mask is true. Gradients flow to a value that is a tensor.
fn filled(tensor: &Tensor, mask: &Tensor, value: &Bound<'_, PyAny>) -> Result<Tensor> {
    let Ok(given) = value.cast::<PyTensor>() else {
        let Number(value) = value.extract()?;
        return Ok(tensor.masked_fill(mask, value)?);
    };
    let given = given.get().tensor()?;
    if given.rank() > 0 {
        let shape = show_shape(given.shape());
        return Err(value_error(format!(
            "masked_fill: the value has shape {shape}: it is a number, or a tensor without dimensions"
        )));
    }
    let given = given.to_dtype(tensor.dtype())?.to_device(tensor.device())?;
    Ok(mask.expand(tensor.shape())?.where_(&given, tensor)?)
}

#[pymethods]
impl PyTensor {
    /// The product of matrices, stacks of them, and vectors.
    fn matmul(&self, other: &PyTensor) -> Result<PyTensor> {
        let other = other.tensor()?;
        self.map(|t| precision::matmul(t, &other))
    }
    /// The product of two matrices.
    fn mm(&self, mat2: &PyTensor) -> Result<PyTensor> {
        self.matmul(mat2)
    }
    /// The products of two stacks of matrices.
    fn bmm(&self, mat2: &PyTensor) -> Result<PyTensor> {
        self.matmul(mat2)
    }
    /// The vector product along ``dim``, of size 3; without it along the first dimension of that size.
    #[pyo3(signature = (other, dim=None))]
    fn cross(&self, other: &PyTensor, dim: Option<i64>) -> Result<PyTensor> {
        let (tensor, other) = (self.tensor()?, other.tensor()?);
        // Counted from the end, as broadcasting does.
        let from_end = |axis: usize| axis as i64 - tensor.rank() as i64;
        let first = || tensor.shape().iter().position(|&size| size == 3).map(from_end);
        let Some(dim) = dim.or_else(first) else {
            let shape = show_shape(tensor.shape());
            return Err(value_error(format!("cross: shape {shape} has no dimension of size 3")));
        };
        Ok(PyTensor::wrap(tensor.cross(&other, dim)?))
    }
    /// The sum of a matrix's diagonal.
    fn trace(&self) -> Result<PyTensor> {
        self.map(|t| summand(t)?.trace())
    }
    /// ``out[i][j] = self[index[i][j]][j]`` for ``dim`` 0, and so on.
    fn gather(&self, dim: i64, index: &PyTensor) -> Result<PyTensor> {
        let index = index.tensor()?;
        self.map(|t| t.gather(dim, &index))
    }
    /// As ``gather``, other axes broadcast; over all elements without ``dim``.
    #[pyo3(signature = (indices, dim=None))]
    fn take_along_dim(&self, indices: &PyTensor, dim: Option<i64>) -> Result<PyTensor> {
        let indices = indices.tensor()?;
        self.map(|t| match dim {
            Some(dim) => t.take_along_dim(&indices, dim),
            None => t.reshape_infer(&[-1])?.take_along_dim(&indices.reshape_infer(&[-1])?, 0),
        })
    }
    /// The positions ``index`` along ``dim``.
    fn index_select(&self, dim: i64, index: &PyTensor) -> Result<PyTensor> {
        let index = index.tensor()?;
        self.map(|t| t.index_select(dim, &index))
    }
    /// The elements at these positions of all, counted in row-major order.
    #[pyo3(signature = (index, axis=None))]
    fn take(&self, index: &PyTensor, axis: Option<i64>) -> Result<PyTensor> {
        let index = index.tensor()?;
        self.map(|t| t.take(&index, axis))
    }
    /// A copy with ``src``, or one ``value``, at the positions ``index`` along ``dim``; with ``reduce`` it is added there
    /// (``"add"``) or multiplied (``"multiply"``).
    #[pyo3(signature = (dim, index, src=None, *, value=None, reduce=None))]
    fn scatter(
        &self,
        dim: i64,
        index: &PyTensor,
        src: Option<&Bound<'_, PyAny>>,
        value: Option<Number>,
        reduce: Option<&str>,
    ) -> Result<PyTensor> {
        let (tensor, index) = (self.tensor()?, index.tensor()?);
        let full = |Number(value): Number| -> Result<Tensor> {
            fits(value, tensor.dtype())?;
            Ok(Tensor::full(index.shape(), value, tensor.dtype(), tensor.device())?)
        };
        let source = match (src, value) {
            (Some(src), None) => match src.cast::<PyTensor>() {
                Ok(source) => source.get().tensor()?,
                Err(_) => full(src.extract()?)?,
            },
            (None, Some(value)) => full(value)?,
            _ => return Err(type_error("scatter: give src or value, one of both")),
        };
        Ok(PyTensor::wrap(match reduce {
            None => tensor.scatter(dim, &index, &source)?,
            Some("add") => tensor.scatter_add(dim, &index, &source)?,
            Some("multiply") => tensor.scatter_reduce(dim, &index, &source, Combine::Prod, true)?,
            Some(reduce) => {
                return Err(value_error(format!(
                    "scatter: reduce is {reduce:?}: it is \"add\" or \"multiply\"; see scatter_reduce"
                )));
            }
        }))
    }
    /// A copy with ``src`` added at the positions ``index`` along ``dim``.
    fn scatter_add(&self, dim: i64, index: &PyTensor, src: &PyTensor) -> Result<PyTensor> {
        let (index, source) = (index.tensor()?, src.tensor()?);
        self.map(|t| t.scatter_add(dim, &index, &source))
    }
    /// A copy in which elements of ``src`` are combined at the positions ``index`` along ``dim``: ``reduce`` is ``"sum"``,
    /// ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``. Without ``include_self`` the elements there before do not take part.
    #[pyo3(signature = (dim, index, src, reduce, *, include_self=true))]
    fn scatter_reduce(
        &self,
        dim: i64,
        index: &PyTensor,
        src: &PyTensor,
        reduce: &str,
        include_self: bool,
    ) -> Result<PyTensor> {
        let (tensor, index, source) = (self.tensor()?, index.tensor()?, src.tensor()?);
        let combine = match reduce {
            "sum" | "mean" => Combine::Sum,
            "prod" => Combine::Prod,
            "amax" => Combine::Max,
            "amin" => Combine::Min,
            _ => {
                return Err(value_error(format!(
                    "scatter_reduce: reduce is {reduce:?}: it is \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\""
                )));
            }
        };
        let combined = tensor.scatter_reduce(dim, &index, &source, combine, include_self)?;
        if reduce != "mean" {
            return Ok(PyTensor::wrap(combined));
        }
        let own = tensor.detach()?.full_like(i64::from(include_self))?;
        let one = Tensor::full(index.shape(), 1, tensor.dtype(), tensor.device())?;
        let count = own.scatter_add(dim, &index, &one)?.maximum_scalar(1)?;
        let mean = match tensor.dtype().is_float() {
            true => combined.div(&count)?,
            false => combined.floor_divide(&count)?,
        };
        Ok(PyTensor::wrap(mean))
    }
    /// A copy with ``source``'s slices added at the positions ``index`` along ``dim``.
    fn index_add(&self, dim: i64, index: &PyTensor, source: &PyTensor) -> Result<PyTensor> {
        let (index, source) = (index.tensor()?, source.tensor()?);
        self.map(|t| t.index_add(dim, &index, &source))
    }
    /// A copy with ``value``, a number or a tensor without dimensions, where ``mask`` is true.
    fn masked_fill(&self, mask: &PyTensor, value: &Bound<'_, PyAny>) -> Result<PyTensor> {
        Ok(PyTensor::wrap(filled(&self.tensor()?, &mask.tensor()?, value)?))
    }
    /// ``value`` where ``mask`` is true, in place.
    fn masked_fill_<'py>(
        slf: &Bound<'py, Self>,
        mask: &PyTensor,
        value: &Bound<'_, PyAny>,
    ) -> Result<Bound<'py, Self>> {
        slf.get().assign(filled(&slf.get().tensor()?, &mask.tensor()?, value)?)?;
        Ok(slf.clone())
    }
    /// The elements where ``mask`` is true, as a vector. Computes at once.
    fn masked_select(&self, py: Python<'_>, mask: &PyTensor) -> Result<PyTensor> {
        let (tensor, mask) = (self.tensor()?, mask.tensor()?);
        Ok(PyTensor::wrap(compute(py, || tensor.masked_select(&mask))?))
    }
    /// The indices of elements that are not zero: a row for each, or with ``as_tuple`` a vector for each axis. Computes
    /// at once.
    #[pyo3(signature = (*, as_tuple=false))]
    fn nonzero<'py>(&self, py: Python<'py>, as_tuple: bool) -> Result<Bound<'py, PyAny>> {
        let tensor = self.tensor()?;
        let rows = compute(py, || tensor.nonzero())?;
        if !as_tuple {
            return Ok(Bound::new(py, PyTensor::wrap(rows))?.into_any());
        }
        let columns = (0..tensor.rank())
            .map(|axis| Ok(Bound::new(py, PyTensor::wrap(rows.narrow(1, axis, 1)?.squeeze(1)?))?))
            .collect::<Result<Vec<_>>>()?;
        Ok(pyo3::types::PyTuple::new(py, columns)?.into_any())
    }
    /// The order along ``dim``: values and their indices. Equal elements keep their order; NaN is the greatest.
    #[pyo3(signature = (dim=None, descending=false, stable=true, *, axis=None), text_signature = "($self, dim=-1, descending=False, stable=True, *, axis=None)")]
    fn sort<'py>(
        &self,
        py: Python<'py>,
        dim: Option<i64>,
        descending: bool,
        stable: bool,
        axis: Option<i64>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = stable;
        let (values, indices) = self.tensor()?.sort(one_of(dim, axis)?.unwrap_or(-1), descending)?;
        pair(py, "sort", values, indices)
    }
    /// The indices that sort along ``dim``.
    #[pyo3(signature = (dim=None, descending=false, stable=true, *, axis=None), text_signature = "($self, dim=-1, descending=False, stable=True, *, axis=None)")]
    fn argsort(
        &self,
        dim: Option<i64>,
        descending: bool,
        stable: bool,
        axis: Option<i64>,
    ) -> Result<PyTensor> {
        let _ = stable;
        let dim = one_of(dim, axis)?.unwrap_or(-1);
        self.map(|t| t.argsort(dim, descending))
    }
    /// The ``k`` greatest elements along ``dim`` (least with ``largest=False``): values and indices, in order. NaN is the
    /// greatest.
    #[pyo3(signature = (k, dim=None, largest=true, sorted=true, *, axis=None), text_signature = "($self, k, dim=-1, largest=True, sorted=True, *, axis=None)")]
    fn topk<'py>(
        &self,
        py: Python<'py>,
        k: Count,
        dim: Option<i64>,
        largest: bool,
        sorted: bool,
        axis: Option<i64>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = sorted;
        let (values, indices) = self.tensor()?.topk(k.0, one_of(dim, axis)?.unwrap_or(-1), largest)?;
        pair(py, "topk", values, indices)
    }
    /// The distinct elements in order, which of them each element is, and how often each occurs. Computes at once.
    fn _unique(&self, py: Python<'_>) -> Result<(PyTensor, PyTensor, PyTensor)> {
        let tensor = self.tensor()?;
        let unique = compute(py, || tensor.unique())?;
        Ok((PyTensor::wrap(unique.values), PyTensor::wrap(unique.inverse), PyTensor::wrap(unique.counts)))
    }
    /// Where each of ``values`` belongs in this sorted vector.
    #[pyo3(signature = (values, right=false))]
    fn _searchsorted(&self, values: &PyTensor, right: bool) -> Result<PyTensor> {
        let values = values.tensor()?;
        self.map(|t| t.searchsorted(&values, right))
    }
    /// Rows of zeros with a one at each class.
    #[pyo3(signature = (num_classes, dtype=None))]
    fn one_hot(&self, num_classes: Count, dtype: Option<crate::dtype::Wanted>) -> Result<PyTensor> {
        self.map(|t| t.one_hot(num_classes.0, dtype.map_or(DType::I64, |dtype| dtype.0)))
    }
    /// The plan that would compute this tensor, in words; ``None`` where the data is there.
    fn explain(&self, py: Python<'_>) -> Result<Option<String>> {
        let tensor = self.tensor()?;
        let plan = compute(py, || tensor.explain())?;
        Ok(plan.map(|plan| plan.to_string()))
    }
    /// Whether this and another are the same data or node.
    fn is_same(&self, other: &PyTensor) -> bool {
        self.place().tensor().is_same(&other.place().tensor())
    }
}
