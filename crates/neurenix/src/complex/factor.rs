//! Decompositions by Householder's reflections. Eigenvalues and singular values are those of real tridiagonal and
//! bidiagonal matrices, to which unitary ones transform the complex matrices.

use phynexus::{Result, Tensor};

use super::{Complex, real::select_number};

/// The reflection `I - factor * v v^H` (..., M, M), which maps a vector to a multiple of the first axis.
struct Reflection {
    /// (..., M, 1).
    vector: Complex,
    /// (..., 1, 1).
    factor: Tensor,
}

impl Reflection {
    /// The reflection for vectors (..., M, 1). It is the identity for a vector of zeros.
    fn of(vector: &Complex) -> Result<Reflection> {
        let first = vector.narrow(-2, 0, 1)?;
        // The greatest magnitude scales the vector, so that its square neither overflows nor underflows.
        let greatest = vector.abs()?.detach()?.max(&[-2], true)?;
        let greatest = select_number(&greatest.eq_scalar(0)?, 1.0, &greatest)?;
        let (scaled, first) = (vector.div_real(&greatest)?, first.div_real(&greatest)?);
        let (a, b) = scaled.parts()?;
        let square = a.square()?.add(&b.square()?)?.sum(&[-2], true)?;
        let zero = square.eq_scalar(0)?;
        let square = select_number(&zero, 1.0, &square)?;
        let length = square.sqrt()?;
        let step = phase(&first)?.mul_real(&length)?;
        let rest = scaled.narrow(-2, 1, vector.shape()[vector.rank() - 2] - 1)?;
        let vector = Complex::cat(&[&first.add(&step)?, &rest], -2)?;
        let factor = square.add(&first.abs()?.mul(&length)?)?.reciprocal()?;
        Ok(Reflection { vector, factor: select_number(&zero, 0.0, &factor)? })
    }

    /// The reflected columns of matrices.
    fn columns(&self, matrix: &Complex) -> Result<Complex> {
        let weights = self.vector.adjoint()?.matmul(matrix)?;
        matrix.sub(&self.vector.mul_real(&self.factor)?.matmul(&weights)?)
    }

    /// The reflected rows of matrices.
    fn rows(&self, matrix: &Complex) -> Result<Complex> {
        let weights = matrix.matmul(&self.vector)?;
        matrix.sub(&weights.matmul(&self.vector.mul_real(&self.factor)?.adjoint()?)?)
    }
}

/// `z / abs(z)`, and 1 for 0.
fn phase(z: &Complex) -> Result<Complex> {
    let (a, b) = z.sign()?.parts()?;
    let zero = z.is_nonzero()?.logical_not()?;
    Complex::from_parts(&select_number(&zero, 1.0, &a)?, &b)
}

/// Matrices whose rows and columns from `start` on are replaced.
fn replace(matrix: &Complex, start: [usize; 2], part: &Complex) -> Result<Complex> {
    let columns = part.shape()[part.rank() - 1];
    let rows = part.shape()[part.rank() - 2];
    let mut part = part.clone();
    if start[1] > 0 {
        let left = matrix.narrow(-2, start[0], rows)?.narrow(-1, 0, start[1])?;
        part = Complex::cat(&[&left, &part], -1)?;
    }
    debug_assert_eq!(start[1] + columns, matrix.shape()[matrix.rank() - 1]);
    if start[0] > 0 {
        part = Complex::cat(&[&matrix.narrow(-2, 0, start[0])?, &part], -2)?;
    }
    Ok(part)
}

/// The rows and columns of matrices from `start` on.
fn from(matrix: &Complex, start: [usize; 2]) -> Result<Complex> {
    let [.., rows, columns] = matrix.shape() else { return Ok(matrix.clone()) };
    matrix.narrow(-2, start[0], rows - start[0])?.narrow(-1, start[1], columns - start[1])
}

impl Complex {
    fn sizes(&self, op: &'static str) -> Result<(usize, usize)> {
        match self.shape() {
            [.., rows, columns] => Ok((*rows, *columns)),
            shape => Err(phynexus::Error::shape(op, &[shape], "expected matrices")),
        }
    }

