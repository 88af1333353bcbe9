//! Conversions between `f64` arrays and the engine's tensors.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2};
use neurenix::{
    data::HostArray,
    phynexus::{DType, Device, Tensor, text::show_shape},
};

use crate::{NetworkError, Result};

/// The elements in row-major order.
pub(crate) fn elements(array: &Array2<f64>) -> Vec<f64> {
    match array.as_slice() {
        Some(slice) => slice.to_vec(),
        None => array.iter().copied().collect(),
    }
}

/// A tensor with a floating-point dtype.
pub(crate) fn tensor(values: &[f64], shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    if dtype == DType::F32 {
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        return Ok(Tensor::from_slice(&narrow, shape, device)?);
    }
    Ok(Tensor::from_slice(values, shape, device)?.to_dtype(dtype)?)
}

/// A matrix as a host array with this shape and a floating-point dtype.
pub(crate) fn host(array: ArrayView2<'_, f64>, shape: &[usize], dtype: DType) -> Result<HostArray> {
    if dtype == DType::F32 {
        let narrow: Vec<f32> = array.iter().map(|&x| x as f32).collect();
        return Ok(HostArray::from_values(shape, &narrow)?);
    }
    Ok(HostArray::from_values(shape, &array.iter().copied().collect::<Vec<f64>>())?.cast(dtype))
}

/// A matrix as a tensor.
pub(crate) fn matrix(array: &Array2<f64>, dtype: DType, device: Device) -> Result<Tensor> {
    tensor(&elements(array), &[array.nrows(), array.ncols()], dtype, device)
}

/// The elements of a tensor.
pub(crate) fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(match tensor.dtype() {
        DType::F64 => tensor.to_vec::<f64>()?,
        DType::F32 => tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
        _ => tensor.to_dtype(DType::F64)?.to_vec::<f64>()?,
    })
}

/// A tensor as a matrix. Dimensions after the first are merged, and a vector is one row.
pub(crate) fn array(tensor: &Tensor) -> Result<Array2<f64>> {
    let (rows, columns) = match tensor.shape() {
        [rows, rest @ ..] if !rest.is_empty() => (*rows, rest.iter().product::<usize>()),
        _ => (1, tensor.len()),
    };
    from_values(rows, columns, values(tensor)?)
}

/// A matrix of row-major elements.
pub(crate) fn from_values(rows: usize, columns: usize, values: Vec<f64>) -> Result<Array2<f64>> {
    Array2::from_shape_vec((rows, columns), values)
        .map_err(|error| NetworkError::computation(error.to_string()))
}

/// A matrix whose elements are computed in row-major order, if there is enough memory.
pub(crate) fn made(shape: (usize, usize), mut number: impl FnMut() -> f64) -> Result<Array2<f64>> {
    let wrong = || {
        NetworkError::memory(format!("there is no room for a matrix of shape {shape:?}: use a smaller one"))
    };
    let count = shape.0.checked_mul(shape.1).ok_or_else(wrong)?;
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(|_| wrong())?;
    numbers.extend((0..count).map(|_| number()));
    Array2::from_shape_vec(shape, numbers).map_err(|_| wrong())
}

/// The index of the first maximum; 0 if there are no elements.
pub(crate) fn argmax(row: ArrayView1<'_, f64>) -> usize {
    row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best })
}

/// A vector as a matrix with one row.
pub(crate) fn row(vector: &Array1<f64>) -> Array2<f64> {
    vector.clone().insert_axis(ndarray::Axis(0))
}

/// Checks that data have rows of `columns` elements that are finite in a dtype. `what` names them in the error.
pub(crate) fn check_data(what: &str, data: &Array2<f64>, columns: usize, dtype: DType) -> Result<()> {
    if data.nrows() == 0 {
        return Err(NetworkError::data(format!("{what} has no rows: give at least one")));
    }
    if data.ncols() != columns {
        let expected = format!("rows of {columns}");
        return Err(NetworkError::dimension_mismatch(
            what,
            expected,
            show_shape(&[data.nrows(), data.ncols()]),
        ));
    }
    check_fits(what, data, dtype)
}

/// Checks that all elements are finite in a dtype.
pub(crate) fn check_fits(what: &str, data: &Array2<f64>, dtype: DType) -> Result<()> {
    check_finite(what, data)?;
    let most = if dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) };
    match data.indexed_iter().find(|(_, x)| x.abs() > most) {
        None => Ok(()),
        Some(((row, column), x)) => Err(NetworkError::data(format!(
            "{what} has {x:e} in row {row}, column {column}, but float32 ends at {most:e}: scale it, or build the network with \
             Precision::Float64"
        ))),
    }
}

/// Checks that all elements are finite.
pub(crate) fn check_finite(what: &str, data: &Array2<f64>) -> Result<()> {
    match data.indexed_iter().find(|(_, x)| !x.is_finite()) {
        None => Ok(()),
        Some(((row, column), x)) => Err(NetworkError::data(format!(
            "{what} has {x} in row {row}, column {column}: remove or replace values that are not finite"
        ))),
    }
}

/// Checks that targets have as many rows as data.
pub(crate) fn check_rows(data: &Array2<f64>, targets: &Array2<f64>) -> Result<()> {
    check_rows_of("targets", data, targets)
}

/// As [`check_rows`], with a name for the targets in the error.
pub(crate) fn check_rows_of(what: &str, data: &Array2<f64>, targets: &Array2<f64>) -> Result<()> {
    if data.nrows() == targets.nrows() {
        return Ok(());
    }
    let (expected, actual) =
        (format!("{} rows as in the data", data.nrows()), format!("{} rows", targets.nrows()));
    Err(NetworkError::dimension_mismatch(what, expected, actual))
}
