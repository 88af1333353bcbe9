//! Functions that create tensors, including random ones.

use phynexus::{
    DType, Device, Scalar, Tensor,
    schedule::capture::is_recording,
    tensor::{Generator, GeneratorState, default_dtype},
};
use pyo3::{prelude::*, types::PyTuple};

use crate::{
    argument::{Count, Number, Seed, Shape, fits, varargs_sizes},
    device::{Named, chosen},
    dtype::Wanted,
    error::{Result, type_error, value_error},
    interrupt::compute,
    tensor::{PyTensor, convert},
};

fn wanted(dtype: Option<Wanted>, device: Option<Named>) -> Result<(DType, Device)> {
    Ok((dtype.map_or_else(default_dtype, |dtype| dtype.0), chosen(device)?))
}

fn made(tensor: Tensor, requires_grad: bool) -> Result<PyTensor> {
    let tensor = PyTensor::wrap(tensor);
    if requires_grad {
        tensor.require_grad()?;
    }
    Ok(tensor)
}

/// Creates a tensor from numbers, nested lists or arrays. The values are copied: no gradient flows back to ``data``.
#[pyfunction]
#[pyo3(signature = (data, dtype=None, device=None, requires_grad=false))]
pub(crate) fn tensor(
    data: &Bound<'_, PyAny>,
    dtype: Option<Wanted>,
    device: Option<Named>,
    requires_grad: bool,
) -> Result<PyTensor> {
    made(convert(data, dtype.map(|dtype| dtype.0), device)?, requires_grad)
}

macro_rules! filled {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal;)+) => { $(
        $(#[doc = $doc])+
        #[pyfunction]
        #[pyo3(signature = (*size, dtype=None, device=None, requires_grad=false))]
        pub(crate) fn $name(
            size: &Bound<'_, PyTuple>,
            dtype: Option<Wanted>,
            device: Option<Named>,
            requires_grad: bool,
        ) -> Result<PyTensor> {
            let (dtype, device) = wanted(dtype, device)?;
            made(Tensor::full(&varargs_sizes(size)?, $value, dtype, device)?, requires_grad)
        }
    )+ };
}

filled! {
    /// Creates a tensor of zeros: ``zeros(2, 3)`` or ``zeros((2, 3))``.
    zeros = 0;
    /// Creates a tensor of ones: ``ones(2, 3)`` or ``ones((2, 3))``.
    ones = 1;
}

/// Creates a tensor of shape ``size`` filled with ``fill_value``.
#[pyfunction]
#[pyo3(signature = (size, fill_value, *, dtype=None, device=None, requires_grad=false))]
pub(crate) fn full(
    size: Shape,
    fill_value: Number,
    dtype: Option<Wanted>,
    device: Option<Named>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let natural = match fill_value.0 {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Float(_) => default_dtype(),
        Scalar::Int(_) => DType::I64,
        Scalar::UInt(_) => DType::U64,
    };
    let dtype = dtype.map_or(natural, |dtype| dtype.0);
    fits(fill_value.0, dtype)?;
    made(Tensor::full(&size.0, fill_value.0, dtype, chosen(device)?)?, requires_grad)
}

/// Creates a tensor filled with ``fill_value``, with the shape, dtype and device of ``input``.
#[pyfunction]
#[pyo3(signature = (input, fill_value, *, dtype=None, device=None, requires_grad=false))]
pub(crate) fn full_like(
    input: &PyTensor,
    fill_value: Number,
    dtype: Option<Wanted>,
    device: Option<Named>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let like = input.tensor()?;
    let dtype = dtype.map_or(like.dtype(), |dtype| dtype.0);
    let device = device.map_or(like.device(), |device| device.0);
    fits(fill_value.0, dtype)?;
    made(Tensor::full(like.shape(), fill_value.0, dtype, device)?, requires_grad)
}

