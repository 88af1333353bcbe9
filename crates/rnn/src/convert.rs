//! Arrays of the interface, `f64`, to tensors of the engine and back.

use ndarray::{Array1, Array2};
use neurenix::phynexus::{DType, Device, Tensor, shape::show_shape};

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
    let rows = if tensor.rank() < 2 { 1 } else { tensor.shape()[0] };
    let values = values(tensor)?;
    let columns = values.len().checked_div(rows).unwrap_or(0);
    from_values(rows, columns, values)
}

/// A matrix of these numbers, row by row.
pub(crate) fn from_values(rows: usize, columns: usize, values: Vec<f64>) -> Result<Array2<f64>> {
    Array2::from_shape_vec((rows, columns), values)
        .map_err(|error| NetworkError::computation(error.to_string()))
}

/// A vector as a matrix of one row.
pub(crate) fn row(vector: &Array1<f64>) -> Array2<f64> {
    vector.clone().insert_axis(ndarray::Axis(0))
}

/// Checks that data has rows of so many finite numbers.
pub(crate) fn check_data(what: &str, data: &Array2<f64>, columns: usize) -> Result<()> {
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
    check_finite(what, data)
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

/// Checks that two sets have as many rows.
pub(crate) fn check_rows(data: &Array2<f64>, targets: &Array2<f64>) -> Result<()> {
    if data.nrows() == targets.nrows() {
        return Ok(());
    }
    let (expected, actual) =
        (format!("{} rows, as the data", data.nrows()), format!("{} rows", targets.nrows()));
    Err(NetworkError::dimension_mismatch("targets", expected, actual))
}
