//! Matrix products with weights of which two of each four are kept.

use super::{
    Definition, check,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Error, Result, Scalar,
    op::{
        Axes, Binary,
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::{Dims, element_count},
};

/// Inputs x `[.., M, K]`, values `[N, K / 2]` of x's dtype, places `uint8 [N, K / 8]`. `x W^T`, `[.., M, N]`, in x's
/// dtype, of a matrix W `[N, K]` of which two of each four neighbours in a row are kept: NVIDIA's 2:4 sparsity (Mishra
/// et al. 2021, Accelerating sparse deep neural networks, arXiv 2104.08378). `values` has what is kept, in order.
/// `places` has two bits for each value: its index among the four. A byte holds those of two fours, the first value's
/// in the lowest bits. If both places of a four are equal, which no compression makes, its first value is kept.
///
/// Products with weights that are not kept, if x has NaN or infinities there, are NaN as in a product with W, but a
/// product of one row leaves them out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SparseProduct;

/// The shape of the matrix that is compressed to these; `op` is the operation's name in messages.
pub(crate) fn compressed_shape(
    op: &'static str,
    values: &TensorType,
    places: &TensorType,
) -> Result<[usize; 2]> {
    if places.dtype() != DType::U8 {
        let hint = "the places of kept weights are uint8: make them with compress_two_of_four";
        return Err(Error::dtype(op, &[places.dtype()], hint));
    }
    if let (&[rows, kept], &[same_rows, bytes]) = (values.shape(), places.shape())
        && rows == same_rows
        && bytes.checked_mul(4) == Some(kept)
        && let Some(inner) = kept.checked_mul(2)
    {
        return Ok([rows, inner]);
    }
    let hint = "values must be [N, K / 2] and places [N, K / 8]: make them with compress_two_of_four";
    Err(Error::shape(op, &[values.shape(), places.shape()], hint))
}

/// The matrix of this shape that is compressed to `values` and `places`. Nothing is computed with the values, so that
/// all of them come back bit for bit, in any dtype.
pub(crate) fn decompressed(values: &Formula, places: &Formula, [rows, inner]: [usize; 2]) -> Formula {
    // For each byte two fours, and the four positions of each.
    let shape = [rows, inner / 8, 2, 4];
    let bytes = places.reshape(&[rows, inner / 8, 1, 1]).expand(&shape);
    let values = values.reshape(&[rows, inner / 8, 2, 2]);
    let (four, position) = (bytes.iota_like(DType::U8, 2), bytes.iota_like(DType::U8, 3));
    let number = |n: usize| bytes.like(Scalar::UInt(n as u64));
    // Where the first or second value of each four belongs, and the value.
    let kept = |which: usize| {
        let shift = &four * &number(4) + &number(2 * which);
        let place = bytes.binary(Binary::Shr, &shift).and(&number(3));
        (place.eq(&position), values.narrow(3, which, 1).expand(&shape))
    };
    let ((here, first), (there, second)) = (kept(0), kept(1));
    here.choose(&first, &second.only_where(&there)).reshape(&[rows, inner])
}

/// The products of one row x and the weights that are kept, summed for each of `columns`: of every four elements of x,
/// each place chooses one.
fn kept_sums(
    x: &Formula,
    values: &Formula,
    places: &Formula,
    [columns, inner]: [usize; 2],
    dtype: DType,
) -> Formula {
    // Four values for each byte, two of each four.
    let shape = [columns, inner / 8, 4];
    let bytes = places.reshape(&[columns, inner / 8, 1]).expand(&shape);
    let number = |n: usize| bytes.like(Scalar::UInt(n as u64));
    let place = bytes.binary(Binary::Shr, &(&bytes.iota_like(DType::U8, 2) * &number(2)));
    let bit = |n: usize| place.and(&number(n)).eq(&number(n));
    let fours = x.reshape(&[1, inner / 8, 2, 4]);
    let element = |position: usize| {
        let each = fours.narrow(3, position, 1).expand(&[columns, inner / 8, 2, 2]);
        each.reshape(&shape).cast(dtype.compute())
    };
    let of_pair = |first: usize| bit(1).choose(&element(first + 1), &element(first));
    let chosen = bit(2).choose(&of_pair(2), &of_pair(0));
    let products = chosen * values.reshape(&shape).cast(dtype.compute());
    products.sum(Axes(1 << 1 | 1 << 2)).cast(dtype)
}

impl Definition for SparseProduct {
    fn name(&self) -> &'static str {
        "dot_sparse"
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 3)?;
        let [x, values, places] = [&operands[0], &operands[1], &operands[2]];
        check::float(self.name(), x)?;
        check::dtype(self.name(), values, x.dtype())?;
        let [columns, inner] = compressed_shape(self.name(), values, places)?;
        if x.rank() < 2 || x.shape().last() != Some(&inner) {
            let hint =
                format!("these are weights of {inner} inputs: the first operand must be [.., M, {inner}]");
            return Err(Error::shape(self.name(), &[x.shape(), values.shape()], hint));
        }
        let mut shape: Dims = x.shape().into();
        shape[x.rank() - 1] = columns;
        Ok((x.dtype(), shape))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let [x, values, places] = [0, 1, 2].map(|i| Formula::of(&operands[i]));
        let (mut shape, dtype): (Dims, _) = (operands[0].shape().into(), operands[0].dtype());
        let last = shape.len() - 1;
        let (inner, columns) = (shape[last], operands[1].shape()[0]);
        let rows = element_count(&shape[..last]);
        let product = match rows {
            // Nothing but values and places is read of the weights.
            1 => kept_sums(&x, &values, &places, [columns, inner], dtype),
            _ => {
                let matrix = decompressed(&values, &places, [columns, inner]);
                x.reshape(&[rows, inner]).dot(&matrix.transpose())
            }
        };
        shape[last] = columns;
        product.reshape(&shape).term()
    }

    fn samples() -> Vec<Sample> {
        let call = |x: &[usize], columns: usize| {
            let inner = x[x.len() - 1];
            let [values, places] = [inner / 2, inner / 8].map(|size| SampleOperand::new(&[columns, size]));
            Sample::new(SparseProduct, [SampleOperand::new(x), values, places.fixed(DType::U8)])
        };
        vec![
            call(&[1, 8], 3),
            call(&[5, 8], 4),
            call(&[1, 1, 16], 2),
            call(&[2, 3, 8], 4),
            call(&[1, 1048], 33),
            call(&[20, 136], 19),
            call(&[0, 16], 3),
            call(&[3, 0], 2),
            call(&[1, 0], 2),
        ]
    }
}
