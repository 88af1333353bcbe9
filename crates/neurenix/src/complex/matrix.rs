//! Products of matrices, and what follows from the real matrix with which a complex one is multiplied as pairs.

use phynexus::{Error, Result, Tensor};

use super::{Complex, real::select_number};

/// The sign and the logarithm of the magnitude of determinants.
pub struct LogDeterminant {
    /// The determinants divided by their magnitudes; 0 for a singular matrix.
    pub sign: Complex,
    /// The logarithms of the magnitudes; minus infinity for a singular matrix.
    pub logarithm: Tensor,
}

impl Complex {
    /// The product of matrices, batches of matrices, and vectors, as [`Tensor::matmul`]. It is one real product: rows of
    /// pairs, times a matrix with a block of two by two for each number.
    pub fn matmul(&self, other: &Complex) -> Result<Complex> {
        if self.rank() == 0 || other.rank() == 0 {
            let hint = "expected vectors or matrices: use a multiplication for single numbers";
            return Err(Error::shape("matmul", &[self.shape(), other.shape()], hint));
        }
        let dtype = self.component().promote(other.component());
        let (left, right) = (self.to_component(dtype)?, other.to_component(dtype)?);
        let left = if self.rank() == 1 { left.reshape(&[1, self.shape()[0]])? } else { left };
        let right = if other.rank() == 1 { right.reshape(&[other.shape()[0], 1])? } else { right };
        if left.shape()[left.rank() - 1] != right.shape()[right.rank() - 2] {
            let hint = "the last axis of the first and the rows of the second must have one size";
            return Err(Error::shape("matmul", &[self.shape(), other.shape()], hint));
        }
        let product = left.flat_rows()?.matmul(&right.embedded()?)?;
        let mut shape = product.shape().to_vec();
        let columns = shape.pop().unwrap_or_default() / 2;
        let rows = shape.pop().unwrap_or_default();
        shape.extend((self.rank() > 1).then_some(rows));
        shape.extend((other.rank() > 1).then_some(columns));
        shape.push(2);
        Ok(Complex { pair: product.reshape(&shape)? })
    }

    /// The sum of `conj(self) * other` along an axis.
    pub fn vecdot(&self, other: &Complex, axis: i64) -> Result<Complex> {
        self.conj()?.mul(other)?.sum(&[axis], false)
    }

    /// The conjugate transpose of each matrix.
    pub fn adjoint(&self) -> Result<Complex> {
        self.transpose(-2, -1)?.conj()
    }

    /// Matrices (..., M, N) as real ones (..., M, 2N), whose rows hold pairs.
    fn flat_rows(&self) -> Result<Tensor> {
        let mut shape = self.shape().to_vec();
        if let Some(columns) = shape.last_mut() {
            *columns *= 2;
        }
        self.pair.reshape(&shape)
    }

    /// The real matrices (..., 2M, 2N) that multiply rows of pairs as these (..., M, N) multiply rows of numbers.
    pub(super) fn embedded(&self) -> Result<Tensor> {
        let blocks = Tensor::stack(&[&self.pair, &self.times_i()?.pair], -3)?;
        let mut shape = self.shape().to_vec();
        for size in shape.iter_mut().rev().take(2) {
            *size *= 2;
        }
        blocks.reshape(&shape)
    }

    /// The complex matrices of real ones that [`Complex::embedded`] made.
    fn extracted(real: &Tensor) -> Result<Complex> {
        let mut shape = real.shape().to_vec();
        let columns = shape.pop().unwrap_or_default() / 2;
        let rows = shape.pop().unwrap_or_default() / 2;
        shape.extend([rows, 2, columns, 2]);
        Complex::from_pair(&real.reshape(&shape)?.narrow(-3, 0, 1)?.squeeze(-3)?)
    }

    pub(super) fn square_matrices(&self, op: &'static str) -> Result<usize> {
        match self.shape() {
            [.., rows, columns] if rows == columns => Ok(*rows),
            shape => Err(Error::shape(op, &[shape], "expected square matrices")),
        }
    }

    /// The inverses of square matrices.
    ///
    /// # Errors
    /// As [`Tensor::inv`].
    pub fn inv(&self) -> Result<Complex> {
        self.square_matrices("inv")?;
        Complex::extracted(&self.embedded()?.inv()?)
    }

