//! Eigenvalues of symmetric matrices and singular values by Jacobi rotations. Two-sided rotations diagonalise a
//! symmetric matrix (Golub and Van Loan, Matrix Computations, 4th edition, 8.5). One-sided rotations orthogonalise the
//! columns of a matrix (Hestenes 1958; Drmač and Veselić 2008, with a preceding QR factorisation).
//!
//! These methods are short and accurate, but several times slower than reduction to a tridiagonal or bidiagonal matrix.

use super::{Matrix, failure, reflections, triangular};
use crate::{Result, interrupt};

/// Rotations of all pairs converge quadratically; about ten sweeps suffice for any finite matrix.
const SWEEPS: usize = 60;

/// Cosine, sine and tangent of the angle of at most 45 degrees with `(1 - t^2) / (2 t) = cotangent`.
fn rotation(cotangent: f64) -> (f64, f64, f64) {
    let tangent = 1f64.copysign(cotangent) / (cotangent.abs() + cotangent.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    (cosine, tangent * cosine, tangent)
}

/// Replaces `x` and `y` by `c x - s y` and `s x + c y`.
fn rotate((x, y): (&mut [f64], &mut [f64]), cosine: f64, sine: f64) {
    for (x, y) in x.iter_mut().zip(y) {
        (*x, *y) = (cosine * *x - sine * *y, sine * *x + cosine * *y);
    }
}

/// Eigenvalues in ascending order, and eigenvectors as columns. Only the lower triangle of A is read.
pub(super) fn eigen(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let n = inputs[0].rows;
    let mut a = inputs[0].clone();
    for i in 0..n {
        for j in i + 1..n {
            a[(i, j)] = a[(j, i)];
        }
    }
    if !a.is_finite() {
        return Ok(vec![vec![f64::NAN; n], Matrix::filled(n, n, f64::NAN).values]);
    }
    let scale = a.magnitude();
    if scale > 0.0 {
        a.values.iter_mut().for_each(|value| *value /= scale);
    }
    // The rows become the eigenvectors.
    let mut vectors = Matrix::identity(n, n);
    let length = a.values.iter().map(|x| x * x).sum::<f64>().sqrt();
    let negligible = f64::EPSILON * length / n as f64;
    until_settled("eigh", || {
        let mut rotated = false;
        for p in 0..n {
            interrupt::check()?;
            for q in p + 1..n {
                let off = a[(p, q)];
                if off.abs() <= negligible {
                    continue;
                }
                rotated = true;
                let (cosine, sine, tangent) = rotation((a[(q, q)] - a[(p, p)]) / (2.0 * off));
                let diagonal = [a[(p, p)] - tangent * off, a[(q, q)] + tangent * off];
                rotate(a.two_rows(p, q), cosine, sine);
                for i in 0..n {
                    (a[(i, p)], a[(i, q)]) = (a[(p, i)], a[(q, i)]);
                }
                (a[(p, p)], a[(q, q)]) = (diagonal[0], diagonal[1]);
                (a[(p, q)], a[(q, p)]) = (0.0, 0.0);
                rotate(vectors.two_rows(p, q), cosine, sine);
            }
        }
        Ok(rotated)
    })?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| a[(i, i)].total_cmp(&a[(j, j)]));
    let values = order.iter().map(|&i| a[(i, i)] * scale).collect();
    let mut columns = Matrix::filled(n, n, 0.0);
    for (j, &from) in order.iter().enumerate() {
        for (i, &value) in vectors.row(from).iter().enumerate() {
            columns[(i, j)] = value;
        }
    }
    Ok(vec![values, columns.values])
}

/// Sweeps until a sweep rotates nothing.
fn until_settled(op: &'static str, mut sweep: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..SWEEPS {
        if !sweep()? {
            return Ok(());
        }
    }
    Err(failure(op, "the rotations did not converge"))
}

/// `A = U diag(S) Vh` with S in descending order; U and Vh are square if `full`.
struct Svd {
    u: Matrix,
    s: Vec<f64>,
    vh: Matrix,
}

fn decompose(a: &Matrix, full: bool) -> Result<Svd> {
    if a.rows < a.columns {
        let Svd { u, s, vh } = decompose(&a.transposed(), full)?;
        return Ok(Svd { u: vh.transposed(), s, vh: u.transposed() });
    }
    let (m, n) = (a.rows, a.columns);
    let width = if full { m } else { n };
    if !a.is_finite() {
        let nan = |rows, columns| Matrix::filled(rows, columns, f64::NAN);
        return Ok(Svd { u: nan(m, width), s: vec![f64::NAN; n], vh: nan(n, n) });
    }
    let scale = a.magnitude();
    let mut scaled = a.clone();
    if scale > 0.0 {
        scaled.values.iter_mut().for_each(|value| *value /= scale);
    }
    let (mut u, mut r) = reflections::factor(&scaled, width)?;
    r.values.truncate(n * n);
    r.rows = n;
    // Rotations apply to rows, so these are the columns of R.
    let (mut columns, mut vectors) = (r.transposed(), Matrix::identity(n, n));
    orthogonalise(&mut columns, &mut vectors)?;
    let lengths: Vec<f64> = (0..n).map(|i| dot(columns.row(i), columns.row(i)).sqrt()).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| lengths[j].total_cmp(&lengths[i]));
    let ordered = |matrix: &Matrix| {
        let mut ordered = Matrix::filled(n, n, 0.0);
        order.iter().enumerate().for_each(|(row, &i)| ordered.row_mut(row).copy_from_slice(matrix.row(i)));
        ordered
    };
    // Up to signs, orthogonal columns are the Q of their own QR factorisation, which also completes columns of zeros.
    let (mut q, diagonal) = reflections::factor(&ordered(&columns).transposed(), n)?;
    for j in (0..n).filter(|&j| diagonal[(j, j)] < 0.0) {
        for i in 0..n {
            q[(i, j)] = -q[(i, j)];
        }
    }
    for i in 0..m {
        let row = Matrix { rows: 1, columns: n, values: u.row(i)[..n].to_vec() };
        u.row_mut(i)[..n].copy_from_slice(&row.times(&q).values);
    }
    let s = order.iter().map(|&i| lengths[i] * scale).collect();
    Ok(Svd { u, s, vh: ordered(&vectors) })
}

