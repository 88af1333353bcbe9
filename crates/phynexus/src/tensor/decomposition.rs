//! Matrix decompositions and functions based on them. The last two dimensions are matrices, the others are batch
//! dimensions.
//!
//! Inputs are `float32` or `float64`. Results are computed on the CPU in `float64` and rounded to the dtype. A singular
//! matrix is detected when the result is computed: [`Error::LinearAlgebra`]. For matrices that contain NaN or infinity,
//! QR, eigenvalues, singular values and pseudoinverses are NaN.

use crate::{
    DType, Error, Result, Tensor,
    linalg::Decomposition,
    shape::{Dims, broadcast},
};

impl Tensor {
    /// The determinants of square matrices.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the matrices are square; [`Error::DType`] unless the dtype is `float32` or `float64`.
    pub fn det(&self) -> Result<Tensor> {
        self.square_matrices("det")?;
        if self.is_empty() {
            // The determinant of a 0 x 0 matrix is 1.
            return self.sum(&[-2, -1], false)?.add_scalar(1.0);
        }
        Decomposition::Determinant.record_one(&[self])
    }

    /// The sign and the logarithm of the absolute value of each determinant. For a singular matrix these are 0 and
    /// -infinity.
    ///
    /// # Errors
    /// As [`Tensor::det`].
    pub fn slogdet(&self) -> Result<(Tensor, Tensor)> {
        self.square_matrices("slogdet")?;
        if self.is_empty() {
            let logarithm = self.sum(&[-2, -1], false)?;
            return Ok((logarithm.ones_like()?, logarithm));
        }
        pair(Decomposition::LogDeterminant.record(&[self])?)
    }

    /// The inverses of square matrices.
    ///
    /// # Errors
    /// As [`Tensor::det`]; [`Error::LinearAlgebra`] for a singular matrix, when the result is computed.
    pub fn inv(&self) -> Result<Tensor> {
        self.square_matrices("inv")?;
        if self.is_empty() {
            return Ok(self.clone());
        }
        Decomposition::Inverse.record_one(&[self])
    }

    /// Solves `self X = other` for X; batch dimensions are broadcast. If `other` is a vector, so is X; otherwise the
    /// last two dimensions of `other` are matrices.
    ///
    /// # Errors
    /// As [`Tensor::inv`]; [`Error::Shape`] unless `other` has as many rows as this tensor.
    pub fn solve(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = super::operands::promote2(self, other)?;
        let n = a.square_matrices("solve")?;
        if b.rank() == 1 {
            return a.solve(&b.unsqueeze(-1)?)?.squeeze(-1);
        }
        let [b_batch @ .., rows, columns] = b.shape() else {
            let hint = "the right-hand side must be a vector or matrices";
            return Err(Error::shape("solve", &[self.shape(), other.shape()], hint));
        };
        if *rows != n {
            let hint = format!("the right-hand side must have {n} rows");
            return Err(Error::shape("solve", &[self.shape(), other.shape()], hint));
        }
        let batch = broadcast("solve", a.batch(), b_batch)?;
        let of = |columns: usize| batch.iter().copied().chain([n, columns]).collect::<Dims>();
        let (a, b) = (a.stretched(&of(n))?, b.stretched(&of(*columns))?);
        if a.is_empty() || b.is_empty() {
            return Ok(b);
        }
        Decomposition::Solution.record_one(&[&a, &b])
    }

    /// The Cholesky factor of symmetric positive definite matrices: lower triangular L with `self = L L^T`, or its
    /// transpose if `upper`. Only the lower triangle of the input is read.
    ///
    /// # Errors
    /// As [`Tensor::det`]; [`Error::LinearAlgebra`] for a matrix that is not positive definite, when the result is
    /// computed.
    pub fn cholesky(&self, upper: bool) -> Result<Tensor> {
        self.square_matrices("cholesky")?;
        if self.is_empty() {
            return Ok(self.clone());
        }
        let l = Decomposition::Cholesky.record_one(&[self])?;
        if upper { l.transpose(-2, -1) } else { Ok(l) }
    }

    /// The QR decomposition `self = Q R` of `[.., M, N]`: Q has orthonormal columns and R is upper triangular. Q is
    /// `[.., M, min(M, N)]`, or `[.., M, M]` if `complete`.
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two dimensions; [`Error::DType`] unless the dtype is `float32` or `float64`.
    pub fn qr(&self, complete: bool) -> Result<(Tensor, Tensor)> {
        let (m, n) = self.matrices("qr")?;
        if self.is_empty() {
            let inner = if complete { m } else { m.min(n) };
            return Ok((self.identity(m, inner)?, self.nothing(&[inner, n])?));
        }
        let kind = if complete { Decomposition::CompleteQr } else { Decomposition::Qr };
        pair(kind.record(&[self])?)
    }

    /// The eigenvalues of symmetric matrices in ascending order, and the eigenvectors as columns. Only the lower
    /// triangle of the input is read.
    ///
    /// # Errors
    /// As [`Tensor::det`].
    pub fn eigh(&self) -> Result<(Tensor, Tensor)> {
        let n = self.square_matrices("eigh")?;
        if self.is_empty() {
            return Ok((self.nothing(&[n])?, self.nothing(&[n, n])?));
        }
        pair(Decomposition::Eigen.record(&[self])?)
    }

