//! QR by Householder reflections. Golub and Van Loan, Matrix Computations, 4th edition: algorithms 5.1.1 and 5.2.1.

use super::Matrix;
use crate::{Result, interrupt};

/// `I - factor v v^T`, applied to the rows from `first` on.
struct Reflection {
    first: usize,
    vector: Vec<f64>,
    factor: f64,
}

impl Reflection {
    /// Applies the reflection to the columns from `from` on.
    fn apply(&self, a: &mut Matrix, from: usize) {
        let mut sums = vec![0.0; a.columns - from];
        for (i, &v) in self.vector.iter().enumerate() {
            let row = &a.row(self.first + i)[from..];
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += v * value);
        }
        for (i, &v) in self.vector.iter().enumerate() {
            let multiple = self.factor * v;
            let row = &mut a.row_mut(self.first + i)[from..];
            row.iter_mut().zip(&sums).for_each(|(value, sum)| *value -= multiple * sum);
        }
    }
}

/// `A = Q R`: Q has `width` columns, R as many rows; `width` is the number of rows of A, or the lesser of its extents.
/// The error of a column is relative to that column, so columns of very different lengths are harmless.
pub(super) fn factor(a: &Matrix, width: usize) -> Result<(Matrix, Matrix)> {
    let mut r = a.clone();
    if !a.is_finite() {
        return Ok((Matrix::filled(a.rows, width, f64::NAN), Matrix::filled(width, a.columns, f64::NAN)));
    }
    let mut reflections = Vec::new();
    for k in 0..a.rows.min(a.columns) {
        interrupt::check()?;
        let mut vector: Vec<f64> = (k..a.rows).map(|i| r[(i, k)]).collect();
        if vector[1..].iter().all(|&x| x == 0.0) {
            continue;
        }
        // Scale, so that neither the squares nor their sum overflow or underflow.
        let scale = vector.iter().fold(0.0, |greatest: f64, x| greatest.max(x.abs()));
        vector.iter_mut().for_each(|x| *x /= scale);
        let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
        // Choose the sign that avoids cancellation in the first element.
        let image = -length.copysign(vector[0]);
        vector[0] -= image;
        let factor = 2.0 / vector.iter().map(|x| x * x).sum::<f64>();
        let reflection = Reflection { first: k, vector, factor };
        reflection.apply(&mut r, k + 1);
        r[(k, k)] = image * scale;
        for i in k + 1..a.rows {
            r[(i, k)] = 0.0;
        }
        reflections.push(reflection);
    }
    let mut q = Matrix::identity(a.rows, width);
    for reflection in reflections.iter().rev() {
        interrupt::check()?;
        reflection.apply(&mut q, 0);
    }
    r.values.truncate(width * a.columns);
    r.rows = width;
    Ok((q, r))
}

/// Q has as many columns as the lesser extent of A.
pub(super) fn reduced(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let a = &inputs[0];
    let (q, r) = factor(a, a.rows.min(a.columns))?;
    Ok(vec![q.values, r.values])
}

/// Q is square.
pub(super) fn complete(inputs: &[Matrix]) -> Result<Vec<Vec<f64>>> {
    let (q, r) = factor(&inputs[0], inputs[0].rows)?;
    Ok(vec![q.values, r.values])
}
