//! Matrix products.

use super::operands::promote2;
use crate::{
    DType, Error, Result, Tensor,
    op::Op,
    shape::{Dims, broadcast},
};

impl Tensor {
    /// The matrix product with NumPy's rules: `[.., M, K] @ [.., K, N]` gives `[.., M, N]`. Leading dimensions are
    /// batch dimensions and are broadcast. A vector on the left is a row, on the right a column; its added dimension is
    /// removed from the result.
    ///
    /// Dtypes are promoted. Integers are summed in the promoted dtype and wrap (see [`Tensor::dot_i32`] for `int8`);
    /// 16-bit floats are summed in `float32`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the inner sizes differ or an operand is a scalar; [`Error::DType`] for `bool`.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = promote2(self, other)?;
        if a.dtype() == DType::Bool {
            return Err(Error::dtype(
                "matmul",
                &[DType::Bool],
                "convert to a numeric dtype with .to_dtype() first",
            ));
        }
        product("matmul", &a, &b, a.dtype())
    }

    /// The exact matrix product of `int8` operands as `int32`. Shapes are as for [`Tensor::matmul`].
    ///
    /// # Errors
    /// As [`Tensor::matmul`]; [`Error::DType`] unless both are `int8`.
    pub fn dot_i32(&self, other: &Tensor) -> Result<Tensor> {
        if self.dtype() != DType::I8 || other.dtype() != DType::I8 {
            return Err(Error::dtype(
                "dot_i32",
                &[self.dtype(), other.dtype()],
                "both operands must be int8",
            ));
        }
        product("dot_i32", self, other, DType::I32)
    }
}

/// The matrix product of operands that have their final dtypes.
fn product(op: &'static str, a: &Tensor, b: &Tensor, dtype: DType) -> Result<Tensor> {
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
        result = Tensor::record_product(Op::Dot, dtype, out, [&row.reshaped(folded)?, &column])?;
    } else {
        let batch = broadcast(op, row_batch, column_batch).map_err(|_| {
            Error::shape(op, &[a.shape(), b.shape()], "the leading dimensions cannot be broadcast")
        })?;
        shape = matrix(&batch, rows, columns);
        let row = row.stretched(&matrix(&batch, rows, inner))?;
        let column = column.stretched(&matrix(&batch, inner, columns))?;
        result = Tensor::record_product(Op::Dot, dtype, shape.clone(), [&row, &column])?;
    }
    if a.rank() == 1 {
        shape.remove(shape.len() - 2);
    }
    if b.rank() == 1 {
        shape.pop();
    }
    result.reshaped(shape)
}