/// Returns ``start``, ``start + step``, ... up to but excluding ``end``. Integer arguments give ``int64``.
#[pyfunction]
#[pyo3(signature = (start, end=None, step=None, *, dtype=None, device=None, requires_grad=false))]
pub(crate) fn arange(
    start: Number,
    end: Option<Number>,
    step: Option<Number>,
    dtype: Option<Wanted>,
    device: Option<Named>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let (start, end) = match end {
        Some(end) => (start.0, end.0),
        None => (Scalar::Int(0), start.0),
    };
    let step = step.map_or(Scalar::Int(1), |step| step.0);
    let fraction = [start, end, step].iter().any(|n| matches!(n, Scalar::Float(_)));
    let dtype = dtype.map_or(if fraction { default_dtype() } else { DType::I64 }, |dtype| dtype.0);
    made(Tensor::arange(start, end, step, dtype, chosen(device)?)?, requires_grad)
}

/// Returns ``steps`` evenly spaced numbers from ``start`` to ``end``, both included.
#[pyfunction]
#[pyo3(signature = (start, end, steps, *, dtype=None, device=None, requires_grad=false))]
pub(crate) fn linspace(
    start: f64,
    end: f64,
    steps: Count,
    dtype: Option<Wanted>,
    device: Option<Named>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let (dtype, device) = wanted(dtype, device)?;
    made(Tensor::linspace(start, end, steps.0, dtype, device)?, requires_grad)
}

/// Returns an ``n x m`` matrix with ones on the diagonal and zeros elsewhere; ``m`` defaults to ``n``.
#[pyfunction]
#[pyo3(signature = (n, m=None, *, dtype=None, device=None, requires_grad=false))]
pub(crate) fn eye(
    n: Count,
    m: Option<Count>,
    dtype: Option<Wanted>,
    device: Option<Named>,
    requires_grad: bool,
) -> Result<PyTensor> {
    let (dtype, device) = wanted(dtype, device)?;
    made(Tensor::eye(n.0, m.unwrap_or(n).0, dtype, device)?, requires_grad)
}

/// A random number generator. The same seed gives the same numbers on every device.
#[pyclass(name = "Generator", module = "neurenix.random", frozen)]
pub(crate) struct PyGenerator(Generator);

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (seed=Seed(0), *, device=None), text_signature = "(seed=0, *, device=None)")]
    fn new(seed: Seed, device: Option<Named>) -> PyGenerator {
        // The argument exists for PyTorch compatibility; the numbers do not depend on the device.
        let _ = device;
        PyGenerator(Generator::new(seed.0))
    }
    /// Resets the generator to a seed. Returns the generator.
    fn manual_seed<'py>(slf: &Bound<'py, Self>, seed: Seed) -> Bound<'py, Self> {
        slf.get().0.set_state(GeneratorState { seed: seed.0, counter: 0 });
        slf.clone()
    }
    /// Returns the seed.
    fn initial_seed(&self) -> u64 {
        self.0.state().seed
    }
    /// Returns the state as ``(seed, position)``.
    fn get_state(&self) -> (u64, u64) {
        let state = self.0.state();
        (state.seed, state.counter)
    }
    /// Restores a state that ``get_state`` returned.
    fn set_state(&self, state: (u64, u64)) {
        self.0.set_state(GeneratorState { seed: state.0, counter: state.1 });
    }
    /// Copies and pickles carry the state.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (u64, u64))> {
        Ok((py.import("neurenix._pickle")?.getattr("generator")?, self.get_state()))
    }
}

/// The given generator, or the default generator.
pub(crate) fn generator(given: Option<&PyGenerator>) -> &Generator {
    match given {
        Some(given) => &given.0,
        None => Generator::default_generator(),
    }
}

/// Resets the default generator to a seed.
#[pyfunction]
pub(crate) fn manual_seed(seed: Seed) {
    phynexus::tensor::manual_seed(seed.0);
}

/// Returns the default generator's state as ``(seed, position)``.
#[pyfunction]
pub(crate) fn get_rng_state() -> (u64, u64) {
    let state = Generator::default_generator().state();
    (state.seed, state.counter)
}

/// Restores the default generator's state.
#[pyfunction]
pub(crate) fn set_rng_state(state: (u64, u64)) {
    Generator::default_generator().set_state(GeneratorState { seed: state.0, counter: state.1 });
}

