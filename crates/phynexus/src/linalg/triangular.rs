//! Triangular factors: LU with partial pivoting, Cholesky, and functions based on them. Golub and Van Loan, Matrix
//! Computations, 4th edition: algorithms 3.4.1 and 4.2.1.

use super::{Matrix, failure};
use crate::{Result, interrupt};

/// `P A = L U`: L is below the diagonal and has a unit diagonal; U is on and above it.
struct Lu {
    factors: Matrix,
    /// Row i of `P A` is row `order[i]` of A.
    order: Vec<usize>,
    /// True if the determinant of P is -1.
    odd: bool,
}

fn factor(a: &Matrix) -> Result<Lu> {
    let n = a.rows;
    let (mut factors, mut order, mut odd) = (a.clone(), (0..n).collect::<Vec<_>>(), false);
    for k in 0..n {
        interrupt::check()?;
        let mut pivot = k;
        for i in k + 1..n {
            if factors[(i, k)].abs() > factors[(pivot, k)].abs() {
                pivot = i;
            }
        }
        if pivot != k {
            factors.swap_rows(k, pivot);
            order.swap(k, pivot);
            odd = !odd;
        }
        let diagonal = factors[(k, k)];
        if diagonal == 0.0 {
            continue;
        }
        for i in k + 1..n {
            let (above, row) = factors.two_rows(k, i);
            let multiple = row[k] / diagonal;
            row[k] = multiple;
            row[k + 1..].iter_mut().zip(&above[k + 1..]).for_each(|(x, y)| *x -= multiple * y);
        }
    }
    Ok(Lu { factors, order, odd })
}

impl Lu {
    fn diagonal(&self) -> impl Iterator<Item = f64> {
        (0..self.factors.rows).map(|i| self.factors[(i, i)])
    }

    /// Solves `A X = B` for X.
    fn solve(&self, op: &'static str, b: &Matrix) -> Result<Matrix> {
        if self.diagonal().any(|pivot| pivot == 0.0) {
            return Err(failure(op, "a matrix is singular: it has no inverse"));
        }
        let n = b.rows;
        let mut x = b.clone();
        for (i, &from) in self.order.iter().enumerate() {
            x.row_mut(i).copy_from_slice(b.row(from));
        }
        for i in 0..n {
            interrupt::check()?;
            for j in 0..i {
                let (known, row) = x.two_rows(j, i);
                subtract(row, known, self.factors[(i, j)]);
            }
        }
        for i in (0..n).rev() {
            interrupt::check()?;
            for j in i + 1..n {
                let (row, known) = x.two_rows(i, j);
                subtract(row, known, self.factors[(i, j)]);
            }
            let diagonal = self.factors[(i, i)];
            x.row_mut(i).iter_mut().for_each(|value| *value /= diagonal);
        }
        Ok(x)
    }
}

fn subtract(row: &mut [f64], other: &[f64], multiple: f64) {
    row.iter_mut().zip(other).for_each(|(x, y)| *x -= multiple * y);
}

pub(super) fn determinant(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let lu = factor(&inputs[0])?;
    let product: f64 = lu.diagonal().product();
    Ok(vec![vec![if lu.odd { -product } else { product }]])
}

/// The sign of the determinant, and the logarithm of its absolute value.
pub(super) fn log_determinant(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let lu = factor(&inputs[0])?;
    let sign_of = |pivot: f64| if pivot == 0.0 { 0.0 } else { pivot.signum() };
    let sign: f64 = lu.diagonal().map(sign_of).product();
    let logarithm = lu.diagonal().map(|pivot| pivot.abs().ln()).sum();
    Ok(vec![vec![if lu.odd { -sign } else { sign }], vec![logarithm]])
}

/// The cofactors of a matrix that is far from singular; `None` for others, for which the inverse loses accuracy.
pub(super) fn regular_cofactors(a: &Matrix) -> Result<Option<Matrix>> {
    let lu = factor(a)?;
    let (least, greatest) = lu
        .diagonal()
        .fold((f64::INFINITY, 0.0f64), |(least, greatest), p| (least.min(p.abs()), greatest.max(p.abs())));
    let product: f64 = lu.diagonal().product();
    // Nor if the determinant overflows or underflows: products without one factor may still be representable.
    if !(least > 1e-6 * greatest && product.is_normal()) {
        return Ok(None);
    }
    let determinant = if lu.odd { -product } else { product };
    let mut cofactors = lu.solve("cofactors", &Matrix::identity(a.rows, a.rows))?.transposed();
    cofactors.values.iter_mut().for_each(|value| *value *= determinant);
    Ok(Some(cofactors))
}

pub(super) fn inverse(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let n = inputs[0].rows;
    Ok(vec![factor(&inputs[0])?.solve("inv", &Matrix::identity(n, n))?.values])
}

pub(super) fn solution(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    Ok(vec![factor(&inputs[0])?.solve("solve", &inputs[1])?.values])
}

/// L of `A = L L^T`. Only the lower triangle of A is read.
pub(super) fn cholesky(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let a = &inputs[0];
    let mut l = Matrix::filled(a.rows, a.rows, 0.0);
    for i in 0..a.rows {
        interrupt::check()?;
        for j in 0..=i {
            let products: f64 = l.row(i)[..j].iter().zip(&l.row(j)[..j]).map(|(x, y)| x * y).sum();
            let rest = a[(i, j)] - products;
            l[(i, j)] = if j < i {
                rest / l[(j, j)]
            } else if rest > 0.0 {
                rest.sqrt()
            } else {
                return Err(failure("cholesky", "a matrix is not positive definite"));
            };
        }
    }
    Ok(vec![l.values])
}