    /// The solutions X of `self X = other`, as [`Tensor::solve`].
    pub fn solve(&self, other: &Complex) -> Result<Complex> {
        self.square_matrices("solve")?;
        let dtype = self.component().promote(other.component());
        let (matrix, right) = (self.to_component(dtype)?, other.to_component(dtype)?);
        let is_vector = right.rank() == 1;
        let right = if is_vector { right.reshape(&[other.shape()[0], 1])? } else { right };
        // Rows of pairs are multiplied from the right, so the equation is transposed.
        let matrix = matrix.transpose(-2, -1)?.embedded()?.transpose(-2, -1)?;
        let rows = right.transpose(-2, -1)?.flat_rows()?;
        let found = matrix.solve(&rows.transpose(-2, -1)?)?.transpose(-2, -1)?;
        let mut shape = found.shape().to_vec();
        if let Some(size) = shape.last_mut() {
            *size /= 2;
        }
        shape.push(2);
        let found = Complex::from_pair(&found.reshape(&shape)?)?.transpose(-2, -1)?;
        if !is_vector {
            return Ok(found);
        }
        let shape = found.shape();
        found.reshape(&shape[..shape.len() - 1])
    }

    /// The lower triangular L with `self = L L^H` of Hermitian positive definite matrices, of which the lower triangle
    /// is read. The real matrix of L is the factor of the real matrix.
    ///
    /// # Errors
    /// As [`Tensor::cholesky`].
    pub fn cholesky(&self) -> Result<Complex> {
        self.square_matrices("cholesky")?;
        // Rows of pairs are multiplied from the right: the embedding of the transpose has the transposed blocks.
        let lower = self.hermitian()?.conj()?.embedded()?.cholesky(false)?;
        Complex::extracted(&lower)?.conj()
    }

    /// Hermitian matrices with this lower triangle.
    pub(super) fn hermitian(&self) -> Result<Complex> {
        let (a, b) = self.parts()?;
        let (below_a, below_b) = (a.tril(-1)?, b.tril(-1)?);
        let real = a.tril(0)?.add(&below_a.transpose(-2, -1)?)?;
        Complex::from_parts(&real, &below_b.sub(&below_b.transpose(-2, -1)?)?)
    }

    /// The determinants of square matrices, from a QR decomposition.
    pub fn det(&self) -> Result<Complex> {
        let size = self.square_matrices("det")?;
        self.reflected_diagonal(size)?.prod(&[-1], false)
    }

    /// The signs of determinants, and the logarithms of their magnitudes.
    pub fn slogdet(&self) -> Result<LogDeterminant> {
        let size = self.square_matrices("slogdet")?;
        let diagonal = self.reflected_diagonal(size)?;
        let length = diagonal.abs()?;
        let logarithm = length.log()?.sum(&[-1], false)?;
        Ok(LogDeterminant { sign: diagonal.sign()?.prod(&[-1], false)?, logarithm })
    }

    /// Numbers whose product is the determinant.
    fn reflected_diagonal(&self, size: usize) -> Result<Complex> {
        let (diagonal, reflections) = self.triangle_diagonal()?;
        debug_assert!(reflections < size.max(1));
        // Each reflection has the determinant -1.
        let mut signs = vec![1.0f32; size];
        signs.iter_mut().take(reflections).for_each(|sign| *sign = -1.0);
        let signs = Tensor::from_slice(&signs, &[size], self.pair.device())?;
        diagonal.mul_real(&signs.to_dtype(self.component())?)
    }

    /// The pseudoinverses. Singular values up to `tolerance` times the greatest count as zeros.
    pub fn pinv(&self, tolerance: &Tensor) -> Result<Complex> {
        let (left, values, right) = self.svd(false)?;
        if values.is_empty() {
            return self.adjoint()?.mul_scalar(0.0);
        }
        let greatest = values.max(&[-1], true)?;
        let small = values.le(&greatest.mul(&tolerance.to_dtype(values.dtype())?.unsqueeze(-1)?)?)?;
        let inverse = select_number(&small, 0.0, &select_number(&small, 1.0, &values)?.reciprocal()?)?;
        right.adjoint()?.mul_real(&inverse.unsqueeze(-2)?)?.matmul(&left.adjoint()?)
    }
}
