//! Python's operators, and binary functions that have no operator.

use phynexus::{Scalar, Tensor};
use pyo3::{prelude::*, types::PyAny};

use super::{PyTensor, operand::Operand};
use crate::{
    argument::{kind, number},
    complex,
    error::{Result, type_error},
    precision,
    promotion::promoted,
};

type OfTensors = fn(&Tensor, &Tensor) -> phynexus::Result<Tensor>;
type OfNumber = fn(&Tensor, Scalar) -> phynexus::Result<Tensor>;

impl PyTensor {
    /// The result, or `None` if the type of the other operand is not supported.
    #[inline]
    fn combined(
        &self,
        other: &Bound<'_, PyAny>,
        both: OfTensors,
        scalar: OfNumber,
    ) -> Result<Option<Tensor>> {
        let tensor = self.tensor()?;
        Ok(match Operand::beside(&tensor, other)? {
            None => None,
            Some(Operand::Tensor(other)) => {
                let (tensor, other) = promoted(tensor, other)?;
                Some(both(&tensor, &other)?)
            }
            Some(Operand::Number(value)) => Some(scalar(&tensor, value)?),
        })
    }

    /// The result as an operator method returns it, which is `NotImplemented` for unsupported operands.
    #[inline]
    fn operator<'py>(
        &self,
        name: &str,
        other: &Bound<'py, PyAny>,
        both: OfTensors,
        scalar: OfNumber,
    ) -> Result<Bound<'py, PyAny>> {
        let py = other.py();
        match self.combined(other, both, scalar) {
            Ok(Some(result)) => Ok(Bound::new(py, PyTensor::wrap(result))?.into_any()),
            Ok(None) if !crate::refusal::is_number(other) => Ok(py.NotImplemented().into_bound(py)),
            Err(failure) if !crate::argument::is_complex(other) => Err(failure),
            _ => Ok(complex::as_complex(py, self)?.call_method1(name, (other,))?),
        }
    }

    fn function<'py>(
        &self,
        name: &str,
        other: &Bound<'py, PyAny>,
        both: OfTensors,
        scalar: OfNumber,
    ) -> Result<Bound<'py, PyTensor>> {
        let result = match self.combined(other, both, scalar) {
            Ok(Some(result)) => return Ok(Bound::new(other.py(), PyTensor::wrap(result))?),
            Ok(None) if !crate::refusal::is_number(other) => return Err(unknown(other)),
            Err(failure) if !crate::argument::is_complex(other) => return Err(failure),
            _ => complex::as_complex(other.py(), self)?.call_method1(name, (other,))?,
        };
        result.cast_into().map_err(|_| unknown(other))
    }

    fn change(&self, other: &Bound<'_, PyAny>, both: OfTensors, scalar: OfNumber) -> Result<()> {
        match self.combined(other, both, scalar)? {
            Some(result) => self.assign(result),
            None => Err(unknown(other)),
        }
    }
}

fn unknown(other: &Bound<'_, PyAny>) -> crate::error::Failure {
    type_error(format!("expected a tensor or a number, got {}", kind(other)))
}

macro_rules! arithmetic {
    ($($forward:ident $backward:ident $in_place:ident = $both:ident $scalar:ident, $swapped:ident $swapped_scalar:expr;)+) => {
        #[pymethods]
        impl PyTensor { $(
            fn $forward<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
                self.operator(stringify!($forward), other, Tensor::$both, |t, v| t.$scalar(v))
            }
            fn $backward<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
                self.operator(stringify!($backward), other, |t, o| o.$swapped(t), $swapped_scalar)
            }
            fn $in_place(&self, other: &Bound<'_, PyAny>) -> Result<()> {
                self.change(other, Tensor::$both, |t, v| t.$scalar(v))
            }
        )+ }
    };
}

arithmetic! {
    __add__ __radd__ __iadd__ = add add_scalar, add |t, v| t.add_scalar(v);
    __sub__ __rsub__ __isub__ = sub sub_scalar, sub |t, v| t.rsub_scalar(v);
    __mul__ __rmul__ __imul__ = mul mul_scalar, mul |t, v| t.mul_scalar(v);
    __truediv__ __rtruediv__ __itruediv__ = div div_scalar, div |t, v| t.rdiv_scalar(v);
    __floordiv__ __rfloordiv__ __ifloordiv__ = floor_divide floor_divide_scalar, floor_divide |t, v| number_first(t, v)?.floor_divide(t);
    __mod__ __rmod__ __imod__ = remainder remainder_scalar, remainder |t, v| number_first(t, v)?.remainder(t);
    __and__ __rand__ __iand__ = and and_scalar, and |t, v| t.and_scalar(v);
    __or__ __ror__ __ior__ = or or_scalar, or |t, v| t.or_scalar(v);
    __xor__ __rxor__ __ixor__ = xor xor_scalar, xor |t, v| t.xor_scalar(v);
    __lshift__ __rlshift__ __ilshift__ = shift_left shift_left_scalar, shift_left |t, v| number_first(t, v)?.shift_left(t);
    __rshift__ __rrshift__ __irshift__ = shift_right shift_right_scalar, shift_right |t, v| number_first(t, v)?.shift_right(t);
}

