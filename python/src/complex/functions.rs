//! The functions of `neurenix::complex` and `neurenix::fft`, on pairs. `neurenix/_complex.py` calls them.

use neurenix::{complex::Complex, fft};
use phynexus::Tensor;
use pyo3::prelude::*;

use crate::{
    argument::Number,
    error::{Result, value_error},
    variable::PyTensor,
};

fn taken(pair: &PyTensor) -> Result<Complex> {
    Ok(Complex::from_pair(&pair.tensor()?)?)
}

fn given(complex: Complex) -> PyTensor {
    PyTensor::wrap(complex.pair().clone())
}

fn unknown(name: &str) -> crate::error::Failure {
    value_error(format!("there is no complex function {name:?}"))
}

/// The functions of one operand, and whether the result is complex.
fn unary(name: &str, z: &Complex) -> Option<phynexus::Result<Tensor>> {
    let complex = |found: phynexus::Result<Complex>| Some(found.map(|found| found.pair().clone()));
    match name {
        "abs" => Some(z.abs()),
        "angle" => Some(z.angle()),
        "isnan" => Some(z.isnan()),
        "isinf" => Some(z.isinf()),
        "isfinite" => Some(z.isfinite()),
        "nonzero" => Some(z.is_nonzero()),
        "real" => Some(z.real()),
        "imag" => Some(z.imaginary()),
        "conj" => complex(z.conj()),
        "sign" => complex(z.sign()),
        "square" => complex(z.square()),
        "reciprocal" => complex(z.reciprocal()),
        "exp" => complex(z.exp()),
        "expm1" => complex(z.expm1()),
        "log" => complex(z.log()),
        "log1p" => complex(z.log1p()),
        "log2" => complex(z.log2()),
        "log10" => complex(z.log10()),
        "sqrt" => complex(z.sqrt()),
        "sin" => complex(z.sin()),
        "cos" => complex(z.cos()),
        "tan" => complex(z.tan()),
        "sinh" => complex(z.sinh()),
        "cosh" => complex(z.cosh()),
        "tanh" => complex(z.tanh()),
        "asin" => complex(z.asin()),
        "acos" => complex(z.acos()),
        "atan" => complex(z.atan()),
        "asinh" => complex(z.asinh()),
        "acosh" => complex(z.acosh()),
        "atanh" => complex(z.atanh()),
        "sigmoid" => complex(z.sigmoid()),
        "adjoint" => complex(z.adjoint()),
        "inv" => complex(z.inv()),
        "det" => complex(z.det()),
        "cholesky" => complex(z.cholesky()),
        _ => None,
    }
}

/// Computes a function of one or two complex tensors, given and returned as pairs. ``exponent`` is the integer of
/// ``"powi"``.
#[pyfunction]
#[pyo3(signature = (name, first, second=None, exponent=0))]
pub(crate) fn complex_function(
    name: &str,
    first: &PyTensor,
    second: Option<&PyTensor>,
    exponent: i32,
) -> Result<PyTensor> {
    let z = taken(first)?;
    let Some(second) = second else {
        if name == "powi" {
            return Ok(given(z.powi(exponent)?));
        }
        return Ok(PyTensor::wrap(unary(name, &z).ok_or_else(|| unknown(name))??));
    };
    let w = taken(second)?;
    Ok(given(match name {
        "add" => z.add(&w)?,
        "sub" => z.sub(&w)?,
        "mul" => z.mul(&w)?,
        "div" => z.div(&w)?,
        "pow" => z.pow(&w)?,
        "matmul" => z.matmul(&w)?,
        "solve" => z.solve(&w)?,
        "eq" => return Ok(PyTensor::wrap(z.eq(&w)?)),
        _ => return Err(unknown(name)),
    }))
}

/// Computes a product over axes (all if there are none), or a cumulative product.
#[pyfunction]
pub(crate) fn complex_reduction(
    name: &str,
    pair: &PyTensor,
    axes: Vec<i64>,
    keepdim: bool,
) -> Result<PyTensor> {
    let z = taken(pair)?;
    Ok(given(match (name, axes.as_slice()) {
        ("prod", axes) => z.prod(axes, keepdim)?,
        ("cumprod", &[axis]) => z.cumprod(axis)?,
        _ => return Err(unknown(name)),
    }))
}

/// Decomposes matrices of pairs: ``"qr"``, ``"eigh"``, ``"svd"``, ``"slogdet"``, or ``"pinv"`` with a tolerance.
#[pyfunction]
#[pyo3(signature = (name, pair, full=false, tolerance=None))]
pub(crate) fn complex_factors(
    name: &str,
    pair: &PyTensor,
    full: bool,
    tolerance: Option<&PyTensor>,
) -> Result<Vec<PyTensor>> {
    let z = taken(pair)?;
    Ok(match (name, tolerance) {
        ("qr", None) => {
            let (q, r) = z.qr(full)?;
            vec![given(q), given(r)]
        }
        ("eigh", None) => {
            let (values, vectors) = z.eigh()?;
            vec![PyTensor::wrap(values), given(vectors)]
        }
        ("svd", None) => {
            let (u, values, vh) = z.svd(full)?;
            vec![given(u), PyTensor::wrap(values), given(vh)]
        }
        ("slogdet", None) => {
            let found = z.slogdet()?;
            vec![given(found.sign), PyTensor::wrap(found.logarithm)]
        }
        ("pinv", Some(tolerance)) => vec![given(z.pinv(&tolerance.tensor()?)?)],
        _ => return Err(unknown(name)),
    })
}

/// Computes a Fourier transform. ``x`` is real for ``rfft`` and ``ihfft``, else pairs; the result is real for ``irfft`` and
/// ``hfft``, else pairs.
#[pyfunction]
pub(crate) fn fourier(
    name: &str,
    x: &PyTensor,
    lengths: Vec<Number>,
    axes: Vec<i64>,
    norm: Option<&str>,
) -> Result<PyTensor> {
    let norm = match norm {
        None | Some("backward") => fft::Norm::Backward,
        Some("ortho") => fft::Norm::Ortho,
        Some("forward") => fft::Norm::Forward,
        Some(other) => {
            return Err(value_error(format!(
                "{name}: norm is {other:?}, it must be \"backward\", \"ortho\" or \"forward\""
            )));
        }
    };
    let lengths = lengths.iter().map(|length| crate::argument::size(length.0.as_i64()));
    let lengths = lengths.collect::<Result<Vec<_>>>()?;
    Ok(match name {
        "fft" => given(fft::fft(&taken(x)?, &lengths, &axes, norm)?),
        "ifft" => given(fft::ifft(&taken(x)?, &lengths, &axes, norm)?),
        "rfft" => given(fft::rfft(&x.tensor()?, &lengths, &axes, norm)?),
        "ihfft" => given(fft::ihfft(&x.tensor()?, &lengths, &axes, norm)?),
        "irfft" => PyTensor::wrap(fft::irfft(&taken(x)?, &lengths, &axes, norm)?),
        "hfft" => PyTensor::wrap(fft::hfft(&taken(x)?, &lengths, &axes, norm)?),
        _ => return Err(unknown(name)),
    })
}
