//! Arguments as Python's users give them: axes, shapes, numbers.

use phynexus::{DType, Scalar, Tensor};
use pyo3::{
    exceptions::PyOverflowError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyTuple},
};
use smallvec::SmallVec;

use crate::{
    error::{Failure, Result, type_error, value_error},
    place::PyTensor,
};

/// What an object is, for messages: its type's name.
pub(crate) fn kind(object: &Bound<'_, PyAny>) -> String {
    let name = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    if name == "complex" { "a complex number".to_owned() } else { name }
}

/// Axes: ``None`` for all, a number, or several.
#[derive(Default)]
pub(crate) enum Axes {
    /// All axes, since none was named.
    #[default]
    All,
    /// One axis.
    One(i64),
    /// These axes; perhaps none at all.
    Several(SmallVec<[i64; 4]>),
}

impl Axes {
    /// These, or those given by NumPy's name.
    pub(crate) fn or(self, axis: Option<Axes>) -> Result<Axes> {
        match (self, axis) {
            (dim, None) => Ok(dim),
            (Axes::All, Some(axis)) => Ok(axis),
            _ => Err(type_error(BOTH)),
        }
    }

    /// For the engine, which takes an empty list for all; `None` if there is nothing to do.
    pub(crate) fn list(&self) -> Option<SmallVec<[i64; 4]>> {
        match self {
            Axes::All => Some(SmallVec::new()),
            Axes::One(axis) => Some(SmallVec::from_slice(&[*axis])),
            Axes::Several(axes) if axes.is_empty() => None,
            Axes::Several(axes) => Some(axes.clone()),
        }
    }
}

const BOTH: &str = "dim and axis are names of one argument: give one of them";

/// An argument that has two names.
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
        if let Ok(axis) = object.extract::<i64>() {
            return Ok(Axes::One(axis));
        }
        // All its elements would be in the message.
        if object.is_instance_of::<PyTensor>() {
            return Err(type_error(
                "a tensor is not an axis: give a whole number or a tuple of them; of two tensors there are maximum() and minimum()",
            )
            .into());
        }
        let axes = several(&object, MOST)?.ok_or_else(|| {
            type_error(format!("expected an axis (a whole number or a tuple of them), got {}", kind(&object)))
        })?;
        Ok(Axes::Several(axes.into()))
    }
}

/// An argument that may be left out, which is another thing than `None`.
pub(crate) struct Given<'py>(pub(crate) Option<Bound<'py, PyAny>>);

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Given<'py>> {
        Ok(Given(Some(object.to_owned())))
    }
}

/// A size or several, as ``3`` or ``(2, 3)``.
pub(crate) struct Shape(pub(crate) Vec<usize>);

impl<'py> FromPyObject<'_, 'py> for Shape {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Shape> {
        let sizes = whole_numbers(&object)?;
        Ok(Shape(sizes.into_iter().map(size).collect::<Result<_>>()?))
    }
}

/// A size that is not negative.
pub(crate) fn size(size: i64) -> Result<usize> {
    usize::try_from(size).map_err(|_| value_error(format!("a size of {size}: sizes are not negative")))
}

/// A number of things: a size, steps, threads.
#[derive(Clone, Copy)]
pub(crate) struct Count(pub(crate) usize);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Count> {
        let wrong = || value_error(format!("expected a whole number of at least 0, got {}", &*object));
        match object.extract::<i64>() {
            Ok(number) => Ok(Count(usize::try_from(number).map_err(|_| wrong())?)),
            // More than any machine has.
            Err(_) if object.is_instance_of::<PyInt>() => Err(wrong().into()),
            Err(error) => Err(error),
        }
    }
}

/// The seed of a generator: 64 bits. A negative one counts from 2^64, as PyTorch's.
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

/// An error if a whole number does not fit a dtype, rather than another number.
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

/// The most numbers of a shape or of axes: two borders for each dimension.
const MOST: usize = 2 * phynexus::shape::MAX_RANK;