    /// The identity (..., `size`, `columns`) beside these matrices.
    fn identity(&self, size: usize, columns: usize) -> Result<Complex> {
        let one = Complex::from_real(&Tensor::eye(size, columns, self.component(), self.pair.device())?)?;
        let mut shape = self.shape()[..self.rank() - 2].to_vec();
        shape.extend([size, columns]);
        one.broadcast_to(&shape)
    }

    /// The product of reflections, each of which acts on the axes from its number on, and the first `columns` of it.
    fn unitary(&self, reflections: &[(usize, Reflection)], size: usize, columns: usize) -> Result<Complex> {
        let mut product = self.identity(size, columns)?;
        for (start, reflection) in reflections.iter().rev() {
            let reflected = reflection.columns(&from(&product, [*start, 0])?)?;
            product = replace(&product, [*start, 0], &reflected)?;
        }
        Ok(product)
    }

    fn triangle(&self) -> Result<(Complex, Vec<(usize, Reflection)>)> {
        let (rows, columns) = self.sizes("qr")?;
        let (mut matrix, mut reflections) = (self.clone(), Vec::new());
        for start in 0..columns.min(rows.saturating_sub(1)) {
            let part = from(&matrix, [start, start])?;
            let reflection = Reflection::of(&part.narrow(-1, 0, 1)?)?;
            matrix = replace(&matrix, [start, start], &reflection.columns(&part)?)?;
            reflections.push((start, reflection));
        }
        Ok((matrix, reflections))
    }

    /// The diagonal of the triangular factor, and the number of reflections.
    pub(super) fn triangle_diagonal(&self) -> Result<(Complex, usize)> {
        let (matrix, reflections) = self.triangle()?;
        Ok((matrix.diagonal_of(0)?, reflections.len()))
    }

    /// A diagonal of matrices.
    fn diagonal_of(&self, offset: i64) -> Result<Complex> {
        let (a, b) = self.parts()?;
        Complex::from_parts(&a.diagonal(offset, -2, -1)?, &b.diagonal(offset, -2, -1)?)
    }

    /// Q with orthonormal columns and upper triangular R with `self = Q R`. Q is (..., M, min(M, N)), or square if
    /// `complete`.
    pub fn qr(&self, complete: bool) -> Result<(Complex, Complex)> {
        let (rows, columns) = self.sizes("qr")?;
        let kept = if complete { rows } else { rows.min(columns) };
        let (matrix, reflections) = self.triangle()?;
        let unitary = self.unitary(&reflections, rows, kept)?;
        let (a, b) = matrix.narrow(-2, 0, kept)?.parts()?;
        Ok((unitary, Complex::from_parts(&a.triu(0)?, &b.triu(0)?)?))
    }

    /// The eigenvalues (..., N) of Hermitian matrices, ascending, and their eigenvectors, the columns of (..., N, N).
    /// The lower triangle is read.
    pub fn eigh(&self) -> Result<(Tensor, Complex)> {
        let size = self.square_matrices("eigh")?;
        let (mut matrix, mut reflections) = (self.hermitian()?, Vec::new());
        for start in 0..size.saturating_sub(2) {
            let below = from(&matrix, [start + 1, start])?.narrow(-1, 0, 1)?;
            let reflection = Reflection::of(&below)?;
            let left = reflection.columns(&from(&matrix, [start + 1, 0])?)?;
            matrix = replace(&matrix, [start + 1, 0], &left)?;
            let right = reflection.rows(&from(&matrix, [0, start + 1])?)?;
            matrix = replace(&matrix, [0, start + 1], &right)?;
            reflections.push((start + 1, reflection));
        }
        let unitary = self.unitary(&reflections, size, size)?;
        let diagonal = matrix.diagonal_of(0)?.real()?.diag_embed(0, -2, -1)?;
        if size < 2 {
            return Ok((diagonal.diagonal(0, -2, -1)?, unitary));
        }
        let beside = matrix.diagonal_of(-1)?;
        let first = beside.narrow(-1, 0, 1)?;
        let first = Complex::from_real(&first.real()?.ones_like()?)?;
        let phases = Complex::cat(&[&first, &phase(&beside)?], -1)?.cumprod(-1)?;
        let beside = beside.abs()?;
        let real = diagonal.add(&beside.diag_embed(-1, -2, -1)?)?.add(&beside.diag_embed(1, -2, -1)?)?;
        let (values, vectors) = real.eigh()?;
        let shape = [phases.shape(), &[1]].concat();
        let vectors = phases.reshape(&shape)?.mul_real(&vectors)?;
        Ok((values, unitary.matmul(&vectors)?))
    }