/// A number as a tensor, for the left side of an operation.
fn number_first(beside: &Tensor, value: Scalar) -> phynexus::Result<Tensor> {
    let dtype = match value {
        Scalar::Float(_) if !beside.dtype().is_float() => phynexus::tensor::default_dtype(),
        _ if beside.dtype() == phynexus::DType::Bool => phynexus::DType::I64,
        _ => beside.dtype(),
    };
    Tensor::full(&[], value, dtype, beside.device())
}

/// The quotient rounded towards zero; that of integers is exact.
fn truncated_quotient(a: &Tensor, b: &Tensor) -> phynexus::Result<Tensor> {
    match a.dtype().promote(b.dtype()).is_integer() {
        true => a.sub(&a.fmod(b)?)?.floor_divide(b),
        false => a.div(b)?.trunc(),
    }
}

#[pymethods]
impl PyTensor {
    fn __matmul__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = other.py();
        let tensor = self.tensor()?;
        match Operand::beside(&tensor, other)? {
            Some(Operand::Tensor(other)) => {
                Ok(Bound::new(py, PyTensor::wrap(precision::matmul(&tensor, &other)?))?.into_any())
            }
            Some(Operand::Number(_)) => Err(type_error("@ needs a tensor on both sides: use * for a number")),
            None => Ok(py.NotImplemented().into_bound(py)),
        }
    }
    fn __rmatmul__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        let py = other.py();
        let tensor = self.tensor()?;
        match Operand::beside(&tensor, other)? {
            Some(Operand::Tensor(other)) => {
                Ok(Bound::new(py, PyTensor::wrap(precision::matmul(&other, &tensor)?))?.into_any())
            }
            _ => Ok(py.NotImplemented().into_bound(py)),
        }
    }
    fn __imatmul__(&self, other: &Bound<'_, PyAny>) -> Result<()> {
        self.change(other, Tensor::matmul, |t, _| t.matmul(t))
    }
    fn __pow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        if modulo.is_some() {
            return Err(type_error("pow: a modulus is not supported for tensors: use % on the result"));
        }
        self.operator("__pow__", other, Tensor::pow, |t, v| t.pow_scalar(v))
    }
    fn __rpow__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, PyAny>> {
        let _ = modulo;
        self.operator("__rpow__", other, |t, o| o.pow(t), |t, v| t.rpow_scalar(v))
    }
    fn __ipow__(&self, other: &Bound<'_, PyAny>, modulo: Option<&Bound<'_, PyAny>>) -> Result<()> {
        let _ = modulo;
        self.change(other, Tensor::pow, |t, v| t.pow_scalar(v))
    }
    fn __neg__(&self) -> Result<PyTensor> {
        self.map(Tensor::neg)
    }
    fn __pos__(&self) -> Result<PyTensor> {
        self.map(|t| Ok(t.clone()))
    }
    fn __abs__(&self) -> Result<PyTensor> {
        self.map(Tensor::abs)
    }
    fn __invert__(&self) -> Result<PyTensor> {
        self.map(Tensor::bitwise_not)
    }
    fn __lt__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.operator("__lt__", other, Tensor::lt, |t, v| t.lt_scalar(v))
    }
    fn __le__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.operator("__le__", other, Tensor::le, |t, v| t.le_scalar(v))
    }
    fn __gt__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.operator("__gt__", other, Tensor::gt, |t, v| t.gt_scalar(v))
    }
    fn __ge__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.operator("__ge__", other, Tensor::ge, |t, v| t.ge_scalar(v))
    }
    fn __eq__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.operator("__eq__", other, Tensor::eq, |t, v| t.eq_scalar(v))
    }
    fn __ne__<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
        self.operator("__ne__", other, Tensor::ne, |t, v| t.ne_scalar(v))
    }
    /// Returns the elements of this tensor where ``condition`` is true, and of ``other`` elsewhere.
    fn r#where(&self, condition: &PyTensor, other: &Bound<'_, PyAny>) -> Result<PyTensor> {
        let (tensor, condition) = (self.tensor()?, condition.tensor()?);
        let Some(other) = Operand::beside(&tensor, other)? else { return Err(unknown(other)) };
        let other = other.into_tensor(&tensor)?;
        let (tensor, other) = promoted(tensor, other)?;
        Ok(PyTensor::wrap(condition.where_(&tensor, &other)?))
    }
    /// Clamps the elements between ``min`` and ``max``, which are numbers or tensors.
    #[pyo3(signature = (min=None, max=None))]
    fn clamp(&self, min: Option<&Bound<'_, PyAny>>, max: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        let tensor = self.tensor()?;
        let scalar = |bound: Option<&Bound<'_, PyAny>>| bound.map(number).transpose().map(Option::flatten);
        let (low, high) = (scalar(min)?, scalar(max)?);
        if low.is_some() == min.is_some() && high.is_some() == max.is_some() {
            return Ok(PyTensor::wrap(tensor.clamp(low, high)?));
        }
        let bound = |bound: Option<&Bound<'_, PyAny>>| match bound {
            None => Ok(None),
            Some(object) => match Operand::beside(&tensor, object)? {
                Some(operand) => operand.into_tensor(&tensor).map(Some),
                None => Err(unknown(object)),
            },
        };
        Ok(PyTensor::wrap(tensor.clip(bound(min)?.as_ref(), bound(max)?.as_ref())?))
    }
    /// Alias of ``clamp``.
    #[pyo3(signature = (min=None, max=None))]
    fn clip(&self, min: Option<&Bound<'_, PyAny>>, max: Option<&Bound<'_, PyAny>>) -> Result<PyTensor> {
        self.clamp(min, max)
    }
}

