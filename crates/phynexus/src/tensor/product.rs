//! Matrix products.

use super::operands::promote2;
use crate::{
    DType, Error, Result, Tensor,
    op::{Composite, Op, composite::Float8Product},
    shape::{Dims, broadcast},
};

impl Tensor {
    /// The matrix product with NumPy's rules: `[.., M, K] @ [.., K, N]` gives `[.., M, N]`. Leading dimensions are
    /// batch dimensions and are broadcast. A vector on the left is a row, on the right a column; its added dimension is
    /// removed from the result.
    ///
    /// Dtypes are promoted. Integers are summed in the promoted dtype and wrap; 16-bit floats are summed in `float32`.
    /// See [`Tensor::matmul_as`] for results of another dtype.
    ///
    /// # Errors
    /// [`Error::Shape`] if the inner sizes differ or an operand is a scalar; [`Error::DType`] for `bool` and for 8-bit
    /// floats, which are not summed in 8 bits.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = promote2(self, other)?;
        if a.dtype() == DType::Bool {
            return Err(Error::dtype(
                "matmul",
                &[DType::Bool],
                "convert to a numeric dtype with .to_dtype() first",
            ));
        }
        if a.dtype().float8().is_some() {
            let hint = "products of 8-bit floats need another dtype for the result: use matmul_as (in Python \
                        matmul(.., out_dtype=float32)), or convert them with .to_dtype(float32)";
            return Err(Error::dtype("matmul", &[self.dtype(), other.dtype()], hint));
        }
        matmul("matmul", [&a, &b], a.dtype(), Tensor::record_product)
    }

    /// As [`Tensor::matmul`], with a result of this dtype, in which sums are computed: `int32` of `int8` and `uint8`
    /// operands is exact unless it wraps, and `float32` of 8-bit and 16-bit floats is not rounded to fewer bits. Sums of
    /// products of 8-bit floats are less accurate on some devices: an NVIDIA H200 keeps 14 bits of each 32 terms.
    ///
    /// Operands of two 8-bit dtypes are multiplied as they are, without promotion: floats, and integers for an `int32`
    /// result.
    ///
    /// # Errors
    /// As [`Tensor::matmul`]; [`Error::DType`] if `dtype` is `bool` or an 8-bit float, or is not what it and the
    /// operands' dtype are promoted to: results are not narrower than the operands, nor floats of integers.
    pub fn matmul_as(&self, other: &Tensor, dtype: DType) -> Result<Tensor> {
        let (a, b) = factors("matmul", [self, other], dtype)?;
        matmul("matmul", [&a, &b], dtype, Tensor::record_product)
    }

    /// As [`Tensor::matmul`], with factors that are scaled and rounded to 8-bit floats; see
    /// [`Float8Product`](crate::op::composite::Float8Product). A device without matrix units for them computes with the
    /// rounded numbers.
    ///
    /// # Errors
    /// As [`Tensor::matmul`]; [`Error::DType`] unless both are `float32`, both `float16` or both `bfloat16`.
    pub fn matmul_float8(&self, other: &Tensor) -> Result<Tensor> {
        matmul("matmul_float8", [self, other], self.dtype(), |_, _, _, operands| {
            Composite::apply(Float8Product, &operands)
        })
    }
}

/// The factors of a sum of products of this dtype: promoted, unless devices multiply them as they are.
///
/// # Errors
/// [`Error::DType`] if there is no such sum.
pub(super) fn factors(op: &'static str, [a, b]: [&Tensor; 2], dtype: DType) -> Result<(Tensor, Tensor)> {
    let both = |fits: &dyn Fn(DType) -> bool| fits(a.dtype()) && fits(b.dtype());
    let are_float8 = both(&|factor| factor.float8().is_some());
    let are_bytes = dtype == DType::I32 && both(&|factor| factor.is_integer() && factor.size() == 1);
    let promoted = if are_float8 || are_bytes { (a.clone(), b.clone()) } else { promote2(a, b)? };
    let factor = promoted.0.dtype();
    let holds = factor.promote(dtype) == dtype && factor.is_float() == dtype.is_float();
    if !holds || factor == DType::Bool || dtype.float8().is_some() {
        let hint = "the result must be an integer type for integers, a float type of at least 16 bits for floats, \
                    and no narrower than the operands: convert them with .to_dtype() first";
        return Err(Error::dtype(op, &[a.dtype(), b.dtype(), dtype], hint));
    }
    Ok(promoted)
}

/// The matrix product of operands that have their final dtypes. `record` records that of matrices with equal leading
/// dimensions, given the operation, the result's dtype and shape, and the factors.
fn matmul(
    op: &'static str,
    [a, b]: [&Tensor; 2],
    dtype: DType,
    record: impl Fn(Op, DType, Dims, [&Tensor; 2]) -> Result<Tensor>,
) -> Result<Tensor> {
    if a.rank() == 0 || b.rank() == 0 {
        return Err(Error::shape(op, &[a.shape(), b.shape()], "an operand is a scalar: use mul"));
    }
    let row = if a.rank() == 1 { a.unsqueeze(0)? } else { a.clone() };
    let column = if b.rank() == 1 { b.unsqueeze(1)? } else { b.clone() };
    let ([row_batch @ .., rows, inner], [column_batch @ .., inner_too, columns]) =
        (row.shape(), column.shape())
    else {
        return Err(Error::internal("matmul", "an operand has fewer than two dimensions"));
    };
    let (rows, inner, inner_too, columns) = (*rows, *inner, *inner_too, *columns);
    if inner != inner_too {
        let hint = format!("the inner sizes {inner} and {inner_too} must be equal");
        return Err(Error::shape(op, &[a.shape(), b.shape()], hint));
    }
    let matrix =
        |batch: &[usize], m: usize, n: usize| -> Dims { batch.iter().copied().chain([m, n]).collect() };
    let (mut shape, result);
    if column_batch.is_empty() {
        // With a single matrix on the right, the rows of all batches form one product.
        shape = matrix(row_batch, rows, columns);
        let folded: Dims = [row_batch.iter().product::<usize>() * rows, inner].into_iter().collect();
        let out = matrix(&[], folded[0], columns);
        result = record(Op::Dot, dtype, out, [&row.reshaped(folded)?, &column])?;
    } else {
        let batch = broadcast(op, row_batch, column_batch).map_err(|_| {
            Error::shape(op, &[a.shape(), b.shape()], "the leading dimensions cannot be broadcast")
        })?;
        shape = matrix(&batch, rows, columns);
        let row = row.stretched(&matrix(&batch, rows, inner))?;
        let column = column.stretched(&matrix(&batch, inner, columns))?;
        result = record(Op::Dot, dtype, shape.clone(), [&row, &column])?;
    }
    if a.rank() == 1 {
        shape.remove(shape.len() - 2);
    }
    if b.rank() == 1 {
        shape.pop();
    }
    result.reshaped(shape)
}