    /// The eigenvalues of symmetric matrices in ascending order.
    ///
    /// # Errors
    /// As [`Tensor::det`].
    pub fn eigvalsh(&self) -> Result<Tensor> {
        Ok(self.eigh()?.0)
    }

    /// The singular value decomposition `self = U diag(S) Vh` of `[.., M, N]`. The singular values S are in descending
    /// order; U has orthonormal columns and Vh orthonormal rows, min(M, N) of them. If `full`, U and Vh are square.
    ///
    /// # Errors
    /// As [`Tensor::qr`].
    pub fn svd(&self, full: bool) -> Result<(Tensor, Tensor, Tensor)> {
        let (m, n) = self.matrices("svd")?;
        let least = m.min(n);
        if self.is_empty() {
            let (left, right) = if full { (m, n) } else { (least, least) };
            return Ok((self.identity(m, left)?, self.nothing(&[least])?, self.identity(right, n)?));
        }
        let kind = if full { Decomposition::FullSvd } else { Decomposition::Svd };
        let parts: Result<[Tensor; 3], _> = kind.record(&[self])?.try_into();
        let [u, s, vh] = parts.map_err(|_| Error::internal("svd", "expected three parts"))?;
        Ok((u, s, vh))
    }

    /// The singular values in descending order.
    ///
    /// # Errors
    /// As [`Tensor::qr`].
    pub fn svdvals(&self) -> Result<Tensor> {
        Ok(self.svd(false)?.1)
    }

    /// The Moore-Penrose pseudoinverse of `[.., M, N]`. Singular values up to `tolerance` times the greatest count as
    /// zero. `tolerance` is a scalar or has one element per matrix; the default is max(M, N) times the dtype's machine
    /// epsilon.
    ///
    /// # Errors
    /// As [`Tensor::qr`]; [`Error::Shape`] if the tolerance cannot be broadcast to the batch.
    pub fn pinv(&self, tolerance: Option<&Tensor>) -> Result<Tensor> {
        let (m, n) = self.matrices("pinv")?;
        let tolerance = self.tolerance(tolerance)?.broadcast_to(self.batch())?;
        if self.is_empty() {
            return self.nothing(&[n, m]);
        }
        Decomposition::PseudoInverse.record_one(&[self, &tolerance])
    }

    /// The number of singular values greater than `tolerance` times the greatest, as `int64`. `tolerance` is as for
    /// [`Tensor::pinv`].
    ///
    /// # Errors
    /// As [`Tensor::pinv`].
    pub fn matrix_rank(&self, tolerance: Option<&Tensor>) -> Result<Tensor> {
        self.matrices("matrix_rank")?;
        let tolerance = self.tolerance(tolerance)?.broadcast_to(self.batch())?;
        if self.is_empty() {
            return Tensor::zeros(self.batch(), DType::I64, self.device());
        }
        let values = self.svdvals()?;
        let limit = values.max(&[-1], true)?.mul(&tolerance.unsqueeze(-1)?)?;
        values.gt(&limit)?.sum(&[-1], false)
    }

    /// The fraction of the greatest singular value that counts as zero.
    fn tolerance(&self, given: Option<&Tensor>) -> Result<Tensor> {
        if let Some(given) = given {
            return given.to_dtype(self.dtype())?.detach();
        }
        let [.., m, n] = self.shape() else {
            return Err(Error::internal("tolerance", "expected matrices"));
        };
        let epsilon = if self.dtype() == DType::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
        Tensor::full(&[], epsilon * *m.max(n) as f64, self.dtype(), self.device())
    }

    /// The sizes of matrices that can be decomposed.
    fn matrices(&self, op: &'static str) -> Result<(usize, usize)> {
        let [.., m, n] = self.shape() else {
            return Err(Error::shape(op, &[self.shape()], "expected matrices (.., M, N)"));
        };
        if !matches!(self.dtype(), DType::F32 | DType::F64) {
            let hint = "expected float32 or float64: convert with .to_dtype(float32)";
            return Err(Error::dtype(op, &[self.dtype()], hint));
        }
        Ok((*m, *n))
    }

    /// The size of square matrices that can be decomposed.
    fn square_matrices(&self, op: &'static str) -> Result<usize> {
        let (m, n) = self.matrices(op)?;
        if m != n {
            return Err(Error::shape(op, &[self.shape()], "the matrices must be square"));
        }
        Ok(n)
    }

    /// The batch dimensions.
    fn batch(&self) -> &[usize] {
        &self.shape()[..self.rank().saturating_sub(2)]
    }

    /// Identity matrices with this tensor's batch dimensions.
    fn identity(&self, rows: usize, columns: usize) -> Result<Tensor> {
        let shape: Dims = self.batch().iter().copied().chain([rows, columns]).collect();
        Tensor::eye(rows, columns, self.dtype(), self.device())?.stretched(&shape)
    }

    /// An empty result with this tensor's batch dimensions.
    fn nothing(&self, extents: &[usize]) -> Result<Tensor> {
        let shape: Dims = self.batch().iter().chain(extents).copied().collect();
        Tensor::zeros(&shape, self.dtype(), self.device())
    }
}

fn pair(parts: Vec<Tensor>) -> Result<(Tensor, Tensor)> {
    let parts: Result<[Tensor; 2], _> = parts.try_into();
    let [first, second] = parts.map_err(|_| Error::internal("linalg", "expected two parts"))?;
    Ok((first, second))
}
