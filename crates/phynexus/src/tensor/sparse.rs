//! Weights of which two of each four neighbours are kept: NVIDIA's 2:4 sparsity.

use super::operands::promote2;
use crate::{
    DType, Error, Result, Tensor,
    op::{
        composite::{Composite, SparseProduct, compressed_shape, decompressed},
        formula::Formula,
    },
    shape::Dims,
};

const COMPRESS: &str = "compress_two_of_four";

impl Tensor {
    /// Zeros the two smallest magnitudes of each four neighbours along the last dimension. Of equal magnitudes the
    /// first are kept; NaN counts as the greatest.
    ///
    /// # Errors
    /// [`Error::DType`] unless the dtype is a float of at least 16 bits; [`Error::Shape`] unless the last dimension is
    /// a multiple of 4.
    pub fn keep_two_of_four(&self) -> Result<Tensor> {
        let kept = self.in_fours("keep_two_of_four", 4)?.two_greatest()?;
        kept.reshaped(self.shape().into())?.where_(self, &self.zeros_like()?)
    }

    /// Compresses a matrix `[N, K]` that has at most two numbers other than 0 in each four neighbours of a row, such as
    /// a weight after [`Tensor::keep_two_of_four`]: to values `[N, K / 2]` and places `uint8 [N, K / 8]`, as
    /// [`SparseProduct`](crate::op::composite::SparseProduct) describes. Where a four has fewer such numbers, its first
    /// zeros are values too. Reads the matrix, to check it.
    ///
    /// # Errors
    /// [`Error::Argument`] if a four has more than two numbers other than 0; [`Error::DType`] unless the dtype is a
    /// float of at least 16 bits; [`Error::Shape`] unless this is a matrix and K a multiple of 8.
    pub fn compress_two_of_four(&self) -> Result<(Tensor, Tensor)> {
        let &[rows, inner] = self.shape() else {
            let hint = "expected a matrix [N, K]: flatten the other dimensions first";
            return Err(Error::shape(COMPRESS, &[self.shape()], hint));
        };
        let fours = self.in_fours(COMPRESS, 8)?;
        if fours.count_nonzero(&[-1], false)?.gt_scalar(2)?.any(&[], false)?.item::<bool>()? {
            let message = "of four neighbours more than two are not 0: call keep_two_of_four first";
            return Err(Error::argument(COMPRESS, message));
        }
        // If at most two are not 0, they and the first zeros are the two greatest.
        let kept = fours.two_greatest()?;
        let place = Tensor::iota(fours.shape().into(), 1, DType::I64, self.device())?;
        let first = kept.where_(&place, &place.full_like(4)?)?.min(&[1], true)?;
        let second = kept.where_(&place, &place.zeros_like()?)?.max(&[1], true)?;
        let places = Tensor::cat(&[&first, &second], 1)?;
        let values = fours.gather(1, &places)?.reshaped(Dims::from_slice(&[rows, inner / 2]))?;
        // Four places of two bits are a byte.
        let places = places.reshaped(Dims::from_slice(&[rows, inner / 8, 4]))?;
        let weight = Tensor::from_slice(&[1i64, 4, 16, 64], &[4], self.device())?;
        Ok((values, places.mul(&weight)?.sum(&[-1], false)?.to_dtype(DType::U8)?))
    }

    /// The matrix `[N, K]` that [`Tensor::compress_two_of_four`] compressed to these values and `places`.
    ///
    /// # Errors
    /// [`Error::DType`] if the places are not `uint8`; [`Error::Shape`] if values are not `[N, K / 2]` or places not
    /// `[N, K / 8]`.
    pub fn decompress_two_of_four(&self, places: &Tensor) -> Result<Tensor> {
        let shape = compressed_shape("decompress_two_of_four", &self.tensor_type(), &places.tensor_type())?;
        decompressed(&Formula::of(self), &Formula::of(places), shape).tensor()
    }

    /// `self @ weight.T` for the matrix `weight` `[N, K]` that [`Tensor::compress_two_of_four`] compressed to these
    /// values and places: `[.., M, K]` gives `[.., M, N]`, a vector `[K]` gives `[N]`. 16-bit floats are summed in
    /// `float32`. See [`SparseProduct`](crate::op::composite::SparseProduct).
    ///
    /// A product of one row reads values and places only. One of more rows writes the whole matrix to memory first.
    ///
    /// # Errors
    /// [`Error::DType`] unless both this and the values are floats of at least 16 bits, which are promoted, and the
    /// places `uint8`; [`Error::Shape`] if the shapes do not fit.
    pub fn matmul_sparse(&self, values: &Tensor, places: &Tensor) -> Result<Tensor> {
        if self.rank() == 1 {
            return self.unsqueeze(0)?.matmul_sparse(values, places)?.squeeze(0);
        }
        let is_weight = |x: &Tensor| x.dtype().is_float() && x.dtype().float8().is_none();
        let (x, values) = match is_weight(self) && is_weight(values) {
            true => promote2(self, values)?,
            false => (self.clone(), values.clone()),
        };
        Composite::apply(SparseProduct, &[&x, &values, places])
    }

    /// The elements `[count / 4, 4]` in fours along the last dimension, which must be a multiple of `multiple`.
    fn in_fours(&self, op: &'static str, multiple: usize) -> Result<Tensor> {
        if !self.dtype().is_float() || self.dtype().float8().is_some() {
            let hint = "weights are floats of at least 16 bits: convert with .to_dtype()";
            return Err(Error::dtype(op, &[self.dtype()], hint));
        }
        if self.shape().last().is_none_or(|size| !size.is_multiple_of(multiple)) {
            let hint = format!("the last dimension must be a multiple of {multiple}: pad it with zeros");
            return Err(Error::shape(op, &[self.shape()], hint));
        }
        self.reshaped(Dims::from_slice(&[self.len() / 4, 4]))
    }

    /// Which of each four `[.., 4]` are the two of the greatest magnitude, `bool`: always two, the first of equal ones.
    fn two_greatest(&self) -> Result<Tensor> {
        let magnitude = self.detach()?.abs()?;
        let (own, other) = (magnitude.unsqueeze(-1)?, magnitude.unsqueeze(-2)?);
        // NaN, which no comparison holds for, is below nothing, and all numbers are below it.
        let below = |a: &Tensor, b: &Tensor| a.ge(b)?.logical_or(&a.isnan()?)?.logical_not();
        let index = |axis| Tensor::iota(Dims::from_slice(&[4, 4]), axis, DType::I64, self.device());
        let is_earlier = index(1)?.lt(&index(0)?)?;
        // An earlier one precedes unless it is smaller, a later one if it is greater.
        let precedes = is_earlier.where_(&below(&other, &own)?.logical_not()?, &below(&own, &other)?)?;
        precedes.sum(&[-1], false)?.lt_scalar(2)
    }
}