macro_rules! random {
    ($($(#[doc = $doc:literal])+ $name:ident;)+) => { $(
        $(#[doc = $doc])+
        #[pyfunction]
        #[pyo3(signature = (*sizes, size=None, generator=None, dtype=None, device=None, requires_grad=false))]
        pub(crate) fn $name(
            sizes: &Bound<'_, PyTuple>,
            size: Option<Shape>,
            generator: Option<&Bound<'_, PyGenerator>>,
            dtype: Option<Wanted>,
            device: Option<Named>,
            requires_grad: bool,
        ) -> Result<PyTensor> {
            let (dtype, device) = wanted(dtype, device)?;
            let generator = self::generator(generator.map(|given| given.get()));
            let sizes = match size {
                None => varargs_sizes(sizes)?,
                Some(size) if sizes.is_empty() => size.0,
                Some(_) => return Err(type_error(concat!(stringify!($name), ": got sizes both by position and as size="))),
            };
            made(generator.$name(&sizes, dtype, device)?, requires_grad)
        }
    )+ };
}

random! {
    /// Samples from the standard normal distribution: ``randn(2, 3)`` or ``randn((2, 3))``.
    randn;
    /// Samples from the uniform distribution over [0, 1): ``rand(2, 3)`` or ``rand((2, 3))``.
    rand;
}

/// Samples integers uniformly from ``[low, high)``.
#[pyfunction]
#[pyo3(signature = (low, high=None, size=None, *, generator=None, dtype=None, device=None))]
pub(crate) fn randint(
    low: i64,
    high: Option<&Bound<'_, PyAny>>,
    size: Option<Shape>,
    generator: Option<&Bound<'_, PyGenerator>>,
    dtype: Option<Wanted>,
    device: Option<Named>,
) -> Result<PyTensor> {
    // randint(10, (2, 3)) as well as randint(0, 10, (2, 3)).
    let (low, high, size) = match (high, size) {
        (Some(high), Some(size)) => (low, high.extract::<i64>()?, size),
        (Some(shape), None) => (0, low, shape.extract::<Shape>()?),
        (None, Some(size)) => (0, low, size),
        (None, None) => {
            return Err(value_error("randint: missing size: call it as in randint(0, 10, (2, 3))"));
        }
    };
    let dtype = dtype.map_or(DType::I64, |dtype| dtype.0);
    let generator = self::generator(generator.map(|given| given.get()));
    Ok(PyTensor::wrap(generator.randint(low, high, &size.0, dtype, chosen(device)?)?))
}

/// Returns a random permutation of ``0`` to ``n - 1``.
#[pyfunction]
#[pyo3(signature = (n, *, generator=None, device=None))]
pub(crate) fn randperm(
    n: Count,
    generator: Option<&Bound<'_, PyGenerator>>,
    device: Option<Named>,
) -> Result<PyTensor> {
    let generator = self::generator(generator.map(|given| given.get()));
    Ok(PyTensor::wrap(generator.randperm(n.0, chosen(device)?)?))
}

/// Returns 1 with the probability given by each element of ``input``, else 0. It evaluates ``input`` to check that all
/// elements are probabilities.
#[pyfunction]
#[pyo3(signature = (input, *, generator=None))]
pub(crate) fn bernoulli(
    py: Python<'_>,
    input: &PyTensor,
    generator: Option<&Bound<'_, PyGenerator>>,
) -> Result<PyTensor> {
    let p = input.tensor()?.detach()?;
    if !is_recording() {
        let fits = p.ge_scalar(0)?.and(&p.le_scalar(1)?)?.all(&[], false)?;
        if !compute(py, || fits.item::<bool>())? {
            return Err(value_error("bernoulli: every element must be a probability in [0, 1]"));
        }
    }
    let generator = self::generator(generator.map(|given| given.get()));
    let drawn = generator.rand(p.shape(), DType::F32, p.device())?;
    Ok(PyTensor::wrap(drawn.lt(&p)?.to_dtype(p.dtype())?))
}