    /// U, the singular values (..., K), descending, and V^H with `self = U diag(S) V^H`. U and V^H are square if
    /// `full`, else (..., M, K) and (..., K, N).
    pub fn svd(&self, full: bool) -> Result<(Complex, Tensor, Complex)> {
        let (rows, columns) = self.sizes("svd")?;
        if rows < columns {
            let (left, values, right) = self.adjoint()?.svd(full)?;
            return Ok((right.adjoint()?, values, left.adjoint()?));
        }
        let (mut matrix, mut lefts, mut rights) = (self.clone(), Vec::new(), Vec::new());
        for start in 0..columns {
            if start + 1 < rows {
                let part = from(&matrix, [start, start])?;
                let reflection = Reflection::of(&part.narrow(-1, 0, 1)?)?;
                matrix = replace(&matrix, [start, start], &reflection.columns(&part)?)?;
                lefts.push((start, reflection));
            }
            if start + 2 < columns {
                let part = from(&matrix, [start, start + 1])?;
                let reflection = Reflection::of(&part.narrow(-2, 0, 1)?.adjoint()?)?;
                matrix = replace(&matrix, [start, start + 1], &reflection.rows(&part)?)?;
                rights.push((start + 1, reflection));
            }
        }
        let kept = if full { rows } else { columns };
        let left = self.unitary(&lefts, rows, kept)?;
        let right = self.unitary(&rights, columns, columns)?;
        let diagonal = matrix.diagonal_of(0)?;
        let (left_phases, right_phases) = bidiagonal_phases(&diagonal, &matrix, columns)?;
        let mut real = diagonal.abs()?.diag_embed(0, -2, -1)?;
        if columns > 1 {
            real = real.add(&matrix.diagonal_of(1)?.abs()?.diag_embed(1, -2, -1)?)?;
        }
        let (u, values, vh) = real.svd(false)?;
        let u = left_phases.mul_real(&u)?;
        let mut found = left.narrow(-1, 0, columns)?.matmul(&u)?;
        if kept > columns {
            found = Complex::cat(&[&found, &left.narrow(-1, columns, kept - columns)?], -1)?;
        }
        let right = right.mul(&right_phases.transpose(-2, -1)?)?.adjoint()?;
        Ok((found, values, Complex::from_real(&vh)?.matmul(&right)?))
    }
}

/// The phases (..., N, 1) of rows and of columns that make a bidiagonal matrix real.
fn bidiagonal_phases(diagonal: &Complex, matrix: &Complex, columns: usize) -> Result<(Complex, Complex)> {
    let on = phase(diagonal)?;
    let shape = [diagonal.shape(), &[1]].concat();
    let right = match columns {
        0 | 1 => Complex::from_real(&diagonal.real()?.ones_like()?)?,
        _ => {
            let beside = phase(&matrix.diagonal_of(1)?)?.conj()?;
            let steps = on.narrow(-1, 0, columns - 1)?.mul(&beside)?;
            let first = Complex::from_real(&diagonal.narrow(-1, 0, 1)?.real()?.ones_like()?)?;
            Complex::cat(&[&first, &steps], -1)?.cumprod(-1)?
        }
    };
    Ok((on.mul(&right)?.reshape(&shape)?, right.reshape(&shape)?))
}
