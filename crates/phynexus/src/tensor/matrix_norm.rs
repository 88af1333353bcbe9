//! Matrix norms and condition numbers.

use crate::{Error, Result, Tensor, shape::Dims};

/// The norm that [`Tensor::matrix_norm`] and [`Tensor::cond`] compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixNorm {
    /// The square root of the sum of squares.
    #[default]
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The largest singular value: the 2-norm.
    Spectral,
    /// The smallest singular value: order -2.
    LeastSingular,
    /// The largest sum of absolute values in a column: the 1-norm.
    Columns,
    /// The smallest sum of absolute values in a column: order -1.
    LeastColumn,
    /// The largest sum of absolute values in a row: the infinity norm.
    Rows,
    /// The smallest sum of absolute values in a row: order -infinity.
    LeastRow,
}

impl Tensor {
    /// A norm of the matrices `[.., M, N]` in the last two dimensions. These are removed, or kept with size 1 if
    /// `keepdim`. The dtype is as for [`Tensor::norm`], or as for [`Tensor::svdvals`] if the norm uses singular values.
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two dimensions, or an empty maximum or minimum; the errors of
    /// [`Tensor::svdvals`] for norms that use singular values.
    pub fn matrix_norm(&self, norm: MatrixNorm, keepdim: bool) -> Result<Tensor> {
        if self.rank() < 2 {
            let hint = "expected at least two dimensions; see norm for vectors";
            return Err(Error::shape("matrix_norm", &[self.shape()], hint));
        }
        let sums = |axis: i64| self.abs()?.sum(&[axis], true);
        let kept = |found: Tensor| {
            let shape: Dims = found.shape().iter().copied().chain([1, 1]).collect();
            if keepdim { found.reshaped(shape) } else { Ok(found) }
        };
        match norm {
            MatrixNorm::Frobenius => self.norm(2.0, &[-2, -1], keepdim),
            MatrixNorm::Nuclear => kept(self.svdvals()?.sum(&[-1], false)?),
            MatrixNorm::Spectral => kept(self.svdvals()?.max(&[-1], false)?),
            MatrixNorm::LeastSingular => kept(self.svdvals()?.min(&[-1], false)?),
            MatrixNorm::Columns => sums(-2)?.max(&[-2, -1], keepdim),
            MatrixNorm::LeastColumn => sums(-2)?.min(&[-2, -1], keepdim),
            MatrixNorm::Rows => sums(-1)?.max(&[-2, -1], keepdim),
            MatrixNorm::LeastRow => sums(-1)?.min(&[-2, -1], keepdim),
        }
    }

    /// The condition numbers of matrices `[.., M, N]`. For [`MatrixNorm::Spectral`] this is the largest singular value
    /// divided by the smallest, and infinite if the smallest is 0. For [`MatrixNorm::LeastSingular`] it is the smallest
    /// divided by the largest. Otherwise it is the norm of a square matrix times the norm of its inverse.
    ///
    /// # Errors
    /// As [`Tensor::matrix_norm`] and [`Tensor::inv`].
    pub fn cond(&self, norm: MatrixNorm) -> Result<Tensor> {
        if !matches!(norm, MatrixNorm::Spectral | MatrixNorm::LeastSingular) {
            return self.matrix_norm(norm, false)?.mul(&self.inv()?.matrix_norm(norm, false)?);
        }
        let singular = self.svdvals()?;
        let (greatest, least) = (singular.max(&[-1], false)?, singular.min(&[-1], false)?);
        if norm == MatrixNorm::LeastSingular {
            return least.div(&greatest);
        }
        least.eq_scalar(0)?.where_(&least.full_like(f64::INFINITY)?, &greatest.div(&least)?)
    }
}