/// Rotates pairs of rows of `columns` until all are orthogonal, and applies the same rotations to `vectors`.
fn orthogonalise(columns: &mut Matrix, vectors: &mut Matrix) -> Result<()> {
    let n = columns.rows;
    let negligible = 4.0 * f64::EPSILON * (n as f64).sqrt();
    until_settled("svd", || {
        let mut rotated = false;
        for p in 0..n {
            interrupt::check()?;
            for q in p + 1..n {
                let (x, y) = columns.two_rows(p, q);
                let (alpha, beta, gamma) = (dot(x, x), dot(y, y), dot(x, y));
                // A column whose square underflows cannot be rotated any further.
                let vanished = alpha < f64::MIN_POSITIVE || beta < f64::MIN_POSITIVE;
                if vanished || gamma.abs() <= negligible * alpha.sqrt() * beta.sqrt() {
                    continue;
                }
                rotated = true;
                let (cosine, sine, _) = rotation((beta - alpha) / (2.0 * gamma));
                rotate((x, y), cosine, sine);
                rotate(vectors.two_rows(p, q), cosine, sine);
            }
        }
        Ok(rotated)
    })
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// U has as many columns, and Vh as many rows, as there are singular values.
pub(super) fn reduced_svd(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let Svd { u, s, vh } = decompose(&inputs[0], false)?;
    Ok(vec![u.values, s, vh.values])
}

/// U and Vh are square.
pub(super) fn full_svd(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let Svd { u, s, vh } = decompose(&inputs[0], true)?;
    Ok(vec![u.values, s, vh.values])
}

/// The pseudoinverse, which inverts the singular values above a fraction of the greatest. The second input is that
/// fraction.
pub(super) fn pseudo_inverse(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let (a, part) = (&inputs[0], inputs[1].values[0]);
    let Svd { u, s, vh } = decompose(a, false)?;
    if !a.is_finite() || part.is_nan() {
        return Ok(vec![Matrix::filled(a.rows, a.columns, f64::NAN).values]);
    }
    let limit = s.iter().fold(0.0, |greatest: f64, value| greatest.max(*value)) * part;
    let mut left = vh.transposed();
    for (j, &value) in s.iter().enumerate() {
        let factor = if value > limit { 1.0 / value } else { 0.0 };
        for i in 0..left.rows {
            left[(i, j)] *= factor;
        }
    }
    Ok(vec![left.times(&u.transposed()).values])
}

/// The cofactors of the elements. For `U S Vh`, they are the products of all singular values but one, rotated the same
/// way.
pub(super) fn cofactors(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    if let Some(regular) = triangular::regular_cofactors(&inputs[0])? {
        return Ok(vec![regular.values]);
    }
    let Svd { mut u, s, vh } = decompose(&inputs[0], false)?;
    let sign = orientation(&u, &vh)?;
    for (j, product) in (0..s.len()).map(|j| (j, sign * product_without(&s, [j, j]))) {
        for i in 0..u.rows {
            u[(i, j)] *= product;
        }
    }
    Ok(vec![u.times(&vh).values])
}

/// The derivative of the inner product of the cofactors and the second input.
pub(super) fn cofactor_gradient(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let Svd { u, s, vh } = decompose(&inputs[0], false)?;
    let (sign, n) = (orientation(&u, &vh)?, s.len());
    let turned = u.transposed().times(&inputs[1]).times(&vh.transposed());
    let mut inner = Matrix::filled(n, n, 0.0);
    for i in 0..n {
        interrupt::check()?;
        for j in (0..n).filter(|&j| j != i) {
            let product = sign * product_without(&s, [i, j]);
            inner[(i, i)] += product * turned[(j, j)];
            inner[(i, j)] = -product * turned[(j, i)];
        }
    }
    Ok(vec![u.times(&inner).times(&vh).values])
}

/// The determinant of the product of two orthogonal matrices: 1 or -1.
fn orientation(u: &Matrix, vh: &Matrix) -> Result<f64> {
    let determinant = triangular::determinant(&[u.times(vh)])?;
    Ok(determinant[0][0].signum())
}

/// The product of all values except those at two positions.
fn product_without(values: &[f64], without: [usize; 2]) -> f64 {
    values.iter().enumerate().filter(|(k, _)| !without.contains(k)).map(|(_, value)| value).product()
}
