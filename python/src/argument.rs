//! Conversion of Python arguments: axes, shapes, numbers.

use phynexus::{DType, Scalar, Tensor};
use pyo3::{
    exceptions::PyOverflowError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyTuple},
};
use smallvec::SmallVec;

use crate::{
    error::{Failure, Result, type_error, value_error},
    refusal::{is_number, no_complex},
    variable::PyTensor,
};

/// The error for an object in place of a real number.
pub(crate) fn not_a_number(object: &Bound<'_, PyAny>) -> Failure {
    if is_complex(object) {
        return no_complex();
    }
    type_error(format!("expected a number, got {}", kind(object)))
}

/// Whether an object is a complex number, tensor or array.
pub(crate) fn is_complex(object: &Bound<'_, PyAny>) -> bool {
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return tensor.get().special.is_complex();
    }
    let kind = || object.getattr("dtype").ok()?.getattr("kind").ok()?.extract::<char>().ok();
    is_number(object) || kind() == Some('c')
}

/// The name of an object's type, for error messages.
pub(crate) fn kind(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    if name == "complex" { "a complex number".to_owned() } else { name }
}

/// A ``dim`` argument: ``None`` (all axes), one axis, or several.
#[derive(Default)]
pub(crate) enum Axes {
    /// ``None``: all axes.
    #[default]
    All,
    /// One axis.
    One(i64),
    /// A list or tuple of axes, possibly empty.
    Several(SmallVec<[i64; 4]>),
}

impl Axes {
    /// Combines PyTorch's ``dim`` with NumPy's ``axis``; an error if both are given.
    pub(crate) fn or(self, axis: Option<Axes>) -> Result<Axes> {
        match (self, axis) {
            (dim, None) => Ok(dim),
            (Axes::All, Some(axis)) => Ok(axis),
            _ => Err(type_error(BOTH)),
        }
    }

    /// The axes as the engine takes them, where an empty list means all axes. `None` if the caller passed an empty
    /// tuple.
    pub(crate) fn list(&self) -> Option<SmallVec<[i64; 4]>> {
        match self {
            Axes::All => Some(SmallVec::new()),
            Axes::One(axis) => Some(SmallVec::from_slice(&[*axis])),
            Axes::Several(axes) if axes.is_empty() => None,
            Axes::Several(axes) => Some(axes.clone()),
        }
    }
}

const BOTH: &str = "dim and axis are two names of the same argument: give only one";

/// The value of an argument with two names; an error if both are given.
pub(crate) fn one_of<T>(dim: Option<T>, axis: Option<T>) -> Result<Option<T>> {
    match (dim, axis) {
        (Some(_), Some(_)) => Err(type_error(BOTH)),
        (dim, axis) => Ok(dim.or(axis)),
    }
}

impl<'py> FromPyObject<'_, 'py> for Axes {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Axes> {
        if object.is_none() {
            return Ok(Axes::All);
        }
        if let Some(axis) = whole_number(&object)? {
            return Ok(Axes::One(axis));
        }
        // The generic message below would print every element.
        if object.is_instance_of::<PyTensor>() {
            return Err(type_error(
                "expected an axis (an integer or a tuple of integers), got a tensor: \
                 to compare two tensors use maximum() or minimum()",
            )
            .into());
        }
        let axes = several(&object, MOST)?.ok_or_else(|| {
            type_error(format!("expected an axis (an integer or a tuple of integers), got {}", kind(&object)))
        })?;
        Ok(Axes::Several(axes.into()))
    }
}

/// An optional argument for which an explicit `None` differs from a missing argument.
pub(crate) struct Given<'py>(pub(crate) Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Given<'py>> {
        Ok(Given(Some(object.to_owned())))
    }
}

/// A shape: one size or several, such as ``3`` or ``(2, 3)``.
pub(crate) struct Shape(pub(crate) Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Shape> {
        let sizes = whole_numbers(&object)?;
        Ok(Shape(sizes.into_iter().map(size).collect::<Result<_>>()?))
    }
}

/// Converts a size; negative sizes are an error.
pub(crate) fn size(size: i64) -> Result<usize> {
    usize::try_from(size).map_err(|_| value_error(format!("expected a size of at least 0, got {size}")))
}

/// A non-negative count, such as a size, a number of steps or of threads.
#[derive(Clone, Copy)]
pub(crate) struct Count(pub(crate) usize);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Count> {
        let wrong =
            |limit: &str| value_error(format!("expected an integer of at least 0{limit}, got {}", &*object));
        match object.extract::<i64>() {
            Ok(number) => Ok(Count(usize::try_from(number).map_err(|_| wrong(""))?)),
            Err(_) if object.is_instance_of::<PyInt>() => Err(wrong(" and below 2**63").into()),
            Err(error) => Err(error),
        }
    }
}