/// A method for each function of the engine's table.
macro_rules! table {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $scalar:ident $name:literal $class:ident($($meaning:tt)+)
        $rest:tt)+) => {
        $( method! { $variant $method $scalar $(#[doc = $doc])+ } )+
    };
}

macro_rules! method {
    // They take another argument here.
    (Add $($rest:tt)+) => {};
    (Sub $($rest:tt)+) => {};
    (Div $($rest:tt)+) => {};
    // They have other names here.
    (And $($rest:tt)+) => {};
    (Or $($rest:tt)+) => {};
    (Xor $($rest:tt)+) => {};
    (Shl $($rest:tt)+) => {};
    (Shr $($rest:tt)+) => {};
    ($variant:ident $method:ident $scalar:ident $($doc:tt)+) => { named! { $($doc)+ $method = $method $scalar; } };
}

macro_rules! named {
    ($($(#[doc = $doc:literal])+ $name:ident = $both:ident $scalar:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            $(#[doc = $doc])+
            fn $name<'py>(&self, other: &Bound<'py, PyAny>) -> Result<Bound<'py, PyTensor>> {
                self.function(stringify!($name), other, Tensor::$both, |t, v| t.$scalar(v))
            }
        )+ }
    };
}

phynexus::binary_functions!(table);

named! {
    /// ``self - other``.
    subtract = sub sub_scalar;
    /// ``self * other``.
    multiply = mul mul_scalar;
    /// ``self & other``.
    bitwise_and = and and_scalar;
    /// ``self | other``.
    bitwise_or = or or_scalar;
    /// ``self ^ other``.
    bitwise_xor = xor xor_scalar;
    /// ``self << other``.
    bitwise_left_shift = shift_left shift_left_scalar;
    /// ``self >> other``.
    bitwise_right_shift = shift_right shift_right_scalar;
    /// ``self > other``.
    gt = gt gt_scalar;
    /// ``self >= other``.
    ge = ge ge_scalar;
}

