//! Selection by position, order or mask, and matrix products.

use phynexus::{DType, Tensor, op::Combine, text::show_shape};
use pyo3::prelude::*;

use super::{
    PyTensor,
    reduce::{pair, summand},
};
use crate::{
    argument::{Count, Number, fits, one_of},
    dtype::Wanted,
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
    /// Returns the inner product of two vectors.
    dot;
    /// Returns the outer product of two vectors.
    outer;
    /// Returns the Kronecker product.
    kron;
}

/// Fills a tensor where a mask is true. If the value is a tensor, gradients flow to it.
fn filled(tensor: &Tensor, mask: &Tensor, value: &Bound<'_, PyAny>) -> Result<Tensor> {
    let Ok(given) = value.cast::<PyTensor>() else {
        let Number(value) = value.extract()?;
        return Ok(tensor.masked_fill(mask, value)?);
    };
    let given = given.get().tensor()?;
    if given.rank() > 0 {
        let shape = show_shape(given.shape());
        return Err(value_error(format!(
            "masked_fill: expected a number or a 0-d tensor as value, got a tensor of shape {shape}"
        )));
    }
    let given = given.to_dtype(tensor.dtype())?.to_device(tensor.device())?;
    Ok(mask.expand(tensor.shape())?.where_(&given, tensor)?)
}