/// A 64-bit seed. Negative seeds wrap modulo 2^64, as in PyTorch.
#[derive(Clone, Copy)]
pub(crate) struct Seed(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Seed {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Seed> {
        match object.extract::<i64>() {
            Ok(number) => Ok(Seed(number.cast_unsigned())),
            Err(_) => object.extract().map(Seed),
        }
    }
}

/// Fails if an integer does not fit into an integer dtype.
pub(crate) fn fits(scalar: Scalar, dtype: DType) -> Result<()> {
    let whole = |scalar: Scalar| match scalar {
        Scalar::UInt(number) => i128::from(number),
        other => i128::from(other.as_i64()),
    };
    let fits = match scalar {
        Scalar::Int(_) | Scalar::UInt(_) if dtype.is_integer() => whole(scalar.cast(dtype)) == whole(scalar),
        _ => true,
    };
    if fits { Ok(()) } else { Err(value_error(format!("{scalar} does not fit into {dtype}"))) }
}

/// The most numbers in a shape, an axis list or a padding list (two widths per dimension).
const MOST: usize = 2 * phynexus::shape::MAX_RANK;

/// The integers of a sequence of at most `most` elements; `None` if the object is not a sequence of integers. Its
/// ``__len__`` is not trusted, and iteration may not end.
fn several(object: &Bound<'_, PyAny>, most: usize) -> Result<Option<Vec<i64>>> {
    if !object.hasattr("__getitem__")? || object.is_instance_of::<PyDict>() {
        return Ok(None);
    }
    let mut numbers = Vec::new();
    for item in object.try_iter()? {
        let item = item?;
        let Some(number) = whole_number(&item)? else { return Ok(None) };
        if numbers.len() == most {
            let kind = object.get_type().name()?;
            return Err(value_error(format!("expected at most {most} numbers, got a {kind} with more")));
        }
        numbers.push(number);
    }
    Ok(Some(numbers))
}

/// The integer that this is, if it is one.
fn whole_number(object: &Bound<'_, PyAny>) -> Result<Option<i64>> {
    match object.extract() {
        Ok(number) => Ok(Some(number)),
        Err(_) if object.is_instance_of::<PyInt>() => {
            Err(value_error(format!("{object} does not fit in a 64-bit integer")))
        }
        Err(_) => Ok(None),
    }
}

/// Integers given as one integer, or as a list or tuple of at most `most`.
pub(crate) fn whole_numbers_up_to(object: &Bound<'_, PyAny>, most: usize) -> Result<Vec<i64>> {
    if let Some(one) = whole_number(object)? {
        return Ok(vec![one]);
    }
    several(object, most)?
        .ok_or_else(|| type_error(format!("expected integers, such as 3 or (2, 3), got {}", kind(object))))
}

/// Integers of a shape or axis list, given as one integer or as a list or tuple.
pub(crate) fn whole_numbers(object: &Bound<'_, PyAny>) -> Result<Vec<i64>> {
    whole_numbers_up_to(object, MOST)
}

/// Integers given as separate arguments or as one sequence: ``reshape(2, 3)`` or ``reshape((2, 3))``.
pub(crate) fn varargs(arguments: &Bound<'_, PyTuple>) -> Result<Vec<i64>> {
    if arguments.len() == 1 {
        return whole_numbers(&arguments.get_item(0)?);
    }
    whole_numbers(arguments.as_any())
}

/// Sizes given as separate arguments or as one sequence.
pub(crate) fn varargs_sizes(arguments: &Bound<'_, PyTuple>) -> Result<Vec<usize>> {
    varargs(arguments)?.into_iter().map(size).collect()
}

/// One integer per spatial dimension, or one integer for all of them.
pub(crate) struct Each(SmallVec<[usize; 3]>);

impl Each {
    /// Expands to one integer per dimension.
    pub(crate) fn of<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        match self.0.as_slice() {
            [one] => Ok([*one; D]),
            several => several.try_into().map_err(|_| {
                value_error(format!("{name}: expected 1 or {D} numbers, got {}", several.len()))
            }),
        }
    }
}

impl From<usize> for Each {
    fn from(one: usize) -> Each {
        Each(SmallVec::from_slice(&[one]))
    }
}

impl<'py> FromPyObject<'_, 'py> for Each {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Each> {
        let numbers = whole_numbers(&object)?;
        Ok(Each(numbers.into_iter().map(size).collect::<Result<_>>()?))
    }
}

/// A scalar argument: a Python or NumPy number.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) Scalar);

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Number> {
        match number(&object)? {
            Some(scalar) => Ok(Number(scalar)),
            None => Err(not_a_number(&object).into()),
        }
    }
}

/// The number that an object represents, or `None` if it is not a number.
pub(crate) fn number(object: &Bound<'_, PyAny>) -> Result<Option<Scalar>> {
    if let Ok(float) = object.cast::<PyFloat>() {
        return Ok(Some(Scalar::Float(float.value())));
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(value.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Some(match object.extract::<i64>() {
            Ok(signed) => Scalar::Int(signed),
            Err(_) => Scalar::UInt(object.extract::<u64>().map_err(|_| {
                Failure::from(PyOverflowError::new_err(format!("{object} does not fit into 64 bits")))
            })?),
        }));
    }
    // NumPy scalars are not Python ints or floats; `kind` identifies them.
    if object.hasattr("dtype")?
        && !object.is_instance_of::<PyTensor>()
        && object.getattr("shape")?.len()? == 0
    {
        return number(&object.call_method0("item")?);
    }
    Ok(None)
}

/// The tensors of a list or tuple.
pub(crate) fn tensors(object: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    taken(object, PyTensor::tensor)
}

/// The tensors of a list or tuple, complex ones as pairs.
pub(crate) fn values(object: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    taken(object, |tensor| tensor.seen(false).tensor())
}

fn taken(object: &Bound<'_, PyAny>, value: impl Fn(&PyTensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    let one = |item: &Bound<'_, PyAny>| match item.cast::<PyTensor>() {
        Ok(tensor) => value(tensor.get()),
        Err(_) => Err(type_error(format!(
            "expected a tensor, got {}: convert it with nx.asarray(x) or nx.Tensor(x)",
            kind(item)
        ))),
    };
    if let Ok(list) = object.cast::<PyList>() {
        return list.iter().map(|item| one(&item)).collect();
    }
    if let Ok(tuple) = object.cast::<PyTuple>() {
        return tuple.iter().map(|item| one(&item)).collect();
    }
    Err(type_error(format!("expected a list or tuple of tensors, got {}", kind(object))))
}