#[pymethods]
impl PyTensor {
    /// ``self + alpha * other``.
    #[pyo3(signature = (other, alpha=None))]
    fn add<'py>(&self, other: &Bound<'py, PyAny>, alpha: Option<f64>) -> Result<Bound<'py, PyTensor>> {
        match alpha {
            None => self.function("add", other, Tensor::add, |t, v| t.add_scalar(v)),
            Some(alpha) => {
                let tensor = self.tensor()?;
                let Some(operand) = Operand::beside(&tensor, other)? else { return Err(unknown(other)) };
                let (tensor, added) = promoted(tensor.clone(), operand.into_tensor(&tensor)?)?;
                Ok(Bound::new(other.py(), PyTensor::wrap(tensor.add(&added.mul_scalar(alpha)?)?))?)
            }
        }
    }
    /// ``self - alpha * other``.
    #[pyo3(signature = (other, alpha=None))]
    fn sub<'py>(&self, other: &Bound<'py, PyAny>, alpha: Option<f64>) -> Result<Bound<'py, PyTensor>> {
        match alpha {
            None => self.function("sub", other, Tensor::sub, |t, v| t.sub_scalar(v)),
            Some(alpha) => self.add(other, Some(-alpha)),
        }
    }
    /// ``self / other``. ``rounding_mode="floor"`` rounds the quotient down, ``"trunc"`` towards zero.
    #[pyo3(signature = (other, rounding_mode=None))]
    fn div<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        rounding_mode: Option<&str>,
    ) -> Result<Bound<'py, PyTensor>> {
        match rounding_mode {
            None => self.function("div", other, Tensor::div, |t, v| t.div_scalar(v)),
            Some("floor") => {
                self.function("floor_divide", other, Tensor::floor_divide, |t, v| t.floor_divide_scalar(v))
            }
            Some("trunc") => self.function("div", other, truncated_quotient, |t, v| {
                truncated_quotient(t, &number_first(t, v)?)
            }),
            Some(other) => {
                let message = format!("unknown rounding_mode {other:?}: use None, \"floor\" or \"trunc\"");
                Err(crate::error::value_error(message))
            }
        }
    }
    /// Alias of ``div``.
    #[pyo3(signature = (other, rounding_mode=None))]
    fn divide<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        rounding_mode: Option<&str>,
    ) -> Result<Bound<'py, PyTensor>> {
        self.div(other, rounding_mode)
    }
    /// Returns True where both elements are nonzero.
    fn logical_and(&self, other: &PyTensor) -> Result<PyTensor> {
        let other = other.tensor()?;
        self.map(|t| t.logical_and(&other))
    }
    /// Returns True where at least one element is nonzero.
    fn logical_or(&self, other: &PyTensor) -> Result<PyTensor> {
        let other = other.tensor()?;
        self.map(|t| t.logical_or(&other))
    }
    /// Returns True where exactly one element is nonzero.
    fn logical_xor(&self, other: &PyTensor) -> Result<PyTensor> {
        let other = other.tensor()?;
        self.map(|t| t.logical_xor(&other))
    }
}

macro_rules! changing {
    ($($name:ident = $both:ident $scalar:ident;)+) => {
        #[pymethods]
        impl PyTensor { $(
            #[doc = concat!("``", stringify!($both), "`` in place.")]
            fn $name<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> Result<Bound<'py, Self>> {
                slf.get().change(other, Tensor::$both, |t, v| t.$scalar(v))?;
                Ok(slf.clone())
            }
        )+ }
    };
}

changing! {
    mul_ = mul mul_scalar;
    div_ = div div_scalar;
    pow_ = pow pow_scalar;
    remainder_ = remainder remainder_scalar;
    floor_divide_ = floor_divide floor_divide_scalar;
}

#[pymethods]
impl PyTensor {
    /// In-place ``self + alpha * other``.
    #[pyo3(signature = (other, alpha=None))]
    fn add_<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        alpha: Option<f64>,
    ) -> Result<Bound<'py, Self>> {
        let sum = slf.get().add(other, alpha)?;
        slf.get().assign(sum.get().tensor()?)?;
        Ok(slf.clone())
    }
    /// In-place ``self - alpha * other``.
    #[pyo3(signature = (other, alpha=None))]
    fn sub_<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        alpha: Option<f64>,
    ) -> Result<Bound<'py, Self>> {
        let difference = slf.get().sub(other, alpha)?;
        slf.get().assign(difference.get().tensor()?)?;
        Ok(slf.clone())
    }
    /// In-place ``clamp``.
    #[pyo3(signature = (min=None, max=None))]
    fn clamp_<'py>(
        slf: &Bound<'py, Self>,
        min: Option<&Bound<'py, PyAny>>,
        max: Option<&Bound<'py, PyAny>>,
    ) -> Result<Bound<'py, Self>> {
        let clamped = slf.get().clamp(min, max)?;
        slf.get().assign(clamped.tensor()?)?;
        Ok(slf.clone())
    }
    /// Sets every element to ``value``.
    fn fill_<'py>(slf: &Bound<'py, Self>, value: crate::argument::Number) -> Result<Bound<'py, Self>> {
        let tensor = slf.get().tensor()?.detach()?;
        crate::argument::fits(value.0, tensor.dtype())?;
        slf.get().assign(tensor.full_like(value.0)?)?;
        Ok(slf.clone())
    }
    /// Sets every element to 0.
    fn zero_<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        PyTensor::fill_(slf, crate::argument::Number(Scalar::Int(0)))
    }
    /// Copies the elements of ``source``, broadcast to this shape and cast to this dtype.
    fn copy_<'py>(slf: &Bound<'py, Self>, source: &PyTensor) -> Result<Bound<'py, Self>> {
        let own = slf.get().tensor()?;
        slf.get().assign(source.tensor()?.to_dtype(own.dtype())?.broadcast_to(own.shape())?)?;
        Ok(slf.clone())
    }
}