#[pymethods]
impl PyTensor {
    /// Returns the matrix product. Operands are vectors, matrices or batches of matrices. ``out_dtype`` is that of the
    /// sums and of the result: ``int32`` for ``int8`` operands, ``float32`` for floats of 8 or 16 bits.
    #[pyo3(signature = (other, *, out_dtype=None))]
    fn matmul(&self, other: &PyTensor, out_dtype: Option<Wanted>) -> Result<PyTensor> {
        let other = other.tensor()?;
        match out_dtype {
            Some(Wanted(dtype)) => self.map(|t| t.matmul_as(&other, dtype)),
            None => self.map(|t| precision::matmul(t, &other)),
        }
    }
    /// Returns the product of two matrices; ``out_dtype`` is as for ``matmul``.
    #[pyo3(signature = (mat2, out_dtype=None))]
    fn mm(&self, mat2: &PyTensor, out_dtype: Option<Wanted>) -> Result<PyTensor> {
        self.matmul(mat2, out_dtype)
    }
    /// Returns the batched product of two stacks of matrices; ``out_dtype`` is as for ``matmul``.
    #[pyo3(signature = (mat2, out_dtype=None))]
    fn bmm(&self, mat2: &PyTensor, out_dtype: Option<Wanted>) -> Result<PyTensor> {
        self.matmul(mat2, out_dtype)
    }
    /// Returns the cross product along ``dim``, which has size 3. The default is the first dimension of size 3.
    #[pyo3(signature = (other, dim=None))]
    fn cross(&self, other: &PyTensor, dim: Option<i64>) -> Result<PyTensor> {
        let (tensor, other) = (self.tensor()?, other.tensor()?);
        // A negative axis refers to the same dimension after broadcasting.
        let from_end = |axis: usize| axis as i64 - tensor.rank() as i64;
        let first = || tensor.shape().iter().position(|&size| size == 3).map(from_end);
        let Some(dim) = dim.or_else(first) else {
            let shape = show_shape(tensor.shape());
            return Err(value_error(format!("cross: shape {shape} has no dimension of size 3")));
        };
        Ok(PyTensor::wrap(tensor.cross(&other, dim)?))
    }
    /// Returns the sum of a matrix's diagonal.
    fn trace(&self) -> Result<PyTensor> {
        self.map(|t| summand(t)?.trace())
    }
    /// Gathers elements along ``dim``: ``out[i][j] = self[index[i][j]][j]`` for ``dim=0``.
    fn gather(&self, dim: i64, index: &PyTensor) -> Result<PyTensor> {
        let index = index.tensor()?;
        self.map(|t| t.gather(dim, &index))
    }
    /// Gathers elements along ``dim`` like ``gather``, broadcasting the other dimensions. Without ``dim`` both tensors
    /// are flattened.
    #[pyo3(signature = (indices, dim=None))]
    fn take_along_dim(&self, indices: &PyTensor, dim: Option<i64>) -> Result<PyTensor> {
        let indices = indices.tensor()?;
        self.map(|t| match dim {
            Some(dim) => t.take_along_dim(&indices, dim),
            None => t.reshape_infer(&[-1])?.take_along_dim(&indices.reshape_infer(&[-1])?, 0),
        })
    }
    /// Returns the slices at the positions ``index`` along ``dim``.
    fn index_select(&self, dim: i64, index: &PyTensor) -> Result<PyTensor> {
        let index = index.tensor()?;
        self.map(|t| t.index_select(dim, &index))
    }
    /// Returns the elements at the positions ``index`` of the flattened tensor, or along ``axis``.
    #[pyo3(signature = (index, axis=None))]
    fn take(&self, index: &PyTensor, axis: Option<i64>) -> Result<PyTensor> {
        let index = index.tensor()?;
        self.map(|t| t.take(&index, axis))
    }
    /// Returns a copy with ``src``, or one ``value``, written at the positions ``index`` along ``dim``. With ``reduce``
    /// it is added (``"add"``) or multiplied (``"multiply"``) instead.
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
            _ => return Err(type_error("scatter: give either src or value")),
        };
        Ok(PyTensor::wrap(match reduce {
            None => tensor.scatter(dim, &index, &source)?,
            Some("add") => tensor.scatter_add(dim, &index, &source)?,
            Some("multiply") => tensor.scatter_reduce(dim, &index, &source, Combine::Prod, true)?,
            Some(reduce) => {
                return Err(value_error(format!(
                    "scatter: unknown reduce {reduce:?}: use \"add\" or \"multiply\"; scatter_reduce has more"
                )));
            }
        }))
    }
    /// Returns a copy with ``src`` added at the positions ``index`` along ``dim``.
    fn scatter_add(&self, dim: i64, index: &PyTensor, src: &PyTensor) -> Result<PyTensor> {
        let (index, source) = (index.tensor()?, src.tensor()?);
        self.map(|t| t.scatter_add(dim, &index, &source))
    }
    /// Returns a copy in which elements of ``src`` are combined at the positions ``index`` along ``dim``. ``reduce`` is
    /// ``"sum"``, ``"prod"``, ``"mean"``, ``"amax"`` or ``"amin"``. Without ``include_self`` the previous elements at
    /// these positions are ignored.
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
                    "scatter_reduce: unknown reduce {reduce:?}: use \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\""
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
    /// Returns a copy with the slices of ``source`` added at the positions ``index`` along ``dim``.
    fn index_add(&self, dim: i64, index: &PyTensor, source: &PyTensor) -> Result<PyTensor> {
        let (index, source) = (index.tensor()?, source.tensor()?);
        self.map(|t| t.index_add(dim, &index, &source))
    }
    /// Returns a copy filled with ``value``, a number or 0-d tensor, where ``mask`` is true.
    fn masked_fill(&self, mask: &PyTensor, value: &Bound<'_, PyAny>) -> Result<PyTensor> {
        Ok(PyTensor::wrap(filled(&self.tensor()?, &mask.tensor()?, value)?))
    }
    /// In-place ``masked_fill``.
    fn masked_fill_<'py>(
        slf: &Bound<'py, Self>,
        mask: &PyTensor,
        value: &Bound<'_, PyAny>,
    ) -> Result<Bound<'py, Self>> {
        slf.get().assign(filled(&slf.get().tensor()?, &mask.tensor()?, value)?)?;
        Ok(slf.clone())
    }
    /// Returns the elements where ``mask`` is true as a vector. Evaluates the mask immediately, because the shape
    /// depends on it.
    fn masked_select(&self, py: Python<'_>, mask: &PyTensor) -> Result<PyTensor> {
        let (tensor, mask) = (self.tensor()?, mask.tensor()?);
        Ok(PyTensor::wrap(compute(py, || tensor.masked_select(&mask))?))
    }
    /// Returns the indices of the nonzero elements: a matrix with one row each, or with ``as_tuple`` one vector per
    /// dimension. Evaluates immediately.
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
    /// Sorts along ``dim``. Returns values and indices. The sort is stable; NaN counts as the greatest value.
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
    /// Returns the indices that sort the tensor along ``dim``.
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
    /// Returns the ``k`` greatest elements along ``dim`` (the least with ``largest=False``) and their indices, in
    /// order. NaN counts as the greatest value.
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
    /// Returns the sorted distinct elements, the inverse indices and the counts. Evaluates immediately.
    fn _unique(&self, py: Python<'_>) -> Result<(PyTensor, PyTensor, PyTensor)> {
        let tensor = self.tensor()?;
        let unique = compute(py, || tensor.unique())?;
        Ok((PyTensor::wrap(unique.values), PyTensor::wrap(unique.inverse), PyTensor::wrap(unique.counts)))
    }
    /// Returns the insertion positions of ``values`` into this sorted vector.
    #[pyo3(signature = (values, right=false))]
    fn _searchsorted(&self, values: &PyTensor, right: bool) -> Result<PyTensor> {
        let values = values.tensor()?;
        self.map(|t| t.searchsorted(&values, right))
    }
    /// Returns the one-hot encoding of class indices: the last dimension has size ``num_classes``.
    #[pyo3(signature = (num_classes, dtype=None))]
    fn one_hot(&self, num_classes: Count, dtype: Option<crate::dtype::Wanted>) -> Result<PyTensor> {
        self.map(|t| t.one_hot(num_classes.0, dtype.map_or(DType::I64, |dtype| dtype.0)))
    }
    /// Describes the plan that would compute this tensor; ``None`` if it is already evaluated.
    fn explain(&self, py: Python<'_>) -> Result<Option<String>> {
        let tensor = self.tensor()?;
        let plan = compute(py, || tensor.explain())?;
        Ok(plan.map(|plan| plan.to_string()))
    }
    /// Returns whether both tensors refer to the same data or graph node.
    fn is_same(&self, other: &PyTensor) -> bool {
        self.variable().tensor().is_same(&other.variable().tensor())
    }
}
