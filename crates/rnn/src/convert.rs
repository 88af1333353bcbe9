//! Arrays of the interface, `f64`, to tensors of the engine and back.

use ndarray::{Array1, Array2, ArrayView2};
use neurenix::{
    data::HostArray,
    phynexus::{DType, Device, Tensor, text::show_shape},
};

use crate::{NetworkError, Result};

/// The elements row by row.
pub(crate) fn elements(array: &Array2<f64>) -> Vec<f64> {
    match array.as_slice() {
        Some(slice) => slice.to_vec(),
        None => array.iter().copied().collect(),
    }
}

/// A tensor of these numbers in a floating-point type.
pub(crate) fn tensor(values: &[f64], shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    if dtype == DType::F32 {
        let narrow: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        return Ok(Tensor::from_slice(&narrow, shape, device)?);
    }
    Ok(Tensor::from_slice(values, shape, device)?.to_dtype(dtype)?)
}

/// A matrix on the host in a floating-point type, in this shape.
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

/// A tensor's numbers.
pub(crate) fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(match tensor.dtype() {
        DType::F64 => tensor.to_vec::<f64>()?,
        DType::F32 => tensor.to_vec::<f32>()?.into_iter().map(f64::from).collect(),
        _ => tensor.to_dtype(DType::F64)?.to_vec::<f64>()?,
    })
}

/// A tensor's rows as a matrix: dimensions after the first are one, a vector is a row.
pub(crate) fn array(tensor: &Tensor) -> Result<Array2<f64>> {
    let (rows, columns) = match tensor.shape() {
        [rows, rest @ ..] if !rest.is_empty() => (*rows, rest.iter().product::<usize>()),
        _ => (1, tensor.len()),
    };
    from_values(rows, columns, values(tensor)?)
}

/// A matrix of these numbers, row by row.
pub(crate) fn from_values(rows: usize, columns: usize, values: Vec<f64>) -> Result<Array2<f64>> {
    Array2::from_shape_vec((rows, columns), values)
        .map_err(|error| NetworkError::computation(error.to_string()))
}

/// A matrix of numbers made one after another, row by row, if there is room for it.
pub(crate) fn made(shape: (usize, usize), mut number: impl FnMut() -> f64) -> Result<Array2<f64>> {
    let wrong =
        || NetworkError::memory(format!("there is no room for a matrix of {shape:?}: ask for a smaller one"));
    let count = shape.0.checked_mul(shape.1).ok_or_else(wrong)?;
    let mut numbers = Vec::new();
    numbers.try_reserve_exact(count).map_err(|_| wrong())?;
    numbers.extend((0..count).map(|_| number()));
    Array2::from_shape_vec(shape, numbers).map_err(|_| wrong())
}

/// A vector as a matrix of one row.
pub(crate) fn row(vector: &Array1<f64>) -> Array2<f64> {
    vector.clone().insert_axis(ndarray::Axis(0))
}

/// Checks that data has rows of so many numbers that are finite in a floating-point type.
pub(crate) fn check_data(what: &str, data: &Array2<f64>, columns: usize, dtype: DType) -> Result<()> {
    if data.nrows() == 0 {
        return Err(NetworkError::data(format!("{what} has no rows")));
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

/// Checks that all numbers are finite, and stay so in a floating-point type.
pub(crate) fn check_fits(what: &str, data: &Array2<f64>, dtype: DType) -> Result<()> {
    check_finite(what, data)?;
    let most = if dtype == DType::F64 { f64::MAX } else { f64::from(f32::MAX) };
    match data.indexed_iter().find(|(_, x)| x.abs() > most) {
        None => Ok(()),
        Some(((row, column), x)) => Err(NetworkError::data(format!(
            "{what} has {x:e} in row {row}, column {column}, float32 ends at {most:e}: scale it, or build the network with \
             Precision::Float64"
        ))),
    }
}

/// Checks that all numbers are finite.
pub(crate) fn check_finite(what: &str, data: &Array2<f64>) -> Result<()> {
    match data.indexed_iter().find(|(_, x)| !x.is_finite()) {
        None => Ok(()),
        Some(((row, column), x)) => Err(NetworkError::data(format!(
            "{what} has {x} in row {row}, column {column}: remove or replace what is not finite"
        ))),
    }
}

/// Checks that targets have as many rows as data.
pub(crate) fn check_rows(data: &Array2<f64>, targets: &Array2<f64>) -> Result<()> {
    check_rows_of("targets", data, targets)
}

/// As [`check_rows`], for targets called so.
pub(crate) fn check_rows_of(what: &str, data: &Array2<f64>, targets: &Array2<f64>) -> Result<()> {
    if data.nrows() == targets.nrows() {
        return Ok(());
    }
    let (expected, actual) =
        (format!("{} rows, as the data", data.nrows()), format!("{} rows", targets.nrows()));
    Err(NetworkError::dimension_mismatch(what, expected, actual))
}