/// The whole numbers of a sequence, at most so many; nothing if it is none of whole numbers. What it says of its length is not
/// trusted, and it may have no end.
fn several(object: &Bound<'_, PyAny>, most: usize) -> Result<Option<Vec<i64>>> {
    if !object.hasattr("__getitem__")? || object.is_instance_of::<PyDict>() {
        return Ok(None);
    }
    let mut numbers = Vec::new();
    for item in object.try_iter()? {
        let Ok(number) = item?.extract() else { return Ok(None) };
        if numbers.len() == most {
            let kind = object.get_type().name()?;
            return Err(value_error(format!(
                "a {kind} of more than {most} numbers: at most {most} are expected"
            )));
        }
        numbers.push(number);
    }
    Ok(Some(numbers))
}

/// Whole numbers given as one, or as a list or tuple of at most so many.
pub(crate) fn whole_numbers_up_to(object: &Bound<'_, PyAny>, most: usize) -> Result<Vec<i64>> {
    if let Ok(one) = object.extract::<i64>() {
        return Ok(vec![one]);
    }
    several(object, most)?.ok_or_else(|| {
        type_error(format!("expected whole numbers, such as 3 or (2, 3), got {}", kind(object)))
    })
}

/// Whole numbers of a shape or of axes, given as one, or as a list or tuple.
pub(crate) fn whole_numbers(object: &Bound<'_, PyAny>) -> Result<Vec<i64>> {
    whole_numbers_up_to(object, MOST)
}

/// Whole numbers given one by one or as one list: ``reshape(2, 3)`` and ``reshape((2, 3))``.
pub(crate) fn spread(arguments: &Bound<'_, PyTuple>) -> Result<Vec<i64>> {
    if arguments.len() == 1 {
        return whole_numbers(&arguments.get_item(0)?);
    }
    whole_numbers(arguments.as_any())
}

/// Sizes given one by one or as one list.
pub(crate) fn spread_sizes(arguments: &Bound<'_, PyTuple>) -> Result<Vec<usize>> {
    spread(arguments)?.into_iter().map(size).collect()
}

/// As many whole numbers as there are spatial dimensions, or one for all of them.
pub(crate) struct Each(SmallVec<[usize; 3]>);

impl Each {
    /// One for each dimension.
    pub(crate) fn of<const D: usize>(&self, name: &str) -> Result<[usize; D]> {
        match self.0.as_slice() {
            [one] => Ok([*one; D]),
            several => several
                .try_into()
                .map_err(|_| value_error(format!("{name}: {} numbers for {D} dimensions", several.len()))),
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

/// A plain number of Python's, or NumPy's.
#[derive(Clone, Copy)]
pub(crate) struct Number(pub(crate) Scalar);

impl<'py> FromPyObject<'_, 'py> for Number {
    type Error = PyErr;
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Number> {
        match number(&object)? {
            Some(scalar) => Ok(Number(scalar)),
            None => Err(type_error(format!("expected a number, got {}", kind(&object))).into()),
        }
    }
}

/// The number that an object is, if it is one.
pub(crate) fn number(object: &Bound<'_, PyAny>) -> Result<Option<Scalar>> {
    if let Ok(float) = object.cast::<PyFloat>() {
        return Ok(Some(Scalar::Float(float.value())));
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(Some(Scalar::Bool(truth.is_true())));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(Some(match object.extract::<i64>() {
            Ok(signed) => Scalar::Int(signed),
            Err(_) => Scalar::UInt(object.extract::<u64>().map_err(|_| {
                Failure::from(PyOverflowError::new_err(format!("{object} does not fit 64 bits")))
            })?),
        }));
    }
    // NumPy's numbers are no numbers of Python's, but of these kinds.
    if object.hasattr("dtype")?
        && !object.is_instance_of::<PyTensor>()
        && object.getattr("shape")?.len()? == 0
    {
        return number(&object.call_method0("item")?);
    }
    Ok(None)
}

/// Several tensors: a list or tuple.
pub(crate) fn tensors(object: &Bound<'_, PyAny>) -> Result<Vec<Tensor>> {
    let one = |item: &Bound<'_, PyAny>| match item.cast::<PyTensor>() {
        Ok(tensor) => tensor.get().tensor(),
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
