//! Arrays of numbers, in row-major order.

use super::{
    integer,
    number::{Interval, Number},
};
use crate::dtype::read_scalars;
use crate::{
    DType, Error, Result, Scalar,
    dtype::scalar_bytes,
    shape::{Dims, checked_element_count, contiguous_strides, element_count},
};

/// A tensor of the oracle.
#[derive(Clone, Debug)]
pub struct OracleArray {
    /// The element type.
    pub dtype: DType,
    /// The shape.
    pub shape: Dims,
    /// The elements in row-major order.
    pub elements: Vec<Number>,
}

impl OracleArray {
    /// Reads little-endian bytes in row-major order.
    ///
    /// # Errors
    /// If the bytes do not fill the shape.
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize]) -> Result<OracleArray> {
        let expected = checked_element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
        if expected != Some(bytes.len()) {
            return Err(Error::shape("oracle", &[shape], format!("got {} bytes of {dtype}", bytes.len())));
        }
        let elements = read_scalars(bytes, dtype).into_iter().map(from_scalar).collect();
        Ok(OracleArray { dtype, shape: shape.into(), elements })
    }

    /// Writes little-endian bytes: the `f64` value, rounded; 0 for undetermined elements.
    pub fn to_bytes(&self) -> Vec<u8> {
        let scalar = |number: &Number| match number {
            Number::Integer(x) if self.dtype.kind() == crate::DTypeKind::Unsigned => Scalar::UInt(*x as u64),
            Number::Integer(x) => Scalar::Int(*x as i64),
            Number::Float(x) => Scalar::Float(x.rounded(self.dtype).value),
            Number::Undetermined => Scalar::Int(0),
        };
        self.elements.iter().flat_map(|n| scalar_bytes(scalar(n), self.dtype)).collect()
    }

    /// Fills an array with this scalar.
    pub(crate) fn filled(scalar: Scalar, dtype: DType, shape: &[usize]) -> OracleArray {
        let element = from_scalar(scalar.cast(dtype));
        OracleArray { dtype, shape: shape.into(), elements: vec![element; element_count(shape)] }
    }

    /// The element at these coordinates.
    pub(crate) fn at(&self, coordinates: &[usize]) -> Number {
        self.elements[flat_index(&self.shape, coordinates)]
    }
}

/// A scalar as a number.
pub(crate) fn from_scalar(scalar: Scalar) -> Number {
    match scalar {
        Scalar::Bool(b) => Number::bool(b),
        Scalar::Int(i) => Number::Integer(i.into()),
        Scalar::UInt(u) => Number::Integer(u.into()),
        Scalar::Float(x) => Number::float(x),
    }
}

/// A count or position as an element of `dtype`.
pub(crate) fn counted(i: usize, dtype: DType) -> Number {
    if dtype.is_float() {
        Number::Float(Interval::point(i as f64).settled(dtype))
    } else {
        Number::Integer(integer::wrap(i as i128, dtype))
    }
}

/// The coordinates of all elements in row-major order.
pub(crate) fn every_coordinate(shape: &[usize]) -> impl Iterator<Item = Dims> + use<> {
    let strides = contiguous_strides(shape);
    let shape: Dims = shape.into();
    (0..element_count(&shape))
        .map(move |flat| shape.iter().zip(&strides).map(|(&size, &s)| flat / s as usize % size).collect())
}

/// The row-major position of these coordinates.
pub(crate) fn flat_index(shape: &[usize], coordinates: &[usize]) -> usize {
    coordinates.iter().zip(contiguous_strides(shape)).map(|(&c, s)| c * s as usize).sum()
}
