//! Norms of matrices, and condition numbers.

use crate::{Error, Result, Tensor, shape::Dims};

/// A norm of matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatrixNorm {
    /// The square root of the sum of squares.
    #[default]
    Frobenius,
    /// The sum of the singular values.
    Nuclear,
    /// The greatest singular value: the 2-norm.
    Spectral,
    /// The least singular value: order -2.
    LeastSingular,
    /// The greatest sum of a column's magnitudes: the 1-norm.
    Columns,
    /// The least sum of a column's magnitudes: order -1.
    LeastColumn,
    /// The greatest sum of a row's magnitudes: the infinity norm.
    Rows,
    /// The least sum of a row's magnitudes: order -infinity.
    LeastRow,
}

impl Tensor {
    /// A norm of the matrices `[.., M, N]` in the last two dimensions, which are removed, or kept with size 1 if `keepdim`.
    /// Dtypes are those of [`Tensor::norm`]; those of the singular values for norms of these.
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two dimensions, or an extreme of no sums or singular values; those of
    /// [`Tensor::svdvals`] for the norms of singular values.
    pub fn matrix_norm(&self, norm: MatrixNorm, keepdim: bool) -> Result<Tensor> {
        if self.rank() < 2 {
            let hint = "a matrix has two dimensions; see norm for vectors";
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

    /// The condition numbers of matrices `[.., M, N]`. For the spectral norm it is the greatest singular value divided by the
    /// least, infinite where that is 0; for [`MatrixNorm::LeastSingular`] the least divided by the greatest; for the others
    /// the norm of a square matrix times that of its inverse.
    ///
    /// # Errors
    /// Those of [`Tensor::matrix_norm`], and of [`Tensor::inv`].
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
